"""Which of our mails could not be delivered, according to a delivery status notification (RFC 3464).

Called by `core/mail/parse.py`. In: the tree of a mail; out: the Message-ID that it is about. Anybody can write such
mails, but only someone who has seen one of our Message-IDs can name it.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Final

from switchboard.core.mail.head import field, read_head
from switchboard.core.mail.mime import MailPart, content, leaves

_ORIGINAL: Final = frozenset({"message/rfc822", "text/rfc822-headers", "message/rfc822-headers", "message/global"})
_ACTION = re.compile(rb"^action[ \t]*:[ \t]*([a-z]+)", re.IGNORECASE | re.MULTILINE)
_ID = re.compile(r"<[^<>\s]{1,510}>")


def id_of_bounced_mail(root: MailPart) -> str | None:
    """The Message-ID, in brackets, of the mail that `root` reports as undeliverable; None if it reports none.

    Notices of a delay or of success do not count.
    """
    if root.media_type != "multipart/report":
        return None
    parts = list(leaves(root))
    reports = (part for part in parts if part.media_type == "message/delivery-status")
    if b"failed" not in map(bytes.lower, chain.from_iterable(map(_actions, reports))):
        return None
    originals = (part for part in parts if part.media_type in _ORIGINAL)
    found = (_ID.search(field(read_head(content(part)), "message-id")) for part in originals)
    return next((one[0] for one in found if one), None)


def _actions(part: MailPart) -> list[bytes]:
    return _ACTION.findall(content(part))

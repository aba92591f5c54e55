"""Which of our mails could not be delivered, and why, according to a delivery status notification (RFC 3464).

One that is only text is read by `plain_bounce.py`.

Called by `core/mail/parse.py`, and by the connector. In: the tree of a mail; out: the Message-ID that it is about, and
the reason. Anybody can write such mails, but only someone who has seen one of our Message-IDs can name it.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Final

from msgspec import Struct

from switchboard.core.mail.head import field, read_head
from switchboard.core.mail.mime import MailPart, content, leaves
from switchboard.core.mail.plain_bounce import read_plain_bounce

_ORIGINAL: Final = frozenset({"message/rfc822", "text/rfc822-headers", "message/rfc822-headers", "message/global"})
_ACTION = re.compile(rb"^action[ \t]*:[ \t]*([a-z]+)", re.IGNORECASE | re.MULTILINE)
_FAILED = re.compile(rb"^action[ \t]*:[ \t]*failed\b", re.IGNORECASE | re.MULTILINE)
_STATUS = re.compile(rb"^status[ \t]*:[ \t]*([245]\.\d{1,3}\.\d{1,3})", re.IGNORECASE | re.MULTILINE)
_DIAGNOSTIC = re.compile(rb"^diagnostic-code[ \t]*:[^;\n]*;[ \t]*(.+(?:\n[ \t].*)*)", re.IGNORECASE | re.MULTILINE)
_BAD_ADDRESS = re.compile("5[.]1[.](?:1|2|3|6|10)")
"""Statuses by which no other mail to this address can arrive either (RFC 3463)."""
_MOST_REASON: Final = 300
_ID = re.compile(r"<[^<>\s]{1,510}>")


def id_of_bounced_mail(root: MailPart) -> str | None:
    """The Message-ID, in brackets, of the mail that `root` reports as undeliverable; None if it reports none.

    Notices of a delay or of success do not count.
    """
    if root.media_type != "multipart/report":
        return plain.message_id if (plain := read_plain_bounce(root)) else None
    parts = list(leaves(root))
    reports = (part for part in parts if part.media_type == "message/delivery-status")
    if b"failed" not in map(bytes.lower, chain.from_iterable(map(_actions, reports))):
        return None
    originals = (part for part in parts if part.media_type in _ORIGINAL)
    found = (_ID.search(field(read_head(content(part)), "message-id")) for part in originals)
    return next((one[0] for one in found if one), None)


class BounceReason(Struct, frozen=True):
    """Why a mail was returned, in the words of the server that refused it; `is_final`: others would be, too."""

    text: str
    is_final: bool


def reason_of_bounce(root: MailPart) -> BounceReason:
    """Why the mail that `id_of_bounced_mail` names was not delivered, to the first recipient of whom that is said."""
    if (plain := read_plain_bounce(root)) is not None:
        return BounceReason(plain.reason, is_final=False)
    reports = (content(part) for part in leaves(root) if part.media_type == "message/delivery-status")
    groups = chain.from_iterable(report.replace(b"\r\n", b"\n").split(b"\n\n") for report in reports)
    group = next(filter(_FAILED.search, groups), b"")
    status, diagnostic = _STATUS.search(group), _DIAGNOSTIC.search(group)
    code = status[1].decode("ascii") if status else ""
    said = " ".join(diagnostic[1].decode("utf-8", "replace").split())[:_MOST_REASON] if diagnostic else ""
    return BounceReason(
        said or f"it was returned{code and f' with the status {code}'}", bool(_BAD_ADDRESS.fullmatch(code))
    )


def _actions(part: MailPart) -> list[bytes]:
    return _ACTION.findall(content(part))

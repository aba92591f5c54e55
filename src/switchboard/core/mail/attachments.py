"""The attachments of a mail as its envelope lists them.

Called by `core/mail/parse.py`. In: the parts of a mail; out: one `Attachment` for each part that `core/mail/files.py`
counts, in the same order, so that the bytes are found by position. An image that the text shows has an id that begins
with `cid:`, by which `core/channels/email.py` knows that nobody attached it. Next: `core/mail/files.py`.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final
from urllib.parse import unquote

from switchboard.core.mail.envelope import short
from switchboard.core.mail.head import field
from switchboard.core.mail.mime import MailPart, leaves, size_of
from switchboard.core.mail.reading import Reading
from switchboard.domain.envelope import Attachment

MAX_ATTACHMENTS: Final = 100
SHOWN: Final = "cid:"
_SHOWN: Final = re.compile(rb"\bcid:([^\"'\s<>()]{1,500})", re.IGNORECASE)


def attachments_of(root: MailPart, reading: Reading) -> tuple[Attachment, ...]:
    """The first attachments of a mail."""
    parts = list(islice((part for part in leaves(root) if part.is_attachment), MAX_ATTACHMENTS))
    shown = _ids_shown(root, reading) if any(map(_may_be_shown, parts)) else frozenset[str]()
    return tuple(_attachment(part, shown) for part in parts)


def _attachment(part: MailPart, shown: frozenset[str]) -> Attachment:
    content_id = short(field(part.head, "content-id"))
    is_shown = _may_be_shown(part) and content_id.strip("<>") in shown
    return Attachment(
        media_type=short(part.kind),
        # Only the last part of a path: the sender must not choose where anything is stored.
        filename=short(re.split(r"[/\\]", part.filename)[-1]) or None,
        size_bytes=size_of(part),
        source_attachment_id=(f"{SHOWN}{content_id.strip('<>')}" if is_shown else content_id.removeprefix(SHOWN))
        or None,
    )


def _may_be_shown(part: MailPart) -> bool:
    return part.media_type.startswith("image/") and bool(field(part.head, "content-id"))


def _ids_shown(root: MailPart, reading: Reading) -> frozenset[str]:
    """The ids of the images to which the HTML refers."""
    html = (part for part in leaves(root) if not part.is_attachment and part.media_type == "text/html")
    found = (one[1] for part in html for one in _SHOWN.finditer(reading.data(part)))
    return frozenset(unquote(one.decode("utf-8", "replace")) for one in found)

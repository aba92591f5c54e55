"""Which of our mails could not be delivered, according to a notice that is nothing but text, as qmail and Exim write.

Called by `bounce.py`, for what is no report of RFC 3464. In: the tree of a mail; out: the Message-ID that it is about,
and the reason. It counts for as much as a report: whoever has seen one of our Message-IDs can write both.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from switchboard.core.mail.head import field, read_head
from switchboard.core.mail.headers import address
from switchboard.core.mail.mime import MailPart, content

_MOST: Final = 50_000
"""Bytes in which the notice and the header fields of our mail are looked for."""
_MOST_REASON: Final = 300
_PROGRAM = re.compile(r"(?:mailer-daemon|postmaster)@", re.IGNORECASE)
_PERMANENT = re.compile(rb"\bthis is a permanent error\b", re.IGNORECASE)
"""Notices of a delay do not say this."""
_COPY = re.compile(
    rb"^--+ (?:below this line is a copy of the|this is a copy of (?:the|your)) message[^\n]*$", re.I | re.M
)
_ID = re.compile(r"<[^<>\s]{1,510}>")


class PlainBounce(Struct, frozen=True):
    """`message_id`: that of our mail, in brackets. `reason`: in the words of the server that returned it."""

    message_id: str
    reason: str


def read_plain_bounce(root: MailPart) -> PlainBounce | None:
    """None if it is no such notice: from a mail server, to be answered by nobody, with the fields of a mail below."""
    sender = address(field(root.head, "from"))
    if root.media_type != "text/plain" or field(root.head, "return-path") != "<>" or not _PROGRAM.match(sender or ""):
        return None
    text = content(root)[:_MOST].replace(b"\r\n", b"\n")
    copy = _COPY.search(text)
    permanent = _PERMANENT.search(text, 0, copy.start()) if copy else None
    if copy is None or permanent is None:
        return None
    named = _ID.search(field(read_head(text[copy.end() :].lstrip(b"\n")), "message-id"))
    _, _, below = text[permanent.end() : copy.start()].partition(b"\n\n")
    said = " ".join(below.decode("utf-8", "replace").split())[:_MOST_REASON]
    return PlainBounce(named[0], said or "it was returned") if named else None

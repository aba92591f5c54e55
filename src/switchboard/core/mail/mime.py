"""The bytes of a mail as a tree of parts.

Called by `core/mail/parse.py`. In: bytes that a stranger wrote; out: headers, parts and text, as far as they are
readable; nothing here raises. `core/mail/head.py` reads the headers of each part. The tree is built here: the parser of
the standard library is recursive and compares every line with every open boundary, so a mail of a megabyte could keep
it busy for minutes. Next: `core/mail/texts.py`.
"""

from __future__ import annotations

import base64
import quopri
import re
from collections.abc import Iterator
from email.message import Message
from itertools import takewhile
from typing import Final

from msgspec import Struct

from switchboard.core.mail.head import encoded_type, field, file_name, head_and_body, or_none

MAX_NESTING: Final = 16
"""Maximum nesting of multiparts; deeper parts are ignored."""
MAX_PARTS: Final = 200
"""Maximum number of parts of a mail that are read."""
MAX_TEXT_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of a part, as transferred, that are read as text."""
DIGEST: Final = "multipart/digest"


class MailPart(Struct, frozen=True):
    """A mail or a part of one: its headers, its bytes as transferred, and its parts.

    `media_type` is in lower case, and `text/plain` if nothing usable is given; `kind` is the same, but understands one
    that was sent as an encoded word. By `media_type` the parts and attachments of a mail are found, in stored ones too.
    """

    head: Message
    body: bytes
    media_type: str
    kind: str
    children: tuple[MailPart, ...] = ()

    @property
    def filename(self) -> str:
        return file_name(self.head)

    @property
    def is_attachment(self) -> bool:
        """Whether it is a leaf that is not part of the text."""
        if self.children or self.media_type.startswith("multipart/"):
            return False
        readable = self.media_type in {"text/plain", "text/html"}
        return not readable or is_attached(self.head) or bool(self.filename)

    @property
    def is_file(self) -> bool:
        """Whether it is a file or a collection of mails, so that nothing in it is the text of the mail.

        `is_attachment` does not say it of a multipart, because attachments are counted and found by that.
        """
        if not self.media_type.startswith("multipart/"):
            return self.is_attachment
        return self.media_type == DIGEST or is_attached(self.head) or bool(self.filename)


def read_part(raw: bytes) -> MailPart:
    """The tree of a mail. Never raises; what cannot be split is one part."""
    return _read(raw.lstrip(b"\r\n"), MAX_NESTING, iter(range(MAX_PARTS)))


def read_inner(raw: bytes, budget: Iterator[int]) -> MailPart | None:
    """The tree of a mail within a mail, as far as the budget of parts reaches; None if it is used up."""
    return None if next(budget, None) is None else _read(raw.lstrip(b"\r\n"), MAX_NESTING, budget)


def is_attached(head: Message) -> bool:
    """Whether a part says that it is attached, rather than shown."""
    return or_none(head.get_content_disposition) == "attachment"


def parts_of(part: MailPart) -> Iterator[MailPart]:
    """The part and all parts in it."""
    yield part
    for child in part.children:
        yield from parts_of(child)


def leaves(part: MailPart) -> Iterator[MailPart]:
    """All parts without parts of their own, in order."""
    if not part.children:
        yield part
    for child in part.children:
        yield from leaves(child)


def content(part: MailPart) -> bytes:
    """The decoded bytes of a text part, at most a few megabytes of them."""
    return decoded_body(part, part.body[:MAX_TEXT_BYTES])


def decoded_body(part: MailPart, body: bytes) -> bytes:
    """The bytes of a part without their transfer encoding."""
    encoding = _encoding(part)
    if encoding == "base64":
        digits = re.sub(rb"[^A-Za-z0-9+/]", b"", body)
        digits = digits[: len(digits) - (len(digits) % 4 == 1)]
        return base64.b64decode(digits + b"=" * (-len(digits) % 4))
    return quopri.decodestring(body) if encoding == "quoted-printable" else body


def size_of(part: MailPart) -> int:
    """The decoded size of a part in bytes."""
    encoding = _encoding(part)
    if encoding == "base64":
        return len(part.body.translate(None, b"\r\n\t =")) * 3 // 4
    return len(quopri.decodestring(part.body)) if encoding == "quoted-printable" else len(part.body)


def _read(raw: bytes, depth: int, budget: Iterator[int]) -> MailPart:
    head, body = head_and_body(raw)
    media_type = or_none(head.get_content_type) or ""
    boundary = or_none(head.get_boundary) if depth and media_type.startswith("multipart/") else None
    within = takewhile(lambda _: next(budget, None) is not None, _cut(body, boundary)) if boundary else ()
    children = tuple(_read(piece, depth - 1, budget) for piece in within)
    return MailPart(head, body, media_type or "text/plain", encoded_type(head) or media_type or "text/plain", children)


def _cut(body: bytes, boundary: str) -> Iterator[bytes]:
    """The parts between the boundary lines; the last one may lack its end."""
    line = re.compile(rb"^--" + re.escape(boundary.encode("utf-8", "surrogateescape")) + rb"(--)?[ \t]*\r?$", re.M)
    begin: int | None = None
    for mark in line.finditer(body):
        if begin is not None:
            yield body[begin : mark.start()].removesuffix(b"\n").removesuffix(b"\r")
        begin = mark.end() + 1
        if mark.group(1):
            return
    if begin is not None and begin < len(body):
        yield body[begin:]


def _encoding(part: MailPart) -> str:
    return field(part.head, "content-transfer-encoding").lower()

"""The bytes of a mail as a tree of parts, and the text in them.

Called by `core/mail/parse.py`. In: bytes that a stranger wrote; out: headers, parts and text, as far as they are
readable; nothing here raises. The standard library reads the headers of each part. The tree is built here: its own
parser is recursive and compares every line with every open boundary, and its modern header parser is quadratic: a mail
of a megabyte could keep it busy for minutes. Next: `core/mail/hypertext.py` for HTML.
"""

from __future__ import annotations

import base64
import codecs
import quopri
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser
from email.policy import compat32
from itertools import takewhile
from typing import Final, TypeVar

from switchboard.core.mail.hypertext import text_of_html

MAX_NESTING: Final = 16
"""Maximum nesting of multiparts; deeper parts are ignored."""
MAX_PARTS: Final = 200
"""Maximum number of parts of a mail that are read."""
MAX_HEAD: Final = 256 * 1024
"""Maximum bytes of a header block that are read."""
MAX_HEADER: Final = 12_000
"""Maximum characters of a header field; more than `auth.py` accepts, so that it can detect a field that is too long."""
_MAX_CONTENT_HEADER: Final = 2_000
_MAX_FIELDS: Final = 1_000
_MAX_TEXT_BYTES: Final = 4 * 1024 * 1024

# These are not character sets: slow, or a way to smuggle in characters.
_NOT_CHARSETS: Final = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"})
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_FOLD = re.compile(r"[\r\n]+[ \t]*")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Part:
    """A mail or a part of one: its headers, its bytes as transferred, and its parts."""

    head: Message
    body: bytes
    children: tuple[Part, ...] = ()

    @property
    def media_type(self) -> str:
        """In lower case; `text/plain` if nothing usable is given."""
        return or_none(self.head.get_content_type) or "text/plain"

    @property
    def filename(self) -> str:
        return decoded(or_none(lambda: self.head.get_filename("")) or "")

    @property
    def is_attachment(self) -> bool:
        """Whether it is a leaf that is not part of the text."""
        if self.children or self.media_type.startswith("multipart/"):
            return False
        disposition = or_none(self.head.get_content_disposition)
        readable = self.media_type in {"text/plain", "text/html"}
        return not readable or disposition == "attachment" or bool(self.filename)


def read_part(raw: bytes) -> Part:
    """The tree of a mail. Never raises; what cannot be split is one part."""
    return _read(raw.lstrip(b"\r\n"), MAX_NESTING, iter(range(MAX_PARTS)))


def read_head(raw: bytes) -> Message:
    """The header fields alone."""
    return _head_and_body(raw[: MAX_HEAD + len(b"\r\n\r\n")].lstrip(b"\r\n"))[0]


def field(head: Message, name: str) -> str:
    """The first field of that name, unfolded, else an empty string; encoded words are left as they are.

    The first is the one added last, by trusted servers. Encoded words must stay encoded in structured fields: decoded,
    they could look like syntax.
    """
    found = next((value for key, value in head.raw_items() if key.lower() == name), "")
    data = str(found).encode("utf-8", "surrogateescape")
    return _FOLD.sub(" ", as_text(data)).strip()


def decoded(value: str) -> str:
    """A human-readable field, its RFC 2047 words decoded."""
    chunks = or_none(lambda: decode_header(value)) or [(value, None)]
    return "".join(_chunk(data, charset) for data, charset in chunks)


def leaves(part: Part) -> Iterator[Part]:
    """All parts that have no parts, in order."""
    if not part.children:
        yield part
    for child in part.children:
        yield from leaves(child)


def text_of(part: Part) -> str:
    """What a person would read: plain text if there is any, else HTML as text; without attachments."""
    if part.is_attachment:
        return ""
    texts = [text for child in _preferred(part) if (text := text_of(child).strip())]
    if part.children:
        return texts[0] if part.media_type == "multipart/alternative" and texts else "\n\n".join(texts)
    text = as_text(content(part), or_none(lambda: part.head.get_content_charset("")) or "")
    return text_of_html(text) if part.media_type == "text/html" else text.replace("\r\n", "\n")


def content(part: Part) -> bytes:
    """The decoded bytes of a text part, at most a few megabytes of them."""
    body, encoding = part.body[:_MAX_TEXT_BYTES], _encoding(part)
    if encoding == "base64":
        digits = re.sub(rb"[^A-Za-z0-9+/]", b"", body)
        digits = digits[: len(digits) - (len(digits) % 4 == 1)]
        return base64.b64decode(digits + b"=" * (-len(digits) % 4))
    return quopri.decodestring(body) if encoding == "quoted-printable" else body


def size_of(part: Part) -> int:
    """The size of a part in bytes, decoded."""
    encoding = _encoding(part)
    if encoding == "base64":
        return len(part.body.translate(None, b"\r\n\t =")) * 3 // 4
    return len(quopri.decodestring(part.body)) if encoding == "quoted-printable" else len(part.body)


def as_text(data: bytes, charset: str = "") -> str:
    """Bytes as text that can be stored: no NUL, no lone surrogates. A wrong or unknown character set is tolerated."""
    codec = _codec(charset)
    # UTF-8 is recognisable: bytes that are not valid in it are most likely Windows-1252.
    text = or_none(lambda: data.decode(codec, "strict" if codec == "utf-8" else "replace"))
    if text is None:
        text = data.decode("cp1252", "replace")
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "")


def or_none(read: Callable[[], _T]) -> _T | None:
    """What `read` returns, or None if it raises: on broken input the email package raises all kinds of errors."""
    try:
        return read()
    except Exception:
        return None


def _codec(charset: str) -> str:
    """The codec's own name; UTF-8 for ASCII, because mails that claim to be ASCII often are not."""
    codec = or_none(lambda: codecs.lookup(charset))
    name = codec.name if codec else "utf-8"
    return "utf-8" if name == "ascii" or name.replace("_", "-") in _NOT_CHARSETS else name


def _chunk(data: bytes | str, charset: str | None) -> str:
    if isinstance(data, str):
        return as_text(data.encode("utf-8", "surrogateescape"))
    # Between encoded words the library returns plain characters as bytes in a form of its own.
    return as_text(data, charset) if charset else data.decode("raw-unicode-escape", "replace")


def _read(raw: bytes, depth: int, budget: Iterator[int]) -> Part:
    head, body = _head_and_body(raw)
    boundary = or_none(head.get_boundary)
    if not boundary or depth == 0 or not (or_none(head.get_content_type) or "").startswith("multipart/"):
        return Part(head, body)
    within = takewhile(lambda _: next(budget, None) is not None, _cut(body, boundary))
    return Part(head, body, tuple(_read(piece, depth - 1, budget) for piece in within))


def _head_and_body(raw: bytes) -> tuple[Message, bytes]:
    if raw.startswith((b"\n", b"\r\n")):
        return Message(), raw.lstrip(b"\r\n")
    end = _HEAD_END.search(raw)
    head, body = (raw[: end.start()], raw[end.end() :]) if end else (raw, b"")
    return _bounded(or_none(lambda: BytesHeaderParser(policy=compat32).parsebytes(head[:MAX_HEAD] + b"\n\n"))), body


def _bounded(head: Message | None) -> Message:
    """The same fields, long ones cut: the library's field parsers are quadratic."""
    short = Message()
    for name, value in list(head.raw_items())[:_MAX_FIELDS] if head else ():
        short[name] = str(value)[: _MAX_CONTENT_HEADER if name.lower().startswith("content-") else MAX_HEADER]
    return short


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


def _preferred(part: Part) -> list[Part]:
    """Among alternatives, plain text comes first; otherwise the order is kept."""
    if part.media_type != "multipart/alternative":
        return list(part.children)
    return sorted(part.children, key=lambda child: child.media_type != "text/plain")


def _encoding(part: Part) -> str:
    return field(part.head, "content-transfer-encoding").lower()

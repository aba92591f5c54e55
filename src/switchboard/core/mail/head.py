"""The header fields of a mail or of a part of one, and how bytes become text.

Called by `core/mail/mime.py` and `core/mail/envelope.py`. In: bytes that a stranger wrote; out: fields and text, as far
as they are readable; nothing here raises. The standard library reads the fields, but not long ones: its parsers of them
are quadratic.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser
from typing import Final, TypeVar

MAX_HEAD: Final = 256 * 1024
"""Maximum bytes of a header block that are read."""
MAX_HEADER: Final = 12_000
"""Maximum characters of a header field; more than `auth.py` accepts, so that it can detect a field that is too long."""
_MAX_CONTENT_HEADER: Final = 2_000
_MAX_FIELDS: Final = 1_000

# These are not character sets: slow, or a way to smuggle in characters.
_NOT_CHARSETS: Final = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"})
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_FOLD = re.compile(r"[\r\n]+[ \t]*")
_ENCODED_OR_BACKSLASH = re.compile(r"(=\?[^?]*\?[bq]\?.*?\?=)|\\", re.IGNORECASE)
_T = TypeVar("_T")


def read_head(raw: bytes) -> Message:
    """The header fields alone."""
    return head_and_body(raw[: MAX_HEAD + len(b"\r\n\r\n")].lstrip(b"\r\n"))[0]


def head_and_body(raw: bytes) -> tuple[Message, bytes]:
    """The fields, and what follows them."""
    if raw.startswith((b"\n", b"\r\n")):
        return Message(), raw.lstrip(b"\r\n")
    end = _HEAD_END.search(raw)
    head, body = (raw[: end.start()], raw[end.end() :]) if end else (raw, b"")
    return _bounded(or_none(lambda: BytesHeaderParser().parsebytes(head[:MAX_HEAD] + b"\n\n"))), body


def field(head: Message, name: str) -> str:
    """The first field of that name, unfolded, or an empty string; encoded words stay as they are.

    The first is the one added last, by trusted servers. Encoded words must stay encoded in structured fields: decoded,
    they could look like syntax.
    """
    found = next((value for key, value in head.raw_items() if key.lower() == name), "")
    data = str(found).encode("utf-8", "surrogateescape")
    return _FOLD.sub(" ", as_text(data)).strip()


def decoded(value: str) -> str:
    """A human-readable field, its RFC 2047 words decoded."""
    chunks = or_none(lambda: decode_header(_escaped(value))) or [(value, None)]
    if isinstance(chunks[0][0], str):  # nothing in it is encoded
        return _storable(value)
    return "".join(_chunk(data, charset) for data, charset in chunks)


def _escaped(value: str) -> str:
    """Plain words between encoded ones come from the library in raw-unicode-escape, but without escaped backslashes."""
    return _ENCODED_OR_BACKSLASH.sub(lambda found: found[1] or r"\u005c", value)


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


def _bounded(head: Message | None) -> Message:
    """The same fields, with long ones cut: the library's field parsers are quadratic."""
    short = Message()
    for name, value in list(head.raw_items())[:_MAX_FIELDS] if head else ():
        short[name] = str(value)[: _MAX_CONTENT_HEADER if name.lower().startswith("content-") else MAX_HEADER]
    return short


def _codec(charset: str) -> str:
    """The codec's own name; UTF-8 for ASCII, because mails that claim to be ASCII often are not."""
    codec = or_none(lambda: codecs.lookup(charset))
    name = codec.name if codec else "utf-8"
    return "utf-8" if name == "ascii" or name.replace("_", "-") in _NOT_CHARSETS else name


def _chunk(data: bytes, charset: str | None) -> str:
    return as_text(data, charset) if charset else _storable(data.decode("raw-unicode-escape", "replace"))


def _storable(text: str) -> str:
    """The library turns raw bytes into surrogates; other surrogates mean nothing."""
    raw = or_none(lambda: text.encode("utf-8", "surrogateescape"))
    return as_text(text.encode("utf-8", "replace") if raw is None else raw)

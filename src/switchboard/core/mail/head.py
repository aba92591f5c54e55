"""The header fields of a mail or of a part of one.

Called by `core/mail/mime.py` and `core/mail/envelope.py`. In: bytes that a stranger wrote; out: fields and text, as far
as they are readable; nothing here raises. The standard library reads the fields, but not long ones: its parsers of them
are quadratic. Next: `core/mail/charsets.py`, which turns their bytes into text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser
from typing import Final, TypeVar

from switchboard.core.mail.charsets import as_text, read_text
from switchboard.core.mail.utf8 import ESCAPE, storable, utf8

MAX_HEAD: Final = 256 * 1024
"""Maximum bytes of a header block that are read."""
MAX_HEADER: Final = 12_000
"""Maximum characters of a header field; more than `auth.py` accepts, so that it can detect a field that is too long."""
_MAX_CONTENT_HEADER: Final = 2_000
_MAX_FIELDS: Final = 1_000
_LOOKED_AT: Final = 4_096
"""The bytes of fields of which a character set is guessed."""

_IDS: Final = frozenset({"message-id", "in-reply-to", "references"})
"""Fields that name mails."""
_WORDS: Final = re.compile(rb"(\s+)")
_NAMES: Final = (("content-disposition", "filename"), ("content-type", "name"))
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
    return _cut_long_fields(or_none(lambda: BytesHeaderParser().parsebytes(head[:MAX_HEAD] + b"\n\n"))), body


def field(head: Message, name: str) -> str:
    """The first field of that name, unfolded, or an empty string; encoded words stay as they are.

    The first is the one added last, by trusted servers. Encoded words must stay encoded in structured fields: decoded,
    they could look like syntax.
    """
    return _FOLD.sub(" ", _raw_field(head, name)).strip()


def guessed_charset(head: Message) -> str | None:
    """The character set that was guessed for fields with bytes that nothing explains; None if there are none."""
    data = b"\n".join(_bytes(value) for _, value in head.raw_items() if not str(value).isascii())
    return read_text(data[:_LOOKED_AT]).guessed if data and utf8(data) is None else None


def file_name(head: Message) -> str:
    """The name of the file in a part, as its sender wrote it; empty if there is none."""
    named = "content-disposition" in head or "name" in str(head.get("content-type", "")).lower()
    return (or_none(lambda: _file_name(head)) or "") if named else ""


def encoded_type(head: Message) -> str:
    """The media type in lower case, if it was sent as an encoded word."""
    value = str(head.get("content-type", ""))
    return (or_none(_with("content-type", decode_field(value)).get_content_type) or "") if "=?" in value else ""


def decode_field(value: str) -> str:
    """A human-readable field, its RFC 2047 words decoded."""
    if "=?" not in value:
        return _storable(value)
    chunks = or_none(lambda: decode_header(_escaped(value))) or [(value, None)]
    if isinstance(chunks[0][0], str):  # nothing in it is encoded
        return _storable(value)
    return "".join(_chunk(data, charset) for data, charset in chunks)


def _escaped(value: str) -> str:
    """Plain words between encoded ones come from the library in raw-unicode-escape, but without escaped backslashes."""
    return _ENCODED_OR_BACKSLASH.sub(lambda found: found[1] or r"\u005c", value)


def or_none(read: Callable[[], _T]) -> _T | None:
    """What `read` returns, or None if it raises: on broken input the email package raises all kinds of errors."""
    try:
        return read()
    except Exception:
        return None


def _cut_long_fields(head: Message | None) -> Message:
    """The same fields, with long ones cut: the library's field parsers are quadratic."""
    short = Message()
    for name, value in list(head.raw_items())[:_MAX_FIELDS] if head else ():
        short[name] = str(value)[: _MAX_CONTENT_HEADER if name.lower().startswith("content-") else MAX_HEADER]
    return short


def _raw_field(head: Message, name: str) -> str:
    value = str(next((value for key, value in head.raw_items() if key.lower() == name), ""))
    if value.isascii() and "\x1b" not in value:
        return value.replace("\x00", "")
    data = _bytes(value)
    if (text := utf8(data)) is not None:
        return storable(text)
    if name in _IDS:
        return _as_windows_1252(data)
    # More bytes make a better guess, and one mail has one character set.
    charset = guessed_charset(head) or ""
    if ESCAPE in data or name.startswith("content-"):
        return as_text(data, charset)
    return "".join(
        _as_windows_1252(one) if b"@" in one or b"<" in one else as_text(one, charset) for one in _WORDS.split(data)
    )


def _as_windows_1252(data: bytes) -> str:
    """What identifies mails and people must not depend on a guess."""
    return storable(data.decode("cp1252", "replace"))


def _bytes(value: object) -> bytes:
    """A field as it was sent: the library turns bytes beyond ASCII into surrogates."""
    return str(value).encode("utf-8", "surrogateescape")


def _file_name(head: Message) -> str:
    found = (_parameter(head, *name) for name in _NAMES)
    return next((name for name in found if name is not None), "")


def _parameter(head: Message, name: str, parameter: str) -> str | None:
    value = _with(name, _raw_field(head, name)).get_param(parameter, None, name)
    if isinstance(value, tuple):  # RFC 2231: the character set, the language, and bytes as characters
        if max(value[2], default="") > "\xff":  # or characters that were sent as they are
            return value[2].strip()
        return as_text(value[2].encode("raw-unicode-escape"), value[0] or "").strip()
    return None if value is None else decode_field(value).strip()


def _with(name: str, value: str) -> Message:
    one = Message()
    one[name] = value
    return one


def _chunk(data: bytes, charset: str | None) -> str:
    return as_text(data, charset) if charset else _storable(data.decode("raw-unicode-escape", "replace"))


def _storable(text: str) -> str:
    """The library turns raw bytes into surrogates; other surrogates mean nothing."""
    if text.isascii() and "\x1b" not in text:
        return text.replace("\x00", "")
    raw = or_none(lambda: text.encode("utf-8", "surrogateescape"))
    return as_text(text.encode("utf-8", "replace") if raw is None else raw)

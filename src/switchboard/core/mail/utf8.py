"""UTF-8, the labels under which it is sent, and what all encodings share.

Called by `core/mail/charsets.py` and `core/mail/encodings.py`. In: bytes that a stranger wrote; out: text, or whether a
text makes sense. Nothing here raises; linear time. Next: `core/mail/charsets.py`.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

UTF8: Final = frozenset({"", "utf-8", "utf8", "unicode-1-1-utf-8", "us-ascii", "ascii", "ansi_x3.4-1968", "646"})
"""Labels of UTF-8, and those of ASCII, because mails that claim to be ASCII often are not."""
LATIN: Final = frozenset(
    {
        *("iso-8859-1", "iso8859-1", "iso_8859-1", "iso88591", "iso_8859-1:1987", "iso-ir-100", "latin1", "latin-1"),
        *("l1", "cp819", "ibm819", "csisolatin1", "windows-1252", "cp1252", "x-cp1252"),
    }
)
"""Labels of windows-1252, which many programs write without looking."""
ESCAPE: Final = b"\x1b$"
"""Begins characters of two bytes in the encodings of East Asia that use no byte beyond ASCII."""
_BEYOND_ASCII: Final = bytes(range(128, 256))


class Decoded(Struct, frozen=True):
    """A text; `guessed` is the character set that was guessed for it, in lower case, where no label explains it."""

    text: str
    guessed: str | None = None


def utf8(data: bytes) -> str | None:
    """The text of valid UTF-8 without `ESCAPE`; None for all else."""
    if ESCAPE in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def makes_sense(text: str, data: bytes) -> bool:
    """Whether the bytes were decoded in the right way: a few wrong ones, or one that was cut off, do not count."""
    wrong = text.count("\ufffd")
    return not wrong or wrong * 3 <= len(data) - len(data.translate(None, _BEYOND_ASCII))


def storable(text: str) -> str:
    """The text without NUL and lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "")

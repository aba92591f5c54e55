"""How bytes become text: by the encoding table of the web (WHATWG), with what mail adds to it; the rest is guessed.

Called by `core/mail/head.py` for header fields and names of files, by `core/mail/texts.py` for bodies, and by
`tools/page_process.py` for pages. In: bytes that a stranger wrote, and what they say about themselves; out: text that
can be stored, without NUL and lone surrogates. Never raises, loses nothing that can be read, linear time. Next:
`core/mail/encodings.py`, which is imported only for what is neither UTF-8 nor ASCII.
"""

from __future__ import annotations

import codecs
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
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class Decoded(Struct, frozen=True):
    """A text; `guessed` is the character set that was guessed for it, in lower case, where no label explains it."""

    text: str
    guessed: str | None = None


def read_text(data: bytes, label: str = "") -> Decoded:
    """The text of `data`, which says that its character set is `label`.

    Guessed are bytes without a label, with an unknown one, and those of which a third beyond ASCII makes no sense by
    their label. What is valid UTF-8 is UTF-8 in spite of a label that programs write without looking.
    """
    label = _cleaned(label)
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return Decoded(storable(data[len(mark) :].decode(codec, "replace")))
    if label in UTF8 or label in LATIN:
        text = utf8(data)
        if text is not None:
            return Decoded(storable(text), None if label in UTF8 or data.isascii() else "utf-8")
    from switchboard.core.mail.encodings import read_other

    return read_other(data, label)


def as_text(data: bytes, label: str = "") -> str:
    """The text alone."""
    return read_text(data, label).text


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


def _cleaned(label: str) -> str:
    """`utf-8` for `"UTF-8;` and for `utf-8*en`, which names a language too."""
    return label.partition("*")[0].strip("\"'`;,. \t\r\n").partition(";")[0].strip().lower()

"""How bytes become text: by the encoding table of the web (WHATWG), with what mail adds to it; the rest is guessed.

Called by `core/mail/head.py` for header fields and names of files, by `core/mail/texts.py` for bodies, and by
`tools/page_process.py` for pages. In: bytes that a stranger wrote, and what they say about themselves; out: text that
can be stored, without NUL and lone surrogates. Never raises, loses nothing that can be read, linear time. Next:
`core/mail/encodings.py`, which is imported only for what is neither UTF-8 nor ASCII.
"""

from __future__ import annotations

import codecs
from typing import Final

from switchboard.core.mail.utf8 import LATIN, UTF8, Decoded, storable, utf8

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def read_text(data: bytes, label: str = "") -> Decoded:
    """The text of `data`, which says that its character set is `label`.

    Guessed are bytes without a label, with an unknown one, and those of which a third beyond ASCII makes no sense by
    their label. What is valid UTF-8 is UTF-8 in spite of a label that programs write without looking.
    """
    label = _clean_label(label)
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


def _clean_label(label: str) -> str:
    """`utf-8` for `"UTF-8;` and for `utf-8*en`, which names a language too."""
    return label.partition("*")[0].strip("\"'`;,. \t\r\n").partition(";")[0].strip().lower()

"""Bytes in other encodings than UTF-8: the encoding table of the web, code pages, what mail adds, and guesses.

Called by `core/mail/charsets.py`, which imports it late, because turbohtml is heavy and most mails are UTF-8. In: bytes
and the label that they carry; out: their text, and the character set where it was guessed. turbohtml knows the table
and guesses; the codecs of the standard library are what else mail programs have used. Next: `core/mail/charsets.py`.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from turbohtml.detect import detect

from switchboard.core.mail.utf8 import ESCAPE, LATIN, UTF8, Decoded, makes_sense, storable, utf8

_LOOKED_AT: Final = 65_536
"""The bytes of which a character set is guessed."""
_LATIN: Final = "whatwg-windows-1252"
_NUMBERED: Final = {
    "866": "whatwg-ibm866",
    "874": "whatwg-windows-874",
    **{str(number): f"whatwg-windows-{number}" for number in range(1250, 1259)},
    **dict.fromkeys(("932", "943", "31j"), "whatwg-shift_jis"),
    **dict.fromkeys(("936", "1386"), "whatwg-gbk"),
    "54936": "whatwg-gb18030",
    **dict.fromkeys(("949", "1363", "51949"), "whatwg-euc-kr"),
    "950": "whatwg-big5",
    "51932": "whatwg-euc-jp",
    **dict.fromkeys(("50220", "50221", "50222"), "whatwg-iso-2022-jp"),
    "20866": "whatwg-koi8-r",
    "21866": "whatwg-koi8-u",
    "1200": "whatwg-utf-16le",
    "1201": "whatwg-utf-16be",
    "10000": "whatwg-macintosh",
    "28591": "whatwg-windows-1252",
    "65000": "utf-7",
    "65001": "utf-8",
}
"""Code pages of Windows and IBM, under the numbers that follow `cp`, `ms`, `windows-` and the like."""
_ADDED: Final = {
    **dict.fromkeys(("utf-7", "utf7", "unicode-1-1-utf-7", "x-unicode-2-0-utf-7"), "utf-7"),
    **dict.fromkeys(("iso-2022-kr", "csiso2022kr"), "iso2022_kr"),
    **dict.fromkeys(("hz-gb-2312", "hz"), "hz"),
    **dict.fromkeys(("iso-2022-jp-1", "iso-2022-jp-ms", "x-windows-iso2022jp"), "whatwg-iso-2022-jp"),
    "iso-2022-jp-2": "iso2022_jp_2",
    "iso-2022-jp-3": "iso2022_jp_3",
    "iso-2022-jp-2004": "iso2022_jp_2004",
    **dict.fromkeys(("uhc", "ks_c_5601-1987", "ks_c_5601-1989", "ks_c_5601", "x-euc-kr"), "whatwg-euc-kr"),
    **dict.fromkeys(("gb_2312-80", "gb2312-80", "euc-cn", "x-euc-cn", "cn-gb", "gbk2k"), "whatwg-gbk"),
    "gb18030-2000": "whatwg-gb18030",
    **dict.fromkeys(("x-big5", "big5-eten"), "whatwg-big5"),
    "tis620": "whatwg-windows-874",
    **dict.fromkeys(("x-mac-ce", "x-mac-centraleurroman", "x-mac-centraleurope"), "mac_latin2"),
    **{f"x-mac-{name}": f"mac_{name}" for name in ("croatian", "greek", "iceland", "romanian", "turkish")},
    **dict.fromkeys(("utf-32", "utf32", "ucs-4", "iso-10646-ucs-4"), "utf-32"),
}
"""What the web's table lacks, or calls unsafe there because scripts could hide in it; mails run no scripts."""
_WITHOUT_ORDER: Final = frozenset({"utf-16", "utf16", "ucs-2", "iso-10646-ucs-2"})
"""Their byte order is a mark at the beginning, or found where the zeros are."""
_UNKNOWN: Final = frozenset(
    {
        *("x-user-defined", "user-defined", "unknown", "x-unknown", "unknown-8bit", "8bit", "binary", "default"),
        *("replacement", "iso-2022-cn", "iso-2022-cn-ext"),
        # These are not character sets: slow, or a way to smuggle in characters.
        *("idna", "punycode", "unicode-escape", "unicode_escape", "raw-unicode-escape", "raw_unicode_escape"),
        *("undefined", "mbcs", "oem"),
    }
)
"""Labels that explain nothing."""
_PAGE: Final = re.compile(r"(?:x-)?(?:cp|ibm|dos|oem|ms|win|windows|codepage)[-_ ]?([0-9]{3,5}|31j)")


def read_other(data: bytes, label: str) -> Decoded:
    """The text of `data`, of which `label`, in lower case, says the character set; it may explain nothing."""
    codec = _codec(label, data)
    text = _decode(data, codec) if codec else None
    return _guess(data, codec) if text is None or not makes_sense(text, data) else Decoded(storable(text))


def _codec(label: str, data: bytes) -> str:
    """The name of the codec; empty if the label explains nothing."""
    if label in UTF8:
        return "" if ESCAPE in data else "utf-8"
    if label in LATIN:
        return _LATIN
    if label in _WITHOUT_ORDER:
        return "utf-16-be" if data[::2].count(0) > data[1::2].count(0) else "utf-16-le"
    page = _PAGE.fullmatch(label)
    return _ADDED.get(label) or (_NUMBERED.get(page[1], f"cp{page[1]}") if page else _of_table(label))


def _of_table(label: str) -> str:
    found = (name for name in (f"whatwg-{label}", label) if _is_codec(name))
    return "" if label in _UNKNOWN else next(found, "")


def _is_codec(name: str) -> bool:
    try:
        codecs.lookup(name)
    except Exception:  # a label may be anything
        return False
    return True


def _decode(data: bytes, codec: str) -> str | None:
    """None if it is no codec for text, or fails."""
    try:
        return data.decode(codec, "replace")
    except Exception:  # codecs of the standard library raise all kinds of errors
        return None


def _guess(data: bytes, codec: str) -> Decoded:
    if codec != "utf-8" and (text := utf8(data)) is not None:
        return Decoded(storable(text), None if data.isascii() else "utf-8")
    found = detect(data[:_LOOKED_AT])
    text = data.decode(found.codec or _LATIN, "replace")
    return Decoded(storable(text), (found.encoding or "windows-1252").lower())

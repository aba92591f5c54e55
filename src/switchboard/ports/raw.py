"""Reading strangers' input: values from `payload.raw`, which may contain anything anywhere.

Called by channels. Nothing here raises or descends deeper than the given path; a value of an unexpected type becomes
None or empty. Next: `core/channels/telegram.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from unicodedata import category

from switchboard.domain.envelope import Envelope

Raw = Mapping[str, object]

MAX_WORD: Final = 512
"""Maximum characters of a word; no identity in an envelope is longer either."""
_OBJECT: Final = (dict, Mapping)  # nearly all are dicts, for which the check is much faster
_BREAKING: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,19}")


def raw_of(envelope: Envelope) -> Raw:
    """The platform's own object; an empty one where there is none."""
    return child(envelope.payload.raw)


def at(raw: object, *path: str | int) -> object:
    """The value at a path of keys and positions; None where the path ends early."""
    for step in path:
        if isinstance(step, str) and isinstance(raw, _OBJECT):
            raw = raw.get(step)
        elif isinstance(raw, list) and isinstance(step, int) and step < len(raw):
            raw = raw[step]
        else:
            return None
    return raw


def child(raw: object, *path: str | int) -> Raw:
    """The object at a path; an empty one where there is none."""
    found = at(raw, *path)
    return found if isinstance(found, _OBJECT) else {}


def number(value: object) -> str | None:
    """An integer in digits. A bool is not an integer, and thousands of digits would be a trap for str()."""
    good = isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64
    return str(value) if good else None


def word(value: object) -> str | None:
    """An id or a name as a string, which is one line."""
    if not isinstance(value, str) or len(value) > MAX_WORD:
        return number(value)
    text = value.strip()
    return text if text and one_line(text) else None


def one_line(text: str) -> bool:
    """Whether it has no control character and no line break; joiners and blanks of all kinds are allowed."""
    return text.isprintable() or not any(category(one) in _BREAKING for one in text)


def first_word(raw: object, *paths: tuple[str | int, ...]) -> str | None:
    """The first of several places that holds a word."""
    return next((found for path in paths if (found := word(at(raw, *path))) is not None), None)


def integer(value: object) -> str | None:
    """An integer, as a number or as a string of digits."""
    found = word(value)
    return found if found is not None and INTEGER.fullmatch(found) else None


def matching(pattern: re.Pattern[str], value: object) -> str | None:
    """The value if it is a string that matches the pattern as a whole."""
    return value if isinstance(value, str) and pattern.fullmatch(value) else None

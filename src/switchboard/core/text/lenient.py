"""JSON from outside, read leniently: nothing here raises, whatever the input.

Called wherever the output of a model, a provider or a program is read. In: any value; out: the wanted part of it, or
an empty value. Strings are returned without NUL and lone surrogates, which no database accepts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Final

from switchboard.core.text.visible import visible

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_OBJECT: Final = (dict, Mapping)  # nearly all are dicts, and checking for a Mapping is slow
_STORABLE: Final = (int, float, type(None))


def clean(value: object) -> object:
    """A JSON value with every string in it storable. Raises RecursionError for thousands of levels."""
    if isinstance(value, str):
        return _UNSTORABLE.sub(lambda match: "" if match.group() == "\x00" else "\ufffd", value)
    if isinstance(value, _STORABLE):
        return value
    if isinstance(value, _OBJECT):
        return {str(clean(str(key))): clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [clean(inner) for inner in value]
    return value


def plain(value: object) -> object:
    """The contents of a program's object as JSON: of a dataclass, a model, or another object with attributes.

    Raises RecursionError for an object that contains itself, and for thousands of levels.
    """
    if value is None or isinstance(value, str | bytes | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return {str(name): plain(getattr(value, name)) for name in _attributes(value) if hasattr(value, name)}


def _attributes(value: object) -> Iterable[str]:
    kinds = ("__dataclass_fields__", "__dict__", "__struct_fields__", "__slots__")
    return next((found for kind in kinds if (found := getattr(value, kind, None))), ())


def json_value(text: str) -> object:
    """The cleaned value of the JSON in `text`; None if it is not JSON, or nested absurdly deep.

    NaN and infinities are not JSON, nor are numbers so large that they become infinite: another value would be recorded
    and shown for them.
    """
    try:
        return clean(json.loads(text, parse_constant=_finite, parse_float=_finite))
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is not a JSON number")
    return value


def mapping(value: object) -> Mapping[str, object]:
    """`value` if it is an object, or the object in its JSON; otherwise an empty one."""
    if isinstance(value, str):
        value = json_value(value)
    return value if isinstance(value, _OBJECT) else {}


def items(value: object) -> Iterable[Mapping[str, object]]:
    """The objects in a list; everything else is ignored."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []


def string(value: object) -> str:
    """`value` if it is a string, otherwise an empty one."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """`value` if it is a count, otherwise 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def money(value: object) -> float | None:
    """`value` if it is an amount of money, otherwise None."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
    return float(value) if isinstance(value, int | float) and good else None


def text_of_error(value: object) -> str:
    """The text of an error: its own text, the `message` within it, or its JSON; one line of at most 500 characters."""
    if isinstance(value, Mapping):
        inner = value.get("message") or mapping(value.get("data")).get("message")
        value = inner if isinstance(inner, str) else json.dumps(value, ensure_ascii=False, default=str)
    return sanitize_error(string(value))


def sanitize_error(text: str) -> str:
    """An error message from outside, for records and people: one line of at most 500 visible characters."""
    return " ".join(visible(text[:5000]).split())[:500]


def block_text(content: object) -> str:
    """The text of a message's content: a string, or the `text` of its blocks one after the other."""
    return string(content) or "".join(string(block.get("text")) for block in items(content))

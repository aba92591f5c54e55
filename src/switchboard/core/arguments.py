"""Checks the arguments of a call against the JSON Schema of its tool.

Called by `tools/calls.py` before a call, and by `core/planning/check.py` for the calls of a plan. In: what a model
wrote, and a schema that may come from elsewhere; out: sentences that name the argument and say what would be right.
Keywords that are not read here constrain nothing, and no expression is compiled. References are followed within the
schema. All of it is limited: a few anyOf in each other could otherwise be compared for minutes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

_ARRAY: Final = (list, tuple)
_NUMBER: Final = (int, float)
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_MORE: Final = frozenset(
    ("const", "enum", "anyOf", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
)
"""What a schema may say besides the type."""
_MOST: Final = 50
"""Maximum number of faults that are reported."""
_MOST_CHECKS: Final = 500_000
"""Parts of the arguments that are compared with parts of the schema: about a second. A long list of choices is more."""
_AT_ONCE: Final = 16
"""Choices or names that are compared in the time of one part."""
_TOO_MANY: Final = "the arguments cannot be checked: they are too many, or their schema refers to itself too often"
_TYPES: Final[Mapping[str, Callable[[object], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, _ARRAY),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, _NUMBER) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
}


def complaint(arguments: Mapping[str, object], schema: Mapping[str, object]) -> str | None:
    """What is wrong with the arguments; None if nothing."""
    found = complaints(arguments, schema)
    return found[0] if found else None


def complaints(arguments: Mapping[str, object], schema: Mapping[str, object]) -> Sequence[str]:
    """What is wrong with the arguments, a sentence each, up to a limit."""
    found = _Faults(schema)
    try:
        _check_all(arguments, schema, "", found)
    except RecursionError:
        found.append("the arguments are nested too deeply")
    return found if found.left >= 0 else [_TOO_MANY]


class _Faults(list[str]):
    """The faults so far, and the schema whose parts are referred to. After `left` checks nothing is looked at."""

    def __init__(self, schema: Mapping[str, object], left: int = _MOST_CHECKS) -> None:
        self.schema = schema
        self.left = left

    def may(self, compared: int = 1) -> bool:
        """Whether so much more may be compared."""
        self.left -= 1 + compared // _AT_ONCE
        return self.left >= 0

    def resolve_schema(self, schema: Mapping[str, object]) -> Mapping[str, object] | None:
        """The schema that a reference means; None if there is none."""
        target = resolve_reference(self.schema, schema.get("$ref")) if self.may() else None
        return target if isinstance(target, dict) else None


def resolve_reference(schema: Mapping[str, object], reference: object) -> object:
    """The part of a schema that a reference within it names; None if it names none."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema if reference == "#" else None
    part: object = schema
    for name in unquote(reference[2:]).split("/"):
        if isinstance(part, Mapping):
            part = part.get(name.replace("~1", "/").replace("~0", "~"))
        elif isinstance(part, _ARRAY) and _INDEX.fullmatch(name):
            part = part[int(name)] if int(name) < len(part) else None
        else:
            return None
    return part


def _check_all(value: Mapping[str, object], schema: Mapping[str, object], prefix: str, found: _Faults) -> None:
    """An object by its schema, and by the one that this refers to."""
    if "$ref" in schema and (target := found.resolve_schema(schema)) is not None:
        _check_all(value, target, prefix, found)
    _object(value, schema, prefix, found)


# Errors are appended: a generator for each value would cost several times what most checks do.


def _check(value: object, schema: object, name: str, found: _Faults) -> None:
    if not isinstance(schema, dict) or not found.may():
        return
    if "$ref" in schema and (target := found.resolve_schema(schema)) is not None:
        _check(value, target, name, found)
    if wrong := _type(value, schema):
        found.append(f"{name} must be {wrong}, not {_abbreviate_value(value)}")
        return
    if not _MORE.isdisjoint(schema):
        _choices(value, schema, name, found)
        _bounds(value, schema, name, found)
    if isinstance(value, _ARRAY):
        for number, item in enumerate(value):
            if len(found) >= _MOST:
                return
            _check(item, schema.get("items"), f"{name}[{number}]", found)
    elif isinstance(value, dict):
        _object(value, schema, f"{name}.", found)


def _type(value: object, schema: Mapping[str, object]) -> str | None:
    """The permitted types, if the value has none of them."""
    said = schema.get("type")
    named = said if isinstance(said, list) else (said,)
    names = [name for name in named if isinstance(name, str)]
    for name in names:
        if _TYPES.get(name, _anything)(value):
            return None
    return " or ".join(names)


def _anything(_: object) -> bool:
    return True


def _object(value: Mapping[str, object], schema: Mapping[str, object], prefix: str, found: _Faults) -> None:
    said = schema.get("properties")
    properties: Mapping[str, object] = said if isinstance(said, dict) else {}
    required = schema.get("required")
    for name in required if isinstance(required, _ARRAY) and found.may(len(required)) else ():
        if isinstance(name, str) and name not in value:
            found.append(f"{prefix}{name} is missing")
            if len(found) >= _MOST:
                return
    for name, inner in value.items():
        if len(found) >= _MOST:
            return
        if name in properties:
            _check(inner, properties[name], f"{prefix}{name}", found)
        elif schema.get("additionalProperties") is False:
            found.append(f"{prefix}{str(name)[:50]} is unknown: it takes {', '.join(properties) or 'nothing'}")


def _choices(value: object, schema: Mapping[str, object], name: str, found: _Faults) -> None:
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and found.may(len(choices)) and value not in choices:
        found.append(
            f"{name} must be one of {', '.join(map(_abbreviate_value, choices))}, not {_abbreviate_value(value)}"
        )
    either = schema.get("anyOf")
    if isinstance(either, list) and not any(_fits(value, one, name, found) for one in either):
        found.append(f"{name} is not one of the permitted values: {_abbreviate_value(value)}")


def _fits(value: object, schema: object, name: str, found: _Faults) -> bool:
    tried = _Faults(found.schema, found.left)
    _check(value, schema, name, tried)
    found.left = tried.left
    return not tried


def _bounds(value: object, schema: Mapping[str, object], name: str, found: _Faults) -> None:
    size, unit, least, most = _measure_of(value)
    low, high = schema.get(least), schema.get(most)
    if isinstance(low, _NUMBER) and size is not None and size < low:
        found.append(f"{name} must have at least {low}{unit}, not {size}" if unit else f"{name} must be at least {low}")
    if isinstance(high, _NUMBER) and size is not None and size > high:
        found.append(f"{name} must have at most {high}{unit}, not {size}" if unit else f"{name} must be at most {high}")


def _measure_of(value: object) -> tuple[int | float | None, str, str, str]:
    """The measure that its bounds apply to, its unit, and the keywords for the bounds."""
    if isinstance(value, str):
        return len(value), " characters", "minLength", "maxLength"
    if isinstance(value, _ARRAY):
        return len(value), " items", "minItems", "maxItems"
    number = value if isinstance(value, _NUMBER) and not isinstance(value, bool) else None
    return number, "", "minimum", "maximum"


def _abbreviate_value(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}…"

"""Whether the arguments of a call fit the JSON Schema of its tool.

Called by `tools/calls.py` before a call, and by `core/planning/check.py` for the calls of a plan. In: what a model
wrote, and a schema that may come from elsewhere; out: sentences that name the argument and say what would be right.
Keywords that are not read here constrain nothing: no expression is compiled and no reference followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

_TYPES: Final[Mapping[str, Callable[[object], bool]]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list | tuple),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
}


def complaint(arguments: Mapping[str, object], schema: Mapping[str, object]) -> str | None:
    """What is wrong with the arguments; None: nothing."""
    return next(complaints(arguments, schema), None)


def complaints(arguments: Mapping[str, object], schema: Mapping[str, object]) -> Iterator[str]:
    """All that is wrong with the arguments, a sentence each."""
    try:
        yield from _object(arguments, schema, "")
    except RecursionError:
        yield "the arguments are nested too deeply"


def _check(value: object, schema: object, name: str) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    if wrong := _type(value, schema):
        yield f"{name} must be {wrong}, not {_shown(value)}"
        return
    yield from _choices(value, schema, name)
    yield from _bounds(value, schema, name)
    if isinstance(value, Mapping):
        yield from _object(value, schema, f"{name}.")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _check(item, schema.get("items"), f"{name}[{number}]")


def _type(value: object, schema: Mapping[str, object]) -> str | None:
    """The types that are allowed, if it has none of them."""
    said = schema.get("type")
    names = [name for name in (said if isinstance(said, list) else [said]) if isinstance(name, str)]
    if not names or any(_TYPES.get(name, _anything)(value) for name in names):
        return None
    return " or ".join(names)


def _anything(_: object) -> bool:
    return True


def _object(value: Mapping[str, object], schema: Mapping[str, object], prefix: str) -> Iterator[str]:
    said = schema.get("properties")
    properties: Mapping[str, object] = said if isinstance(said, Mapping) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list | tuple) else ():
        if isinstance(name, str) and name not in value:
            yield f"{prefix}{name} is missing"
    for name, inner in value.items():
        if name in properties:
            yield from _check(inner, properties[name], f"{prefix}{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{prefix}{str(name)[:50]} is unknown: it takes {', '.join(properties) or 'nothing'}"


def _choices(value: object, schema: Mapping[str, object], name: str) -> Iterator[str]:
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        yield f"{name} must be one of {', '.join(map(_shown, choices))}, not {_shown(value)}"
    either = schema.get("anyOf")
    if isinstance(either, list) and all(any(_check(value, one, name)) for one in either):
        yield f"{name} is none of what it may be: {_shown(value)}"


def _bounds(value: object, schema: Mapping[str, object], name: str) -> Iterator[str]:
    size, unit, least, most = _measured(value)
    low, high = schema.get(least), schema.get(most)
    if isinstance(low, int | float) and size is not None and size < low:
        yield f"{name} must have at least {low}{unit}, not {size}" if unit else f"{name} must be at least {low}"
    if isinstance(high, int | float) and size is not None and size > high:
        yield f"{name} must have at most {high}{unit}, not {size}" if unit else f"{name} must be at most {high}"


def _measured(value: object) -> tuple[int | float | None, str, str, str]:
    """What its bounds are compared with, in what, and the keywords for them."""
    if isinstance(value, str):
        return len(value), " characters", "minLength", "maxLength"
    if isinstance(value, list | tuple):
        return len(value), " items", "minItems", "maxItems"
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return number, "", "minimum", "maximum"


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}…"

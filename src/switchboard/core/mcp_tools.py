"""Tools of MCP servers: what they are called here, whether a model can be offered them, what counts as a change. Pure.

`tools/mcp_servers.py` and `app/mcp_servers.py` use it. In: what a server lists, and its settings; out: names, marks,
and sentences about what is left out. A server's text is data: nothing here depends on more than its form.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from switchboard.core.arguments import resolve_reference
from switchboard.core.text.outside import outside_json
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.mcp import ListedTool, PinnedTool

SEPARATOR: Final = "__"
"""Separates server and tool; names of servers have no underscore, so names cannot be confused."""
MOST_NAME: Final = 64
"""Maximum characters of a name that providers accept."""
MOST_SCHEMAS: Final = 12_288
"""Maximum bytes of names, descriptions and schemas in a turn."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_PROPERTY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DEEPEST: Final = 16
_MOST_PARTS: Final = 2000
_SCHEMAS: Final = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties"}
)
"""Keywords whose value is a schema; those with lists of them, and those with schemas by name."""
_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_UNREAD: Final = frozenset({"$dynamicRef", "$recursiveRef"})
_TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_BRACKET: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_TWICE: Final = "the server has several tools called {}; give each another name with `name`"
_NOT_AT_THE_TOP: Final = frozenset({"oneOf", "anyOf", "allOf", "not", "enum", "$ref"})


def pin_tool(tool: ListedTool) -> PinnedTool:
    """The tool with its mark, the sha256 of everything that a model sees of it: any change of that changes the mark."""
    said = json.dumps([tool.name, tool.description, tool.parameters], sort_keys=True)
    return PinnedTool(tool, hashlib.sha256(said.encode()).hexdigest())


def describe_tool(tool: ListedTool) -> str:
    """The description as a model sees it: whose words they are, and the words as data."""
    return f"A tool of an MCP server, which describes it so: {outside_json(tool.description)}"


def tool_name(server: str, tool: str) -> str:
    """The name that a model uses for the tool."""
    return f"{server}{SEPARATOR}{tool}"


def server_of(name: str) -> str:
    """The server in the name of a tool; empty: it is not the name of such a tool."""
    server, separator, _ = name.partition(SEPARATOR)
    return server if separator else ""


def unusable(server: str, tools: Sequence[ListedTool], renamed: Mapping[str, str]) -> dict[str, str]:
    """The names of tools that no model can be offered, each with the reason, as a clause."""
    listed = Counter(tool.name for tool in tools)
    names = Counter(renamed.get(tool.name, tool.name) for tool in tools)
    found = {}
    for tool in tools:
        name = renamed.get(tool.name, tool.name)
        if listed[tool.name] > 1:
            found[tool.name] = f"the server lists {listed[tool.name]} tools of this name"
            continue
        problem = _wrong_name(server, name) or (_TWICE.format(name) if names[name] > 1 else _wrong_schema(tool))
        if problem:
            found[tool.name] = problem
    return found


class Described(Protocol):
    """What a model sees of a tool."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> JsonMapping: ...


def size_of_spec(tool: Described) -> int:
    """The bytes that a model sees of a tool as it is offered."""
    return _size(tool.name, tool.description, tool.parameters)


def size_of(tool: ListedTool) -> int:
    """The bytes that a model sees of the tool."""
    return _size(tool.name, describe_tool(tool), tool.parameters)


def _size(*told: object) -> int:
    """The bytes that a model sees."""
    return len(json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _wrong_name(server: str, name: str) -> str | None:
    whole = tool_name(server, name)
    if len(whole) > MOST_NAME:
        return f"{whole[:100]} is longer than {MOST_NAME} characters; give the tool a shorter one with `name`"
    if not _NAME.fullmatch(name):
        return "its name has other characters than A-Z, a-z, 0-9, _ and -; give it another one with `name`"
    return None


def _wrong_schema(tool: ListedTool) -> str | None:
    """What is wrong with its schema, if anything: one wrong schema makes providers refuse the whole request."""
    schema, size = tool.parameters, size_of(tool)
    if size > MOST_SCHEMAS:
        return f"its description and schema have {size} bytes, and all of a turn together may have {MOST_SCHEMAS}"
    if schema.get("type") != "object":
        return "its schema is not that of an object"
    if above := _NOT_AT_THE_TOP & schema.keys():
        return f"its schema begins with {', '.join(sorted(above))}, which providers refuse"
    return next(_flaws(schema), None)


def _flaws(schema: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with a schema: read part by part, references in place of what they mean."""
    waiting: list[_Part] = [_Part(schema, _DEEPEST, frozenset())]
    for _ in range(_MOST_PARTS):
        if not waiting:
            return
        part = waiting.pop()
        if part.left < 0:
            yield f"its schema is nested more than {_DEEPEST} deep"
        elif isinstance(part.schema, Mapping):
            yield from _faults(part.schema)
            yield from _odd_names(part.schema.get("properties"))
            waiting += [_Part(inner, part.left - 1, part.within) for inner in _inner(part.schema)]
            if "$ref" in part.schema:
                reference = part.schema["$ref"]
                yield from _wrong_reference(schema, reference, part.within)
                waiting.append(_Part(resolve_reference(schema, reference), part.left, part.within | {str(reference)}))
        elif not isinstance(part.schema, bool):
            yield f"its schema has {_abbreviate_value(part.schema)} where a schema belongs"
    yield f"its schema has more than {_MOST_PARTS} parts"


class _Part(Struct, frozen=True):
    """A part of a schema, how much deeper it may be, and the references that led to it."""

    schema: object
    left: int
    within: frozenset[str]


def _inner(schema: Mapping[str, object]) -> Iterator[object]:
    """The schemas in a schema. Other values are data, whatever they look like."""
    for word in _SCHEMAS & schema.keys():
        yield schema[word]
    for word in _LISTS & schema.keys():
        said = schema[word]
        yield from said if isinstance(said, list | tuple) else ()
    for word in _NAMED & schema.keys():
        named = schema[word]
        yield from named.values() if isinstance(named, Mapping) else ()


def _wrong_reference(schema: Mapping[str, object], reference: object, within: frozenset[str]) -> Iterator[str]:
    shown = outside_json(str(reference)[:80])
    if reference in within or reference == "#":
        yield f"its schema refers to itself ({shown})"
    elif not str(reference).startswith("#"):
        yield "its schema refers to another document"
    elif resolve_reference(schema, reference) is None:
        yield f"its schema refers to {shown}, which it does not have"


def _faults(schema: Mapping[str, object]) -> Iterator[str]:
    for word, valid in _VALID.items():
        if word in schema and not valid(schema[word]):
            yield f"its schema has an invalid `{word}`: {_abbreviate_value(schema[word])}"
    if schema.get("type") == "array" and not {"items", "prefixItems"} & schema.keys():
        yield "its schema has an array without `items`, which providers refuse"
    if words := _UNREAD & schema.keys():
        yield f"its schema has {', '.join(sorted(words))}, which providers refuse"


def _abbreviate_value(value: object) -> str:
    return outside_json(f"{value}"[:80])


def _odd_names(properties: object) -> Iterator[str]:
    for name in properties if isinstance(properties, Mapping) else ():
        if not _PROPERTY.fullmatch(str(name)):
            yield f"its argument {outside_json(str(name)[:80])} has a name that providers refuse"


def _is_type(value: object) -> bool:
    named = value if isinstance(value, list | tuple) else (value,)
    return len(named) > 0 and all(isinstance(name, str) and name in _TYPES for name in named)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_filled(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0


def _is_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: object) -> bool:
    return _is_number(value) and isinstance(value, int | float) and value >= 0


_VALID: Final[Mapping[str, Callable[[object], bool]]] = {
    "type": _is_type,
    "enum": _is_filled,
    "required": _is_names,
    "$ref": _is_text,
    **dict.fromkeys(("title", "description", "format", "pattern"), _is_text),
    **dict.fromkeys(_NAMED, _is_mapping),
    **dict.fromkeys(_LISTS, _is_filled),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_size),
}


def shallow_json(data: bytes, most: int) -> bytes:
    """JSON with null for everything that is in more than `most` arrays and objects. Invalid JSON remains invalid."""
    kept, depth, start = [], 0, 0
    for found in _BRACKET.finditer(data):
        if found[0] in b"[{":
            depth += 1
            if depth == most + 1:
                kept += [data[start : found.start()], b"null"]
        elif found[0] in b"]}":
            depth -= 1
            if depth == most:
                start = found.end()
    return b"".join(kept) + data[start:] if depth <= most else b""

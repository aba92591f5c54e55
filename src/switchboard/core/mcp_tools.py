"""Tools of MCP servers: what they are called here, whether a model can be offered them, what counts as a change. Pure.

`tools/mcp_servers.py` and `app/mcp_servers.py` use it. In: what a server lists, and its settings; out: names, marks,
and sentences about what is left out. A server's text is data: nothing here depends on more than its form.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from switchboard.core.outside import outside_json
from switchboard.ports.mcp import ListedTool, PinnedTool
from switchboard.ports.tools import ToolSpec

SEPARATOR: Final = "__"
"""Separates server and tool; names of servers have no underscore, so names cannot be confused."""
MOST_NAME: Final = 64
"""Maximum characters of a name that providers accept."""
MOST_SCHEMAS: Final = 12_288
"""Maximum bytes of names, descriptions and schemas in a turn."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_PROPERTY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DEEPEST: Final = 16
_TWICE: Final = "the server has several tools called {}; give each another name with `name`"
_NOT_AT_THE_TOP: Final = frozenset({"oneOf", "anyOf", "allOf", "not", "enum", "$ref"})


def pinned(tool: ListedTool) -> PinnedTool:
    """The tool with its mark, the sha256 of everything that a model sees of it: any change of that changes the mark."""
    said = json.dumps([tool.name, tool.description, tool.parameters], sort_keys=True)
    return PinnedTool(tool, hashlib.sha256(said.encode()).hexdigest())


def described(tool: ListedTool) -> str:
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


def fitting(specs: Iterable[ToolSpec]) -> Iterator[str]:
    """The names of those tools of MCP servers for which there is room in a turn; earlier ones take precedence."""
    left = MOST_SCHEMAS
    for spec in specs:
        size = _size(spec.name, spec.description, spec.parameters)
        if size <= left:
            left -= size
            yield spec.name


def size_of(tool: ListedTool) -> int:
    """The bytes that a model sees of the tool."""
    return _size(tool.name, described(tool), tool.parameters)


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
    try:
        return next(_flaws(schema, _DEEPEST), None)
    except RecursionError:
        return "its schema is nested too deeply"


def _odd_names(properties: object) -> Iterator[str]:
    for name in properties if isinstance(properties, Mapping) else ():
        if not _PROPERTY.fullmatch(str(name)):
            yield f"its argument {outside_json(str(name)[:80])} has a name that providers refuse"


def _flaws(value: object, deep: int) -> Iterator[str]:
    if deep < 0:
        yield f"its schema is nested more than {_DEEPEST} deep"
    elif isinstance(value, Mapping):
        yield from _odd_names(value.get("properties"))
        reference = value.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#/"):
            yield "its schema refers to another document"
        for inner in value.values():
            yield from _flaws(inner, deep - 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _flaws(inner, deep - 1)

"""Which tools a model is offered: those of modules and MCP servers have limits together. Pure.

`agents/turns/toolbox.py` divides the tools when a turn begins, `agents/turns/talk.py` adds those of modules that the
model has asked for. In: tools in their order, earlier ones take precedence; out: those that fit. Next: `frozen.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from switchboard.core.mcp_tools import MOST_SCHEMAS, Described, size_of_spec
from switchboard.core.turns.frozen import Frozen, FrozenTool

MOST_MODULE_TOOLS: Final = 14
"""Maximum tools of modules in a request."""
MOST_MODULE_SCHEMAS: Final = 6144
"""Maximum bytes of their names, descriptions and schemas; they count among those of MCP servers, too."""
MODULE_TOOLS: Final = "module_tools"
"""The tool by which a model asks for further tools of a module."""
_ASKING: Final = "Get the further tools of a module: they can be called from then on."


def fit_modules(tools: Iterable[Described]) -> Iterator[str]:
    """The names of those tools of modules for which there is room in a request."""
    count, left = MOST_MODULE_TOOLS, MOST_MODULE_SCHEMAS
    for tool in tools:
        size = size_of_spec(tool)
        if count and size <= left:
            count, left = count - 1, left - size
            yield tool.name


def fit_servers(tools: Iterable[Described], modules: Iterable[Described]) -> Iterator[str]:
    """The names of those tools of MCP servers for which there is room beside these of modules."""
    left = MOST_SCHEMAS - sum(map(size_of_spec, modules))
    for tool in tools:
        size = size_of_spec(tool)
        if size <= left:
            left -= size
            yield tool.name


def offered_tools(frozen: Frozen, asked: Collection[str]) -> tuple[FrozenTool, ...]:
    """The tools of the next request. `asked`: the modules whose further tools the model has asked for.

    These come before tools of other modules, if there is no room for all.
    """
    if not frozen.later:
        return frozen.tools
    wanted = [tool for tool in frozen.later if tool.module in asked]
    fit = frozenset(fit_modules((*wanted, *(tool for tool in frozen.tools if tool.module))))
    kept = [tool for tool in (*frozen.tools, *wanted) if not tool.module or tool.name in fit]
    return (*kept, asking_tool(frozen.later))


def asking_tool(later: Iterable[FrozenTool]) -> FrozenTool:
    """The tool by which a model asks for these."""
    modules = sorted({tool.module for tool in later})
    properties = {"module": {"type": "string", "enum": modules}}
    schema = {"type": "object", "properties": properties, "required": ["module"], "additionalProperties": False}
    return FrozenTool(MODULE_TOOLS, _ASKING, schema, "idempotent", reach="inside")


def answer_asking(later: Iterable[FrozenTool], arguments: Mapping[str, object]) -> str | None:
    """What a model is told that asks for tools; None if there is no such module."""
    found = [tool for tool in later if tool.module == arguments.get("module")]
    told = "\n".join(f"- {tool.name}: {tool.description.partition(chr(10))[0]}" for tool in found)
    return f"from now on you can call:\n{told}" if found else None

"""The tools `memory_entity_link` and `memory_entity_unlink`: an owner gives whom facts are about another name.

`registry.py` builds them. A name never merges anything: it is looked up when facts are read, so that one that is taken
away leaves nothing behind. Next: `recall.py`, which finds by names.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from switchboard.core.memory.settling import same_value
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.tools.memory_tool import NAME_SCHEMA, NOWHERE, MemoryTool, spec_of

_NOT_OWNER: Final = ToolOutcome("only an owner of this butler may say who is meant by a name", ok=False)
_SAME: Final = ToolOutcome("write two different names", ok=False)
_NAMES: Final = {
    "name": {**NAME_SCHEMA, "description": "The name by which it is known"},
    "alias": {**NAME_SCHEMA, "description": "The other name"},
}

MEMORY_ENTITY_LINK: Final = replace(
    spec_of("memory_entity_link", "Note that a person or a thing is also called something else.", _NAMES, _NAMES),
    ordered=True,
    reach="outside",
)
MEMORY_ENTITY_UNLINK: Final = replace(
    spec_of("memory_entity_unlink", "Take another name from a person or a thing again.", _NAMES, _NAMES),
    ordered=True,
    reach="outside",
)


class MemoryEntityLink(MemoryTool):
    """See the port."""

    spec: Final = MEMORY_ENTITY_LINK

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Return that both names stand for the same from now on."""
        if scope.memory is None:
            return NOWHERE
        if not scope.by_owner:
            return _NOT_OWNER
        name, alias = arguments["name"].strip(), arguments["alias"].strip()
        if not (same_value(name) and same_value(alias)) or same_value(name) == same_value(alias):
            return _SAME
        new = await scope.memory.link_entity(name, alias)
        return ToolOutcome(f"{alias} {'now' if new else 'already'} stands for {name}")


class MemoryEntityUnlink(MemoryTool):
    """See the port."""

    spec: Final = MEMORY_ENTITY_UNLINK

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Return that the name stands for itself again."""
        if scope.memory is None:
            return NOWHERE
        if not scope.by_owner:
            return _NOT_OWNER
        name, alias = arguments["name"].strip(), arguments["alias"].strip()
        there = await scope.memory.unlink_entity(name, alias)
        return ToolOutcome(f"{alias} {'no longer stands' if there else 'did not stand'} for {name}")

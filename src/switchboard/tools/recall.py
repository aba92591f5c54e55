"""The tools `memory_recall`, `memory_context` and `memory_entities`: what is remembered, by whom and what it is about.

`registry.py` builds them. What they find may be others' words, and so counts as read from outside. Next:
`core/memory/entities.py`.
"""

from __future__ import annotations

from typing import Final

from switchboard.core.memory.entities import find_entities, recall_entities
from switchboard.core.text.outside import outside_json
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.tools.memory_tool import NAME_SCHEMA, NOWHERE, UNKNOWN, MemoryTool, show_facts, spec_of

_MOST_ENTITIES: Final = 20
_NOTHING: Final = "nothing is remembered that a turn here would be told"

MEMORY_RECALL: Final = spec_of(
    "memory_recall",
    "All that is remembered of a person or a thing, as it was said. Of two with one name, both come back: ask which.",
    {"who": {**NAME_SCHEMA, "description": "A name, or me for the person who writes"}},
    ("who",),
)
MEMORY_CONTEXT: Final = spec_of(
    "memory_context", "What you would be told of earlier conversations if a message came here now.", {}, ()
)
MEMORY_ENTITIES: Final = spec_of(
    "memory_entities",
    "Find whom and what something is remembered of, by a name or a part of one: with other names, and why it fits.",
    {"query": {**NAME_SCHEMA, "description": "A name, or how it begins"}},
    ("query",),
)


class MemoryRecall(MemoryTool):
    """See the port."""

    spec: Final = MEMORY_RECALL

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Return the facts of each entity with this name."""
        if scope.memory is None:
            return NOWHERE
        found = recall_entities(arguments["who"], await scope.memory.entities())
        if not found:
            return ToolOutcome(UNKNOWN)
        told = [f"{outside_json({'name': one.name})}\n{await show_facts(one.facts, scope.memory)}" for one in found]
        return ToolOutcome("\n\n".join(told))


class MemoryContext(MemoryTool):
    """See the port."""

    spec: Final = MEMORY_CONTEXT

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:  # noqa: ARG002
        """Return the notes that are put before a message."""
        if scope.memory is None:
            return NOWHERE
        return ToolOutcome(await scope.memory.read_context() or _NOTHING)


class MemoryEntities(MemoryTool):
    """See the port."""

    spec: Final = MEMORY_ENTITIES

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Return the entities that the query may mean, the best first, each with the reason."""
        if scope.memory is None:
            return NOWHERE
        found = find_entities(arguments["query"], await scope.memory.entities())[:_MOST_ENTITIES]
        lines = [
            outside_json(
                {
                    "name": one.entity.name,
                    "also": [alias.alias for alias in one.entity.also],
                    "facts": len(one.entity.facts),
                    "why": one.why,
                }
            )
            for one in found
        ]
        return ToolOutcome("\n".join(lines) or UNKNOWN)

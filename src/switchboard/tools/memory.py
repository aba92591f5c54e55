"""The tools `remember` and `memory_search`: facts in a person's own words, and looking for them.

`registry.py` builds them. What is remembered is written with the end of the turn, like its entries: a call only says
what, so an interrupted turn leaves nothing, and one that calls twice leaves one fact. Next:
`core/memory/remembering.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from switchboard.core.text.fact_numbers import number_of
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.facts import Fact
from switchboard.ports.tools import NamedTool, ToolOutcome, ToolScope, ToolSpec
from switchboard.tools.entities import MEMORY_ENTITY_LINK, MEMORY_ENTITY_UNLINK
from switchboard.tools.history import HISTORY_SEARCH
from switchboard.tools.keeping import (
    MEMORY_CONFIRM,
    MEMORY_FORGET,
    MEMORY_STORE_EPISODE,
    MEMORY_STORE_FACT,
    find_own_words,
)
from switchboard.tools.recall import MEMORY_CONTEXT, MEMORY_ENTITIES, MEMORY_RECALL

MOST_FOUND: Final = 20
"""Facts in one result."""
_MOST_TEXT: Final = 1000
_NOWHERE: Final = "nothing is remembered here"

REMEMBER: Final = ToolSpec(
    "remember",
    "Keep something for all later conversations with this person: what they ask you to remember, and what will matter "
    "again. Quote their own words.",
    {
        "type": "object",
        "properties": {
            "quote": {
                "type": "string",
                "minLength": 1,
                "maxLength": _MOST_TEXT,
                "description": "A statement of the person in this conversation, word for word",
            },
        },
        "required": ["quote"],
        "additionalProperties": False,
    },
    "idempotent",
    reach="inside",
)
MEMORY_SEARCH: Final = ToolSpec(
    "memory_search",
    "Look for what this person has told you in earlier conversations.",
    {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": _MOST_TEXT,
                "description": "A few words that it may contain",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    "idempotent",
    reach="inside",
)
OF_TURNS: Final = frozenset({REMEMBER.name, MEMORY_STORE_FACT.name, MEMORY_STORE_EPISODE.name, MEMORY_CONFIRM.name})
"""Those for which somebody must have said something, and been answered."""
OF_OWNERS: Final = frozenset({MEMORY_ENTITY_LINK.name, MEMORY_ENTITY_UNLINK.name})
"""Those of them that only owners may use."""
OF_MEMORY: Final = OF_OWNERS | {
    *(REMEMBER.name, MEMORY_SEARCH.name, HISTORY_SEARCH.name),
    *(MEMORY_RECALL.name, MEMORY_CONTEXT.name, MEMORY_ENTITIES.name),
    *(MEMORY_STORE_FACT.name, MEMORY_STORE_EPISODE.name, MEMORY_CONFIRM.name, MEMORY_FORGET.name),
}
"""The tools that read and write what a person has said; there are none where nothing is remembered."""


class Remember(NamedTool):
    """See the port."""

    spec: Final = REMEMBER

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Return the words that will be kept, or why they are not."""
        if scope.memory is None:
            return ToolOutcome(_NOWHERE, ok=False)
        found = await find_own_words(arguments["quote"], scope.memory)
        if isinstance(found, ToolOutcome):
            return found
        return ToolOutcome(f'remembered: "{found.text}"', remembered=(found,))


class MemorySearch(NamedTool):
    """See the port."""

    spec: Final = MEMORY_SEARCH

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Return the person's facts that share words with the query, a dated line each."""
        if scope.memory is None:
            return ToolOutcome(_NOWHERE, ok=False)
        found = await scope.memory.find(arguments["query"], MOST_FOUND)
        if not found:
            return ToolOutcome("nothing that this person has told you has these words; try others, or fewer")
        return ToolOutcome("\n".join(_lines(found)))


def _lines(found: Sequence[Fact]) -> Iterator[str]:
    for fact in found:
        about = "" if fact.subject == "self" else f", about {fact.subject}"
        on = fact.said_at or fact.created_at
        yield f"{number_of(fact.fact_id)} {on:%Y-%m-%d}{about}: {' '.join(fact.text.split())}"

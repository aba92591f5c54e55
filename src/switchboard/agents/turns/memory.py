"""What a tool may know of the person of a turn: `PersonalMemory` over what the turn was shown, and the store of facts.

`calls.py` makes one for the calls of a turn. In: the turn, its frozen data, and `Facts`. Next: `tools/memory.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.core.memory.entities import gather_entities
from switchboard.core.memory.notes import render_notes, told_facts
from switchboard.core.people.readers import person_of
from switchboard.core.turns.entries import own_words_of
from switchboard.core.turns.frozen import Frozen
from switchboard.ports.engine import Facts, History, Names, Turn
from switchboard.ports.facts import Fact, KnownEntity, OwnWords
from switchboard.ports.history import SaidEntry, WantedHistory

_MOST_KNOWN: Final = 5000
"""Facts that are read to find out whom and what they are about: the limit of a space."""
_MOST_TOLD: Final = 100
"""How many facts are considered for those that a model is told."""


class MemorySources(Struct, frozen=True):
    """What is read besides facts: what was said, and the names of persons; None: there is nothing of it."""

    history: History | None
    names: Names | None


class TurnMemory:
    """The memory of the person who wrote the message of a turn."""

    def __init__(self, turn: Turn, frozen: Frozen, facts: Facts, besides: MemorySources) -> None:
        self._turn = turn
        self._frozen = frozen
        self._facts = facts
        self._history = besides.history
        self._names = besides.names

    @cached_property
    def said(self) -> Sequence[OwnWords]:
        """As in the port: what the person wrote themselves, not what they quoted, forwarded or attached."""
        person = person_of(self._turn.envelope)
        earlier = [
            OwnWords(entry.own_words, entry.position)
            for entry in reversed(self._frozen.history)
            if entry.role == "user" and entry.author == person and entry.position
        ]
        return (OwnWords(own_words_of(self._turn.envelope)), *earlier)

    async def is_learning(self) -> bool:
        """As in the port."""
        return await self._facts.is_learning(self._turn)

    async def is_forgotten(self, texts: Collection[str], position: int) -> bool:
        """As in the port."""
        return await self._facts.is_forgotten(self._turn, texts, position)

    async def find(self, words: str, limit: int) -> Sequence[Fact]:
        """As in the port."""
        return await self._facts.find_own(self._turn, words, limit)

    async def known(self) -> Sequence[Fact]:
        """As in the port."""
        return await self._facts.visible(self._turn, _MOST_KNOWN)

    async def find_names(self, authors: Collection[str]) -> Mapping[str, str]:
        """As in the port."""
        return {} if self._names is None or not authors else await self._names.of(authors)

    async def read_context(self) -> str:
        """As in the port."""
        chosen = await self._facts.choose(self._turn, _MOST_TOLD)
        names = await self.find_names({one.author for one in chosen})
        return render_notes(told_facts(chosen, names), names)

    async def entities(self) -> Sequence[KnownEntity]:
        """As in the port."""
        facts, aliases = await self.known(), await self._facts.aliases(self._turn)
        return gather_entities(facts, aliases, await self.find_names({one.author for one in facts}))

    async def may_change(self, fact_ids: Collection[UUID]) -> Collection[UUID]:
        """As in the port."""
        return await self._facts.may_change(self._turn, fact_ids, as_owner=self._frozen.by_owner)

    async def forget(self, fact_ids: Collection[UUID]) -> int:
        """As in the port."""
        return await self._facts.forget(self._turn, fact_ids, as_owner=self._frozen.by_owner)

    async def link_entity(self, name: str, alias: str) -> bool:
        """As in the port."""
        return await self._facts.link_entity(self._turn, name, alias)

    async def unlink_entity(self, name: str, alias: str) -> bool:
        """As in the port."""
        return await self._facts.unlink_entity(self._turn, name, alias)

    async def search_history(self, wanted: WantedHistory) -> Sequence[SaidEntry]:
        """As in the port."""
        return () if self._history is None else await self._history.search(self._turn, wanted)

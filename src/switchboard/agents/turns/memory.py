"""What a tool may know of the person of a turn: `PersonalMemory` over what the turn was shown, and the store of facts.

`calls.py` makes one for the calls of a turn. In: the turn, its frozen data, and `Facts`. Next: `tools/memory.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Final

from switchboard.core.people.readers import person_of
from switchboard.core.turns.entries import own_words_of
from switchboard.core.turns.frozen import Frozen
from switchboard.ports.engine import Facts, History, Turn
from switchboard.ports.facts import Fact, OwnWords
from switchboard.ports.history import SaidEntry, WantedHistory

_MOST_SEARCHED: Final = 100
"""Facts of all people among which those of the person are."""


class TurnMemory:
    """The memory of the person who wrote the message of a turn."""

    def __init__(self, turn: Turn, frozen: Frozen, facts: Facts, history: History | None) -> None:
        self._turn = turn
        self._frozen = frozen
        self._facts = facts
        self._history = history

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
        found = await self._facts.find(self._turn, words, _MOST_SEARCHED)
        return [one for one in found if one.own][:limit]

    async def search_history(self, wanted: WantedHistory) -> Sequence[SaidEntry]:
        """As in the port."""
        return () if self._history is None else await self._history.search(self._turn, wanted)

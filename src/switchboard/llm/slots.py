"""The slots of models, shared by all processes of an installation: the port, and how a session gets one.

A model runs as many sessions at once as its settings allow, in all workers together; the models of one local server
share its slots. Waiting requests are served by rank, then by age: classification, turns, plans, everything else. A
provider's request to pause, and a refused key, apply to all processes. `dispatch.py` asks within `held_slot`; the store
keeps slots and queue places as leases, so that those of a killed worker expire on their own.
"""

from __future__ import annotations

import asyncio
import random
from bisect import insort
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Final, Protocol
from uuid import UUID, uuid4

from msgspec import Struct, field

from switchboard.llm.spec import ModelSpec

_POLL_S: Final = 0.05
_LONGEST_POLL_S: Final = 0.5
_RANKS: Final[Mapping[str, int]] = {"classification": 0, "models test": 0, "turn": 1, "plan": 2}
_LAST: Final = 3


def rank_of(asker: str) -> int:
    """The rank in the queue for this purpose; a smaller number is nearer to its head."""
    return _RANKS.get(asker, _LAST)


class SlotRequest(Struct, frozen=True):
    """A wait for a slot: one of `most` with the name `slot`, to ask `model`. `ticket`: this wait."""

    model: str
    slot: str
    most: int
    rank: int = 0
    ticket: UUID = field(default_factory=uuid4)


class SlotLease(Struct, frozen=True):
    """A taken slot. It is held until it is freed or expires."""

    ticket: UUID


class NoSlot(Struct, frozen=True):
    """Why there is no slot: others have all; the provider wants a pause of `paused` seconds; or it refuses our key.

    `refused` is its message about the key; "" if there was none.
    """

    paused: float = 0.0
    refused: str = ""

    @property
    def busy(self) -> bool:
        """Whether there may be a slot soon."""
        return not self.paused and not self.refused


class Slots(Protocol):
    """The slots of all models, and their cooldowns."""

    async def take(self, wanted: SlotRequest) -> SlotLease | NoSlot:
        """A slot, or why there is none; asking again soon with the same ticket keeps the place in the queue."""

    def free(self, ticket: UUID) -> None:
        """Give a slot, or a place in the queue, back. Only this process's next `take` waits for it."""

    async def pause(self, model: str, seconds: float, why: str, *, for_all: bool) -> None:
        """Tell the others that a cooldown has begun here.

        `for_all`: the provider asked for it, so it applies to all.
        """

    async def limit(self, model: str, tokens: int, seconds: float) -> None:
        """Tell the others that for these seconds a model is known to read no more than so many tokens."""

    async def refuse(self, model: str, why: str) -> None:
        """Pause a model for all processes with the same key, which its provider will refuse again."""


Place = tuple[int, int]
"""Rank and number of arrival."""


class SlotQueue:
    """The requests of this process that wait for the slots of a model or a local server, and those that have one."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._numbers = count()
        self._waiting: list[Place] = []
        self._turns: dict[Place, asyncio.Event] = {}

    def enter(self, rank: int) -> Place:
        """Take a place; it must be given up with `leave`."""
        place = (rank, next(self._numbers))
        insort(self._waiting, place)
        self._turns[place] = asyncio.Event()
        self._look()
        return place

    def leave(self, place: Place) -> None:
        """Give up a place, or the slot obtained with it."""
        if self._turns.pop(place, None) is None:
            self._free += 1
        else:
            self._waiting.remove(place)
        self._look()

    def note_slot(self, place: Place) -> None:
        """This place has obtained a slot."""
        del self._turns[place]
        self._waiting.remove(place)
        self._free -= 1
        self._look()

    async def its_turn(self, place: Place, ends: float) -> bool:
        """Wait until few enough are ahead of this place to ask for a slot, or until `ends`; returns whether it may."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(ends):
                await self._turns[place].wait()
        return self._turns[place].is_set()

    def _look(self) -> None:
        for n, place in enumerate(self._waiting):
            turn = self._turns[place]
            turn.set() if n < self._free else turn.clear()


@asynccontextmanager
async def held_slot(
    spec: ModelSpec, line: SlotQueue, shared: Slots | None, waiting: tuple[int, float]
) -> AsyncIterator[NoSlot | None]:
    """A slot of this process and of the installation; `waiting`: the rank in the queue and the seconds to wait.

    Yields None if a session may begin.
    """
    rank, patience = waiting
    wanted = SlotRequest(spec.name, spec.slot, spec.sessions, rank)
    place = line.enter(rank)
    try:
        found = await _slot(line, place, (shared, wanted), asyncio.get_running_loop().time() + max(0.0, patience))
        if found is None:
            line.note_slot(place)
        yield found
    finally:
        line.leave(place)
        if shared is not None:
            shared.free(wanted.ticket)


async def _slot(line: SlotQueue, place: Place, shared: tuple[Slots | None, SlotRequest], ends: float) -> NoSlot | None:
    """Nothing if there is a slot. Slots freed elsewhere are not announced, so it asks repeatedly."""
    slots, wanted = shared
    pause, time = _POLL_S, asyncio.get_running_loop().time
    while await line.its_turn(place, ends):
        taken = None if slots is None else await slots.take(wanted)
        if not isinstance(taken, NoSlot):
            return None
        if not taken.busy or time() + pause >= ends:
            return taken
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, _LONGEST_POLL_S)
    return NoSlot()

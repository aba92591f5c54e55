"""The slots of models, shared by all processes of an installation: the port, and how a session gets one.

A model runs as many sessions at once as its settings allow, in all workers together. A pause that its provider asks of
one of them, and a refused key, hold for the others. `dispatch.py` asks within `held_slot`; the store keeps slots as
leases, so that those of a worker that was killed come back by themselves.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from switchboard.llm.spec import ModelSpec

_POLL_S: Final = 0.05
_LONGEST_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Lease:
    """A slot that was taken. It holds until it is freed or expires."""

    key: str


@dataclass(frozen=True, slots=True)
class NoSlot:
    """Why there is no slot: the others have all; or its provider wants a pause of `paused` seconds, or refuses our key.

    `refused` is what it said about the key; "": nothing.
    """

    paused: float = 0.0
    refused: str = ""

    @property
    def busy(self) -> bool:
        """Whether there may be a slot soon."""
        return not self.paused and not self.refused


class Slots(Protocol):
    """The slots of all models, and their cooldowns."""

    async def take(self, model: str, most: int) -> Lease | NoSlot:
        """One of `most` slots of a model, or why there is none."""

    def free(self, lease: Lease) -> None:
        """Give it back. Nothing waits for it but this process's next `take`."""

    async def pause(self, model: str, seconds: float, why: str, *, for_all: bool) -> None:
        """Tell the others that a cooldown has begun here. `for_all`: the provider asked for it, so it is theirs too."""

    async def refuse(self, model: str, why: str) -> None:
        """Pause a model for all that have the same key: its provider has refused it, and will refuse it again."""


@asynccontextmanager
async def held_slot(
    spec: ModelSpec, own: asyncio.Semaphore, shared: Slots | None, patience: float
) -> AsyncIterator[NoSlot | None]:
    """A slot of this process (`own`), then one of all, waiting for `patience` seconds; None: a session may begin."""
    ends = asyncio.get_running_loop().time() + max(0.0, patience)
    async with _own_slot(own, ends) as free:
        if not free or shared is None:
            yield None if free else NoSlot()
            return
        lease = await _shared_slot(shared, spec, ends)
        if isinstance(lease, NoSlot):
            yield lease
            return
        try:
            yield None
        finally:
            shared.free(lease)


@asynccontextmanager
async def _own_slot(own: asyncio.Semaphore, ends: float) -> AsyncIterator[bool]:
    """Whether this process may begin another session, waiting until `ends`."""
    try:
        async with asyncio.timeout_at(ends):
            await own.acquire()
    except TimeoutError:
        yield False
        return
    try:
        yield True
    finally:
        own.release()


async def _shared_slot(slots: Slots, spec: ModelSpec, ends: float) -> Lease | NoSlot:
    """A lease. That one has come back is not announced, so it is asked for again and again until `ends`."""
    pause, time = _POLL_S, asyncio.get_running_loop().time
    taken = await slots.take(spec.name, spec.concurrency)
    while isinstance(taken, NoSlot) and taken.busy and time() + pause < ends:
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, _LONGEST_POLL_S)
        taken = await slots.take(spec.name, spec.concurrency)
    return taken

"""The kinds of lanes, and in which pool their items wait.

`app/wiring.py` gives a worker a handler for each kind that it should run; it claims no others, so a worker of an older
release leaves unknown kinds alone. All workers leave `mailbox` alone: its lanes number the replies read over the API,
and are always idle. Next: `worker.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from switchboard.domain.ledger import Item
from switchboard.lanes.journal import StepLog


class Pool(Struct, frozen=True):
    """Kinds that share slots: how many items run concurrently in one worker, unless the settings differ."""

    name: str
    places: int


WORK_POOL: Final = Pool("work", 64)
ROUTE_POOL: Final = Pool("route", 16)
"""Models are slow, and must not take the slots of everything else."""


class LaneKind(Struct, frozen=True):
    """One kind of lane. Lanes of replies may lie in another pool, where a connector fetches them."""

    name: str
    pool: Pool


TURN: Final = LaneKind("turn", WORK_POOL)
NOTICE: Final = LaneKind("notice", WORK_POOL)
SEND: Final = LaneKind("send", WORK_POOL)
ROUTE: Final = LaneKind("route", ROUTE_POOL)
KINDS: Final[Mapping[str, LaneKind]] = {kind.name: kind for kind in (TURN, NOTICE, SEND, ROUTE)}


class Claim(Struct, frozen=True):
    """The claim under which an item is processed, by this worker.

    `keeps` is called when the item has ended: whether the worker also wants the next one of the lane.

    `alive` is checked before any action that no journal step guards: a process suspended for long resumes where it was,
    by which time others may have processed the item.
    """

    worker: int
    steps: StepLog
    """Where the journal of the item is kept."""
    keeps: Callable[[], bool] = lambda: True
    alive: Callable[[], bool] = lambda: True
    drain: asyncio.Event | None = None
    """Set when the worker claims nothing more, and only finishes what runs."""


class Handler(Protocol):
    """A leg of the journey: load → core → save. Returns the next item of the lane if this worker keeps it."""

    async def __call__(self, item: Item, claim: Claim) -> Item | None: ...

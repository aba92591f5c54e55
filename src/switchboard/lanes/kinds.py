"""The kinds of lanes: where their items are kept, in which pool they wait, how an item ends that cannot be done.

`app/wiring.py` gives a worker a handler for each kind that it should run; it claims no others, so a worker of an older
release leaves unknown kinds alone. Next: `worker.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from switchboard.domain.ledger import Item
from switchboard.lanes.journal import StepLog


@dataclass(frozen=True, slots=True)
class Pool:
    """Kinds that share slots: how many items run at the same time in one worker, unless the settings say otherwise."""

    name: str
    places: int


WORK_POOL: Final = Pool("work", 64)
ROUTE_POOL: Final = Pool("route", 16)
"""Models are slow, and must not take the slots of everything else."""
POOLS: Final = (WORK_POOL, ROUTE_POOL)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of lane. Lanes of replies may lie in another pool, where a connector fetches them."""

    name: str
    pool: Pool
    table: str
    """The table of its items, by lane and seq."""
    past_limit: Literal["dead_letter", "failed", "dead", "unclassified"]
    """How an item ends whose attempts are used up: as a dead letter; as a notice that failed; as a reply that a person
    may send again; as a message that is decided without asking a model."""


TURN: Final = Kind("turn", WORK_POOL, "delivery", "dead_letter")
NOTICE: Final = Kind("notice", WORK_POOL, "notice", "failed")
SEND: Final = Kind("send", WORK_POOL, "outbox", "dead")
ROUTE: Final = Kind("route", ROUTE_POOL, "routing", "unclassified")
KINDS: Final[Mapping[str, Kind]] = {kind.name: kind for kind in (TURN, NOTICE, SEND, ROUTE)}


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim under which an item is processed: this worker, and whether it wants the next item of the lane as well.

    `alive` is checked before any action that no journal step guards: a process that was suspended for long resumes
    where it was, and others may have done the item by then.
    """

    worker: int
    steps: StepLog
    """Where the journal of the item is kept."""
    hand_on: bool = True
    alive: Callable[[], bool] = lambda: True


class Handler(Protocol):
    """A leg of the journey: load → core → save. Returns the next item of the lane if this worker keeps it."""

    async def __call__(self, item: Item, claim: Claim) -> Item | None: ...

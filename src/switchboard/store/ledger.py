"""The ledger as the interfaces show it: deliveries with their attempts, journal steps and decisions.

Called by `app/messages/views.py` and `app/messages/explain.py`; reads only. The truth is written by `store/lanes.py`.
Next: `store/dead_letters.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from switchboard.domain.json_values import JsonMapping
from switchboard.store.database import Database, query, rows_as

ShownState = Literal["pending", "running", "retrying", "waiting", "answered", "declined", "dead", "cancelled"]
"""The state of a delivery; of a pending one the lane tells whether it runs, is retried, or waits for an event."""


@dataclass(frozen=True, slots=True)
class ShownDelivery:
    """A delivery with what its lane knows. `attempts` counts those begun, lost workers included."""

    request_id: UUID
    conversation: str
    system_id: str
    team_id: str
    segment: int
    lane: str
    seq: int
    state: ShownState
    attempts: int
    error_class: str | None
    created_at: datetime
    settled_at: datetime | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One finished run of a butler. `usage`: of each model, as `ModelUsage`; None: no model was asked."""

    lane: str
    seq: int
    epoch: int
    outcome: str
    error_class: str | None
    error: str | None
    engine: str | None
    worker: int | None
    started_at: datetime | None
    finished_at: datetime
    stop_reason: str | None
    """Why it was stopped, or stopped early; None: it was not."""
    usage: Sequence[JsonMapping] | None


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A journaled step; its result stays in the database, it may be large."""

    lane: str
    seq: int
    path: str
    effect: str
    state: str
    epoch: int
    tokens_in: int
    tokens_out: int
    cost: int | None
    """In micro-dollars."""
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class ShownDecision:
    """The `n`-th decision about a message, by which version of the rules; `trail` is a list of TrailStep as JSON.

    `facts` is what was known of the message; None if stored by an earlier release.
    """

    n: int
    version: int
    branches: int
    trail: Sequence[JsonMapping]
    decided_at: datetime
    facts: Mapping[str, str] | None


class DeliveryKey(NamedTuple):
    """Where a page of deliveries ends."""

    request_id: UUID
    system_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the deliveries of one system."""

    answered: int = 0
    dead: int = 0
    in_flight: int = 0


async def deliveries_of(database: Database, request_id: UUID) -> list[ShownDelivery]:
    """The deliveries of one message, oldest first."""
    return rows_as(ShownDelivery, await database.rows(query("ledger.of_message"), request_id))


async def list_deliveries(
    database: Database,
    *,
    before: DeliveryKey | None = None,
    limit: int = 50,
    system_id: str | None = None,
    state: ShownState | None = None,
) -> list[ShownDelivery]:
    """Newest message first; `before` is the last delivery of the page before."""
    start = before or (None, None, None)
    return rows_as(ShownDelivery, await database.rows(query("ledger.list"), *start, system_id, state, limit))


async def attempts_of(database: Database, request_id: UUID) -> list[Attempt]:
    """Every finished run of every butler for one message, in the order of their ends."""
    return rows_as(Attempt, await database.rows(query("ledger.turns"), request_id))


async def steps_of(database: Database, request_id: UUID) -> list[ShownStep]:
    """The journal of one message's deliveries."""
    return rows_as(ShownStep, await database.rows(query("ledger.steps"), request_id))


async def route_attempts_of(database: Database, request_id: UUID) -> list[Attempt]:
    """Every attempt to route one message that had to wait for that, in the order of their ends."""
    return rows_as(Attempt, await database.rows(query("routing.attempts"), request_id))


async def route_steps_of(database: Database, request_id: UUID) -> list[ShownStep]:
    """The journal of one message's routing."""
    return rows_as(ShownStep, await database.rows(query("routing.steps"), request_id))


async def decisions_of(database: Database, request_id: UUID) -> list[ShownDecision]:
    """What was decided about one message, the first decision first."""
    return rows_as(ShownDecision, await database.rows(query("ledger.decisions"), request_id))


async def tallies(database: Database) -> dict[str, Tally]:
    """Per system what became of its deliveries; one pass over the table."""
    rows = await database.rows(query("ledger.per_system"))
    return {row["system_id"]: Tally(row["answered"], row["dead"], row["in_flight"]) for row in rows}


async def lane_states(database: Database) -> tuple[dict[str, int], float]:
    """How many lanes are in which state (idle ones are not counted), and the longest wait of a ready one in s."""
    rows = await database.rows(query("ledger.lane_states"))
    oldest = max((row["oldest_s"] for row in rows), default=0.0)
    return {row["state"]: row["lanes"] for row in rows}, max(0.0, oldest)

"""The ledger as the interfaces show it: deliveries with their attempts, journal steps and decisions.

Called by `app/messages/views.py` and `app/messages/explain.py`; reads only. `store/work/lanes.py` writes it. Next:
`store/messages/dead_letters.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.shown import (
    Attempt,
    FactInTurn,
    OfferedTools,
    RefusedCall,
    ShownDelivery,
    ShownState,
    ShownStep,
)
from switchboard.store.database import Database, Row, query, rows_as


@dataclass(frozen=True, slots=True)
class DecisionHead:
    """The `n`-th decision about a message, and the version of the rules that made it."""

    n: int
    version: int
    branches: int
    decided_at: datetime


@dataclass(frozen=True, slots=True)
class ShownDecision(DecisionHead):
    """A decision as it is on record: `trail` is a list of TrailStep as JSON.

    `facts` is what was known about the message; None if stored by an earlier release.
    """

    trail: Sequence[JsonMapping]
    facts: Mapping[str, str] | None


async def deliveries_of(database: Database, request_id: UUID) -> list[ShownDelivery]:
    """The deliveries of one message, oldest first."""
    return rows_as(ShownDelivery, await database.rows(query("ledger.of_message"), request_id))


async def list_deliveries(
    database: Database,
    *,
    before: tuple[UUID, str, int] | None = None,
    limit: int = 50,
    system_id: str | None = None,
    state: ShownState | None = None,
) -> list[ShownDelivery]:
    """Newest message first; `before` is the message, system and seq with which the page before ends."""
    start = before or (None, None, None)
    return rows_as(
        ShownDelivery, await database.rows_with_custom_plan(query("ledger.list"), *start, system_id, state, limit)
    )


async def attempts_of(database: Database, request_id: UUID) -> list[Attempt]:
    """Every finished attempt of every butler for one message, in the order of their ends."""
    return _attempts(await database.rows(query("ledger.turns"), request_id))


async def steps_of(database: Database, request_id: UUID) -> list[ShownStep]:
    """The journal of one message's deliveries."""
    return rows_as(ShownStep, await database.rows(query("ledger.steps"), request_id))


async def offered_in(database: Database, request_id: UUID) -> list[OfferedTools]:
    """The tools of each of one message's turns with a model."""
    return rows_as(OfferedTools, await database.rows(query("ledger.offered"), request_id))


async def told_facts_in(database: Database, request_id: UUID) -> list[FactInTurn]:
    """The facts that one message's turns were told, in order."""
    return rows_as(FactInTurn, await database.rows(query("ledger.told_facts"), request_id))


async def refused_in(database: Database, request_id: UUID) -> list[RefusedCall]:
    """The calls that failed or were not made in one message's turns, in order."""
    return rows_as(RefusedCall, await database.rows(query("ledger.refused"), request_id))


async def route_attempts_of(database: Database, request_id: UUID) -> list[Attempt]:
    """Every attempt to route a message that had to wait for that, in the order of their ends."""
    return _attempts(await database.rows(query("routing.attempts"), request_id))


async def route_steps_of(database: Database, request_id: UUID) -> list[ShownStep]:
    """The journal of one message's routing."""
    return rows_as(ShownStep, await database.rows(query("routing.steps"), request_id))


async def decisions_of(database: Database, request_id: UUID) -> list[ShownDecision]:
    """The decisions about one message, oldest first."""
    return rows_as(ShownDecision, await database.rows(query("ledger.decisions"), request_id))


async def rule_hits(database: Database, decisions: int) -> dict[UUID, int]:
    """How often each rule decided, or copied, among so many of the newest decisions."""
    rows = await database.rows(query("ledger.rule_hits"), decisions)
    return {row["rule_id"]: row["hits"] for row in rows}


async def was_delivered(database: Database, request_id: UUID, system_id: str) -> bool:
    """Whether this butler received the whole message, not only a part of it."""
    return bool(await database.value(query("ledger.was_delivered"), request_id, system_id))


async def lane_states(database: Database) -> tuple[dict[str, int], float]:
    """The number of lanes by state (except idle ones), and the longest wait of a ready one in seconds."""
    rows = await database.rows(query("ledger.lane_states"))
    oldest = max((row["oldest_s"] for row in rows), default=0.0)
    return {row["state"]: row["lanes"] for row in rows}, max(0.0, oldest)


_SHOWN_USAGE: Final = {
    "input_tokens": "tokens_in",
    "output_tokens": "tokens_out",
    "cache_read": "tokens_cache_read",
    "cache_write": "tokens_cache_write",
}


def _attempts(rows: Sequence[Row]) -> list[Attempt]:
    """The attempts, with the names of token counts used elsewhere."""
    found = rows_as(Attempt, rows)
    return [
        one if one.usage is None else replace(one, usage=[_shown_usage(used) for used in one.usage]) for one in found
    ]


def _shown_usage(used: JsonMapping) -> JsonObject:
    return {_SHOWN_USAGE.get(name, name): value for name, value in used.items()}

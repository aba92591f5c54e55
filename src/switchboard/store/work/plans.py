"""Plans as the interfaces show them, from the steps of their turns. Reads only; `lanes/journal.py` writes.

Called by `app/messages/planned.py`. Next: `core/planning/records.py`, which interprets the steps of a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.domain.ledger import StepOnRecord
from switchboard.domain.shown import PlanState
from switchboard.ports.engine import StepState
from switchboard.store.database import Database, from_json, query, rows_as


class PlanRow(Struct, frozen=True):
    """A turn that has chosen a plan. `routed` is the JSON of its step; `steps` of it have ended."""

    request_id: UUID
    lane: UUID
    seq: int
    system_id: str
    state: PlanState
    routed: Any
    message: str
    steps: int
    done: int
    tokens: int
    began_at: datetime
    ended_at: datetime | None


class PlanStepRow(StepOnRecord, frozen=True):
    """Any step of such a turn."""

    state: StepState
    result: Any
    tokens: int
    ended_at: datetime | None


async def list_plans(
    database: Database, below: tuple[UUID, UUID] | None, *, running: bool, limit: int
) -> list[PlanRow]:
    """Newest message first; `below`: message and lane of the last one of the page before."""
    rows = await database.rows_with_custom_plan(query("plans.list"), *(below or (None, None)), running, limit)
    return _read(rows_as(PlanRow, rows))


async def of_message(database: Database, request_id: UUID) -> list[PlanRow]:
    """The plans of butlers for a message."""
    return _read(rows_as(PlanRow, await database.rows(query("plans.of_message"), request_id)))


def _read(rows: Sequence[PlanRow]) -> list[PlanRow]:
    return [replace(one, routed=from_json(one.routed)) for one in rows]


async def steps_of(database: Database, request_id: UUID) -> list[PlanStepRow]:
    """All steps of all turns of a message."""
    found = rows_as(PlanStepRow, await database.rows(query("plans.steps"), request_id))
    return [replace(one, result=one.result and from_json(one.result)) for one in found]

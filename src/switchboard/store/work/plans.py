"""Plans as the interfaces show them, from the steps of their turns. Reads only; `lanes/journal.py` writes.

Called by `app/messages/planned.py`. Next: `core/planning/records.py`, which interprets the steps of a plan.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.planning.routed import RoutedPlan, routed_or_note
from switchboard.domain.ledger import StepOnRecord
from switchboard.domain.shown import ShownPlan
from switchboard.ports.engine import StepState
from switchboard.store.database import Database, Row, from_json, query, rows_as


class PlanRow(Struct, frozen=True):
    """A turn that has chosen a plan: the decision, and what is shown of it without its steps."""

    lane: UUID
    seq: int
    routed: RoutedPlan
    shown: ShownPlan


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
    return list(map(_read, rows))


async def of_message(database: Database, request_id: UUID) -> list[PlanRow]:
    """The plans of butlers for a message."""
    return list(map(_read, await database.rows(query("plans.of_message"), request_id)))


def _read(row: Row) -> PlanRow:
    columns = dict(row)
    lane, seq, routed = columns.pop("lane"), columns.pop("seq"), routed_or_note(from_json(columns.pop("routed")))
    budget = None if routed.pipeline is None else routed.pipeline.token_budget
    decided = {name: getattr(routed, name) for name in ("action", "source", "target", "notes")}
    return PlanRow(lane, seq, routed, ShownPlan(**columns, **decided, token_budget=budget))


async def steps_of(database: Database, request_id: UUID) -> list[PlanStepRow]:
    """All steps of all turns of a message."""
    found = rows_as(PlanStepRow, await database.rows(query("plans.steps"), request_id))
    return [replace(one, result=one.result and from_json(one.result)) for one in found]

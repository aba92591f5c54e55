"""Butlers' plans and their progress, for operators.

HTTP calls `PlanService`, `explain.py` calls `plans_of`. In: ids; out: `ShownPlan`s, built by the plan machine from the
records, as by a worker that resumes one. Reads only. Next: `store/work/plans.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import msgspec

from switchboard.app.cursors import cursor_after, key_of
from switchboard.app.runtime import Runtime
from switchboard.core.planning.machine import Plan, resume
from switchboard.core.planning.records import APPROVAL, START, notes_of, recorded_of, tokens_of
from switchboard.core.planning.routed import note_of_error
from switchboard.core.planning.start import read_start
from switchboard.core.planning.times import plan_times, step_times
from switchboard.domain.errors import NotFound
from switchboard.domain.planning import PipelineStep
from switchboard.domain.shown import ShownPlan, ShownPlanStep
from switchboard.ports.engine import OnRecord
from switchboard.store.database import Database
from switchboard.store.messages import inbox
from switchboard.store.work import plans as store
from switchboard.store.work.plans import PlanRow, PlanStepRow


class PlanService:
    """Lists and shows. Callers are authorised before."""

    def __init__(self, runtime: Runtime) -> None:
        self._database = runtime.database

    async def list(self, *, running: bool, limit: int, cursor: str | None) -> tuple[list[ShownPlan], str | None]:
        """A page, newest message first, and the cursor of the next. Raises InvalidInput."""
        below = key_of(cursor, tuple[UUID, UUID])
        rows = await store.list_plans(self._database, below, running=running, limit=limit)
        following = cursor_after(rows[-1].shown.request_id, rows[-1].lane) if len(rows) == limit else None
        return [row.shown for row in rows], following

    async def of_message(self, request_id: UUID) -> Sequence[ShownPlan]:
        """The plans of butlers for a message. Raises NotFound."""
        if await inbox.get_message(self._database, request_id) is None:
            raise NotFound(f"there is no message {request_id}")
        return await plans_of(self._database, request_id)


async def plans_of(database: Database, request_id: UUID) -> list[ShownPlan]:
    """The plans for a message with all of their steps."""
    rows = await store.of_message(database, request_id)
    if not rows:
        return []
    steps = await store.steps_of(database, request_id)
    return [_whole(row, [one for one in steps if (one.lane, one.seq) == (row.lane, row.seq)]) for row in rows]


def _whole(row: PlanRow, steps: Sequence[PlanStepRow]) -> ShownPlan:
    shown, routed, by_path = row.shown, row.routed, {one.path: one for one in steps}
    records = {path: OnRecord(one.state, one.result, one.tokens) for path, one in by_path.items()}
    try:
        start = read_start(by_path[START].result)
        if routed.pipeline is None:
            return shown
        # As a worker would resume it, with the steps added by reviews.
        plan, _ = resume(routed.pipeline, start.limits, start.guard(routed.source), recorded_of(records))
    except msgspec.ValidationError as error:
        return replace(shown, notes=(note_of_error(error),))
    times = plan_times(shown.began_at, shown.ended_at, by_path)
    return replace(
        shown,
        seconds=times.seconds,
        waited=times.waited,
        deadline_at=start.deadline,
        notes=(*routed.notes, *plan.notes, *notes_of(records, [one.id for one in plan.steps])),
        steps=[_step(one, plan, records, by_path) for one in plan.steps],
    )


def _state(step_id: str, records: Mapping[str, OnRecord]) -> str:
    """The state of a step that has not ended."""
    waits = (
        one.state == "started" and (path == f"{APPROVAL}{step_id}" or path.startswith(f"{step_id}/{APPROVAL}"))
        for path, one in records.items()
    )
    if any(waits):
        return "waiting"
    record = records.get(step_id)
    if record is None:
        return "started" if any(path.startswith(f"{step_id}/") for path in records) else "pending"
    return "started" if record.state == "started" else "pending"


def _step(
    step: PipelineStep, plan: Plan, records: Mapping[str, OnRecord], rows: Mapping[str, PlanStepRow]
) -> ShownPlanStep:
    record, times = records.get(step.id), step_times(step.id, rows)
    state = _state(step.id, records)
    end = plan.ends.get(step.id) if record is not None and record.state != "started" else None
    return ShownPlanStep(
        *(step.id, step.action, step.target, dict(step.args), step.needs),
        state if end is None else end.state,
        "" if end is None else end.why,
        0 if end is None else end.size,
        tokens_of(records, step),
        times.started_at,
        times.ended_at,
        times.seconds,
        times.waited,
    )

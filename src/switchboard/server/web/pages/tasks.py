"""Tasks: what is due and when, for whom, and what became of it; how one is paused, cancelled or carried out at once.

Next: `app/tasks/service.py`.
"""

from __future__ import annotations

from typing import Final, get_args
from uuid import UUID

from starlette.responses import Response

from switchboard.app.people.naming import call_people
from switchboard.app.tasks.service import TASKS, last_due
from switchboard.domain.tasks import TaskState
from switchboard.server.http.tasks import TASK_SERVICE
from switchboard.server.web.forms import NOTHING_ENTERED, Entered, Fields, choice_from, reason_from
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.visit import Visit

_ROWS: Final = 50
_STATES: Final[tuple[TaskState, ...]] = get_args(TaskState)
_OUTCOMES: Final = {
    "cancelled": "It is cancelled, and is not due again.",
    "run": "It is due now; a worker carries it out within seconds.",
    "paused": "It is paused, and is not due until you resume it.",
    "resumed": "It goes on, from its next time.",
}


async def show_tasks(visit: Visit) -> Response:
    """What is due next, the next one first; or those of another state, by id."""
    service, butler, cursor = visit.services.of(TASK_SERVICE), visit.asked("butler"), visit.asked("cursor")
    state = choice_from(visit.asked("state") or "active", _STATES, "state")
    if state == "active":
        tasks, following = await service.coming(system_id=butler, limit=_ROWS, cursor=cursor)
    else:
        tasks, following = await service.list_tasks(system_id=butler, state=state, limit=_ROWS, cursor=cursor)
    return visit.page(
        "tasks.html",
        tasks=tasks,
        following=following,
        last=await service.last_firings(tasks),
        names=await call_people(visit.services.runtime.database, {one.person for one in tasks}),
        state=state,
        states=_STATES,
        butler=butler,
    )


async def show_task(visit: Visit, entered: Entered = NOTHING_ENTERED) -> Response:
    """One, with the times at which it was due."""
    shown = await visit.services.of(TASK_SERVICE).show_ledger(_task_id(visit))
    names = await call_people(visit.services.runtime.database, {shown.task.person})
    return visit.page(
        "task.html",
        entered.status,
        task=shown.task,
        firings=shown.firings,
        last=last_due(shown.firings),
        person=names[shown.task.person],
        entered=entered,
        outcome=_OUTCOMES.get(visit.asked("done") or ""),
    )


async def cancel_task(visit: Visit, fields: Fields) -> Response:
    """It is due no more."""
    await visit.services.of(TASK_SERVICE).cancel(visit.caller, _task_id(visit), reason_from(fields))
    return visit.go(f"/tasks/{_task_id(visit)}?done=cancelled")


async def pause_task(visit: Visit, fields: Fields) -> Response:
    """It is not due until it is resumed."""
    await visit.services.of(TASK_SERVICE).pause(visit.caller, _task_id(visit), reason_from(fields))
    return visit.go(f"/tasks/{_task_id(visit)}?done=paused")


async def resume_task(visit: Visit, fields: Fields) -> Response:
    """It goes on, from its next time."""
    await visit.services.of(TASK_SERVICE).resume(visit.caller, _task_id(visit), reason_from(fields))
    return visit.go(f"/tasks/{_task_id(visit)}?done=resumed")


async def run_task(visit: Visit, fields: Fields) -> Response:
    """Due now, besides its times."""
    reason, seen = reason_from(fields), fields.get("last", "")
    await visit.services.of(TASK_SERVICE).run_now(visit.caller, _task_id(visit), reason, seen=seen)
    return visit.go(f"/tasks/{_task_id(visit)}?done=run")


def _task_id(visit: Visit) -> UUID:
    return visit.path_id("task_id")


_ONE: Final = "/tasks/{task_id:uuid}"
PAGES: Final = (
    WebPage("/tasks", show_tasks, TASKS, "Tasks"),
    WebPage(_ONE, show_task, TASKS),
    WebForm(f"{_ONE}/cancel", cancel_task, TASKS, if_refused=show_task),
    WebForm(f"{_ONE}/pause", pause_task, TASKS, if_refused=show_task),
    WebForm(f"{_ONE}/resume", resume_task, TASKS, if_refused=show_task),
    WebForm(f"{_ONE}/run", run_task, TASKS, if_refused=show_task),
)

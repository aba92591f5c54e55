"""`/v1/tasks`: what butlers say or do at a time, and what became of it. For operators. Next: `app/tasks/service.py`."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.tasks.service import TASKS, TaskService
from switchboard.domain.tasks import TaskState
from switchboard.server.contracts.base import Cursor, Limit, Word
from switchboard.server.contracts.messages import ReasonBody, reason_in
from switchboard.server.contracts.tasks import TaskDetail, TaskPage
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation, page
from switchboard.server.services import ServiceFactory

router = router_of("tasks", prefix="/v1/tasks")
TASK_SERVICE: Final = ServiceFactory(lambda services: TaskService(services.runtime))

Operator = Annotated[Principal, Depends(needs(TASKS))]


@router.get("", **operation("list_tasks", "List tasks", TaskPage, needing=TASKS))
async def list_tasks(
    parts: Parts,
    system_id: Word | None = None,
    state: TaskState | None = None,
    limit: Limit = 100,
    cursor: Cursor | None = None,
    start: Word | None = None,
) -> Response:
    """Of all people, by id. With `start`, only a few whose ids begin so, or end so if it has 8 digits or more."""
    if start is not None:
        return answer(page("tasks", (await parts.of(TASK_SERVICE).find(start), None)))
    found = parts.of(TASK_SERVICE).list_tasks(system_id=system_id, state=state, limit=limit, cursor=cursor)
    return answer(page("tasks", await found))


@router.get("/{task_id}", **operation("get_task", "Get a task", TaskDetail, 404, needing=TASKS))
async def get_task(parts: Parts, task_id: UUID) -> Response:
    """With its latest firings."""
    return answer({"ledger": await parts.of(TASK_SERVICE).show_ledger(task_id)})


@router.post("/{task_id}/cancel", **operation("cancel_task", "Cancel a task", TaskDetail, 404, 409))
async def cancel_task(caller: Operator, parts: Parts, task_id: UUID, body: ReasonBody | None = None) -> Response:
    """It is due no more. Its person is not told."""
    return answer({"ledger": await parts.of(TASK_SERVICE).cancel(caller, task_id, reason_in(body))})


@router.post("/{task_id}/pause", **operation("pause_task", "Pause a task", TaskDetail, 404, 409))
async def pause_task(caller: Operator, parts: Parts, task_id: UUID, body: ReasonBody | None = None) -> Response:
    """It is not due until it is resumed. Its person is not told."""
    return answer({"ledger": await parts.of(TASK_SERVICE).pause(caller, task_id, reason_in(body))})


@router.post("/{task_id}/resume", **operation("resume_task", "Resume a task", TaskDetail, 404, 409))
async def resume_task(caller: Operator, parts: Parts, task_id: UUID, body: ReasonBody | None = None) -> Response:
    """It goes on, from its next time. What was due while it was paused is left out."""
    return answer({"ledger": await parts.of(TASK_SERVICE).resume(caller, task_id, reason_in(body))})


@router.post("/{task_id}/run", **operation("run_task", "Carry out a task now", TaskDetail, 404, 409))
async def run_task(caller: Operator, parts: Parts, task_id: UUID, body: ReasonBody | None = None) -> Response:
    """Besides its times. A task that was paused goes on."""
    return answer({"ledger": await parts.of(TASK_SERVICE).run_now(caller, task_id, reason_in(body))})

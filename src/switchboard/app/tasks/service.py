"""Tasks for operators: all of them, what became of each, and pausing, cancelling or carrying out one now.

HTTP calls `TaskService` with the caller's `Principal`. A change and its row in the audit are one transaction. The
tables are those of the module `schedule`. Next: `modules/schedule/ledger.py`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from switchboard.app.access import OPERATOR, Action, Principal
from switchboard.app.cursors import cursor_after, key_of
from switchboard.app.runtime import Runtime
from switchboard.core.zones import find_zone
from switchboard.domain.errors import Conflict, InvalidInput, NotFound
from switchboard.domain.tasks import ShownFiring, ShownLedger, ShownTask, TaskState
from switchboard.modules.schedule import ledger
from switchboard.modules.schedule.instants import wall_at
from switchboard.modules.schedule.ledger import FiringRow, Task
from switchboard.modules.schedule.manifest import MANIFEST
from switchboard.modules.schedule.opened import ACCOUNT
from switchboard.modules.schedule.planning import Due, due_after_pause, next_due, show_wall
from switchboard.modules.schedule.recurrence import describe_recurrence
from switchboard.ports.module_store import ModuleStore
from switchboard.store.database import Database
from switchboard.store.modules.opening import ModuleRooms
from switchboard.store.modules.stores import ModuleStores
from switchboard.store.people import audit

TASKS: Final = Action("tasks", OPERATOR)
_FIRINGS: Final = 50
_DIGITS: Final = re.compile("[0-9a-f]{4,32}")
_END: Final = 8
"""Digits at the end of an id that name it, as `MessageViews.find` has it."""
_FEW: Final = 5


class TaskService:
    """For operators only."""

    def __init__(self, runtime: Runtime) -> None:
        self._database = runtime.database
        self._rooms = ModuleRooms(runtime.database)

    async def list_tasks(
        self, *, system_id: str | None, state: TaskState | None, limit: int, cursor: str | None
    ) -> tuple[list[ShownTask], str | None]:
        """A page, and the cursor of the next. Raises InvalidInput."""
        [before] = key_of(cursor, tuple[UUID]) or (None,)
        if (store := await self._find_store()) is None:
            return [], None
        found = await ledger.page_of_tasks(store, before=before, system_id=system_id, state=state, limit=limit)
        following = cursor_after(found[-1].task_id) if len(found) == limit else None
        return [_show_task(task) for task in found], following

    async def coming(
        self, *, system_id: str | None, limit: int, cursor: str | None
    ) -> tuple[list[ShownTask], str | None]:
        """A page of those that are due again, the next one first, and the cursor of the next. Raises InvalidInput."""
        after = key_of(cursor, tuple[datetime, UUID])
        if (store := await self._find_store()) is None:
            return [], None
        found = await ledger.tasks_to_come(store, after=after, system_id=system_id, limit=limit)
        following = cursor_after(found[-1].next_at, found[-1].task_id) if len(found) == limit else None
        return [_show_task(task) for task in found], following

    async def last_firings(self, tasks: Sequence[ShownTask]) -> Mapping[UUID, ShownFiring]:
        """The latest firing of each of these tasks that has any."""
        if not tasks or (store := await self._find_store()) is None:
            return {}
        found = await ledger.last_firings(store, [task.task_id for task in tasks])
        return {task_id: _show_firing(one) for task_id, one in found.items()}

    async def show_ledger(self, task_id: UUID) -> ShownLedger:
        """A task and its latest firings. Raises NotFound."""
        stores, task = await self._find_task(task_id)
        firings = await ledger.firings_of(stores(ACCOUNT), task.task_id, _FIRINGS)
        return ShownLedger(_show_task(task), [_show_firing(one) for one in firings])

    async def cancel(self, caller: Principal, task_id: UUID, reason: str | None = None) -> ShownLedger:
        """It is due no more. Raises NotFound, Conflict."""
        async with self._open_order(caller, "cancelled", task_id, reason) as (store, task):
            if not await ledger.cancel_task(store, task_id, _describe_order("cancelled", caller, reason)):
                raise Conflict(f"the task is {task.state} already, and is not due again")
        return await self.show_ledger(task_id)

    async def pause(self, caller: Principal, task_id: UUID, reason: str | None = None) -> ShownLedger:
        """It is not due until it is resumed. Raises NotFound, Conflict."""
        async with self._open_order(caller, "paused", task_id, reason) as (store, task):
            if not await ledger.pause_active(store, task_id, _describe_order("paused", caller, reason)):
                raise Conflict(f"the task is {task.state} already, and is not due")
        return await self.show_ledger(task_id)

    async def resume(self, caller: Principal, task_id: UUID, reason: str | None = None) -> ShownLedger:
        """It goes on, from its next time; what was due in between is left out. Raises NotFound, Conflict."""
        async with self._open_order(caller, "resumed", task_id, reason) as (store, task):
            if task.state != "paused":
                raise Conflict(f"the task is {task.state}, and not paused")
            await ledger.resume_task(store, task, await _plan_after_pause(store, task))
        return await self.show_ledger(task_id)

    async def run_now(
        self, caller: Principal, task_id: UUID, reason: str | None = None, *, seen: str | None = None
    ) -> ShownLedger:
        """Due now, besides its times; one that was paused goes on. Raises NotFound, Conflict.

        `seen`: `last_due` as the caller was shown it, so that an order that comes twice is carried out once.
        """
        async with self._open_order(caller, "run", task_id, reason) as (store, task):
            if task.state == "cancelled":
                raise Conflict("the task is cancelled; its person has to make a new one")
            last = last_due([_show_firing(firing) for firing in await ledger.firings_of(store, task_id, 1)])
            now = (await ledger.look_around(store)).now.replace(microsecond=0)
            if task.state == "paused":
                await ledger.wake_task(store, task, next_due(task.timing, now))
            due = Due(now, wall_at(now, find_zone(task.zone)))
            fresh = await ledger.add_firing(store, task, due, late=timedelta(), passed=0, missed="")
            if not fresh or seen not in {None, last}:
                raise Conflict("it was due meanwhile: look at what came of it first")
        return await self.show_ledger(task_id)

    async def find(self, start: str) -> list[ShownTask]:
        """A few tasks whose ids begin or end so, with or without hyphens. Raises InvalidInput."""
        digits = start.replace("-", "").lower()
        if not _DIGITS.fullmatch(digits):
            raise InvalidInput("an id begins with hexadecimal digits: give at least 4 of them", field="start")
        patterns = [f"{digits}%", *([f"%{digits}"] if len(digits) >= _END else [])]
        if (store := await self._find_store()) is None:
            return []
        return [_show_task(one) for one in await ledger.page_of_tasks(store, ids=patterns, limit=_FEW)]

    @asynccontextmanager
    async def _open_order(
        self, caller: Principal, done: str, task_id: UUID, reason: str | None
    ) -> AsyncIterator[tuple[ModuleStore, Task]]:
        """The task as it is now, which nobody else changes within the block. Raises NotFound.

        One transaction with the row in the audit; that comes first, as the module's role may not write it.
        """
        stores, _ = await self._find_task(task_id)
        async with self._database.transaction() as whole:
            await _record_in_audit(whole, caller, done, task_id, reason)
            async with stores.within(whole)(ACCOUNT).transaction() as one:
                if (task := await ledger.lock_task(one, task_id)) is None:
                    raise _no_task(task_id)
                yield one, task

    async def _find_task(self, task_id: UUID) -> tuple[ModuleStores, Task]:
        stores = await self._rooms.find(MANIFEST)
        task = None if stores is None else await ledger.find_task(stores(ACCOUNT), task_id)
        if stores is None or task is None:
            raise _no_task(task_id)
        return stores, task

    async def _find_store(self) -> ModuleStore | None:
        """None as long as no butler has had the module: a worker makes its tables. Raises Unavailable."""
        stores = await self._rooms.find(MANIFEST)
        return None if stores is None else stores(ACCOUNT)


def last_due(firings: Sequence[ShownFiring]) -> str:
    """The latest of these times; empty if there is none."""
    return firings[0].due.isoformat() if firings else ""


def _no_task(task_id: UUID) -> NotFound:
    return NotFound(f"there is no task {task_id}; see `switchboard tasks list`")


async def _record_in_audit(database: Database, caller: Principal, done: str, task_id: UUID, reason: str | None) -> None:
    detail = {"task_id": str(task_id)} | ({"reason": reason} if reason else {})
    await audit.append(database, caller.name, f"tasks:{done}", detail)


def _describe_order(done: str, caller: Principal, reason: str | None) -> str:
    return f"{done} by {caller.name}{f': {reason}' if reason else ''}"


async def _plan_after_pause(store: ModuleStore, task: Task) -> Due:
    try:
        following = due_after_pause(task.timing, task.due, (await ledger.look_around(store)).now)
    except (ValueError, OverflowError) as error:
        raise Conflict(f"the task cannot be planned: {error}") from error
    if following is None:
        raise Conflict("its time has passed while it was paused: carry it out now, or cancel it")
    return following


def _show_task(task: Task) -> ShownTask:
    once = None if task.wall is None else show_wall(task.wall)
    due = task.next_at if task.state == "active" else None
    return ShownTask(
        *(task.task_id, task.system_id, task.person, task.place, task.kind, task.text, task.state, task.why),
        *(once or task.cron, task.zone, due, task.made_at, task.gate, once or describe_recurrence(task.cron)),
        task.paused_at,
    )


def _show_firing(one: FiringRow) -> ShownFiring:
    became = one.request_id, one.why or one.tell, one.told_at, one.gate_exit
    return ShownFiring(one.due, one.state, one.late_s, one.passed, *became)

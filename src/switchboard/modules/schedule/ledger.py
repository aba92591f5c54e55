"""Tasks and their firings, as rows of the module's own tables; the statements are in `sql/`.

`tools.py`, `due.py` and the interfaces of operators call it with a `ModuleStore`. Next: `due.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from switchboard.domain.tasks import TaskState
from switchboard.modules.schedule.planning import Due, Kind, TaskTiming, zone_fingerprint
from switchboard.ports.facts import Reader
from switchboard.ports.front_door import Origin
from switchboard.ports.gates import Gate
from switchboard.ports.module_store import ModuleStore

FiringState = Literal["due", "gated", "fired", "said", "skipped", "missed", "failed"]
"""`due`: to be carried out. `gated`: likewise, as its condition holds. `fired`: it is a turn; `said`: it was said
without one. `skipped`: there was nothing to do. `missed`: nobody was there in time. `failed`: see `why`."""


class Task(Struct, frozen=True):
    """What is due at a time. `person` made it in the conversation `place`; `origin` is JSON; `rules` are the zone's."""

    task_id: UUID
    system_id: str
    person: str
    place: str
    private: bool
    kind: Kind
    text: str
    own: bool
    tainted: bool
    zone: str
    wall: datetime | None
    cron: str
    gate: str
    origin: str
    revision: int
    state: TaskState
    why: str
    next_at: datetime | None
    next_wall: datetime | None
    next_fold: int
    rules: str
    failures: int
    made_at: datetime
    paused_at: datetime | None

    @property
    def timing(self) -> TaskTiming:
        """When it is due."""
        return TaskTiming(self.zone, self.wall, self.cron)

    @property
    def due(self) -> Due | None:
        """When it is due next."""
        if self.next_at is None or self.next_wall is None:
            return None
        return Due(self.next_at, self.next_wall, self.next_fold)

    @property
    def short_id(self) -> str:
        """What people and models call it."""
        return self.task_id.hex[:8]


class FiringRow(Struct, frozen=True):
    """One time at which a task was due; `tell` has to be told to its person, once. `tries`: how often in vain."""

    task_id: UUID
    revision: int
    due: datetime
    wall: datetime
    zone: str
    state: FiringState
    late_s: int
    passed: int
    request_id: UUID | None
    gate_exit: int | None
    why: str
    tell: str
    told_at: datetime | None
    tries: int
    made_at: datetime
    ended_at: datetime | None

    @property
    def key(self) -> tuple[UUID, int, datetime]:
        """Which firing it is."""
        return self.task_id, self.revision, self.due

    @property
    def is_open(self) -> bool:
        """Whether it is still to be carried out."""
        return self.state in ("due", "gated")


class FiringEnd(Struct, frozen=True):
    """How a firing ended."""

    state: FiringState
    request_id: UUID | None = None
    gate_exit: int | None = None
    why: str = ""
    tell: str = ""


class Glance(Struct, frozen=True):
    """What there is to do, by the database's clock `now`: tasks that are due, firings that are open."""

    now: datetime
    due: bool
    open: bool


class NewTask(Struct, frozen=True):
    """What makes a task, besides when it is due."""

    task_id: UUID
    kind: Kind
    text: str
    own: bool
    tainted: bool
    origin: Origin
    gate: Gate | None = None


async def look_around(store: ModuleStore) -> Glance:
    """One cheap query."""
    [row] = await store.rows("tasks.look")
    return Glance(**row)


async def take_due(store: ModuleStore, limit: int) -> list[Task]:
    """Tasks that are due, locked in this transaction; those that another one has are left out."""
    return _tasks_from(await store.rows("tasks.take_due", limit))


async def move_on(store: ModuleStore, task: Task, following: Due | None) -> None:
    """From now on it is due then; None: it is done."""
    await store.run("tasks.move_on", task.task_id, *_due_columns(following), zone_fingerprint(task.timing))


async def pause_task(store: ModuleStore, task_id: UUID, why: str) -> None:
    """It is due no more until somebody lets it go on."""
    await store.run("tasks.pause", task_id, why)


async def zones_in_use(store: ModuleStore) -> list[tuple[str, str]]:
    """The zones of active tasks, and the rules of each by which they were planned."""
    return [(row["zone"], row["rules"]) for row in await store.rows("tasks.zones")]


async def tasks_of_zone(store: ModuleStore, zone: str, rules: str, limit: int) -> list[Task]:
    """Active tasks of a zone that were planned by other rules than these, locked in this transaction."""
    return _tasks_from(await store.rows("tasks.of_zone", zone, rules, limit))


async def add_task(store: ModuleStore, new: NewTask, reader: Reader, timing: TaskTiming, due: Due) -> Task:
    """Make a task. One that was made by the same call before, or that says the same, is returned as it is."""
    gate = "" if new.gate is None else msgspec.json.encode(new.gate).decode()
    same = (*_wall_columns(reader), new.kind, new.text, timing.zone, timing.wall, timing.cron, gate)
    if found := _tasks_from(await store.rows("tasks.same", *same)):
        return found[0]
    columns: tuple[object, ...] = (new.task_id, reader.system_id, reader.person, reader.conversation, reader.private)
    columns += (new.kind, new.text, new.own, new.tainted, timing.zone, timing.wall, timing.cron, gate)
    columns += (msgspec.json.encode(new.origin).decode(), *_due_columns(due), zone_fingerprint(timing))
    await store.run("tasks.add", *columns)
    task = await find_task(store, new.task_id)
    if task is None:
        raise LookupError(f"the task {new.task_id} is gone")
    return task


async def find_task(store: ModuleStore, task_id: UUID) -> Task | None:
    """The task with this id."""
    return next(iter(_tasks_from(await store.rows("tasks.find", task_id))), None)


async def lock_task(store: ModuleStore, task_id: UUID) -> Task | None:
    """The task as it is now; nobody else changes it before the end of the transaction."""
    return next(iter(_tasks_from(await store.rows("tasks.lock", task_id))), None)


async def count_tasks(store: ModuleStore, person: str) -> int:
    """How many a person has that are still to come; whoever counts them waits until another's transaction has ended."""
    await store.rows("tasks.lock_of_person", [person])
    [row] = await store.rows("tasks.count_of", person)
    return int(row["number"])


async def tasks_of_reader(store: ModuleStore, reader: Reader, limit: int) -> list[Task]:
    """What the butler may tell this reader of: their own in private, those of the group in a group."""
    return _tasks_from(await store.rows("tasks.of_reader", *_wall_columns(reader), limit))


async def cancel_for_reader(store: ModuleStore, reader: Reader, task_id: UUID) -> bool:
    """Cancel one of those; False: there is none of that id."""
    return await store.run("tasks.cancel_of_reader", *_wall_columns(reader), task_id) > 0


async def page_of_tasks(
    store: ModuleStore,
    *,
    before: UUID | None = None,
    system_id: str | None = None,
    state: TaskState | None = None,
    ids: Sequence[str] | None = None,
    limit: int,
) -> list[Task]:
    """For operators: the tasks of all, in an order of their ids. `ids`: patterns of which the digits match one."""
    return _tasks_from(await store.rows("tasks.page", before, system_id, state, limit, ids))


async def tasks_to_come(
    store: ModuleStore, *, after: tuple[datetime, UUID] | None, system_id: str | None, limit: int
) -> list[Task]:
    """For operators: active tasks of all, the one that is due next first; `after`: when the last one is due, its id."""
    return _tasks_from(await store.rows("tasks.coming", *(after or (None, None)), system_id, limit))


async def cancel_task(store: ModuleStore, task_id: UUID, why: str) -> bool:
    """For operators; False: it is not to come any more."""
    return await store.run("tasks.cancel", task_id, why) > 0


async def pause_active(store: ModuleStore, task_id: UUID, why: str) -> bool:
    """For operators: it is due no more until it is resumed. False: it is not active."""
    return await store.run("tasks.pause_active", task_id, why) > 0


async def resume_task(store: ModuleStore, task: Task, following: Due) -> None:
    """For operators: a paused task, which is locked, is due then."""
    await store.run("tasks.resume", task.task_id, *_due_columns(following), zone_fingerprint(task.timing))


async def wake_task(store: ModuleStore, task: Task, following: Due | None) -> None:
    """Let a task go on that was paused; without a next time it is over."""
    await store.run("tasks.wake", task.task_id, *_due_columns(following), zone_fingerprint(task.timing))


async def add_firing(store: ModuleStore, task: Task, due: Due, *, late: timedelta, passed: int, missed: str) -> bool:
    """Write down that a task is due; `missed`: what to tell if it is too late. False: that was written down before."""
    state, seconds = "missed" if missed else "due", max(0, int(late.total_seconds()))
    row = (task.task_id, task.revision, due.at, due.wall, task.zone, state, seconds, passed, "", missed)
    return await store.run("firings.add", *row) > 0


async def open_firings(store: ModuleStore, each: int, limit: int) -> list[FiringRow]:
    """What is to be carried out or told now, at most `each` of a person."""
    return _firings_from(await store.rows("firings.open", each, limit))


async def count_caught_up(store: ModuleStore, late: timedelta) -> Mapping[str, int]:
    """How many that were later than this were carried out within the last minute, by person."""
    rows = await store.rows("firings.caught_up", int(late.total_seconds()))
    return {row["person"]: row["number"] for row in rows}


async def finish_firing(store: ModuleStore, firing: FiringRow, end: FiringEnd) -> None:
    """Write down how it ended; nothing if it has ended before."""
    await store.run(
        "firings.finish", *firing.key, end.state, end.request_id, end.gate_exit, end.why[:500], end.tell[:2000]
    )


async def note_gated(store: ModuleStore, firing: FiringRow) -> None:
    """Its condition holds: whoever carries it out does not ask again."""
    await store.run("firings.note_gated", *firing.key)


async def count_failure(store: ModuleStore, task_id: UUID) -> int:
    """How often in a row its condition could not be checked, with this time."""
    rows = await store.rows("tasks.count_failure", task_id)
    return sum(int(row["failures"]) for row in rows)


async def forget_failures(store: ModuleStore, task_id: UUID) -> None:
    """Its condition could be checked."""
    await store.run("tasks.forget_failures", task_id)


async def note_submitted(store: ModuleStore, firing: FiringRow, state: FiringState) -> None:
    """It had been carried out, although that was not written down."""
    await store.run("firings.note_submitted", *firing.key, state)


async def note_told(store: ModuleStore, firing: FiringRow, request_id: UUID | None) -> None:
    """It was told."""
    await store.run("firings.note_told", *firing.key, request_id)


async def try_later(store: ModuleStore, firing: FiringRow, wait_s: float, why: str) -> None:
    """It did not work now."""
    await store.run("firings.try_later", *firing.key, wait_s, why[:500])


async def firings_of(store: ModuleStore, task_id: UUID, limit: int) -> list[FiringRow]:
    """The firings of a task, the latest first."""
    return _firings_from(await store.rows("firings.of_task", task_id, limit))


async def last_firings(store: ModuleStore, task_ids: Iterable[UUID]) -> Mapping[UUID, FiringRow]:
    """The latest firing of each task that has any."""
    rows = await store.rows("firings.last_of_tasks", list(task_ids))
    return {one.task_id: one for one in _firings_from(rows)}


async def forget_old(store: ModuleStore) -> None:
    """Firings are kept for 90 days, and so are tasks that are over."""
    await store.run("firings.forget")
    await store.run("tasks.forget")


def _wall_columns(reader: Reader) -> tuple[object, ...]:
    return reader.system_id, reader.person, reader.conversation, reader.private


def _due_columns(due: Due | None) -> tuple[object, ...]:
    return (None, None, 0) if due is None else (due.at, due.wall, due.fold)


def _tasks_from(rows: Sequence[Mapping[str, Any]]) -> list[Task]:
    return [Task(**row) for row in rows]


def _firings_from(rows: Sequence[Mapping[str, Any]]) -> list[FiringRow]:
    return [FiringRow(**row) for row in rows]

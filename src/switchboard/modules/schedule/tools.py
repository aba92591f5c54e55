"""The tools of the module: make, list and cancel tasks. With the rights of whoever wrote the message, and no others.

The kernel calls them with the opened module. In: arguments of a model; out: what it is told, with weekday, time and
zone, so that it repeats what will happen and not what it meant. What can never be due is refused at once.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from switchboard.core.zones import find_zone
from switchboard.domain.json_values import JsonObject
from switchboard.modules.schedule import words
from switchboard.modules.schedule.ledger import (
    NewTask,
    Task,
    add_task,
    cancel_for_reader,
    count_tasks,
    find_task,
    last_firings,
    tasks_of_reader,
)
from switchboard.modules.schedule.opened import OpenSchedule
from switchboard.modules.schedule.planning import (
    Kind,
    TaskTiming,
    check_interval,
    first_due,
)
from switchboard.modules.schedule.recurrence import read_recurrence
from switchboard.modules.schedule.spoken import read_wall
from switchboard.ports.facts import Reader
from switchboard.ports.front_door import Origin, stands_in_own_words
from switchboard.ports.gates import COMMAND, Gate
from switchboard.ports.tools import PreparedCall, ToolOutcome, ToolScope

MAX_TEXT: Final = 2000
"""Characters of the text of a task."""
_LISTED: Final = 50

Text = Annotated[str, "What to say or do then, in the person's words", Meta(min_length=1, max_length=MAX_TEXT)]
Does = Annotated[Kind, "say: send the text as it is. do: carry it out with tools then"]
OnlyIf = Annotated[str, 'Only if this tool finds something then: NAME {"argument": "x"}', Meta(max_length=1000)]
Zone = Annotated[str, "IANA zone, if not the person's", Meta(max_length=64)]


class _Refusal(Exception):
    """The sentence that the model is told."""


async def schedule_at(  # noqa: PLR0913 - one parameter per argument of the tool
    schedule: OpenSchedule,
    time: Annotated[
        str, "The words for it in the message, or YYYY-MM-DD HH:MM, with a weekday they named", Meta(max_length=60)
    ],
    text: Text,
    scope: ToolScope,
    *,
    kind: Does = "say",
    zone: Zone = "",
    only_if: OnlyIf = "",
) -> ToolOutcome:
    """Remind the person, or do something, once at a time."""
    try:
        named = zone or scope.zone
        there = (await schedule.read_clock()).astimezone(find_zone(named))
        wall = read_wall(time.strip().removesuffix(f" {named}"), there)
        return await _make_task(schedule, scope, (kind, text, only_if), TaskTiming(named, wall))
    except (ValueError, _Refusal) as error:
        return ToolOutcome(f"Nothing was scheduled: {error}.", ok=False)


async def schedule_every(  # noqa: PLR0913 - one parameter per argument of the tool
    schedule: OpenSchedule,
    cron: Annotated[str, "Local times: minute hour day month weekday, such as 30 7 * * mon-fri", Meta(max_length=100)],
    text: Text,
    scope: ToolScope,
    *,
    kind: Does = "say",
    zone: Zone = "",
    only_if: OnlyIf = "",
) -> ToolOutcome:
    """Remind the person, or do something, again and again."""
    try:
        check_interval(kind, cron)
        timing = TaskTiming(zone or scope.zone, cron=read_recurrence(cron).expression)
        return await _make_task(schedule, scope, (kind, text, only_if), timing)
    except (ValueError, _Refusal) as error:
        return ToolOutcome(f"Nothing was scheduled: {error}.", ok=False)


async def prepare_task(schedule: OpenSchedule, scope: ToolScope, *, only_if: OnlyIf = "") -> PreparedCall | ToolOutcome:
    """What a person must approve before a task is made: a command as its condition, and nothing else."""
    if only_if.split(maxsplit=1)[:1] != [COMMAND]:
        return PreparedCall("idempotent", "low")
    try:
        gate = await _require_gate(schedule, scope, await _require_origin(schedule, scope), only_if.strip())
    except _Refusal as error:
        return ToolOutcome(f"Nothing was scheduled: {error}.", ok=False)
    command, fingerprint = ("", "") if gate is None else (str(gate.arguments["command"]), gate.fingerprint)
    return PreparedCall("idempotent", "high", "a command will decide when it is carried out", command, fingerprint)


async def schedule_list(schedule: OpenSchedule, scope: ToolScope) -> ToolOutcome:
    """The person's tasks with their ids, next times, and what became of the last."""
    try:
        reader = _require_reader(scope)
    except _Refusal as error:
        return ToolOutcome(f"Nothing can be listed: {error}.", ok=False)
    tasks = await tasks_of_reader(schedule.store, reader, _LISTED)
    last = await last_firings(schedule.store, [task.task_id for task in tasks])
    if not tasks:
        return ToolOutcome("There are no tasks.")
    return ToolOutcome(
        words.listed_tasks(tasks, {task.short_id: last[task.task_id] for task in tasks if task.task_id in last})
    )


async def schedule_cancel(
    schedule: OpenSchedule,
    task: Annotated[str, "Its id, as listed", Meta(min_length=4, max_length=36)],
    scope: ToolScope,
) -> ToolOutcome:
    """Cancel one of the person's tasks."""
    try:
        reader = _require_maker(scope)
        found = await _find_listed(schedule, reader, task)
        await cancel_for_reader(schedule.store, reader, found.task_id)
    except _Refusal as error:
        return ToolOutcome(f"Nothing was cancelled: {error}.", ok=False)
    return ToolOutcome(f"Cancelled: task {found.short_id}, “{words.shortened_text(found.text)}”.")


async def _make_task(
    schedule: OpenSchedule, scope: ToolScope, wanted: tuple[Kind, str, str], timing: TaskTiming
) -> ToolOutcome:
    reader = _require_maker(scope)
    kind, text = wanted[0], wanted[1].strip()
    if not text:
        raise _Refusal("the text is empty")
    if made := await find_task(schedule.store, scope.key):  # this call was made before, and its outcome was lost
        return ToolOutcome(words.made_task(made))
    due = first_due(timing, await schedule.read_clock())
    origin = await _require_origin(schedule, scope)
    gate = await _require_gate(schedule, scope, origin, wanted[2].strip())
    if gate is not None and gate.tool == COMMAND and not scope.approved:
        raise _Refusal("a command may be a condition only if an owner has approved it")
    own = stands_in_own_words(text, scope.message)
    new = NewTask(scope.key, kind, text, own, scope.tainted, origin, gate)
    async with schedule.store.transaction() as one:
        if await count_tasks(one, reader.person) >= schedule.settings.tasks_per_person:
            raise _Refusal(f"there are {schedule.settings.tasks_per_person} tasks already; cancel some first")
        made = await add_task(one, new, reader, timing, due)
    return ToolOutcome(words.made_task(made))


async def _require_origin(schedule: OpenSchedule, scope: ToolScope) -> Origin:
    """Where the task will be carried out; refused here rather than when it is due."""
    origin = await schedule.door.origin(scope)
    if origin is None:
        raise _Refusal("nothing can be sent later to where this message came from")
    if why := await schedule.door.obstacle(origin):
        raise _Refusal(f"it could not be carried out: {why}")
    return origin


async def _require_gate(schedule: OpenSchedule, scope: ToolScope, origin: Origin, only_if: str) -> Gate | None:
    """The condition; refused here rather than whenever it is due."""
    if not only_if:
        return None
    tool, _, arguments = only_if.partition(" ")
    try:
        gate = Gate(tool, msgspec.json.decode(arguments.strip() or "{}", type=JsonObject), scope.tainted)
    except (ValueError, RecursionError):
        raise _Refusal('only_if is the name of a tool and its arguments as JSON: NAME {"argument": "x"}') from None
    if why := await schedule.gates.find_flaw(origin, gate):
        raise _Refusal(f"only_if: {why}")
    return replace(gate, fingerprint=await schedule.gates.fingerprint_of(origin, gate)) if tool == COMMAND else gate


def _require_reader(scope: ToolScope) -> Reader:
    reader = scope.reader
    if reader is None or not reader.person or not reader.authentic:
        raise _Refusal("it is not certain who wrote this message")
    return reader


def _require_maker(scope: ToolScope) -> Reader:
    if scope.cause == "reminder" and not scope.own_text:
        raise _Refusal("a task whose text the person did not write makes and changes no tasks; ask the person")
    return _require_reader(scope)


async def _find_listed(schedule: OpenSchedule, reader: Reader, named: str) -> Task:
    wanted = named.strip().lower().replace("-", "")
    tasks = await tasks_of_reader(schedule.store, reader, schedule.settings.tasks_per_person)
    found = [task for task in tasks if task.task_id.hex.startswith(wanted)]
    if len(found) != 1:
        raise _Refusal(f"{named!r} is the id of {'several tasks' if found else 'no task'}; see schedule_list")
    return found[0]

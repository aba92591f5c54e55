"""The chaos run of tasks: workers die, clocks jump and time zones change while a thousand tasks are due.

    python -m tests.chaos.tasks_run [--tasks 1000] [--seconds 150] [--every 3] [--seed N]

Two workers carry out what is due; one of them is killed again and again, and once all of them. A third of the tasks
were planned by rules of their zone that are no longer true; in the middle the clock is put forward by half a minute.
The last line counts; exit code 0 only if each task was carried out once: none missed, none doubled.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.core.zones import find_zone
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.modules.schedule import ledger
from switchboard.modules.schedule.instants import wall_at
from switchboard.modules.schedule.ledger import NewTask
from switchboard.modules.schedule.manifest import MANIFEST
from switchboard.modules.schedule.opened import ACCOUNT
from switchboard.modules.schedule.planning import Due, Kind, TaskTiming
from switchboard.ports.facts import Reader
from switchboard.ports.front_door import Origin
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.tools import ToolScope
from switchboard.store.messages import inbox
from switchboard.store.modules.opening import ModuleRooms
from tests.chaos.asked import a_directory, asked_for, exit_code
from tests.chaos.turns_run import Crew
from tests.forked import end_forking
from tests.hands import settled
from tests.lab import TRUSTING, Lab, lab, submission
from tests.waiting import eventually

WORKERS: Final = 2
NODE: Final = "tests.chaos.tasks_node"
PEOPLE: Final = 20
ZONES: Final = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
JUMP_S: Final = 30.0
LIMIT_S: Final = 120.0
_SHIFT: Final = """
update switchboard_schedule.task set next_at = next_at - make_interval(secs => $1),
    next_wall = next_wall - make_interval(secs => $1), wall = wall - make_interval(secs => $1) where state = 'active'"""
_OTHER_RULES: Final = """
update switchboard_schedule.task set rules = 'of last year', next_at = next_at + interval '1 hour' where zone = $1"""


@dataclass(frozen=True, slots=True)
class TasksPlan:
    """How many tasks are due within so many seconds, and after how many of them a worker is killed."""

    tasks: int = 1000
    seconds: int = 150
    every: float = 3.0
    seed: int = 1


@dataclass(slots=True)
class TasksReport:
    """What became of the tasks. `missed`: never carried out; `doubled`: a second message or a second reply."""

    tasks: int
    states: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    doubled: int = 0
    kills: int = 0
    latest_s: int = 0

    @property
    def clean(self) -> bool:
        """Whether each was carried out once."""
        carried_out = self.states["said"] + self.states["fired"]
        return carried_out == self.tasks == sum(self.states.values()) and not (self.missed or self.doubled)


async def run(plan: TasksPlan, directory: Path) -> TasksReport:
    """The whole run in `directory`."""
    dice = random.Random(plan.seed)
    async with embedded_postgres(directory / "database") as server, lab(server.url, channels=TRUSTING) as parts:
        rooms = ModuleRooms(parts.database)
        assert await rooms.migrate([MANIFEST]) == {}
        store = rooms.stores(MANIFEST)(ACCOUNT)
        await _make_tasks(parts, store, plan, directory)
        await parts.database.run(_OTHER_RULES, ZONES[0])
        crew = Crew(server.url, "", directory, NODE)
        for _ in range(WORKERS):
            crew.hire()
        try:
            await eventually(crew.at_work, within=60)
            await _kill_workers(parts, plan, dice, crew)
        finally:
            crew.dismiss()
        return await _judge_run(parts, plan, crew.kills)


async def _make_tasks(parts: Lab, store: ModuleStore, plan: TasksPlan, directory: Path) -> None:
    """Tasks of several people and zones, half of them with a turn, due at even distances from now on."""
    runtime = Runtime(Settings(data_dir=directory / "data"), parts.database, parts.notifier, parts.rule_book, TRUSTING)
    door = WorkerFrontDoor(runtime)
    origins = [await _origin_of(parts, door, f"s{number}") for number in range(PEOPLE)]
    now = (await ledger.look_around(store)).now
    async with store.transaction() as one:
        for number in range(plan.tasks):
            origin, zone = origins[number % PEOPLE], ZONES[number % len(ZONES)]
            kind: Kind = "do" if number % 2 else "say"
            new = NewTask(UUID(int=number + 1), kind, text_of(number), own=False, tainted=False, origin=origin)
            at = now + timedelta(seconds=5 + (plan.seconds + JUMP_S) * number / plan.tasks)
            wall = _wall_in(zone, at)
            reader = Reader(origin.system_id, origin.conversation, origin.sender, private=True)
            await ledger.add_task(one, new, reader, TaskTiming(zone, wall), Due(at, wall))


async def _kill_workers(parts: Lab, plan: TasksPlan, dice: random.Random, crew: Crew) -> None:
    begun = time.monotonic()
    next_kill, middle, ends = begun + plan.every, begun + plan.seconds / 2, begun + plan.seconds + LIMIT_S
    while time.monotonic() < ends and not await _is_over(parts):
        if time.monotonic() >= middle:
            middle = ends
            await parts.database.run(_SHIFT, JUMP_S)
            for victim in list(crew.alive):  # all of them: a restart
                crew.kill(victim)
                crew.hire()
        if time.monotonic() >= next_kill and await crew.at_work():
            next_kill = time.monotonic() + plan.every
            crew.kill(dice.choice(crew.alive))
            crew.hire()
        await asyncio.sleep(0.2)


async def _is_over(parts: Lab) -> bool:
    left = "select (select count(*) from switchboard_schedule.task where state = 'active') + "
    left += "(select count(*) from switchboard_schedule.firing where state in ('due', 'gated'))"
    return await parts.count(left) == 0 and await settled(parts)


async def _judge_run(parts: Lab, plan: TasksPlan, kills: int) -> TasksReport:
    report = TasksReport(plan.tasks, kills=kills)
    rows = await parts.database.rows("select state, late_s from switchboard_schedule.firing")
    report.states = Counter(str(row["state"]) for row in rows)
    report.latest_s = max((row["late_s"] for row in rows), default=0)
    replies = Counter(str(row["text"]) for row in await parts.database.rows("select text from outbox"))
    report.missed = sum(not replies[text_of(number)] for number in range(plan.tasks))
    report.doubled = sum(max(0, replies[text_of(number)] - 1) for number in range(plan.tasks))
    report.doubled += max(0, await parts.count("select count(*) from message_inbox") - PEOPLE - plan.tasks)
    return report


def text_of(number: int) -> str:
    """What the task says or does; no two have the same."""
    return f"water tomato {number}"


def _wall_in(zone: str, at: datetime) -> datetime:
    return wall_at(at, find_zone(zone))


async def _origin_of(parts: Lab, door: WorkerFrontDoor, sender: str) -> Origin:
    accepted = await parts.accept.accept(submission("remind me", channel="api", sender=sender))
    stored = await inbox.get_message(parts.database, accepted.request_id)
    assert stored is not None
    nothing = frozenset[str]()
    turn = accepted.request_id
    scope = ToolScope(
        Path("/nowhere"), nothing, nothing, turn, turn, conversation=f"System1/echo {stored.conversation}"
    )
    origin = await door.origin(scope)
    assert origin is not None
    return origin


def main() -> int:
    """As the command line says."""
    plan = asked_for(TasksPlan, __doc__)
    directory = a_directory()
    try:
        report = asyncio.run(run(plan, directory))
    finally:
        end_forking()
    print(msgspec.json.encode(report).decode())
    return exit_code(directory, well=report.clean)


if __name__ == "__main__":
    sys.exit(main())

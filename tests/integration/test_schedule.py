"""Tasks in their ledger: what users of other gateways suffer from, each as a test.

Consumed without a trace, fired twice after a restart, silent failure, money while idle, success reported while nothing
can fire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from switchboard.domain.envelope import Passage
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.modules.schedule import due, ledger
from switchboard.modules.schedule.ledger import FiringRow, Task
from switchboard.modules.schedule.manifest import MANIFEST
from switchboard.modules.schedule.opened import OpenSchedule
from switchboard.modules.schedule.settings import TaskLimits
from switchboard.ports.facts import Reader
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.people import PersonalScope
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.personal import ModulePersonal
from switchboard.store.modules.stores import open_stores
from tests.doors import Fault, Killed, RememberingDoor

ANN = Reader(SystemId("butler"), Conversation("telegram:home:ann"), "telegram/home/ann", private=True)
BOB = Reader(SystemId("butler"), Conversation("telegram:home:bob"), "telegram/home/bob", private=True)
IN_GROUP = Reader(SystemId("butler"), Conversation("telegram:home:club"), "telegram/home/ann")
WATER = "water the tomatoes"


class House:
    """The module, its door and its database."""

    def __init__(self, database: Database, store: ModuleStore, door: RememberingDoor) -> None:
        self.database = database
        self.store = store
        self.door = door
        self.schedule = self.opened()

    def opened(self, **settings: int) -> OpenSchedule:
        """As a worker opens it that has just started."""
        return OpenSchedule(self.store, self.door, TaskLimits(**settings))

    async def call(self, name: str, who: Reader | ToolScope | None = ANN, **given: str) -> ToolOutcome:
        """Call a tool as the kernel does, for a reader or in a turn."""
        tool = next(one for one in MANIFEST.tools if one.spec.name == name)
        return await tool.run(self.schedule, given, who if isinstance(who, ToolScope) else a_scope(who))

    async def make(self, text: str = WATER, reader: Reader = ANN, kind: str = "say", **given: str) -> Task:
        """A task of a person, due tomorrow or as `given`."""
        before = {one.task_id for one in await self.tasks()}
        name = "schedule_every" if "cron" in given else "schedule_at"
        when = given or {"time": f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d %H:%M}"}
        outcome = await self.call(name, reader, text=text, kind=kind, **when)
        assert outcome.ok, outcome.text
        return next(one for one in await self.tasks() if one.task_id not in before)

    async def tasks(self) -> list[Task]:
        return await ledger.page_of_tasks(self.store, before=None, system_id=None, state=None, limit=500)

    async def firings(self) -> list[FiringRow]:
        return [one for task in await self.tasks() for one in await ledger.firings_of(self.store, task.task_id, 50)]

    async def states(self) -> list[str]:
        return sorted(one.state for one in await self.firings())

    async def let_pass(self, seconds: float = 90_000) -> None:
        """As if so much time had passed: whatever is kept was so much earlier."""
        await self.database.run(
            "update switchboard_schedule.task set next_at = next_at - make_interval(secs => $1), "
            "next_wall = next_wall - make_interval(secs => $1), wall = wall - make_interval(secs => $1)",
            float(seconds),
        )
        await self.database.run(
            "update switchboard_schedule.firing set next_try = next_try - make_interval(secs => $1), "
            "ended_at = ended_at - make_interval(secs => $1)",
            float(seconds),
        )

    async def carry_out(self, schedule: OpenSchedule | None = None) -> None:
        """One run of the chore."""
        chore = next(one for one in (schedule or self.schedule).chores if one.name == "due")
        await chore.run(self.store)


class WatchedStore:
    """A store that remembers which queries it was asked for."""

    def __init__(self, store: ModuleStore) -> None:
        self._store = store
        self.used: list[str] = []

    async def rows(self, name: str, *args: object) -> Sequence[Mapping[str, Any]]:
        self.used.append(name)
        return await self._store.rows(name, *args)

    async def run(self, name: str, *args: object) -> int:
        self.used.append(name)
        return await self._store.run(name, *args)

    def transaction(self) -> AbstractAsyncContextManager[ModuleStore]:
        self.used.append("a transaction")
        return self._store.transaction()


class _EarlierStore(WatchedStore):
    """It looked before everything was due, and takes it after; whoever takes it for ever is stopped."""

    async def rows(self, name: str, *args: object) -> Sequence[Mapping[str, Any]]:
        found = await super().rows(name, *args)
        if name != "tasks.look":
            return found
        return [{**row, "now": row["now"] - timedelta(days=1), "due": True, "open": True} for row in found]

    def transaction(self) -> AbstractAsyncContextManager[ModuleStore]:
        assert self.used.count("a transaction") < 5
        return super().transaction()


def a_scope(reader: Reader | None = ANN, **more: Any) -> ToolScope:
    scope = ToolScope(Path("/nowhere"), frozenset(), frozenset(), uuid4(), uuid4(), reader=reader, zone="UTC")
    return replace(scope, **more)


@pytest.fixture
async def house(database: Database) -> House:
    assert await migrate_modules(database, [MANIFEST]) == {}
    stores = await open_stores(database, MANIFEST)
    return House(database, stores(""), RememberingDoor())


async def test_a_reminder_is_said_once_and_stays_in_the_ledger(house: House) -> None:
    task = await house.make()
    await house.carry_out()
    assert house.door.texts == []
    await house.let_pass(86_400)
    for _ in range(3):
        await house.carry_out()
    [firing] = house.door.submitted.values()
    assert (firing.text, firing.say, firing.task_id) == (WATER, True, str(task.task_id))
    [row] = await house.firings()
    assert (row.state, row.late_s < 60, row.request_id is not None) == ("said", True, True)
    assert [one.state for one in await house.tasks()] == ["done"]


FAULTS: Sequence[Fault] = ("killed before", "killed after")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["say", "do"])
async def test_whoever_is_killed_fires_once_all_the_same(house: House, fault: Fault, kind: str) -> None:
    await house.make(kind=kind)
    await house.let_pass(86_400)
    house.door.faults = [fault]
    with pytest.raises(Killed):
        await house.carry_out()
    assert await house.states() == ["due"]
    for _ in range(3):
        await house.carry_out(house.opened())
    assert (house.door.texts, await house.states()) == ([WATER], ["said" if kind == "say" else "fired"])


async def test_what_a_kill_left_lying_is_not_said_again(house: House) -> None:
    await house.make(kind="do")
    await house.let_pass(86_400)
    house.door.faults = ["killed after"]
    with pytest.raises(Killed):
        await house.carry_out()
    await house.database.run("update switchboard_schedule.firing set due = due - interval '5 seconds'")
    key, firing = house.door.submitted.popitem()
    due = firing.due - timedelta(seconds=5)
    moved = replace(firing, due=due)
    house.door.submitted[moved.key] = moved
    assert moved.key != key
    await house.database.run("update switchboard_schedule.task set cron = '* * * * *', wall = null")
    for _ in range(2):  # an interval of a minute: half of it is over
        await house.database.run("update switchboard_schedule.firing set next_try = now()")
        await house.carry_out()
    assert len(house.door.submitted) == 1


async def test_workers_side_by_side_fire_once(house: House) -> None:
    for number in range(30):
        await house.make(f"{WATER} {number}", replace(ANN, person=f"telegram/home/{number}"))
    await house.let_pass(86_400)
    workers = [house.opened() for _ in range(3)]
    await asyncio.gather(*(house.carry_out(one) for one in workers))
    await house.carry_out()
    assert sorted(house.door.texts) == sorted(f"{WATER} {number}" for number in range(30))
    assert await house.states() == ["said"] * 30


async def test_what_is_due_in_the_moment_of_looking_is_taken_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due, "_BATCH", 2)
    for text in ("one", "two", "three"):
        await house.make(text)
    await house.let_pass(86_400)
    chore, store = due.DueTasks(house.door, TaskLimits(), house.schedule.gates), _EarlierStore(house.store)
    await chore.carry_out(store)
    await chore.carry_out(store)
    assert sorted(house.door.texts) == ["one", "three", "two"]


async def test_what_recurs_fires_once_after_days_and_goes_on(house: House) -> None:
    task = await house.make(cron="0 * * * *")
    await house.let_pass(50 * 3600)
    await house.carry_out()
    await house.carry_out()
    [row] = await house.firings()
    assert 49 <= row.passed <= 50
    [after] = await house.tasks()
    assert after.next_at is not None
    assert timedelta() < after.next_at - datetime.now(UTC) <= timedelta(hours=1)
    assert (after.state, after.revision) == ("active", task.revision)


async def test_what_is_late_is_said_to_be(house: House) -> None:
    await house.make()
    await house.let_pass(86_400 + 7200)
    await house.carry_out()
    [text] = house.door.texts
    assert text.startswith(f"{WATER}\n\n(This was due on ")
    assert "It is late" in text


async def test_what_is_missed_is_told_once(house: House) -> None:
    await house.make(kind="do")
    await house.let_pass(86_400 + 7200)
    house.door.faults = ["killed after"]
    with pytest.raises(Killed):
        await house.carry_out()
    for _ in range(3):
        await house.carry_out(house.opened())
    [firing] = house.door.submitted.values()
    assert firing.say
    assert firing.text.startswith(f"Missed: “{WATER}”. It was due on ")
    [row] = await house.firings()
    assert (row.state, row.told_at is not None, row.late_s > 3600) == ("missed", True, True)


async def test_a_task_that_cannot_be_carried_out_is_paused_and_told_once(house: House) -> None:
    await house.make(cron="0 9 * * *")
    await house.let_pass(86_400)
    house.door.closed = "the butler is switched off"
    for _ in range(2):
        await house.carry_out()
    [task] = await house.tasks()
    assert (task.state, task.why, house.door.texts) == ("paused", "the butler is switched off", [])
    house.door.closed = ""
    for _ in range(2):
        await house.let_pass(3601)
        await house.carry_out()
    [text] = house.door.texts
    assert text.startswith(f"Paused: “{WATER}”")
    assert text.endswith("could not be carried out: the butler is switched off")
    assert "paused: the butler is switched off" in (await house.call("schedule_list")).text


async def test_a_door_that_is_shut_for_a_while_delays_only(house: House) -> None:
    await house.make()
    await house.let_pass(86_400)
    house.door.faults = ["unavailable"] * 3
    await house.carry_out()
    [row] = await house.firings()
    assert (row.state, row.tries, row.why) == ("due", 1, "the database cannot be reached")
    for _ in range(3):
        await house.let_pass(60)
        await house.carry_out()
    assert (house.door.texts, await house.states()) == ([WATER], ["said"])


async def test_what_waits_to_be_said_for_the_last_time_can_be_cancelled(house: House) -> None:
    tasks = [await house.make(text) for text in ("one", "two", "three")]
    await house.let_pass(86_400)
    house.door.faults = ["unavailable"] * 3
    await house.carry_out()
    assert await house.states() == ["due"] * 3
    listed = (await house.call("schedule_list")).text.splitlines()
    assert sorted(line[:8] for line in listed) == sorted(one.short_id for one in tasks)
    assert all(": due now; last " in line for line in listed)
    assert (await house.call("schedule_cancel", task=tasks[0].short_id)).ok
    assert await ledger.cancel_task(house.store, tasks[1].task_id, "cancelled by an operator")
    await house.let_pass(60)
    await house.carry_out()
    assert house.door.texts == ["three"]
    assert await house.states() == ["said", "skipped", "skipped"]
    assert not await ledger.cancel_task(house.store, tasks[2].task_id, "too late")


async def test_what_the_door_refuses_is_told(house: House) -> None:
    await house.make()
    await house.let_pass(86_400)
    house.door.faults = ["refused"]
    await house.carry_out()
    await house.carry_out()
    assert await house.states() == ["failed"]
    assert [text.rpartition(": ")[2] for text in house.door.texts] == ["no message may have this text"]


async def test_a_broken_row_stops_no_other(house: House) -> None:
    for number in range(3):
        await house.make(f"{WATER} {number}")
    broken = "update switchboard_schedule.task set {} where text = '{} {}'"
    for number, what in enumerate(("zone = 'Europe/Atlantis'", "origin = '{}'")):
        await house.database.run(broken.format(what, WATER, number))
    await house.let_pass(86_400)
    await house.carry_out(house.opened())
    await house.carry_out()
    assert house.door.texts == [f"{WATER} 2"]
    assert {one.text: one.state for one in await house.tasks()} == {
        f"{WATER} 0": "paused",
        f"{WATER} 1": "done",
        f"{WATER} 2": "done",
    }
    assert await house.states() == ["failed", "said"]


async def test_an_idle_second_is_one_query_and_no_call(house: House) -> None:
    await house.make()
    await house.carry_out()
    watched = WatchedStore(house.store)
    await house.schedule.chores[0].run(watched)
    assert (watched.used, house.door.texts) == (["tasks.look"], [])


async def test_ten_a_minute_are_made_up_for_and_nobody_waits_for_another(house: House) -> None:
    for number in range(12):
        await house.make(f"{WATER} {number}")
    await house.make("call mum", BOB)
    await house.let_pass(86_400 + 7200)
    await house.carry_out()
    await house.carry_out()
    assert len(house.door.texts) == 11
    assert any(text.startswith("call mum") for text in house.door.texts)
    await house.let_pass(61)
    await house.carry_out()
    assert len(house.door.texts) == 13


async def test_all_at_once_if_catching_up_has_no_limit(house: House) -> None:
    for number in range(15):
        await house.make(f"{WATER} {number}")
    await house.let_pass(86_400 + 7200)
    await house.carry_out(house.opened(catch_up=0))
    assert len(house.door.texts) == 15


async def test_a_clock_that_is_set_back_fires_nothing_again(house: House) -> None:
    await house.make(cron="0 9 * * *")
    await house.let_pass(86_400)
    await house.carry_out()
    # As if the clock went back by a day after that: the task is due again at the same instants.
    await house.database.run(
        "update switchboard_schedule.task t set next_at = f.due, next_wall = f.wall "
        "from switchboard_schedule.firing f where f.task_id = t.task_id"
    )
    await house.carry_out()
    assert (len(house.door.submitted), len(await house.firings())) == (1, 1)


async def test_wall_times_stay_when_the_rules_of_a_zone_change(house: House) -> None:
    task = await house.make(time="2027-07-01 09:00", zone="Europe/Berlin")
    await house.database.run(
        "update switchboard_schedule.task set rules = 'of another year', next_at = next_at + interval '1 hour'"
    )
    await house.carry_out(house.opened())
    [after] = await house.tasks()
    assert (after.next_at, after.next_wall, after.rules) == (task.next_at, task.next_wall, task.rules)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"time": "2020-01-01 09:00"}, "has passed"),
        ({"time": "0001-01-01 00:00", "zone": "Asia/Tokyo"}, "has passed"),
        ({"time": "9999-12-31 23:59", "zone": "America/New_York"}, "more than five years ahead"),
        ({"time": "2027-02-30 09:00"}, "does not exist"),
        ({"time": "friday 2027-12-24 18:30", "zone": "Mars/Olympus"}, "there is no time zone"),
        ({"time": "monday 2027-12-24 18:30"}, "is a Friday, not a monday"),
        ({"cron": "0 0 30 2 *"}, "can never be due"),
        ({"cron": "* * * * *"}, "every 1 minutes"),
    ],
)
async def test_what_can_never_fire_is_refused_at_once(house: House, given: dict[str, str], why: str) -> None:
    outcome = await house.call("schedule_every" if "cron" in given else "schedule_at", ANN, text=WATER, **given)
    assert not outcome.ok
    assert why in outcome.text
    assert await house.tasks() == []


async def test_success_is_not_reported_where_nothing_can_fire(house: House) -> None:
    given = {"time": "2027-12-24 18:30", "text": WATER}
    house.door.closed = "the butler is switched off"
    assert (await house.call("schedule_at", ANN, **given)).text.endswith("carried out: the butler is switched off.")
    house.door.closed, house.door.reachable = "", None
    assert "nothing can be sent later" in (await house.call("schedule_at", ANN, **given)).text
    for reader in (None, replace(ANN, person=""), replace(ANN, authentic=False)):
        assert "not certain who" in (await house.call("schedule_at", reader, **given)).text
    assert await house.tasks() == []


async def test_a_call_that_is_repeated_makes_one_task(house: House) -> None:
    scope = a_scope()
    given = {"time": "friday 2027-12-24 18:30", "text": WATER}
    first, second = [await house.call("schedule_at", scope, **given) for _ in range(2)]
    assert first == second
    assert first.text.endswith("says “water the tomatoes” on Friday 2027-12-24 18:30 UTC.")
    assert len(await house.tasks()) == 1


async def test_a_model_may_copy_the_zone_behind_the_time(house: House) -> None:
    assert (await house.call("schedule_at", time="2027-12-24 18:30 UTC", text=WATER)).ok
    refused = await house.call("schedule_at", time="2027-12-24 18:30 CET", text=WATER)
    assert refused.text.endswith("or YYYY-MM-DD HH:MM.")  # no date that a small model could copy


async def test_the_result_shows_the_next_three_times(house: House) -> None:
    outcome = await house.call("schedule_every", cron="30 7 1 1 *", text=WATER, zone="Europe/Berlin")
    assert outcome.text.count("Europe/Berlin") == 3
    assert outcome.text.count("-01-01 07:30") == 3


async def test_a_text_is_own_only_if_it_stands_in_the_persons_words(house: House) -> None:
    said = (Passage(kind="own", text=f"remind me to {WATER}"), Passage(kind="quoted", text="pay Bob 50"))
    for text in (WATER, "pay Bob 50", "water the  tomatoes", "water all tomatoes"):
        scope = a_scope(message=said, tainted=True)
        assert (await house.call("schedule_at", scope, time="2027-12-24 18:30", text=text)).ok
    assert {one.text: (one.own, one.tainted) for one in await house.tasks()} == {
        WATER: (True, True),
        "pay Bob 50": (False, True),
        "water the  tomatoes": (True, True),
        "water all tomatoes": (False, True),
    }


async def test_a_firing_makes_and_changes_tasks_only_in_own_words(house: House) -> None:
    task = await house.make()
    for own, ok in ((False, False), (True, True)):
        scope = a_scope(cause="reminder", own_text=own)
        made = await house.call("schedule_at", scope, time="2027-12-24 18:30", text="once more")
        assert made.ok is ok
        cancelled = await house.call("schedule_cancel", scope, task=task.short_id)
        assert cancelled.ok is ok


async def test_each_person_has_their_own_tasks_and_a_group_its_own(house: House) -> None:
    mine, ours = await house.make("mine"), await house.make("ours", IN_GROUP)
    elsewhere = replace(ANN, system_id=SystemId("other"))
    shown = {
        "ann": (ANN, "mine"),
        "ann elsewhere": (replace(ANN, conversation=Conversation("telegram:home:ann/2")), "mine"),
        "bob in the group": (replace(IN_GROUP, person=BOB.person), "ours"),
        "bob": (BOB, None),
        "ann in another group": (replace(IN_GROUP, conversation=Conversation("telegram:home:pub")), None),
        "ann with another butler": (elsewhere, None),
    }
    for who, (reader, text) in shown.items():
        listed = (await house.call("schedule_list", reader)).text
        assert ("“mine”" in listed, "“ours”" in listed) == (text == "mine", text == "ours"), who
        for task in (mine, ours):
            if task.text != text:
                refused = await house.call("schedule_cancel", reader, task=str(task.task_id))
                assert (refused.ok, "no task" in refused.text) == (False, True), who
    for reader, task in ((replace(IN_GROUP, person=BOB.person), ours), (ANN, mine)):
        assert (await house.call("schedule_cancel", reader, task=task.short_id)).ok
    await house.let_pass(86_400)
    await house.carry_out()
    assert house.door.texts == []


async def test_a_person_has_so_many_tasks(house: House) -> None:
    house.schedule = house.opened(tasks_per_person=2)
    await house.make()
    await house.make("wash the car")
    assert "2 tasks already" in (await house.call("schedule_at", text="feed the cat", time="2027-12-24 18:30")).text
    await house.make(reader=BOB)


async def test_a_person_has_so_many_tasks_also_at_once(house: House) -> None:
    await house.make()
    house.schedule = house.opened(tasks_per_person=3)
    given = {"time": "2027-12-24 18:30"}
    made = await asyncio.gather(*(house.call("schedule_at", ANN, text=f"water {n}", **given) for n in range(6)))
    assert (sum(one.ok for one in made), len(await house.tasks())) == (2, 3)


async def test_the_ledger_is_kept_for_90_days(house: House) -> None:
    await house.make()
    await house.let_pass(86_400)
    await house.carry_out()
    forget = next(one for one in house.schedule.chores if one.name == "forget")
    for days, left in ((89, 1), (2, 0)):
        await house.let_pass(days * 86_400)
        await house.database.run(
            "update switchboard_schedule.task set changed_at = changed_at - make_interval(days => $1)", days
        )
        await forget.run(house.store)
        assert (len(await house.tasks()), len(await house.firings())) == (left, left)


def test_the_tools_are_small() -> None:
    size = sum(len(str(dict(one.spec.parameters))) + len(one.spec.description) for one in MANIFEST.tools)
    assert size <= 2000
    assert all(one.core for one in MANIFEST.tools)


async def test_the_tasks_of_a_person_are_exported_and_erased(house: House) -> None:
    await house.make()
    await house.make("wash the car", BOB)
    await house.let_pass()
    await house.carry_out()
    assert MANIFEST.personal is not None
    keeper = ModulePersonal(house.database, MANIFEST, MANIFEST.personal)
    scope = PersonalScope("ann", (), (ANN.person, IN_GROUP.person))
    assert [one["text"] async for one in keeper.export(scope)] == [WATER]
    assert (await keeper.count(scope), await keeper.erase(scope), await keeper.erase(scope)) == (1, 1, 0)
    assert {one.text for one in await house.tasks()} == {"wash the car"}
    assert await house.database.value("select count(*) from switchboard_schedule.firing") == 1

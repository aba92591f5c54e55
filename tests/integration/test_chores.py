"""Chores of modules: each by one worker at a time, none forgotten, and none that harms another."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from switchboard.app.ops.modules import check_overdue
from switchboard.app.settings import Settings
from switchboard.domain.json_values import JsonObject
from switchboard.modules.kernel.chores import ChoreRunner, OpenChore
from switchboard.ports.chores import ChoreKey
from switchboard.ports.module import Chore, ModuleManifest
from switchboard.ports.module_store import ModuleStore, TakenOver
from switchboard.store.checks.modules import check_cages, check_chores
from switchboard.store.database import Database
from switchboard.store.modules.chores import ChoreTable, failed_chores, overdue_chores
from switchboard.store.modules.opening import ModuleRooms
from tests.chore_node import TALLY
from tests.forked import ForkedCommand
from tests.modules import a_module
from tests.waiting import SOON, eventually

Run = Callable[[ModuleStore], Awaitable[None]]
STATE = "select name, failures, owner is not null as owned from chore order by name"
OFTEN = 0.01


@pytest.fixture
async def rooms(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleRooms:
    """Of a module that counts."""
    monkeypatch.syspath_prepend(tmp_path)
    made = ModuleRooms(database)
    assert await made.migrate([a_module(tmp_path, "tally", TALLY)]) == {}
    return made


def chores_of(rooms: ModuleRooms, place: Path, every: float, **runs: Run) -> list[OpenChore]:
    stores = rooms.stores(a_module(place, "tally", TALLY))
    return [OpenChore("tally", Chore(name, every, run), stores) for name, run in runs.items()]


@asynccontextmanager
async def running(runner: ChoreRunner) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(runner.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def wait_for_failures(database: Database, number: int) -> None:
    async def are_there() -> bool:
        return len(await failed_chores(database)) == number

    await eventually(are_there)


async def test_a_chore_that_goes_wrong_harms_no_other(database: Database, rooms: ModuleRooms, tmp_path: Path) -> None:
    async def fail(_: ModuleStore) -> None:
        raise ValueError("no such\0calendar")

    async def leave(_: ModuleStore) -> None:
        sys.exit(3)

    async def hang(_: ModuleStore) -> None:
        await asyncio.Event().wait()

    async def cancel(_: ModuleStore) -> None:
        raise asyncio.CancelledError

    async def tally(store: ModuleStore) -> None:
        await store.run("tally.add", "", "", 1)

    found = chores_of(rooms, tmp_path, OFTEN, fail=fail, leave=leave, hang=hang, cancel=cancel, tally=tally)
    async with running(ChoreRunner(ChoreTable(database, "here"), lambda: found, limit_s=0.2)):
        await wait_for_failures(database, 4)

        async def goes_on() -> bool:
            return bool(await database.value("select count(*) > 20 from switchboard_tally.tally"))

        await eventually(goes_on)
    errors = {one.name: one.error for one in await failed_chores(database)}
    assert errors.pop("fail").startswith("ValueError: no such")
    assert "end the process" in errors.pop("leave")
    assert errors == {"hang": "it took longer than 0 s", "cancel": "it cancelled itself"}
    shown = await check_chores(database)
    assert len(shown) == 4
    assert "tally hang failed at" in next(one.detail for one in shown if "hang" in one.detail)
    assert await check_cages(database, [a_module(tmp_path, "tally", TALLY)]) == []


async def test_a_failure_is_tried_again_later_and_later(database: Database) -> None:
    book, key = ChoreTable(database, "here"), ChoreKey("tally", "", "sync")
    await book.plan(key, 300)
    for minutes in (1, 2, 4, 8, 16, 32, 60, 60, 0, 1):
        (lease,) = (await book.take([key], 4)).leases
        await book.finish(lease, "it is down" if minutes else None)
        waits = await database.value("select extract(epoch from next_at - last_at)::float8 from chore")
        usual = minutes * 60 or 300
        assert 0.8 * usual <= waits <= 1.2 * usual + 1
        assert (await book.take([key], 4)).leases == []
        # However much has been missed, one run makes up for it.
        await database.run("update chore set next_at = next_at - interval '1 week'")


async def test_what_nobody_does_is_overdue(database: Database) -> None:
    book = ChoreTable(database, "here")
    keys = [ChoreKey("tally", account, "sync") for account in ("ann", "bob", "eve")]
    for key in keys:
        await book.plan(key, 300)
    (lease,) = (await book.take(keys[:1], 1)).leases
    await book.finish(lease, None)
    assert await overdue_chores(database) == []
    (held,) = (await book.take(keys[2:], 1)).leases
    earlier = "update chore set next_at = next_at - interval '{0}', last_at = last_at - interval '{0}'"
    await database.run(earlier.format("16 minutes"))
    assert [(one.account, one.at is None) for one in await overdue_chores(database)] == [("ann", False), ("bob", True)]
    await book.release(held)
    assert [one.account for one in await overdue_chores(database)] == ["ann", "bob", "eve"]
    tables: dict[str, JsonObject] = {"tally": {"accounts": {"ann": {}}}}
    shown = await check_overdue(
        database, Settings(modules=tables), {"tally": ModuleManifest("tally", (), "nowhere:open")}
    )
    assert [one.detail.partition(" since")[0] for one in shown] == ["sync of ann was not done"], "bob was removed"


async def test_what_is_taken_is_nobody_elses_until_its_lease_ends(database: Database) -> None:
    here, there, key = ChoreTable(database, "here"), ChoreTable(database, "there"), ChoreKey("tally", "ann", "sync")
    await here.plan(key, 300)
    assert (await here.take([ChoreKey("tally", "bob", "sync")], 4)).leases == []
    (lease,) = (await here.take([key], 4)).leases
    again = await there.take([key], 4)
    assert again.leases == []
    assert 0 < again.wait_s <= 30
    await database.run("update chore set lease_until = clock_timestamp()")
    assert await here.renew(lease)  # nobody was faster
    assert (await there.take([key], 4)).leases == []
    await database.run("update chore set lease_until = clock_timestamp()")
    (other,) = (await there.take([key], 4)).leases
    assert not await here.renew(lease)
    await here.finish(lease, None)
    assert await there.renew(other)
    assert [one.error for one in await failed_chores(database)] == ["the worker here has died or was stopped"]


async def test_a_store_of_a_chore_ends_with_its_lease(database: Database, rooms: ModuleRooms, tmp_path: Path) -> None:
    book, key = ChoreTable(database, "here"), ChoreKey("tally", "", "sync")
    stores = rooms.stores(a_module(tmp_path, "tally", TALLY))
    await book.plan(key, 300)
    (lease,) = (await book.take([key], 4)).leases
    store = stores.for_chore(lease)
    async with store.transaction() as own:
        await own.run("tally.add", "", "", 1)
        await database.run("update chore set lease_until = clock_timestamp()")
        assert (await book.take([key], 4)).leases == []  # not in the middle of it
        assert await book.renew(lease)
    await book.release(lease)
    with pytest.raises(TakenOver):
        await store.run("tally.add", "", "", 2)
    assert await database.value("select sum(n) from switchboard_tally.tally") == 1


async def test_four_run_at_once_and_are_given_back_by_who_leaves(
    database: Database, rooms: ModuleRooms, tmp_path: Path
) -> None:
    begun = 0

    async def hang(_: ModuleStore) -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    found = chores_of(rooms, tmp_path, 300, **{f"hang{n}": hang for n in range(6)})
    runner = ChoreRunner(ChoreTable(database, "here"), lambda: found)

    async def are_owned(number: int) -> bool:
        return [row["owned"] for row in await database.rows(STATE)].count(True) == number

    async with running(runner):
        await eventually(lambda: are_owned(4))
        owned = {row["name"] for row in await database.rows(STATE) if row["owned"]}
        found.remove(
            next(one for one in found if one.key.name in owned)
        )  # its module is closed: another takes its place
        runner.look_now()

        async def are_five() -> bool:
            return begun == 5

        await eventually(are_five)
        assert await are_owned(4)
    assert await are_owned(0)
    taken = await ChoreTable(database, "there").take([one.key for one in found], 9)
    assert len(taken.leases) == 5


class Node:
    """A process that does the chore."""

    def __init__(self, url: str, place: Path, label: str) -> None:
        command = ["switchboard", "-m", "tests.chore_node", url, str(place), label]
        self.label = label
        self.process = ForkedCommand(command, env=dict(os.environ), stdout=subprocess.DEVNULL)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


async def test_no_chore_is_done_twice_at_once_whoever_dies_or_stops(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    nodes = {label: Node(database_url, tmp_path, label) for label in ("a", "b")}
    try:
        await eventually(lambda: database.value("select count(*) = 1 from chore"))
        for number, how in enumerate([signal.SIGSTOP, signal.SIGKILL] * 3):
            victim = nodes[await _busy_label(database)]
            victim.process.send_signal(how)
            await _wait_for_others(database, victim.label)
            if how is signal.SIGSTOP:
                victim.process.send_signal(signal.SIGCONT)
            else:
                victim.end()
                nodes[victim.label] = Node(database_url, tmp_path, victim.label)
            assert number < 6
    finally:
        for node in nodes.values():
            node.end()
    rows = [*await database.rows("select run, n from switchboard_tally.tally order by id")]
    begun = [row["run"] for row in rows if row["n"] == 0]
    assert len({*begun}) == len(begun)
    for one, following in pairwise(rows):
        assert following["n"] == 0 or (following["run"], following["n"]) == (one["run"], one["n"] + 1)


async def _busy_label(database: Database) -> str:
    """Which process does the chore now."""

    async def is_busy() -> str:
        return str(await database.value("select owner from chore where owner is not null") or "")

    await eventually(is_busy)
    return await is_busy() or await _busy_label(database)


async def _wait_for_others(database: Database, label: str) -> None:
    """Until the other process has written something that comes after all that is there."""
    last = await database.value("select coalesce(max(id), 0) from switchboard_tally.tally")
    newer = "select count(*) > 0 from switchboard_tally.tally where id > $1 and label <> $2"

    async def have_written() -> bool:
        # A machine that stands still ends transactions, too, and what has failed would wait for a minute.
        await database.run("update chore set next_at = clock_timestamp() where failures > 0 and owner is null")
        return bool(await database.value(newer, last, label))

    await eventually(have_written, within=2 * SOON)

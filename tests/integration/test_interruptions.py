"""What a database administrator may do at any moment: cancel statements, cut connections. Everything goes on."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from switchboard.domain.errors import Unavailable
from switchboard.lanes.background import keep_at
from switchboard.store.database import Database
from tests.waiting import SOON, eventually

_SLEEPS = "from pg_stat_activity where datname = current_database() and query like 'select pg_sleep%'"


@pytest.mark.parametrize("way", ["pg_cancel_backend", "pg_terminate_backend"])
async def test_a_statement_that_is_broken_off_is_an_outage_and_no_defect(database_url: str, way: str) -> None:
    database = await Database.connect(database_url)
    try:
        sleeping = asyncio.create_task(database.run("select pg_sleep(60)"))
        await eventually(lambda: database.value(f"select bool_or({way}(pid)) {_SLEEPS} and state = 'active'"))
        with pytest.raises(Unavailable):
            await sleeping
        await database.ping()
    finally:
        await database.close()


async def test_a_deadlock_is_an_outage_for_the_one_who_is_broken_off(database_url: str) -> None:
    database = await Database.connect(database_url)
    both = asyncio.Barrier(2)

    async def lock(first: int, second: int) -> None:
        async with database.connection() as connection, connection.transaction():
            await connection.execute("select pg_advisory_xact_lock($1)", first)
            await both.wait()
            await connection.execute("select pg_advisory_xact_lock($1)", second)

    try:
        ended = await asyncio.gather(lock(1, 2), lock(2, 1), return_exceptions=True)
        assert sorted(type(one).__name__ for one in ended) == ["NoneType", "Unavailable"]
    finally:
        await database.close()


async def test_background_work_that_fails_starts_again_and_says_so() -> None:
    ran: list[int] = []
    again = asyncio.Event()

    async def work() -> None:
        ran.append(len(ran))
        if len(ran) < 3:
            raise ValueError("a defect")
        again.set()
        await asyncio.Event().wait()

    with capture_logs() as logs:
        task = asyncio.create_task(keep_at(work, pause=0.001))
        await asyncio.wait_for(again.wait(), SOON)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert ran == [0, 1, 2]
    assert [(entry["log_level"], "work" in entry) for entry in logs] == [("error", True), ("error", True)]

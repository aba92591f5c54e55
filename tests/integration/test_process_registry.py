"""Servers are registered beside the workers, own nothing, and disappear as workers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from switchboard import __version__
from switchboard.app.metrics import Metrics
from switchboard.app.ops.doctor import check_database
from switchboard.app.processes import stay_registered
from switchboard.app.settings import Settings
from switchboard.app.wiring import open_runtime, open_switchboard
from switchboard.domain.errors import ConfigurationError
from switchboard.lanes.background import run_in_background
from switchboard.lanes.kinds import KINDS
from switchboard.ports.checks import CheckResult
from switchboard.store.database import Database
from switchboard.store.work import lanes
from switchboard.store.work.processes import NewProcess, RunningProcess, count_alive, list_processes
from tests.hands import a_hand, at_work, rescue
from tests.lab import lab, submission
from tests.postgres import Postgres
from tests.processes import DEADLINE, environment, running
from tests.waiting import SOON, eventually


@asynccontextmanager
async def in_background(work: Callable[[], Coroutine[None, None, None]]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        await run_in_background(stack, work)
        yield


async def servers(database: Database) -> list[RunningProcess]:
    return await list_processes(database, "server")


async def findings(settings: Settings) -> dict[str, CheckResult]:
    return {one.name: one for one in await check_database(settings)}


async def test_a_server_is_registered_as_long_as_its_interfaces_are_open(database_url: str, tmp_path: Path) -> None:
    settings = Settings.model_validate({"database_url": database_url, "data_dir": tmp_path})
    async with open_runtime(settings) as runtime:
        database = runtime.database
        async with open_switchboard(runtime):
            await eventually(lambda: servers(database))
            [server] = await servers(database)
            assert (server.alive, server.version, set(server.kinds)) == (True, __version__, set(KINDS))
            found = await findings(settings)
            assert (found["servers"].status, found["servers"].detail) == ("ok", f"1 alive ({__version__})")
            assert found["workers"].status == "error", "a server is no worker"
            said = (await Metrics().render(database)).decode()
            assert "switchboard_servers_alive 1.0" in said
            assert "switchboard_workers_alive 0.0" in said
        assert await servers(database) == []
        assert (await findings(settings))["servers"].status == "warning"


async def test_a_worker_tells_the_kinds_of_lanes_that_it_knows(database_url: str) -> None:
    async with lab(database_url) as parts:
        async with at_work(parts.worker()):
            [worker] = await list_processes(parts.database)
            assert (worker.role, set(worker.kinds)) == ("worker", {"turn", "notice", "route"})
        assert await list_processes(parts.database) == []


async def test_a_server_with_an_old_beat_is_removed_and_can_come_back(database_url: str) -> None:
    async with lab(database_url) as parts:
        database = parts.database
        async with in_background(lambda: stay_registered(database, every=0.01)):
            await eventually(lambda: count_alive(database, "server"))
            [before] = await servers(database)
            await database.run("delete from process")
            await eventually(lambda: count_alive(database, "server"))
            [after] = await servers(database)
            assert after.process_id > before.process_id
        async with in_background(lambda: stay_registered(database, every=600)):
            await eventually(lambda: count_alive(database, "server"))
            await rescue(database)
            assert await count_alive(database, "server") == 1, "it took no lock, so the lock says nothing"
            await database.run("update process set beat = beat - 2 * ttl")
            assert await count_alive(database, "server") == 0
            await rescue(database)
            assert await servers(database) == []


async def test_a_server_takes_no_part_in_rescue(database_url: str) -> None:
    """The lanes of a worker stay where they are, whatever becomes of a server."""
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await parts.accept.accept(submission("x"))
        [item] = await hand.claim()
        async with in_background(lambda: stay_registered(parts.database, every=600)):
            await eventually(lambda: count_alive(parts.database, "server"))
            await parts.database.run("update process set beat = beat - 2 * ttl where role = 'server'")
            await rescue(parts.database)
        assert await parts.count("select count(*) from lane where state = 'running'") == 1
        assert (await hand.answer(item)).ok


@pytest.mark.parametrize("role", ["server", "worker"])
async def test_a_beat_waits_for_no_standby(database_url: str, role: str) -> None:
    """The setting is that of this transaction only: what comes next on the connection is as durable as ever."""
    async with lab(database_url) as parts, a_hand(parts.database) as hand, parts.database.connection() as connection:
        await connection.execute("update process set role = $1, has_lock = false", role)
        await connection.execute(
            "create function level() returns trigger language plpgsql as $$ begin"
            " assert current_setting('synchronous_commit') = 'local'; return new; end $$"
        )
        await connection.execute("create trigger level before update on process for each row execute function level()")
        assert await lanes.beat(parts.database, hand.worker)
        assert not await lanes.beat(parts.database, hand.worker + 1)
        assert await connection.fetchval("select current_setting('synchronous_commit')") != "local"


async def test_a_lock_is_only_for_workers(database_url: str) -> None:
    async with lab(database_url) as parts:
        connection = await parts.database.dedicated_connection()
        try:
            with pytest.raises(asyncpg.CheckViolationError):
                await lanes.register_worker(connection, NewProcess("server", (), "h", 1, "0", 60), lock=True)
        finally:
            await connection.close()


NEWER = "insert into migration (component, number, name) values ('switchboard', 9999, 'newer')"


async def test_a_worker_that_an_upgrade_overtook_ends(database_url: str) -> None:
    """It was suspended meanwhile: its row is gone, and the schema is one that it does not know."""
    async with lab(database_url) as parts:
        worker = parts.worker(ttl=1.0)
        working = asyncio.create_task(worker.run())
        await worker.ready.wait()
        await parts.database.run(NEWER)
        with pytest.raises(ConfigurationError, match="install the newer release"):
            await asyncio.wait_for(working, SOON)
        assert await parts.count("select count(*) from process where role = 'worker' and beat + ttl > now()") <= 1


def test_a_server_that_an_upgrade_overtook_shuts_down(postgres: Postgres, tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        name = runner.run(postgres.create())
        url = postgres.url(name)
        with running(environment(tmp_path, DATABASE_URL=url), "serve", cwd=tmp_path) as server:
            runner.run(_overtake(url))
            assert server.process.wait(DEADLINE) == 0
        runner.run(postgres.drop(name))


async def _overtake(url: str) -> None:
    connection = await asyncpg.connect(url, server_settings={"search_path": "switchboard"})
    await connection.execute(NEWER)
    await connection.execute("delete from process")
    await connection.close()

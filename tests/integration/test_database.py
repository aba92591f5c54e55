"""The connection to PostgreSQL: what is an outage, and what is a mistake of ours."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib.resources import files
from uuid import uuid4

import asyncpg
import pytest
from asyncpg.pool import PoolConnectionProxy

from switchboard.domain.errors import Unavailable
from switchboard.store.database import Database, Row, query
from tests.lab import lab


async def test_a_wrong_number_of_arguments_is_no_outage(database_url: str) -> None:
    async with lab(database_url) as parts:
        with pytest.raises(asyncpg.InterfaceError, match="expects 1 argument"):
            await parts.database.value("select $1::integer", 1, 2)
        with pytest.raises(asyncpg.InterfaceError, match="expects 1 argument"):
            async with parts.database.connection() as connection, connection.transaction():
                await connection.fetchval("select $1::integer")
        assert await parts.database.value("select 1") == 1


async def test_an_argument_that_cannot_be_sent_is_no_outage(database_url: str) -> None:
    async with lab(database_url) as parts:
        with pytest.raises(asyncpg.DataError):
            await parts.database.value("select $1::integer", "one")


@pytest.mark.parametrize("error", [asyncio.CancelledError, asyncpg.DataError])
async def test_a_statement_that_is_parsed_and_not_run_leaves_no_transaction(
    database_url: str, error: type[BaseException]
) -> None:
    database = await Database.connect(database_url, size=1)

    async def parsed() -> None:
        async with database.connection() as connection:
            await connection.prepare("select $1::integer")
            raise error

    with pytest.raises(error):
        await parsed()
    async with database.snapshot() as connection:
        assert await connection.fetchval("select 1") == 1
    await database.close()


async def test_a_connection_that_was_cut_off_is_an_outage(database_url: str) -> None:
    async with lab(database_url) as parts:
        with pytest.raises(Unavailable):
            await _ask_after(parts.database, lambda connection: connection.terminate())
        assert await parts.database.value("select 1") == 1


async def test_a_pool_that_is_closed_is_an_outage(database_url: str) -> None:
    database = await Database.connect(database_url)
    await database.close()
    with pytest.raises(Unavailable):
        await database.ping()


async def test_a_pool_that_is_cut_off_under_a_statement_is_an_outage(database_url: str) -> None:
    database = await Database.connect(database_url)
    with pytest.raises(Unavailable):
        await _ask_after(database, lambda _: database.pool.terminate())


async def test_a_pool_grows_while_connections_stay_in_use_and_no_wait_is_endless(database_url: str) -> None:
    database = await Database.connect(database_url, size=4)
    assert database.pool.get_size() == 1
    async with AsyncExitStack() as stack:
        for held in range(1, 4):
            await stack.enter_async_context(database.connection())
            assert database.pool.get_size() == held, "one at a time"
        given_up = [asyncio.create_task(database.ping()) for _ in range(5)]
        await asyncio.sleep(0)
        for one in given_up[1::2]:
            one.cancel()
        done = await asyncio.gather(*given_up, return_exceptions=True)
        assert [outcome is None for outcome in done] == [True, False, True, False, True]
        assert database.pool.get_size() == 4
    assert await asyncio.gather(*(database.value("select $1::int", n) for n in range(50))) == list(range(50))
    assert database.pool.get_size() == 4
    await database.close()


async def test_who_asks_again_and_again_passes_nobody_who_waits(database_url: str) -> None:
    database, asked = await Database.connect(database_url), 0

    async def ask_on() -> None:
        nonlocal asked
        while True:
            await database.ping()
            asked += 1

    busy = asyncio.create_task(ask_on())
    for _ in range(5):
        await asyncio.sleep(0)  # it has the only connection
        before = asked
        await database.ping()
        assert asked - before <= 2
    busy.cancel()
    await asyncio.wait([busy])
    await database.close()


async def test_connections_are_opened_ahead_as_far_as_the_server_has_room(database_url: str) -> None:
    async with lab(database_url) as parts:
        role = f"few_{uuid4().hex}"
        await parts.database.run(f"create role {role} login connection limit 3 in role postgres")
        try:
            for url, opened in ((database_url, 4), (database_url.replace("postgres@", f"{role}@"), 3)):
                database = await Database.connect(url)
                await database.warm(4)
                assert (database.pool.get_size(), database.pool.get_idle_size()) == (opened, opened)
                await database.close()
        finally:
            await parts.database.run(f"drop role {role}")


async def test_to_open_connections_ahead_of_a_server_that_is_gone_is_no_error(database_url: str) -> None:
    database = await Database.connect(database_url)
    database.pool.terminate()
    await database.warm(4)
    with pytest.raises(Unavailable):
        await database.ping()


async def test_a_new_connection_knows_the_types_of_all_statements(database_url: str) -> None:
    runs = "select sum(generic_plans + custom_plans)::int from pg_prepared_statements"
    asked = f"{runs} where statement like 'WITH RECURSIVE%'"  # so the driver asks
    names = [
        f"{file.name.removesuffix('.sql')}.{name}"
        for file in files("switchboard.store").joinpath("sql/queries").iterdir()
        for name in re.findall(r"^-- name: (\w+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    async with lab(database_url) as parts, parts.database.connection() as connection:
        before = await connection.fetchval(asked)
        for name in names:
            await connection.prepare(query(name))
        assert len(names) > 100
        assert await connection.fetchval(asked) == before


async def test_types_are_asked_for_once_in_a_process(database_url: str) -> None:
    asked = "select count(*) from pg_prepared_statements where statement like 'WITH RECURSIVE%'"
    (await Database.connect(database_url)).pool.terminate()
    async with lab(database_url) as parts, parts.database.connection() as connection:
        await connection.prepare(query("lanes.settle"))
        assert await connection.fetchval(asked) == 0


async def test_a_new_connection_is_in_no_transaction(database_url: str) -> None:
    async with lab(database_url) as parts, AsyncExitStack() as stack:
        for _ in range(4):  # the later ones are told of types by the earlier ones
            connection = await stack.enter_async_context(parts.database.connection())
            async with connection.transaction(isolation="serializable"):
                assert await connection.fetchval("show transaction_isolation") == "serializable"


async def test_connections_forget_the_types_of_a_schema_that_was_made_anew(database_url: str) -> None:
    async with lab(database_url) as parts:
        statement = "select coalesce(cardinality($1::settlement[]), 0)"
        assert await parts.database.value(statement, []) == 0
        await parts.database.run("drop schema switchboard cascade")
        async with lab(database_url):
            with pytest.raises(Unavailable, match="was replaced"):
                await parts.database.value(statement, [])
            assert await parts.database.value(statement, []) == 0


async def test_a_connection_that_breaks_in_use_is_given_back_without_a_word(database_url: str) -> None:
    async with lab(database_url) as parts:
        for _ in range(20):
            with pytest.raises(Unavailable):
                await _ask_after_its_end(parts.database)
        assert await parts.database.value("select 1") == 1


async def test_filters_are_planned_each_time_and_the_functions_they_call_are_not(database_url: str) -> None:
    filters = "select current_setting('plan_cache_mode') as mode where $1::integer > 0"
    database = await Database.connect(database_url, size=1)
    for _ in range(10):
        [row] = await database.rows_with_custom_plan(filters, 1)
        assert row["mode"] == "auto"
    kept = await database.rows("select from pg_prepared_statements where statement = $1", filters)
    assert not kept, "it would be given one plan for all arguments"
    await database.close()


async def _ask_after_its_end(database: Database) -> None:
    async with database.connection() as connection:
        await database.run("select pg_terminate_backend($1)", connection.get_server_pid())
        await connection.fetchval("select 1")


async def _ask_after(database: Database, mishap: Callable[[PoolConnectionProxy[Row]], None]) -> None:
    async with database.connection() as connection:
        mishap(connection)
        await connection.fetchval("select 1")

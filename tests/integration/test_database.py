"""The connection to PostgreSQL: what is an outage, and what is a mistake of ours."""

from __future__ import annotations

from collections.abc import Callable

import asyncpg
import pytest
from asyncpg.pool import PoolConnectionProxy

from switchboard.domain.errors import Unavailable
from switchboard.store.database import Database, Row
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


async def _ask_after(database: Database, mishap: Callable[[PoolConnectionProxy[Row]], None]) -> None:
    async with database.connection() as connection:
        mishap(connection)
        await connection.fetchval("select 1")

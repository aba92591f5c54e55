"""Through a real PgBouncer in transaction mode: all goes as without it, and what cannot go is refused in words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from switchboard.app.database import open_database
from switchboard.app.ops.doctor import check_database
from switchboard.app.settings import Settings
from switchboard.domain.errors import ConfigurationError
from switchboard.store.database import ROLE_SETTINGS, Database
from switchboard.store.pooler import is_direct
from tests.pooler import new_pgbouncer, old_pgbouncer, pooler


@pytest.fixture
def pooled_url(empty_database_url: str, tmp_path: Path) -> Iterator[str]:
    """Through a PgBouncer that follows prepared statements, to a database with nothing in it."""
    with pooler(new_pgbouncer(), empty_database_url, tmp_path) as url:
        yield url


def _settings(url: str, direct_url: str | None, data_dir: Path) -> Settings:
    return Settings.model_validate({"database_url": url, "database_direct_url": direct_url, "data_dir": data_dir})


async def test_a_pooler_alone_is_refused(pooled_url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="set database_direct_url to PostgreSQL itself"):
        async with open_database(_settings(pooled_url, None, tmp_path)):
            pass


async def test_a_pooler_that_drops_our_settings_in_silence_is_refused(database_url: str, tmp_path: Path) -> None:
    ignored = ",".join(ROLE_SETTINGS)
    with (
        pooler(new_pgbouncer(), database_url, tmp_path, ignore_startup_parameters=ignored) as url,
        pytest.raises(ConfigurationError, match="set database_direct_url to PostgreSQL itself"),
    ):
        await Database.connect(url)


async def test_an_old_pooler_is_refused(empty_database_url: str, tmp_path: Path) -> None:
    with pooler(old_pgbouncer(), empty_database_url, tmp_path) as url:
        settings = _settings(url, empty_database_url, tmp_path)
        with pytest.raises(ConfigurationError, match=r"PgBouncer 1\.21 or newer is needed"):
            async with open_database(settings):
                pass
        found = {finding.name: finding for finding in await check_database(settings)}
        assert found["pooler"].status == "error"


async def test_a_pooler_that_follows_no_statements_is_refused(empty_database_url: str, tmp_path: Path) -> None:
    with (
        pooler(new_pgbouncer(), empty_database_url, tmp_path, max_prepared_statements="0") as url,
        pytest.raises(ConfigurationError, match="max_prepared_statements = 200 or more"),
    ):
        async with open_database(_settings(url, empty_database_url, tmp_path)):
            pass


async def test_connections_older_than_the_settings_of_the_role_are_told(
    pooled_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    early = await asyncpg.connect(pooled_url)  # so the pooler has a connection that knows no schema of ours
    await early.execute("select 1")
    with pytest.raises(ConfigurationError, match="run RECONNECT on the pooler's console"):
        async with open_database(_settings(pooled_url, empty_database_url, tmp_path)):
            pass
    await early.close()


async def test_what_a_session_would_hold_stands_on_the_role(
    pooled_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    settings = _settings(pooled_url, empty_database_url, tmp_path)
    for _ in range(2):  # the second start finds it done
        async with open_database(settings) as database:
            assert await database.value("show search_path") == "switchboard"
            assert await database.value("show random_page_cost") == "1.1"
            assert await database.value("select count(*) from lane") == 0
    found = {finding.name: finding for finding in await check_database(settings)}
    assert found["pooler"].status == "ok"


async def test_workers_lock_and_listen_past_the_pooler(
    pooled_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    async with open_database(_settings(pooled_url, empty_database_url, tmp_path)) as database:
        connection = await database.dedicated_connection()
        assert await is_direct(connection)
        await connection.close()
        async with database.connection() as through:
            assert not await is_direct(through)


async def test_what_filters_is_asked_through_the_pooler_by_many_at_once(
    pooled_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    async with open_database(_settings(pooled_url, empty_database_url, tmp_path)) as database:
        asked = (database.rows_with_custom_plan("select $1::integer as n", n) for n in range(200))
        assert [rows[0]["n"] for rows in await asyncio.gather(*asked)] == list(range(200))

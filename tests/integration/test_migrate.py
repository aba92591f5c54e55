"""Migrations: they lead to schema.sql, once, whoever starts first; and never backwards."""

from __future__ import annotations

import asyncio
import re
from importlib.resources import files
from pathlib import Path
from uuid import uuid4

import pytest

from switchboard.app.embedded_binaries import account_for, find_programs, run
from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.store.database import SCHEMA, Database
from switchboard.store.migrate import migrate, migrations
from tests.postgres import Postgres


async def _dump(url: str) -> str:
    programs = await find_programs(None, account_for(Path("/")))
    command = (str(programs.directory / "pg_dump"), "--schema-only", "--no-owner", f"--schema={SCHEMA}", url)
    outcome = await run(*command, cwd=Path("/"), account=None)
    assert outcome.code == 0, outcome.text
    return re.sub(r"^\\(un)?restrict .*$", "", outcome.text, flags=re.MULTILINE)


async def test_the_migrations_lead_to_exactly_the_schema(postgres: Postgres, database_url: str) -> None:
    other = await postgres.create()
    try:
        by_steps, at_once = await Database.connect(database_url), await Database.connect(postgres.url(other))
        try:
            await migrate(by_steps)
            await at_once.run(f"create schema {SCHEMA}")
            await at_once.run(files("switchboard.store").joinpath("schema.sql").read_text(encoding="utf-8"))
        finally:
            await by_steps.close()
            await at_once.close()
        dumped = await _dump(database_url)
        assert dumped == await _dump(postgres.url(other))
        assert "CREATE TABLE" in dumped
    finally:
        await postgres.drop(other)


async def test_migrating_again_changes_nothing(database_url: str) -> None:
    database = await Database.connect(database_url)
    try:
        assert await migrate(database) == migrations()
        assert await migrate(database) == ()
        assert await database.value("select count(*) from migration") == len(migrations())
    finally:
        await database.close()


async def test_of_several_that_migrate_at_once_one_does_it_and_all_succeed(database_url: str) -> None:
    databases = [await Database.connect(database_url) for _ in range(4)]
    try:
        done = await asyncio.gather(*(migrate(database) for database in databases))
        assert sorted(done, key=len) == [(), (), (), migrations()]
    finally:
        for database in databases:
            await database.close()


async def test_a_database_of_a_newer_release_is_refused_and_left_alone(database_url: str) -> None:
    database = await Database.connect(database_url)
    try:
        await migrate(database)
        await database.run("insert into migration (number, name) values (9999, 'from_the_future')")
        with pytest.raises(ConfigurationError, match=r"schema 9999.*newer release"):
            await migrate(database)
    finally:
        await database.close()


def test_migrations_are_numbered_without_gaps() -> None:
    assert [m.number for m in migrations()] == list(range(1, len(migrations()) + 1))


async def test_a_user_who_may_not_create_schemas_is_told_what_to_do(database_url: str) -> None:
    guest = f"guest_{uuid4().hex}"
    owner = await Database.connect(database_url, size=1)
    await owner.run(f"create role {guest} login")
    database = await Database.connect(database_url.replace("postgres@", f"{guest}@", 1), size=1)
    try:
        with pytest.raises(ConfigurationError, match=f"create schema {SCHEMA} authorization"):
            await migrate(database)
        await owner.run(f"create schema {SCHEMA} authorization {guest}")
        assert await migrate(database) == migrations()
    finally:
        await database.close()
        await owner.run(f"drop owned by {guest} cascade")
        await owner.run(f"drop role {guest}")
        await owner.close()


async def test_hosts_of_which_none_is_the_primary_are_an_outage(database_url: str) -> None:
    url = database_url.replace("host=", "target_session_attrs=standby&host=", 1)
    with pytest.raises(Unavailable, match="None of the hosts"):
        await Database.connect(url)
    database = await Database.connect(url.replace("=standby", "=read-write"))
    await database.ping()
    await database.close()

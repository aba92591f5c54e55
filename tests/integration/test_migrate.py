"""Migrations: they lead to schema.sql, once, whoever starts first; and never backwards."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from structlog.testing import capture_logs

from switchboard.app.embedded_binaries import account_for, find_programs, run
from switchboard.core.stored import stored_envelope, stored_json
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.domain.ledger import Item, LaneKey
from switchboard.store.database import SCHEMA, Database
from switchboard.store.ids import new_uuid7
from switchboard.store.inbox import get_message
from switchboard.store.ledger import decisions_of
from switchboard.store.migrate import migrate, migrations
from switchboard.store.routing import load_route
from tests.lab import envelope
from tests.postgres import Postgres
from tests.waiting import eventually


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


async def test_the_time_of_a_migration_is_its_own_and_not_that_of_other_statements(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shown the other way round, so that no machine is too slow for it: what has a day is given a moment."""
    slow = (replace(migrations()[0], sql="select pg_sleep(600)"),)
    monkeypatch.setattr("switchboard.store.migrate.migrations", lambda: slow)
    monkeypatch.setattr("switchboard.store.migrate._A_DAY_S", 0.1)
    database, other = [await Database.connect(database_url) for _ in range(2)]
    try:
        with capture_logs() as logs, pytest.raises(Unavailable):
            await migrate(database)
        assert logs == []
        async with other.connection() as first, first.transaction():
            await first.execute("select pg_advisory_xact_lock($1)", 0x5357_4244)
            with capture_logs() as logs, pytest.raises(Unavailable):
                await migrate(database)
        assert [entry["event"] for entry in logs] == [
            "waiting for another process that brings the database to its schema"
        ]
    finally:
        await database.close()
        await other.close()


async def _at_7(database: Database) -> None:
    await database.run(f"create schema {SCHEMA}")
    for old in migrations()[:7]:
        await database.run(old.sql)
        await database.run("insert into migration (number, name) values ($1, $2)", old.number, old.name)


async def test_what_the_release_before_has_stored_is_read_as_before(database_url: str) -> None:
    """Messages, decisions and what waits to be classified were jsonb up to 0007."""
    given, facts = envelope("old"), {"channel": "telegram", "sender": "alice"}
    database = await Database.connect(database_url)
    try:
        await _at_7(database)
        ids = [new_uuid7(), new_uuid7()]
        for one in ids:
            await database.run(
                "insert into message_inbox values"
                " ($1, 'c', 'telegram', 'e', 'alice', null, $2::text::jsonb, 'raw', 'text/plain', now())",
                one,
                stored_json(given).decode(),
            )
        trail = [{"team_id": "root", "reason": "catch_all"}]
        await database.run("insert into decision values ($1, 'c', 1, 1, 0, $2, now(), $3)", ids[0], trail, facts)
        await database.run(
            "insert into routing (lane, seq, conversation, request_id, facts, created_at)"
            " values ('route:c', 1, 'c', $1, $2, now())",
            *(ids[1], facts),
        )
        assert [one.number for one in await migrate(database)] == [one.number for one in migrations()[7:]]
        stored = await get_message(database, ids[0])
        assert stored is not None
        assert msgspec.convert(stored.envelope, Envelope) == stored_envelope(stored_json(given))
        [decision] = await decisions_of(database, ids[0])
        assert (decision.trail, decision.facts) == (trail, facts)
        waiting = await load_route(database, Item(LaneKey("route:c"), "route", 1, 1, 1, 1))
        assert (waiting.facts, stored_envelope(waiting.envelope)) == (facts, stored_envelope(stored_json(given)))
    finally:
        await database.close()


async def test_a_door_in_the_middle_of_a_batch_and_the_migration_do_not_wait_for_each_other(database_url: str) -> None:
    """accept_messages reads routing first, and writes message_inbox and decision after it."""
    stuck = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    database = await Database.connect(database_url)
    try:
        await _at_7(database)

        async def is_stuck() -> bool:
            return bool(await database.value(stuck))

        async with database.connection() as door, door.transaction():
            await door.execute("select from routing")
            migrating = asyncio.create_task(migrate(database))
            await eventually(is_stuck)
            await door.execute("lock table message_inbox, routing, decision in row exclusive mode")
        assert [one.number for one in await migrating] == [one.number for one in migrations()[7:]]
    finally:
        await database.close()


async def test_a_migration_does_not_stand_in_everybodys_way_for_a_table_that_somebody_holds(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.store.migrate._LOCK_WAIT", "100ms")
    database = await Database.connect(database_url)
    try:
        await _at_7(database)
        async with database.connection() as reader, reader.transaction():
            await reader.execute("select from message_inbox")
            with pytest.raises(Unavailable, match="lock timeout"):
                await migrate(database)
        assert await migrate(database)
    finally:
        await database.close()


@pytest.mark.parametrize(
    ("theirs", "named"),
    [
        ("create view reports as select envelope from message_inbox", "view reports"),
        ("create index by_facts on decision using gin (facts)", "json"),
    ],
)
async def test_what_is_not_ours_and_in_the_way_is_named(database_url: str, theirs: str, named: str) -> None:
    database = await Database.connect(database_url)
    try:
        await _at_7(database)
        await database.run(theirs)
        with pytest.raises(ConfigurationError, match=f"{named}.*drop the view or index"):
            await migrate(database)
    finally:
        await database.close()


async def test_an_upgrade_says_what_it_does_and_a_new_database_is_no_upgrade(database_url: str) -> None:
    database = await Database.connect(database_url)
    try:
        await _at_7(database)
        with capture_logs() as logs:
            await migrate(database)
        assert [entry["to"] for entry in logs] == [f"{one.number:04} {one.name}" for one in migrations()[7:]]
        await database.run(f"drop schema {SCHEMA} cascade")
        with capture_logs() as logs:
            await migrate(database)
        assert logs == []
    finally:
        await database.close()


async def test_what_an_upgrade_says_does_not_stand_in_its_answer(database_url: str, tmp_path: Path) -> None:
    database = await Database.connect(database_url)
    await _at_7(database)
    await database.close()
    environment = {**os.environ, "SWITCHBOARD_DATABASE_URL": database_url, "SWITCHBOARD_DATA_DIR": str(tmp_path)}
    command = (sys.executable, "-m", "switchboard", "db", "migrate", "--json")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=environment, cwd=tmp_path, stdout=pipe, stderr=pipe)
    said, told = await process.communicate()
    assert json.loads(said) == {"applied": [f"{one.number:04}_{one.name}" for one in migrations()[7:]]}
    assert b"migrating the database" in told


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

"""Migrations: applied once, whichever process starts first, and never backwards; functions whenever they differ."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.handle import handle_behind
from switchboard.core.people.readers import person_named
from switchboard.core.turns.entries import others_words
from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.ports.facts import Reader
from switchboard.store.database import SCHEMA, Database
from switchboard.store.ids import new_uuid7
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.migrate import COMPONENT, Migration, functions, migrate, migrations
from switchboard.store.work.lanes import Looker, look
from switchboard.store.work.processes import NewProcess, list_processes, register
from tests.processes import environment, running, switchboard
from tests.waiting import eventually

PRESENT: Final = migrations()
OWNERS: Final = next(one for one in PRESENT if one.name == "owners")
PEOPLE: Final = next(one for one in PRESENT if one.name == "people")
WHOSE_FACTS: Final = next(one for one in PRESENT if one.name == "whose_facts")
WALL: Final = """
drop function visible(text, uuid, text, boolean, boolean, uuid, uuid[], uuid[]);
create function visible(text, uuid, text, boolean, boolean) returns setof fact language sql as 'select * from fact';
"""
LOOK: Final = """
drop function look(integer, bigint, text[], text[], text, integer);
create function look(integer, bigint, text[], text[], text, integer)
returns table (freed bigint, remote boolean)
language sql as 'select 0::bigint, false';
"""
NEXT: Final = Migration(
    COMPONENT, PRESENT[-1].number + 1, "next", "alter table message_inbox alter column envelope type jsonb"
)
CODES: Final = """
create or replace function use_pairing_code(_account uuid, _code uuid) returns uuid language sql as 'select null::uuid';
create or replace function hold_of_stranger(
    uuid, uuid, text, text, text, uuid, uuid, text, text, text, uuid, uuid, uuid, uuid, text, text, text, text, text,
    text, timestamptz, smallint, text, text, bytea
) returns table (outcome text, request_id uuid, differs boolean, told boolean)
language sql as $$ select 'let_in', null::uuid, false, false $$;
"""
BLOCKED: Final = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


@pytest.fixture
def database_url(empty_database_url: str) -> str:
    """In this module nothing is migrated yet."""
    return empty_database_url


@pytest.fixture
async def migrated(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Database]:
    """A database at the present schema, and a release that brings one more migration."""
    database = await Database.connect(database_url)
    await migrate(database)
    monkeypatch.setattr("switchboard.store.migrate.migrations", lambda: (*PRESENT, NEXT))
    yield database
    await database.close()


def functions_are(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    monkeypatch.setattr("switchboard.store.migrate.functions", lambda: sql)


def migrations_end_before(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """As in an older release."""
    older = tuple(one for one in PRESENT if one.number < number)
    monkeypatch.setattr("switchboard.store.migrate.migrations", lambda: older)


async def test_migrating_again_changes_nothing(database_url: str) -> None:
    database = await Database.connect(database_url)
    try:
        assert await migrate(database) == PRESENT
        assert await migrate(database) == ()
        assert await database.value("select count(*) from migration") == len(PRESENT)
    finally:
        await database.close()


async def test_of_several_that_migrate_at_once_one_does_it_and_all_succeed(database_url: str) -> None:
    databases = [await Database.connect(database_url) for _ in range(4)]
    try:
        done = await asyncio.gather(*(migrate(database) for database in databases))
        assert sorted(done, key=len) == [(), (), (), PRESENT]
    finally:
        for database in databases:
            await database.close()


async def test_a_database_of_a_newer_release_is_refused_and_left_alone(database_url: str) -> None:
    database = await Database.connect(database_url)
    try:
        await migrate(database)
        await database.run(
            "insert into migration (component, number, name) values ('switchboard', 9999, 'from_the_future')"
        )
        with pytest.raises(ConfigurationError, match=r"schema 9999.*newer release"):
            await migrate(database)
    finally:
        await database.close()


async def test_a_migration_has_a_time_limit_of_its_own(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shown the other way round, so that no machine is too slow for it: what has a day is given a moment."""
    slow = (replace(PRESENT[0], sql="select pg_sleep(600)"),)
    monkeypatch.setattr("switchboard.store.migrate.migrations", lambda: slow)
    monkeypatch.setattr("switchboard.store.migrate.A_DAY_S", 0.1)
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


async def test_a_server_amid_a_batch_and_the_migration_do_not_block_each_other(migrated: Database) -> None:
    """accept_messages reads routing first, and writes message_inbox and decision after it."""

    async def is_stuck() -> bool:
        return bool(await migrated.value(BLOCKED))

    async with migrated.connection() as server, server.transaction():
        await server.execute("select from message_inbox")
        migrating = asyncio.create_task(migrate(migrated))
        await eventually(is_stuck)
        await server.execute("lock table routing, decision in row exclusive mode")
    assert await migrating == (NEXT,)


async def test_a_migration_does_not_block_everybody_for_a_table_that_is_held(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.store.migrate._LOCK_WAIT", "100ms")
    async with migrated.connection() as reader, reader.transaction():
        await reader.execute("select from message_inbox")
        with pytest.raises(Unavailable, match="lock timeout"):
            await migrate(migrated)
    assert await migrate(migrated) == (NEXT,)


async def test_a_migration_whose_connection_is_lost_says_that_it_was_undone(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        functions_are(patch, "select pg_terminate_backend(pg_backend_pid())")
        with pytest.raises(Unavailable, match=r"migration .* was interrupted, and undone as a whole; start again"):
            await migrate(migrated)
    assert await migrate(migrated) == (NEXT,)


async def test_a_view_that_is_not_ours_and_in_the_way_is_named(migrated: Database) -> None:
    await migrated.run("create view reports as select envelope from message_inbox")
    with pytest.raises(ConfigurationError, match=r"view reports.*drop the view or index"):
        await migrate(migrated)


async def test_an_upgrade_says_what_it_does_and_a_new_database_is_no_upgrade(migrated: Database) -> None:
    with capture_logs() as logs:
        await migrate(migrated)
    assert [entry["to"] for entry in logs] == [f"{NEXT.number:04} next"]
    await migrated.run(f"drop schema {SCHEMA} cascade")
    with capture_logs() as logs:
        assert await migrate(migrated) == (*PRESENT, NEXT)
    assert logs == []


async def test_what_an_upgrade_says_does_not_stand_in_its_answer(database_url: str, tmp_path: Path) -> None:
    """Another process holds the lock of migrations, and the command says that it waits for it."""
    environment = {**os.environ, "SWITCHBOARD_DATABASE_URL": database_url, "SWITCHBOARD_DATA_DIR": str(tmp_path)}
    database = await Database.connect(database_url)

    async def is_stuck() -> bool:
        return bool(await database.value(BLOCKED))

    try:
        async with database.connection() as other, other.transaction():
            await other.execute("select pg_advisory_xact_lock($1)", 0x5357_4244)
            waiting = asyncio.create_task(
                asyncio.to_thread(switchboard, environment, "db", "migrate", "--json", cwd=tmp_path)
            )
            await eventually(is_stuck)
        done = await waiting
    finally:
        await database.close()
    assert json.loads(done.stdout) == {"applied": [f"{one.number:04}_{one.name}" for one in PRESENT]}
    assert "waiting for another process" in done.stderr


async def test_a_live_server_of_an_older_release_is_not_migrated_under(
    migrated: Database, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.store.migrate.__version__", "99.0.0")
    env = environment(tmp_path, DATABASE_URL=database_url)
    with running(env, "serve", cwd=tmp_path) as server:
        with pytest.raises(ConfigurationError, match=rf"server .* \(pid {server.process.pid}\); stop them all"):
            await migrate(migrated)
        assert await migrated.value("select max(number) from migration") == PRESENT[-1].number
        server.stop()
    assert await migrate(migrated) == (NEXT,)


async def test_a_dead_process_of_an_older_release_is_waited_for_until_its_ttl(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.store.migrate.__version__", "99.0.0")
    died = NewProcess("worker", ["turn"], "elsewhere", 1, "0.0.1", ttl=0.5)
    await register(migrated, died)
    assert await migrate(migrated) == (NEXT,)
    assert not [process for process in await list_processes(migrated) if process.alive]


async def test_functions_alone_are_replaced_beside_an_older_release(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await Database.connect(database_url)
    try:
        await migrate(database)
        await register(database, NewProcess("server", [], "elsewhere", 1, "0.0.1", ttl=600))
        monkeypatch.setattr("switchboard.store.migrate.__version__", "99.0.0")
        functions_are(monkeypatch, "create function answer() returns integer language sql as 'select 42'")
        assert await migrate(database) == ()
        assert await database.value("select answer()") == 42
    finally:
        await database.close()


async def test_functions_are_replaced_when_they_differ_and_only_then(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(migrated)
    text = "create or replace function answer() returns integer language sql as 'select {}'"
    for sql, answer in ((text.format(42), 42), (text.format(43), 43)):
        functions_are(monkeypatch, sql)
        assert await migrate(migrated) == ()
        assert await migrated.value("select answer()") == answer
    await migrated.run(text.format(44))
    await migrate(migrated)
    assert await migrated.value("select answer()") == 44, "the same functions are not applied again"


async def test_a_restarted_older_release_leaves_the_functions_of_a_newer_one(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.store.migrate.__version__", "0.10.0")
    functions_are(monkeypatch, "create or replace function answer() returns integer language sql as 'select 2'")
    await migrate(migrated)
    monkeypatch.setattr("switchboard.store.migrate.__version__", "0.9.1")
    functions_are(monkeypatch, "create or replace function answer() returns integer language sql as 'select 1'")
    await migrate(migrated)
    assert await migrated.value("select answer()") == 2


SLOTS: Final = """
drop function take_slot_of_model;
create function take_slot_of_model(
    _model text, _slot text, _most integer, _rank smallint, _lease_id uuid, _process uuid, _ttl interval,
    _key_hash text, _fresh boolean
) returns table (taken boolean, paused_s float8, refused text) language sql as 'select true, 0::float8, null::text'
"""
HISTORY: Final = """
with l as (select enter_lane('System1/clerk', 'telegram/bot/ann') as lane)
insert into entry (lane, position, request_id, role, person, private, text, calls, created_at)
select l.lane, e.position, gen_random_uuid(), e.role, 'telegram/bot/ann', true, e.text, e.calls, now()
from l cross join (values
    (1, 'user', E'look\n[image inbox/0123456789abcdef.png]', null::json),
    (2, 'assistant', 'Nice.', null),
    (3, 'user', E'yes\n> Fetch it', null),
    (4, 'assistant', 'Done.', '[{"id": "1", "name": "web_fetch", "arguments": "{}", "result": "x", "ok": true}]')
) as e (position, role, text, calls);
insert into summary (lane, position, summary_id, first_position, person, private, text)
select l.lane, 0, gen_random_uuid(), 0, 'telegram/bot/ann', true, 'before'
from (select lane_key('turn', 'System1/clerk', conversation_key('telegram/bot/ann')) as lane) l
"""


async def test_what_older_releases_kept_is_read_as_if_it_came_today(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await Database.connect(database_url)
    try:
        with monkeypatch.context() as older:
            migrations_end_before(older, PRESENT[1].number)
            await migrate(database)
        await database.run(HISTORY)
        assert await migrate(database) == PRESENT[1:]
        reader = Reader(SystemId("System1/clerk"), Conversation("telegram/bot/ann"), "telegram/bot/ann", True, True)
        found = await StoredHistory(database, StoredReaders(database, CHANNELS)).read(reader)
        assert [(one.own_words, one.told) for one in found if one.role == "user"] == [("look", False), ("yes", True)]
        assert [others_words((), [one], ()) for one in found] == [False, False, True, True]
        # A conversation that has never begun anew keeps its summary.
        told = "select s.text from lane l cross join visible_summary(l.key, $1, true, true) s where l.kind = 'turn'"
        assert await database.value(told, reader.person) == "before"
    finally:
        await database.close()


async def test_the_function_that_gives_slots_is_replaced_though_it_returns_more(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await Database.connect(database_url)
    try:
        with monkeypatch.context() as older:
            migrations_end_before(older, 5)
            functions_are(older, f"{functions()};\n{SLOTS}")
            await migrate(database)
        await migrate(database)
        await database.run(
            "insert into model_cooldown (model, process, until, why, context, context_until)"
            " values ('m', $1, now(), '', 4096, now() + interval '1 minute')",
            new_uuid7(),
        )
        row = await database.row(
            "select taken, context, context_s > 0 as known"
            " from take_slot_of_model('m', 'm', 1, 0::smallint, $1, $1, interval '1 minute', '', false)",
            new_uuid7(),
        )
        assert row is not None
        assert tuple(row) == (True, 4096, True)
    finally:
        await database.close()


async def test_a_code_that_an_older_release_made_lets_in_and_makes_no_owner(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await Database.connect(database_url)
    account = uuid4()
    try:
        with monkeypatch.context() as older:
            migrations_end_before(older, OWNERS.number)
            functions_are(older, f"{functions()};\n{CODES}")
            await migrate(database)
        await database.run(
            "insert into pairing_code (code_id, account, key, expires_at)"
            " values ($1, $1, $1, now() + interval '1 minute')",
            account,
        )
        await migrate(database)
        used = "select use_pairing_code($1, $1, $2, true)"
        assert [await database.value(used, account, owners) for owners in (True, False)] == [None, account]
        assert await database.value("select add_owner($1, $1)", account) is None
        names = "select count(*) from pg_proc where proname in ('use_pairing_code', 'hold_of_stranger')"
        assert await database.value(names) == 2
    finally:
        await database.close()


async def test_replies_older_releases_kept_for_embedded_connectors_are_returned(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await Database.connect(database_url)
    try:
        with monkeypatch.context() as older:
            migrations_end_before(older, 6)
            await migrate(database)
        for endpoint in ("embedded:System1/clerk", "bot:house"):
            await database.run(
                "with l as (insert into lane (key, kind, pool, tier, state, last_seq)"
                " values (gen_random_uuid(), 'send', 'telegram', 1, 'ready', 2) returning key)"
                " insert into outbox (lane, seq, outbox_id, request_id, system_id, channel, endpoint, recipient,"
                " reply_to, text, state, created_at)"
                " select l.key, n, gen_random_uuid(), $2, 'System1/clerk', 'telegram', $1, 's1', 'e', 'hello',"
                " 'pending', now() from l cross join generate_series(1, 2) n",
                endpoint,
                new_uuid7(),
            )
        await migrate(database)
        rows = await database.rows(
            "select o.endpoint, o.state, l.state as lane, l.last_seq - l.done_seq as waiting,"
            " o.settled_at is null as open"
            " from outbox o join lane l on l.key = o.lane where o.seq = 2 order by o.endpoint"
        )
        assert [tuple(row) for row in rows] == [
            ("bot:house", "pending", "ready", 2, True),
            ("embedded:System1/clerk", "sent", "idle", 0, False),
        ]
    finally:
        await database.close()


async def test_the_bodies_of_all_functions_are_sound(migrated: Database) -> None:
    """A migration takes them unseen, because some come before those that they call."""
    await migrated.run(functions())


def test_migrations_have_no_functions_and_functions_no_tables() -> None:
    assert not any(re.search(r"^create (or replace )?function", one.sql, re.MULTILINE) for one in PRESENT)
    assert not re.search(r"^(create|alter|drop) (?!or replace function)", functions(), re.MULTILINE)


def test_migrations_are_numbered_without_gaps() -> None:
    assert [m.number for m in PRESENT] == list(range(1, len(PRESENT) + 1))


async def test_a_user_who_may_not_create_schemas_is_told_what_to_do(database_url: str) -> None:
    guest = f"guest_{uuid4().hex}"
    owner = await Database.connect(database_url, size=1)
    await owner.run(f"create role {guest} login")
    database = await Database.connect(database_url.replace("postgres@", f"{guest}@", 1), size=1)
    try:
        with pytest.raises(ConfigurationError, match=f"create schema {SCHEMA} authorization"):
            await migrate(database)
        await owner.run(f"create schema {SCHEMA} authorization {guest}")
        assert await migrate(database) == PRESENT
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


async def test_a_look_of_an_older_release_is_replaced_though_it_tells_more(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await Database.connect(database_url)
    try:
        with monkeypatch.context() as older:
            migrations_end_before(older, PEOPLE.number)
            functions_are(older, f"{functions()};\n{LOOK}")
            await migrate(database)
        await migrate(database)
        assert (await look(database, Looker("here", 1))).people == 0
    finally:
        await database.close()


AUTHORS: Final = (
    *(("telegram", "bot:house", "5488"), ("telegram_bot", "b", "5488"), ("telegram_user_client", "b", "Ünal/ø %\\")),
    *(("discord", "b", "1"), ("signal", "b", "+491"), ("slack", "T1/x", "U1"), ("slack", "b", "x" * 400)),
    *(("email", "imap:b", "ann@example.org"), ("email", "imap:b", "Ann <Ann@Example.org>"), ("email", "b", "nobody")),
    *(("api", "web", "ann"), ("irc", "net", "ann"), ("telegram", "embedded:System1/notes", "5488")),
)
"""Channel, endpoint and sender of what older releases have learned."""


async def test_whose_facts_older_releases_have_learned_is_found_as_it_is_now(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await Database.connect(database_url, size=1)
    fact = "insert into fact values ($1, 'a', $1, $2, 'self', 'private', 'x', $1)"
    try:
        with monkeypatch.context() as older:
            migrations_end_before(older, WHOSE_FACTS.number)
            functions_are(older, f"{functions()};\n{WALL}")
            await migrate(database)
        await database.run("insert into person values ('ann', 'Ann')")
        handle = "insert into person_handle values ('telegram_user_client', '', $1, 'ann', default, 'olga')"
        await database.run(handle, AUTHORS[2][2])
        await database.run("select set_config('switchboard.facts', 'open', false)")
        for author in AUTHORS:
            await database.run(fact, uuid4(), person_named(*author))
        await migrate(database)
        await database.run("select set_config('switchboard.facts', 'open', false)")
        rows = await database.rows("select author, handle from fact")
        assert len(rows) == len(AUTHORS)
        for row in rows:
            found = handle_behind(row["author"])
            given = (None, None, None) if found is None else (found.channel, found.realm, found.identity)
            assert row["handle"] == await database.value("select handle_key($1, $2, $3)", *given), row["author"]
        assert sum(row["handle"] is not None for row in rows) == 8
        linked = "select count(*) from person_handle h join fact f on f.handle = h.key"
        assert await database.value(linked) == 1
    finally:
        await database.close()

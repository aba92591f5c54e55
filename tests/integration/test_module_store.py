"""A module keeps what it has in a room of its own: nothing of it reaches our tables, whatever role we are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
from msgspec.structs import replace

from switchboard.domain.errors import ConfigurationError, Conflict, Unavailable
from switchboard.ports.module import ModuleManifest
from switchboard.ports.module_store import ModuleStore
from switchboard.store.checks.modules import check_cages
from switchboard.store.database import Database
from switchboard.store.migrate import migrate
from switchboard.store.modules.migrations import migrate_module, migrate_modules
from switchboard.store.modules.stores import ModuleStores, StoreLimits, open_stores
from tests.modules import NOTES, a_module
from tests.pooler import new_pgbouncer, pooler
from tests.waiting import SOON

ROLES_OF_MODULES = """
do $$ declare r text; begin
    for r in select rolname from pg_roles where rolname like '%@' || current_database() loop
        execute format('drop owned by %1$I; drop role %1$I', r);
    end loop;
end $$
"""
FIGS = [{"text": "figs"}]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where packages of modules are found."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


async def run_as_superuser(url: str, *statements: str) -> None:
    database = await Database.connect(url, size=1)
    for statement in statements:
        await database.run(statement)
    await database.close()


@asynccontextmanager
async def owned(url: str, rights: str, *, create: bool = True) -> AsyncIterator[Database]:
    """An installation in the empty database of `url` by a role with these rights, and perhaps CREATE on it."""
    role, name = f"owner_{uuid4().hex}", urlsplit(url).path[1:]
    may = [f"grant create on database {name} to {role}"] if create else []
    await run_as_superuser(url, f"create role {role} login {rights}", *may)
    await run_as_superuser(url, f"create schema switchboard authorization {role}")
    database = await Database.connect(url.replace("postgres@", f"{role}@", 1))
    try:
        await migrate(database)
        yield database
    finally:
        await database.close()
        await run_as_superuser(url, ROLES_OF_MODULES)
        await run_as_superuser(url, f"drop owned by {role} cascade", f"drop role {role}")


async def open_notes(database: Database, manifest: ModuleManifest) -> ModuleStores:
    assert await migrate_modules(database, [manifest]) == {}
    return await open_stores(database, manifest)


async def fail_halfway(store: ModuleStore) -> None:
    async with store.transaction() as both:
        await asyncio.gather(*(both.run("notes.add", text) for text in ("pears", "plums")))
        assert len(await both.rows("notes.all")) == 2
        raise ConnectionError("a calendar does not answer")


async def test_a_store_is_one_account_of_one_module(database: Database, place: Path) -> None:
    opened = await open_notes(database, a_module(place))
    ann, bob = opened("ann"), opened("bob")
    assert await ann.run("notes.add", "figs") == 1
    assert (await ann.rows("notes.all"), await bob.rows("notes.all")) == (FIGS, [])
    with pytest.raises(Conflict):
        await ann.run("notes.add", "figs")
    with pytest.raises(LookupError, match=r"no query 'notes\.none'"):
        await ann.rows("notes.none")
    with pytest.raises(ConnectionError, match="a calendar"):  # which is no outage of the database
        await fail_halfway(bob)
    assert await bob.rows("notes.all") == []
    assert await database.value("show search_path") == "switchboard"
    assert await database.value("select current_user") == "postgres"


async def test_two_modules_may_have_equal_tables_and_queries(database: Database, place: Path) -> None:
    one = await open_notes(database, a_module(place, "one"))
    other_sql = {**NOTES, "migrations/0001_note.sql": "create table note (account text, id bigint, text bigint)"}
    other = await open_notes(database, a_module(place, "other", other_sql))
    for _ in range(2):
        assert await one("").run("notes.add", str(uuid4())) == 1
        assert await other("").run("notes.add", 5) == 1
    assert [row["text"] for row in await other("").rows("notes.all")] == [5, 5]


REFUSED = {
    "drop table note": "begins with",
    "select 1 as one": r"\$1",
    "select $1; delete from note": "one statement",
    "select text from switchboard.fact where $1 = ''": "not of the module's own schema",
    "select text from \"switchboard\".fact where $1 = ''": "not of the module's own schema",
    "select rolname from pg_roles where $1 = ''": "not of the module's own schema",
    "select * from information_schema.tables where $1 = ''": "not of the module's own schema",
    "select pg_catalog.pg_notify('lanes', $1)": "not of the module's own schema",
    "select set_config('role', 'none', true), $1": "set_config",
    "select \"set_config\"('role', 'none', true), $1": "set_config",
    "select SET_CONFIG ('role', 'none', true), $1": "SET_CONFIG",
    "select distinct on ($1) set_config('role', 'none', true)": "set_config",
    "with x as (select set_config('role', 'none', true)) select $1": "set_config",
    "select $1 from query_to_xml('select 1', true, true, '') as x": "query_to_xml",
    "select lo_create(0), $1": "lo_create",
    "select $1, U&\"s\\0065t_config\"('role', 'none', true)": "stands alone",
    "select E'\\'', set_config('role', 'none', true) -- ', $1": "stands alone",
    "select 1 --\r, set_config('a', 'b', true), $1": "set_config",
    "select $1 /* /* */ , set_config('role', 'none', true) -- */": "comments begin",
    "select $1, $$ '": "has no end",
    "select $1, 'open": "has no end",
}


@pytest.mark.parametrize(("sql", "why"), REFUSED.items())
async def test_what_would_leave_the_room_is_not_opened(database: Database, place: Path, sql: str, why: str) -> None:
    manifest = a_module(place, sql={**NOTES, "queries/notes.sql": f"-- name: bad\n{sql}\n"})
    assert await migrate_modules(database, [manifest]) == {}
    with pytest.raises(ConfigurationError, match=why):
        await open_stores(database, manifest)


ALLOWED = (
    "insert into note as n (account, text) values ($1, lower('Figs')) on conflict (account, text) do nothing",
    "with recursive t(n) as (select 1 union all select n + 1 from t where n < 9) select count(*) from t where $1 > ''",
    "select e.text, count(*) filter (where (e.id in (1, 2))) over (order by e.id) from note e where e.account = $1",
    "update note set (text, account) = (select 'a', $1) where account = $1 and id = any ($2::integer[])",
    "select a.* from unnest($2::text[], $3::integer[]) as a(text, n) where $1 <> '' and 1.5 < n::numeric(10, 2)",
    "delete from note where account = $1 and exists (select from note) returning id, coalesce(text, 'it''s -- one;')",
    "merge into note n using (values ($1)) as v(a) on n.account = v.a when matched then delete",
)


@pytest.mark.parametrize("sql", ALLOWED)
async def test_what_stays_in_the_room_is_opened_and_runs(database: Database, place: Path, sql: str) -> None:
    opened = await open_notes(database, a_module(place, sql={**NOTES, "queries/n.sql": f"-- name: good\n{sql};\n"}))
    async with opened.transaction() as connection:
        await connection.prepare(opened.queries["n.good"])


async def has_cage(opened: ModuleStores) -> bool:
    """Whether our tables are out of reach of the module itself, not only of its queries."""
    try:
        async with opened.transaction() as connection:
            await connection.fetch("select * from switchboard.fact")
    except asyncpg.InsufficientPrivilegeError:
        return True
    return False


@pytest.mark.parametrize(("rights", "caged"), [("superuser", True), ("createrole", True), ("", False)])
async def test_the_cage_holds_for_each_role_that_can_have_one(
    empty_database_url: str, place: Path, rights: str, caged: bool
) -> None:
    async with owned(empty_database_url, rights) as database:
        assert await check_cages(database, [a_module(place)]) == []
        for _ in range(2):  # the second start finds it all
            opened = await open_notes(database, a_module(place))
            assert (opened.caged, await has_cage(opened)) == (caged, caged)
            told = [one.remedy for one in await check_cages(database, [a_module(place)])]
            assert ["create role" in one for one in told] == ([] if caged else [True])
            ann = opened(str(uuid4()))
            assert await ann.run("notes.add", "figs") == 1
            assert await ann.rows("notes.all") == FIGS


async def test_without_create_an_administrator_is_asked_for_two_statements(
    empty_database_url: str, place: Path
) -> None:
    async with owned(empty_database_url, "", create=False) as database:
        manifest = a_module(place)
        failures = await migrate_modules(database, [manifest])
        statements = failures["notes"].partition("in this database: ")[2].split("; ")
        assert len(statements) == 2
        await run_as_superuser(empty_database_url, *statements)
        opened = await open_notes(database, manifest)
        assert opened.caged
        assert await has_cage(opened)
        assert await opened("").run("notes.add", "figs") == 1


async def test_the_cage_holds_behind_a_pooler(database_url: str, tmp_path: Path, place: Path) -> None:
    with pooler(new_pgbouncer(), database_url, tmp_path, size=1) as url:
        direct = await Database.connect(database_url)
        await migrate(direct, pooled=True)
        database = await Database.connect(url, direct_url=database_url)
        opened = await open_notes(database, a_module(place))
        ann = opened("ann")
        both = [ann.run("notes.add", "figs"), database.value("select count(*) from fact")]
        assert await asyncio.gather(*both) == [1, 0]
        assert await has_cage(opened)
        # The pooler has one connection: whatever the module set is gone from it.
        shown = [await database.value(f"show {name}") for name in ("role", "search_path", "statement_timeout")]
        assert shown == ["none", "switchboard", "0"]
        await database.close()
        await direct.close()


async def test_a_query_and_a_crowd_of_them_have_limits(database: Database, place: Path) -> None:
    await open_notes(database, a_module(place))
    ann = (await open_stores(database, a_module(place), StoreLimits(statement_s=0.2)))("ann")
    with pytest.raises(Unavailable, match="took too long"):
        await asyncio.wait_for(ann.rows("notes.slowly"), SOON)
    async with ann.transaction(), ann.transaction():
        with pytest.raises(Unavailable, match="has 2 connections in use"):
            await asyncio.wait_for(ann.rows("notes.all"), SOON)
    assert await ann.rows("notes.all") == []


async def test_a_migration_that_fails_fails_its_module_alone(database: Database, place: Path) -> None:
    broken = {
        "cut": {**NOTES, "migrations/0002_bad.sql": "create table made (n integer); select nothing_of_this"},
        "thief": {"migrations/0001_bad.sql": "create view mine as select * from switchboard.fact"},
        "quitter": {"migrations/0001_bad.sql": "create table made (n integer); commit"},
        "spy": {"functions/spy.sql": "create function f() returns text as $$ select set_config('a', 'b', true) $$"},
        "unnamed": {"migrations/first.sql": "select 1"},
    }
    manifests = [a_module(place, name, sql) for name, sql in broken.items()]
    absent = ModuleManifest("absent", (), "absent:open", sql="no_such_package.sql")
    shouting = ModuleManifest("Loud", (), "loud:open", sql="notes_package.sql")
    failures = await migrate_modules(database, [*manifests, absent, shouting, a_module(place)])
    assert failures.keys() == {*broken, "absent", "Loud"}
    assert await database.value("select array_agg(distinct component::text) from migration") == [
        "switchboard",
        "switchboard_notes",
    ]
    assert await database.value("select count(*) from pg_namespace where nspname like 'switchboard_%'") == 1


async def test_modules_share_packages_of_tables_and_each_has_its_own(database: Database, place: Path) -> None:
    later = {
        "migrations/0001_tag.sql": "create table tag (account text, id integer references note (id), tag text)",
        "queries/tags.sql": "-- name: of\nselect t.tag from tag t join note n on n.id = t.id where n.account = $1;\n",
    }
    shared = {
        **NOTES,
        "migrations/0001_note.sql": NOTES["migrations/0001_note.sql"].replace("generated", "unique generated"),
    }
    a_module(place, "common", shared)
    one, other = (
        replace(a_module(place, name, later), sql=("common_package.sql", f"{name}_package.sql"))
        for name in ("one", "other")
    )
    opened = [await open_notes(database, manifest) for manifest in (one, other, one)]
    assert await opened[0]("ann").run("notes.add", "figs") == 1
    assert await opened[1]("ann").rows("notes.all") == []
    assert await opened[1]("ann").rows("tags.of") == []
    a_module(place, "common", {"migrations/0002_more.sql": "alter table note add column more text"})
    assert [each.component for each in await migrate_module(database, one)] == ["switchboard_one:common_package.sql"]
    twice = replace(one, sql=("common_package.sql", "common_package.sql"))
    with pytest.raises(ConfigurationError, match=r"has a query notes\.\w+, too"):
        await open_stores(database, twice)


async def test_functions_are_made_again_and_an_older_package_is_refused(database: Database, place: Path) -> None:
    doubled = "create or replace function doubled(n integer) returns integer language sql as $$ select {} * abs(n) $$;"
    call = {"queries/f.sql": "-- name: call\nselect doubled($2) as n where $1 <> ''\n"}
    for factor in (2, 4):
        sql = {**NOTES, **call, "functions/doubled.sql": doubled.format(factor)}
        opened = await open_notes(database, a_module(place, sql=sql))
        assert await opened("ann").rows("f.call", -3) == [{"n": 3 * factor}]
    newer = a_module(place, sql={**NOTES, "migrations/0002_more.sql": "alter table note add column at timestamptz"})
    assert await migrate_modules(database, [newer]) == {}
    (place / "notes_package/sql/migrations/0002_more.sql").unlink()
    assert "install the newer package" in (await migrate_modules(database, [newer]))["notes"]

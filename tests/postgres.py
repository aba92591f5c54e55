"""One PostgreSQL for all tests of a run, and a fresh database for each test that asks for one.

Fixtures: `postgres` (session), `database_url` and `empty_database_url` (function), to be imported by conftest.py. In:
nothing; out: URLs for asyncpg. The schema is created once, in a template that is copied for each test. pytest-xdist
workers share the server by its own lock files; the last to leave stops it and removes its data.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Final
from urllib.parse import quote, urlsplit

import asyncpg
import pytest

from switchboard.embedded.files import USERS
from switchboard.embedded.postmaster import EmbeddedServer, stop
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.store.database import Database
from switchboard.store.migrate import migrate

# Tests of durability start servers of their own; here only speed counts.
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "log_checkpoints": "off",
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
_IN_MEMORY: Final = {
    # Reads are from memory: handing them to other processes, as PostgreSQL 18 does by itself, takes longer.
    "io_method": "sync",
    "shared_buffers": "64MB",
    "max_parallel_workers_per_gather": "0",
    "file_copy_method": "clone",  # the kernel copies the files of a new database: a sixth less
}
MIGRATED = "migrated"
"""The template: a database with the schema, to which nobody is connected."""
_CATALOGS: Final = """
select oid::regclass::text as name from pg_class
where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r' and not relisshared
"""
_PREFIX = f"switchboard-tests-{os.geteuid()}"


AN_ID: Final = (
    "(lpad(to_hex((extract(epoch from now()) * 1000)::bigint), 12, '0') || '70008000'"
    " || lpad(to_hex(n), 12, '0'))::uuid"
)
"""SQL of a UUIDv7 of this moment that ends in the number `n`: there is a partition for it."""


class Administrator:
    """A connection that outlives the loops of tests: it has one of its own, in a thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection | None = None
        self._one_at_a_time = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    async def execute(self, statement: str) -> None:
        """Run a statement; from any loop."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._execute(statement), self._loop))

    async def _execute(self, statement: str) -> None:
        async with self._one_at_a_time:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(self._url)
            await self._connection.execute(statement)

    def close(self) -> None:
        """Disconnect."""
        asyncio.run_coroutine_threadsafe(self._disconnect(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.close()


@dataclass(frozen=True, slots=True)
class Postgres:
    """The shared server. Databases made with `create` belong to the caller until `drop`."""

    server: EmbeddedServer
    administrator: Administrator

    def url(self, database: str) -> str:
        """The URL of `database` on this server."""
        parts = urlsplit(self.server.url)
        return f"{parts.scheme}://{parts.netloc}/{quote(database, safe='')}?{parts.query}"

    async def create(self, template: str = MIGRATED) -> str:
        """A new database with a name of its own, copied from `template` (to which nobody may be connected)."""
        name = f"test_{uuid.uuid4().hex}"
        # Files are copied, not logged: less than half the time where nothing waits for the disk.
        await self.administrator.execute(f'create database "{name}" template "{template}" strategy file_copy')
        return name

    async def make_template(self) -> None:
        """Create MIGRATED, unless another worker has. Only one at a time may call this."""
        connection = await asyncpg.connect(self.url("postgres"))
        names = await connection.fetch("select datname from pg_database")
        await connection.close()
        if MIGRATED in {row["datname"] for row in names}:
            return
        await self._admit_roles()
        unfinished = await self.create("template0")
        database = await Database.connect(self.url(unfinished), size=1)
        try:
            await migrate(database)
            # Their files are copied for every test: so a tenth of them is gone.
            for row in await database.rows(_CATALOGS):
                await database.run(f"vacuum full {row['name']}")
        finally:
            await database.close()
        # What PostgreSQL keeps of its catalogs for the next connection is copied, too, and not made in each database.
        await (await asyncpg.connect(self.url(unfinished))).close()
        await self.administrator.execute(f'alter database "{unfinished}" rename to "{MIGRATED}"')

    async def _admit_roles(self) -> None:
        """Let tests connect as roles that they create; the server itself admits only its superuser."""
        access = self.server.data_dir / "pg_hba.conf"
        ours = "local all postgres peer map=switchboard\nlocal all all trust\n"
        access.write_text(ours + access.read_text())
        await self.administrator.execute("select pg_reload_conf()")

    async def drop(self, database: str) -> None:
        """Remove `database`, disconnecting remaining clients."""
        await self.administrator.execute(f'drop database if exists "{database}" with (force)')


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The server of this test run, of the programs in TEST_POSTGRES if it is set.

    Not in pytest's own temporary directory: if root runs us, only root enters that.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
    place = Path(tempfile.gettempdir(), f"{_PREFIX}-{run}")
    # A loop of its own (not set as current): the tests' loops come and go while the server stays.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        binaries = Path(other) if (other := os.environ.get("TEST_POSTGRES")) else None
        use = embedded_postgres(place, settings=FAST | _IN_MEMORY, binaries=binaries)
        with _gate():
            for left in place.parent.glob(f"{_PREFIX}-*"):
                runner.run(_sweep(left))
            started = runner.run(use.__aenter__())
            administrator = Administrator(started.url)
            server = Postgres(started, administrator)
            runner.run(server.make_template())
        yield server
        administrator.close()
        with _gate():
            runner.run(use.__aexit__(None, None, None))
            runner.run(_sweep(place))


@pytest.fixture
async def database_url(postgres: Postgres) -> AsyncIterator[str]:
    """The URL of a fresh database with the schema and nothing in it, dropped after the test."""
    name = await postgres.create()
    yield postgres.url(name)
    await postgres.drop(name)


@pytest.fixture
async def empty_database_url(postgres: Postgres) -> AsyncIterator[str]:
    """The same without the schema."""
    name = await postgres.create("template0")
    yield postgres.url(name)
    await postgres.drop(name)


@contextmanager
def _gate() -> Iterator[None]:
    """Held while a worker joins or leaves, so that nobody joins a directory that is being removed."""
    with Path(tempfile.gettempdir(), f"{_PREFIX}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def _sweep(place: Path) -> None:
    """Remove the server and data of a run that nobody uses (any more: its pytest may have been killed)."""
    if not _in_use(place / USERS):
        await stop(place, immediate=True)
        shutil.rmtree(place, ignore_errors=True)


def _in_use(users: Path) -> bool:
    if not users.exists():
        return False
    with users.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False

"""Bring a database to the current schema: numbered files of DDL, then the functions, in one transaction.

Called by `app/backups.py` at every start, and by `app/ops/` for `switchboard db` and `upgrade`. The files of
`sql/migrations` and `sql/functions` are applied; one process migrates at a time. Next: `store/database.py`, whose
queries rely on it.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Final

import asyncpg
import structlog
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from switchboard import __version__
from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.store.database import ROLE_SETTINGS, SCHEMA, SQL, Database, Row, query

log = structlog.get_logger(__name__)

COMPONENT: Final = "switchboard"
LOCK: Final = 0x5357_4244  # an arbitrary key of ours ("SWBD"): two migrators must not meet
A_DAY_S: Final = 86_400.0
"""A migration may rewrite a large table, and a second process waits for it."""
_LOCK_WAIT: Final = "60s"
"""For a table in use: everybody else queues behind us, so we do not wait for long."""
_LOOK_EVERY_S: Final = 0.25
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_OTHERS_OBJECTS: Final = (
    asyncpg.FeatureNotSupportedError,  # such as a view on a column that changes
    asyncpg.UndefinedObjectError,  # an index that the new type of its column has no operators for
    asyncpg.DependentObjectsStillExistError,
)


class Migration(Struct, frozen=True):
    """One file `NNNN_name.sql` of a component; components other than ours will have their own tables."""

    component: str
    number: int
    name: str
    sql: str


class Upgrade(Struct, frozen=True):
    """A database whose tables are about to change: its schema and the next, PostgreSQL's version, bytes of data.

    `schemas`: by the names that they have in PostgreSQL, ours and those of modules.
    """

    before: int
    after: int
    server: int
    size_bytes: int
    schemas: Sequence[str]


BackUp = Callable[[Upgrade], Awaitable[None]]
"""Is awaited before anything changes, while the lock of migrations is held. If it raises, nothing changes."""


BeforeCommit = Callable[[tuple[Migration, ...]], Awaitable[None]]
"""Is told what was applied. If it raises, all of that is undone."""


class _Undone(Exception):
    """All was well, and is undone."""


def migrations() -> tuple[Migration, ...]:
    """All migrations that this release knows, in order."""
    found = []
    for file in SQL.joinpath("migrations").iterdir():
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
            found.append(Migration(COMPONENT, int(match[1]), match[2], file.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda m: m.number))


@cache
def known_schema() -> int:
    """The schema version of this release."""
    return migrations()[-1].number


def functions() -> str:
    """The functions of this release; applying them again changes nothing."""
    found = sorted(SQL.joinpath("functions").iterdir(), key=lambda file: file.name)
    return "\n".join(file.read_text(encoding="utf-8") for file in found)


async def try_migrations(database: Database) -> tuple[Migration, ...]:
    """Apply what `migrate` would, in a transaction that is undone. Returns the same; raises also ConfigurationError."""
    found: tuple[Migration, ...] = ()

    async def undo(migrations: tuple[Migration, ...]) -> None:
        nonlocal found
        found = migrations
        raise _Undone

    try:
        await migrate(database, before_commit=undo)
    except _Undone:
        return found
    except asyncpg.PostgresError as error:
        raise ConfigurationError(f"the database cannot be migrated: {error}") from error
    return found


async def migrate(
    database: Database,
    *,
    pooled: bool = False,
    back_up: BackUp | None = None,
    before_commit: BeforeCommit | None = None,
) -> tuple[Migration, ...]:
    """Apply the migrations that are missing and return them, and the functions if they differ; all or nothing.

    `back_up` is called before the tables of a database that is not new change, `before_commit` when all has changed.
    `pooled`: others connect through a pooler in transaction mode, so settings of connections are set on our role.
    Raises `ConfigurationError` for a database of a newer release, running processes of an older one, a missing
    privilege, and foreign objects on our tables; `Unavailable` if a table is locked for long; what `back_up` raises.
    """
    try:
        async with database.connection() as connection, connection.transaction():
            missing = await _migrate(connection, back_up, alone=before_commit is None)
            if pooled:
                await _set_on_role(connection)
            if before_commit is not None:
                await before_commit(missing)
            return missing
    except asyncpg.InsufficientPrivilegeError as error:
        raise ConfigurationError(
            f"PostgreSQL does not let us make or change the schema {SCHEMA}: {error}; "
            f"let our user own it (create schema {SCHEMA} authorization OUR_USER)"
        ) from error
    except _OTHERS_OBJECTS as error:
        raise ConfigurationError(
            f"PostgreSQL cannot change our tables: {error.message}{f' ({error.detail})' if error.detail else ''}; "
            "drop the view or index that is not ours, and make it again after the upgrade"
        ) from error
    except Unavailable as error:
        raise Unavailable(
            f"the migration of the database was interrupted, and undone as a whole; start again ({error.message})"
        ) from error


async def _migrate(
    connection: PoolConnectionProxy[Row], back_up: BackUp | None, *, alone: bool
) -> tuple[Migration, ...]:
    """`alone`: wait until no process of an older release is alive."""
    known = migrations()
    await lock_migrations(connection)
    if await connection.fetchval("select to_regnamespace($1) is null", SCHEMA):
        # Not `if not exists`, which requires the right to create even if there is nothing to create.
        await connection.execute(f"create schema {SCHEMA}")
    done = await _last_migration(connection)
    require_known(done)
    missing = tuple(m for m in known if m.number > done)
    if done and missing and alone:
        await _require_no_older(connection)
    if done and missing and back_up is not None:
        await back_up(await _upgrade(connection, done, missing[-1].number))
    for migration in missing:
        if done:
            log.info("migrating the database", to=f"{migration.number:04} {migration.name}")
        await connection.execute(migration.sql, timeout=A_DAY_S)
        await connection.execute(
            "insert into migration (component, number, name) values ($1, $2, $3)",
            *(migration.component, migration.number, migration.name),
        )
    await _replace_functions(connection)
    await connection.execute(query("partitions.make"), None)
    await connection.execute(query("facts.forget_again"))  # a restored backup may still contain forgotten facts
    return missing


async def lock_migrations(connection: PoolConnectionProxy[Row]) -> None:
    """Be the only one that migrates until this transaction ends, and wait for no table for long."""
    if not await connection.fetchval("select pg_try_advisory_xact_lock($1)", LOCK):
        log.info("waiting for another process that brings the database to its schema")
        await connection.execute("select pg_advisory_xact_lock($1)", LOCK, timeout=A_DAY_S)
    await connection.execute(f"set local lock_timeout = '{_LOCK_WAIT}'")


async def _upgrade(connection: PoolConnectionProxy[Row], before: int, after: int) -> Upgrade:
    kept = [row["name"] for row in await connection.fetch(query("checkup.schemas"))]
    size = await connection.fetchval(query("checkup.data"), kept)
    return Upgrade(before, after, connection.get_server_version().major, size, kept)


async def _require_no_older(connection: PoolConnectionProxy[Row]) -> None:
    """Wait for processes of older releases that have died; raise ConfigurationError for one that lives.

    A crashed process looks alive until its ttl is over; only one with a new heartbeat is.
    """
    older = await _older(connection)
    seen = {row["process_id"]: row["beat"] for row in older}
    if older:
        log.info("waiting until processes of an older release have stopped, or count as dead", processes=len(older))
    while older:
        if living := [row for row in older if row["beat"] > seen.get(row["process_id"], _LONG_AGO)]:
            names = ", ".join(f"{row['role']} {row['version']} on {row['host']} (pid {row['pid']})" for row in living)
            raise ConfigurationError(
                f"processes of an older release are running: {names}; "
                "stop them all before the database is brought to the schema of this one, see docs/upgrading.md"
            )
        await asyncio.sleep(_LOOK_EVERY_S)
        older = await _older(connection)


async def _older(connection: PoolConnectionProxy[Row]) -> list[Row]:
    rows = await connection.fetch(query("processes.alive"))
    return [row for row in rows if _release(row["version"]) < _release(__version__)]


async def _set_on_role(connection: PoolConnectionProxy[Row]) -> None:
    for row in await connection.fetch(query("role.to_set"), list(ROLE_SETTINGS), list(ROLE_SETTINGS.values())):
        await connection.execute(row[0])


async def _last_migration(connection: PoolConnectionProxy[Row]) -> int:
    if not await connection.fetchval("select to_regclass('migration') is not null"):
        return 0
    return int(
        await connection.fetchval("select coalesce(max(number), 0) from migration where component = $1", COMPONENT)
    )


def require_known(schema: int) -> None:
    """Raise ConfigurationError for the schema of a newer release."""
    if schema > (newest := migrations()[-1].number):
        raise ConfigurationError(
            f"the database is at schema {schema}, this release knows only {newest}: "
            "install the newer release, or restore a backup made before the upgrade"
        )


async def functions_differ(database: Database) -> bool:
    """Whether `migrate` would replace the functions of a database that has our schema."""
    async with database.connection() as connection:
        return await _lacks_functions(connection, _digest_of(functions()))


def _digest_of(sql: str) -> str:
    return hashlib.sha256(sql.encode()).hexdigest()


async def _lacks_functions(connection: PoolConnectionProxy[Row], digest: str) -> bool:
    """Unless already installed, or installed by a newer release beside which an old process starts again."""
    row = await connection.fetchrow("select digest, release from installed_functions where component = $1", COMPONENT)
    return row is None or (row["digest"] != digest and _release(row["release"]) <= _release(__version__))


async def _replace_functions(connection: PoolConnectionProxy[Row]) -> None:
    sql = functions()
    digest = _digest_of(sql)
    if not await _lacks_functions(connection, digest):
        return
    await connection.execute("set local check_function_bodies = off")  # they call each other, in any order
    await connection.execute(sql)
    await connection.execute(
        "insert into installed_functions (component, digest, release) values ($1, $2, $3) "
        "on conflict (component) do update set digest = excluded.digest, release = excluded.release",
        *(COMPONENT, digest, __version__),
    )


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))

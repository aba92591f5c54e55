"""Bring a database to the present schema: numbered files, one transaction, one migrator at a time.

Called by `app/wiring.py` at every start, and by `app/backup.py` for `switchboard db`. Files of SQL enter, a database
that this release can work on leaves. Next: `store/database.py`, whose queries rely on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import asyncpg
import structlog
from asyncpg.pool import PoolConnectionProxy

from switchboard.domain.errors import ConfigurationError
from switchboard.store.database import SCHEMA, Database, Row

log = structlog.get_logger(__name__)

_LOCK: Final = 0x5357_4244  # an arbitrary key of ours ("SWBD"): two migrators must not meet
_A_DAY_S: Final = 86_400.0
"""A migration may write a great table anew, and whoever comes second waits for it."""
_LOCK_WAIT: Final = "60s"
"""For a table that somebody uses: behind us everybody else waits, so we do not stand there for long."""
_OTHERS_OBJECTS: Final = (
    asyncpg.FeatureNotSupportedError,  # a view on a column that changes
    asyncpg.UndefinedObjectError,  # an index that the new type of its column has no operators for
    asyncpg.DependentObjectsStillExistError,
)


@dataclass(frozen=True, slots=True)
class Migration:
    """One file `NNNN_name.sql`."""

    number: int
    name: str
    sql: str


def migrations() -> tuple[Migration, ...]:
    """All migrations that this release knows, in order."""
    found = []
    for file in files("switchboard.store").joinpath("migrations").iterdir():
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
            found.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda m: m.number))


async def migrate(database: Database) -> tuple[Migration, ...]:
    """Apply what is missing and return it; all or nothing.

    Raises `ConfigurationError` for a database of a newer release, a right that is missing, and something on our tables
    that is not ours; `Unavailable` where somebody holds a table for long.
    """
    try:
        async with database.connection() as connection, connection.transaction():
            return await _migrate(connection)
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


async def _migrate(connection: PoolConnectionProxy[Row]) -> tuple[Migration, ...]:
    known = migrations()
    if not await connection.fetchval("select pg_try_advisory_xact_lock($1)", _LOCK):
        log.info("waiting for another process that brings the database to its schema")
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK, timeout=_A_DAY_S)
    await connection.execute(f"set local lock_timeout = '{_LOCK_WAIT}'")
    if await connection.fetchval("select to_regnamespace($1) is null", SCHEMA):
        # Not `if not exists`, which asks for the right to create also where there is nothing to create.
        await connection.execute(f"create schema {SCHEMA}")
    applied = await connection.fetchval("select to_regclass('migration') is not null")
    done = await connection.fetchval("select max(number) from migration") if applied else 0
    if done > known[-1].number:
        raise ConfigurationError(
            f"the database is at schema {done}, this release knows only {known[-1].number}: "
            "install the newer release again, or restore a backup made before the upgrade"
        )
    missing = tuple(m for m in known if m.number > done)
    for migration in missing:
        if done:
            log.info("migrating the database", to=f"{migration.number:04} {migration.name}")
        await connection.execute(migration.sql, timeout=_A_DAY_S)
        await connection.execute(
            "insert into migration (number, name) values ($1, $2)", migration.number, migration.name
        )
    return missing

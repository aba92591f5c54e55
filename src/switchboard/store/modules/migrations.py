"""Bring the tables of modules to what their packages need: each module in a transaction of its own, after ours.

`app/database.py` calls `migrate_modules` with the manifests of the modules that this process opens, before it opens
them. What is recorded, in the table `migration`, is under the name of the module's schema, and for a package that it
shares with other modules under that and the package's. Whatever does not depend on the numbers of migrations (role,
functions, grants) is made again each time, since a restored backup lacks it. A module that fails has changed nothing,
and the others go on. Next: `stores.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import asyncpg
import structlog
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from switchboard.domain.errors import ConfigurationError
from switchboard.ports.module import ModuleManifest
from switchboard.store.database import Database, Row, query, rows_as
from switchboard.store.migrate import A_DAY_S, lock_migrations
from switchboard.store.modules.rooms import (
    ModuleMigration,
    RoomStatements,
    bounds_of,
    can_enter,
    functions_of,
    migrations_of,
    room_statements,
)
from switchboard.store.modules.statements import SqlBounds, refusal_of_function, refusal_of_migration

log = structlog.get_logger(__name__)

_Connection: TypeAlias = "PoolConnectionProxy[Row]"


class _Undone(Exception):
    """All was well, and is undone."""


class _Found(Struct, frozen=True):
    """What there is of a room, and what our role may make."""

    schema: bool
    ours: bool
    role: bool
    may_make_schema: bool
    may_make_role: bool


async def migrate_modules(database: Database, manifests: Iterable[ModuleManifest]) -> Mapping[str, str]:
    """Migrate these modules; returns by the names of those that cannot be opened why, and what to do about it.

    A manifest without `sql` has nothing to migrate. Raises `Unavailable` if the database is lost or a table is locked
    for long; modules before that are migrated.
    """
    failures = {}
    for manifest in manifests:
        if not manifest.sql:
            continue
        try:
            await migrate_module(database, manifest)
        except ConfigurationError as error:
            log.warning("the tables of a module cannot be made", module=manifest.name, reason=error.message)
            failures[manifest.name] = error.message
    return failures


async def try_module(database: Database, manifest: ModuleManifest) -> tuple[ModuleMigration, ...]:
    """Do what `migrate_module` would, in a transaction that is undone; returns and raises the same."""
    found: tuple[ModuleMigration, ...] = ()
    with suppress(_Undone):
        async with _open_migration(database, manifest) as missing:
            found = missing
            raise _Undone
    return found


async def migrate_module(database: Database, manifest: ModuleManifest) -> tuple[ModuleMigration, ...]:
    """Migrate one module, all or nothing; returns what was missing.

    Raises ConfigurationError with what is wrong with the package, or with the rights that we have, and Unavailable.
    """
    async with _open_migration(database, manifest) as missing:
        return missing


async def is_migrated(database: Database, manifest: ModuleManifest) -> bool:
    """Whether the tables of a module are there, for those who only read them; nothing is made or changed.

    Raises ConfigurationError if they are older or newer than its package.
    """
    async with database.connection() as connection:
        missing = await _missing_migrations(connection, manifest)
    if not missing:
        return True
    if len(missing) < sum(map(len, migrations_of(manifest).values())):
        raise ConfigurationError(
            f"the tables of the module {manifest.name} are older than its package: "
            "a worker of this version brings them up to date when it starts"
        )
    return False


@asynccontextmanager
async def _open_migration(database: Database, manifest: ModuleManifest) -> AsyncIterator[tuple[ModuleMigration, ...]]:
    """Within the transaction of a migration, when all is done."""
    try:
        async with database.connection() as connection, connection.transaction():
            await lock_migrations(connection)
            yield await _migrate_one(connection, manifest)
    except asyncpg.PostgresError as error:
        raise ConfigurationError(f"the migration of the module {manifest.name} failed: {error}") from error


async def _migrate_one(connection: _Connection, manifest: ModuleManifest) -> tuple[ModuleMigration, ...]:
    missing = await _missing_migrations(connection, manifest)
    room = await room_statements(connection, manifest.name)
    caged = await _make_room(connection, room)
    bounds = await bounds_of(connection, manifest)
    await connection.execute(room.look)
    for migration in missing:
        await _apply_migration(connection, room.schema, migration, bounds)
    await _replace_functions(connection, manifest, bounds)
    if caged:
        for grant in room.grants:
            await connection.execute(grant)
    return missing


async def _missing_migrations(connection: _Connection, manifest: ModuleManifest) -> tuple[ModuleMigration, ...]:
    missing: list[ModuleMigration] = []
    for component, known in migrations_of(manifest).items():
        done = await connection.fetchval(query("modules.last_migration"), component)
        newest = max((migration.number for migration in known), default=0)
        if done > newest:
            raise ConfigurationError(
                f"the tables of the module {manifest.name} are at {done}, its package knows only {newest}: "
                "install the newer package, or restore a backup made before it was installed"
            )
        missing += [migration for migration in known if migration.number > done]
    return tuple(missing)


async def _make_room(connection: _Connection, room: RoomStatements) -> bool:
    """Make the schema and the role that are missing; returns whether we can take on the role."""
    (found,) = rows_as(_Found, await connection.fetch(query("modules.room"), room.schema, room.role))
    if not (found.ours if found.schema else found.may_make_schema):
        raise ConfigurationError(
            f"PostgreSQL does not let us make the schema {room.schema}; an administrator must run, in this database: "
            f"{room.make_schema_for_us}; {room.make_role_for_us}"
        )
    if not found.schema:
        await connection.execute(room.make_schema)
    for statement in [*([] if found.role else [room.make_role]), room.join_role]:
        if await can_enter(connection, room):
            return True
        if not found.may_make_role or not await _is_permitted(connection, statement):
            return False
    return await can_enter(connection, room)


async def _is_permitted(connection: _Connection, statement: str) -> bool:
    """Run a statement for which we may lack the right."""
    try:
        async with connection.transaction():
            await connection.execute(statement)
    except asyncpg.InsufficientPrivilegeError:
        return False
    return True


async def _apply_migration(connection: _Connection, schema: str, migration: ModuleMigration, bounds: SqlBounds) -> None:
    if (why := refusal_of_migration(migration.sql, bounds)) is not None:
        raise ConfigurationError(f"the migration {migration.number:04} {migration.name} of {schema} is refused: {why}")
    log.info("migrating the tables of a module", schema=schema, to=f"{migration.number:04} {migration.name}")
    await connection.execute(migration.sql, timeout=A_DAY_S)
    await connection.execute(query("modules.note_migration"), migration.component, migration.number, migration.name)


async def _replace_functions(connection: _Connection, manifest: ModuleManifest, bounds: SqlBounds) -> None:
    for sql in functions_of(manifest):
        if (why := refusal_of_function(sql, bounds)) is not None:
            raise ConfigurationError(f"the functions of the module {manifest.name} are refused: {why}")
        await connection.execute(sql)

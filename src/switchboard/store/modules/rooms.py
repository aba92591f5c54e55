"""The room of a module in a database: its schema, the role that sees nothing else, and the SQL of its package.

Made from a manifest by `stores.py`, which runs the queries, and `migrations.py`, which makes the room. Next:
`statements.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from switchboard.domain.errors import ConfigurationError
from switchboard.ports.module import ModuleManifest
from switchboard.store.database import Row, query, rows_as, split_queries
from switchboard.store.modules.statements import SqlBounds, made_functions

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}")
_LONGEST: Final = 63
"""Bytes of a name in PostgreSQL; a longer one is cut off."""
_MIGRATION: Final = re.compile(r"(\d{4})_(\w+)\.sql")


class RoomStatements(Struct, frozen=True):
    """The DDL of a room, and the statements `enter` and `look` with which each transaction in it begins."""

    schema: str
    role: str
    make_schema: str
    make_schema_for_us: str
    make_role: str
    make_role_for_us: str
    join_role: str
    enter: str
    look: str
    grants: Sequence[str]


class ModuleMigration(Struct, frozen=True):
    """One file `NNNN_name.sql` of a module. `component`: under what it is recorded, one for each package."""

    component: str
    number: int
    name: str
    sql: str


def schema_of(module: str) -> str:
    """The schema of a module. Raises ConfigurationError for a name that cannot be part of one."""
    if not _NAME.fullmatch(module):
        raise ConfigurationError(f"a module has a name of small letters, digits and _, up to 41: not {module!r}")
    return f"switchboard_{module}"


def role_of(module: str, database: str) -> str:
    """The role of a module. Roles belong to the server, so its name has that of the database in it."""
    whole = f"{schema_of(module)}@{database}"
    if len(whole.encode()) <= _LONGEST:
        return whole
    return f"{schema_of(module)}@{hashlib.sha256(database.encode()).hexdigest()[:8]}"


async def room_statements(connection: PoolConnectionProxy[Row], module: str) -> RoomStatements:
    """The statements for the room of a module in the database of this connection."""
    role = role_of(module, await connection.fetchval(query("modules.database")))
    return rows_as(RoomStatements, await connection.fetch(query("modules.statements"), schema_of(module), role))[0]


async def bounds_of(connection: PoolConnectionProxy[Row], manifest: ModuleManifest) -> SqlBounds:
    """What the SQL of a module may name in this database."""
    found = frozenset(row["name"] for row in await connection.fetch(query("modules.schemas")))
    made = frozenset[str]().union(*map(made_functions, functions_of(manifest)))
    return SqlBounds(schema_of(manifest.name), found, made)


async def can_enter(connection: PoolConnectionProxy[Row], room: RoomStatements) -> bool:
    """Whether our role may take on the module's, which then keeps the module within its schema."""
    trial = connection.transaction()
    await trial.start()
    try:
        await connection.execute(room.enter)
    except (asyncpg.InsufficientPrivilegeError, asyncpg.InvalidParameterValueError, asyncpg.UndefinedObjectError):
        return False
    finally:
        await trial.rollback()
    return True


def queries_of(manifest: ModuleManifest) -> Mapping[str, str]:
    """The queries of a module, by names such as `events.in_range`; read as ours are. Raises ConfigurationError."""
    found: dict[str, str] = {}
    for package in manifest.sql_packages:
        for file in _sql_files(manifest, package, "queries"):
            found |= _read_queries(package, file, found)
    return found


def _read_queries(package: str, file: Traversable, known: Mapping[str, str]) -> Mapping[str, str]:
    try:
        read = split_queries(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
    except (KeyError, ValueError) as error:
        raise ConfigurationError(f"{package}: queries/{file.name} cannot be read: {error}") from error
    if twice := sorted(read.keys() & known.keys()):
        raise ConfigurationError(f"{package}: another package of the module has a query {twice[0]}, too")
    return read


def functions_of(manifest: ModuleManifest) -> list[str]:
    """The texts of its `functions`, which are made again at every start; by packages, and the names of their files."""
    found = (file for package in manifest.sql_packages for file in _sql_files(manifest, package, "functions"))
    return [file.read_text(encoding="utf-8") for file in found]


def migrations_of(manifest: ModuleManifest) -> Mapping[str, list[ModuleMigration]]:
    """Its migrations by their components, all in order. Raises ConfigurationError for a file that is no migration.

    The last package is recorded under the name of the schema, a shared one under its own name beside that.
    """
    schema, packages = schema_of(manifest.name), manifest.sql_packages
    components = [*(f"{schema}:{package}" for package in packages[:-1]), schema]
    return {
        component: [_read_migration(component, package, file) for file in _sql_files(manifest, package, "migrations")]
        for component, package in zip(components, packages, strict=True)
    }


def _read_migration(component: str, package: str, file: Traversable) -> ModuleMigration:
    match = _MIGRATION.fullmatch(file.name)
    if match is None:
        raise ConfigurationError(f"{package}: a migration has a name like 0001_events.sql, not {file.name}")
    return ModuleMigration(component, int(match[1]), match[2], file.read_text(encoding="utf-8"))


def _sql_files(manifest: ModuleManifest, package: str, directory: str) -> Iterable[Traversable]:
    """The files `*.sql` of one directory of the package, by name; none if there is no such directory."""
    try:
        place = files(package) / directory
    except (ModuleNotFoundError, TypeError, ValueError) as error:
        raise ConfigurationError(f"the module {manifest.name} has no package {package!r}: {error}") from error
    if not place.is_dir():
        return []
    return sorted((file for file in place.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)

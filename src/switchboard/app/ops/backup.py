"""Backups: our schema and those of modules into one file and back, by PostgreSQL's own programs.

Called by `switchboard db`, and by `installation/` for the database of a whole installation. In: settings and a file;
out: a finished backup (never half a one), or a restored database (never half a one: it is one transaction). Next:
`app/dumps.py`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from switchboard.app.backups import migrate_with_backup
from switchboard.app.database import existing_database
from switchboard.app.dumps import (
    PostgresPrograms,
    Progress,
    dump_options,
    end_program,
    find_tools,
    partial_file,
    run_program,
    start_program,
)
from switchboard.app.settings import Settings
from switchboard.domain.errors import ConfigurationError, Conflict, InvalidInput, NotFound
from switchboard.store.checkup import (
    OpenWork,
    doubt_of_replies,
    kept_schemas,
    open_work,
    others_connected,
    schema_facts,
    server_facts,
    withdrawn_here,
)
from switchboard.store.database import Database
from switchboard.store.memory import facts
from switchboard.store.migrate import Migration, migrate


class RestoredDatabase(Struct, frozen=True):
    """The migrations that a backup still needed, and what was open when it was made.

    Messages are answered again; replies are `uncertain`, and wait for a person.
    """

    migrated: tuple[Migration, ...]
    open: OpenWork


async def migrate_database(settings: Settings, *, backup: bool = True) -> tuple[Migration, ...]:
    """Bring the database to the present schema, a new one if there is none; returns what was applied.

    `backup`: make one before tables change. Raises ConfigurationError, Unavailable.
    """
    async with existing_database(settings, create=True) as database:
        return await migrate_with_backup(settings, database, backup=backup)


async def back_up(settings: Settings, file: Path, progress: Progress) -> int:
    """Write a backup to `file`, whole or not at all, readable by its owner only; returns its size in bytes.

    This is safe while the switchboard works: it is one snapshot. Raises ConfigurationError, Conflict, Unavailable.
    """
    async with existing_database(settings) as database:
        if (await schema_facts(database)).migration == 0:
            raise Conflict("there is nothing to back up: the database is empty")
        tools = await find_tools(settings, (await server_facts(database)).major)
        with partial_file(file) as partial:
            options = [*dump_options(await kept_schemas(database)), f"--file={partial}"]
            await run_program(tools, "pg_dump", options, database.url, lambda: progress(partial.stat().st_size))
            size = partial.stat().st_size
    return size


async def dump(settings: Settings, write: Callable[[bytes], None]) -> int:
    """Write the same as `back_up`, piece by piece; returns the number of the newest migration in it.

    Raises ConfigurationError, Conflict, Unavailable, and what `write` raises.
    """
    async with existing_database(settings) as database:
        schema = (await schema_facts(database)).migration
        if schema == 0:
            raise Conflict("there is nothing to back up: the database is empty")
        tools = await find_tools(settings, (await server_facts(database)).major)
        process = await start_program(tools, "pg_dump", dump_options(await kept_schemas(database)), database.url)
        await end_program(process, "pg_dump", write)
    return schema


def _require_file(file: Path) -> None:
    if not file.is_file():
        raise NotFound(f"there is no backup {file}")


async def restore(
    settings: Settings, file: Path, progress: Progress, *, force: bool, scratch: Path | None = None
) -> RestoredDatabase:
    """Restore the backup `file` into an empty database or, with `force`, over a full one; one transaction.

    Whatever the full one has forgotten is noted in that transaction, and forgotten by the following migration or, if
    that fails, at the next start. The backup is unpacked in `scratch`, by default the system's. Raises NotFound,
    InvalidInput for a file that is not a backup, Conflict if the database is not empty or is in use.
    """
    _require_file(file)
    async with existing_database(settings, create=True) as database:
        await _require_free(database, force=force)
        tools = await find_tools(settings, (await server_facts(database)).major)
        with tempfile.TemporaryDirectory(prefix="switchboard-restore-", dir=scratch) as directory:
            script, forgotten = Path(directory, "backup.sql"), Path(directory, "forgotten.sql")
            await asyncio.to_thread(forgotten.write_text, await forgotten_there(database))
            await unpack(tools, file, script, lambda: progress(script.stat().st_size if script.exists() else 0))
            await replace_schemas(tools, database.url, drops_of(await kept_schemas(database)), (script, forgotten))
        migrated = await migrate(database, pooled=settings.database_direct_url is not None)
        return RestoredDatabase(migrated, await open_work(database))


def drops_of(schemas: Iterable[str]) -> list[str]:
    """The statements that make room for what is restored."""
    return [f'drop schema if exists "{name}" cascade' for name in schemas]


async def replace_schemas(tools: PostgresPrograms, url: str, first: Sequence[str], scripts: Sequence[Path]) -> None:
    """Run the scripts in one transaction that begins with the statements `first`, such as those of `drops_of`.

    What is unsent in the restored schema may have been sent since, and becomes `uncertain`.

    Raises ConfigurationError; then nothing has changed.
    """
    options = ["--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", "--output=/dev/null"]
    options += [f"--command={one}" for one in first]
    options += [f"--file={one}" for one in scripts]
    await run_program(tools, "psql", [*options, f"--command={doubt_of_replies()}"], url, lambda: None)


async def forgotten_there(database: Database) -> str:
    """SQL by which a restored database forgets what this one has forgotten, and admits nobody whom this one refuses."""
    if not (await schema_facts(database)).migration:
        return ""
    return await facts.forgotten_here(database) + await withdrawn_here(database)


async def _require_free(database: Database, *, force: bool) -> None:
    if others := await others_connected(database):
        raise Conflict(f"the switchboard is running ({others} connections); stop it before a restore")
    tables = (await schema_facts(database)).tables
    if tables and not force:
        raise Conflict(f"the database is not empty ({tables} tables); use --force to overwrite it")


async def unpack(tools: PostgresPrograms, file: Path, script: Path, watch: Callable[[], None]) -> None:
    """The backup as SQL.

    It is unpacked completely before any of it runs: a truncated backup must not be half restored.
    """
    try:
        await run_program(tools, "pg_restore", ["--no-owner", "--no-acl", f"--file={script}", str(file)], None, watch)
    except ConfigurationError as error:
        if "unsupported version" in error.message:  # of the format: those who wrote it were newer
            raise InvalidInput(
                f"{file} was written by a newer PostgreSQL than the pg_restore {tools.major} in {tools.directory} "
                "can read; restore it into the version that wrote it, or a newer one"
            ) from None
        raise InvalidInput(
            f"{file} is not a backup made by `switchboard db backup`, or it is damaged: {error.message}"
        ) from None

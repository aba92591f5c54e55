"""What an upgrade would change in the database, tried without changing it.

Called by `switchboard upgrade --check`. In: settings; out: what would be applied, whether a backup can be made, and how
the trial went. A database that nobody uses is tried in a transaction that is undone; the embedded one of a running
house in a copy of its files, started beside it; one of others that is in use is not tried. Next: `store/migrate.py`.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from switchboard.app.backups import find_obstacle, free_bytes
from switchboard.app.database import database_url, one_connection
from switchboard.app.dumps import find_tools, own_directory, run_program
from switchboard.app.settings import Settings
from switchboard.domain.errors import ConfigurationError, SwitchboardError
from switchboard.embedded.binaries import UnprivilegedUser, account_for
from switchboard.embedded.files import disk_errors
from switchboard.embedded.postmaster import stop
from switchboard.embedded.sizes import settings_of
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.lanes.faults import point
from switchboard.store.checkup import connections, data_bytes, schema_facts, server_facts
from switchboard.store.database import Database
from switchboard.store.migrate import functions_differ, migrations, require_known, try_migrations

TrialKind = Literal["undone", "copy", "none"]
_ROOM: Final = 1.2
"""Of the space that a copy takes."""
_CANNOT_TELL: Final[dict[TrialKind, str]] = {
    "undone": "",
    "copy": "how long it takes with nothing else running: perhaps less",
    "none": "whether it works, nor how long it takes: stop all processes and repeat this, or try a restored backup",
}


class Trial(Struct, frozen=True):
    """How the migrations were tried, for how many seconds, what went wrong, and what it cannot tell."""

    kind: TrialKind
    seconds: float = 0.0
    problem: str = ""
    cannot_tell: str = ""


class UpgradeCheck(Struct, frozen=True):
    """The schema that the database has and the one of this release, the migrations between them, and bytes.

    `replaces_functions`: of the database, which takes no time. `backup_obstacle`: why no backup can be made before;
    None: one can. `running`: the processes that must be stopped first. `trial` is None if no table changes.
    """

    schema: int
    newest: int
    migrations: tuple[str, ...]
    replaces_functions: bool
    data_bytes: int
    free_bytes: int
    backup_obstacle: str | None = None
    trial: Trial | None = None
    running: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether nothing is known that would prevent the upgrade."""
        return self.backup_obstacle is None and (self.trial is None or not self.trial.problem)


async def check_upgrade(settings: Settings) -> UpgradeCheck:
    """Look at the database, and try the migrations that it lacks. Raises ConfigurationError, Unavailable."""
    async with database_url(settings) as url, one_connection(url) as database:
        at = (await schema_facts(database)).migration
        require_known(at)
        known = migrations()
        missing = tuple(f"{one.number:04d}_{one.name}" for one in known if one.number > at)
        functions = bool(at) and await functions_differ(database)
        sizes = (await data_bytes(database), free_bytes(settings.data_dir))
        found = UpgradeCheck(at, known[-1].number, missing, functions, *sizes)
        if not missing or not at:
            return found
        obstacle = await find_obstacle(settings, (await server_facts(database)).major, found.data_bytes)
        running = tuple(f"{one.name} from {one.host}" for one in await connections(database))
        if running:
            trial = await _try_beside(settings, database, url)
        else:
            trial = await _run_trial("undone", lambda: _in_place(database))
        return replace(found, backup_obstacle=obstacle, trial=trial, running=running)


async def _try_beside(settings: Settings, database: Database, url: str) -> Trial:
    """Without being in the way of those who use it."""
    if settings.database_url is None and settings.database_direct_url is None:
        return await _run_trial("copy", lambda: _in_copy(settings, database, url))
    return Trial("none", cannot_tell=_CANNOT_TELL["none"])


async def _run_trial(kind: TrialKind, work: Callable[[], Awaitable[float]]) -> Trial:
    try:
        seconds = await work()
    except SwitchboardError as error:
        return Trial(kind, problem=error.message)
    return Trial(kind, round(seconds, 1), cannot_tell=_CANNOT_TELL[kind])


async def _in_place(database: Database) -> float:
    started = time.monotonic()
    await try_migrations(database)
    return time.monotonic() - started


async def _in_copy(settings: Settings, database: Database, url: str) -> float:
    """Seconds that the migrations take in a base backup, which is removed again."""
    place = settings.data_dir / "postgres"
    need, free = int(_ROOM * _bytes_below(place)), free_bytes(settings.data_dir)
    if free < need:
        raise ConfigurationError(
            f"a copy of the database needs {need >> 20} MiB in {settings.data_dir}, and {free >> 20} MiB are free; "
            "stop all processes and repeat this: then no copy is needed"
        )
    top = settings.data_dir / ".upgrade"
    copy = top / "postgres"
    await stop(copy)  # one that a trial has left that was killed
    with disk_errors(settings.data_dir), own_directory(top, "trial"):
        tools = await find_tools(settings, (await server_facts(database)).major)
        await run_program(tools, "pg_basebackup", [f"--pgdata={copy}", "--checkpoint=fast"], url, lambda: None)
        await asyncio.to_thread(_hand_over, copy, account_for(place))
        small = settings_of("small")
        async with (
            embedded_postgres(copy, binaries=settings.postgres_binaries, settings=small) as server,
            one_connection(server.url) as tried,
        ):
            point("trial_begun")
            return await _in_place(tried)


def _bytes_below(place: Path) -> int:
    total = 0
    for file in place.rglob("*"):
        with suppress(OSError):  # PostgreSQL removes files at any time
            total += file.lstat().st_size
    return total


def _hand_over(copy: Path, account: UnprivilegedUser | None) -> None:
    """Where we are root, it belongs to the user of the original; and no lock file of the original counts."""
    for name in ("switchboard.lock", "switchboard.users"):
        (copy / name).unlink(missing_ok=True)
    if account is not None:
        copy.parent.chmod(0o711)
        for path in (copy, *copy.rglob("*")):
            shutil.chown(path, account.uid, account.gid)

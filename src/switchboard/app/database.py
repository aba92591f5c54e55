"""The configured database, or otherwise the embedded one: opened, migrated, and kept running.

Called by `wiring.py`, and by the commands that look at a database as it is (`ops/`). Settings enter; a `Database`
leaves, closed at the end. Next: `embedded/supervisor.py`, `backups.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import structlog

from switchboard.app.backups import migrate_with_backup
from switchboard.app.ownership import require_ours
from switchboard.app.settings import Settings
from switchboard.domain.errors import ConfigurationError, SwitchboardError, Unavailable
from switchboard.embedded.binaries import account_for
from switchboard.embedded.files import disk_errors
from switchboard.embedded.sizes import settings_of, size_for
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.lanes.background import run_in_background
from switchboard.store.database import Database

log = structlog.get_logger(__name__)

_SILENT_S: Final = 2.0
"""Longer than the time between two looks of a process: whoever has had an answer since then need not ask for one."""


@asynccontextmanager
async def database_url(settings: Settings, *, create: bool = False, workers: int = 1) -> AsyncIterator[str]:
    """The URL of PostgreSQL itself; the embedded server runs for as long as the block does.

    `workers`: the worker processes that it is to serve, by which it is sized if the settings do not say.

    Raises ConfigurationError if there is no embedded database yet, unless one may be created (`create`), and if the
    data directory is not ours.
    """
    if (given := settings.database_direct_url or settings.database_url) is not None:
        yield given.get_secret_value()
        return
    place = settings.data_dir / "postgres"
    if not create and not _holds_database(place):
        how = "`switchboard up` creates it; if that is running already, run this command in its directory"
        raise ConfigurationError(f"there is no database in {place} yet: {how}")
    _prepare_directory(settings.data_dir)
    size = settings_of(settings.database.size or size_for(workers))
    async with embedded_postgres(place, binaries=settings.postgres_binaries, settings=size) as server:
        yield server.url


def _prepare_directory(data_dir: Path) -> None:
    """Create a missing data directory, closed to others; only the database's user may pass through it."""
    with disk_errors(data_dir):
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_ours(data_dir)
        account = account_for(data_dir / "postgres")
        if account and not data_dir.stat().st_mode & stat.S_IXOTH and not any(data_dir.iterdir()):
            os.chown(data_dir, -1, account.gid)
            data_dir.chmod(0o710)


def _holds_database(place: Path) -> bool:
    try:
        return (place / "PG_VERSION").exists()
    except OSError as error:
        raise ConfigurationError(f"the database in {place} cannot be inspected: {error.strerror}") from error


@asynccontextmanager
async def one_connection(url: str) -> AsyncIterator[Database]:
    """The database at this URL as it is, with one connection."""
    database = await Database.connect(url, size=1)
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def existing_database(settings: Settings, *, create: bool = False) -> AsyncIterator[Database]:
    """The database as it is, not migrated, with one connection."""
    async with database_url(settings, create=create) as url, one_connection(url) as database:
        yield database


@asynccontextmanager
async def open_database(settings: Settings, *, workers: int = 1, backup: bool = True) -> AsyncIterator[Database]:
    """The database, migrated, for this many worker processes; a crashed embedded server is restarted.

    `backup`: make one in `data_dir/backups` before tables change. Raises ConfigurationError, Unavailable.
    """
    async with AsyncExitStack() as stack:
        if settings.database_direct_url is not None:
            async with existing_database(settings) as direct:
                await migrate_with_backup(settings, direct, backup=backup)
            database = await connect_pooled(settings)
            stack.push_async_callback(database.close)
        else:
            url = await stack.enter_async_context(database_url(settings, create=True, workers=workers))
            database = await Database.connect(url)
            stack.push_async_callback(database.close)
            await migrate_with_backup(settings, database, backup=backup)
        # While the process still imports: opening a connection takes twice as long as answering a message.
        await database.warm(3)
        if settings.database_url is None:
            await run_in_background(stack, lambda: _keep_embedded(settings, database, workers))
        yield database


async def connect_pooled(settings: Settings) -> Database:
    """The database through its pooler; the caller closes it. Raises ConfigurationError if the pooler cannot be used."""
    if settings.database_url is None or settings.database_direct_url is None:
        raise ValueError("database_url and database_direct_url are needed")
    direct_url = settings.database_direct_url.get_secret_value()
    return await Database.connect(settings.database_url.get_secret_value(), direct_url=direct_url)


async def _keep_embedded(settings: Settings, database: Database, workers: int) -> None:
    """Restart the embedded server when it has crashed under us. Runs until cancelled."""
    while True:
        await asyncio.sleep(1)
        if database.silent_s < _SILENT_S:
            continue
        try:
            await database.ping()
        except Unavailable:
            with contextlib.suppress(SwitchboardError):
                # We are its users already, so leaving this block at once does not stop what it started.
                async with database_url(settings, workers=workers):
                    log.warning("PostgreSQL had crashed and was restarted")

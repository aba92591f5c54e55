"""The backups that are made before migrations, in `data_dir/backups`.

Called by `database.py` at every start and by `ops/` for `switchboard db`. In: settings and a database; out: a migrated
database, and a file `BEFORE-AFTER.dump`, named by the numbers of the schemas. Next: `dumps.py`, `store/migrate.py`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import structlog

from switchboard.app.dumps import dump_options, find_tools, partial_file, run_program
from switchboard.app.settings import Settings
from switchboard.domain.errors import ConfigurationError
from switchboard.embedded.files import disk_errors
from switchboard.lanes.faults import point
from switchboard.store.database import Database
from switchboard.store.migrate import Migration, Upgrade, migrate

log = structlog.get_logger(__name__)

_KEPT: Final = 3
_NAME: Final = re.compile(r"(\d{4})-(\d{4})\.dump")


async def migrate_with_backup(settings: Settings, database: Database, *, backup: bool) -> tuple[Migration, ...]:
    """Migrate a database; one that is not new only after a backup, unless `backup` is false.

    Raises as `migrate`, and ConfigurationError if no backup can be made; then nothing has changed.
    """

    async def back_up(upgrade: Upgrade) -> None:
        try:
            await _back_up(settings, database.url, upgrade)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"no backup can be made before the migration of the database, so nothing was changed: {error.message}; "
                "mend this, or start with --no-backup"
            ) from error

    pooled = settings.database_direct_url is not None
    point("migration_begun")
    applied = await migrate(database, pooled=pooled, back_up=back_up if backup else None)
    point("migration_done")
    return applied


def backups_of(settings: Settings, after: int) -> list[tuple[int, Path]]:
    """The backups made before the migration to the schema `after`, newest first, each with its own schema."""
    found = [(int(match[1]), file) for file, match in _backups(settings) if int(match[2]) == after]
    return [(before, file) for before, file in found if before < after]


async def find_obstacle(settings: Settings, server: int, size_bytes: int) -> str | None:
    """Why no backup of so many bytes can be made for a server of this version; None: it can."""
    place = _place_in(settings)
    if (free := free_bytes(place)) < size_bytes:
        return f"{place} has {free >> 20} MiB free, and may need {size_bytes >> 20} MiB"
    try:
        await find_tools(settings, server)
    except ConfigurationError as error:
        return error.message
    return None


def free_bytes(place: Path) -> int:
    """Of the disk on which it is, or will be made."""
    there = next(parent for parent in (place.absolute(), *place.absolute().parents) if parent.exists())
    return shutil.disk_usage(there).free


async def _back_up(settings: Settings, url: str, upgrade: Upgrade) -> None:
    place = _place_in(settings)
    with disk_errors(place):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (obstacle := await find_obstacle(settings, upgrade.server, upgrade.size_bytes)) is not None:
        raise ConfigurationError(obstacle)
    tools = await find_tools(settings, upgrade.server)
    file = place / f"{upgrade.before:04d}-{upgrade.after:04d}.dump"
    log.info("backing up the database before it is migrated", file=str(file))
    options = dump_options(upgrade.schemas)
    with partial_file(file) as partial:
        await run_program(tools, "pg_dump", [*options, f"--file={partial}"], url, lambda: None)
        point("migration_dumped")
    point("migration_backed_up")
    for old, _ in _backups(settings)[_KEPT:]:
        old.unlink(missing_ok=True)
    point("migration_pruned")


def _place_in(settings: Settings) -> Path:
    return settings.data_dir / "backups"


def _backups(settings: Settings) -> list[tuple[Path, re.Match[str]]]:
    """Newest first."""
    place = _place_in(settings)
    found = [(file, match) for file in place.glob("*.dump") if (match := _NAME.fullmatch(file.name))]
    return sorted(found, key=lambda one: one[0].stat().st_mtime_ns, reverse=True)

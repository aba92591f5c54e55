"""`switchboard db`: the database's schema and its backups. Called by `main.py`. Next: `app/ops/backup.py`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated

import typer

from switchboard.app.logs import set_up_logs
from switchboard.app.ops.backup import back_up, migrate_database, restore
from switchboard.app.settings import Settings, load_settings
from switchboard.cli.output import show
from switchboard.cli.sizes import bytes_in_words, shown_progress

app = typer.Typer(help="Migrate, back up and restore the database.", no_args_is_help=True)


@app.command("migrate")
def migrate() -> None:
    """Migrate the database to the schema of this release. `up`, `serve` and `work` do it automatically."""
    applied = [f"{m.number:04d}_{m.name}" for m in asyncio.run(migrate_database(_settings()))]
    show({"applied": applied}, "\n".join(applied) or "nothing to do: the schema is up to date")


@app.command("backup")
def backup(
    file: Annotated[
        Path, typer.Argument(help="The file to write; it is replaced only when the backup is complete.", dir_okay=False)
    ],
) -> None:
    """Write a backup, even while Switchboard is running. It is a pg_dump in the custom format."""
    started = time.monotonic()
    with shown_progress("backing up") as progress:
        size = asyncio.run(back_up(_settings(), file, progress))
    said = f"{file}: {bytes_in_words(size)} in {time.monotonic() - started:.1f} s"
    show({"file": str(file), "size_bytes": size}, said)


@app.command("restore")
def restore_backup(
    file: Annotated[Path, typer.Argument(help="A backup made by `db backup`.", dir_okay=False)],
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a database that is not empty.")] = False,
) -> None:
    """Restore a backup, in one transaction. Switchboard must be stopped."""
    with shown_progress("restoring") as progress:
        applied = [m.name for m in asyncio.run(restore(_settings(), file, progress, force=force))]
    show({"file": str(file), "migrated": applied}, f"restored from {file}")


def _settings() -> Settings:
    settings = load_settings()
    set_up_logs(settings.log_level)  # log that a migration runs, but not into the answer
    return settings

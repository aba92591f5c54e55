"""`switchboard db`: the database's schema and its backups. Called by `main.py`. Next: `app/ops/backup.py`."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins
from msgspec.structs import asdict

from switchboard.app.logs import set_up_logs
from switchboard.app.ops.backup import back_up, migrate_database, restore
from switchboard.app.ops.rollback import roll_back
from switchboard.app.settings import Settings, load_settings
from switchboard.cli.open_work import say_open_work
from switchboard.cli.output import clean, show
from switchboard.cli.processes.parts import NoBackup
from switchboard.cli.sizes import bytes_in_words, shown_progress
from switchboard.connectors.kernel.pausing import paused_account

app = typer.Typer(help="Migrate, back up and restore the database.", no_args_is_help=True)


@app.command("migrate")
def migrate(*, no_backup: NoBackup = False) -> None:
    """Migrate the database to the schema of this release, after a backup into `data_dir/backups`.

    `up`, `serve` and `work` do it automatically.
    """
    applied = [f"{m.number:04d}_{m.name}" for m in asyncio.run(migrate_database(_settings(), backup=not no_backup))]
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
    paused: Annotated[
        bool, typer.Option("--paused", help="Pause all accounts, until `channels resume` connects them.")
    ] = False,
) -> None:
    """Restore a backup, in one transaction. Switchboard must be stopped."""
    settings = _settings()
    accounts = sorted(settings.channels_dir.glob("*.toml")) if paused else []
    with ExitStack() as stack:
        for account in accounts:
            stack.enter_context(paused_account(account))
        progress = stack.enter_context(shown_progress("restoring"))
        restored = asyncio.run(restore(settings, file, progress, force=force))
    say_open_work(restored.open, paused=paused)
    applied = [one.name for one in restored.migrated]
    names = [account.stem for account in accounts]
    said = f"restored from {file}" + (f"; paused: {clean(', '.join(names))}" if names else "")
    show({"file": str(file), "migrated": applied, "paused": names, "open": asdict(restored.open)}, said)


@app.command("rollback")
def rollback(
    *,
    lose: Annotated[
        int, typer.Option(min=0, help="The number of messages accepted since the backup, which will be lost.")
    ] = 0,
) -> None:
    """Go back to the backup made before the last migration, in one transaction, with the new release.

    Switchboard must be stopped. The newer state is kept in a file.
    """
    settings = _settings()
    done = asyncio.run(roll_back(settings, lose))
    answer = {"schema": done.schema, "newer": str(done.newer) if done.newer else None, "lost": to_builtins(done.lost)}
    if done.newer is None or done.open is None:
        show(answer, f"nothing to do: the database is at schema {done.schema}, before that of this release")
        return
    say_open_work(done.open, paused=True)  # not to be advised of an option of `db restore`
    said = f"the database is at schema {done.schema} again: install the release before, and start it\n"
    show(answer, f"{said}the newer state is kept in {done.newer}; messages lost: {len(done.lost)}")


def _settings() -> Settings:
    settings = load_settings()
    set_up_logs(settings.log_level)  # log that a migration runs, but not into the answer
    return settings

"""`switchboard upgrade`: the database is brought to this release, or it is tried. Called by `main.py`.

Next: `app/ops/upgrade_check.py`, `app/ops/backup.py`.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer
from msgspec import to_builtins

from switchboard.app.logs import set_up_logs
from switchboard.app.ops.upgrade_check import Trial, UpgradeCheck, check_upgrade
from switchboard.app.settings import load_settings
from switchboard.cli.db import migrate
from switchboard.cli.output import FAILED, OK, exit_unless_ok, show
from switchboard.cli.processes.parts import NoBackup
from switchboard.cli.sizes import bytes_in_words

Check = Annotated[
    bool, typer.Option("--check", help="Change nothing: say what would change, and try it. Exit code 1: it would fail.")
]
_HOW = {
    "undone": "tried in a transaction that was undone",
    "copy": "tried in a copy of the database",
    "none": "not tried, as the database is in use",
}


def upgrade(*, check: Check = False, no_backup: NoBackup = False) -> None:
    """Bring the database to the schema of this release, as `up` does when it starts; with --check, only try it."""
    if not check:
        migrate(no_backup=no_backup)
        return
    set_up_logs("warning")  # that a migration runs is said of the real one only
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a copy of the database does not stay
    found = asyncio.run(check_upgrade(load_settings()))
    show({"good": found.good, **to_builtins(found)}, "\n".join(_lines_of(found)))
    exit_unless_ok(OK if found.good else FAILED)


def _lines_of(found: UpgradeCheck) -> list[str]:
    if not found.migrations:
        changed = (
            "only functions of the database are replaced" if found.replaces_functions else "the database stays as it is"
        )
        return [f"no table changes, at schema {found.schema}: {changed}"]
    data, free = bytes_in_words(found.data_bytes), bytes_in_words(found.free_bytes)
    backup = f"not possible: {found.backup_obstacle}" if found.backup_obstacle else f"at most {data}, {free} are free"
    running = ", ".join(sorted(set(found.running)))
    return [
        f"schema    {found.schema} → {found.newest}: {', '.join(found.migrations)}",
        f"backup    {backup}",
        *_trial_lines(found.trial),
        *([f"stop      these first: {running}"] if running else []),
    ]


def _trial_lines(trial: Trial | None) -> list[str]:
    if trial is None:
        return []
    how = _HOW[trial.kind]
    if trial.problem:
        return [f"trial     {how}; it failed: {trial.problem}"]
    took = "" if trial.kind == "none" else f", in {trial.seconds:.1f} s"
    untold = f"; it cannot tell {trial.cannot_tell}" if trial.cannot_tell else ""
    return [f"trial     {how}{took}{untold}"]

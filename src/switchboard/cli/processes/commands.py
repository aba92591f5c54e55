"""`switchboard up`, `serve` and `work`: the commands that keep running.

Called by `cli/main.py`. In: settings; out: logs, and on stdout the server's address. This module imports little, to
keep `--help` fast: it reads options and settings, then imports `running.py`, which does the work. SIGINT or SIGTERM
shuts down cleanly, a second one at once.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from typing import Annotated, Final

import typer

from switchboard.app.settings import Settings, load_settings
from switchboard.cli.processes.parts import NoBackup, ProcessParts, WhileStdin
from switchboard.cli.shape import MODULE
from switchboard.domain.json_values import JsonObject
from switchboard.lanes import faults

Host = Annotated[str | None, typer.Option(help="The address to listen on; by default as in the settings: 127.0.0.1.")]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="The port; 0 picks a free one. By default as in the settings: 8470."),
]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help="Concurrent turns in one process; by default as in the settings: 64.")
]

_PR_SET_DUMPABLE: Final = 4


def up(
    *,
    host: Host = None,
    port: Port = None,
    workers: Annotated[int, typer.Option(min=0, max=64, help="Number of additional worker processes.")] = 0,
    concurrency: Concurrency = None,
    no_backup: NoBackup = False,
) -> None:
    """Start everything: the database (embedded, unless SWITCHBOARD_DATABASE_URL is set), a server and a worker."""
    parts = ProcessParts(server=True, worker=True, extra_workers=workers, concurrency=concurrency, backup=not no_backup)
    run_here(_settings(host, port), parts)


def serve(
    *, host: Host = None, port: Port = None, no_backup: NoBackup = False, while_stdin: WhileStdin = False
) -> None:
    """Start the server only (HTTP, MCP); `switchboard work` does the work."""
    run_here(_settings(host, port), ProcessParts(server=True, while_stdin=while_stdin, backup=not no_backup))


def work(
    *,
    concurrency: Concurrency = None,
    name: Annotated[str, typer.Option(help="A name for this worker's log lines.")] = "",
    no_backup: NoBackup = False,
    while_stdin: WhileStdin = False,
) -> None:
    """Start a worker only. On SIGTERM, running turns get time to finish, and the rest goes to other workers at once."""
    parts = ProcessParts(worker=True, concurrency=concurrency, name=name, while_stdin=while_stdin, backup=not no_backup)
    run_here(load_settings(), parts)


def run_here(settings: Settings, parts: ProcessParts) -> None:
    """Work until a signal comes. Raises SwitchboardError if the start or a part fails.

    Does not return if this process is to start again: it becomes a new one, with the same command and the same number.
    """
    _close_to_other_programs()
    # Almost everything loaded now stays, and collecting it took a fifth of the start. `running` enables it again.
    gc.disable()
    try:
        from switchboard.cli.processes import running

        again_at = running.run_processes(settings, parts)
    finally:
        gc.enable()
    if again_at is not None:
        # A port that was picked is kept, as whoever asked for the restart comes back there.
        port = () if settings.port else ("--port", str(again_at))
        sys.stdout.flush()
        faults.point("restart_drained")
        os.execv(sys.executable, [sys.executable, "-m", MODULE, *sys.argv[1:], *port])


def _close_to_other_programs() -> None:
    """Close our memory, environment and descriptors to butlers' programs that run as the same user.

    After exec, the kernel opens them again in our child processes, until those get here too. Root can always look.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _settings(host: str | None, port: int | None) -> Settings:
    given: JsonObject = {"host": host, "port": port}
    chosen = {key: value for key, value in given.items() if value is not None}
    # Options take precedence over the environment, which takes precedence over the file.
    return load_settings().model_copy(update=chosen)

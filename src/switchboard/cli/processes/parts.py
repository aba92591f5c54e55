"""The parts that one process runs: `cli/processes/commands.py` reads them from the options, `running.py` runs them.

Also stops with stdin.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated

import typer
from msgspec import Struct

WhileStdin = Annotated[
    bool,
    typer.Option(
        "--while-stdin", hidden=True, help="Stop when stdin is closed, that is, when the parent process has ended."
    ),
]


WhenTold = Annotated[
    bool, typer.Option("--when-told", hidden=True, help="Begin only when the parent process says so on stdin.")
]


NoBackup = Annotated[
    bool,
    typer.Option("--no-backup", help="Do without the backup that is made before a new release changes the tables."),
]


class ProcessParts(Struct, frozen=True):
    """The parts that this process runs."""

    server: bool = False
    worker: bool = False
    extra_workers: int = 0
    concurrency: int | None = None
    name: str = ""
    while_stdin: bool = False
    backup: bool = True


def stop_with_stdin(stop: asyncio.Event, begin: asyncio.Event | None = None) -> None:
    """A supervised process holds the other end of a pipe, so it ends with its supervisor, however that ended.

    `begin` is set by the first line from there.
    """
    descriptor = sys.stdin.fileno()
    os.set_blocking(descriptor, False)
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stop.set()
        if begin is not None:
            begin.set()

    loop.add_reader(descriptor, readable)

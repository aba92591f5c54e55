"""The parts that one process runs: `run.py` reads them from the options, `running.py` runs them.

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


class ProcessParts(Struct, frozen=True):
    """The parts that this process runs."""

    server: bool = False
    worker: bool = False
    extra_workers: int = 0
    concurrency: int | None = None
    name: str = ""
    while_stdin: bool = False


def stop_with_stdin(stop: asyncio.Event) -> None:
    """A supervised process holds the other end of a pipe, so it ends with its supervisor, however that ended."""
    descriptor = sys.stdin.fileno()
    os.set_blocking(descriptor, False)
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stop.set()

    loop.add_reader(descriptor, readable)

"""The processes of accounts beside a server, which start with it: they import what they need while the server does.

`running.py` opens them as early as possible. In: where accounts and server are; out: a task, and an event that tells
the processes to begin. Next: `watching.py`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

from switchboard.app.supervisor import SupervisedProgram, supervise
from switchboard.cli.channels.watching import is_there, supervise_accounts
from switchboard.cli.parts import MODULE


@asynccontextmanager
async def open_connectors(
    directory: Path, url: str, begin: asyncio.Event, stop: asyncio.Event
) -> AsyncIterator[asyncio.Task[None]]:
    """A process for each account of `directory`, until `stop` or the end of this block.

    They begin when the server at `url` is about to answer; a database that recovers may take minutes before that.
    """
    command = [sys.executable, "-m", MODULE, "connect", "--while-stdin", "--when-told", "--"]  # names may have a dash

    def start(name: str, ended: asyncio.Event) -> Coroutine[object, object, None]:
        file = directory / f"{name}.toml"
        more = {"SWITCHBOARD_URL": url}
        return supervise(SupervisedProgram([*command, name], name, more, lambda: is_there(file), begin), ended)

    serving = asyncio.create_task(supervise_accounts(directory, start, stop))
    try:
        yield serving
    finally:
        stop.set()
        await asyncio.wait([serving])

"""The accounts beside a server: processes that import what they need while the server does, or tasks in this process.

`running.py` opens them as early as possible. In: settings, and where the server is; out: a task, and an event that
tells the accounts to begin. Next: `watching.py`, and `inside.py` for tasks.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from switchboard.app.settings import MOST_INSIDE, Settings
from switchboard.app.supervisor import SupervisedProgram, supervise
from switchboard.cli.channels.watching import is_there, supervise_accounts
from switchboard.cli.parts import MODULE
from switchboard.tasks import first_of


@asynccontextmanager
async def open_connectors(
    settings: Settings, url: str, begin: asyncio.Event, stop: asyncio.Event
) -> AsyncIterator[asyncio.Task[None]]:
    """A process or a task for each account of `channels_dir`, until `stop` or the end of this block.

    They begin when the server at `url` is about to answer; a database that recovers may take minutes before that.
    """
    command = [sys.executable, "-m", MODULE, "connect", "--while-stdin", "--when-told", "--"]  # names may have a dash
    directory = settings.channels_dir

    def start(name: str, ended: asyncio.Event) -> Coroutine[object, object, None]:
        file = directory / f"{name}.toml"
        more = {"SWITCHBOARD_URL": url}
        return supervise(SupervisedProgram([*command, name], name, more, lambda: is_there(file), begin), ended)

    async def start_inside(name: str, ended: asyncio.Event) -> None:
        await first_of(begin.wait(), ended.wait())
        from switchboard.cli.channels.inside import serve_inside

        await serve_inside(settings, directory / f"{name}.toml", url, ended)

    begin_one, most = (start_inside, MOST_INSIDE) if settings.connectors == "inside" else (start, None)
    serving = asyncio.create_task(supervise_accounts(directory, begin_one, stop, most))
    try:
        yield serving
    finally:
        stop.set()
        await asyncio.wait([serving])

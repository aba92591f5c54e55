"""The accounts beside a server: processes that import what they need while the server does, or tasks in this process.

`cli/processes/running.py` opens them as early as possible. In: settings, and where the server is; out: a task, and an
event that tells the accounts to begin. Next: `watching.py`, and `inside.py` for tasks.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Final

import structlog

from switchboard.app.settings import MOST_INSIDE, Settings
from switchboard.app.supervisor import SupervisedProgram, supervise
from switchboard.cli.channels.watching import is_there, supervise_accounts
from switchboard.cli.shape import MODULE
from switchboard.tasks import first_of

log = structlog.get_logger(__name__)

_ENDS_S: Final = 15.0
"""For so long an account inside may finish what it is at; a process of its own would be waited for."""


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

        await _end_in_time(name, serve_inside(settings, directory / f"{name}.toml", url, ended), ended)

    begin_one, most = (start_inside, MOST_INSIDE) if settings.connectors == "inside" else (start, None)
    serving = asyncio.create_task(supervise_accounts(directory, begin_one, stop, most))
    try:
        yield serving
    finally:
        stop.set()
        await asyncio.wait([serving])


async def _end_in_time(name: str, work: Coroutine[object, object, None], ended: asyncio.Event) -> None:
    """Until the work has ended; once it should have, it has some seconds before it is cancelled."""
    serving, waiting = asyncio.create_task(work), asyncio.create_task(ended.wait())
    try:
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([serving], timeout=_ENDS_S)
        if not serving.done():
            log.warning("account does not end, and is cancelled", account=name)
    finally:
        serving.cancel()
        waiting.cancel()
        ended_now, _ = await asyncio.wait([serving, waiting], timeout=_ENDS_S)
        if serving not in ended_now:
            log.error("account does not end when it is cancelled: a second signal ends the process", account=name)
        elif not serving.cancelled():
            serving.exception()  # it has been logged

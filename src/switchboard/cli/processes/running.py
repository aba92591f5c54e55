"""A long-running process: its start, and its end.

Called by `cli/processes/commands.py`. In: settings and the wanted parts. The process works until a signal or a failed
part ends it. This module imports little: the database is started as early as possible, and most modules that use it are
imported meanwhile. Next: `app/checked.py`, then `working.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct

from switchboard.app.checked import check_settings
from switchboard.app.database import open_database
from switchboard.app.logs import set_up_logs
from switchboard.app.settings import Settings
from switchboard.app.whereabouts import url_of
from switchboard.cli.channels.serving import open_connectors
from switchboard.cli.output import errors
from switchboard.cli.processes.long_running import fast_loop, spare_the_collector
from switchboard.cli.processes.opened import OpenedProcess
from switchboard.cli.processes.parts import ProcessParts, stop_with_stdin
from switchboard.cli.processes.service_manager import ServiceManager, take_service_manager
from switchboard.embedded import supervisor as embedded
from switchboard.server.listener import bind
from switchboard.signals import is_withheld
from switchboard.tasks import cancel_tasks

if TYPE_CHECKING:
    from switchboard.cli.processes.working import RunServer, Work

UNLESS_IGNORED: Final = {signal.SIGINT, signal.SIGHUP}
ENDING: Final = (signal.SIGTERM, *UNLESS_IGNORED)


class RunEnd(Struct, frozen=True):
    """How a process ended. `code`: 0, or that of the signal that interrupted the start of the database.

    `again_at`: the port at which it is to start again, if it is.
    """

    code: int = 0
    again_at: int | None = None


def run_processes(settings: Settings, parts: ProcessParts) -> int | None:
    """Work until a signal comes or a part fails. Raises SwitchboardError if the start or a part fails.

    Returns the port at which this process is to start again, if that was asked for.
    """
    set_up_logs(settings.log_level)
    if parts.name:
        structlog.contextvars.bind_contextvars(worker_name=parts.name)
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        end = runner.run(_until_told_twice(settings, parts))
    if end.code:
        sys.exit(end.code)
    return end.again_at


async def _until_told_twice(settings: Settings, parts: ProcessParts) -> RunEnd:
    stop, second = asyncio.Event(), asyncio.get_running_loop().create_future()
    manager = take_service_manager()
    work = asyncio.create_task(_run(settings, parts, stop, manager))
    _listen_for_signals(stop, second, manager)
    await asyncio.wait([work, second], return_when=asyncio.FIRST_COMPLETED)
    if not second.done():
        return RunEnd(again_at=await work)
    await cancel_tasks(work)
    return RunEnd(128 + int(second.result()))


async def _run(settings: Settings, parts: ProcessParts, stop: asyncio.Event, manager: ServiceManager) -> int | None:
    """The port at which this process is to start again, if that was asked for."""
    again = asyncio.Event()

    def restart() -> None:
        again.set()
        stop.set()

    async with AsyncExitStack() as stack:
        if parts.while_stdin:
            stop_with_stdin(stop)
        listener = stack.enter_context(bind(settings.host, settings.port)) if parts.server else None
        checked = check_settings(_at(settings, listener), for_worker=parts.worker)
        begin, connectors = asyncio.Event(), None
        if listener is not None and parts.worker:
            url = url_of(settings.host, listener.getsockname()[1])
            connectors = await stack.enter_async_context(open_connectors(checked.settings, url, begin, stop))
        # The database starts in its own processes; meanwhile, this one imports the modules that use it.
        work = asyncio.create_task(asyncio.to_thread(_import_work, parts))
        run_server = asyncio.create_task(_import_server_after(work)) if parts.server else None
        opening = open_database(checked.settings, workers=1 + parts.extra_workers, backup=parts.backup)
        database = await stack.enter_async_context(opening)
        ours = parts.server and parts.worker and not (parts.while_stdin or manager.address)
        opened = OpenedProcess(
            checked, parts, database, listener, stop, connectors, begin, manager, restart if ours else None
        )
        await (await work)(opened, run_server)
    return checked.settings.port if again.is_set() else None


def _at(settings: Settings, listener: socket.socket | None) -> Settings:
    """Add the actual port, as command-line programs are told the address of our MCP server."""
    if listener is None or settings.port:
        return settings
    return settings.model_copy(update={"port": listener.getsockname()[1]})


def _import_work(parts: ProcessParts) -> Work:
    from switchboard.cli.processes.working import work

    if not parts.server:
        spare_the_collector()  # the database may take minutes: a recovery
    return work


async def _import_server_after(work: asyncio.Task[Work]) -> RunServer:
    """Import one after the other: two threads would wait for each other's modules."""
    await work
    return await asyncio.to_thread(_import_server)


def _import_server() -> RunServer:
    from switchboard.server.serve import run_server

    spare_the_collector()
    return run_server


def _listen_for_signals(stop: asyncio.Event, second: asyncio.Future[int], manager: ServiceManager) -> None:
    """The first signal sets `stop`. The second ends us at once, but leaves no database of ours running unused."""

    def heard(number: int) -> None:
        if second.done():
            return
        if stop.is_set() and embedded.starting():
            second.set_result(number)
            return
        if stop.is_set():
            embedded.tell_to_stop()
            os._exit(128 + number)
        if errors().is_terminal:
            errors().print("\nshutting down; press Ctrl-C again to force", style="dim")
        manager.tell("STOPPING=1")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in ENDING:
        # A parent that uses nohup, or a script's background job, withholds the terminal's signals from us. SIGTERM does
        # not come from the terminal, and ignoring it would mean that we could only be killed.
        if number not in UNLESS_IGNORED or not is_withheld(number):
            loop.add_signal_handler(number, heard, number)

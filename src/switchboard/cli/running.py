"""How the parts run together in one process, and end together.

Called by `run.py`. Settings and the parts wanted enter; the process works until a signal or a failed part ends it. All
is closed in reverse order. Next: `app/wiring.py`, which makes the parts, and `server/serve.py`, the server.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from shlex import quote
from typing import Final

import structlog

from switchboard import __version__
from switchboard.app.access import remember_address
from switchboard.app.logs import set_up_logs
from switchboard.app.runtime import Switchboard
from switchboard.app.settings import Settings
from switchboard.app.settings_file import FILE_NAME
from switchboard.app.supervisor import SupervisedProgram, supervise
from switchboard.app.whereabouts import OPERATOR_FILE
from switchboard.app.wiring import make_worker, open_runtime, open_switchboard
from switchboard.cli.channels.watching import is_there, supervise_accounts
from switchboard.cli.client import url_of
from switchboard.cli.long_running import fast_loop, spare_the_collector
from switchboard.cli.output import errors, out, print_json, program, wants_json
from switchboard.cli.parts import ProcessParts, stop_with_stdin
from switchboard.embedded import supervisor as embedded
from switchboard.lanes.worker import Worker
from switchboard.server.listener import bind
from switchboard.tasks import cancelled

UNLESS_IGNORED: Final = {signal.SIGINT, signal.SIGHUP}
ENDING: Final = (signal.SIGTERM, *UNLESS_IGNORED)

RunServer = Callable[[Switchboard, socket.socket, asyncio.Event, Callable[[str, int], None]], Awaitable[None]]
"""`server/serve.py`; `switchboard work` never imports it."""

log = structlog.get_logger(__name__)

_MODULE: Final = "switchboard.cli.main"


def run(settings: Settings, parts: ProcessParts) -> None:
    """Work until a signal comes or a part fails. Raises SwitchboardError when the start or a part fails."""
    set_up_logs(settings.log_level)
    if parts.name:
        structlog.contextvars.bind_contextvars(worker_name=parts.name)
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        code = runner.run(_until_told_twice(settings, parts))
    if code:
        sys.exit(code)


async def _until_told_twice(settings: Settings, parts: ProcessParts) -> int:
    """The exit code: 0, or that of the signal which broke off the start of the database."""
    stop, second = asyncio.Event(), asyncio.get_running_loop().create_future()
    work = asyncio.create_task(_run(settings, parts, stop))
    _listen_for_signals(stop, second)
    await asyncio.wait([work, second], return_when=asyncio.FIRST_COMPLETED)
    if not second.done():
        await work
        return 0
    await cancelled(work)
    return 128 + int(second.result())


async def _run(settings: Settings, parts: ProcessParts, stop: asyncio.Event) -> None:
    async with AsyncExitStack() as stack:
        if parts.while_stdin:
            stop_with_stdin(stop)
        listener = stack.enter_context(bind(settings.host, settings.port)) if parts.server else None
        # The database starts in a process of its own: meanwhile this one imports what the server needs.
        server = asyncio.create_task(asyncio.to_thread(_import_server)) if parts.server else None
        if server is None:
            spare_the_collector()
        runtime = await stack.enter_async_context(open_runtime(_at(settings, listener), for_worker=parts.worker))
        # Before anything is set to work: a wrong option or a missing secret ends the start here.
        worker = make_worker(runtime, concurrency=parts.concurrency) if parts.worker else None
        work: list[Coroutine[object, object, None]] = []
        if server is not None and listener is not None:
            switchboard = await stack.enter_async_context(open_switchboard(runtime))
            work.append(_serve(await server, switchboard, listener, stop))
        if worker is not None:
            work.append(_work(worker, stop, parts))
        work += [supervise(_worker_program(n, parts), stop) for n in range(1, parts.extra_workers + 1)]
        if listener is not None and parts.worker:
            work.append(_connectors(settings, listener, stop))
        spare_the_collector()  # the rules are there now
        await _together(work, stop)


def _at(settings: Settings, listener: socket.socket | None) -> Settings:
    """With the port that was really taken: command lines of models are told where our MCP server is."""
    if listener is None or settings.port:
        return settings
    return settings.model_copy(update={"port": listener.getsockname()[1]})


def _import_server() -> RunServer:
    from switchboard.server.serve import run_server

    spare_the_collector()  # the database may take minutes: a recovery
    return run_server


async def _together(work: Sequence[Coroutine[object, object, None]], stop: asyncio.Event) -> None:
    """All parts until the first ends; the others are told to end as well. The first error is raised."""
    tasks = [asyncio.create_task(part) for part in work]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in ended:
        if isinstance(outcome, BaseException):
            raise outcome


def _listen_for_signals(stop: asyncio.Event, second: asyncio.Future[int]) -> None:
    """The first sets `stop`. At the second we are gone; but no database of ours runs on that nobody uses."""

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
        stop.set()

    loop = asyncio.get_running_loop()
    for number in ENDING:
        # Who starts us with nohup, or in the background of a script, keeps the terminal's signals from us. SIGTERM is
        # no terminal's: without it we could only be killed.
        if number not in UNLESS_IGNORED or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, heard, number)


async def _work(worker: Worker, stop: asyncio.Event, parts: ProcessParts) -> None:
    """One worker until `stop`, then drained."""
    working = asyncio.create_task(worker.run())
    ready, stopped = asyncio.create_task(worker.ready.wait()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([working, ready, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not parts.server and worker.ready.is_set():
            _announce_worker(parts, worker.number)
        await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
        worker.stop()
        await working
    finally:
        for task in (working, ready, stopped):
            task.cancel()


def _announce_worker(parts: ProcessParts, number: int) -> None:
    if wants_json():
        print_json({"working": True, "worker": number, "pid": os.getpid()})
    else:
        out().print(f"worker {number}{f' ({parts.name})' if parts.name else ''} is ready")


async def _serve(run_server: RunServer, switchboard: Switchboard, listener: socket.socket, stop: asyncio.Event) -> None:
    settings = switchboard.runtime.settings

    def started(host: str, port: int) -> None:
        url = url_of(host, port)
        remember_address(settings.data_dir, url)
        _announce_server(settings, url)

    await run_server(switchboard, listener, stop, started)


def _announce_server(settings: Settings, url: str) -> None:
    token_file = settings.data_dir / OPERATOR_FILE
    if wants_json():
        print_json({"url": url, "token_file": str(token_file), "pid": os.getpid(), "version": __version__})
        return
    other = "" if url == url_of(settings.host, 8470) else f"SWITCHBOARD_URL={url} "
    console = out()
    console.print(f"Switchboard {__version__} listens on {url} (API: {url}/docs)", soft_wrap=True)
    console.print(f"Operator's token: {token_file}", soft_wrap=True)
    # Where the settings file counts, commands find the token only beside it.
    into = f"cd {quote(str(Path.cwd()))} && " if Path(FILE_NAME).exists() else ""
    console.print(f"Try it: {into}{other}{program()} chat", soft_wrap=True)
    sys.stdout.flush()


def _worker_program(number: int, parts: ProcessParts) -> SupervisedProgram:
    name = f"worker-{number}"
    options = ["--while-stdin", "--name", name]
    options += ["--concurrency", str(parts.concurrency)] if parts.concurrency else []
    return SupervisedProgram([sys.executable, "-m", _MODULE, "work", *options], name)


async def _connectors(settings: Settings, listener: socket.socket, stop: asyncio.Event) -> None:
    """A process for each account; they are told where the server really listens."""
    directory, place = settings.channels_dir, {"SWITCHBOARD_URL": url_of(settings.host, listener.getsockname()[1])}
    command = [sys.executable, "-m", _MODULE, "connect", "--while-stdin", "--"]  # a name may begin with a dash

    def start(name: str, ended: asyncio.Event) -> Coroutine[object, object, None]:
        file = directory / f"{name}.toml"
        return supervise(SupervisedProgram([*command, name], name, place, lambda: is_there(file)), ended)

    await supervise_accounts(directory, start, stop)

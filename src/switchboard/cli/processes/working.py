"""The parts that run together in one process, and end together.

Called by `running.py`, which imports it while the database starts. In: the opened resources. The parts work until a
signal or a failed part ends them. Everything is closed in reverse order. Next: `app/wiring.py`, which makes the parts,
and `server/serve.py`, the server.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from shlex import quote

from msgspec.structs import replace

from switchboard import __version__
from switchboard.app.access import Access, ensure_operator_token, remember_address
from switchboard.app.ownership import read_ours
from switchboard.app.runtime import Switchboard
from switchboard.app.settings import Settings
from switchboard.app.settings_file import FILE_NAME
from switchboard.app.supervisor import SupervisedProgram, supervise
from switchboard.app.web_sessions import WebSessions
from switchboard.app.whereabouts import OPERATOR_FILE, url_of
from switchboard.app.wiring import make_worker, open_switchboard, runtime_on
from switchboard.cli.output import out, print_json, program, wants_json
from switchboard.cli.processes.long_running import spare_the_collector
from switchboard.cli.processes.opened import OpenedProcess
from switchboard.cli.processes.parts import ProcessParts
from switchboard.cli.processes.service_manager import keep_informed
from switchboard.cli.shape import MODULE
from switchboard.domain.errors import SwitchboardError
from switchboard.lanes.worker import Worker
from switchboard.tasks import cancel_tasks

RunServer = Callable[[Switchboard, socket.socket, asyncio.Event, Callable[[str, int], None]], Awaitable[None]]
"""`server/serve.py`; `switchboard work` never imports it."""

Work = Callable[[OpenedProcess, Awaitable[RunServer] | None], Awaitable[None]]
"""`work`, which `running.py` imports late."""


async def work(opened: OpenedProcess, run_server: Awaitable[RunServer] | None) -> None:
    """Work until a signal comes or a part fails; raises its error.

    `run_server` is awaited last, when all else is ready.
    """
    parts, stop = opened.parts, opened.stop
    async with AsyncExitStack() as stack:
        if opened.connectors is not None:
            await ensure_operator_token(opened.database, opened.checked.settings.data_dir)  # it makes their tokens
            opened.begin.set()
        runtime = await stack.enter_async_context(runtime_on(opened.database, opened.checked))
        # Before any work starts: a wrong option or a missing secret ends the start here.
        worker = make_worker(runtime, concurrency=parts.concurrency) if parts.worker else None
        all_work: list[Awaitable[None]] = []
        answering = asyncio.Event()
        if run_server is not None and opened.listener is not None:
            switchboard = await stack.enter_async_context(open_switchboard(runtime))
            switchboard = replace(switchboard, restart=opened.restart)
            all_work.append(_serve(await run_server, switchboard, opened, answering))
        if worker is not None:
            all_work.append(_work(worker, stop, parts))
        all_work += [supervise(_worker_program(n, parts), stop) for n in range(1, parts.extra_workers + 1)]
        if opened.connectors is not None:
            all_work.append(opened.connectors)
        if opened.manager.address:
            awaited = [*([answering] if parts.server else []), *([worker.ready] if worker is not None else [])]
            all_work.append(keep_informed(opened.manager, awaited, opened.database, stop))
        spare_the_collector()  # the rules exist now
        await _together(all_work, stop)


async def _together(work: Sequence[Awaitable[None]], stop: asyncio.Event) -> None:
    """Run all parts until the first ends, then tell the others to end. Raises the first error."""
    tasks = [asyncio.ensure_future(part) for part in work]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in ended:
        if isinstance(outcome, BaseException):
            raise outcome


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


async def _serve(
    run_server: RunServer, switchboard: Switchboard, opened: OpenedProcess, answering: asyncio.Event
) -> None:
    if opened.listener is None:
        return
    settings = switchboard.runtime.settings

    def started(host: str, port: int) -> None:
        url = url_of(host, port)
        remember_address(settings.data_dir, url)
        _announce_server(settings, url)
        answering.set()

    offering = asyncio.create_task(_offer_link(switchboard, opened, answering))
    try:
        await run_server(switchboard, opened.listener, opened.stop, started)
    finally:
        await cancel_tasks(offering)


async def _offer_link(switchboard: Switchboard, opened: OpenedProcess, answering: asyncio.Event) -> None:
    """On a terminal, `up` prints a link that signs in on the page as the operator."""
    if not (opened.parts.worker and out().is_terminal) or wants_json():
        return
    await answering.wait()
    runtime = switchboard.runtime
    access = Access(runtime.database)
    try:
        secret = read_ours(runtime.settings.data_dir / OPERATOR_FILE).strip()
        operator = await access.authenticate(f"Bearer {secret}")
        link = await WebSessions(runtime.database, access).make_link(operator)
    except (OSError, SwitchboardError):  # `switchboard open` says what is wrong
        return
    where = runtime.settings.public_url or url_of(runtime.settings.host, runtime.settings.port)
    again = f"{_found_from_elsewhere(runtime.settings)}{program()} open"
    out().print(
        f"Open it: {where.rstrip('/')}{link.path}  (works once, within 10 minutes; for another: {again})",
        soft_wrap=True,
    )


def _found_from_elsewhere(settings: Settings) -> str:
    """What a command in another terminal needs before it, to find this data directory and its token."""
    into = f"cd {quote(str(Path.cwd()))} && " if Path(FILE_NAME).exists() else ""
    named = os.environ.get("SWITCHBOARD_DATA_DIR")
    return f"{into}SWITCHBOARD_DATA_DIR={quote(str(settings.data_dir.absolute()))} " if named else into


def _announce_server(settings: Settings, url: str) -> None:
    token_file = settings.data_dir / OPERATOR_FILE
    if wants_json():
        print_json({"url": url, "token_file": str(token_file), "pid": os.getpid(), "version": __version__})
        return
    other = "" if url == url_of(settings.host, 8470) else f"SWITCHBOARD_URL={url} "
    console = out()
    console.print(f"Switchboard {__version__} listens on {url} (API: {url}/docs)", soft_wrap=True)
    console.print(f"Operator's token: {token_file}", soft_wrap=True)
    console.print(f"Try it: {_found_from_elsewhere(settings)}{other}{program()} chat", soft_wrap=True)
    sys.stdout.flush()


def _worker_program(number: int, parts: ProcessParts) -> SupervisedProgram:
    name = f"worker-{number}"
    options = ["--while-stdin", "--name", name]
    options += ["--concurrency", str(parts.concurrency)] if parts.concurrency else []
    return SupervisedProgram([sys.executable, "-m", MODULE, "work", *options], name)

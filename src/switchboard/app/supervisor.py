"""Supervises workers and connectors: starts, restarts and stops them. Workers and most connectors are child processes.

Called by `cli/processes/working.py`, `cli/channels/serving.py` and `inside.py`. In: a program, or a function. A program
runs until `stop` is set, and is then told by the end of its stdin, which also happens if this process is killed. Next:
`cli/processes/commands.py`, in the child process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog
from msgspec import Struct, field

from switchboard.tasks import first_of, wait_at_most

log = structlog.get_logger(__name__)


class SupervisedProgram(Struct, frozen=True):
    """The program to run, its name in the log, and its additional environment.

    `wanted`: whether to start another when one has ended. `begin`: when it is set, the process is told so by a line on
    its stdin.
    """

    command: Sequence[str]
    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    wanted: Callable[[], bool] = lambda: True
    begin: asyncio.Event | None = None


async def supervise(program: SupervisedProgram, stop: asyncio.Event) -> None:
    """Keep one process running until `stop` is set; if it ends before, start another after a growing pause."""

    async def run() -> Mapping[str, object]:
        process = await _spawn_program(program)
        telling = () if program.begin is None else (_tell_to_begin(process, program.begin),)
        await first_of(process.wait(), stop.wait(), *telling)
        if stop.is_set():
            await _end_process(process)
        return {"name": program.name, "pid": process.pid, "code": process.returncode}

    await keep_running(run, program.wanted, stop)


async def keep_running(
    run: Callable[[], Awaitable[Mapping[str, object]]], wanted: Callable[[], bool], stop: asyncio.Event
) -> None:
    """Run it until `stop` is set; if it ends before and is still wanted, run it again after a growing pause.

    The log shows what it returns.
    """
    delay = 0.1
    while not stop.is_set() and wanted():
        started = asyncio.get_running_loop().time()
        ended = await run()
        if stop.is_set() or not wanted():
            return
        log.warning("process or account ended; starting it again", **ended)
        lived = asyncio.get_running_loop().time() - started
        delay = 0.1 if lived > 10 else min(delay * 2, 10.0)
        await wait_at_most(delay, stop)


async def _spawn_program(program: SupervisedProgram) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *program.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        env={**os.environ, **program.environment},
        start_new_session=True,  # Ctrl-C is for us; we pass it on
    )


async def _tell_to_begin(process: asyncio.subprocess.Process, begin: asyncio.Event) -> None:
    """Tell the process to begin. Never ends: whether the process does is asked of others."""
    await begin.wait()
    if process.stdin is not None:
        process.stdin.write(b"begin\n")
    await asyncio.Event().wait()


async def _end_process(process: asyncio.subprocess.Process) -> None:
    """Close its stdin so that it drains, and wait."""
    if process.stdin is not None:
        process.stdin.close()
    await process.wait()

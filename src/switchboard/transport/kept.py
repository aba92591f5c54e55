"""A long-running program whose pipes we read and write, and of which nothing is left over.

`stdio_mcp.py` starts one for each MCP server, `llm/running.py` one for each turn run by a command-line program. In: a
command with its environment; out: bytes on request, so a program that writes more than is read must wait. Next:
`keeper.py`, the process between us and the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from asyncio import AbstractEventLoop
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from switchboard.signals import default_signals
from switchboard.tasks import wait_at_most
from switchboard.transport.programs import ProgramUser

_KEEPER: Final = Path(__file__).with_name("keeper.py")
_PIECE: Final = 65_536
_TAIL: Final = 4000
_EXIT_S: Final = 10.0
"""Limit for the keeper to end everything: about a second, unless the machine is stalled."""


@dataclass(frozen=True, slots=True)
class LongProgram:
    """What to run: an argument vector, never a shell line; `env` is its whole environment. `account` None: our own."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path | None = None
    account: ProgramUser | None = None


class KeptProgram:
    """A running program. Made by `start`, ended by `end`."""

    def __init__(self, process: subprocess.Popen[bytes], lifeline: int, pipes: Sequence[int]) -> None:
        self._process = process
        self._lifeline: int | None = lifeline
        self._stdin, self._stdout, self._stderr = pipes
        self._errors = bytearray()
        self._open = set(pipes)
        self._waiting: set[asyncio.Event] = set()
        self.exited = asyncio.Event()
        loop = asyncio.get_running_loop()
        for pipe in pipes:
            os.set_blocking(pipe, False)
        loop.add_reader(self._stderr, self._read_errors)
        threading.Thread(target=self._wait, args=(loop,), name=f"waits for {process.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        """The process id of the keeper."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The status of the program, or 128 plus the number of a signal; None while it runs."""
        return self._process.returncode

    @property
    def errors(self) -> str:
        """The end of its standard error."""
        return bytes(self._errors).decode("utf-8", "replace").strip()

    async def read(self) -> bytes:
        """The next bytes of its output, as soon as there are any; empty at its end."""
        await asyncio.sleep(0)  # so that a program that never stops writing does not starve other tasks
        while self._stdout in self._open:
            try:
                return os.read(self._stdout, _PIECE)
            except BlockingIOError:
                await self._wait_ready(self._stdout)
        return b""

    async def write(self, data: bytes) -> None:
        """Write all of it, or only a part if cancelled. Raises BrokenPipeError if the program no longer reads."""
        rest = memoryview(data)
        while rest:
            if self._stdin not in self._open:
                raise BrokenPipeError("its standard input is closed")
            try:
                rest = rest[os.write(self._stdin, rest[:_PIECE]) :]
            except BlockingIOError:
                await self._wait_ready(self._stdin, writing=True)

    def close_input(self) -> None:
        """Close its standard input."""
        self._close(self._stdin)

    async def end(self, grace: float, *, in_a_hurry: bool = False) -> None:
        """Close its input, wait `grace` seconds, then end it and all that it started. Calling it twice does no harm."""
        try:
            self._close(self._stdin)
            await wait_at_most(grace, self.exited)
        finally:
            self._cut_lifeline(in_a_hurry=in_a_hurry)
            try:
                await wait_at_most(_EXIT_S, self.exited)
            finally:
                self._close(self._stdout, self._stderr)

    async def _wait_ready(self, pipe: int, *, writing: bool = False) -> None:
        loop = asyncio.get_running_loop()
        add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
        ready = asyncio.Event()
        self._waiting.add(ready)
        add(pipe, ready.set)
        try:
            await ready.wait()
        finally:
            self._waiting.discard(ready)
            if pipe in self._open:
                remove(pipe)

    def _read_errors(self) -> None:
        try:
            data = os.read(self._stderr, _PIECE)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(self._stderr)
        self._errors = (self._errors + data)[-_TAIL:]

    def _wait(self, loop: AbstractEventLoop) -> None:
        self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self.exited.set)

    def _cut_lifeline(self, *, in_a_hurry: bool) -> None:
        if self._lifeline is not None:
            with contextlib.suppress(BrokenPipeError):  # it has ended
                os.write(self._lifeline, b"!" * in_a_hurry)
            os.close(self._lifeline)
            self._lifeline = None

    def _close(self, *pipes: int) -> None:
        """Close these pipes, and wake everybody who waits for one."""
        loop = asyncio.get_running_loop()
        for pipe in self._open & set(pipes):
            loop.remove_reader(pipe)
            loop.remove_writer(pipe)
            os.close(pipe)
            self._open.discard(pipe)
        for waiting in self._waiting:
            waiting.set()


def start(program: LongProgram) -> KeptProgram:
    """Start it. Raises OSError if no process can be started, ValueError for something that cannot be an argument.

    Nothing is awaited, so no cancellation can leave it half started.
    """
    account = program.account
    who = f"{account.uid}:{account.gid}:{','.join(map(str, account.groups))}" if account else "-"
    with contextlib.ExitStack() as undone, default_signals():
        ends = [_open_pipe(undone) for _ in range(4)]
        (program_in, to), (back, out), (errors, err), (held, lifeline) = ends
        process = subprocess.Popen(
            (sys.executable, "-I", "-S", str(_KEEPER), str(held), who, *program.argv),
            bufsize=0,
            stdin=program_in,
            stdout=out,
            stderr=err,
            cwd=program.cwd,
            env=program.env,
            start_new_session=True,
            pass_fds=(held,),
        )
        undone.pop_all()
    for end in (program_in, out, err, held):
        os.close(end)
    return KeptProgram(process, lifeline, (to, back, errors))


def _open_pipe(undone: contextlib.ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        undone.callback(os.close, end)
    return ends

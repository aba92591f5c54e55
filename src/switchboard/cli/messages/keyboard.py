"""Handles typing while an answer is written: the answer can be stopped, or left to continue.

Called by `chat.py` around the wait for an answer. Lines and Ctrl-C enter; a stop goes to the server, other lines are
kept for later. Next: `exchange.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Final

import typer
from msgspec import Struct

from switchboard.cli.messages.talk import MessageProgress
from switchboard.cli.output import INTERRUPTED, errors
from switchboard.domain.errors import SwitchboardError
from switchboard.tasks import cancel_tasks

StopTurn = Callable[[], Awaitable[None]]
"""Asks for the end of what runs; raises what stands in the way."""
QUIT: Final = "/quit"
_CTRL_C: Final = "\x03"
_LINE: Final = 4096
"""The most bytes that a terminal gives as one line."""


class Keyboard(Struct, frozen=True):
    """The terminal of one thread; `later` gets the lines that are messages."""

    thread: str
    later: list[str]

    async def attend(self, stop: StopTurn, following: Coroutine[None, None, MessageProgress]) -> MessageProgress:
        """The result of `following`. The first Ctrl-C, and /stop, call `stop` to end its turns; the second one leaves.

        Raises typer.Exit when the person leaves.
        """
        keys: asyncio.Queue[str] = asyncio.Queue()
        with _reading(keys):
            tasks = asyncio.create_task(following), asyncio.create_task(self._obey(stop, keys))
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                return tasks[0].result() if tasks[0] in done else await tasks[1]
            finally:
                await cancel_tasks(*tasks)
                self._keep(keys)

    def _keep(self, keys: asyncio.Queue[str]) -> None:
        """Keep lines typed while a stop is on its way; another stop has nothing left to end."""
        lines = (keys.get_nowait() for _ in range(keys.qsize()))
        self.later.extend(line for line in lines if line not in {"/stop", _CTRL_C})

    async def _obey(self, stop: StopTurn, keys: asyncio.Queue[str]) -> MessageProgress:
        stopping = False
        while True:
            match await keys.get():
                case "/quit":
                    self.leave()
                    raise typer.Exit
                case "\x03" if stopping:
                    self.leave()
                    raise typer.Exit(INTERRUPTED)
                case "\x03" | "/stop" as key:
                    await _stop(stop, "\n" if key == _CTRL_C else "")
                    stopping = True
                case line:
                    self.later.append(line)

    def leave(self) -> None:
        """Say how to return."""
        errors().print(f"\n`switchboard chat --thread {self.thread}` continues here", style="dim", soft_wrap=True)


async def _stop(stop: StopTurn, before: str) -> None:
    try:
        await stop()
        note = "stopping; Ctrl-C leaves"
    except SwitchboardError as error:
        note = f"it cannot be stopped: {error.message}; Ctrl-C leaves"
    errors().print(before + note, style="yellow", soft_wrap=True, markup=False)


@contextmanager
def _reading(keys: asyncio.Queue[str]) -> Iterator[None]:
    """Put the lines of the terminal and Ctrl-C into `keys`; the end of the input is /quit."""
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()

    def read() -> None:
        try:
            line = os.read(terminal, _LINE).decode(errors="replace")
        except OSError:  # the terminal is gone
            line = ""
        if not line:
            loop.remove_reader(terminal)
        keys.put_nowait(line.strip() if line else QUIT)

    loop.add_reader(terminal, read)
    loop.add_signal_handler(signal.SIGINT, keys.put_nowait, _CTRL_C)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        loop.remove_signal_handler(signal.SIGINT)

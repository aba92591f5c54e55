"""A connector that runs in a test, and dies where it is told to. Called by `killing.py`; next: `switchboard.py`.

A connector's tasks are recognised by their context, so that none survives it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakSet

import httpx2
from msgspec import Struct
from structlog.testing import capture_logs

from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.runner import Runner
from switchboard.domain.json_values import JsonObject
from switchboard.lanes import faults
from switchboard.ports.connector import Identity
from switchboard.testing.connectors.clock import is_skipped
from switchboard.testing.connectors.hooking import answer_hook
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard

_WITHIN_S: Final = 30.0
_WITHIN_REAL_S: Final = 120.0
"""The same limit in real time, where a machine may stall for seconds."""
_LOOK_S: Final = 0.01
_AGAIN_S: Final = 1.0


class Death(Struct, frozen=True):
    """Where a connector dies: at the `nth` pass of a named point, or at a request whose path ends with `at`.

    A request is either `processed` before, or never arrives.
    """

    at: str
    nth: int = 1
    processed: bool | None = None

    def __str__(self) -> str:
        when = {None: f":{self.nth}" if self.nth > 1 else "", False: " before it arrives", True: " before its answer"}
        return f"{self.at}{when[self.processed]}"


def around(*paths: str) -> tuple[Death, ...]:
    """Deaths at requests whose paths end with one of these: before each arrives, and before its answer."""
    return tuple(Death(path, processed=processed) for path in paths for processed in (False, True))


@dataclass(slots=True, eq=False)
class Running:
    """A running connector, and its switchboard."""

    switchboard: ScriptedSwitchboard
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    dead: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: WeakSet[asyncio.Task[Any]] = field(default_factory=WeakSet)
    task: asyncio.Task[int] = field(init=False)

    async def killed(self) -> None:
        """Kill it, so that it can do nothing more. Another connector may get the account at once."""
        await self.vanished()
        self.switchboard.process_ended()

    async def vanished(self) -> None:
        """Kill it, but let its leases last until they expire."""
        self.dead.set()
        faults.arm("")
        while alive := [task for task in self.tasks if not task.done()]:
            for task in alive:
                task.cancel()
            # Some tasks connect the pipes of a starting program: they never end unless they are cancelled again.
            await asyncio.wait(alive, timeout=_AGAIN_S)

    def die(self) -> None:
        """Die at a named point."""
        if _running.get(None) is self:
            self.dead.set()
            raise asyncio.CancelledError


_running: Final = ContextVar[Running]("_running")


@asynccontextmanager
async def connector(
    configured: Configured, switchboard: ScriptedSwitchboard, death: Death | None = None
) -> AsyncIterator[Running]:
    """Run the account until the block ends; `death`: where it dies."""
    async with answer_hook(configured, switchboard), _running_connector(configured, switchboard, death) as running:
        yield running


@asynccontextmanager
async def _running_connector(
    configured: Configured, switchboard: ScriptedSwitchboard, death: Death | None
) -> AsyncIterator[Running]:
    running = Running(switchboard)

    async def connect(_: Identity) -> httpx2.AsyncClient:
        return switchboard.client(running.dead)

    if death is not None and death.processed is not None:
        switchboard.dies_at = (death.at, death.processed)
    elif death is not None:
        faults.arm(f"{death.at}:{death.nth}", running.die)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(_note_task)
    token = _running.set(running)
    running.task = asyncio.create_task(Runner(configured, connect, loop.time).run(running.stop))
    _running.reset(token)
    try:
        yield running
    finally:
        if not running.task.done():
            await running.killed()


@asynccontextmanager
async def connected(configured: Configured) -> AsyncIterator[ScriptedSwitchboard]:
    """Run the account against a fresh switchboard until the block ends."""
    switchboard = scripted()
    async with connector(configured, switchboard):
        yield switchboard


def _note_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **more: Any
) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, **more)
    if running := _running.get(None):
        running.tasks.add(task)
    return task


@contextmanager
def listening() -> Iterator[Callable[[], list[str]]]:
    """The log lines within this block, at any level."""
    said = list[str]()

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    root, keep = logging.getLogger(), Keep()
    level = root.level
    root.addHandler(keep)
    root.setLevel(logging.DEBUG)
    try:
        with capture_logs() as events:
            yield lambda: [*said, *map(str, events)]
    finally:
        root.setLevel(level)
        root.removeHandler(keep)


async def until(holds: Callable[[], object], what: str, *, more_s: float = 0.0) -> None:
    """Wait until it holds, `more_s` longer than usual. Raises AssertionError."""
    within_s = _WITHIN_S if is_skipped() else _WITHIN_REAL_S
    ends = asyncio.get_running_loop().time() + within_s + more_s
    while not holds():
        assert asyncio.get_running_loop().time() < ends, f"it did not happen: {what}"
        await asyncio.sleep(_LOOK_S)


def scripted(ttl_s: float = 15.0) -> ScriptedSwitchboard:
    """A fresh switchboard with the clock of the event loop."""
    return ScriptedSwitchboard(asyncio.get_running_loop().time, ttl_s)


def texts(envelopes: Sequence[JsonObject]) -> list[str]:
    """The texts of messages."""
    return [envelope["payload"]["normalized_text"] for envelope in envelopes]

"""One call of a tool, from what a model wrote to what it is told.

The engine `model` calls `call_tool` inside a step. Whatever happens, the result is a `ToolOutcome`: arguments that do
not fit, a tool that raises, one that does not end, one that returns far too much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from msgspec.structs import replace

from switchboard.core.arguments import complaint
from switchboard.core.storable import storable_text
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.tools import Tool, ToolOutcome, ToolScope, ToolSpec
from switchboard.tools.results import shorten
from switchboard.tools.threads import in_thread
from switchboard.tools.workspace import MOST_WRITTEN

TIMEOUT_S: Final = 60.0
_GRACE_S: Final = 5.0
"""How long a tool whose time is up may take to stop what it has running."""
_STOP_GRACE_S: Final = 0.3
"""The same where somebody waits for the turn to end."""

_log = structlog.get_logger(__name__)


class CallLimits:
    """Of some calls: the seconds that each may take, and what is called as it begins; what that raises is raised.

    As all may take equally long, there is one timer, for the first: most never ring, and one for each call would cost a
    tenth of all that a step of a plan costs.
    """

    def __init__(self, timeout: float = TIMEOUT_S, begin: Callable[[], None] | None = None) -> None:
        self.timeout = timeout
        self.begin = begin
        self._until: dict[asyncio.Future[None], float] = {}
        """By the clock of the loop; those that began earlier come first."""
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, over: asyncio.Future[None]) -> None:
        """End this when the time of a call is up that begins now."""
        loop = over.get_loop()
        self._until[over] = loop.time() + self.timeout
        if self._timer is None:
            self._timer = loop.call_later(self.timeout, self._ring, loop)

    def leave(self, over: asyncio.Future[None]) -> None:
        """The call has ended, one way or the other."""
        del self._until[over]
        if self._timer is not None and not self._until:
            self._timer.cancel()
            self._timer = None

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        for over, until in self._until.items():
            if until > loop.time():
                self._timer = loop.call_at(until, self._ring, loop)
                return
            _wake(over)


async def call_tool(
    tool: Tool, arguments: JsonMapping, scope: ToolScope, limits: CallLimits | None = None
) -> ToolOutcome:
    """Check the arguments, call the tool, shorten its result. Never raises, but for what `begin` does.

    Cancelled, it leaves nothing running but what does not end within a third of a second.
    """
    if wrong := complaint(arguments, tool.spec.parameters):
        return ToolOutcome(f"{tool.spec.name} was not called: {wrong}", ok=False)
    outcome = await _bounded(tool, arguments, scope, limits or CallLimits())
    text = storable_text(outcome.text[:MOST_WRITTEN])
    name, most = tool.spec.name, tool.spec.most
    if len(text) <= most:
        return outcome if text == outcome.text else replace(outcome, text=text)
    return replace(outcome, text=await in_thread(lambda stop: shorten(text, scope, name, stop, most)))


async def _bounded(tool: Tool, arguments: JsonMapping, scope: ToolScope, limits: CallLimits) -> ToolOutcome:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    async def act() -> ToolOutcome:
        try:
            return await _called(tool, arguments, scope, limits.begin)
        finally:
            _wake(over)

    running = loop.create_task(act())
    limits.watch(over)
    late, grace = True, _STOP_GRACE_S
    try:
        await over  # for one task, `asyncio.wait` costs twice as much
        late, grace = not running.done(), _GRACE_S
    finally:
        limits.leave(over)
        if late:
            await _cancelled(running, tool.spec.name, grace)
    if late or running.cancelled():
        when = f" after {limits.timeout:g} s" if late else ""
        return ToolOutcome(_stopped(tool.spec, when), ok=False, passing=late)
    return running.result()


def _wake(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


async def _cancelled(running: asyncio.Task[ToolOutcome], name: str, grace: float) -> None:
    running.cancel()
    await asyncio.wait((running,), timeout=grace)
    if not running.done():
        _log.error("a tool does not stop", tool=name)


async def _called(
    tool: Tool, arguments: JsonMapping, scope: ToolScope, begin: Callable[[], None] | None
) -> ToolOutcome:
    if begin is not None:
        begin()
    try:
        return await tool.call(arguments, scope)
    except Exception as error:
        _log.exception("a tool has failed", tool=tool.spec.name)
        return ToolOutcome(
            f"{tool.spec.name} failed with {type(error).__name__}; that is a defect of the tool", ok=False
        )


def _stopped(spec: ToolSpec, when: str) -> str:
    doubt = "; whether it had an effect is not known" if spec.effect != "idempotent" else ""
    return f"{spec.name} was stopped{when}: it had not ended{doubt}"

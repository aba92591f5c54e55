"""One call of a tool, from a model's arguments to the result that it is told.

The engine `model` calls `call_tool` inside a step. The result is always a `ToolOutcome`, even if the arguments are
invalid, or if the tool raises, does not end, or returns far too much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from msgspec.structs import replace

from switchboard.core.arguments import complaint
from switchboard.core.text.storable import storable_text
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.tools import PreparedCall, Prepares, Tool, ToolOutcome, ToolScope, ToolSpec
from switchboard.tools.results import shorten
from switchboard.tools.threads import in_thread
from switchboard.tools.workspace import MOST_WRITTEN

TIMEOUT_S: Final = 60.0
_GRACE_S: Final = 5.0
"""Seconds that a tool whose time is up has to stop its work."""
_STOP_GRACE_S: Final = 0.3
"""The same if somebody waits for the turn to end."""

_log = structlog.get_logger(__name__)


class CallLimits:
    """The time limit of calls in seconds, and a function that is called as each begins; its errors are raised.

    All calls have the same limit, so one timer, for the oldest call, is enough: most never fire, and one for each call
    would account for a tenth of the cost of a step of a plan.
    """

    def __init__(self, timeout: float = TIMEOUT_S, begin: Callable[[], None] | None = None) -> None:
        self.timeout = timeout
        self.begin = begin
        self._until: dict[asyncio.Future[None], float] = {}
        """By the clock of the event loop, oldest calls first."""
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, over: asyncio.Future[None]) -> None:
        """Set `over` when the time of a call that begins now is up."""
        loop = over.get_loop()
        self._until[over] = loop.time() + self.timeout
        if self._timer is None:
            self._timer = loop.call_later(self.timeout, self._ring, loop)

    def leave(self, over: asyncio.Future[None]) -> None:
        """The call has ended, in whatever way."""
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
    """Check the arguments, call the tool, shorten its result. Raises only what `limits.begin` raises.

    If cancelled, it leaves only work running that does not end within a third of a second.
    """
    if wrong := complaint(arguments, tool.spec.parameters):
        return ToolOutcome(f"{tool.spec.name} was not called: {wrong}", ok=False)
    outcome = await _call_with_limits(tool, arguments, scope, limits or CallLimits())
    text = storable_text(outcome.text[:MOST_WRITTEN])
    name, most = tool.spec.name, tool.spec.most
    if len(text) <= most:
        return outcome if text == outcome.text else replace(outcome, text=text)
    return replace(outcome, text=await in_thread(lambda stop: shorten(text, scope, name, stop, most)))


async def prepare_call(
    tool: Tool, arguments: JsonMapping, scope: ToolScope, limits: CallLimits | None = None
) -> PreparedCall | ToolOutcome:
    """What a call would do, by a tool that `Prepares`; whatever it does, an outcome says why there is none."""
    preparing = _Preparing(tool)
    outcome = await _call_with_limits(preparing, arguments, scope, limits or CallLimits())
    return outcome if preparing.found is None else preparing.found


class _Preparing:
    """The preparation of a call, under the limits of a call."""

    def __init__(self, tool: Tool) -> None:
        self.spec = tool.spec
        self.found: PreparedCall | None = None
        self._tool: object = tool

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        if not isinstance(self._tool, Prepares):
            return ToolOutcome(f"{self.spec.name} cannot say what it would do", ok=False)
        found = await self._tool.prepare(arguments, scope)
        if isinstance(found, ToolOutcome):
            return found
        self.found = found
        return ToolOutcome("")


async def _call_with_limits(tool: Tool, arguments: JsonMapping, scope: ToolScope, limits: CallLimits) -> ToolOutcome:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    async def act() -> ToolOutcome:
        try:
            return await _run_tool(tool, arguments, scope, limits.begin)
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
            await _cancel_task(running, tool.spec.name, grace)
    if late or running.cancelled():
        when = f" after {limits.timeout:g} s" if late else ""
        return ToolOutcome(_stop_message(tool.spec, when) + _so_far(running), ok=False, passing=late)
    return running.result()


def _wake(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


async def _cancel_task(running: asyncio.Task[ToolOutcome], name: str, grace: float) -> None:
    running.cancel()
    await asyncio.wait((running,), timeout=grace)
    if not running.done():
        _log.error("a tool does not stop", tool=name)


async def _run_tool(
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


def _so_far(running: asyncio.Task[ToolOutcome]) -> str:
    """What the tool has told of a call that did not end, as further lines."""
    if not running.done() or running.cancelled():
        return ""
    outcome = running.result()
    return f"\n{outcome.text}" if outcome.unfinished else ""


def _stop_message(spec: ToolSpec, when: str) -> str:
    doubt = "; whether it had an effect is not known" if spec.effect != "idempotent" else ""
    return f"{spec.name} was stopped{when}: it had not ended{doubt}"

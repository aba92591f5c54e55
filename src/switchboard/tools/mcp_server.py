"""One MCP server: its process, started when needed and ended when idle, and calls of its tools.

`mcp_servers.py` has one of these for each server of the settings. In: a tool as it was accepted, and arguments; out:
the server's result, or `ServerFailure`. A server's faults affect only calls to that server. Next:
`transport/stdio_mcp.py`, which talks to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final
from uuid import UUID

import structlog

from switchboard.core.mcp_tools import pin_tool
from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.mcp import ListedTool, PinnedTool, Pins
from switchboard.tasks import cancel_tasks, wait_at_most
from switchboard.tools.mcp_spec import ServerSpec
from switchboard.transport.kept import LongProgram
from switchboard.transport.mcp_call import McpToolResult, ServerFailure

if TYPE_CHECKING:
    from switchboard.transport.stdio_mcp import StdioServer

_log = structlog.get_logger(__name__)

_LOOK_AGAIN_S: Final = 60.0
"""Seconds after which tools are listed again before a call."""
_LONGEST_AWAY_S: Final = 60.0
"""Maximum seconds before a server that could not be started, or did not list its tools, is tried again."""
_ERRORS_SHOWN: Final = 500
_CHANGED: Final = (
    "{name} was not called: its server offers it in another form than the operator accepted, so it is disabled. Tell "
    "the person that the operator can look at it with `switchboard mcp show {server}`; trying again will not help."
)
_GONE: Final = "{name} was not called: its server does not offer it any more. Trying again will not help."


class _Running:
    """A process of the server, and the tools that it listed."""

    def __init__(self) -> None:
        self.session: asyncio.Future[StdioServer] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None
        self.leaving = False
        self.calls = 0
        self.used = monotonic()
        self.listed = float("-inf")
        self.marks: Mapping[str, str] = {}

    @property
    def usable(self) -> bool:
        """Whether calls may begin."""
        return not self.leaving and self.session.done() and not self.session.result().over.is_set()

    @property
    def stale(self) -> bool:
        """Whether its tools must be listed again before they are called."""
        return monotonic() - self.listed > _LOOK_AGAIN_S or self.session.result().changed


class McpServer:
    """A server of the settings. One process at a time; close it at the end."""

    def __init__(self, spec: ServerSpec, pins: Pins) -> None:
        self.spec = spec
        self._pins = pins
        self._running: _Running | None = None
        self._changing = asyncio.Lock()
        self._doubts: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._away_until = float("-inf")
        self._why = ""

    async def look(self) -> None:
        """List its tools, so that they are known. A failure is noted, but does not fail a turn.

        Raises `Unavailable`.
        """
        with contextlib.suppress(ServerFailure):
            async with self._ready():
                pass

    async def call(self, wanted: PinnedTool, arguments: JsonMapping, key: UUID) -> McpToolResult:
        """Call a tool, if it is still as it was accepted. Raises `ServerFailure`, `Unavailable`."""
        name, seconds = wanted.tool.name, self.spec.timeout
        async with self._ready() as running:
            mark = running.marks.get(name)
            if mark != wanted.mark:
                why = _GONE if mark is None else _CHANGED
                raise ServerFailure(why.format(name=name, server=self.spec.name), reached=False)
            session = running.session.result()
            answers = session.answers
            try:
                async with asyncio.timeout(seconds):
                    return await session.call(name, arguments, key)
            except TimeoutError as error:
                self._doubt(running, answers)
                raise ServerFailure(f"the server did not answer in {seconds:g} s") from error
            except asyncio.CancelledError:
                self._doubt(running)
                raise

    async def aclose(self) -> None:
        """End its process. Nothing may be called after this."""
        async with self._changing:
            await self._end_process()
        await cancel_tasks(*self._doubts)

    @asynccontextmanager
    async def _ready(self) -> AsyncIterator[_Running]:
        """Its process, with recently listed tools; it is not idle meanwhile. Raises `ServerFailure`, `Unavailable`."""
        async with self._changing:
            running = self._running
            if running is None or not running.usable:
                running = await self._start_server()
            running.calls += 1
        try:
            async with self._changing:
                if running.stale:
                    await self._list_tools(running)
            yield running
        finally:
            running.calls -= 1
            running.used = monotonic()

    async def _start_server(self) -> _Running:
        if (left := self._away_until - monotonic()) > 0:
            raise ServerFailure(f"{self._why}; it will be tried again in {left:.0f} s", reached=False)
        await self._end_process()
        running = self._running = _Running()
        running.task = asyncio.create_task(self._run_process(running), name=f"mcp server {self.spec.name}")
        try:
            await running.session
        except ServerFailure as failure:
            await self._note_failure(failure)
            raise
        except asyncio.CancelledError:
            running.task.cancel()
            raise
        return running

    async def _end_process(self) -> None:
        """End the process, if there is one, and wait until nothing of it runs."""
        running, self._running = self._running, None
        if running is not None and running.task is not None:
            running.leaving = True
            if running.session.done() and not running.session.cancelled() and running.session.exception() is None:
                running.session.result().give_up("the server is being ended")
            else:
                running.task.cancel()
            await asyncio.wait((running.task,))

    async def _run_process(self, running: _Running) -> None:
        """Run the process until it ends by itself, is abandoned, or has been idle for too long."""
        try:
            opened = await asyncio.to_thread(_import_open_server)
            async with opened(self.spec.program(), self.spec.start_timeout) as session:
                running.session.set_result(session)
                await self._until_over(running, session.over)
        except (ServerFailure, ConfigurationError) as error:
            failure = error if isinstance(error, ServerFailure) else ServerFailure(error.message, reached=False)
            if not running.session.done():
                running.session.set_exception(failure)
        except Exception as error:
            _log.exception("a session with an MCP server has failed", server=self.spec.name)
            if not running.session.done():
                running.session.set_exception(ServerFailure(f"it failed with {type(error).__name__}", reached=False))
        finally:
            running.leaving = True
            running.session.cancel()

    async def _until_over(self, running: _Running, over: asyncio.Event) -> None:
        while not running.leaving:
            idle = 0.0 if running.calls else monotonic() - running.used
            await wait_at_most(self.spec.idle - idle, over)
            if over.is_set():
                return
            running.leaving = not running.calls and monotonic() - running.used >= self.spec.idle

    async def _list_tools(self, running: _Running) -> None:
        """List its tools, to compare them with the accepted ones. Raises `ServerFailure`, `Unavailable`."""
        session = running.session.result()
        try:
            async with asyncio.timeout(self.spec.start_timeout):
                tools = await session.tools()
        except TimeoutError as error:
            if running.calls == 1:  # otherwise it may be busy with other calls
                session.give_up("the server does not answer")
            failure = ServerFailure(f"it did not list its tools in {self.spec.start_timeout:g} s", reached=False)
            await self._note_failure(failure)
            raise failure from error
        except ServerFailure as failure:
            await self._note_failure(failure)
            raise
        names = Counter(tool.name for tool in tools)
        found = [pin_tool(tool) for tool in tools if names[tool.name] == 1]  # a duplicate name would be ambiguous
        await self._pins.seen(self.spec.name, found)
        running.marks, running.listed = {one.tool.name: one.mark for one in found}, monotonic()
        self._failures = 0

    async def _note_failure(self, failure: ServerFailure) -> None:
        """Leave it alone for a while, longer each time, and note why."""
        self._failures += 1
        self._away_until = monotonic() + min(_LONGEST_AWAY_S, 2.0**self._failures)
        self._why = f"the server {self.spec.name} cannot be used: {failure}"
        written = self.spec.redact_output(failure.errors)[-_ERRORS_SHOWN:]
        _log.warning("an MCP server cannot be used", server=self.spec.name, why=str(failure), errors=written)
        with contextlib.suppress(Unavailable):
            await self._pins.failed(self.spec.name, f"{failure}: {written}" if written else f"{failure}")

    def _doubt(self, running: _Running, answers: int | None = None) -> None:
        """After a call without an answer: end the process if it does not answer at all.

        `answers`: if the call timed out, the number of answers that the process had given when the call began.
        """
        doubt = asyncio.create_task(_give_up_if_silent(running, self.spec.timeout, answers))
        self._doubts.add(doubt)
        doubt.add_done_callback(self._doubts.discard)


async def _give_up_if_silent(running: _Running, seconds: float, answers: int | None) -> None:
    """Give up a session that does not answer. It may be busy with another call, unless it has answered none since."""
    session = running.session.result()
    if not await session.alive(seconds) and (not running.calls or session.answers == answers):
        session.give_up("the server does not answer")


def _import_open_server() -> Callable[[LongProgram, float], AbstractAsyncContextManager[StdioServer]]:
    from switchboard.transport.stdio_mcp import open_server

    return open_server


async def tools_of(spec: ServerSpec) -> list[ListedTool]:
    """Start a server just to list its tools. Raises `ServerFailure`, ConfigurationError."""
    opened = await asyncio.to_thread(_import_open_server)
    async with opened(spec.program(), spec.start_timeout) as session:
        try:
            async with asyncio.timeout(spec.start_timeout):
                tools = await session.tools()
        except TimeoutError as error:
            session.give_up("the server does not answer")
            raise ServerFailure(f"it did not list its tools in {spec.start_timeout:g} s", reached=False) from error
    return tools

"""The MCP server for one turn of a command-line program: its tools, at a socket in the scratch directory.

`running.py` opens it for the program, which reaches it through `transport/relay.py`. In and out: lines of JSON-RPC,
with calls answered by `carry_out`. It lives in the worker and ends with it, so a program left behind has no tools. It
does not use the SDK, which takes most of a second to import, for four methods.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from switchboard import __version__
from switchboard.core.text.lenient import json_value, mapping, string
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.llm import CarryOut, OfferedTool, ToolCall, ToolResult
from switchboard.tasks import cancel_tasks
from switchboard.transport import relay

_SOCKET: Final = "mcp"
_MOST_LINE: Final = 8_388_608
_PROTOCOLS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_MOST_CALLS: Final = 64
"""Calls of one turn at a time; who makes more is read no further until one of them has ended."""
_NO_JSON, _NO_METHOD, _BAD_PARAMS = -32700, -32601, -32602


def relay_to(place: Path) -> tuple[str, ...]:
    """The command of the MCP server for a program; its tools are those at the socket in `place`."""
    return (sys.executable, "-I", "-S", relay.__file__, str(place / _SOCKET))


@asynccontextmanager
async def serving(place: Path, tools: Sequence[OfferedTool], carry_out: CarryOut) -> AsyncIterator[ToolServing]:
    """Serve the tools within this block."""
    one = ToolServing(tools, carry_out)
    server = await asyncio.start_unix_server(one.serve, sock=_listener(place), limit=_MOST_LINE)
    try:
        yield one
    finally:
        server.close()
        await one.aclose()


def _listener(place: Path) -> socket.socket:
    """The path of a socket must be short, unlike that of some directories."""
    listener = socket.socket(socket.AF_UNIX)
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{directory}/{_SOCKET}" if sys.platform == "linux" else str(place / _SOCKET))
    except OSError:
        listener.close()
        raise
    finally:
        os.close(directory)
    return listener


class ToolServing:
    """A running server. `failed` ends with the error of `carry_out`, if any: then the turn cannot continue."""

    def __init__(self, tools: Sequence[OfferedTool], carry_out: CarryOut) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._carry_out = carry_out
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: dict[asyncio.StreamWriter, asyncio.Event] = {}
        self._room = asyncio.Semaphore(_MOST_CALLS)
        self._over = asyncio.Event()
        self._calls = 0
        self._active_at = self._loop.time()
        self.listed = False
        """Whether the program has asked which there are; one that has not goes on without any."""
        self.failed: asyncio.Future[None] = self._loop.create_future()

    @property
    def idle(self) -> float:
        """Seconds since the last call."""
        return 0.0 if self._calls else self._loop.time() - self._active_at

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: messages in order, except for calls, which may take long.

        A client that does not read its answers is no longer read from.
        """
        left = self._connections[writer] = asyncio.Event()
        try:
            with suppress(ConnectionError, ValueError):  # disconnected, or a line that is too long
                while not self._over.is_set() and (line := await reader.readline()):
                    await self._take(json_value(line.decode("utf-8", "replace")), writer)
        finally:
            writer.close()
            left.set()
            del self._connections[writer]

    def shut(self) -> None:
        """Begin no more calls; those that have begun continue."""
        self._over.set()

    async def aclose(self) -> None:
        """Stop answering."""
        self.shut()
        await cancel_tasks(*self._tasks)
        for writer, left in tuple(self._connections.items()):
            writer.transport.abort()
            await left.wait()
        if self.failed.done():
            self.failed.exception()  # already reported
        self.failed.cancel()

    async def _take(self, value: object, writer: asyncio.StreamWriter) -> None:
        message = mapping(value)
        method, params = string(message.get("method")), mapping(message.get("params"))
        if self._over.is_set():
            return
        if value is None:
            await _answer(writer, None, _error(_NO_JSON, "this is not JSON"))
        elif "id" not in message or not method:
            return  # a notification, or an answer to nothing
        elif method == "tools/call":
            await self._room.acquire()
            if self._over.is_set():
                return
            task = asyncio.create_task(self._answer_call(message.get("id"), params, writer))
            self._tasks.add(task)
            task.add_done_callback(self._forget_task)
        else:
            await _answer(writer, message.get("id"), self._result_of_method(method, params))

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()

    async def _answer_call(self, call_id: object, params: JsonMapping, writer: asyncio.StreamWriter) -> None:
        if (told := await self._call_tool(params)) is not None:
            await _answer(writer, call_id, told)

    def _result_of_method(self, method: str, params: JsonMapping) -> JsonObject:
        match method:
            case "initialize":
                asked = params.get("protocolVersion")
                version = asked if asked in _PROTOCOLS else _PROTOCOLS[0]
                us = {"name": "switchboard", "version": __version__}
                return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": us}}
            case "tools/list":
                self.listed = True
                return {"result": {"tools": [_tool_entry(tool) for tool in self._tools.values()]}}
            case "ping":
                return {"result": {}}
        return _error(_NO_METHOD, f"there is no method {method}")

    async def _call_tool(self, params: JsonMapping) -> JsonObject | None:
        name = string(params.get("name"))
        if name not in self._tools:
            return _error(_BAD_PARAMS, f"there is no tool {name[:100]}")
        self._calls += 1
        try:
            result = await self._carry_out(ToolCall(name, mapping(params.get("arguments"))))
        except Exception as error:
            if not self.failed.done():
                self.failed.set_exception(error)
            return None
        finally:
            self._calls -= 1
            self._active_at = self._loop.time()
        return {"result": _result_content(result)}


async def _answer(writer: asyncio.StreamWriter, to: object, told: JsonObject) -> None:
    if not writer.is_closing():
        writer.write(json.dumps({"jsonrpc": "2.0", "id": to, **told}).encode() + b"\n")
        with suppress(ConnectionError):
            await writer.drain()


def _tool_entry(tool: OfferedTool) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "inputSchema": dict(tool.parameters)}


def _result_content(result: ToolResult) -> JsonObject:
    return {"content": [{"type": "text", "text": result.text}], "isError": not result.ok}


def _error(code: int, message: str) -> JsonObject:
    return {"error": {"code": code, "message": message}}

"""The MCP door at `/mcp`: a tiny ASGI app before the SDK, which is imported when the first client comes.

`http/app.py` mounts it behind the gate. In: JSON-RPC over POST, the caller in `state.principal`; out: JSON, no stream
and no session. The SDK takes most of a second and 40 MB to import: whoever does not use it does not pay. Next:
`mcp_tools.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from switchboard.server.http.doors import Doors

_TOOLS: Final = "switchboard.server.mcp_tools"


class McpDoor:
    """Serves MCP while `open` is entered."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._ready: asyncio.Future[ASGIApp] | None = None
        self._shortcut: Any = None
        self._running: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Until this is left, requests are served."""
        try:
            yield
        finally:
            if self._running is not None:
                self._running.cancel()
                await asyncio.gather(self._running, return_exceptions=True)

    async def direct(self, request: Request) -> Response | None:
        """The answer to a plain call that brings messages in; None where the SDK is to be asked."""
        if self._shortcut is None or not self._shortcut.may_take(request):
            return None
        body = request.state.body = await request.body()
        response: Response | None = await self._shortcut.take(request, body)
        return response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner = await self._inner()
        # The SDK does not look whether the client is still there, so the body is read for it and the rest watched.
        body = scope["state"]["body"] if "body" in scope["state"] else await _whole_body(receive)
        async with self._doors.polls.watch(receive) as gone:
            scope["state"]["gone"] = gone
            await inner(scope, _replayed(body, gone), send)

    async def _inner(self) -> ASGIApp:
        if self._ready is None or (self._ready.done() and self._ready.exception() is not None):
            self._ready = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run(self._ready))
        return await asyncio.shield(self._ready)

    async def _run(self, ready: asyncio.Future[ASGIApp]) -> None:
        """One task for the SDK's whole life: what it enters must be left in the same task."""
        try:
            tools: Any = await asyncio.to_thread(import_module, _TOOLS)
            manager, self._shortcut = tools.session_manager(self._doors)
            async with manager.run():
                ready.set_result(manager.asgi_app)
                await asyncio.Event().wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)


async def _whole_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _replayed(body: bytes, gone: asyncio.Event) -> Receive:
    """A `receive` that gives the body at once, and the hang-up when it comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    return receive

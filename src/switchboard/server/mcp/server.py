"""The MCP server at `/mcp`: a tiny ASGI app before the SDK, which is imported for the first client.

`app.py` mounts it behind the gate. In: JSON-RPC over POST, the caller in `state.principal`; out: JSON, no stream and no
session. The SDK takes most of a second and 40 MB to import, which installations that do not use it are spared. Next:
`tools.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from switchboard.core.text.json_size import check_containers
from switchboard.domain.errors import TooLarge
from switchboard.server.fastpath.direct import whole_body
from switchboard.server.services import Services
from switchboard.tasks import cancel_tasks

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from switchboard.server.fastpath.mcp_ingest import FastIngest


class McpEndpoint:
    """Serves MCP while `open` is entered."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._ready: asyncio.Future[tuple[ASGIApp, FastIngest]] | None = None
        self._running: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serve requests within this block."""
        try:
            yield
        finally:
            if self._running is not None:
                await cancel_tasks(self._running)

    async def direct(self, request: Request) -> Response | None:
        """The answer to a plain call that submits messages; None for calls that the SDK must answer."""
        _, fast = await self._both_ways()
        if not fast.may_take(request):
            return None
        body = request.state.body = await whole_body(request)
        return await fast.take(request, body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner, _ = await self._both_ways()
        # The SDK does not check whether the client is still connected, so we read the body for it and watch the rest.
        try:
            body = scope["state"]["body"] if "body" in scope["state"] else await whole_body(Request(scope, receive))
        except ClientDisconnect:
            return  # disconnected in the middle of the body
        self._check_body(body)
        async with self._services.polls.watch(receive) as gone:
            scope["state"]["gone"] = gone
            await inner(scope, _replay_body(body, gone), send)

    def _check_body(self, body: bytes) -> None:
        """The SDK decodes and validates a body several times, during which nothing else runs."""
        limit = 2 * self._services.switchboard.runtime.settings.accept.message_bytes
        if len(body) > limit:
            raise TooLarge(f"only ingest_batch takes more than {limit} bytes, in a plain call; nothing was stored")
        check_containers(body)

    async def _both_ways(self) -> tuple[ASGIApp, FastIngest]:
        if self._ready is None or (self._ready.done() and self._ready.exception() is not None):
            self._ready = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run(self._ready))
        return await asyncio.shield(self._ready)

    async def _run(self, ready: asyncio.Future[tuple[ASGIApp, FastIngest]]) -> None:
        """One task for the SDK's whole life, as its contexts must be left in the task that entered them."""
        try:
            session_manager = await asyncio.to_thread(_import_session_manager)
            manager, fast = session_manager(self._services)
            async with manager.run():
                ready.set_result((manager.asgi_app, fast))
                await asyncio.Event().wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)


def _import_session_manager() -> Callable[[Services], tuple[StreamableHTTPSessionManager, FastIngest]]:
    from switchboard.server.mcp.tools import session_manager

    return session_manager


def _replay_body(body: bytes, gone: asyncio.Event) -> Receive:
    """A `receive` that returns the body at once, and later the disconnect."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    return receive

"""The server before its API is there: connectors get their leases, and every other request waits.

The API takes most of a second to import, routers and OpenAPI models above all, and connectors need next to nothing of
it. `serve.py` gives an `Entrance` to uvicorn, which accepts from then on, and has it open the API. In: a `Switchboard`;
out: an ASGI app. Next: `fastpath/first.py`, then `app.py`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from switchboard.app.runtime import Switchboard
from switchboard.server.connections import Connections, connection_limit
from switchboard.server.fastpath.direct import Direct
from switchboard.server.fastpath.first import FirstAnswers
from switchboard.server.http.errors import response_to
from switchboard.server.http.gate import RequestGate, limits_of
from switchboard.server.http.hosts import Hosts, names_of
from switchboard.server.services import Services
from switchboard.server.turns import StrangersTurns
from switchboard.server.ws.protocol import Refusals

if TYPE_CHECKING:
    from switchboard.server.app import SwitchboardApi

_SWITCH_S: Final = 0.0005
"""How long the import may keep others from running; Python's own 5 ms would be paid by each step of a lease."""


class Entrance:
    """Passes requests on to the API once it is open."""

    def __init__(self, switchboard: Switchboard) -> None:
        self.services = Services(switchboard)
        self._switchboard = switchboard
        self._api: asyncio.Future[SwitchboardApi] = asyncio.get_running_loop().create_future()
        self._closing = AsyncExitStack()
        self._lifespan = Router(lifespan=self._keep_lifespan)
        settings = switchboard.runtime.settings
        first = Direct(self._answer_by_api, FirstAnswers(self.services).handlers, response_to)
        self._gate = RequestGate(first, self.services.access, limits_of(settings), Hosts(names_of(settings)))
        self._app: ASGIApp = self._answer_at_start

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer, or have the API do so."""
        return self._app(scope, receive, send)

    async def open_api(self) -> None:
        """Import the API; then requests that wait are answered. Called once."""
        create_app = await asyncio.to_thread(_import_app)
        api = create_app(self._switchboard, self.services)
        await self._closing.enter_async_context(api.router.lifespan_context(api))
        self._app = api
        self._api.set_result(api)

    async def _answer_at_start(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._lifespan if scope["type"] == "lifespan" else self._gate)(scope, receive, send)

    @asynccontextmanager
    async def _keep_lifespan(self, _: object) -> AsyncIterator[dict[str, object]]:
        async with self._closing:
            loop = asyncio.get_running_loop()
            yield {
                "connections": Connections(connection_limit()),
                "turns": StrangersTurns(loop),
                "refusals": Refusals(loop.time),
            }

    async def _answer_by_api(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What the API answers to a request that the gate has admitted."""
        api = await asyncio.shield(self._api)
        body = scope.get("state", {}).pop("body", None)
        await api.admitted({**scope, "app": api}, receive if body is None else _replay_body(body, receive), send)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """A `receive` that begins with a body that was read."""
    read: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return read.pop() if read else await receive()

    return again


def _import_app() -> Callable[[Switchboard, Services], SwitchboardApi]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        from switchboard.server.app import create_app
    finally:
        sys.setswitchinterval(interval)
    gc.freeze()  # what was imported stays, and need not be collected
    return create_app

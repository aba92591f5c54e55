"""Before every route: who is calling, and how much may it send. No route can forget to ask.

A plain ASGI middleware that `app.py` puts before all routes, MCP included. In: the request; out: the same with
`state.principal` set and a `receive` that stops at the size limit, or 401/413 at once. Next: `fastpath/direct.py`, then
the routers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from switchboard.app.access import Access
from switchboard.domain.errors import TooLarge
from switchboard.server.http.errors import response_to

_SCHEMAS: Final = (f"/schemas/{name}.json" for name in ("ingest.v1", "route.v1", "route_response.v1"))
PUBLIC: Final = frozenset({"/health", "/docs", "/openapi.json", *_SCHEMAS})
"""What needs no token."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of a body, by path; `other` for all other paths."""

    by_path: Mapping[str, int]
    other: int


class Gate:
    """Asks for a token and limits bodies."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits) -> None:
        self._app = app
        self._access = access
        self._limits = limits
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # there is no such interface, and none may open without a token
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._requests += 1
        bind_contextvars(http_request=self._requests)  # never unbound: every request has a task of its own
        limit = self._limits.by_path.get(scope["path"], self._limits.other)
        try:
            await self._admit(scope, limit)
        except Exception as error:
            await response_to(error)(scope, receive, send)
        else:
            await self._app(scope, _limited(receive, limit), send)

    async def _admit(self, scope: Scope, limit: int) -> None:
        authorization = length = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value.decode("latin-1")
            elif name == b"content-length":
                length = value
        if scope["path"] not in PUBLIC:
            scope.setdefault("state", {})["principal"] = await self._access.authenticate(authorization)
        if length is not None and length.isdigit() and int(length) > limit:
            raise _too_large(limit)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body exceeds the limit of {limit} bytes; nothing was stored")


def _limited(receive: Receive, limit: int) -> Receive:
    """`receive`, until more than `limit` bytes have come: Content-Length may be missing."""
    got = 0

    async def limited() -> Message:
        nonlocal got
        message = await receive()
        got += len(message.get("body", b""))
        if got > limit:
            raise _too_large(limit)
        return message

    return limited

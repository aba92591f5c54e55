"""Bypasses FastAPI for POSTs of messages, because its routing costs as much as storing a message.

`app.py` puts it between the gate and FastAPI. In: a request admitted by the gate; out: the handler's answer, the same
as FastAPI would give with this handler as its route (`test_fastpath.py` compares the bytes). Next: `http/ingest.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

Handler = Callable[[Request], Awaitable[Response | None]]


class Direct:
    """Calls `handlers` by path; one that returns None leaves the request to `app`, as all other requests are.

    `failed` converts a handler's exception to a response.
    """

    def __init__(self, app: ASGIApp, handlers: Mapping[str, Handler], failed: Callable[[Exception], Response]) -> None:
        self._app = app
        self._handlers = handlers
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handlers.get(scope["path"]) if scope.get("method") == "POST" else None
        response = None
        if handler is not None:
            try:
                response = await handler(Request(scope, receive))
            except ClientDisconnect:
                return  # disconnected in the middle of the body
            except Exception as error:
                response = self._failed(error)
        await (response or self._app)(scope, receive, send)


async def whole_body(request: Request) -> bytes:
    """The same as `request.body()`, which takes three times as long for a body in one piece."""
    message = await request.receive()
    pieces: list[bytes] = []
    while message["type"] == "http.request":
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            return b"".join((*pieces, body)) if pieces else body
        pieces.append(body)
        message = await request.receive()
    raise ClientDisconnect

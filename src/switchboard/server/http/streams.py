"""Server-Sent Events: the replies to a message while they are written.

`app.py` includes the router. A slow reader holds back only itself, and is cut off after a while. Next:
`app/messages/stream.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import Annotated, Final
from uuid import UUID

import msgspec
import structlog
from fastapi import Depends, Header, Query, Request, Response
from starlette.types import Receive, Scope, Send

from switchboard.app.access import Principal
from switchboard.app.messages.stream import Stream, StreamEvent, StreamService
from switchboard.app.messages.views import MESSAGES
from switchboard.domain.errors import InvalidInput, Unavailable
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, Responses, needs, operation
from switchboard.server.services import ServiceFactory, Services

STREAM_SERVICE: Final = ServiceFactory(lambda s: StreamService(s.runtime, s.views))
log = structlog.get_logger(__name__)


router = router_of("messages", prefix="/v1/messages")

SLOW_S: Final = 20.0
"""Seconds within which a reader must take what was sent before."""
_TYPE: Final = "text/event-stream"
_EVENTS: Final[Responses] = {
    200: {
        "description": "Events: `delta`, `reset`, `tool`, `tool_end`, `status`, `waiting`, `reply`, in the end `done`.",
        "content": {_TYPE: {"schema": {"type": "string"}}},
    }
}
_HEAD: Final = [(b"content-type", _TYPE.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]


class EventStream(Response):
    """A stream as a response."""

    def __init__(self, parts: Services, caller: Principal, stream: Stream, wait_s: float, authorization: str | None):
        super().__init__()
        self._parts = parts
        self._caller = caller
        self._stream = stream
        self._wait_s = wait_s
        self._authorization = authorization

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._parts.of(STREAM_SERVICE).place(self._caller):
            await self._send_events(scope, receive, send)

    async def _send_events(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEAD})
        if scope["state"].get("head"):
            await send({"type": "http.response.body", "body": b""})
            return
        allowed = partial(self._parts.admits, self._authorization)
        try:
            async with (
                self._parts.polls.watch(receive) as gone,
                aclosing(self._stream.follow(gone, self._wait_s, allowed)) as events,
            ):
                async for event in events:
                    async with asyncio.timeout(SLOW_S):
                        await send({"type": "http.response.body", "body": frame_event(event), "more_body": True})
        except TimeoutError:
            log.info("a reader was too slow for its stream")
            scope["state"]["connection"].abort()
        except Unavailable:
            log.info("a stream ended with the database")  # the client will reconnect
        await send({"type": "http.response.body", "body": b""})


@router.get(
    "/{request_id}/stream",
    response_class=Response,  # no type of its own: errors are JSON
    **operation("stream_message", "Stream the replies to a message", None, 404, 429, more=_EVENTS),
)
async def stream_message(
    request: Request,
    caller: Annotated[Principal, Depends(needs(MESSAGES))],
    parts: Parts,
    request_id: UUID,
    wait_s: Annotated[float, Query(ge=0, le=3600, allow_inf_nan=False)] = 3600,
    last_event_id: Annotated[str | None, Header(max_length=60_000)] = None,
) -> Response:
    """While they are written; deltas fold to the text of each reply. After `Last-Event-ID`, if it is given.

    Ends when all is settled, or after `wait_s` seconds; then ask again.
    """
    _refuse_body(request)
    stream = await parts.of(STREAM_SERVICE).open(caller, request_id, last_event_id or None)
    return EventStream(parts, caller, stream, wait_s, request.headers.get("authorization"))


def _refuse_body(request: Request) -> None:
    """A body would be read until it is too large, while the stream is being sent."""
    if "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0":
        raise InvalidInput("a stream is asked for without a body")


def frame_event(event: StreamEvent) -> bytes:
    """An event in the format of the stream."""
    if event.kind == "ping":
        return b":\n\n"
    mark = f"id: {event.id}\n" if event.id else ""
    return f"{mark}event: {event.kind}\ndata: ".encode() + msgspec.json.encode(event.data) + b"\n\n"

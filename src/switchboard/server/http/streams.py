"""Server-Sent Events: the replies to a message while they are written.

`app.py` includes the router. Next: `app/messages/stream.py`, `server/event_streams.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Annotated, Final
from uuid import UUID

import msgspec
from fastapi import Depends, Header, Query, Request, Response

from switchboard.app.access import Principal
from switchboard.app.messages.stream import Stream, StreamEvent, StreamService
from switchboard.app.messages.views import MESSAGES
from switchboard.server.event_streams import EVENTS, EventStream, refuse_body
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, Responses, needs, operation
from switchboard.server.services import ServiceFactory, Services

STREAM_SERVICE: Final = ServiceFactory(lambda s: StreamService(s.runtime, s.views))
router = router_of("messages", prefix="/v1/messages")

_EVENTS: Final[Responses] = {
    200: {
        "description": "Events: `delta`, `reset`, `tool`, `tool_end`, `status`, `waiting`, `reply`, in the end `done`.",
        "content": {EVENTS: {"schema": {"type": "string"}}},
    }
}


class MessageStream(EventStream):
    """One message as a response, in one of the places of its caller's token."""

    def __init__(self, parts: Services, caller: Principal, stream: Stream, wait_s: float, authorization: str | None):
        allowed = partial(parts.admits, authorization)
        place = partial(parts.of(STREAM_SERVICE).place, caller)
        super().__init__(parts.polls, lambda gone: _frames_of(stream.follow(gone, wait_s, allowed)), place=place)


async def _frames_of(events: AsyncGenerator[StreamEvent]) -> AsyncGenerator[bytes]:
    async with aclosing(events):
        async for event in events:
            yield frame_event(event)


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
    refuse_body(request.headers)
    stream = await parts.of(STREAM_SERVICE).open(caller, request_id, last_event_id or None)
    return MessageStream(parts, caller, stream, wait_s, request.headers.get("authorization"))


def frame_event(event: StreamEvent) -> bytes:
    """An event in the format of the stream."""
    if event.kind == "ping":
        return b":\n\n"
    mark = f"id: {event.id}\n" if event.id else ""
    return f"{mark}event: {event.kind}\ndata: ".encode() + msgspec.json.encode(event.data) + b"\n\n"

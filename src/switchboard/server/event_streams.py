"""Server-Sent Events as a response: frames as they come, for as long as anybody reads them.

`http/streams.py`, `web/live.py` and `web/pages/chat.py` answer with it. A slow reader holds back only itself, and is
cut off after a while. In: a source of frames that ends when it is told that the reader is gone. Next: `polls.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Final

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from switchboard.domain.errors import InvalidInput, Unavailable
from switchboard.server.polls import Polls

log = structlog.get_logger(__name__)

EVENTS: Final = "text/event-stream"
SLOW_S: Final = 20.0
"""Seconds within which a reader must take what was sent before."""

Frames = Callable[[asyncio.Event], AsyncGenerator[bytes]]
"""What is sent, until the event is set."""
Place = Callable[[], AbstractContextManager[None]]


def refuse_body(headers: Mapping[str, str]) -> None:
    """Check that a stream is asked for without a body. Raises InvalidInput.

    A body would be read until it is too large, while the stream is being sent.
    """
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise InvalidInput("a stream is asked for without a body")


class EventStream(Response):
    """Frames of a source, which ends when the client leaves or the server stops.

    `place`: what is taken before anything is sent; it may raise an error, which is the answer then.
    """

    def __init__(
        self, polls: Polls, frames: Frames, headers: Mapping[str, str] | None = None, place: Place = nullcontext
    ) -> None:
        super().__init__()
        self._place = place
        self._polls = polls
        self._frames = frames
        always = {"content-type": EVENTS, "cache-control": "no-store", "x-accel-buffering": "no"}
        self._head = [(name.encode(), value.encode()) for name, value in {**always, **(headers or {})}.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place():
            await send({"type": "http.response.start", "status": 200, "headers": self._head})
            if not scope["state"].get("head"):
                await self._send_frames(scope, receive, send)
            await send({"type": "http.response.body", "body": b""})

    async def _send_frames(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._polls.watch(receive) as gone, aclosing(self._frames(gone)) as frames:
                async for frame in frames:
                    async with asyncio.timeout(SLOW_S):
                        await send({"type": "http.response.body", "body": frame, "more_body": True})
        except TimeoutError:
            log.info("a reader was too slow for its stream")
            scope["state"]["connection"].abort()
        except Unavailable:
            log.info("a stream ended with the database")  # the client will reconnect

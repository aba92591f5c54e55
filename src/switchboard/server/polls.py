"""Long polls that end when nobody waits for them any longer.

`http/` and `mcp.py` open one per waiting request; `serve.py` ends all of them when the server stops. In: the ASGI
`receive` of the request; out: an event that is set when the answer is no longer wanted. Next:
`app/connectors/work.py`, `app/messages/views.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive

from switchboard.tasks import cancel_tasks


class Polls:
    """All requests that currently wait."""

    def __init__(self) -> None:
        self._open: set[asyncio.Event] = set()
        self._stopping = False

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def watch(self, receive: Receive) -> AsyncIterator[asyncio.Event]:
        """An event that is set when the client disconnects or the server stops. The body must have been read."""
        gone = asyncio.Event()
        if self._stopping:
            gone.set()
        self._open.add(gone)
        watcher = asyncio.create_task(_until_disconnected(receive, gone))
        try:
            yield gone
        finally:
            self._open.discard(gone)
            await cancel_tasks(watcher)

    def stop(self) -> None:
        """End every long poll, and reject new ones."""
        self._stopping = True
        for gone in self._open:
            gone.set()


async def _until_disconnected(receive: Receive, gone: asyncio.Event) -> None:
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    finally:  # a refused body ends the poll, too
        gone.set()

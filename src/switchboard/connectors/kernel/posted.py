"""Events that a platform posts to the server, or pushes to a session, which the server keeps until they are settled.

`receiving.py` passes a `PostedQueue` to sessions that accept them. A session of a platform that pushes runs what
listens to the socket beside its batches, by `batches_while`. Next: `api.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from switchboard.connectors.kernel.answers import Unreachable
from switchboard.connectors.kernel.api import Api
from switchboard.connectors.kernel.health import Health
from switchboard.connectors.kernel.patience import Patience
from switchboard.lanes.faults import point
from switchboard.ports.connector import Batch
from switchboard.tasks import cancel_tasks


class EventNotKept(OSError):
    """The switchboard does not keep a pushed event now. The platform is not to blame."""


class PostedQueue(Struct, frozen=True):
    """Implements `PostedEvents` of the ports."""

    api: Api
    health: Health

    async def posted(self, after: int, wait_s: float) -> Sequence[tuple[int, bytes]]:
        """Numbers and bodies of the events after this number. Raises ConfigurationError, Overtaken."""
        self.health.paused = True  # the platform is not polled, so it is not silent
        found = await Patience(self.health).insist(lambda: self.api.posted(after, wait_s))
        self.health.asking()
        return found

    async def settle_posted(self, upto: int) -> None:
        """Mark the events up to this number as done for good. Raises ConfigurationError, Overtaken."""
        await Patience(self.health).insist(lambda: self.api.settle_posted(upto))

    async def keep(self, raw: bytes, mark: str) -> None:
        """Have a pushed event kept; tried once, as the platform pushes it again. Raises EventNotKept."""
        point("connector_pushed")
        try:
            await self.api.keep_posted(raw, mark)
        except Unreachable as error:
            raise EventNotKept(f"the switchboard keeps no event now: {error.message}") from error
        point("connector_kept")


async def batches_while(
    listen: Callable[[], Coroutine[Any, Any, None]], batches: AsyncGenerator[Batch, None]
) -> AsyncGenerator[Batch, None]:
    """The batches, as long as `listen` runs beside them. Raises what it raises; OSError when it ends."""
    listening = asyncio.create_task(listen())
    try:
        async with aclosing(batches):
            while (batch := await _next_batch(batches, listening)) is not None:
                yield batch
        await listening
    finally:
        await cancel_tasks(listening)
    raise OSError("the platform ended the connection")


async def _next_batch(batches: AsyncGenerator[Batch, None], listening: asyncio.Task[None]) -> Batch | None:
    """None: nobody listens any longer."""
    following = asyncio.ensure_future(anext(batches))
    try:
        await asyncio.wait((listening, following), return_when=asyncio.FIRST_COMPLETED)
        return None if listening.done() else following.result()
    finally:
        await cancel_tasks(following)

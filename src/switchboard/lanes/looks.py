"""One look at the database a second for a whole process, instead of a question by each part that waits for something.

A worker looks and publishes (`worker.py`); `rulebook.py`, `people_book.py`, `admission.py` and `reply.py` of `journey`
take what they need from that. Where no worker looks, whoever waits looks itself, and the others take that. All this
only makes up for lost notifications, and for times that have come. Next: `store/work/lanes.py`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

from switchboard.store.database import Database
from switchboard.store.work import lanes as store
from switchboard.store.work.lanes import Look, Looker
from switchboard.tasks import wait_at_most

_SOON_S: Final = 1.5
"""Whoever waits leaves a look to a worker that will look within this time."""
_FRESH_S: Final = 2.5


class Looks:
    """The last look of this process, and those who wait for the next. `ring` is told which pools have work."""

    def __init__(self, database: Database, ring: Callable[[Iterable[str]], None]) -> None:
        self._database = database
        self._ring = ring
        self._one_at_a_time = asyncio.Lock()
        self._next = asyncio.Event()
        self._latest: Look | None = None
        self._looked = self._expected = float("-inf")

    @property
    def fresh(self) -> bool:
        """Whether some part of this process looks regularly, so that nobody else need ask for replies."""
        return monotonic() - self._looked < _FRESH_S

    def expect(self, within_s: float) -> None:
        """A worker will look within these seconds."""
        self._expected = monotonic() + within_s

    def publish(self, look: Look) -> None:
        """Somebody has looked."""
        self._latest = look
        self._looked = monotonic()
        self._next.set()
        self._next = asyncio.Event()
        self._ring(look.pools)

    async def next(self, every: float) -> Look:
        """The next look: of a worker that is about to look, or else one of our own `every` seconds from now.

        Raises `Unavailable`.
        """
        coming = self._next
        await wait_at_most(every, coming)
        while not coming.is_set() and -_SOON_S < self._expected - monotonic() < _SOON_S:
            await wait_at_most(every, coming)
        async with self._one_at_a_time:
            if coming.is_set() and self._latest is not None:
                return self._latest
            look = await store.look(self._database, Looker(socket.gethostname(), os.getpid()))
            self.publish(look)
            return look

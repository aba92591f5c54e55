"""Who needs a connection waits a moment for one that is about to be free, before another is opened.

`database.py` takes the connections of its pool here. A connection costs the server some 12 MB, and its opening 5 ms;
most statements take less. So a pool grows only where many statements run at once, or long ones. What is not used for
`IDLE_S` the pool closes again, and with it its memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import asyncpg

IDLE_S: Final = 30.0
"""After so many seconds without use, a connection is closed."""
_MOMENT_S: Final = (0.025, 0.1)
"""While there are few connections, and else."""
_FEW: Final = 3


class ConnectionQueue:
    """Those who wait for a connection of a pool, in the order in which they came."""

    def __init__(self, pool: asyncpg.Pool, within_s: float) -> None:
        self._pool = pool
        self._within_s = within_s
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._coming = 0
        """How many are about to take a connection."""
        self._opening = 0
        """How many of them open one: those who wait do not do so all at once."""
        self._promised = 0
        """How many were called and have not come yet: what became free for them is nobody else's."""

    @asynccontextmanager
    async def take(self) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy[asyncpg.Record]]:
        """A connection of the pool. Raises as the pool does, TimeoutError if there is none within `within_s`."""
        until = asyncio.get_running_loop().time() + self._within_s
        called = False
        while not called and self._is_worth_waiting() and self._seconds_left(until) > 0:
            called = await self._wait_for_connection()
            if not called and not self._opening:
                break
        self._promised -= called
        connection = await self._acquire(self._seconds_left(until))
        try:
            yield connection
        finally:
            try:
                await self._pool.release(connection)
            finally:
                self._call_next()

    def _seconds_left(self, until: float) -> float:
        return max(until - asyncio.get_running_loop().time(), 0.0)

    async def _acquire(self, within_s: float) -> asyncpg.pool.PoolConnectionProxy[asyncpg.Record]:
        opens = not self._is_one_free()
        self._coming += 1
        self._opening += opens
        try:
            return await self._pool.acquire(timeout=within_s)
        finally:
            self._coming -= 1
            self._opening -= opens

    def _is_one_free(self) -> bool:
        return self._pool.get_idle_size() > self._coming + self._promised

    def _is_worth_waiting(self) -> bool:
        """Whether others have connections, none is free, and a further one would have to be opened."""
        return 0 < self._pool.get_size() < self._pool.get_max_size() and not self._is_one_free()

    async def _wait_for_connection(self) -> bool:
        """Wait a moment; returns whether a connection has become free."""
        loop = asyncio.get_running_loop()
        called: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(called)
        moment = loop.call_later(_MOMENT_S[self._pool.get_size() >= _FEW], partial(_call, called, has_one=False))
        try:
            return await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled() and called.result():
                self._promised -= 1
                self._call_next()
            raise
        finally:
            moment.cancel()
            if called in self._waiting:
                self._waiting.remove(called)

    def _call_next(self) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(True)
                self._promised += 1
                return


def _call(one: asyncio.Future[bool], *, has_one: bool) -> None:
    if not one.done():
        one.set_result(has_one)

"""Requests of strangers take turns: so many a second, and of each connection one at a time.

A stranger is a connection that has not shown a token yet. However many requests strangers send, most of the time is
left for those who are known. `fastpath/heads.py` and `ws/protocol.py` call `StrangersTurns` for each request and each
handshake; `ws/connection.py` calls `TokenPaces` for each request of the gateway. What waits is lost for nobody, and
what a client has left behind is dropped. Next: `connections.py`, which knows who is a stranger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

STRANGERS_PER_S: Final = 250.0
"""Requests of all strangers together."""
TOKEN_PER_S: Final = 50.0
"""Requests over the gateway with the same token, on all its connections together."""
_BURST_S: Final = 1.0
"""After a rest, the requests of so many seconds at once."""
_TOKENS: Final = 10_000
"""Most tokens whose pace is known at a time."""


class Pace:
    """When the next one may begin, in seconds of a clock: `per_second` of them, after a rest those of a second."""

    def __init__(self, per_second: float) -> None:
        self._each = 1 / per_second
        self._free = 0.0
        """When all that were counted would have begun without a burst."""

    def wait(self, now: float) -> float:
        """Seconds until the next one may begin; 0 if it may at once."""
        return max(0.0, self._free - _BURST_S - now)

    def count(self, now: float) -> None:
        """One more begins, or will when it may."""
        self._free = max(self._free, now) + self._each


class StrangersTurns:
    """Begins what strangers ask for, when it is their turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, per_second: float = STRANGERS_PER_S) -> None:
        self._loop = loop
        self._pace = Pace(per_second)
        self._waiting: dict[object, Callable[[], object]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, connection: object, begin: Callable[[], object]) -> None:
        """Call `begin` at the next turn of this connection, which may be now."""
        now = self._loop.time()
        if not self._waiting and not self._pace.wait(now):
            self._pace.count(now)
            begin()
        else:
            self._waiting[connection] = begin
            self._await_next(now)

    def leave(self, connection: object) -> None:
        """The connection has gone: what it waits for does not begin."""
        self._waiting.pop(connection, None)

    def _await_next(self, now: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._pace.wait(now), self._begin_next)

    def _begin_next(self) -> None:
        """One in each iteration of the loop: others come in between."""
        self._timer, now = None, self._loop.time()
        if not self._waiting:
            return
        if not self._pace.wait(now):
            self._pace.count(now)
            self._waiting.pop(next(iter(self._waiting)))()
        self._await_next(now)


class TokenPaces:
    """Requests of one token are as many a second, on however many connections."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._paces: dict[str, Pace] = {}

    async def take(self, token: str) -> None:
        """Wait for the next turn of the token, and in any case give way to others."""
        if token not in self._paces and len(self._paces) >= _TOKENS:
            self._paces.clear()
        pace, now = self._paces.setdefault(token, Pace(TOKEN_PER_S)), self._clock()
        seconds = pace.wait(now)
        pace.count(now)
        await asyncio.sleep(seconds)

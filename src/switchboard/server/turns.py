"""Requests of strangers take turns: so many a second, and of each connection one at a time.

A stranger is a connection that has not shown a token, and shows none now that was accepted lately. However many
requests strangers send, most of the time is left for those who are known, and those who send one at a time come before
those who send many. Of these, who asks for the first time and who has had a turn before come alternately, so that a
webhook does not wait behind all who keep a connection open and ask again. `fastpath/heads.py` calls `StrangersTurns`
for each request and each handshake of a WebSocket; `ws/connection.py` calls `TokenPaces` for each request of the
gateway. Next: `connections.py`, which knows who is a stranger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from switchboard.server.connections import OpenConnection

STRANGERS_PER_S: Final = 150.0
"""Requests of all strangers together."""
TOKEN_PER_S: Final = 50.0
"""Requests over the gateway with the same token, on all its connections together."""
MOST_EAGER: Final = 64
"""Most strangers that wait with more than one request: each keeps what it has sent, maybe for nobody any more."""
_BURST_S: Final = 1.0
"""After a rest, the requests of so many seconds at once."""
_TOKENS: Final = 10_000
"""Most tokens whose pace is known at a time."""


class RequestPace:
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
        self._pace = RequestPace(per_second)
        self._waiting: dict[OpenConnection, Callable[[], object]] = {}
        self._again: dict[OpenConnection, Callable[[], object]] = {}
        """Those who have had a turn before."""
        self._served: set[OpenConnection] = set()
        self._was_again = False
        self._eager: dict[OpenConnection, Callable[[], object]] = {}
        """Those who have sent more than they wait for."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting) + len(self._again) + len(self._eager)

    def __contains__(self, connection: OpenConnection) -> bool:
        return connection in self._waiting or connection in self._again or connection in self._eager

    def take(self, connection: OpenConnection, begin: Callable[[], object], *, eager: bool = False) -> None:
        """Call `begin` at the next turn of this connection, which may be now."""
        now = self._loop.time()
        if not len(self) and not self._pace.wait(now):
            self._pace.count(now)
            self._served.add(connection)
            begin()
            return
        (self._again if connection in self._served else self._waiting)[connection] = begin
        if eager:
            self.put_behind(connection)
        if self._timer is None:
            self._await_next(now)

    def put_behind(self, connection: OpenConnection) -> None:
        """It has sent more than what it waits for: others come first. If too many do so, the oldest is cut off."""
        begin = self._waiting.pop(connection, None) or self._again.pop(connection, None)
        if begin is None:
            return
        self._eager[connection] = begin
        if len(self._eager) > MOST_EAGER:
            oldest = next(iter(self._eager))
            del self._eager[oldest]
            oldest.abort()

    def leave(self, connection: OpenConnection) -> None:
        """The connection has gone: what it waits for does not begin."""
        for waiting in (self._waiting, self._again, self._eager):
            waiting.pop(connection, None)
        self._served.discard(connection)

    def _await_next(self, now: float) -> None:
        self._timer = self._loop.call_later(self._pace.wait(now), self._begin_next)

    def _begin_next(self) -> None:
        """One in each iteration of the loop: others come in between."""
        self._timer, now = None, self._loop.time()
        waiting, begin = self._next(), None
        if waiting and not self._pace.wait(now):
            self._pace.count(now)
            self._was_again = waiting is self._again
            connection = next(iter(waiting))
            self._served.add(connection)
            begin = waiting.pop(connection)
        if len(self):
            self._await_next(now)
        if begin is not None:
            begin()

    def _next(self) -> dict[OpenConnection, Callable[[], object]]:
        """Whose turn it is."""
        first, second = (self._waiting, self._again) if self._was_again else (self._again, self._waiting)
        return first or second or self._eager


class TokenPaces:
    """Requests of one token are as many a second, on however many connections."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._paces: dict[str, RequestPace] = {}

    async def take(self, token: str) -> None:
        """Wait for the next turn of the token, and in any case give way to others."""
        if token not in self._paces and len(self._paces) >= _TOKENS:
            self._paces.clear()
        pace, now = self._paces.setdefault(token, RequestPace(TOKEN_PER_S)), self._clock()
        seconds = pace.wait(now)
        pace.count(now)
        await asyncio.sleep(seconds)

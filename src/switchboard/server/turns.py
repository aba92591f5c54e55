"""Requests of strangers take turns: so many a second, and of each connection one at a time.

A stranger is a connection that has not shown a token, and shows none now that was accepted lately. However many
requests strangers send, most of the time is left for those who are known. Webhooks, requests with a token, and all
others have turns one after the other, so none of them waits behind a flood of another kind. Of a kind, connections that
ask for the first time and those that ask again have every other turn; those that send many requests at once come last.
`fastpath/heads.py` calls `StrangersTurns` for each request and each handshake of a WebSocket; `ws/connection.py` calls
`TokenPaces` for each request of the gateway. Next: `connections.py`, which knows who is a stranger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal, get_args

from msgspec import Struct

from switchboard.server.connections import OpenConnection

StrangerKind = Literal["webhook", "token", "other"]
"""`token`: it shows a token that is not known yet."""
_Waiting = dict[OpenConnection, Callable[[], object]]

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

    def give_back(self) -> None:
        """One that was counted does not begin."""
        self._free -= self._each


class StrangerRequest(Struct, frozen=True):
    """What a stranger asks for. `later`: it had a turn before; `eager`: it has sent more than this."""

    kind: StrangerKind = "other"
    later: bool = False
    eager: bool = False


class StrangersTurns:
    """Begins what strangers ask for, when it is their turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, per_second: float = STRANGERS_PER_S) -> None:
        self._loop = loop
        self._pace = RequestPace(per_second)
        self._lines: dict[StrangerKind, tuple[_Waiting, _Waiting]] = {kind: ({}, {}) for kind in get_args(StrangerKind)}
        """Of each kind, those who ask for the first time, and the others. The kind that had a turn last is the last."""
        self._later_next: set[StrangerKind] = set()
        """The kinds of which somebody who asks for the first time had the last turn."""
        self._eager: _Waiting = {}
        """Those who have sent more than they wait for."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._eager) + sum(len(first) + len(later) for first, later in self._lines.values())

    def __contains__(self, connection: OpenConnection) -> bool:
        return connection in self._eager or any(connection in one for line in self._lines.values() for one in line)

    def take(self, connection: OpenConnection, begin: Callable[[], object], asked: StrangerRequest) -> None:
        """Call `begin` at the next turn of this connection, which may be now."""
        now = self._loop.time()
        if not len(self) and not self._pace.wait(now):
            self._pace.count(now)
            begin()
            return
        self._lines[asked.kind][asked.later][connection] = begin
        if asked.eager:
            self.put_behind(connection)
        if self._timer is None:
            self._await_next(now)

    def put_behind(self, connection: OpenConnection) -> None:
        """It has sent more than what it waits for: others come first. If too many do so, the oldest is cut off."""
        begin = self._take_out(connection)
        if begin is None:
            return
        self._eager[connection] = begin
        if len(self._eager) > MOST_EAGER:
            oldest = next(iter(self._eager))
            del self._eager[oldest]
            oldest.abort()

    def leave(self, connection: OpenConnection) -> None:
        """The connection has gone: what it waits for does not begin."""
        self._take_out(connection)
        self._eager.pop(connection, None)

    def _take_out(self, connection: OpenConnection) -> Callable[[], object] | None:
        for line in self._lines.values():
            for waiting in line:
                if (begin := waiting.pop(connection, None)) is not None:
                    return begin
        return None

    def _await_next(self, now: float) -> None:
        self._timer = self._loop.call_later(self._pace.wait(now), self._begin_next)

    def _begin_next(self) -> None:
        """One in each iteration of the loop: others come in between."""
        self._timer, now, begin = None, self._loop.time(), None
        if len(self) and not self._pace.wait(now):
            self._pace.count(now)
            waiting = self._next_line()
            begin = waiting.pop(next(iter(waiting)))
        if len(self):
            self._await_next(now)
        if begin is not None:
            begin()

    def _next_line(self) -> _Waiting:
        """Those of whom the oldest has the next turn."""
        for kind, (first, later) in self._lines.items():
            if first or later:
                self._lines[kind] = self._lines.pop(kind)
                self._later_next ^= {kind}
                return (first or later) if kind in self._later_next else (later or first)
        return self._eager


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
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            pace.give_back()
            raise

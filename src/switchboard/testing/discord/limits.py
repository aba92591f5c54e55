"""Discord's limits: five messages in five seconds in a channel, fifty requests a second of all."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from switchboard.testing.discord.errors import too_many_requests

_GLOBAL: Final = (50, 1.0)
_ROUTE: Final = (5, 5.0)


def major_of(path: Mapping[str, str]) -> str:
    """Those of the values in a path that have limits of their own."""
    return " ".join(path[name] for name in ("channel", "guild", "token") if name in path)


class RouteLimits:
    """Counts requests; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._done: dict[str, deque[float]] = {}

    def spend(self, route: str, major: str) -> None:
        """Count a request to a route, of what its path names (`major_of`). If there are too many: raises RestError."""
        for name, (most, window), is_global in (("", _GLOBAL, True), (f"{route} {major}", _ROUTE, False)):
            done = self._recent_of(name, window)
            if len(done) >= most:
                raise too_many_requests(round(done[0] + window - self._clock(), 3), is_global=is_global)
            done.append(self._clock())

    def headers(self, route: str, major: str) -> dict[str, str]:
        """What every answer says of the limit of its route."""
        most, window = _ROUTE
        done = self._recent_of(f"{route} {major}", window)
        after = done[0] + window - self._clock() if done else window
        return {
            "X-RateLimit-Bucket": hashlib.sha256(route.encode()).hexdigest()[:32],
            "X-RateLimit-Limit": str(most),
            "X-RateLimit-Remaining": str(most - len(done)),
            "X-RateLimit-Reset": f"{self._clock() + after:.3f}",
            "X-RateLimit-Reset-After": f"{after:.3f}",
        }

    def _recent_of(self, name: str, window: float) -> deque[float]:
        done = self._done.setdefault(name, deque())
        while done and done[0] <= self._clock() - window:
            done.popleft()
        return done


class AccountLimit:
    """A limit of the whole account, which begins with the next message; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lasts = clock, 0.0
        self._began: float | None = None
        self.hasty = 0

    def begin(self, seconds: float) -> None:
        """Refuse the next message, and all others for so long after it."""
        self._lasts, self._began, self.hasty = seconds, None, 0

    def check(self) -> None:
        """Raises RestError while it lasts."""
        now = self._clock()
        if not self._lasts:
            return
        if self._began is None:
            self._began = now
        if now >= self._began + self._lasts:
            self._lasts = 0.0
            return
        self.hasty += now > self._began + 1.0
        raise too_many_requests(self._began + self._lasts - now, is_global=True)

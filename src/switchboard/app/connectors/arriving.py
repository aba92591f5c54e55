"""Limits for strangers who post without a token of ours: places for arriving bodies, and lines of the log.

`hooks.py` has one of each. Next: `server/connections.py`, which does the same for connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf


class Arriving:
    """Places for bodies, `most` at a time, each for `seconds` at most. A newcomer displaces the slowest."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._ends: dict[asyncio.Timeout, None] = {}

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Until the body is here. Raises TimeoutError."""
        end = asyncio.timeout(self._seconds)
        try:
            async with end:
                self._ends[end] = None
                self._make_room()
                yield
        finally:
            self._ends.pop(end, None)

    def _make_room(self) -> None:
        """An honest client takes a moment, so the one that has been here longest has to go."""
        if len(self._ends) > self._most:
            oldest = next(iter(self._ends))
            del self._ends[oldest]
            if not oldest.expired():
                oldest.reschedule(0.0)


class Seldom:
    """Lets `most` through in any `seconds`, and counts the others."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._since, self._passed, self._left = -inf, 0, 0

    def turn(self, now: float) -> int | None:
        """How many were held back since the last one passed; None if this one is held back."""
        if now - self._since >= self._seconds:
            self._since, self._passed = now, 0
        if self._passed >= self._most:
            self._left += 1
            return None
        left, self._left = self._left, 0
        self._passed += 1
        return left

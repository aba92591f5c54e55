"""Slack's limits: how often a method may be called, and one message a second in a channel."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from switchboard.testing.slack.errors import SlackError


class Limits:
    """Counts what was done; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._done: dict[str, deque[float]] = {}

    def spend(self, name: str, most: int, window_s: float) -> None:
        """Count a call. If there are too many, it is not counted: raises SlackError with the seconds to wait."""
        now = self._clock()
        done = self._done.setdefault(name, deque())
        while done and done[0] <= now - window_s:
            done.popleft()
        if len(done) >= most:
            raise SlackError("ratelimited", retry_after=math.ceil(done[0] + window_s - now) or 1)
        done.append(now)

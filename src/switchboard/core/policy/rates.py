"""A rate limit per key: a number per minute, with bursts of a whole minute's worth.

Called by `journey/admission.py`. The generic cell rate algorithm: one number per key says when its events
would have ended had they been evenly spaced. In: a key, and `now` in seconds; out: the seconds to wait.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from msgspec import Struct

from switchboard.domain.numbers import Count, Limit

_WINDOW_S: Final = 60.0
_ROUNDING_S: Final = 1e-4
"""The tolerance for rounding in sums of intervals, so that a caller that waited as told is not refused."""
_SWEPT_AT: Final = 10_000
"""Number of keys above which idle ones are forgotten; they start afresh."""


class AcceptLimits(Struct, frozen=True):
    """`[accept]` of the settings: `backlog` messages may wait before new ones are refused with 429; sizes in bytes.

    `sender_per_minute`: messages of one sender at one endpoint, 0 for no limit; what operators submit does not count.
    """

    backlog: Count = 100_000
    message_bytes: Count = 1_048_576
    batch_bytes: Count = 16_777_216
    sender_per_minute: Limit = 1200


class RateLimiter:
    """Counts the events of each key; `per_minute` 0: no limit."""

    def __init__(self, per_minute: int) -> None:
        self._each = _WINDOW_S / per_minute if per_minute else 0.0
        self._busy_until: dict[Hashable, float] = {}
        self._swept_at = _SWEPT_AT

    def take(self, key: Hashable, now: float) -> float:
        """0: the event is allowed, and counts. Otherwise the seconds until it would be allowed; it does not count."""
        if not self._each:
            return 0.0
        until = max(self._busy_until.get(key, now), now) + self._each
        if until - now > _WINDOW_S + _ROUNDING_S:
            return until - now - _WINDOW_S
        self._busy_until[key] = until
        if len(self._busy_until) > self._swept_at:
            self._sweep_idle(now)
        return 0.0

    def give_back(self, who: Hashable) -> None:
        """Undo the last `take`: it does not count."""
        if who in self._busy_until:
            self._busy_until[who] -= self._each

    def _sweep_idle(self, now: float) -> None:
        self._busy_until = {key: until for key, until in self._busy_until.items() if until > now}
        self._swept_at = max(_SWEPT_AT, 2 * len(self._busy_until))

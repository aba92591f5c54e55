"""How often each of many may do something: so many a minute, all of them at once if they like.

Called by `journey/admission.py`. Per somebody one number is kept: until when what they did would have taken, had they
done it evenly (the "generic cell rate algorithm"). In: who, and `now` in seconds; out: the seconds to wait.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

_WINDOW_S: Final = 60.0
_SWEPT_AT: Final = 10_000
"""How many are known before those who have been silent are forgotten; they are as new."""


class Rates:
    """The rate of each; `per_minute` 0: no limit."""

    def __init__(self, per_minute: int) -> None:
        self._each = _WINDOW_S / per_minute if per_minute else 0.0
        self._busy_until: dict[Hashable, float] = {}
        self._swept_at = _SWEPT_AT

    def take(self, who: Hashable, now: float) -> float:
        """0: they may, and it counts. Else the seconds until they may, and nothing counts."""
        if not self._each:
            return 0.0
        until = max(self._busy_until.get(who, now), now) + self._each
        if until - now > _WINDOW_S + self._each / 2:  # half of one: for the rounding of many
            return until - now - _WINDOW_S
        self._busy_until[who] = until
        if len(self._busy_until) > self._swept_at:
            self._sweep(now)
        return 0.0

    def _sweep(self, now: float) -> None:
        self._busy_until = {who: until for who, until in self._busy_until.items() if until > now}
        self._swept_at = max(_SWEPT_AT, 2 * len(self._busy_until))

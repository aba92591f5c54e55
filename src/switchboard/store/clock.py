"""The database's clock, which numbers and dates messages, so that the clocks of servers need not agree.

`journey/accept.py` reads it for every message; `app/wiring.py` keeps it up to date. Next: `store/ids.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import structlog

from switchboard.domain.errors import Unavailable
from switchboard.store.database import Database, query

log = structlog.get_logger(__name__)

MAX_SKEW: Final = timedelta(seconds=30)
"""The difference above which no message is accepted: one of the two clocks is wrong, and ids would stay wrong."""


# Unlike `time.monotonic`, they continue while the machine is suspended.
_steady: Final = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class DatabaseClock:
    """The database's time when last measured (at first our own), plus the time elapsed since.

    The elapsed time is measured by a monotonic clock, since ours may be set at any moment.
    """

    def __init__(self, own: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._own = own
        self._skew = timedelta()
        self._too_far = False
        self._told, self._told_at = own(), _steady()

    def now(self) -> datetime:
        """The database's time. Raises `Unavailable` while the clocks are too far apart."""
        if self._too_far:
            raise Unavailable(
                f"the database's clock differs from this machine's by {self._skew.total_seconds():+.0f} s; "
                "synchronise both with NTP. Nothing was stored"
            )
        return self._told + timedelta(0, _steady() - self._told_at)

    async def measure(self, database: Database) -> timedelta:
        """How far the database's clock is ahead, as precisely as the round trip permits."""
        before = _steady()
        there: datetime = await database.value(query("checkup.clock"))
        after, own = _steady(), self._own()
        half = (after - before) / 2
        self._told, self._told_at = there, after - half
        self._skew = there + timedelta(seconds=half) - own
        self._too_far = abs(self._skew) > MAX_SKEW
        return self._skew

    async def follow(self, database: Database, every: float = 60.0) -> None:
        """Measure periodically. Runs until cancelled."""
        while True:
            await asyncio.sleep(every)
            with suppress(Unavailable):  # in that case nothing is stored either
                if abs(await self.measure(database)) > MAX_SKEW:
                    log.error("clocks differ, no message is accepted", seconds=self._skew.total_seconds())

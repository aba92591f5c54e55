"""The one place where identifiers use the clock and randomness.

Called by `journey/accept.py` and for every table with time-ordered keys. In: nothing; out: a UUIDv7 greater than every
earlier one of this process, unless its clock was wrong before. The arithmetic is `core/uuid7.py`.
"""

from __future__ import annotations

import os
import time
from threading import Lock
from typing import Final
from uuid import UUID

from asyncpg.pgproto import pgproto

from switchboard.core.uuid7 import next_uuid7s, uuid7_ms

_AHEAD_MS: Final = 30_000
"""How far identifiers may be ahead of the clock: beyond that it has been put right, and they start again from it."""


class IdSequence:
    """Ordered identifiers: the last one, and a lock that keeps two threads from issuing the same one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last: UUID | None = None

    def next(self, count: int, at: float | None = None) -> list[UUID]:
        """The next identifiers, made at `at` (seconds since 1970; by default now, by our own clock)."""
        now = time.time() if at is None else at
        random = os.urandom(10 * count)
        dice = [int.from_bytes(random[at : at + 10], "big") for at in range(0, len(random), 10)]
        now_ms = int(now * 1000)
        with self._lock:
            if self._last is not None and uuid7_ms(self._last) - now_ms > _AHEAD_MS:
                self._last = None
            # The driver's subclass: it takes a tenth of the time of its parent, which is written in Python.
            following: list[UUID] = [pgproto.UUID(one) for one in next_uuid7s(self._last, now_ms, dice)]
            self._last = following[-1] if following else self._last
        return following

    def restart(self) -> None:
        """Restart after a fork."""
        # Parent and child must not continue from the same identifier, and another thread of the parent may have held
        # the lock at that moment, so the lock is new.
        self._lock = Lock()
        self._last = None


_SEQUENCE = IdSequence()
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_SEQUENCE.restart)


def new_uuid7() -> UUID:
    """A new UUIDv7, greater than all earlier ones by this process and its clock; thread-safe and fork-safe."""
    return _SEQUENCE.next(1)[0]

"""Retries while the switchboard is unavailable: with growing pauses, which heartbeats report.

`receiving.py`, `sending.py`, `files.py` and `posted.py` wait with it. Next: `limits.py`, for the length of the pauses.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from switchboard.connectors.kernel.answers import Unreachable
from switchboard.connectors.kernel.health import Health
from switchboard.connectors.kernel.limits import pause_after

_T = TypeVar("_T")


@dataclass(slots=True)
class Patience:
    """`part`: the part of the work that fails meanwhile; `failures`: failures in a row."""

    health: Health
    part: str = "switchboard"
    failures: int = 0

    async def wait(self, error: Unreachable) -> None:
        """Wait before the next attempt."""
        self.failures += 1
        self.health.trouble(self.part, error.message)
        await asyncio.sleep(pause_after(self.failures, error.seconds, random.random()))

    def over(self) -> None:
        """The switchboard has answered."""
        self.failures = 0
        self.health.well(self.part)

    async def insist(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Call until there is an answer, however long that takes. Raises the errors of `call`, except Unreachable."""
        while True:
            try:
                found = await call()
            except Unreachable as error:
                await self.wait(error)
                continue
            if self.failures:
                self.over()
            return found

"""What a platform posts to the server, for the session of its account; while the server is away, it is waited for.

`receiving.py` hands it to sessions that take it. Next: `api.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from switchboard.connectors.kernel.api import Api, Unreachable
from switchboard.connectors.kernel.health import Health
from switchboard.connectors.kernel.limits import pause_after

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Posted:
    """As `PostedEvents` of the ports."""

    api: Api
    health: Health

    async def posted(self, after: int, wait_s: float) -> Sequence[tuple[int, bytes]]:
        """Numbers and bodies of the events after that number. Raises ConfigurationError, Overtaken."""
        return await self._insist(lambda: self.api.posted(after, wait_s))

    async def settle_posted(self, upto: int) -> None:
        """The events up to that number are never given again. Raises ConfigurationError, Overtaken."""
        await self._insist(lambda: self.api.settle_posted(upto))

    async def _insist(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Until the server answers. Meanwhile the account is not silent: nobody asks the platform."""
        tries = 0
        while True:
            try:
                found = await call()
            except Unreachable as error:
                tries += 1
                self.health.trouble("switchboard", error.message)
                self.health.paused = True
                await asyncio.sleep(pause_after(tries, error.seconds, random.random()))
                continue
            if tries:
                self.health.well("switchboard")
                self.health.asking()
            return found

"""Events that a platform posts to the server, for the session of its account; waits while the server is unavailable.

`receiving.py` passes it to sessions that accept posted events. Next: `api.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from switchboard.connectors.kernel.api import Api
from switchboard.connectors.kernel.health import Health
from switchboard.connectors.kernel.patience import Patience


class PostedQueue(Struct, frozen=True):
    """Implements `PostedEvents` of the ports."""

    api: Api
    health: Health

    async def posted(self, after: int, wait_s: float) -> Sequence[tuple[int, bytes]]:
        """Numbers and bodies of the events after this number. Raises ConfigurationError, Overtaken."""
        self.health.paused = True  # the platform is not polled, so it is not silent
        found = await Patience(self.health).insist(lambda: self.api.posted(after, wait_s))
        self.health.asking()
        return found

    async def settle_posted(self, upto: int) -> None:
        """Mark the events up to this number as done for good. Raises ConfigurationError, Overtaken."""
        await Patience(self.health).insist(lambda: self.api.settle_posted(upto))

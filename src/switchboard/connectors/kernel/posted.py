"""What a platform posts to the server, for the session of its account; it waits while the server is unavailable.

`receiving.py` hands it to sessions that take it. Next: `api.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from switchboard.connectors.kernel.api import Api
from switchboard.connectors.kernel.health import Health
from switchboard.connectors.kernel.patience import Patience


class PostedQueue(Struct, frozen=True):
    """As `PostedEvents` of the ports."""

    api: Api
    health: Health

    async def posted(self, after: int, wait_s: float) -> Sequence[tuple[int, bytes]]:
        """Numbers and bodies of the events after that number. Raises ConfigurationError, Overtaken."""
        self.health.paused = True  # nobody asks the platform, so it is not silent
        found = await Patience(self.health).insist(lambda: self.api.posted(after, wait_s))
        self.health.asking()
        return found

    async def settle_posted(self, upto: int) -> None:
        """The events up to that number are never given again. Raises ConfigurationError, Overtaken."""
        await Patience(self.health).insist(lambda: self.api.settle_posted(upto))

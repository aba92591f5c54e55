"""The port by which modules know who has written lately where the person of a call has written, too.

The kernel hands a `RecentWriters` to modules that have the need `recent_writers`; a worker implements it over stored
messages. It tells handles and times, and no word of a message. Next: `people_seen.py`, by which it is decided whom.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

from msgspec import Struct

from switchboard.ports.tools import ToolScope

RECENT_WRITERS: Final = "recent_writers"
"""The name in the `needs` of a manifest."""


class RecentWriter(Struct, frozen=True):
    """Somebody who has written `messages` lately, the last at `at`. `name`: as they call themselves there."""

    channel: str
    identity: str
    name: str
    at: datetime
    messages: int


class RecentWriters(Protocol):
    """Says who has written lately."""

    async def find_writers(self, scope: ToolScope, limit: int) -> Sequence[RecentWriter]:
        """In the last 30 days, in conversations in which the person of the call has written; the latest first.

        Nobody, if it is not certain who makes the call, or if others read its result. Raises `Unavailable`.
        """
        ...

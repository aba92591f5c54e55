"""The port by which a module of calendars gets the mails of other people's calendar programs: answers, cancellations.

They start no turn, and nobody answers them: they are kept as history (`Event.kind` is `calendar`). The kernel hands a
`CalendarMails` to modules that have the need `calendar_mails`; a worker implements it over stored messages. What the
module did with one is shown where the fate of every message is. Next: `module.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

from msgspec import Struct

CALENDAR_MAILS: Final = "calendar_mails"
"""The name in the `needs` of a manifest."""


class CalendarMail(Struct, frozen=True):
    """A mail as it arrived. `sender`: its address in lower case; `authentic`: a trusted server says that it is so."""

    request_id: UUID
    sender: str
    authentic: bool
    received_at: datetime


class CalendarMails(Protocol):
    """Mails for calendars. All of it raises `Unavailable`."""

    async def arrived(self, since: datetime, most: int) -> Sequence[CalendarMail]:
        """Those since a time, the oldest first, at most so many. One that arrives at that moment may come later."""
        ...

    async def objects_of(self, request_id: UUID) -> Sequence[bytes]:
        """The calendar objects in one of them, as far as they can be read."""
        ...

    async def note(self, request_id: UUID, what: str) -> None:
        """Keep what was done with a mail, in a sentence, where `explain` shows it; the same one once."""
        ...

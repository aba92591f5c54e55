"""The module as it is open in a worker: its accounts, and what its tools ask. Only chores connect to servers.

The kernel calls `open_calendar`; `tools.py` works with what is open. Next: `looking.py`, `syncing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from msgspec import Struct

from switchboard.modules.accounts.servers import OpenServer, open_calendars
from switchboard.modules.calendar.looking import CalendarAccounts
from switchboard.modules.calendar.occurrences import WINDOW_EVERY_S, move_window
from switchboard.modules.calendar.settings import CalendarSettings
from switchboard.modules.calendar.syncing import SYNC_EVERY_S, sync_calendars
from switchboard.modules.calendar.writes import FORGET_EVERY_S, forget_writes
from switchboard.ports.contact_resolver import CONTACTS, ContactResolver
from switchboard.ports.mail_desk import MAIL_DESK, MailDesk
from switchboard.ports.module import Chore, ModuleContext
from switchboard.ports.people_seen import PEOPLE


class OpenCalendar(Struct, frozen=True):
    """What its tools work with."""

    held: CalendarAccounts
    contacts: ContactResolver | None = None
    """Who looks up names of attendees; None: nobody does."""
    opens: OpenServer = open_calendars
    desk: MailDesk | None = None
    """Who sends mails; None: nobody does."""

    @property
    def chores(self) -> Sequence[Chore]:
        """Each account is brought up to date by one of all workers; its window moves once a day."""
        accounts = self.held.accounts.items()
        return [
            *(Chore("sync", SYNC_EVERY_S, partial(sync_calendars, name, one), name) for name, one in accounts),
            *(Chore("window", WINDOW_EVERY_S, partial(move_window, one), name) for name, one in accounts),
            *(Chore("forget", FORGET_EVERY_S, forget_writes, name) for name, _ in accounts),
        ]

    async def read_clock(self) -> datetime:
        """By the clock of the database."""
        now: datetime = (await self.held.store_of("").rows("occurrences.span"))[0]["now"]
        return now

    async def aclose(self) -> None:
        """Nothing is open."""


async def open_calendar(context: ModuleContext) -> OpenCalendar:
    """Raises LookupError if nobody says who people are."""
    settings = context.settings if isinstance(context.settings, CalendarSettings) else CalendarSettings()
    held = CalendarAccounts(settings.accounts, context.stores, context.needs[PEOPLE])
    return OpenCalendar(held, context.needs.get(CONTACTS), desk=context.needs.get(MAIL_DESK))

"""The module as it is open in a worker: its accounts, and what its tools ask. Only chores connect to servers.

The kernel calls `open_calendar`; `tools.py` works with what is open. Next: `looking.py`, `syncing.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

from msgspec import Struct

from switchboard.modules.accounts.servers import OpenServer, open_calendars
from switchboard.modules.calendar.arrivals import ANSWERS_EVERY_S, MailingAccounts, apply_arrivals
from switchboard.modules.calendar.looking import CalendarAccounts
from switchboard.modules.calendar.occurrences import WINDOW_EVERY_S, move_window
from switchboard.modules.calendar.settings import CalendarSettings
from switchboard.modules.calendar.syncing import SYNC_EVERY_S, sync_calendars
from switchboard.modules.calendar.writes import FORGET_EVERY_S, forget_writes
from switchboard.ports.calendar_mails import CALENDAR_MAILS, CalendarMails
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
    arrived: CalendarMails | None = None
    """What other people's calendar programs have mailed; None: nobody knows."""

    @property
    def chores(self) -> Sequence[Chore]:
        """Each account is brought up to date by one of all workers; its window moves once a day."""
        accounts = self.held.accounts.items()
        return [
            *(Chore("sync", SYNC_EVERY_S, partial(sync_calendars, name, one), name) for name, one in accounts),
            *(Chore("window", WINDOW_EVERY_S, partial(move_window, one), name) for name, one in accounts),
            *(Chore("forget", FORGET_EVERY_S, forget_writes, name) for name, _ in accounts),
            *self._reading_answers(),
        ]

    def _reading_answers(self) -> Iterator[Chore]:
        """One for all accounts whose invitations are mailed, as a mail does not say which of them it is for."""
        if self.arrived is not None:
            mailing = MailingAccounts(self.held, self.opens, self.arrived)
            if mailing.named:
                yield Chore("answers", ANSWERS_EVERY_S, partial(apply_arrivals, mailing))

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
    needs = context.needs
    return OpenCalendar(held, needs.get(CONTACTS), desk=needs.get(MAIL_DESK), arrived=needs.get(CALENDAR_MAILS))

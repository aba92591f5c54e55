"""The mails of other people's calendar programs, as a worker hands them to modules that need them.

The kernel of the modules has a `WorkerCalendarMails`. In: what is stored of a mail; out: who has sent it, whether that
is certain, and the calendar objects in it, which child processes read. Next: `store/messages/calendar_mails.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from switchboard.app.runtime import Runtime
from switchboard.core.channels.email import NAME
from switchboard.core.mail.headers import address
from switchboard.core.mail.scheduling import CALENDAR_TYPE
from switchboard.domain.routing import TrailStep
from switchboard.ports.calendar_mails import CalendarMail
from switchboard.store.memory.history import facts_of
from switchboard.store.messages.calendar_mails import StoredCalendarMail, list_calendar_mails, note_calendar_mail
from switchboard.store.messages.inbox import get_message, get_raw
from switchboard.transport.mail_reading import MailReader, mail_name

_MOST_OBJECTS: Final = 3
_MOST_BYTES: Final = 1_000_000


class WorkerCalendarMails:
    """`CalendarMails` of a worker; its processes end with the runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._reader = MailReader()
        runtime.closing.push_async_callback(self._reader.close)

    async def arrived(self, since: datetime, most: int) -> Sequence[CalendarMail]:
        """As in the port."""
        found = await list_calendar_mails(self._runtime.database, NAME, since, most)
        return [await self._describe_mail(one) for one in found]

    async def _describe_mail(self, mail: StoredCalendarMail) -> CalendarMail:
        facts = await facts_of(self._runtime.database, mail.request_id)
        authentic = self._runtime.channels[NAME].authentic(facts)
        sender = address(mail.sender) or mail.sender.lower()
        return CalendarMail(mail.request_id, sender, authentic, mail.received_at)

    async def objects_of(self, request_id: UUID) -> Sequence[bytes]:
        """As in the port."""
        stored = await get_message(self._runtime.database, request_id)
        raw = await get_raw(self._runtime.database, request_id)
        if stored is None or raw is None:
            return ()
        listed = enumerate(stored.envelope["payload"]["attachments"])
        places = [place for place, one in listed if one["media_type"] == CALENDAR_TYPE][:_MOST_OBJECTS]
        found = [await self._reader.file(raw[0], place, mail_name(raw[0])) for place in places]
        return [data for data in found if data is not None and len(data) <= _MOST_BYTES]

    async def note(self, request_id: UUID, what: str) -> None:
        """As in the port."""
        step = TrailStep(self._runtime.rule_book.rules.index.root, "history", detail=f"calendar: {what}")
        await note_calendar_mail(self._runtime.database, request_id, step)

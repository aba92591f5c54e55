"""The module as it is open in a worker: its accounts, and what its tools do. Nothing is connected to before a call.

The kernel calls `open_email`; `tools.py` calls what is open. Next: `looking.py`, `reading.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.modules.email.callers import EmailRefusal, MailAccounts
from switchboard.modules.email.connections import Deadline, MailConnections
from switchboard.modules.email.contents import MailContents
from switchboard.modules.email.looking import MailSearch
from switchboard.modules.email.periods import read_period
from switchboard.modules.email.reading import MailReading
from switchboard.modules.email.settings import EmailModuleSettings
from switchboard.modules.email.tools import AskedMails
from switchboard.modules.email.wanted import WantedMails, words_of
from switchboard.modules.email.write_tools import MailWish
from switchboard.modules.email.writing import keep_draft, prepare_draft, prepare_sending, send_mail
from switchboard.ports.contact_resolver import CONTACTS, ContactResolver
from switchboard.ports.mail_desk import MAIL_DESK, MailDesk
from switchboard.ports.module import Chore, ModuleContext
from switchboard.ports.people_seen import PEOPLE
from switchboard.ports.tools import PreparedCall, ToolScope

_UTC: Final = ZoneInfo("UTC")


class OpenEmail(Struct, frozen=True):
    """See `tools.EmailDesk` and `write_tools.MailWriter`."""

    held: MailAccounts
    connections: MailConnections
    contents: MailContents
    contacts: ContactResolver | None = None
    desk: MailDesk | None = None

    @property
    def chores(self) -> Sequence[Chore]:
        """Nothing is kept here, so nothing has to be brought up to date."""
        return ()

    async def search(self, scope: ToolScope, asked: AskedMails, start: int) -> JsonObject:
        """As in the protocol."""
        zone = _zone_of(scope)
        wanted = wanted_mails(asked, zone, datetime.now(UTC))
        accounts = await self.held.seen_by(scope)
        return await MailSearch(self.connections, self.contents, wanted, zone, Deadline()).search(accounts, start)

    async def read(self, scope: ToolScope, mail: str, start: int, *, quoted: bool) -> JsonObject:
        """As in the protocol."""
        return await (await self._reading_for(scope)).read(mail, start, quoted=quoted)

    async def fetch_attachment(self, scope: ToolScope, mail: str, number: int) -> JsonObject:
        """As in the protocol."""
        return await (await self._reading_for(scope)).fetch_attachment(mail, number, scope.results)

    async def prepare_sending(self, call: ToolScope, wish: MailWish) -> PreparedCall:
        """As in `MailWriter`."""
        return await prepare_sending(self, call, wish)

    async def send(self, call: ToolScope, wish: MailWish) -> JsonObject:
        """As in `MailWriter`."""
        return await send_mail(self, call, wish)

    async def prepare_draft(self, call: ToolScope, wish: MailWish) -> PreparedCall:
        """As in `MailWriter`."""
        return await prepare_draft(self, call, wish)

    async def keep_draft(self, call: ToolScope, wish: MailWish, replaces: str) -> JsonObject:
        """As in `MailWriter`."""
        return await keep_draft(self, call, wish, replaces)

    async def _reading_for(self, scope: ToolScope) -> MailReading:
        accounts = await self.held.seen_by(scope)
        return MailReading(accounts, self.connections, self.contents, _zone_of(scope), Deadline())

    async def aclose(self) -> None:
        """End the processes that read mails."""
        await self.contents.close()


async def open_email(context: ModuleContext) -> OpenEmail:
    """Raises LookupError if nobody says who people are."""
    settings = context.settings if isinstance(context.settings, EmailModuleSettings) else EmailModuleSettings()
    held = MailAccounts(settings.accounts, context.needs[PEOPLE])
    needs = context.needs
    return OpenEmail(held, MailConnections(), MailContents(), needs.get(CONTACTS), needs.get(MAIL_DESK))


def wanted_mails(asked: AskedMails, zone: ZoneInfo, now: datetime) -> WantedMails:
    """What a model asks for. Raises EmailRefusal for what are no days."""
    today = now.astimezone(zone).date()
    try:
        first = read_period(asked.since, today)[0] if asked.since.strip() else None
        last = read_period(asked.until, today)[1] if asked.until.strip() else None
    except ValueError as error:
        raise EmailRefusal(str(error)) from error
    if first and last and last < first:
        raise EmailRefusal(f"the last day, {last}, is before the first, {first}")
    sender, recipient, subject = (" ".join(one.split()) for one in (asked.sender, asked.to, asked.subject))
    words, folder = words_of(asked.words), asked.folder.strip()
    return WantedMails(words, sender, recipient, subject, first, last, folder, asked.attachment)


def _zone_of(scope: ToolScope) -> ZoneInfo:
    try:
        return ZoneInfo(scope.zone)
    except (OSError, ValueError, LookupError):
        return _UTC

"""The module as it is open in a worker: its accounts, and what its tools do. Nothing is connected to before it is
needed.

The kernel calls `open_contacts`; `tools.py` calls what is open. Next: `looking.py`, `writing.py`, `syncing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.modules.contacts.callers import ContactAccounts
from switchboard.modules.contacts.cards import CardChange
from switchboard.modules.contacts.looking import get_for, recent_for, resolve_for, search_for
from switchboard.modules.contacts.mirror import SYNC_EVERY_S
from switchboard.modules.contacts.settings import ContactsSettings
from switchboard.modules.contacts.syncing import sync_contacts
from switchboard.modules.contacts.writing import create_for, prepare_create, prepare_update, update_for
from switchboard.ports.module import Chore, ModuleContext
from switchboard.ports.people_seen import PEOPLE
from switchboard.ports.recent_writers import RECENT_WRITERS, RecentWriters
from switchboard.ports.tools import PreparedCall, ToolScope


class OpenContacts(Struct, frozen=True):
    """See `tools.ContactsDesk`."""

    held: ContactAccounts
    writers: RecentWriters

    @property
    def chores(self) -> Sequence[Chore]:
        """Each account is brought up to date by one of all workers."""
        accounts = self.held.accounts.items()
        return [Chore("sync", SYNC_EVERY_S, partial(sync_contacts, name, one), name) for name, one in accounts]

    async def resolve(self, scope: ToolScope, who: str) -> JsonObject:
        """As in the protocol."""
        return await resolve_for(self.held, scope, who)

    async def search(self, scope: ToolScope, text: str, limit: int) -> JsonObject:
        """As in the protocol."""
        return await search_for(self.held, scope, text, limit)

    async def recent(self, scope: ToolScope, limit: int) -> JsonObject:
        """As in the protocol."""
        return await recent_for(self.held, scope, await self.writers.find_writers(scope, limit))

    async def get(self, scope: ToolScope, contact: str) -> JsonObject:
        """As in the protocol."""
        return await get_for(self.held, scope, contact)

    async def create(self, scope: ToolScope, fields: Sequence[CardChange], book: str) -> JsonObject:
        """As in the protocol."""
        return await create_for(self.held, scope, fields, book)

    async def prepare_create(self, scope: ToolScope, fields: Sequence[CardChange], book: str) -> PreparedCall:
        """As in the protocol."""
        return await prepare_create(self.held, scope, fields, book)

    async def update(self, scope: ToolScope, contact: str, change: CardChange) -> JsonObject:
        """As in the protocol."""
        return await update_for(self.held, scope, contact, change)

    async def prepare_update(self, scope: ToolScope, contact: str, change: CardChange) -> PreparedCall:
        """As in the protocol."""
        return await prepare_update(self.held, scope, contact, change)

    async def aclose(self) -> None:
        """Nothing is open."""


async def open_contacts(context: ModuleContext) -> OpenContacts:
    """Raises LookupError if nobody says who people are."""
    settings = context.settings if isinstance(context.settings, ContactsSettings) else ContactsSettings()
    held = ContactAccounts(settings.accounts, context.stores, context.needs[PEOPLE])
    return OpenContacts(held, context.needs[RECENT_WRITERS])

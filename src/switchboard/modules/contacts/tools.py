"""The tools of the module: find people in address books, add and change them. All that is told is others' data.

The kernel calls them with the opened module. In: arguments of a model; out: JSON, or why nothing was found or done. It
imports no library, as the manifest imports it. Next: `opened.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from switchboard.domain.json_values import JsonObject
from switchboard.modules.contacts.callers import ContactsRefusal
from switchboard.modules.contacts.cards import CardChange, FieldName
from switchboard.modules.contacts.linking import link_request
from switchboard.ports.tools import PreparedCall, ToolOutcome, ToolScope

Contact = Annotated[str, "Its id, as the other tools tell it", Meta(min_length=1, max_length=1000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Value = Annotated[str, Meta(max_length=500)]
Note = Annotated[str, Meta(max_length=4000)]
Book = Annotated[str, "If not the person's own", Meta(max_length=500)]
New = Annotated[str, "Empty: remove it", Meta(max_length=4000)]
Old = Annotated[str, "The email, phone or address to replace", Meta(max_length=500)]


class ContactsDesk(Protocol):
    """The opened module. Everything raises ContactsRefusal; `prepare_…` change nothing."""

    async def resolve(self, scope: ToolScope, who: str) -> JsonObject:
        """Who may be meant, ranked."""
        ...

    async def search(self, scope: ToolScope, text: str, limit: int) -> JsonObject:
        """People whose names or organisations have these words."""
        ...

    async def recent(self, scope: ToolScope, limit: int) -> JsonObject:
        """Who has written lately."""
        ...

    async def get(self, scope: ToolScope, contact: str) -> JsonObject:
        """All of one contact."""
        ...

    async def create(self, scope: ToolScope, fields: Sequence[CardChange], book: str) -> JsonObject:
        """Add a contact, once for each key of a call."""
        ...

    async def prepare_create(self, scope: ToolScope, fields: Sequence[CardChange], book: str) -> PreparedCall:
        """What that would do."""
        ...

    async def update(self, scope: ToolScope, contact: str, change: CardChange) -> JsonObject:
        """Change one field, if nobody else has changed the contact meanwhile."""
        ...

    async def prepare_update(self, scope: ToolScope, contact: str, change: CardChange) -> PreparedCall:
        """What that would do."""
        ...


async def contacts_resolve(
    contacts: ContactsDesk,
    who: Annotated[str, "A name, half a name, an address, a number or a handle", Meta(min_length=1, max_length=500)],
    scope: ToolScope,
) -> ToolOutcome:
    """Who is meant: ranked people with ids and addresses. If not certain, ask; never guess."""
    return await _tell_outcome(contacts.resolve(scope, who))


async def contacts_search(
    contacts: ContactsDesk,
    text: Annotated[str, "Beginnings of names or organisations", Meta(min_length=1, max_length=500)],
    scope: ToolScope,
    *,
    limit: Annotated[int, Meta(ge=1, le=50)] = 20,
) -> ToolOutcome:
    """List the people in the address books whose names or organisations fit."""
    return await _tell_outcome(contacts.search(scope, text, limit))


async def contacts_recent(
    contacts: ContactsDesk, scope: ToolScope, *, limit: Annotated[int, Meta(ge=1, le=50)] = 10
) -> ToolOutcome:
    """Who has written lately where the person has written, too, and whom the address books know of them."""
    return await _tell_outcome(contacts.recent(scope, limit))


async def contacts_get(contacts: ContactsDesk, contact: Contact, scope: ToolScope) -> ToolOutcome:
    """All that an address book says of one contact."""
    return await _tell_outcome(contacts.get(scope, contact))


async def contacts_create(  # noqa: PLR0913 - one parameter per argument of the tool
    contacts: ContactsDesk,
    name: Name,
    scope: ToolScope,
    *,
    email: Value = "",
    phone: Value = "",
    organisation: Value = "",
    note: Note = "",
    book: Book = "",
) -> ToolOutcome:
    """Add a contact to an address book."""
    return await _tell_outcome(contacts.create(scope, _fields_of(name, email, phone, organisation, note), book))


async def prepare_creation(  # noqa: PLR0913 - one parameter per argument of the tool
    contacts: ContactsDesk,
    name: Name,
    scope: ToolScope,
    *,
    email: Value = "",
    phone: Value = "",
    organisation: Value = "",
    note: Note = "",
    book: Book = "",
) -> PreparedCall | ToolOutcome:
    """In a shared book, others see it."""
    return await _prepare_call(contacts.prepare_create(scope, _fields_of(name, email, phone, organisation, note), book))


async def contacts_update(
    contacts: ContactsDesk, contact: Contact, field: FieldName, scope: ToolScope, *, new: New = "", old: Old = ""
) -> ToolOutcome:
    """Change, add or remove one field of a contact. A birthday is YYYY-MM-DD."""
    return await _tell_outcome(contacts.update(scope, contact, CardChange(field, new, old)))


async def prepare_change(
    contacts: ContactsDesk, contact: Contact, field: FieldName, scope: ToolScope, *, new: New = "", old: Old = ""
) -> PreparedCall | ToolOutcome:
    """In a shared book, others see it."""
    return await _prepare_call(contacts.prepare_update(scope, contact, CardChange(field, new, old)))


async def contacts_link(
    _contacts: ContactsDesk,
    person: Annotated[str, "The id of the person", Meta(min_length=1, max_length=40)],
    channel: Annotated[str, "Such as telegram or email", Meta(min_length=1, max_length=40)],
    handle: Annotated[str, "What the channel calls them", Meta(min_length=1, max_length=300)],
    *,
    endpoint: Annotated[str, Meta(max_length=300)] = "",
) -> ToolOutcome:
    """The command by which an operator makes a handle count as a person; links nothing itself."""
    try:
        return ToolOutcome(link_request(person, channel, handle, endpoint))
    except ValueError as error:
        return ToolOutcome(f"Nothing can be linked: {error}.", ok=False)


def _fields_of(name: str, email: str, phone: str, organisation: str, note: str) -> tuple[CardChange, ...]:
    named: tuple[tuple[FieldName, str], ...] = (
        ("name", name),
        ("email", email),
        ("phone", phone),
        ("organisation", organisation),
        ("note", note),
    )
    return tuple(CardChange(field, value.strip()) for field, value in named if value.strip())


async def _tell_outcome(found: Awaitable[JsonObject]) -> ToolOutcome:
    try:
        return ToolOutcome(msgspec.json.encode(await found).decode())
    except ContactsRefusal as refusal:
        return ToolOutcome(str(refusal), ok=False)


async def _prepare_call(found: Awaitable[PreparedCall]) -> PreparedCall | ToolOutcome:
    try:
        return await found
    except ContactsRefusal as refusal:
        return ToolOutcome(str(refusal), ok=False)

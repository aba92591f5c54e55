"""Messages of unapproved senders, and the approvals.

`journey/strangers.py` holds them while they are accepted; `app/connectors/pairing.py` decides about their senders. Each
function is one transaction. Next: released messages wait in a `route:` lane, see `store/work/routing.py`.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from msgspec import Struct

from switchboard.core.people.strangers import Contact, Scope
from switchboard.core.text.storable import storable_or_none, storable_text
from switchboard.domain.message import RequestId
from switchboard.domain.routing import SystemId
from switchboard.domain.shown import ContactState, ShownContact
from switchboard.store.database import Database, part_as, query, row_as, rows_as
from switchboard.store.ids import new_uuid7
from switchboard.store.keys import Keys
from switchboard.store.messages.inbox import Prepared, keys_of

HELD_PER_SENDER = 20
HELD_PER_ACCOUNT = 1000
_MOVING: Final[tuple[Scope, ...]] = ("group", "person")


class StrangerOutcome(Struct, frozen=True):
    """The result for a message: `request_id` is null if nothing was stored; `told`: its sender gets a notice.

    `spent`: it was a code that does nothing, such as one for an owner that others have read. It goes nowhere, either.
    `owner_of`: the butler that the sender owns from now on.
    """

    outcome: Literal["let_in", "known", "held", "code", "spent", "denied", "sender_full", "account_full"]
    request_id: RequestId | None
    differs: bool
    told: bool
    owner_of: SystemId | None


class StrangerNotice(Struct, frozen=True):
    """A notice to a stranger, and the pool where it waits to be sent."""

    text: str
    pool: str


class NamedContact(Struct, frozen=True):
    """A contact, and what people call it: a person by name, a group by title."""

    contact: Contact
    name: str | None


def account_key(keys: Keys, channel: str, endpoint: str) -> str:
    """The key of all contacts of an endpoint."""
    return keys.of("contact", json.dumps([channel, endpoint]).encode())


def contact_key(keys: Keys, contact: Contact) -> str:
    """The key of one contact."""
    return keys.of("contact", json.dumps([contact.channel, contact.endpoint, contact.scope, contact.identity]).encode())


async def let_in(database: Database, contacts: Collection[Contact]) -> set[Contact]:
    """Those contacts who may write."""
    keys = await database.keys()
    wanted = {contact_key(keys, one): one for one in contacts}
    rows = await database.rows(query("strangers.let_in"), list(wanted))
    return {wanted[row["contact_id"].hex] for row in rows}


async def is_denied(database: Database, contact: Contact) -> bool:
    """Whether an operator has denied somebody."""
    keys = await database.keys()
    return bool(await database.value(query("strangers.is_denied"), contact_key(keys, contact)))


async def hold(
    database: Database, one: Prepared, contact: NamedContact, *, code: str | None, notice: StrangerNotice | None
) -> StrangerOutcome:
    """Store a message without routing it, unless its sender may now write. `code`: the code that it may consist of."""
    who = contact.contact
    keys = await database.keys()
    account = account_key(keys, who.channel, who.endpoint)
    request_id, channel, endpoint, sender, thread, envelope, media_type, received_at, tier, *_ = one.row
    row = await database.row(
        query("strangers.hold"),
        *(account, contact_key(keys, who), who.scope, storable_text(who.identity)),
        storable_or_none(contact.name),
        None if code is None else keys.of("code", f"{account}{code}".encode()),
        *((None, None, None) if notice is None else (new_uuid7(), notice.text, notice.pool)),
        *keys_of(one, keys),
        *(request_id, channel, endpoint, sender, thread or None, envelope, media_type, received_at, tier),
        *(one.row[12], one.arrival.pinned, one.raw, who.private),
    )
    held = row_as(StrangerOutcome, row)
    if held is None:
        raise LookupError("nothing was said of the message")
    return held


class HeldBy(Struct, frozen=True):
    """The contact for whom a message is or was held."""

    contact_id: UUID
    scope: str
    state: Literal["held", "forgotten", "code"]


async def held_by(database: Database, request_id: UUID) -> HeldBy | None:
    """None if it was never held, or has been released."""
    row = await database.row(query("strangers.held_by"), request_id)
    return None if row is None else part_as(HeldBy, row)


async def forget(database: Database, age: timedelta) -> int:
    """Forget a stranger's messages that waited for longer; returns how many, 0 also for an unknown one."""
    return int(await database.value(query("strangers.forget"), age))


async def list_contacts(
    database: Database, state: ContactState | None, below: tuple[datetime, UUID] | None, limit: int
) -> list[ShownContact]:
    """Newest first; `below` is when the last one of the previous page was first seen, and its id."""
    values = (state, *(below or (None, None)), limit)
    return rows_as(ShownContact, await database.rows(query("strangers.contacts"), *values))


async def get_contact(database: Database, contact_id: UUID) -> ShownContact | None:
    """One of them."""
    return row_as(ShownContact, await database.row(query("strangers.contact"), contact_id))


async def list_called(database: Database, contact_ids: Collection[UUID]) -> dict[UUID, str]:
    """What those of them who are still known are called."""
    rows = await database.rows(query("strangers.called"), list(contact_ids))
    return {row["contact_id"]: row["name"] for row in rows}


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message that waits until somebody decides about its sender, and the beginning of its text."""

    request_id: UUID
    sender: str
    received_at: datetime
    text: str


async def held_messages(database: Database, contact_id: UUID, before: UUID | None, limit: int) -> list[HeldMessage]:
    """What of a contact waits for a decision, newest first; `before` is the last one of the page before."""
    return rows_as(HeldMessage, await database.rows(query("strangers.held_messages"), contact_id, before, limit))


class ContactOutcome(Struct, frozen=True):
    """How many messages were released or forgotten, and whether the contact's state changed."""

    messages: int
    changed: bool


async def decide(database: Database, contact_id: UUID, state: ContactState, by: str) -> ContactOutcome | None:
    """Approve, deny or revoke (`stranger`). None: no such contact."""
    return row_as(ContactOutcome, await database.row(query("strangers.decide"), contact_id, state, by))


async def forget_heard_elsewhere(database: Database, request_id: RequestId) -> None:
    """Hold this message no longer: a butler has got its copy. Nothing if it is not held."""
    await database.row(query("strangers.forget_heard_elsewhere"), request_id)


async def add(database: Database, contact: Contact, by: str) -> tuple[UUID, bool]:
    """Approve somebody who need not have written before; returns the contact's id, and whether they were not yet."""
    keys = await database.keys()
    contact_id = contact_key(keys, contact)
    account = account_key(keys, contact.channel, contact.endpoint)
    where = (contact.channel, contact.endpoint, contact.scope, contact.identity)
    outcome = row_as(ContactOutcome, await database.row(query("strangers.add"), account, contact_id, *where, by))
    return UUID(contact_id), outcome is not None and outcome.changed


async def admit(database: Database, one: Prepared, group: NamedContact, by: str) -> bool:
    """Approve a group because of a message; False: an operator has denied it or its sender, or it was stored before."""
    keys, who = await database.keys(), group.contact
    person = Contact(who.channel, who.endpoint, "person", one.arrival.message.envelope.sender.identity)
    where = account_key(keys, who.channel, who.endpoint), contact_key(keys, who), who.channel, who.endpoint
    name = storable_or_none(group.name)
    event = keys_of(one, keys)[2]
    of = storable_text(who.identity), name, by, event, contact_key(keys, person)
    return bool(await database.value(query("strangers.admit_group"), *where, *of))


async def move(database: Database, channel: str, endpoint: str, old: str, new: str) -> None:
    """Apply the decisions about a group to its new id; of a direct conversation, those about the person."""
    keys = await database.keys()
    account = account_key(keys, channel, endpoint)
    for scope in _MOVING:
        before, after = (contact_key(keys, Contact(channel, endpoint, scope, one)) for one in (old, new))
        await database.run(query("strangers.move"), account, before, after, storable_text(new))


class NewCode(Struct, frozen=True):
    """A code for one endpoint; `owner_of`: the butler that its sender will own."""

    channel: str
    endpoint: str
    code: str
    valid: timedelta
    owner_of: SystemId | None = None


async def keep_code(database: Database, new: NewCode) -> datetime:
    """Keep the keyed hash of a code; returns when it expires."""
    keys = await database.keys()
    account = account_key(keys, new.channel, new.endpoint)
    key = keys.of("code", f"{account}{new.code}".encode())
    values = (new_uuid7(), account, key, new.valid, new.owner_of)
    expires_at: datetime = await database.value(query("strangers.new_code"), *values)
    return expires_at


class OpenCode(Struct, frozen=True):
    """A code that still lets its sender in. Nobody can show it again: only its hash is kept."""

    expires_at: datetime
    owner_of: SystemId | None


async def find_open_code(database: Database, channel: str, endpoint: str) -> OpenCode | None:
    """The newest of an endpoint that was not used."""
    account = account_key(await database.keys(), channel, endpoint)
    row = await database.row(query("strangers.open_code"), account)
    return None if row is None else OpenCode(row["expires_at"], row["owner_of"])


async def tell_of_code(database: Database, request_id: RequestId, notice: StrangerNotice) -> None:
    """Tell the sender of a code what it has done."""
    await database.run(query("strangers.tell_of_code"), request_id, new_uuid7(), notice.text, notice.pool)

"""Contacts are made and changed on the server, so that nobody else's change is lost, and then in the mirror.

`tools.py` calls it. In: the accounts, the scope of a call, what is to be written; out: JSON for the model, or a
`PreparedCall`. What is written in a shared book is seen by others, so that a person approves it. Next:
`ports/collection_server.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Final
from uuid import UUID, uuid5

from switchboard.core.text.compared_lines import has_all_lines
from switchboard.core.text.content_lines import escape_text
from switchboard.core.text.visible import visible
from switchboard.domain.errors import ConfigurationError, InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.modules.accounts.failures import describe_failure
from switchboard.modules.accounts.servers import open_books
from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.contacts.books import AccountBook, KeptCard, find_uid, keep_written, read_cards
from switchboard.modules.contacts.callers import ContactAccounts, ContactsRefusal
from switchboard.modules.contacts.cards import REPEATED, Card, CardChange, card_of, change_card
from switchboard.modules.contacts.looking import Seen, find_card, look_around
from switchboard.modules.contacts.present import name_of, whole_contact
from switchboard.ports.collection_server import CollectionServer, ServerError, ServerObject
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.tools import PreparedCall, ToolScope

_NAMESPACE: Final = UUID("5b6d3a52-0c1b-4b5e-9a55-6d1f5f2f7c11")
_SHARED: Final = "others share this address book"


async def create_for(
    contacts: ContactAccounts, scope: ToolScope, fields: Sequence[CardChange], book: str
) -> JsonObject:
    """Make a contact with these fields, once for each key of a call. Raises ContactsRefusal."""
    name = _name_among(fields)
    seen = await look_around(contacts, scope)
    into, account = _choose_book(seen, book)
    uid = _uid_for(scope)
    store = contacts.store_of(into.account)
    known = await find_uid(store, seen.books[into.account], uid)
    if known is not None:  # this call was made before, and its outcome was lost
        return {"created": whole_contact(known, scope.zone)}
    _require_permission(scope, _plan_creation(into, account, fields))
    async with _open_server(into.account, account) as server:
        written = await _create_once(server, into, ServerObject(f"{uid}.vcf", "", _card_with(uid, name, fields)), uid)
    return {"created": whole_contact(await _keep_new_state(store, into, written, "", account.region), scope.zone)}


def _uid_for(scope: ToolScope) -> str:
    """Of the contact that a call makes."""
    return str(uuid5(_NAMESPACE, str(scope.key)))


async def prepare_create(
    contacts: ContactAccounts, scope: ToolScope, fields: Sequence[CardChange], book: str
) -> PreparedCall:
    """What `create_for` would do. Raises ContactsRefusal."""
    _name_among(fields)
    seen = await look_around(contacts, scope)
    into, account = _choose_book(seen, book)
    if await find_uid(contacts.store_of(into.account), seen.books[into.account], _uid_for(scope)):
        return PreparedCall("idempotent", "low", begun=True)
    return _plan_creation(into, account, fields)


def _plan_creation(into: AccountBook, account: DavAccount, fields: Sequence[CardChange]) -> PreparedCall:
    told = ", ".join(f"{change.field} {change.new}" for change in fields)
    shown = f"New contact in {into.account}/{into.label}: {told}"
    return _plan_write(into, account, shown, (into.account, into.path))


async def update_for(contacts: ContactAccounts, scope: ToolScope, contact: str, change: CardChange) -> JsonObject:
    """Change a field of a contact, if nobody else has changed it meanwhile. Raises ContactsRefusal."""
    seen = await look_around(contacts, scope)
    kept = await find_card(contacts, seen, contact)
    data = _changed_data(kept, change)
    if data == kept.found.data:
        return {"contact": whole_contact(kept, scope.zone)}
    account = seen.accounts[kept.book.account]
    store = contacts.store_of(kept.book.account)
    _require_permission(scope, _plan_change(kept, account, change))  # the write is one of exactly this state
    async with _open_server(kept.book.account, account) as server:
        try:
            written = await server.replace_object(kept.book.url, kept.found, data)
        except ServerError as error:
            if error.state != "changed":
                raise
            written = await server.read_object(kept.book.url, kept.found.name)
            # else this call was made before, and its outcome was lost
            if not has_all_lines(written.data, data, kept.found.data):
                await keep_written(store, kept.book, written, kept.found.etag, account.region)
                raise ContactsRefusal(
                    f"Nothing was written: somebody else has changed {name_of(kept)} meanwhile. "
                    "Look at the contact again with contacts_get, and change that."
                ) from error
    now = await _keep_new_state(store, kept.book, written, kept.found.etag, account.region)
    return {"contact": whole_contact(now, scope.zone)}


async def prepare_update(contacts: ContactAccounts, scope: ToolScope, contact: str, change: CardChange) -> PreparedCall:
    """What `update_for` would do. Raises ContactsRefusal."""
    seen = await look_around(contacts, scope)
    kept = await find_card(contacts, seen, contact)
    if _changed_data(kept, change) == kept.found.data:
        return PreparedCall("idempotent", "low", begun=True)  # nothing is left to be done
    return _plan_change(kept, seen.accounts[kept.book.account], change)


def _plan_change(kept: KeptCard, account: DavAccount, change: CardChange) -> PreparedCall:
    shown = f"{name_of(kept)} ({kept.contact_id}): {_described_change(change)}"
    return _plan_write(kept.book, account, shown, (str(kept.contact_id), kept.found.etag))


def _require_permission(scope: ToolScope, found: PreparedCall) -> None:
    """Raises ContactsRefusal if something else was approved."""
    if objection := scope.objection_to(found):
        raise ContactsRefusal(f"Nothing was written: {objection}. Call it again, so that it is asked about as it is.")


def _plan_write(book: AccountBook, account: DavAccount, shown: str, about: Iterable[str]) -> PreparedCall:
    digest = sha256("\0".join((*about, shown)).encode()).hexdigest()
    if account.group or book.shared:
        return PreparedCall("idempotent", "high", _SHARED, shown, digest)
    return PreparedCall("idempotent", "medium", "", shown, digest)


def _described_change(change: CardChange) -> str:
    if not change.new:
        return f"remove {change.field} {change.old}".rstrip()
    return f"{change.field} {f'{change.old} → ' if change.old else ''}{change.new}"


def _choose_book(seen: Seen, wanted: str) -> tuple[AccountBook, DavAccount]:
    """The book with this label or name, or the first of the caller's own. Raises ContactsRefusal."""
    every = [book for books in seen.books.values() for book in books]
    found = [
        book for book in every if wanted in ("", book.account, book.label, book.name, f"{book.account}/{book.label}")
    ]
    writable = [book for book in found if book.writable is not False]
    if wanted in ("", *seen.accounts):
        writable = [book for book in writable if not book.shared]
    if writable and (not wanted or len(writable) == 1 or wanted == writable[0].account):
        return writable[0], seen.accounts[writable[0].account]
    names = ", ".join(f"{book.account}/{book.label}" for book in every if book.writable is not False)
    if not every:
        raise ContactsRefusal("No address book has been fetched yet; try again in a quarter of an hour.")
    why = "several books are called so" if writable else "there is no such book, or it cannot be written to"
    raise ContactsRefusal(f"Nothing was written: {why}; the books are {names or 'all read-only'}.")


def _changed_data(kept: KeptCard, change: CardChange) -> bytes:
    """Raises ContactsRefusal for a change that cannot be made."""
    for value in (change.new, change.old):
        _check_value(value)
    if kept.book.writable is False:
        raise ContactsRefusal(f"Nothing was written: the book {kept.book.label} is read-only.")
    try:
        if _is_made(card_of(kept.found.data), change):
            return kept.found.data
        return change_card(kept.found.data, [change])
    except InvalidInput as error:
        raise ContactsRefusal(f"Nothing was written: {error.message}.") from error


def _is_made(card: Card, change: CardChange) -> bool:
    """Whether one of several values is as it would be afterwards, as when a call is repeated."""
    values = {way.value for way in card.ways if way.kind == change.field}
    if change.field not in REPEATED:
        return False
    return (not change.new or change.new in values) and (not change.old or change.old not in values)


def _check_value(value: str) -> None:
    if visible(value) != value:
        raise ContactsRefusal("Nothing was written: the text has invisible characters.")


def _name_among(fields: Sequence[CardChange]) -> str:
    """Raises ContactsRefusal for what no card may have."""
    for change in fields:
        _check_value(change.new)
    name = next((change.new for change in fields if change.field == "name"), "")
    if not name:
        raise ContactsRefusal("Nothing was written: a contact has a name.")
    return name


def _card_with(uid: str, name: str, fields: Sequence[CardChange]) -> bytes:
    given, _, family = name.rpartition(" ") if " " in name else (name, "", "")
    named = f"N:{escape_text(family)};{escape_text(given)};;;"
    lines = ("BEGIN:VCARD", "VERSION:3.0", f"UID:{uid}", f"FN:{escape_text(name)}", named, "END:VCARD")
    others = [change for change in fields if change.field != "name"]
    return change_card("".join(f"{line}\r\n" for line in lines).encode(), others)


async def _create_once(server: CollectionServer, into: AccountBook, new: ServerObject, uid: str) -> ServerObject:
    """Write it; what a first call has written under the same name is taken, however the server has put it."""
    try:
        return await server.create_object(into.url, new)
    except ServerError as error:
        if error.state != "changed":
            raise
        found = await server.read_object(into.url, new.name)
        if card_of(found.data).uid != uid:
            raise
        return found


async def _keep_new_state(
    store: ModuleStore, book: AccountBook, written: ServerObject, replaced: str, region: str
) -> KeptCard:
    """What the server has now, as it is in the mirror from now on."""
    await keep_written(store, book, written, replaced, region)
    found = await read_cards(store, [book], [(book.path, written.name)])
    if not found:
        raise ContactsRefusal("It was written, but what the server has made of it cannot be read.")
    return found[0]


@asynccontextmanager
async def _open_server(name: str, account: DavAccount) -> AsyncIterator[CollectionServer]:
    """Raises ContactsRefusal for all that goes wrong with the server."""
    try:
        async with open_books(name, account) as server:
            yield server
    except ConfigurationError as error:
        raise ContactsRefusal(f"Nothing was written: {error.message}.") from error
    except ServerError as error:
        done = "It is not certain what was written" if error.state == "unknown" else "Nothing was written"
        raise ContactsRefusal(f"{done}: {describe_failure(error)}.") from error

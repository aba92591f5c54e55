"""Who is in the address books that a caller may see: found, told with their origin, and how fresh that is.

`tools.py` calls it. In: the accounts, the scope of a call, words; out: JSON for the model. Next: `resolve.py`,
`present.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from switchboard.core.text.storable import storable_text
from switchboard.core.text.visible import visible_start
from switchboard.domain.json_values import JsonObject
from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.contacts.books import AccountBook, KeptCard, freshness_of, local_time, read_books, read_cards
from switchboard.modules.contacts.callers import ContactAccounts, ContactsRefusal
from switchboard.modules.contacts.keys import keys_sought
from switchboard.modules.contacts.names import read_id
from switchboard.modules.contacts.present import IN_LISTS, listed_contact, whole_contact
from switchboard.modules.contacts.resolve import (
    MOST_FOUND,
    CardKey,
    ContactMatch,
    MatchedPerson,
    Resolved,
    find_by_keys,
    find_matches,
    resolve_matches,
)
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.recent_writers import RecentWriter
from switchboard.ports.tools import ToolScope

_SHOWN: Final = 10
_MOST_KNOWN: Final = 3
_Find: TypeAlias = Callable[[ModuleStore, str, DavAccount], Awaitable[tuple[ContactMatch, ...]]]
"""What looks in an account of this name."""
_NO_ID: Final = "an id looks like account/book/name.vcf, as contacts_resolve and contacts_search tell it"


class Seen(Struct, frozen=True):
    """The accounts that a call sees, and their books."""

    accounts: Mapping[str, DavAccount]
    books: Mapping[str, tuple[AccountBook, ...]]


class _Found(Struct, frozen=True):
    """What a call sees, the cards in it that may be meant, and the likeliest of them as they are kept."""

    seen: Seen
    matches: tuple[ContactMatch, ...]
    cards: Mapping[CardKey, KeptCard]


async def look_around(contacts: ContactAccounts, scope: ToolScope) -> Seen:
    """Raises ContactsRefusal for a caller who sees nothing."""
    accounts = await contacts.seen_by(scope)
    return Seen(accounts, {name: await read_books(contacts.store_of(name), name) for name in accounts})


async def resolve_for(contacts: ContactAccounts, scope: ToolScope, who: str) -> JsonObject:
    """Who may be meant, ranked; by the id of a contact, that one. Raises ContactsRefusal."""
    found = await _find_all(contacts, scope, _look_for(who), _SHOWN)
    if not found.matches and read_id(storable_text(who)) is not None:
        kept = await find_card(contacts, found.seen, who)
        return {"certain": True, "people": [listed_contact(kept)], "accounts": tell_freshness(found.seen, scope)}
    resolved = resolve_matches(found.matches)
    # All who may be meant as well are shown, however many they are, or it is said how many more there are.
    people = resolved.people[: max(_SHOWN // 2, min(len(resolved.likely), _SHOWN))]
    return {
        "certain": resolved.certain is not None,
        **_advice_on(resolved),
        "people": await _tell_people(contacts, found, people),
        **({"more": len(resolved.people) - len(people)} if len(resolved.people) > len(people) else {}),
        "accounts": tell_freshness(found.seen, scope),
    }


async def search_for(contacts: ContactAccounts, scope: ToolScope, text: str, limit: int) -> JsonObject:
    """Cards with these words. Raises ContactsRefusal."""
    found = await _find_all(contacts, scope, _look_for(text), limit)
    people = resolve_matches(found.matches).people
    return {
        "found": f"{len(people)} or more" if len(found.matches) >= MOST_FOUND else len(people),
        "people": await _tell_people(contacts, found, people[:limit], why=False),
        "accounts": tell_freshness(found.seen, scope),
    }


async def recent_for(contacts: ContactAccounts, scope: ToolScope, writers: Sequence[RecentWriter]) -> JsonObject:
    """These writers, each with whom the address books know under that handle. Raises ContactsRefusal."""

    async def find(store: ModuleStore, name: str, account: DavAccount) -> tuple[ContactMatch, ...]:
        keys = {key for one in writers for key in _keys_of(one, account)}
        return await find_by_keys(store, name, sorted(keys))

    found = await _find_all(contacts, scope, find, _SHOWN)
    told = [await _tell_writer(contacts, scope, found, one) for one in writers]
    return {"people": told, "since": "30 days ago", "accounts": tell_freshness(found.seen, scope)}


async def _tell_writer(contacts: ContactAccounts, scope: ToolScope, found: _Found, writer: RecentWriter) -> JsonObject:
    """Several contacts with the same handle are all told."""
    matches = (
        one for one in found.matches if not one.keys.isdisjoint(_keys_of(writer, found.seen.accounts[one.account]))
    )
    known = await _tell_people(contacts, found, resolve_matches(matches).people[:_MOST_KNOWN], why=False)
    return {
        "channel": writer.channel,
        "handle": visible_start(writer.identity, IN_LISTS),
        "name": visible_start(writer.name, IN_LISTS),
        "last": local_time(writer.at, scope.zone),
        "messages": writer.messages,
        **({"contacts": known} if known else {}),
    }


def _keys_of(writer: RecentWriter, account: DavAccount) -> tuple[str, ...]:
    return keys_sought(storable_text(writer.identity), account.region)


async def get_for(contacts: ContactAccounts, scope: ToolScope, contact: str) -> JsonObject:
    """All of one card. Raises ContactsRefusal."""
    seen = await look_around(contacts, scope)
    kept = await find_card(contacts, seen, contact)
    return whole_contact(kept, scope.zone) | {"account": freshness_of(seen.books[kept.book.account], scope.zone)}


async def find_card(contacts: ContactAccounts, seen: Seen, contact: str) -> KeptCard:
    """The card with this id, if the caller may see it. Raises ContactsRefusal, the same for all others."""
    wanted = read_id(storable_text(contact))
    if wanted is None:
        raise ContactsRefusal(f"{contact[:100]!r} is no id of a contact: {_NO_ID}.")
    books = seen.books.get(wanted.account, ())
    path = next((book.path for book in books if book.label == wanted.label), None)
    found = () if path is None else await read_cards(contacts.store_of(wanted.account), books, [(path, wanted.name)])
    if not found:
        raise ContactsRefusal(f"There is no contact {contact[:100]!r}: {_NO_ID}.")
    return found[0]


def tell_freshness(seen: Seen, scope: ToolScope) -> JsonObject:
    """Of each account that was looked into."""
    return {name: freshness_of(books, scope.zone) for name, books in seen.books.items()}


def _look_for(text: str) -> _Find:
    """Looks for whoever is meant by a text."""
    text = storable_text(text)
    return lambda store, name, account: find_matches(store, name, text, account.region)


async def _find_all(contacts: ContactAccounts, scope: ToolScope, find: _Find, told: int) -> _Found:
    """What the caller sees, and the cards in it that may be meant: a transaction for each account.

    The `told` likeliest of each are read in it, as these are nearly always those that are told.
    """
    matches: list[ContactMatch] = []
    books: dict[str, tuple[AccountBook, ...]] = {}
    cards: dict[CardKey, KeptCard] = {}
    accounts = await contacts.seen_by(scope)
    for name, account in accounts.items():
        async with contacts.store_of(name).transaction() as one:
            books[name] = await read_books(one, name)
            found = await find(one, name, account)
            cards |= await _read_matched(one, books[name], found[:told])
        matches += found
    return _Found(Seen(accounts, books), tuple(matches), cards)


async def _read_matched(
    store: ModuleStore, books: Sequence[AccountBook], matched: Sequence[ContactMatch]
) -> Mapping[CardKey, KeptCard]:
    """Those of these cards of an account that are still there."""
    cards = await read_cards(store, books, [(one.collection, one.name) for one in matched]) if matched else ()
    return {(one.book.account, one.book.path, one.found.name): one for one in cards}


def _advice_on(resolved: Resolved) -> JsonObject:
    if not resolved.people:
        return {"advice": "Nobody is found. Ask for another name, an address or a number; do not guess."}
    if resolved.certain is None:
        return {"advice": "Several may be meant. Ask which one, and go on with that id; do not choose."}
    return {}


async def _tell_people(
    contacts: ContactAccounts, found: _Found, people: Iterable[MatchedPerson], *, why: bool = True
) -> list[JsonObject]:
    """Only cards that are told are read."""
    missing = [card for person in people for card in person.cards[:_SHOWN] if card.key not in found.cards]
    kept = dict(found.cards)
    for name, books in found.seen.books.items():
        mine = [card for card in missing if card.account == name]
        kept |= await _read_matched(contacts.store_of(name), books, mine)
    return [told for person in people if (told := _tell_person(person, kept, why=why))]


def _tell_person(person: MatchedPerson, kept: Mapping[CardKey, KeptCard], *, why: bool) -> JsonObject | None:
    cards = [kept[one.key] for one in person.cards[:_SHOWN] if one.key in kept]
    if not cards:  # gone meanwhile
        return None
    told = listed_contact(cards[0])
    if why:
        told |= {"why": person.cards[0].why, "score": person.score}
    if cards[1:]:
        told["also"] = [listed_contact(one, as_person=False) for one in cards[1:]]
    return told

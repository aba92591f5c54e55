"""The mirror of an account's address books: what is in it, what a listing changes in it, and what is doubted.

The sync (`sync.py`) keeps it equal to the server; tools write what they have written there. In: a `ModuleStore`, and
what the server said; out: `MirroredBook`, `MirrorPlan`. When things are due is asked in SQL, by the database's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, convert

from switchboard.domain.errors import InvalidInput
from switchboard.modules.contacts.cards import card_of
from switchboard.modules.contacts.keys import key_of, search_words
from switchboard.ports.module_store import ModuleStore
from switchboard.transport.dav.discovery import DavCollection
from switchboard.transport.dav.places import path_of, start_of
from switchboard.transport.dav.reading import DavContents, DavListing, DavObject

FULL_EVERY: Final = timedelta(days=6)
RIPE_AFTER: Final = timedelta(minutes=5)
"""After which a second full listing may confirm what the first one lacked."""
_MANY: Final = 20
_MOST_WAYS: Final = 100


class MirroredBook(Struct, frozen=True):
    """An address book in the mirror. `book` is its path; `doubted` are names that the last full listing lacked.

    `started` is the time at which this was read. `missing`: the server did not name it the last time. `ripe`: the doubt
    is old enough to be confirmed. `complete`: the mirror was all that the server had at `synced_at`.
    """

    book: str
    url: str
    name: str
    writable: bool | None
    cursor: str
    complete: bool
    synced_at: datetime | None
    doubted: tuple[str, ...]
    started: datetime
    full_due: bool
    missing: bool
    ripe: bool


class KnownCards(Struct, frozen=True):
    """The ETags of cards in the mirror, by name; those of `again` are read again, whatever a listing says."""

    etags: Mapping[str, str]
    again: frozenset[str]


class MirrorPlan(Struct, frozen=True):
    """What makes the mirror equal to a listing: what is read, what goes, and what must be missing twice to go."""

    wanted: tuple[str, ...]
    gone: frozenset[str]
    doubted: frozenset[str] = frozenset()


def plan_changes(book: MirroredBook, known: Mapping[str, str], listing: DavListing) -> MirrorPlan:
    """What a listing changes, given the ETags of the cards that are known; empty ones are always read again."""
    wanted = tuple(name for name, etag in listing.etags.items() if not etag or known.get(name) != etag)
    missing = frozenset(known) - frozenset(listing.etags) if listing.whole else listing.gone & frozenset(known)
    left = len(known) - len(missing)
    if not missing or (left and (len(known) < _MANY or 2 * left >= len(known))):
        return MirrorPlan(wanted, missing)
    if listing.whole and book.ripe:
        return MirrorPlan(wanted, missing & frozenset(book.doubted), missing - frozenset(book.doubted))
    return MirrorPlan(wanted, frozenset(), missing)


async def books_in(store: ModuleStore) -> tuple[MirroredBook, ...]:
    """All books of the account."""
    return tuple(convert(dict(row), MirroredBook) for row in await store.rows("books.all", FULL_EVERY, RIPE_AFTER))


async def keep_books(store: ModuleStore, found: Iterable[DavCollection]) -> None:
    """These are the books of the account. One that is missing goes if it was missing minutes ago already."""
    async with store.transaction() as one:
        names = []
        for collection in found:
            names.append(path_of(start_of(collection.url)))
            await one.run("books.find", names[-1], collection.url, collection.name, collection.writable)
        await one.run("books.miss", names, RIPE_AFTER)


async def known_cards(store: ModuleStore, book: str) -> KnownCards:
    """The cards of a book."""
    rows = await store.rows("cards.etags", book)
    again = frozenset(row["name"] for row in rows if row["check_again"])
    return KnownCards({row["name"]: row["etag"] for row in rows}, again)


async def keep_cards(
    store: ModuleStore, book: MirroredBook, contents: DavContents, etags: Mapping[str, str], region: str = ""
) -> None:
    """Put cards into the mirror, as they were read after `book.started`; unreadable ones with why they are.

    `etags` are those of the listing, for answers without one: what was read is at least as new. `region` is that of
    numbers without one. What could not be read is read again by the next sync, unless it is too large.
    """
    async with store.transaction() as one:
        for found in contents.objects:
            columns = (found.etag or etags.get(found.name, ""), *_described_card(found.data), found.data)
            kept = await one.rows("cards.keep", book.book, found.name, *columns, book.started, False)
            if not kept[0]["check_again"]:
                await _keep_keys(one, book.book, found, region)
        for name, error in contents.unreadable.items():
            columns = (etags.get(name, ""), "", "", str(error), b"")
            again = error.state != "too_large"
            await one.rows("cards.keep", book.book, name, *columns, book.started, again)


async def write_card(store: ModuleStore, book: str, written: DavObject, replaced: str, region: str = "") -> None:
    """Put what a tool has written into the mirror; `replaced` is the ETag that it had before, or empty."""
    uid, shown, _ = _described_card(written.data)
    async with store.transaction() as one:
        await one.run("cards.write", book, written.name, written.etag, uid, shown, written.data, replaced)
        await _keep_keys(one, book, written, region)


async def _keep_keys(store: ModuleStore, book: str, found: DavObject, region: str) -> None:
    """By what the card is found: in the transaction that writes it. One that cannot be read is not found."""
    await store.run("people.forget_ways", book, found.name)
    try:
        card = card_of(found.data)
    except InvalidInput:
        return
    await store.run("people.set_words", book, found.name, search_words(card))
    ways = card.ways[:_MOST_WAYS]
    columns = (
        range(len(ways)),
        [way.kind for way in ways],
        [way.value.replace("\0", "") for way in ways],
        [key_of(way.kind, way.value, region).replace("\0", "") for way in ways],
        [way.label.replace("\0", "") for way in ways],
        [way.preferred for way in ways],
    )
    await store.run("people.find_ways", book, found.name, *map(list, columns))


async def finish_sync(store: ModuleStore, book: MirroredBook, plan: MirrorPlan, listing: DavListing) -> None:
    """Carry out the rest of a plan, all of it or nothing: what goes, and from where the next sync asks."""
    gone = list(plan.gone)
    async with store.transaction() as one:
        await one.run("cards.spare", book.book, gone, book.started)
        await one.run("cards.drop", book.book, gone, book.started)
        if plan.doubted:
            await one.run("books.doubt", book.book, list(plan.doubted))
        else:
            await one.run("books.finish", book.book, listing.cursor, listing.complete, listing.whole)


def _described_card(data: bytes) -> tuple[str, str, str]:
    """Its UID, the name to show, and why it cannot be read, if so."""
    try:
        card = card_of(data)
    except InvalidInput as error:
        return "", "", error.message
    return card.uid.replace("\0", ""), card.name.replace("\0", ""), ""

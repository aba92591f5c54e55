"""Bring the mirror of an account to what its server has: the chore `sync` of the module contacts, every 15 minutes.

In: the store of the account and a client of its server; out: a `SyncReport`, and a mirror that is equal to the server,
or says that it is not. It may be killed at any point: what was read is kept, and the next run begins where the last
one came to its end. Nothing that a server fails to say deletes anything. Next: `mirror.py`.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from switchboard.modules.contacts.mirror import (
    MirroredBook,
    MirrorPlan,
    books_in,
    finish_sync,
    keep_books,
    keep_cards,
    known_cards,
    plan_changes,
)
from switchboard.ports.module_store import ModuleStore
from switchboard.transport.dav.client import DavClient
from switchboard.transport.dav.discovery import find_collections
from switchboard.transport.dav.kinds import DavError
from switchboard.transport.dav.reading import DavListing, list_changes, list_everything, read_objects

SYNC_EVERY_S: Final = 900.0
MOST_CARDS: Final = 20_000
_BATCH: Final = 50


class SyncReport(Struct, frozen=True):
    """What a sync has done: how many cards it read and removed, and how many are missing that may come back."""

    read: int = 0
    removed: int = 0
    doubted: int = 0

    def __add__(self, other: SyncReport) -> SyncReport:
        return SyncReport(self.read + other.read, self.removed + other.removed, self.doubted + other.doubted)


async def sync_account(store: ModuleStore, client: DavClient, region: str = "") -> SyncReport:
    """One run for all books of the account. Raises DavError; what was done before the error counts.

    `region` is the country of numbers without its code, such as `DE`. Which books there are is asked when a full sync
    is due, and when one of them is missing.
    """
    books = await books_in(store)
    if not books or any(book.full_due or book.missing for book in books):
        await keep_books(store, await find_collections(client))
        books = await books_in(store)
    done = SyncReport()
    for book in books:
        if not book.missing:
            done += await _sync_named_book(store, client, book, region)
    return done


async def _sync_named_book(store: ModuleStore, client: DavClient, book: MirroredBook, region: str) -> SyncReport:
    try:
        return await _sync_book(store, client, book, region)
    except DavError as error:
        if error.state != "missing":
            raise
        await keep_books(store, await find_collections(client))
        return SyncReport()


async def _sync_book(store: ModuleStore, client: DavClient, book: MirroredBook, region: str) -> SyncReport:
    known = await known_cards(store, book.book)
    listing = await _listing_of(client, book)
    if len(known.etags.keys() | listing.etags.keys()) > MOST_CARDS:
        raise DavError("too_large", f"the address book {book.name} has more than {MOST_CARDS:,} cards")
    plan = plan_changes(book, known.etags, listing)
    wanted = list(dict.fromkeys([*plan.wanted, *(known.again - listing.gone)]))
    vanished: set[str] = set()
    for start in range(0, len(wanted), _BATCH):
        contents = await read_objects(client, book.url, wanted[start : start + _BATCH])
        vanished |= contents.gone
        await keep_cards(store, book, contents, listing.etags, region)
    plan = MirrorPlan(plan.wanted, plan.gone | (known.again & vanished), plan.doubted)
    await finish_sync(store, book, plan, listing)
    return SyncReport(len(wanted) - len(vanished), len(plan.gone), len(plan.doubted))


async def _listing_of(client: DavClient, book: MirroredBook) -> DavListing:
    if book.full_due or not book.cursor:
        return await list_everything(client, book.url)
    return await list_changes(client, book.url, book.cursor)

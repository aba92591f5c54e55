"""The address books of an account, as tools see them: labels, how fresh the mirror is, cards by their ids.

All that tools read of the mirror, and write to it, goes through here. In: the store of an account; out: `AccountBook`,
`KeptCard`. Next: `modules/mirror/kept.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.modules.contacts.mirror import SYNC_EVERY_S, CardKeeper
from switchboard.modules.contacts.names import ContactId, label_books
from switchboard.modules.mirror.kept import collections_in, is_stale, write_object
from switchboard.ports.collection_server import ServerObject
from switchboard.ports.module_store import ModuleStore


class AccountBook(Struct, frozen=True):
    """An address book. `path` is its key in the mirror, `label` what ids have of it. `shared`: it is somebody
    else's, who shares it. `now` is the database's time."""

    account: str
    path: str
    label: str
    name: str
    url: str
    writable: bool | None
    shared: bool
    synced_at: datetime | None
    complete: bool
    now: datetime


class KeptCard(Struct, frozen=True):
    """A card in the mirror. `written_at`: when Switchboard wrote it; None: somebody else did, as far as is known."""

    contact_id: ContactId
    book: AccountBook
    found: ServerObject
    written_at: datetime | None


async def read_books(store: ModuleStore, account: str) -> tuple[AccountBook, ...]:
    """All books of an account."""
    found = await collections_in(store)
    labels = label_books([one.collection for one in found])
    return tuple(
        AccountBook(
            *(account, one.collection, labels[one.collection], one.name, one.url, one.writable, one.shared),
            synced_at=one.synced_at,
            complete=one.complete and not one.missing,
            now=one.started,
        )
        for one in found
    )


async def read_cards(
    store: ModuleStore, books: Sequence[AccountBook], wanted: Sequence[tuple[str, str]]
) -> tuple[KeptCard, ...]:
    """Those of these cards, named by the path of the book and their own name, that can be read."""
    there = {book.path: book for book in books}
    rows = await store.rows("people.cards_of", [path for path, _ in wanted], [name for _, name in wanted])
    return tuple(
        KeptCard(
            ContactId(there[row["collection"]].account, there[row["collection"]].label, row["name"]),
            there[row["collection"]],
            ServerObject(row["name"], row["etag"], bytes(row["data"])),
            row["written_at"],
        )
        for row in rows
        if row["collection"] in there
    )


async def find_uid(store: ModuleStore, books: Sequence[AccountBook], uid: str) -> KeptCard | None:
    """The first card with this UID."""
    rows = await store.rows("objects.of_uid", uid)
    found = await read_cards(store, books, [(row["collection"], row["name"]) for row in rows[:1]])
    return next(iter(found), None)


async def keep_written(
    store: ModuleStore, book: AccountBook, written: ServerObject, replaced: str, region: str
) -> None:
    """Put what the server has now into the mirror."""
    await write_object(store, book.path, written, replaced, CardKeeper(region))


def freshness_of(books: Iterable[AccountBook], zone: str) -> JsonObject:
    """From when what is told of an account is, and whether that was everything."""
    there = tuple(books)
    synced = [book.synced_at for book in there if book.synced_at is not None]
    if not there or len(synced) < len(there):
        return {"as_of": None, "complete": False, "note": "not all of it has been fetched yet"}
    told: JsonObject = {"as_of": local_time(min(synced), zone), "complete": all(book.complete for book in there)}
    if is_stale(min(synced), there[0].now, SYNC_EVERY_S):
        told["note"] = "stale: the last syncs have failed, so the server may have changes that are not here"
    return told


def local_time(moment: datetime, zone: str) -> str:
    """A time with its weekday and zone; in UTC, if the zone is unknown."""
    try:
        return f"{moment.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M} {zone}"
    except (OSError, ValueError, LookupError):
        return f"{moment.astimezone(UTC):%a %Y-%m-%d %H:%M} UTC"

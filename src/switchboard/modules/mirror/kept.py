"""The mirror of an account's collections: what is in it, what a listing changes in it, and what is doubted.

The sync (`sync.py`) keeps it equal to the server; tools write what they have written there. In: a `ModuleStore`, and
what the server said; out: `MirroredCollection`, `MirrorPlan`. When things are due is asked in SQL, by the database's
clock. Next: `keeper.py`, for what a module makes of an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, convert

from switchboard.modules.mirror.keeper import MirrorKeeper
from switchboard.ports.collection_server import ServerCollection, ServerContents, ServerListing, ServerObject
from switchboard.ports.module_store import ModuleStore

SHARED_SQL: Final = "switchboard.modules.mirror.sql"
"""The package that a module with a mirror names in its manifest before its own."""
FULL_EVERY: Final = timedelta(days=6)
RIPE_AFTER: Final = timedelta(minutes=5)
"""After which a second full listing may confirm what the first one lacked."""
_MANY: Final = 20
_FOLD: Final = re.compile(rb"\r?\n[ \t]")
_UID: Final = re.compile(rb"^UID(?:;[^:\r\n]*)?:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_LONGEST_UID: Final = 500
"""Characters; an index has a limit."""


class MirroredCollection(Struct, frozen=True):
    """A calendar or address book in the mirror. `collection` is its `key` on the server.

    `shared`: it is somebody else's on the server. `doubted` are names that the last full listing lacked. `started` is
    the time at which this was read. `missing`: the server did not name it the last time. `ripe`: the doubt is old
    enough to be confirmed. `complete`: the mirror was all that the server had at `synced_at`.
    """

    collection: str
    url: str
    name: str
    writable: bool | None
    shared: bool
    colour: str
    zone: str
    cursor: str
    complete: bool
    synced_at: datetime | None
    doubted: tuple[str, ...]
    started: datetime
    full_due: bool
    missing: bool
    ripe: bool


class KnownObjects(Struct, frozen=True):
    """The ETags of objects in the mirror, by name; those of `again` are read again, whatever a listing says."""

    etags: Mapping[str, str]
    again: frozenset[str]


class MirrorPlan(Struct, frozen=True):
    """What makes the mirror equal to a listing: what is read, what goes, and what must be missing twice to go."""

    wanted: tuple[str, ...]
    gone: frozenset[str]
    doubted: frozenset[str] = frozenset()


def plan_changes(one: MirroredCollection, known: Mapping[str, str], listing: ServerListing) -> MirrorPlan:
    """What a listing changes, given the ETags of the objects that are known; empty ones are always read again."""
    wanted = tuple(name for name, etag in listing.etags.items() if not etag or known.get(name) != etag)
    missing = frozenset(known) - frozenset(listing.etags) if listing.whole else listing.gone & frozenset(known)
    left = len(known) - len(missing)
    if not missing or (left and (len(known) < _MANY or 2 * left >= len(known))):
        return MirrorPlan(wanted, missing)
    if listing.whole and one.ripe:
        return MirrorPlan(wanted, missing & frozenset(one.doubted), missing - frozenset(one.doubted))
    return MirrorPlan(wanted, frozenset(), missing)


def is_stale(as_of: datetime | None, now: datetime, every_s: float) -> bool:
    """Whether the mirror was last equal to the server more than three syncs ago, or never."""
    return as_of is None or now - as_of > timedelta(seconds=3 * every_s)


async def collections_in(store: ModuleStore) -> tuple[MirroredCollection, ...]:
    """All collections of the account."""
    rows = await store.rows("collections.all", FULL_EVERY, RIPE_AFTER)
    return tuple(convert(dict(row), MirroredCollection) for row in rows)


async def keep_collections(store: ModuleStore, found: Iterable[ServerCollection], keeper: MirrorKeeper) -> None:
    """These are the collections of the account. One that is missing goes if it was missing minutes ago already."""
    async with store.transaction() as one:
        there = {each.key: each for each in found}
        paths = [*there]
        for path, each in there.items():
            await one.run("collections.find", path, each.url, each.name, each.writable, each.colour, each.zone)
        await one.run("collections.share", [path for path, each in there.items() if each.shared])
        gone = await one.rows("collections.leaving", paths, RIPE_AFTER)
        await one.run("collections.drop", paths, RIPE_AFTER)
        await one.run("collections.miss", paths)
        for row in gone:
            await keeper.on_gone(one, row["collection"], row["name"])


async def known_objects(store: ModuleStore, collection: str) -> KnownObjects:
    """The objects of a collection."""
    rows = await store.rows("objects.etags", collection)
    again = frozenset(row["name"] for row in rows if row["check_again"])
    return KnownObjects({row["name"]: row["etag"] for row in rows}, again)


async def keep_objects(
    store: ModuleStore,
    into: MirroredCollection,
    contents: ServerContents,
    etags: Mapping[str, str],
    keeper: MirrorKeeper,
) -> None:
    """Put objects into the mirror, as they were read after `into.started`; unreadable ones with why they are.

    `etags` are those of the listing, for answers without one: what was read is at least as new. What could not be read
    is read again by the next sync, unless it is too large.
    """
    async with store.transaction() as one:
        for found in contents.objects:
            columns = (found.etag or etags.get(found.name, ""), uid_of(found.data), "", found.data)
            kept = await one.rows("objects.keep", into.collection, found.name, *columns, into.started, False)
            if kept[0]["taken"]:
                await _tell_kept(one, into.collection, found, keeper)
        for name, error in contents.unreadable.items():
            columns = (etags.get(name, ""), "", str(error), b"")
            again = error.state != "too_large"
            kept = await one.rows("objects.keep", into.collection, name, *columns, into.started, again)
            if kept[0]["taken"]:
                await keeper.on_gone(one, into.collection, name)


async def write_object(
    store: ModuleStore, collection: str, written: ServerObject, replaced: str, keeper: MirrorKeeper
) -> None:
    """Put what a tool has written into the mirror; `replaced` is the ETag that it had before, or empty."""
    columns = (written.etag, uid_of(written.data), written.data, replaced)
    async with store.transaction() as one:
        await one.run("objects.write", collection, written.name, *columns)
        await _tell_kept(one, collection, written, keeper)


async def forget_object(store: ModuleStore, collection: str, name: str, keeper: MirrorKeeper) -> None:
    """Take what a tool has deleted out of the mirror. An older listing may bring it back until the next one."""
    async with store.transaction() as one:
        await one.run("objects.forget", collection, name)
        await keeper.on_gone(one, collection, name)


async def _tell_kept(store: ModuleStore, collection: str, found: ServerObject, keeper: MirrorKeeper) -> None:
    if why := await keeper.on_kept(store, collection, found.name, found.data):
        await store.run("objects.spoil", collection, found.name, why.replace("\0", ""))


async def finish_sync(
    store: ModuleStore, one: MirroredCollection, plan: MirrorPlan, listing: ServerListing, keeper: MirrorKeeper
) -> None:
    """Carry out the rest of a plan, all of it or nothing: what goes, and from where the next sync asks."""
    gone = list(plan.gone)
    async with store.transaction() as within:
        await within.run("objects.spare", one.collection, gone, one.started)
        for row in await within.rows("objects.drop", one.collection, gone, one.started):
            await keeper.on_gone(within, one.collection, row["name"])
        if plan.doubted:
            await within.run("collections.doubt", one.collection, list(plan.doubted))
        else:
            await within.run("collections.finish", one.collection, listing.cursor, listing.complete, listing.whole)


def uid_of(data: bytes) -> str:
    """The UID of a card or an event, as it is written; empty without one."""
    match = _UID.search(_FOLD.sub(b"", data))
    return match[1].decode("utf-8", "replace").strip().replace("\0", "")[:_LONGEST_UID] if match else ""

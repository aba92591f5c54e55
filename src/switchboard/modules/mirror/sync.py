"""Bring the mirror of an account to what its server has: the chore `sync` of modules with calendars or address books.

In: the store of the account and its server; out: a `SyncReport`, and a mirror that is equal to the server,
or says that it is not. It may be killed at any point: what was read is kept, and the next run begins where the last
one came to its end. Nothing that a server fails to say deletes anything. Next: `kept.py`.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from switchboard.domain.errors import Unavailable
from switchboard.modules.mirror.keeper import MirrorKeeper
from switchboard.modules.mirror.kept import (
    RIPE_AFTER,
    MirroredCollection,
    MirrorPlan,
    collections_in,
    finish_sync,
    keep_collections,
    keep_objects,
    known_objects,
    plan_changes,
)
from switchboard.ports.collection_server import CollectionServer, ServerError, ServerListing
from switchboard.ports.module_store import ModuleStore

MOST_OBJECTS: Final = 20_000
"""Of a collection."""
_BATCH: Final = 50


class SyncReport(Struct, frozen=True):
    """What a sync has done: how many objects it read and removed, and how many are missing that may come back."""

    read: int = 0
    removed: int = 0
    doubted: int = 0

    def __add__(self, other: SyncReport) -> SyncReport:
        return SyncReport(self.read + other.read, self.removed + other.removed, self.doubted + other.doubted)


async def sync_account(store: ModuleStore, server: CollectionServer, keeper: MirrorKeeper) -> SyncReport:
    """As `sync_collections`; raises Unavailable while objects are missing that may come back, so that it is told."""
    done = await sync_collections(store, server, keeper)
    if done.doubted:
        raise Unavailable(
            f"{server.host} has left out {done.doubted:,} entries at once; they are kept here, and go if it "
            f"leaves them out again after {RIPE_AFTER.seconds // 60} minutes"
        )
    return done


async def sync_collections(store: ModuleStore, server: CollectionServer, keeper: MirrorKeeper) -> SyncReport:
    """One run for all collections of the account. Raises ServerError; what was done before the error counts.

    Which collections there are is asked when a full sync is due, and when one of them is missing.
    """
    mirrored = await collections_in(store)
    if not mirrored or any(one.full_due or one.missing for one in mirrored):
        await keep_collections(store, await server.find_collections(), keeper)
        mirrored = await collections_in(store)
    done = SyncReport()
    for one in mirrored:
        if not one.missing:
            done += await _sync_named(store, server, one, keeper)
    return done


async def _sync_named(
    store: ModuleStore, server: CollectionServer, one: MirroredCollection, keeper: MirrorKeeper
) -> SyncReport:
    try:
        return await _sync_collection(store, server, one, keeper)
    except ServerError as error:
        if error.state != "missing":
            raise
        await keep_collections(store, await server.find_collections(), keeper)
        return SyncReport()


async def _sync_collection(
    store: ModuleStore, server: CollectionServer, one: MirroredCollection, keeper: MirrorKeeper
) -> SyncReport:
    known = await known_objects(store, one.collection)
    listing = await _listing_of(server, one)
    if len(known.etags.keys() | listing.etags.keys()) > MOST_OBJECTS:
        raise ServerError("too_large", f"{one.name} has more than {MOST_OBJECTS:,} entries, as many as are kept")
    plan = plan_changes(one, known.etags, listing)
    wanted = list(dict.fromkeys([*plan.wanted, *(known.again - listing.gone)]))
    vanished: set[str] = set()
    for start in range(0, len(wanted), _BATCH):
        contents = await server.read_objects(one.url, wanted[start : start + _BATCH])
        vanished |= contents.gone
        await keep_objects(store, one, contents, listing.etags, keeper)
    plan = MirrorPlan(plan.wanted, plan.gone | (known.again & vanished), plan.doubted)
    await finish_sync(store, one, plan, listing, keeper)
    return SyncReport(len(wanted) - len(vanished), len(plan.gone), len(plan.doubted))


async def _listing_of(server: CollectionServer, one: MirroredCollection) -> ServerListing:
    if one.full_due or not one.cursor:
        return await server.list_everything(one.url)
    return await server.list_changes(one.url, one.cursor)

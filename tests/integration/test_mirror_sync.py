"""The mirror of address books and calendars is equal to the server in the end, whatever fails, and loses nothing."""

from __future__ import annotations

import os
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec import Struct, structs

from switchboard.domain.errors import Unavailable
from switchboard.modules.contacts.mirror import CONTACTS_SQL, CardKeeper
from switchboard.modules.mirror.keeper import MirrorKeeper
from switchboard.modules.mirror.kept import (
    SHARED_SQL,
    KnownObjects,
    MirroredCollection,
    collections_in,
    forget_object,
    keep_objects,
    known_objects,
    uid_of,
    write_object,
)
from switchboard.modules.mirror.sync import SyncReport, sync_account, sync_collections
from switchboard.ports.collection_server import ServerContents, ServerObject
from switchboard.ports.module import ModuleManifest
from switchboard.ports.module_store import ModuleStore
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.stores import open_stores
from switchboard.transport.dav.client import LISTING_S, DavClient, open_dav
from switchboard.transport.dav.kinds import DavError, DavKind
from switchboard.transport.dav.server import DavCollections
from switchboard.transport.dav.writing import create_object, delete_object, replace_object
from tests.dav_servers import (
    CARDS,
    EVENTS,
    Answered,
    Asked,
    DavProxy,
    DavServer,
    DavThings,
    dav_proxy,
    radicale,
    xandikos,
)
from tests.modules import a_module
from tests.width import WIDE, pairs, wide

PAGE = Answered(200, {"content-type": "text/html"}, b"<html>Log in")
EMPTY = Answered(207, {}, b'<d:multistatus xmlns:d="DAV:"/>')
SEEN = {
    "migrations/0001_seen.sql": """
        create table seen (account text not null, collection text not null, name text not null, bytes integer not null,
                           primary key (account, collection, name));
    """,
    "queries/seen.sql": """
-- name: keep
insert into seen (account, collection, name, bytes) values ($1, $2, $3, $4)
on conflict (account, collection, name) do update set bytes = excluded.bytes;

-- name: drop
delete from seen where account = $1 and collection = $2 and name = $3;

-- name: drop_all
delete from seen where account = $1;

-- name: all
select name, bytes from seen where account = $1;
""",
}


class SeenKeeper:
    """Keeps how many bytes each object has; one that has the word broken cannot be read."""

    async def on_kept(self, store: ModuleStore, collection: str, name: str, data: bytes) -> str:
        await store.run("seen.keep", collection, name, len(data))
        return "it is broken" if b"broken" in data else ""

    async def on_gone(self, store: ModuleStore, collection: str, name: str) -> None:
        await store.run("seen.drop", collection, name)

    async def on_erased(self, store: ModuleStore) -> None:
        await store.run("seen.drop_all")


class Mirrored(Struct, frozen=True):
    """A module with a mirror: of what, and what it makes of objects."""

    module: str
    things: DavThings
    keeper: MirrorKeeper

    @property
    def dav(self) -> DavKind:
        return self.things.dav

    @property
    def suffix(self) -> str:
        return self.things.suffix

    def make(self, title: str, uid: str = "") -> bytes:
        return self.things.make(title, uid=uid)

    def name(self, number: object) -> str:
        return self.things.name(number)


CONTACTS = Mirrored("contacts", CARDS, CardKeeper("DE"))
CALENDAR = Mirrored("calendar", EVENTS, SeenKeeper())


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


class DyingStore:
    """A store whose process is killed before its n-th statement, or n-th of the name `point`; `commit` is one, too."""

    def __init__(self, store: ModuleStore, lives: list[int], point: str = "") -> None:
        self._store = store
        self._lives = lives
        self._point = point

    async def rows(self, name: str, *args: object) -> Sequence[Mapping[str, Any]]:
        self._live(name)
        return await self._store.rows(name, *args)

    async def run(self, name: str, *args: object) -> int:
        self._live(name)
        return await self._store.run(name, *args)

    def transaction(self) -> AbstractAsyncContextManager[ModuleStore]:
        return self._within()

    @asynccontextmanager
    async def _within(self) -> AsyncIterator[ModuleStore]:
        async with self._store.transaction() as one:
            yield DyingStore(one, self._lives, self._point)
            self._live("commit")

    def _live(self, name: str) -> None:
        self._lives[0] -= name.endswith(self._point)
        if self._lives[0] < 0:
            raise Killed


Source = tuple[Callable[[], AbstractContextManager[DavServer]], Mirrored]
"""A server that can be started, and what is mirrored from it."""
SOURCES: list[Source] = pairs([radicale, xandikos], [CONTACTS, CALENDAR])


@pytest.fixture(scope="module", params=SOURCES, ids=[f"{kind.module}-{start.__name__}" for start, kind in SOURCES])
def source(request: pytest.FixtureRequest) -> Source:
    found: Source = request.param
    return found


@pytest.fixture(scope="module")
def server(source: Source) -> Iterator[DavServer]:
    with source[0]() as started:
        yield started


@pytest.fixture
def kind(source: Source) -> Mirrored:
    return source[1]


@pytest.fixture
def proxy(server: DavServer, kind: Mirrored) -> Iterator[DavProxy]:
    with dav_proxy(kind.things.on(server)) as started:
        yield started


@pytest.fixture
async def client(proxy: DavProxy, kind: Mirrored) -> AsyncIterator[DavClient]:
    async with open_dav(proxy.login(), kind.dav) as made:
        yield made


@pytest.fixture
async def store(database: Database, kind: Mirrored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleStore:
    monkeypatch.syspath_prepend(tmp_path)
    manifest = ModuleManifest("contacts", (), "nowhere:open", sql=CONTACTS_SQL)
    if kind is CALENDAR:
        manifest = structs.replace(
            a_module(tmp_path, kind.module, SEEN), sql=(SHARED_SQL, f"{kind.module}_package.sql")
        )
    assert await migrate_modules(database, [manifest]) == {}
    return (await open_stores(database, manifest))("ann")


async def mirrored(store: ModuleStore) -> dict[str, bytes]:
    return {row["name"]: row["data"].replace(b"\r\n", b"\n").strip() for row in await store.rows("objects.all")}


def on_server(proxy: DavProxy) -> dict[str, bytes]:
    return {name: data.replace(b"\r\n", b"\n").strip() for name, data in proxy.server.objects().items()}


async def made_of(database: Database, kind: Mirrored) -> set[str]:
    """The names of objects of which the module has made something."""
    table = "card" if kind is CONTACTS else "seen"
    rows = await database.rows(f"select name from switchboard_{kind.module}.{table}")  # noqa: S608
    return {row["name"] for row in rows}


async def let_pass(database: Database, kind: Mirrored, minutes: int) -> None:
    """As if all that has happened had happened earlier."""
    passed = f"- interval '{minutes} minutes'"
    await database.run(
        f"update switchboard_{kind.module}.collection "  # noqa: S608
        f"set doubted_at = doubted_at {passed}, missing_at = missing_at {passed}"
    )
    await database.run(f"update switchboard_{kind.module}.object set written_at = written_at {passed}")  # noqa: S608


async def set_all(database: Database, kind: Mirrored, what: str) -> None:
    await database.run(f"update switchboard_{kind.module}.collection set {what}")  # noqa: S608


def fill(proxy: DavProxy, kind: Mirrored, number: int) -> None:
    for one in range(number):
        proxy.server.put(kind.name(one), kind.make(f"Entry {one}", uid=f"{one}"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [7, 103] if WIDE else [7])
async def test_the_mirror_is_equal_in_the_end(
    database: Database, store: ModuleStore, kind: Mirrored, proxy: DavProxy, seed: int
) -> None:
    chance = random.Random(seed)
    killed = failed = 0
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            change_something(proxy, kind, chance)
        lives = [chance.randrange(1, 12) if chance.random() < 0.5 else 10_000]
        proxy.before, proxy.after = trouble_of(chance)
        async with open_dav(proxy.login(), kind.dav) as client:
            try:
                await sync_collections(DyingStore(store, lives), DavCollections(client), kind.keeper)
            except Killed:
                killed += 1
            except DavError:
                failed += 1
        if chance.random() < 0.3:
            await set_all(database, kind, "cursor = 'urn:expired' where cursor <> ''")
        await let_pass(database, kind, chance.randrange(4))
    assert min(killed, failed) > 3
    proxy.behave()
    async with open_dav(proxy.login(), kind.dav) as client:
        for _ in range(3):
            await sync_collections(store, DavCollections(client), kind.keeper)
            await let_pass(database, kind, 6)
        assert await mirrored(store) == on_server(proxy)
        assert await made_of(database, kind) == set(on_server(proxy))
        assert [one.complete for one in await collections_in(store)] == [True]
        assert await sync_collections(store, DavCollections(client), kind.keeper) == SyncReport(), (
            "there is nothing left to do"
        )


POINTS = (
    "collections.all",
    "collections.find",
    "collections.miss",
    "objects.etags",
    "objects.keep",
    "objects.spare",
    "objects.drop",
    "collections.finish",
    "commit",
)


@pytest.mark.timeout(1200)
async def test_a_large_mirror_is_equal_in_the_end_wherever_it_is_killed(
    database: Database, store: ModuleStore, kind: Mirrored, proxy: DavProxy
) -> None:
    """With `MIRRORED_OBJECTS` in the environment that many, such as 2,000; by default, a few."""
    number = int(os.environ.get("MIRRORED_OBJECTS", "80"))
    chance = random.Random(number)
    proxy.server.seed({kind.name(one): kind.make(f"Entry {one}", uid=f"{one}") for one in range(number)})
    for round_, point in enumerate(("", *POINTS)):
        if round_:
            await change_on_both_sides(store, kind, proxy, chance, min(number // 40, 8))
        before = len(await mirrored(store))
        if round_ % 3 == 2:
            await set_all(database, kind, "cursor = 'urn:expired' where cursor <> ''")
        if round_ % 4 == 3:
            await set_all(database, kind, "full_at = null")
        dying = DyingStore(store, [chance.randrange(0, 2 if point != "objects.keep" else number // 40)], point)
        async with open_dav(proxy.login(), kind.dav) as client:
            if point:
                with suppress(Killed):
                    await sync_collections(dying, DavCollections(client), kind.keeper)
                assert len(await mirrored(store)) > before * 0.9, "nothing is deleted by the dozen"
            await sync_collections(store, DavCollections(client), kind.keeper)
            await let_pass(database, kind, 11)  # until then, what we have written is not taken for deleted
            await sync_collections(store, DavCollections(client), kind.keeper)
        assert await made_of(database, kind) == (await mirrored(store)).keys() == set(proxy.server.names()), point
    assert await mirrored(store) == on_server(proxy)


@pytest.mark.timeout(1200)
async def test_many_objects_that_no_client_has_listed_yet_are_mirrored(
    store: ModuleStore, kind: Mirrored, proxy: DavProxy
) -> None:
    """Radicale reads them all before the first byte of its answer."""
    number = wide(2_000, 60)
    proxy.server.write_files({kind.name(one): kind.make(f"Entry {one}", uid=f"{one}") for one in range(number)})
    async with open_dav(proxy.login(), kind.dav, whole=LISTING_S) as client:
        assert await sync_collections(store, DavCollections(client), kind.keeper) == SyncReport(read=number)
    assert (await mirrored(store)).keys() == {kind.name(one) for one in range(number)}
    assert [one.complete for one in await collections_in(store)] == [True]


async def change_on_both_sides(
    store: ModuleStore, kind: Mirrored, proxy: DavProxy, chance: random.Random, most: int
) -> None:
    """Another client writes and deletes, and so does a tool, which puts what it did into the mirror."""
    for _ in range(most):
        name = kind.name(chance.randrange(20 * most))
        with suppress(httpx2.HTTPStatusError):
            if chance.random() < 0.3:
                proxy.server.delete(name)
            else:
                proxy.server.put(name, kind.make(f"Theirs {chance.random()}", uid=name.partition(".")[0]))
    [into] = await collections_in(store)
    async with open_dav(proxy.login(), kind.dav) as client:
        for number in range(most):
            uid = f"ours-{chance.randrange(10**9)}-{number}"
            ours = await create_object(client, into.url, ServerObject(kind.name(uid), "", kind.make("Ours", uid=uid)))
            await write_object(store, into.collection, ours, "", kind.keeper)
        for row in chance.sample(await store.rows("objects.all"), most):
            await change_as_a_tool(
                store, client, kind, into, ServerObject(row["name"], row["etag"], row["data"]), chance
            )


async def change_as_a_tool(
    store: ModuleStore,
    client: DavClient,
    kind: Mirrored,
    into: MirroredCollection,
    old: ServerObject,
    chance: random.Random,
) -> None:
    """It knows what is in the mirror; if that is not what the server has, it loses, and nothing happens."""
    with suppress(DavError):
        if chance.random() < 0.3:
            await delete_object(client, into.url, old)
            await forget_object(store, into.collection, old.name, kind.keeper)
        else:
            data = kind.make(f"Changed {chance.random()}", uid=uid_of(old.data))
            new = await replace_object(client, into.url, old, data)
            await write_object(store, into.collection, new, old.etag, kind.keeper)


def change_something(proxy: DavProxy, kind: Mirrored, chance: random.Random) -> None:
    """Another client writes or deletes an object."""
    name = kind.name(f"{chance.randrange(40)} ü@")
    if chance.random() < 0.25:
        with suppress(Exception):
            proxy.server.delete(name)
    else:
        broken = " broken" if chance.random() < 0.05 else ""
        proxy.server.put(name, kind.make(f"{name} {chance.random()}{broken}", uid=name))


def trouble_of(
    chance: random.Random,
) -> tuple[Callable[[Asked], Answered | None], Callable[[Asked, Answered], Answered | None]]:
    """What the proxy does in one run: nothing, half of the times."""
    kind = chance.choice([None, None, None, Answered(401), Answered(503), PAGE, EMPTY, "cut"])

    def after(_: Asked, answered: Answered) -> Answered | None:
        if kind is None or chance.random() < 0.7:
            return answered
        return None if kind == "cut" else kind if isinstance(kind, Answered) else answered

    return (lambda _: None), after


@pytest.mark.parametrize("left", [0, 1, 9])
async def test_what_many_objects_lack_is_believed_only_twice(
    database: Database, store: ModuleStore, kind: Mirrored, proxy: DavProxy, client: DavClient, left: int
) -> None:
    fill(proxy, kind, 24)
    await sync_collections(store, DavCollections(client), kind.keeper)
    proxy.after = lambda asked, answered: shorten(asked, answered, kind.suffix, left)
    await set_all(database, kind, "cursor = 'urn:expired'")
    proxy.before = lambda asked: Answered(410) if b"urn:expired" in asked.body else None
    with pytest.raises(Unavailable, match=f"left out {24 - left} entries at once"):
        await sync_account(store, DavCollections(client), kind.keeper)
    for _ in range(3):
        assert (await sync_collections(store, DavCollections(client), kind.keeper)).doubted == 24 - left
        assert len(await mirrored(store)) == 24
        await let_pass(database, kind, 1)
    assert not (await collections_in(store))[0].complete
    await let_pass(database, kind, 6)
    if left:
        await sync_collections(store, DavCollections(client), kind.keeper)
        assert len(await mirrored(store)) == left, "the server says so for minutes"
    proxy.behave()
    await set_all(database, kind, "full_at = null")
    await sync_collections(store, DavCollections(client), kind.keeper)
    assert await mirrored(store) == on_server(proxy)


def shorten(asked: Asked, answered: Answered, suffix: str, left: int) -> Answered:
    """A listing that has only the collection and some of the objects."""
    if asked.method != "PROPFIND" or asked.headers.get("depth") != "1" or b"getetag" not in asked.body:
        return answered
    text = answered.body.decode()
    opening = text.partition("response>")[0].rpartition("<")[2]
    head, *parts = text.split(f"<{opening}response>")
    tail = parts[-1].rpartition(f"</{opening}response>")[2]
    parts = [part.rpartition(f"</{opening}response>")[0] for part in parts]
    own = [part for part in parts if suffix not in part]
    kept = [*own, *[part for part in parts if suffix in part][:left]]
    whole = "".join(f"<{opening}response>{part}</{opening}response>" for part in kept)
    return Answered(answered.status, answered.headers, f"{head}{whole}{tail}".encode())


async def test_a_few_deleted_objects_are_gone_at_once(
    store: ModuleStore, kind: Mirrored, proxy: DavProxy, client: DavClient
) -> None:
    fill(proxy, kind, 5)
    await sync_collections(store, DavCollections(client), kind.keeper)
    for number in (1, 2, 3):
        proxy.server.delete(kind.name(number))
    assert await sync_collections(store, DavCollections(client), kind.keeper) == SyncReport(removed=3)
    assert set(await mirrored(store)) == {kind.name(0), kind.name(4)}


async def test_our_own_write_is_not_overwritten_by_an_older_sync(
    database: Database, store: ModuleStore, kind: Mirrored, proxy: DavProxy, client: DavClient
) -> None:
    fill(proxy, kind, 2)
    await sync_collections(store, DavCollections(client), kind.keeper)
    [before] = await collections_in(store)
    old = (await known_objects(store, before.collection)).etags[kind.name(0)]
    proxy.server.put(kind.name(0), kind.make("Ours", uid="0"))
    await write_object(
        store, before.collection, ServerObject(kind.name(0), '"new"', kind.make("Ours", uid="0")), old, kind.keeper
    )
    stale = ServerContents((ServerObject(kind.name(0), old, kind.make("Stale", uid="0")),))
    await keep_objects(store, before, stale, {}, kind.keeper)
    assert b":Ours" in (await mirrored(store))[kind.name(0)]
    [later] = await collections_in(store)
    await keep_objects(store, later, stale, {}, kind.keeper)
    assert b":Ours" in (await mirrored(store))[kind.name(0)], "a server may tell what was before for a while"
    assert await known_objects(store, before.collection) == KnownObjects(
        {kind.name(0): '"new"', kind.name(1): (await known_objects(store, before.collection)).etags[kind.name(1)]},
        frozenset({kind.name(0)}),
    )
    proxy.server.put(kind.name(0), kind.make("Theirs", uid="0"))
    await sync_collections(store, DavCollections(client), kind.keeper)
    assert await mirrored(store) == on_server(proxy), "what comes after our write counts"
    proxy.server.delete(kind.name(0))
    await sync_collections(store, DavCollections(client), kind.keeper)
    await let_pass(database, kind, 11)
    await sync_collections(store, DavCollections(client), kind.keeper)
    assert await mirrored(store) == on_server(proxy)


async def test_a_collection_that_is_not_named_goes_later(
    database: Database, store: ModuleStore, kind: Mirrored, proxy: DavProxy, client: DavClient
) -> None:
    fill(proxy, kind, 3)
    await sync_collections(store, DavCollections(client), kind.keeper)
    await set_all(database, kind, "full_at = null")
    proxy.after = lambda asked, answered: (
        Answered(
            answered.status,
            answered.headers,
            re.sub(rb"(:|<)(addressbook|calendar)( ?/>)", rb"\1other\3", answered.body),
        )
        if b"resourcetype" in asked.body
        else answered
    )
    for _ in range(2):
        await sync_collections(store, DavCollections(client), kind.keeper)
        assert len(await mirrored(store)) == 3
    await let_pass(database, kind, 6)
    await sync_collections(store, DavCollections(client), kind.keeper)
    assert await collections_in(store) == ()
    proxy.behave()
    await sync_collections(store, DavCollections(client), kind.keeper)
    assert len(await mirrored(store)) == 3

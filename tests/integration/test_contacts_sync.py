"""The mirror of address books is equal to the server in the end, whatever fails in between, and loses nothing."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from switchboard.modules.contacts.mirror import KnownCards, books_in, keep_cards, known_cards, write_card
from switchboard.modules.contacts.sync import SyncReport, sync_account
from switchboard.ports.module import ModuleManifest
from switchboard.ports.module_store import ModuleStore
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.stores import open_stores
from switchboard.transport.dav.client import DavClient, open_dav
from switchboard.transport.dav.kinds import CARDDAV, DavError
from switchboard.transport.dav.reading import DavContents, DavObject
from tests.dav_servers import Answered, Asked, DavProxy, card, dav_proxy, radicale, xandikos

CONTACTS = ModuleManifest("contacts", (), "nowhere:open", sql="switchboard.modules.contacts.sql")
PAGE = Answered(200, {"content-type": "text/html"}, b"<html>Log in")
EMPTY = Answered(207, {}, b'<d:multistatus xmlns:d="DAV:"/>')


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


class DyingStore:
    """A store whose process is killed before its n-th statement."""

    def __init__(self, store: ModuleStore, lives: list[int]) -> None:
        self._store = store
        self._lives = lives

    async def rows(self, name: str, *args: object) -> Sequence[Mapping[str, Any]]:
        self._live()
        return await self._store.rows(name, *args)

    async def run(self, name: str, *args: object) -> int:
        self._live()
        return await self._store.run(name, *args)

    def transaction(self) -> AbstractAsyncContextManager[ModuleStore]:
        return self._within()

    @asynccontextmanager
    async def _within(self) -> AsyncIterator[ModuleStore]:
        async with self._store.transaction() as one:
            yield DyingStore(one, self._lives)
            self._live()

    def _live(self) -> None:
        self._lives[0] -= 1
        if self._lives[0] < 0:
            raise Killed


@pytest.fixture(scope="module", params=[radicale, xandikos], ids=["radicale", "xandikos"])
def started(request: pytest.FixtureRequest) -> Iterator[DavProxy]:
    with ExitStack() as stack:
        server = stack.enter_context(request.param())
        yield stack.enter_context(dav_proxy(server))


@pytest.fixture
def proxy(started: DavProxy) -> DavProxy:
    started.behave()
    started.server.empty()
    return started


@pytest.fixture
async def client(proxy: DavProxy) -> AsyncIterator[DavClient]:
    async with open_dav(proxy.login(), CARDDAV) as made:
        yield made


@pytest.fixture
async def store(database: Database) -> ModuleStore:
    assert await migrate_modules(database, [CONTACTS]) == {}
    return (await open_stores(database, CONTACTS))("ann")


async def mirrored(store: ModuleStore) -> dict[str, bytes]:
    return {row["name"]: row["data"].replace(b"\r\n", b"\n").strip() for row in await store.rows("cards.all")}


def on_server(proxy: DavProxy) -> dict[str, bytes]:
    return {name: data.replace(b"\r\n", b"\n").strip() for name, data in proxy.server.cards().items()}


async def let_pass(database: Database, minutes: int) -> None:
    """As if all that has happened had happened earlier."""
    passed = f"- interval '{minutes} minutes'"
    await database.run(
        f"update switchboard_contacts.book set doubted_at = doubted_at {passed}, missing_at = missing_at {passed}"  # noqa: S608
    )
    await database.run(f"update switchboard_contacts.card set written_at = written_at {passed}")  # noqa: S608


def fill(proxy: DavProxy, number: int) -> None:
    for one in range(number):
        proxy.server.put(f"{one}.vcf", card(f"Person {one}", uid=f"{one}"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [7, 103])
async def test_the_mirror_is_equal_in_the_end(
    database: Database, store: ModuleStore, proxy: DavProxy, seed: int
) -> None:
    chance = random.Random(seed)
    killed = failed = 0
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            change_something(proxy, chance)
        lives = [chance.randrange(1, 12) if chance.random() < 0.5 else 10_000]
        proxy.before, proxy.after = trouble_of(chance)
        async with open_dav(proxy.login(), CARDDAV) as client:
            try:
                await sync_account(DyingStore(store, lives), client)
            except Killed:
                killed += 1
            except DavError:
                failed += 1
        if chance.random() < 0.3:
            await database.run("update switchboard_contacts.book set cursor = 'urn:expired' where cursor <> ''")
        await let_pass(database, chance.randrange(4))
    assert min(killed, failed) > 3
    proxy.behave()
    async with open_dav(proxy.login(), CARDDAV) as client:
        for _ in range(3):
            await sync_account(store, client)
            await let_pass(database, 6)
        assert await mirrored(store) == on_server(proxy)
        assert [book.complete for book in await books_in(store)] == [True]
        assert await sync_account(store, client) == SyncReport(), "there is nothing left to do"


def change_something(proxy: DavProxy, chance: random.Random) -> None:
    """Another client writes or deletes a card."""
    name = f"{chance.randrange(40)} ü@.vcf"
    if chance.random() < 0.25:
        with suppress(Exception):
            proxy.server.delete(name)
    else:
        proxy.server.put(name, card(f"{name} {chance.random()}", uid=name))


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
async def test_what_many_cards_lack_is_believed_only_twice(
    database: Database, store: ModuleStore, proxy: DavProxy, client: DavClient, left: int
) -> None:
    fill(proxy, 24)
    await sync_account(store, client)
    proxy.after = lambda asked, answered: shorten(asked, answered, left)
    await database.run("update switchboard_contacts.book set cursor = 'urn:expired'")
    proxy.before = lambda asked: Answered(410) if b"urn:expired" in asked.body else None
    for _ in range(3):
        assert (await sync_account(store, client)).doubted == 24 - left
        assert len(await mirrored(store)) == 24
        await let_pass(database, 1)
    assert not (await books_in(store))[0].complete
    await let_pass(database, 6)
    if left:
        await sync_account(store, client)
        assert len(await mirrored(store)) == left, "the server says so for minutes"
    proxy.behave()
    await database.run("update switchboard_contacts.book set full_at = null")
    await sync_account(store, client)
    assert await mirrored(store) == on_server(proxy)


def shorten(asked: Asked, answered: Answered, left: int) -> Answered:
    """A listing that has only the collection and some of the objects."""
    if asked.method != "PROPFIND" or asked.headers.get("depth") != "1" or b"getetag" not in asked.body:
        return answered
    text = answered.body.decode()
    opening = text.partition("response>")[0].rpartition("<")[2]
    head, *parts = text.split(f"<{opening}response>")
    tail = parts[-1].rpartition(f"</{opening}response>")[2]
    parts = [part.rpartition(f"</{opening}response>")[0] for part in parts]
    books = [part for part in parts if ".vcf" not in part]
    kept = [*books, *[part for part in parts if ".vcf" in part][:left]]
    whole = "".join(f"<{opening}response>{part}</{opening}response>" for part in kept)
    return Answered(answered.status, answered.headers, f"{head}{whole}{tail}".encode())


async def test_a_few_deleted_cards_are_gone_at_once(store: ModuleStore, proxy: DavProxy, client: DavClient) -> None:
    fill(proxy, 5)
    await sync_account(store, client)
    for number in (1, 2, 3):
        proxy.server.delete(f"{number}.vcf")
    assert await sync_account(store, client) == SyncReport(removed=3)
    assert set(await mirrored(store)) == {"0.vcf", "4.vcf"}


async def test_our_own_write_is_not_overwritten_by_an_older_sync(
    database: Database, store: ModuleStore, proxy: DavProxy, client: DavClient
) -> None:
    fill(proxy, 2)
    await sync_account(store, client)
    [before] = await books_in(store)
    old = (await known_cards(store, before.book)).etags["0.vcf"]
    proxy.server.put("0.vcf", card("Ours", uid="0"))
    await write_card(store, before.book, DavObject("0.vcf", '"new"', card("Ours", uid="0")), old)
    stale = DavContents((DavObject("0.vcf", old, card("Stale", uid="0")),))
    await keep_cards(store, before, stale, {})
    assert b"FN:Ours" in (await mirrored(store))["0.vcf"]
    [later] = await books_in(store)
    await keep_cards(store, later, stale, {})
    assert b"FN:Ours" in (await mirrored(store))["0.vcf"], "a server may tell what was before for a while"
    assert await known_cards(store, before.book) == KnownCards(
        {"0.vcf": '"new"', "1.vcf": (await known_cards(store, before.book)).etags["1.vcf"]}, frozenset({"0.vcf"})
    )
    proxy.server.put("0.vcf", card("Theirs", uid="0"))
    await sync_account(store, client)
    assert await mirrored(store) == on_server(proxy), "what comes after our write counts"
    proxy.server.delete("0.vcf")
    await sync_account(store, client)
    await let_pass(database, 11)
    await sync_account(store, client)
    assert await mirrored(store) == on_server(proxy)


async def test_a_book_that_is_not_named_goes_later(
    database: Database, store: ModuleStore, proxy: DavProxy, client: DavClient
) -> None:
    fill(proxy, 3)
    await sync_account(store, client)
    await database.run("update switchboard_contacts.book set full_at = null")
    proxy.after = lambda asked, answered: (
        Answered(answered.status, answered.headers, answered.body.replace(b":addressbook", b":other"))
        if b"resourcetype" in asked.body
        else answered
    )
    for _ in range(2):
        await sync_account(store, client)
        assert len(await mirrored(store)) == 3
    await let_pass(database, 6)
    await sync_account(store, client)
    assert await books_in(store) == ()
    proxy.behave()
    await sync_account(store, client)
    assert len(await mirrored(store)) == 3

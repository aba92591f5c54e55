"""One port for all servers of calendars and address books: WebDAV and Google's kind keep its laws, and the mirror and
the tools that write know nothing else of either.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from msgspec import Struct

from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.calendar.conflicts import WantedTime, find_conflicts
from switchboard.modules.calendar.describing import LookingCalendar
from switchboard.modules.calendar.looking import CalendarAccounts
from switchboard.modules.calendar.manifest import MANIFEST as CALENDAR
from switchboard.modules.calendar.occurrences import CalendarKeeper, zone_of_calendar
from switchboard.modules.calendar.opened import OpenCalendar
from switchboard.modules.contacts.manifest import MANIFEST as CONTACTS
from switchboard.modules.contacts.mirror import CardKeeper
from switchboard.modules.mirror.keeper import MirrorKeeper
from switchboard.modules.mirror.kept import collections_in, known_objects, write_object
from switchboard.modules.mirror.sync import sync_collections
from switchboard.ports.collection_server import CollectionServer, ServerObject
from switchboard.ports.module import ModuleManifest
from switchboard.ports.module_store import ModuleStore
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.stores import open_stores
from switchboard.testing.collections import COLLECTION_CHECKS, CollectionCheck, CollectionSubject, MakeObject
from switchboard.testing.google import FakeGoogle, GoogleCollections, GoogleKind
from switchboard.transport.dav.kinds import CALDAV, CARDDAV, DavKind
from switchboard.transport.dav.server import open_server
from tests.calendar_house import DAY, CalendarHouse, EverybodySeen, account_at, foreign_event, scope_of
from tests.dav_servers import DavProxy, DavServer, card, dav_proxy, radicale

TEN: Final = DAY + timedelta(hours=10)
ACCOUNT: Final = account_at(1)


def an_event(uid: str, title: str) -> bytes:
    return foreign_event(uid, title, TEN)


def a_card(uid: str, title: str) -> bytes:
    return card(title, uid=uid)


WITHIN: Final = LookingCalendar(zone_of_calendar(ACCOUNT, ""), ZoneInfo("UTC"), ())


def takes_place(data: bytes, since: datetime, until: datetime) -> bool:
    """Whether it keeps somebody busy then, which is all that is asked for."""
    return bool(find_conflicts([data], [WantedTime(since, until)], (), WITHIN))


@pytest.fixture(scope="module")
def dav() -> Iterator[DavProxy]:
    with ExitStack() as stack:
        yield stack.enter_context(dav_proxy(stack.enter_context(radicale())))


DAV: Final[tuple[tuple[DavKind, MakeObject], ...]] = ((CALDAV, an_event), (CARDDAV, a_card))
GOOGLE: Final[tuple[tuple[GoogleKind, MakeObject], ...]] = (("calendar", an_event), ("people", a_card))


@pytest.mark.parametrize(("kind", "make"), DAV, ids=["CalDAV", "CardDAV"])
@pytest.mark.parametrize("check", COLLECTION_CHECKS, ids=lambda check: check.__name__)
async def test_a_webdav_server_keeps_the_laws(
    check: CollectionCheck, kind: DavKind, make: MakeObject, dav: DavProxy
) -> None:
    (dav.server.of_events() if kind is CALDAV else dav.server).empty()
    async with open_server(dav.login(), kind) as server:
        [one] = await server.find_collections()
        await check(CollectionSubject(server, one.url, make))


@pytest.mark.parametrize(("kind", "make"), GOOGLE, ids=["calendar", "people"])
@pytest.mark.parametrize("check", COLLECTION_CHECKS, ids=lambda check: check.__name__)
async def test_a_server_of_googles_kind_keeps_the_laws(
    check: CollectionCheck, kind: GoogleKind, make: MakeObject
) -> None:
    google = FakeGoogle(kind)
    server = GoogleCollections(google)
    await check(CollectionSubject(server, server.collection, make, google.settle))


class Mirror(Struct, frozen=True):
    """A module that mirrors a server of Google's kind."""

    google: FakeGoogle
    server: GoogleCollections
    store: ModuleStore
    keeper: MirrorKeeper
    make: MakeObject

    async def sync(self) -> dict[str, str]:
        """The ETags in the mirror afterwards."""
        await sync_collections(self.store, self.server, self.keeper)
        [one] = await collections_in(self.store)
        return dict((await known_objects(self.store, one.collection)).etags)

    async def listed(self) -> dict[str, str]:
        """Those of the server."""
        return dict((await self.server.list_everything(self.server.collection)).etags)

    async def create(self) -> ServerObject:
        uid = str(uuid4())
        return await self.server.create_object(self.server.collection, ServerObject(uid, "", self.make(uid, uid)))


MODULES: Final[dict[GoogleKind, tuple[ModuleManifest, MirrorKeeper]]] = {
    "calendar": (CALENDAR, CalendarKeeper(ACCOUNT)),
    "people": (CONTACTS, CardKeeper("DE")),
}


@pytest.fixture(params=GOOGLE, ids=["calendar", "people"])
async def mirror(request: pytest.FixtureRequest, database: Database) -> Mirror:
    kind, make = request.param
    manifest, keeper = MODULES[kind]
    assert await migrate_modules(database, [manifest]) == {}
    google = FakeGoogle(kind, takes_place)
    store = (await open_stores(database, manifest))("home")
    return Mirror(google, GoogleCollections(google), store, keeper, make)


async def test_a_mirror_of_google_is_equal_in_the_end(mirror: Mirror) -> None:
    """Others create, change and delete; tokens expire; lists have pages, and those of people are behind."""
    chance, server, url = Random(43), mirror.server, mirror.server.collection
    there = [await mirror.create() for _ in range(5)]
    for step in range(30):
        match chance.randrange(5):
            case 0:
                there.append(await mirror.create())
            case 1:
                old = there.pop(chance.randrange(len(there)))
                there.append(await server.replace_object(url, old, mirror.make(old.name, f"Step {step}")))
            case 2 if len(there) > 3:
                await server.delete_object(url, there.pop(chance.randrange(len(there))))
            case 3:
                mirror.google.expire_tokens()
            case _:
                mirror.google.settle()
        await mirror.sync()
    mirror.google.settle()
    assert await mirror.sync() == await mirror.listed() == {one.name: one.etag for one in there}


async def test_what_was_just_written_is_not_lost_to_a_list_that_is_behind(mirror: Mirror) -> None:
    await mirror.create()
    mirror.google.settle()
    before = await mirror.sync()
    [into] = await collections_in(mirror.store)
    ours = await mirror.create()
    await write_object(mirror.store, into.collection, ours, "", mirror.keeper)
    for expire in (mirror.google.expire_tokens, mirror.google.settle):
        expire()
        assert await mirror.sync() == before | {ours.name: ours.etag}


class Between(GoogleCollections):
    """Acts before a write is sent, or after it was carried out."""

    def __init__(self, google: FakeGoogle) -> None:
        super().__init__(google)
        self.before: Callable[[ServerObject], None] = lambda _: None
        self.after: Callable[[ServerObject], None] = lambda _: None

    async def create_object(self, collection: str, new: ServerObject) -> ServerObject:
        made = await super().create_object(collection, new)
        self.after(made)
        return made

    async def replace_object(self, collection: str, old: ServerObject, data: bytes) -> ServerObject:
        self.before(old)
        return await super().replace_object(collection, old, data)


@pytest.fixture
async def calendars(database: Database) -> tuple[CalendarHouse, Between]:
    assert await migrate_modules(database, [CALENDAR]) == {}
    server = Between(FakeGoogle("calendar", takes_place))

    @asynccontextmanager
    async def opens(_name: str, _account: DavAccount) -> AsyncIterator[CollectionServer]:
        yield server

    held = CalendarAccounts({"home": ACCOUNT}, await open_stores(database, CALENDAR), EverybodySeen())
    await sync_collections(held.store_of("home"), server, CalendarKeeper(ACCOUNT))
    return CalendarHouse(OpenCalendar(held, None, opens), DavServer("google", 0, "", "", "")), server


async def test_events_are_written_at_google_once_and_undone(calendars: tuple[CalendarHouse, Between]) -> None:
    """Under the id that the server gives them; a call that was killed finds what it has made."""
    house, server = calendars

    def die(_: ServerObject) -> None:
        raise KeyboardInterrupt

    scope, given = scope_of(), {"title": "Lunch", "start": f"{TEN:%Y-%m-%d %H:%M}"}
    server.after = die
    with pytest.raises(KeyboardInterrupt):
        await house.call("create", scope, **given)
    server.after = lambda _: None
    made = await house.done("create", scope, **given)
    assert [event["id"] for event in await found(house)] == [made["id"]]
    assert "that time is taken: “Lunch”" in await house.refused("create", title="x", start=given["start"])
    changed = await house.done("update", event=made["id"], title="Dinner")
    await house.done("undo", change=changed["change"])
    assert [event["title"] for event in await found(house)] == ["Lunch"]
    deleted = await house.done("delete", event=made["id"])
    await sync_collections(house.opened.held.store_of("home"), server, CalendarKeeper(ACCOUNT))
    assert await found(house) == []
    await house.done("undo", change=deleted["change"])
    await house.done("undo", change=made["change"])
    assert [*(await server.list_everything(server.collection)).etags] == []


async def test_a_race_at_google_is_told(calendars: tuple[CalendarHouse, Between]) -> None:
    house, server = calendars
    made = await house.done("create", title="Lunch", start=f"{TEN:%Y-%m-%d %H:%M}")

    def be_faster(old: ServerObject) -> None:
        server.google.update(old.name, an_event(made["id"], "Theirs"), old.etag)

    server.before = be_faster
    said = (await house.call("update", event=made["id"], title="Ours")).text
    assert "somebody else has changed this event meanwhile. There is now: “Theirs”" in said
    assert [event["title"] for event in await found(house)] == ["Theirs"]


async def found(house: CalendarHouse) -> list[dict[str, Any]]:
    """The events of the day in the mirror."""
    outcome = await house.call("query", day=f"{TEN:%Y-%m-%d}")
    events: list[dict[str, Any]] = json.loads(outcome.text)["events"]
    return events

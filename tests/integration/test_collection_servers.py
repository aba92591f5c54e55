"""One port for all servers of calendars and address books: WebDAV and Google keep its laws, and the mirror and the
tools that write know nothing else of either.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any, Final
from uuid import uuid4

import pytest
from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.calendar.looking import CalendarAccounts
from switchboard.modules.calendar.manifest import MANIFEST as CALENDAR
from switchboard.modules.calendar.occurrences import CalendarKeeper
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
from switchboard.testing.collections import (
    COLLECTION_CHECKS,
    READING_CHECKS,
    CollectionCheck,
    CollectionSubject,
    MakeObject,
)
from switchboard.testing.google import OWN, ApiCall, GoogleServer
from switchboard.testing.platform_server import Cut
from switchboard.transport.dav.kinds import CALDAV, CARDDAV, DavKind
from switchboard.transport.dav.server import open_server
from tests.calendar_house import DAY, CalendarHouse, EverybodySeen, account_at, foreign_event, scope_of
from tests.dav_servers import DavProxy, DavServer, card, dav_proxy, radicale
from tests.google_servers import google_calendars, google_contacts, google_event, strict_google

TEN: Final = DAY + timedelta(hours=10)
ACCOUNT: Final = account_at(1)


def an_event(uid: str, title: str) -> bytes:
    return foreign_event(uid, title, TEN)


def a_card(uid: str, title: str) -> bytes:
    return card(title, uid=uid)


@pytest.fixture(scope="module")
def dav() -> Iterator[DavProxy]:
    with ExitStack() as stack:
        yield stack.enter_context(dav_proxy(stack.enter_context(radicale())))


DAV: Final[tuple[tuple[DavKind, MakeObject], ...]] = ((CALDAV, an_event), (CARDDAV, a_card))


@pytest.mark.parametrize(("kind", "make"), DAV, ids=["CalDAV", "CardDAV"])
@pytest.mark.parametrize("check", COLLECTION_CHECKS, ids=lambda check: check.__name__)
async def test_a_webdav_server_keeps_the_laws(
    check: CollectionCheck, kind: DavKind, make: MakeObject, dav: DavProxy
) -> None:
    (dav.server.of_events() if kind is CALDAV else dav.server).empty()
    async with open_server(dav.login(), kind) as server:
        [one] = await server.find_collections()
        await check(CollectionSubject(server, one.url, make))


@pytest.fixture
async def google() -> AsyncIterator[GoogleServer]:
    async with strict_google(page_size=2) as server:
        yield server


def calendar_at(google: GoogleServer) -> str:
    return f"{google.url}/calendar/v3/calendars/{OWN}"


def people_at(google: GoogleServer) -> str:
    return f"{google.url}/v1/people/me/connections"


@pytest.mark.parametrize("check", COLLECTION_CHECKS, ids=lambda check: check.__name__)
async def test_googles_calendars_keep_the_laws(check: CollectionCheck, google: GoogleServer) -> None:
    async with google_calendars(google) as server:
        await check(CollectionSubject(server, calendar_at(google), google_event))


class Phone(Struct, frozen=True):
    """Whoever writes contacts at Google, as we do not."""

    google: GoogleServer

    def create(self, title: str) -> str:
        """The name of the object that this is for us."""
        made = self.google.contacts.create({"names": [{"displayName": title}]})
        return str(made["resourceName"]).removeprefix("people/")

    def rename(self, name: str, title: str) -> None:
        there = self.google.contacts.get(f"people/{name}")
        body = {"etag": there["etag"], "names": [{"displayName": title}]}
        self.google.contacts.update(f"people/{name}", body, ["names"])

    def delete(self, name: str) -> None:
        self.google.contacts.delete(f"people/{name}")


class WrittenByPhone(CollectionSubject, frozen=True):
    """A collection that is only read through the port."""

    phone: Phone | None = None

    @property
    def _phone(self) -> Phone:
        assert self.phone is not None
        return self.phone

    async def create(self, title: str, uid: str = "") -> ServerObject:
        name = self._phone.create(title + uid)
        self.settle()
        return await self.server.read_object(self.collection, name)

    async def replace(self, old: ServerObject, title: str) -> ServerObject:
        self._phone.rename(old.name, title)
        self.settle()
        return await self.server.read_object(self.collection, old.name)

    async def delete(self, old: ServerObject) -> None:
        self._phone.delete(old.name)
        self.settle()
        await self.everything()  # what was listed before is told as it was then


@pytest.mark.parametrize("check", READING_CHECKS, ids=lambda check: check.__name__)
async def test_googles_contacts_keep_the_laws_of_reading(check: CollectionCheck, google: GoogleServer) -> None:
    async with google_contacts(google) as server:
        subject = WrittenByPhone(server, people_at(google), a_card, google.contacts.settle, Phone(google))
        await check(subject)


class Mirror(Struct, frozen=True):
    """A module that mirrors a collection at Google."""

    server: CollectionServer
    collection: str
    store: ModuleStore
    keeper: MirrorKeeper

    async def sync(self) -> dict[str, str]:
        """The ETags in the mirror afterwards."""
        await sync_collections(self.store, self.server, self.keeper)
        [one] = await collections_in(self.store)
        return dict((await known_objects(self.store, one.collection)).etags)

    async def listed(self) -> dict[str, str]:
        """Those of the server."""
        return dict((await self.server.list_everything(self.collection)).etags)

    async def create(self) -> ServerObject:
        uid = str(uuid4())
        return await self.server.create_object(self.collection, ServerObject(uid, "", google_event(uid, uid)))


async def opened_store(database: Database, manifest: ModuleManifest) -> ModuleStore:
    assert await migrate_modules(database, [manifest]) == {}
    return (await open_stores(database, manifest))("home")


@pytest.fixture
async def calendar_mirror(database: Database, google: GoogleServer) -> AsyncIterator[Mirror]:
    store = await opened_store(database, CALENDAR)
    async with google_calendars(google) as server:
        yield Mirror(server, calendar_at(google), store, CalendarKeeper(ACCOUNT))


@pytest.fixture
async def contact_mirror(database: Database, google: GoogleServer) -> AsyncIterator[Mirror]:
    store = await opened_store(database, CONTACTS)
    async with google_contacts(google) as server:
        yield Mirror(server, people_at(google), store, CardKeeper("DE"))


async def test_a_mirror_of_googles_calendar_is_equal_in_the_end(calendar_mirror: Mirror, google: GoogleServer) -> None:
    """Others create, change and delete; tokens expire; lists have pages."""
    chance, mirror, url = Random(43), calendar_mirror, calendar_mirror.collection
    there = [await mirror.create() for _ in range(5)]
    for step in range(30):
        match chance.randrange(4):
            case 0:
                there.append(await mirror.create())
            case 1:
                old = there.pop(chance.randrange(len(there)))
                data = google_event(old.name, f"Step {step}")
                there.append(await mirror.server.replace_object(url, old, data))
            case 2 if len(there) > 3:
                await mirror.server.delete_object(url, there.pop(chance.randrange(len(there))))
            case _:
                google.calendars.lists[OWN].expire_tokens()
        await mirror.sync()
    assert await mirror.sync() == await mirror.listed() == {one.name: one.etag for one in there}


async def test_a_mirror_of_googles_contacts_is_equal_in_the_end(contact_mirror: Mirror, google: GoogleServer) -> None:
    """The same, with lists that are behind; a list of everything that Google refuses leaves the mirror as it is."""
    chance, mirror, phone = Random(44), contact_mirror, Phone(google)
    there = [phone.create(f"Person {number}") for number in range(5)]
    for step in range(30):
        match chance.randrange(5):
            case 0:
                there.append(phone.create(f"Step {step}"))
            case 1:
                phone.rename(chance.choice(there), f"Step {step}")
            case 2 if len(there) > 3:
                phone.delete(there.pop(chance.randrange(len(there))))
            case 3:
                google.contacts.list.expire_tokens()
            case _:
                google.contacts.settle()
        await mirror.sync()
    google.contacts.settle()
    kept = await mirror.sync()
    assert kept == await mirror.listed()
    assert kept.keys() == {*there}


async def test_what_was_just_written_is_not_lost_to_a_list_that_is_behind(
    calendar_mirror: Mirror, google: GoogleServer
) -> None:
    """A sync that began before the write has a list that lacks it."""
    mirror = calendar_mirror
    await mirror.create()
    before = await mirror.sync()
    [into] = await collections_in(mirror.store)
    ours: list[ServerObject] = []
    behind = await mirror.server.list_everything(mirror.collection)
    ours.append(await mirror.create())
    await write_object(mirror.store, into.collection, ours[0], "", mirror.keeper)
    assert ours[0].name not in behind.etags
    google.calendars.lists[OWN].expire_tokens()
    assert await mirror.sync() == before | {ours[0].name: ours[0].etag}


@pytest.fixture
async def calendars(database: Database, google: GoogleServer) -> AsyncIterator[CalendarHouse]:
    assert await migrate_modules(database, [CALENDAR]) == {}
    async with google_calendars(google) as server:

        @asynccontextmanager
        async def opens(_name: str, _account: DavAccount) -> AsyncIterator[CollectionServer]:
            yield server

        held = CalendarAccounts({"home": ACCOUNT}, await open_stores(database, CALENDAR), EverybodySeen())
        await sync_collections(held.store_of("home"), server, CalendarKeeper(ACCOUNT))
        yield CalendarHouse(OpenCalendar(held, None, opens), DavServer("google", 0, "", "", ""))


async def test_events_are_written_at_google_once_and_undone(calendars: CalendarHouse, google: GoogleServer) -> None:
    """Under the id that the server gives them; a call whose answer was lost finds what it has made."""
    house = calendars
    scope, given = scope_of(), {"title": "Lunch", "start": f"{TEN:%Y-%m-%d %H:%M}"}
    google.spoil("events.insert", Cut())
    google.spoil("events.get", Cut(taken=False))
    assert "not certain whether it was written" in (await house.call("create", scope, **given)).text
    made = await house.done("create", scope, **given)
    assert [event["id"] for event in await found(house)] == [made["id"]]
    assert "that time is taken: “Lunch”" in await house.refused("create", title="x", start=given["start"])
    changed = await house.done("update", event=made["id"], title="Dinner")
    await house.done("undo", change=changed["change"])
    assert [event["title"] for event in await found(house)] == ["Lunch"]
    deleted = await house.done("delete", event=made["id"])
    assert await found(house) == []
    await house.done("undo", change=deleted["change"])
    await house.done("undo", change=made["change"])
    assert [one["status"] for one in google.calendar.events.values()] == ["cancelled"]


async def test_a_race_at_google_is_told(calendars: CalendarHouse, google: GoogleServer) -> None:
    house = calendars
    made = await house.done("create", title="Lunch", start=f"{TEN:%Y-%m-%d %H:%M}")

    def be_faster(call: ApiCall) -> None:
        if call.name == "events.patch":
            google.before = lambda _: None
            theirs: JsonObject = {"summary": "Theirs"}
            google.calendar.patch(call.path["eventId"], theirs, "", tells=False)

    google.before = be_faster
    said = (await house.call("update", event=made["id"], title="Ours")).text
    assert "somebody else has changed this event meanwhile. There is now: “Theirs”" in said
    assert [event["title"] for event in await found(house)] == ["Theirs"]


async def found(house: CalendarHouse) -> list[dict[str, Any]]:
    """The events of the day in the mirror."""
    outcome = await house.call("query", day=f"{TEN:%Y-%m-%d}")
    events: list[dict[str, Any]] = json.loads(outcome.text)["events"]
    return events

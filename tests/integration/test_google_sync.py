"""Mirrors of Google's calendars and contacts: equal in the end, whatever others do and Google forgets; ugly objects."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from switchboard.domain.json_values import JsonObject
from switchboard.modules.calendar.manifest import MANIFEST as CALENDAR
from switchboard.modules.calendar.syncing import sync_calendars
from switchboard.modules.contacts.callers import ContactAccounts
from switchboard.modules.contacts.looking import resolve_for
from switchboard.modules.contacts.manifest import MANIFEST as CONTACTS
from switchboard.modules.contacts.syncing import sync_contacts
from switchboard.modules.mirror.kept import collections_in, known_objects
from switchboard.ports.module_store import ModuleStore
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.stores import open_stores
from switchboard.testing.google import OWN, GoogleRefusal, GoogleServer, Refusal
from tests.calendar_house import DAY, EverybodySeen, scope_of
from tests.google_house import google_account
from tests.google_servers import google_calendars, google_contacts, strict_google
from tests.width import wide

pytestmark = pytest.mark.timeout(900)

OBJECTS: Final = wide(2_000, 60)
ROUNDS: Final = wide(12, 8)
UGLY: Final[tuple[tuple[str, JsonObject], ...]] = (
    ("a rule that never ends its day", {"recurrence": ["RRULE:FREQ=SECONDLY"]}),
    ("a date that there is not", {"recurrence": ["RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"]}),
    ("a zone of nobody", {"start": {"dateTime": "2027-03-01T10:00:00+01:00", "timeZone": "Mars/Base"}}),
    ("no start", {"start": None}),
    ("a start that is none", {"start": {"dateTime": "soon"}}),
    ("no end", {"end": None}),
    ("an end before the start", {"end": {"dateTime": "2020-03-01T10:00:00Z"}}),
    ("a title of several lines", {"summary": "One\r\nBEGIN:VEVENT\r\nTwo"}),
    ("what cannot be seen", {"summary": "a\u202eb\u0000c\u0007", "location": "\U0001f600 here"}),
    ("a guest without an address", {"attendees": [{"displayName": "Somebody"}, {"email": "x\r\nATTENDEE:y@x"}]}),
    ("a name full of marks", {"attendees": [{"email": "m@x.example", "displayName": 'A "b" ; : , \\ c'}]}),
    ("a large description", {"description": "word " * 300_000}),
    ("a rule of two lines", {"recurrence": ["RRULE:FREQ=DAILY\r\nSUMMARY:Theirs"]}),
    ("numbers as texts", {"sequence": "7", "summary": 7}),
    ("unknown fields", {"eventType": "fromGmail", "gadget": {"type": "x"}, "colorId": "3"}),
)


@pytest.fixture
async def google() -> AsyncIterator[GoogleServer]:
    async with strict_google(page_size=OBJECTS // 7) as server:
        yield server


async def calendar_store(database: Database) -> ModuleStore:
    assert await migrate_modules(database, [CALENDAR]) == {}
    return (await open_stores(database, CALENDAR))("home")


async def etags_in(store: ModuleStore) -> dict[str, str]:
    [one] = await collections_in(store)
    return dict((await known_objects(store, one.collection)).etags)


def a_body(chance: Random, title: str) -> JsonObject:
    """A single event or a series, at a time or all day."""
    day = DAY + timedelta(days=chance.randrange(300))
    if chance.random() < 0.3:
        body = {"start": {"date": f"{day:%Y-%m-%d}"}, "end": {"date": f"{day + timedelta(days=1):%Y-%m-%d}"}}
    else:
        times = (f"{day + timedelta(hours=hour):%Y-%m-%dT%H:%M:%S}" for hour in (9, 10))
        body = {
            name: {"dateTime": at, "timeZone": "Europe/Berlin"}
            for name, at in zip(("start", "end"), times, strict=True)
        }
    return {"summary": title, **body, **({"recurrence": ["RRULE:FREQ=DAILY;COUNT=5"]} if chance.random() < 0.2 else {})}


def act_on_calendar(google: GoogleServer, chance: Random, title: str) -> None:
    """What somebody else does to an event, a series, or a date of one."""
    calendar = google.calendar
    there = [one for one in calendar.events.values() if one["status"] != "cancelled"]
    one = chance.choice(there)
    if "recurrence" in one and chance.random() < 0.7:
        one = chance.choice([*calendar.instances(one)] or [one])
    match chance.randrange(4):
        case 0:
            calendar.insert(a_body(chance, title), tells=False)
        case 1 if one["status"] != "cancelled":
            calendar.delete(one["id"], "", tells=False)
        case _:
            calendar.patch(one["id"], {"summary": title, "status": "confirmed"}, "", tells=False)


async def test_a_mirror_of_many_events_is_equal_in_the_end(
    database: Database, google: GoogleServer, tmp_path: Path
) -> None:
    """Both sides change them, tokens are lost, and limits are met at random."""
    chance, store = Random(46), await calendar_store(database)
    account = google_account(google.url, tmp_path)
    for number in range(OBJECTS):
        google.calendar.insert(a_body(chance, f"Event {number}"), tells=False)
    await sync_calendars("home", account, store)
    async with google_calendars(google) as server:
        url = f"{google.url}/calendar/v3/calendars/{OWN}"
        for number in range(ROUNDS):
            for _ in range(OBJECTS // 20):
                act_on_calendar(google, chance, f"Round {number}")
            name = chance.choice([*(await server.list_everything(url)).etags])
            ours = await server.read_object(url, name)
            await server.replace_object(url, ours, ours.data.replace(b"SUMMARY:", b"SUMMARY:Our ", 1))
            if chance.random() < 0.3:
                google.calendars.lists[OWN].expire_tokens()
            if chance.random() < 0.3:
                google.spoil("events.list", Refusal(403, "rateLimitExceeded"))
                with pytest.raises(Exception, match="busy"):
                    await sync_calendars("home", account, store)
            await sync_calendars("home", account, store)
            assert await etags_in(store) == dict((await server.list_everything(url)).etags), number
        listed = await server.list_everything(url)
        contents = await server.read_objects(url, [*listed.etags])
        kept = {row["name"]: bytes(row["data"]) for row in await store.rows("objects.all")}
        assert kept == {one.name: one.data for one in contents.objects}


async def test_a_mirror_of_many_contacts_is_equal_in_the_end(
    database: Database, google: GoogleServer, tmp_path: Path
) -> None:
    """Google's lists are behind, its tokens expire, and it allows few lists of everything."""
    chance, contacts = Random(47), google.contacts
    assert await migrate_modules(database, [CONTACTS]) == {}
    store, account = (await open_stores(database, CONTACTS))("home"), google_account(google.url, tmp_path, region="DE")
    names = [str(contacts.create({"names": [{"displayName": f"P {n}"}]})["resourceName"]) for n in range(OBJECTS)]
    contacts.settle()
    await sync_contacts("home", account, store)
    for number in range(ROUNDS):
        for _ in range(OBJECTS // 20):
            name = chance.choice(names)
            try:
                there = contacts.get(name)
            except GoogleRefusal:
                names.append(str(contacts.create({"names": [{"displayName": "New"}]})["resourceName"]))
                continue
            if chance.random() < 0.3:
                contacts.delete(name)
            else:
                contacts.update(name, {"etag": there["etag"], "names": [{"displayName": f"R {number}"}]}, ["names"])
        before = await etags_in(store)
        if chance.random() < 0.3:
            contacts.list.expire_tokens()
            contacts.full_lists = 0
            with pytest.raises(Exception, match="busy"):
                await sync_contacts("home", account, store)
            assert await etags_in(store) == before
            contacts.full_lists = None
        if chance.random() < 0.7:
            contacts.settle()
        await sync_contacts("home", account, store)
    contacts.settle()
    await sync_contacts("home", account, store)
    async with google_contacts(google) as server:
        assert await etags_in(store) == dict(
            (await server.list_everything(f"{google.url}/v1/people/me/connections")).etags
        )


async def test_ugly_events_stop_no_sync(database: Database, tmp_path: Path) -> None:
    """Each is there, readable or with the reason why not; none makes events of its own."""
    store = await calendar_store(database)
    async with GoogleServer() as google:
        fine = google.calendar.insert(a_body(Random(1), "Fine"), tells=False)
        for number, (_, ugly) in enumerate(UGLY):
            event_id = f"ugli{number}"
            google.calendar.insert({**a_body(Random(3), "Ugly"), "id": event_id}, tells=False)
            google.calendar.events[event_id] |= ugly
            google.calendar.events[event_id] = {
                k: v for k, v in google.calendar.events[event_id].items() if v is not None
            }
        await sync_calendars("home", google_account(google.url, tmp_path), store)
        rows = {row["name"]: row for row in await store.rows("objects.all")}
        assert rows.keys() == {fine["id"], *(f"ugli{number}" for number in range(len(UGLY)))}
        for number, (why, _) in enumerate(UGLY):
            row = rows[f"ugli{number}"]
            assert row["problem"] or bytes(row["data"]).count(b"\nBEGIN:VEVENT\r") == 1, why
        unreadable = {UGLY[int(name.removeprefix("ugli"))][0] for name, row in rows.items() if row["problem"]}
        assert unreadable >= {"a rule that never ends its day", "no start", "a start that is none", "no end"}
        assert not unreadable & {"a zone of nobody", "what cannot be seen", "unknown fields", "a name full of marks"}


@pytest.fixture
async def people() -> AsyncIterator[GoogleServer]:
    """It answers also what is against its own description."""
    async with GoogleServer() as server:
        yield server


async def test_people_at_google_are_found_by_what_their_user_wrote(
    database: Database, people: GoogleServer, tmp_path: Path
) -> None:
    people.contacts.groups["contactGroups/7"] = "Choir"
    member = {"contactGroupMembership": {"contactGroupResourceName": "contactGroups/7"}}
    people.contacts.create(
        {
            "names": [{"displayName": "Ben Baker", "familyName": "Baker", "givenName": "Ben"}],
            "emailAddresses": [{"value": "ben@friends.example", "type": "home", "metadata": {"primary": True}}],
            "phoneNumbers": [{"value": "0170 1234567", "type": "mobile"}],
            "organizations": [{"name": "Bakery; Baker, Sons", "title": "Baker"}],
            "birthdays": [{"date": {"month": 3, "day": 7}}],
            "biographies": [{"value": "Likes\nhazelnuts"}],
            "addresses": [{"streetAddress": "Main St 1", "city": "Town", "postalCode": "12345"}],
            "memberships": [member],
        }
    )
    people.contacts.create({"emailAddresses": [{"value": "nameless@friends.example"}]})
    people.contacts.create({"names": 7})
    people.contacts.settle()
    assert await migrate_modules(database, [CONTACTS]) == {}
    stores, account = await open_stores(database, CONTACTS), google_account(people.url, tmp_path, region="DE")
    await sync_contacts("home", account, stores("home"))
    held = ContactAccounts({"home": account}, stores, EverybodySeen())
    for who in ("ben", "ben@friends.example", "+49 170 1234567"):
        [found] = (await resolve_for(held, scope_of(), who))["people"]
        assert found["name"] == "Ben Baker", who
    told: dict[str, Any] = json.loads(json.dumps(await resolve_for(held, scope_of(), "nameless@friends.example")))
    assert told["people"][0]["name"] == "nameless@friends.example"
    [row] = [row for row in await stores("home").rows("objects.all") if row["problem"]]
    assert "cannot be read" in row["problem"]

"""The strict Google beside a client that Google has written, and ours beside whoever writes the same event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from switchboard.store.database import Database
from switchboard.testing.google import GOOGLE_TOKEN, OWN, ApiCall, GoogleServer
from tests.calendar_house import DAY, CalendarHouse
from tests.google_discovery import wrong_in
from tests.google_house import google_account, open_google_house
from tests.width import wide

pytestmark = pytest.mark.timeout(300)
TIMES: Final = wide(200, 10)
TEN: Final = f"{DAY + timedelta(hours=10):%Y-%m-%d %H:%M}"
BODY: Final = {
    "summary": "Theirs",
    "start": {"dateTime": "2027-03-01T10:00:00", "timeZone": "Europe/Berlin"},
    "end": {"dateTime": "2027-03-01T11:00:00", "timeZone": "Europe/Berlin"},
    "attendees": [{"email": "ben@friends.example"}],
}


@pytest.fixture
async def google() -> AsyncIterator[GoogleServer]:
    async with GoogleServer(page_size=2) as server:
        yield server
    wrong = wrong_in(server.exchanges)
    assert wrong == [], wrong


@contextmanager
def service(google: GoogleServer, name: str, version: str, path: str = "") -> Iterator[Any]:
    """Google's client, which has no types."""
    discovery = import_module("googleapiclient.discovery")
    credentials = import_module("google.oauth2.credentials").Credentials(GOOGLE_TOKEN)
    options = {"api_endpoint": google.url + path}
    made = discovery.build(name, version, credentials=credentials, client_options=options, static_discovery=True)
    with closing(made):
        yield made


async def test_googles_own_client_keeps_calendars_here(google: GoogleServer) -> None:
    """Pages, tokens, series, patches under a condition, deletion, mails."""

    def keep_calendar(events: Any) -> None:
        errors = import_module("googleapiclient.errors")
        made = [events.insert(calendarId="primary", body=BODY, sendUpdates="all").execute() for _ in range(5)]
        request = events.list(calendarId="primary")
        answer = request.execute()
        listed = [*answer["items"]]
        while (request := events.list_next(request, answer)) is not None:
            answer = request.execute()
            listed += answer["items"]
        assert [one["id"] for one in listed] == [one["id"] for one in made]
        weekly = {**BODY, "recurrence": ["RRULE:FREQ=WEEKLY;COUNT=3"], "id": "abcdef"}
        events.insert(calendarId="primary", body=weekly).execute()
        dates = events.instances(calendarId="primary", eventId="abcdef").execute()["items"]
        assert [one["start"]["dateTime"][:10] for one in dates] == ["2027-03-01", "2027-03-08", "2027-03-15"]
        events.delete(calendarId="primary", eventId=dates[1]["id"]).execute()
        patch = events.patch(calendarId="primary", eventId=dates[2]["id"], body={"summary": "Last"})
        patch.headers["If-Match"] = dates[2]["etag"]
        assert patch.execute()["recurringEventId"] == "abcdef"
        with pytest.raises(errors.HttpError) as refused:
            patch.execute()
        assert refused.value.status_code == 412
        with pytest.raises(errors.HttpError) as taken:
            events.insert(calendarId="primary", body=weekly).execute()
        assert taken.value.status_code == 409
        changed = events.list(calendarId="primary", syncToken=answer["nextSyncToken"]).execute()
        assert {one["id"] for one in changed["items"]} <= {"abcdef", *(one["id"] for one in dates)}
        with pytest.raises(errors.HttpError) as expired:
            events.list(calendarId="primary", syncToken="none").execute()
        assert expired.value.status_code == 410

    with service(google, "calendar", "v3", "/calendar/v3/") as calendar:
        await asyncio.to_thread(keep_calendar, calendar.events())
    assert google.mails.total() == 5


async def test_googles_own_client_keeps_contacts_here(google: GoogleServer) -> None:
    def keep_contacts(people: Any) -> None:
        errors = import_module("googleapiclient.errors")
        made = people.createContact(body={"names": [{"givenName": "Ben"}]}).execute()
        again = {"etag": made["etag"], "names": [{"givenName": "Benedict"}]}
        update = people.updateContact(resourceName=made["resourceName"], updatePersonFields="names", body=again)
        assert update.execute()["names"] == [{"givenName": "Benedict"}]
        with pytest.raises(errors.HttpError) as lost:
            update.execute()
        assert lost.value.status_code == 400
        google.contacts.settle()
        wanted = {"resourceName": "people/me", "personFields": "names", "requestSyncToken": True}
        first = people.connections().list(**wanted).execute()
        assert [one["names"] for one in first["connections"]] == [[{"givenName": "Benedict"}]]
        people.deleteContact(resourceName=made["resourceName"]).execute()
        google.contacts.settle()
        changed = people.connections().list(**wanted, syncToken=first["nextSyncToken"]).execute()
        assert [one["metadata"]["deleted"] for one in changed["connections"]] == [True]

    with service(google, "people", "v1") as contacts:
        await asyncio.to_thread(keep_contacts, contacts.people())


@pytest.fixture
async def house(database: Database, google: GoogleServer, tmp_path: Path) -> CalendarHouse:
    opened = await open_google_house(database, google_account(google.url, tmp_path))
    await opened.sync()
    return opened


async def test_another_program_loses_nothing_of_one_event(house: CalendarHouse, google: GoogleServer) -> None:
    """It writes at any moment of our call, without looking; ours is told, unless it was first."""
    chance, told = Random(48), 0
    made = await house.done("create", title="Meeting", start=TEN)
    [event_id] = google.calendar.events
    google.exchanges.clear()
    await house.done("update", event=made["id"], place="Here")
    moments = len(google.exchanges)
    for number in range(TIMES):
        moment, theirs, seen = chance.randrange(moments), f"Theirs {number}", 0

        def be_there(_: ApiCall, moment: int = moment, theirs: str = theirs) -> None:
            nonlocal seen
            if seen == moment:
                google.calendar.patch(event_id, {"summary": theirs}, "", tells=False)
            seen += 1

        google.before = be_there
        outcome = await house.call("update", event=made["id"], place=f"Place {number}")
        google.before = lambda _: None
        after = google.calendar.get(event_id)
        assert after["summary"] == theirs
        assert outcome.ok == (after["location"] == f"Place {number}"), outcome.text
        if not outcome.ok:
            told += 1
            assert f"There is now: “{theirs}”" in outcome.text
    assert 0 < told < TIMES
    assert google.calendar.events.keys() == {event_id}


async def test_another_program_and_a_turn_never_book_one_time(house: CalendarHouse, google: GoogleServer) -> None:
    """It books the time at any moment of our call, without looking; then ours is not there, and says so."""
    chance, day = Random(49), DAY + timedelta(days=1)
    google.calendars.lists[OWN].page_size = 250  # further pages are of the moment of the first one
    google.exchanges.clear()
    await house.done("create", title="x", start=f"{day:%Y-%m-%d} 08:00")
    last = len(google.exchanges) - 1
    for number in range(TIMES):
        at = day + timedelta(days=1 + number // 3, hours=8 + 4 * (number % 3))  # conflicts are told of 100 days
        moment, seen = chance.randint(0, last), 0
        times = {
            name: {"dateTime": f"{at + timedelta(hours=hours):%Y-%m-%dT%H:%M:%S}", "timeZone": "Europe/Berlin"}
            for name, hours in (("start", 0), ("end", 1))
        }

        def book(_: ApiCall, moment: int = moment, times: dict[str, Any] = times) -> None:
            nonlocal seen
            if seen == moment:
                google.calendar.insert({"summary": "Theirs", **times}, tells=False)
            seen += 1

        google.before = book
        outcome = await house.call("create", title="Ours", start=f"{at:%Y-%m-%d %H:%M}")
        google.before = lambda _: None
        assert not outcome.ok, (number, outcome.text)
        assert "that time is taken: “Theirs”" in outcome.text
    there = [one for one in google.calendar.events.values() if one["status"] != "cancelled"]
    assert sorted(one["summary"] for one in there) == ["Theirs"] * TIMES + ["x"]

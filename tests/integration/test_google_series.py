"""Edits of the calendar module at Google: a series and its dates are single events there, and end as the module wants.

Beside the client stands another implementation: recurring_ical_events, of the bytes that the module has made.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from random import Random
from typing import Any, Final
from zoneinfo import ZoneInfo

import icalendar
import pytest

from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.fields import EditContext, EventEdit, Guest
from switchboard.modules.calendar.editing.scopes import (
    SplitSeries,
    delete_following,
    delete_this,
    edit_all,
    edit_following,
    edit_this,
)
from switchboard.modules.calendar.editing.series import read_source, series_of
from switchboard.modules.calendar.editing.times import WrittenTime, iana_zone
from switchboard.ports.collection_server import CollectionServer, ServerError, ServerObject
from switchboard.testing.google import OWN, ApiCall, GoogleServer
from switchboard.testing.platform_server import Cut
from tests.calendar_house import DAY
from tests.google_servers import google_calendars, strict_google
from tests.width import wide

RECURRING: Final[Any] = import_module("recurring_ical_events")
"""It has no types."""

SEEDS: Final = range(wide(200, 6))
BEN: Final = "ben@friends.example"
START: Final = DAY + timedelta(days=-DAY.weekday() % 7, hours=9)
"""On a Monday, since what counts as a date of a rule that it does not fit is not the same everywhere."""
RULES: Final = ("FREQ=DAILY;COUNT=12", "FREQ=WEEKLY;BYDAY=MO,WE,FR;COUNT=9", "FREQ=DAILY;INTERVAL=2;COUNT=8")
WRITES: Final = ("events.insert", "events.patch", "events.delete")
_Seen = tuple[str, str, str]


def a_series(chance: Random, *, guests: bool) -> bytes:
    """With a time or all day."""
    if chance.random() < 0.3:
        times = [f"DTSTART;VALUE=DATE:{START:%Y%m%d}", f"DTEND;VALUE=DATE:{START + timedelta(days=1):%Y%m%d}"]
    else:
        end = START + timedelta(hours=1)
        times = [f"DTSTART;TZID=Europe/Berlin:{START:%Y%m%dT%H%M%S}", f"DTEND;TZID=Europe/Berlin:{end:%Y%m%dT%H%M%S}"]
    people = [f"ORGANIZER:mailto:{OWN}", f"ATTENDEE:mailto:{BEN}"] if guests else []
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "BEGIN:VEVENT", "UID:series", *times, f"RRULE:{chance.choice(RULES)}"]
    return "\r\n".join([*lines, "SUMMARY:Series", *people, "END:VEVENT", "END:VCALENDAR", ""]).encode()


def seen_in(data: bytes) -> list[_Seen]:
    """The dates of an object: when each begins and ends, and its title."""
    calendar = icalendar.Calendar.from_ical(data)
    found: Sequence[Any] = RECURRING.of(calendar).between(START - timedelta(days=60), START + timedelta(days=120))
    return sorted((_moment(one["DTSTART"].dt), _moment(one["DTEND"].dt), str(one.get("SUMMARY", ""))) for one in found)


def _moment(at: datetime | date) -> str:
    return at.astimezone(UTC).isoformat() if isinstance(at, datetime) else at.isoformat()


def seen_at(google: GoogleServer) -> list[_Seen]:
    """The dates that Google has."""
    since = (START - timedelta(days=60)).replace(tzinfo=UTC)
    found = google.calendar.between(since, since + timedelta(days=180))
    return sorted((_told(one["start"]), _told(one["end"]), one.get("summary", "")) for one in found)


def _told(time: dict[str, str]) -> str:
    return time.get("date") or datetime.fromisoformat(time["dateTime"]).astimezone(UTC).isoformat()


def an_edit(chance: Random, data: bytes) -> SplitSeries | bytes | None:
    """What the module makes of the object by a random edit. Raises InvalidInput for one that it refuses."""
    context = EditContext(datetime.now(UTC), iana_zone, organizer=Guest(OWN))
    series = series_of(read_source(data), iana_zone)
    if series is None:
        raise InvalidInput("nothing of it recurs any more")
    wall = chance.choice([*series.walls()])
    day = WrittenTime(wall, series.start.zone, series.start.all_day)
    part = series.overridden().get(wall)
    begins = part.start if part is not None else day
    moved = begins.later_by(
        timedelta(days=chance.choice((0, 1))) if day.all_day else timedelta(hours=chance.choice((0, 1, 3)))
    )
    title = chance.choice((None, f"Title {chance.randrange(100)}"))
    edit = EventEdit(title=title, start=None if moved == begins else moved)
    match chance.randrange(6):
        case 0 | 1:
            return edit_this(series, day, edit, context)
        case 2:
            return edit_all(series, day, EventEdit(title=title, start=edit.start), context)
        case 3:
            return edit_following(series, day, edit, context)
        case 4:
            return delete_this(series, day, context)
        case _:
            return delete_following(series, day, context)


class Calendar:
    """One object of a calendar at Google, and what has been written of it."""

    def __init__(self, google: GoogleServer, server: CollectionServer) -> None:
        self.google = google
        self.server = server
        self.url = f"{google.url}/calendar/v3/calendars/{OWN}"

    def writes(self) -> int:
        return sum(one.call.name in WRITES and one.status in (200, 204) for one in self.google.exchanges)

    async def replace(self, old: ServerObject, data: bytes) -> ServerObject:
        """Repeated until an answer comes, as a step is."""
        for _ in range(20):
            with suppress(ServerError):
                return await self.server.replace_object(self.url, old, data)
        return await self.server.replace_object(self.url, old, data)


@pytest.mark.parametrize("keeps_lost_dates", [False, True], ids=["dates go", "dates stay"])
async def test_a_series_ends_as_the_module_wants(keeps_lost_dates: bool) -> None:
    """Whatever Google does with dates that a series has no more; a write that is repeated writes nothing."""
    for seed in SEEDS:
        chance = Random(seed)
        async with strict_google() as google, google_calendars(google) as server:
            google.calendar.keeps_lost_dates = keeps_lost_dates
            calendar = Calendar(google, server)
            new = ServerObject("series.ics", "", a_series(chance, guests=chance.random() < 0.5))
            there = await server.create_object(calendar.url, new)
            for step in range(5):
                try:
                    data = an_edit(chance, there.data)
                except InvalidInput:
                    continue
                if data is None or isinstance(data, SplitSeries):
                    continue
                written = await server.replace_object(calendar.url, there, data)
                assert seen_at(google) == seen_in(data), (seed, step)
                if not keeps_lost_dates:  # else EXDATEs name what is no day, on which the other implementation differs
                    assert seen_in(written.data) == seen_in(data), (seed, step)
                writes = calendar.writes()
                assert await server.replace_object(calendar.url, there, data) == written, (seed, step)
                assert calendar.writes() == writes, (seed, step)
                listing = await server.list_everything(calendar.url)
                assert dict(listing.etags) == {written.name: written.etag}
                there = written


async def test_what_breaks_off_is_finished_and_mails_are_sent_once() -> None:
    """Any answer is lost, before or after Google has done something: Ben gets each mail once."""
    for seed in SEEDS:
        chance = Random(seed)
        async with strict_google() as google, google_calendars(google) as server:
            calendar = Calendar(google, server)
            there = await server.create_object(calendar.url, ServerObject("s.ics", "", a_series(chance, guests=True)))
            for step in range(4):
                try:
                    data = an_edit(chance, there.data)
                except InvalidInput:
                    continue
                if data is None or isinstance(data, SplitSeries):
                    continue
                for name in (*WRITES, "events.get"):
                    if chance.random() < 0.5:
                        google.spoil(name, Cut(taken=chance.random() < 0.5))
                there = await calendar.replace(there, data)
                assert seen_at(google) == seen_in(data), (seed, step)
                assert max(google.mails.values()) == 1, (seed, step, google.mails)


async def test_a_series_that_is_split_is_two_objects() -> None:
    chance = Random(7)
    async with strict_google() as google, google_calendars(google) as server:
        calendar = Calendar(google, server)
        there = await server.create_object(calendar.url, ServerObject("s.ics", "", a_series(chance, guests=False)))
        series = series_of(read_source(there.data), iana_zone)
        assert series is not None
        wall = [*series.walls()][3]
        day = WrittenTime(wall, series.start.zone, series.start.all_day)
        context = EditContext(datetime.now(UTC), iana_zone)
        changed = edit_this(
            series, WrittenTime([*series.walls()][4], day.zone, day.all_day), EventEdit(title="Own"), context
        )
        there = await server.replace_object(calendar.url, there, changed)
        series = series_of(read_source(there.data), iana_zone)
        assert series is not None
        split = edit_following(series, day, EventEdit(title="Later"), context)
        assert isinstance(split, SplitSeries)
        await server.create_object(calendar.url, ServerObject(f"{split.uid}.ics", "", split.new))
        await server.replace_object(calendar.url, there, split.old)
        assert seen_at(google) == sorted(seen_in(split.new) + seen_in(split.old))
        [found] = await server.objects_with_uid(calendar.url, split.uid)
        assert seen_in(found.data) == seen_in(split.new)
        assert "Own" in {title for *_, title in seen_at(google)}


async def test_a_deleted_series_comes_back_as_it_was() -> None:
    """As an undo does it: under its id, with the dates that were changed by hand."""
    for seed in SEEDS:
        chance = Random(seed)
        async with strict_google() as google, google_calendars(google) as server:
            calendar = Calendar(google, server)
            new = ServerObject("s.ics", "", a_series(chance, guests=chance.random() < 0.5))
            there = await server.create_object(calendar.url, new)
            for _ in range(3):
                with suppress(InvalidInput):
                    data = an_edit(chance, there.data)
                    if isinstance(data, bytes):
                        there = await server.replace_object(calendar.url, there, data)
            await server.delete_object(calendar.url, there)
            assert seen_at(google) == []
            with pytest.raises(ServerError, match="somebody has deleted it since"):
                await server.create_object(calendar.url, new)
            back = await server.create_object(calendar.url, ServerObject(there.name, "", there.data))
            assert back.name == there.name
            assert seen_at(google) == seen_in(there.data), seed


async def test_only_what_was_changed_is_written() -> None:
    """What iCalendar has no place for is as it was, and so are answers that came meanwhile."""
    async with strict_google() as google, google_calendars(google) as server:
        calendar = Calendar(google, server)
        zone = ZoneInfo("Europe/Berlin")
        made = google.calendar.insert(
            {
                "summary": "Meeting",
                "start": {"dateTime": START.replace(tzinfo=zone).isoformat(), "timeZone": "Europe/Berlin"},
                "end": {"dateTime": (START + timedelta(hours=1)).replace(tzinfo=zone).isoformat()},
                "attendees": [{"email": BEN, "optional": True, "comment": "late", "additionalGuests": 2}],
                "reminders": {"useDefault": False, "overrides": [{"method": "email", "minutes": 30}]},
                "conferenceData": {"conferenceId": "abc"},
                "extendedProperties": {"shared": {"theirs": "1"}},
                "colorId": "3",
                "guestsCanModify": True,
            },
            tells=False,
        )
        there = await server.read_object(calendar.url, made["id"])
        data = there.data.replace(b"SUMMARY:Meeting", b"SUMMARY:Review").replace(
            b"ATTENDEE;ROLE=OPT", b"ATTENDEE:mailto:mia@friends.example\r\nATTENDEE;ROLE=OPT"
        )
        google.exchanges.clear()
        await server.replace_object(calendar.url, there, data)
        [body] = [one.call.body for one in google.exchanges if one.call.name == "events.patch"]
        assert body is not None
        assert body.keys() == {"summary", "attendees"}
        after = google.calendar.get(made["id"])
        changed = {name for name in after if after[name] != made.get(name)}
        assert changed == {"summary", "attendees", "etag", "updated", "sequence"} - (
            {"updated"} if after["updated"] == made["updated"] else set()
        )
        assert after["attendees"][0] == made["attendees"][0]
        assert after["attendees"][1]["email"] == "mia@friends.example"


async def test_hidden_guests_are_never_written() -> None:
    async with strict_google() as google, google_calendars(google) as server:
        calendar = Calendar(google, server)
        there = await server.create_object(calendar.url, ServerObject("s.ics", "", a_series(Random(1), guests=True)))
        google.calendar.events[there.name]["attendeesOmitted"] = True
        without = b"".join(one for one in there.data.splitlines(keepends=True) if not one.startswith(b"ATTENDEE"))
        with pytest.raises(ServerError, match="does not show all who are invited"):
            await server.replace_object(calendar.url, there, without)


async def test_a_race_for_a_date_of_a_series_is_told() -> None:
    """Somebody else changes the same date between our look and our write."""
    async with strict_google() as google, google_calendars(google) as server:
        calendar = Calendar(google, server)
        there = await server.create_object(calendar.url, ServerObject("s.ics", "", a_series(Random(2), guests=False)))
        series = series_of(read_source(there.data), iana_zone)
        assert series is not None
        wall = [*series.walls()][2]
        day = WrittenTime(wall, series.start.zone, series.start.all_day)
        data = edit_this(series, day, EventEdit(title="Ours"), EditContext(datetime.now(UTC), iana_zone))

        def be_faster(call: ApiCall) -> None:
            if call.name == "events.patch":
                google.before = lambda _: None
                google.calendar.patch(call.path["eventId"], {"summary": "Theirs"}, "", tells=False)

        google.before = be_faster
        with pytest.raises(ServerError) as told:
            await server.replace_object(calendar.url, there, data)
        assert told.value.state == "changed"
        assert "Theirs" in {title for *_, title in seen_at(google)}
        assert "Ours" not in {title for *_, title in seen_at(google)}

"""New events: zones that any program can read, rules of a few words, and times that clocks leave out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from io import StringIO
from typing import Any, Final
from zoneinfo import ZoneInfo

import icalendar
import pytest

from switchboard.core.text.content_lines import content_lines
from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.building import NewEvent, build_event
from switchboard.modules.calendar.editing.fields import Guest
from switchboard.modules.calendar.editing.rules import Repeats, read_repeats, rule_of
from switchboard.modules.calendar.editing.times import WrittenTime, day_time, iana_zone
from switchboard.modules.calendar.editing.zones import zone_lines
from switchboard.modules.calendar.wall_times import settle_start

TZ: Final[Any] = import_module("dateutil.tz")
"""Another reader of VTIMEZONEs, which has no types here."""
MADE: Final = datetime(2026, 11, 29, 16, 0, tzinfo=UTC)
ZONES: Final = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Africa/Casablanca",
    "America/Santiago",
    "Asia/Tehran",
    "Asia/Kolkata",
)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("years", [(2026, 2026), (2011, 2020), (2026, 2036)])
def test_a_zone_is_described_rightly_for_its_years(zone: str, years: tuple[int, int]) -> None:
    told = TZ.tzical(StringIO("\r\n".join(zone_lines(zone, *years)))).get()
    real = ZoneInfo(zone)
    at = datetime(years[0], 1, 1, tzinfo=UTC)
    while at < datetime(years[1] + 1, 1, 1, tzinfo=UTC):
        wall = at.astimezone(real).replace(tzinfo=None)
        assert wall.replace(tzinfo=told).utcoffset() == wall.replace(tzinfo=real).utcoffset(), wall
        at += timedelta(hours=7)


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("week", Repeats("week")),
        ("every day", Repeats("day")),
        ("Weekly", Repeats("week")),
        ("every 2 weeks on Mon, wed", Repeats("week", 2, ("monday", "wednesday"))),
        ("other week", Repeats("week", 2)),
        ("weekdays", Repeats("week", 1, ("monday", "tuesday", "wednesday", "thursday", "friday"))),
        ("month on tuesdays 10 times", Repeats("month", 1, ("tuesday",), times=10)),
        ("year until 2030-01-31", Repeats("year", until=date(2030, 1, 31))),
    ],
)
def test_words_say_how_an_event_recurs(text: str, repeats: Repeats) -> None:
    assert read_repeats(text) == repeats


@pytest.mark.parametrize("text", ["", "sometimes", "week on t", "0 weeks", "day 0 times", "day until 2030-02-30"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_repeats(text)


@pytest.mark.parametrize(
    ("wall", "really", "said"),
    [
        ("2027-03-28T02:30", "2027-03-28T03:30", "leave out 02:30"),
        ("2027-10-31T02:30", "2027-10-31T02:30", "twice"),
        ("2027-10-31T04:30", "2027-10-31T04:30", ""),
    ],
)
def test_a_time_that_clocks_leave_out_is_later(wall: str, really: str, said: str) -> None:
    at = WrittenTime(datetime.fromisoformat(wall), "Europe/Berlin")
    settled, note = settle_start(at, ZoneInfo("Europe/Berlin"))
    assert settled.wall == datetime.fromisoformat(really)
    assert said in note
    assert bool(note) == bool(said)


def test_an_event_is_what_another_reader_reads() -> None:
    start = WrittenTime(datetime.fromisoformat("2026-12-02T18:00"), "Europe/Berlin")
    rule = rule_of(read_repeats("2 weeks on wed, fri 10 times"), start, iana_zone)
    guests = (Guest("ben@x.example", "Ben: the right one"), Guest("noor@x.example"))
    title, notes = "Chor, Probe; ü" * 20, "x\ny\\z"
    new = NewEvent("u-1", MADE, start, timedelta(hours=1), title, "Halle", notes, rule, Guest("ann@x.example"), guests)
    data = build_event(new)
    assert build_event(new) == data
    assert max(len(line.rstrip()) for line in data.splitlines()) <= 75
    events: Sequence[Any] = icalendar.Calendar.from_ical(data).walk("VEVENT")
    [event] = events
    assert (event["SUMMARY"], event["DESCRIPTION"], event["LOCATION"]) == (title, notes, "Halle")
    assert event["DTSTART"].dt == datetime(2026, 12, 2, 18, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    assert event["RRULE"].to_ical() == b"FREQ=WEEKLY;COUNT=10;INTERVAL=2;BYDAY=WE,FR"
    assert [one.params.get("CN") for one in event["ATTENDEE"]] == ["Ben: the right one", None]
    assert sum(line.name == "TZID" for line in content_lines(data)) == 1


def test_whole_days_have_no_zone() -> None:
    data = build_event(NewEvent("u-1", MADE, day_time(date(2026, 12, 2)), timedelta(days=2), "Trip"))
    assert b"VTIMEZONE" not in data
    assert b"DTSTART;VALUE=DATE:20261202\r\nDTEND;VALUE=DATE:20261204\r\n" in data


@pytest.mark.parametrize("length", [timedelta(hours=-1), timedelta(0)])
def test_an_event_that_ends_before_it_begins_is_refused(length: timedelta) -> None:
    with pytest.raises(InvalidInput, match="before it begins"):
        build_event(NewEvent("u-1", MADE, day_time(date(2026, 12, 2)), length, "Trip"))

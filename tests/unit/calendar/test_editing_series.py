"""Edits of series against a model: what recurring_ical_events makes of an object, changed date by date."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from importlib import import_module
from typing import Any, Final, Literal

import icalendar
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.fields import EditContext, EventEdit, Guest
from switchboard.modules.calendar.editing.rules import Repeats, rule_of
from switchboard.modules.calendar.editing.scopes import (
    SplitSeries,
    delete_following,
    delete_this,
    edit_all,
    edit_following,
    edit_this,
)
from switchboard.modules.calendar.editing.series import (
    Series,
    count_scopes,
    find_date,
    read_source,
    series_of,
)
from switchboard.modules.calendar.editing.times import WrittenTime, iana_zone

RECURRING: Final[Any] = import_module("recurring_ical_events")
"""Another implementation, which has no types."""

Scope = Literal["this", "following", "all"]

WINDOW: Final = (date(2026, 1, 1), date(2042, 1, 1))
FIRST: Final = datetime.fromisoformat("2026-03-02T09:00")
CONTEXT: Final = EditContext(
    datetime(2026, 1, 1, tzinfo=UTC), lambda name: iana_zone(name or "Europe/Berlin"), organizer=Guest("a@x.example")
)
ZONES: Final = ("Europe/Berlin", "America/New_York", "UTC", "")
RULES: Final = (
    "FREQ=DAILY",
    "FREQ=DAILY;INTERVAL=3",
    "FREQ=WEEKLY",
    "FREQ=WEEKLY;BYDAY=MO,WE,FR",
    "FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,MO;WKST=SU",
    "FREQ=WEEKLY;INTERVAL=3;BYDAY=MO,SA",
    "FREQ=MONTHLY",
    "FREQ=MONTHLY;BYDAY=1MO",
    "FREQ=MONTHLY;BYMONTHDAY=2,15",
    "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=1",
    "FREQ=YEARLY",
    "FREQ=YEARLY;BYMONTH=3,9;BYDAY=1MO",
)


class Seen(Struct, frozen=True, order=True):
    """An occurrence: its date in the series, when it begins and ends on the clock, and its title."""

    date: datetime
    start: datetime
    end: datetime
    title: str


class Wanted(Struct, frozen=True):
    """One edit: of the occurrence that is `number`-th by its date."""

    scope: Scope
    number: int
    deletes: bool = False
    title: str | None = None
    hours: int = 0
    days: int = 0
    longer: int = 0

    @property
    def delta(self) -> timedelta:
        return timedelta(hours=self.hours, days=self.days)


def wall_of(value: date) -> datetime:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return datetime.combine(value, time())


def seen_in(data: bytes) -> list[Seen]:
    """What is in an object, by another implementation."""
    events: list[Any] = RECURRING.of(icalendar.Calendar.from_ical(data)).between(*WINDOW)
    return sorted(
        Seen(
            wall_of(one["RECURRENCE-ID"].dt if "RECURRENCE-ID" in one else one.start),
            wall_of(one.start),
            wall_of(one.end),
            str(one["SUMMARY"]),
        )
        for one in events
    )


def parameters_of(zone: str, *, days: bool) -> str:
    return WrittenTime(FIRST, "" if days else zone, days).parameters


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """A series with dates left out, added, and changed by hand."""
    days, zone = draw(st.booleans()), draw(st.sampled_from(ZONES))
    start = WrittenTime(FIRST, zone)
    if days:
        start = WrittenTime(datetime.combine(FIRST.date(), time()), all_day=True)
    rule = draw(st.sampled_from(RULES))
    rule += draw(
        st.sampled_from([";COUNT=9", ";COUNT=14", ";UNTIL=" + replace(start, wall=start.wall + timedelta(60)).value])
    )
    if "UNTIL" in rule and zone not in ("", "UTC") and not days:
        rule += "Z"
    length = timedelta(days=1) if days else timedelta(hours=1)
    bare = event_lines(start, length, "series", f"RRULE:{rule}")
    dates = [one.date for one in seen_in(wrapped(bare))]
    out = draw(st.lists(st.sampled_from(dates), max_size=3, unique=True))
    kept = [one for one in dates if one not in out]
    assume(kept)
    lines = [f"EXDATE{start.parameters}:{','.join(replace(start, wall=one).value for one in out)}"] if out else []
    more = [event_lines(start, length, "series", f"RRULE:{rule}", *lines)]
    for one in draw(st.lists(st.sampled_from(kept), max_size=3, unique=True)):
        moved = replace(
            start, wall=one + timedelta(days=draw(st.integers(-1, 1)), hours=0 if days else draw(st.integers(-2, 2)))
        )
        named = draw(st.sampled_from(["series", "by hand"]))
        more.append(
            event_lines(moved, length, named, f"RECURRENCE-ID{start.parameters}:{replace(start, wall=one).value}")
        )
    return wrapped(*more)


def event_lines(start: WrittenTime, length: timedelta, title: str, *more: str) -> str:
    end = start.later_by(length)
    lines = ["BEGIN:VEVENT", "UID:u@x", "DTSTAMP:20260101T000000Z", f"DTSTART{start.parameters}:{start.value}"]
    lines += [f"DTEND{end.parameters}:{end.value}", f"SUMMARY:{title}", *more, "END:VEVENT"]
    return "\r\n".join(lines)


def wrapped(*events: str) -> bytes:
    return "\r\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", *events, "END:VCALENDAR", ""]).encode()


WANTED: Final = st.builds(
    Wanted,
    st.sampled_from(["this", "following", "all"]),
    st.integers(0, 13),
    st.booleans(),
    st.sampled_from([None, "new", "newer"]),
    st.integers(-4, 4),
    st.sampled_from([0, 0, 1, -1, 3]),
    st.sampled_from([0, 0, 1]),
)


def series_in(data: bytes) -> Series | None:
    return series_of(read_source(data), CONTEXT.zone_of)


def carry_out(data: bytes, wanted: Wanted, seen: Sequence[Seen]) -> list[bytes]:
    """The objects that there are afterwards."""
    series = series_in(data)
    assert series is not None
    at = seen[wanted.number % len(seen)]
    at_date = find_date(series, replace(series.start, wall=at.date).value)
    if wanted.deletes:
        if wanted.scope == "all":
            return []
        left = (delete_this if wanted.scope == "this" else delete_following)(series, at_date, CONTEXT)
        return [] if left is None else [left]
    edit = edit_of(wanted, series, at)
    if wanted.scope == "this":
        return [edit_this(series, at_date, edit, CONTEXT)]
    if wanted.scope == "all":
        return [edit_all(series, at_date, edit, CONTEXT)]
    split = edit_following(series, at_date, edit, CONTEXT)
    return [split.old, split.new] if isinstance(split, SplitSeries) else [split]


def edit_of(wanted: Wanted, series: Series, at: Seen) -> EventEdit:
    delta = timedelta(days=wanted.days) if series.start.all_day else wanted.delta
    begins = at.start if wanted.scope == "this" else at.date
    start = replace(series.start, wall=begins + delta) if delta else None
    return EventEdit(title=wanted.title, start=start, length=longer(wanted, series) if wanted.longer else None)


def longer(wanted: Wanted, series: Series) -> timedelta:
    return timedelta(days=1 + wanted.longer) if series.start.all_day else timedelta(hours=1 + wanted.longer)


def model(seen: Sequence[Seen], wanted: Wanted, series: Series) -> list[tuple[datetime, datetime, str]]:
    """What there should be: begin, end and title of each occurrence."""
    at = seen[wanted.number % len(seen)]
    delta = timedelta(days=wanted.days) if series.start.all_day else wanted.delta
    found = []
    for one in seen:
        touched = {"this": one == at, "following": one.date >= at.date, "all": True}[wanted.scope]
        if touched and wanted.deletes:
            continue
        start, end, title = one.start, one.end, one.title
        if touched:
            if wanted.longer and (wanted.scope == "this" or end - start == standard(series)):
                end = start + longer(wanted, series)
            start, end = start + delta, end + delta
            if wanted.title is not None and (wanted.scope == "this" or title == series.master.text("SUMMARY")):
                title = wanted.title
        found.append((start, end, title))
    return sorted(found)


def standard(series: Series) -> timedelta:
    length = series.master.length
    assert isinstance(length, timedelta)
    return length


@settings(max_examples=400, deadline=None)
@given(objects(), st.lists(WANTED, min_size=1, max_size=3))
def test_after_an_edit_there_is_what_a_model_says(data: bytes, edits: Sequence[Wanted]) -> None:
    for wanted in edits:
        series, seen = series_in(data), seen_in(data)
        if series is None or not seen:
            return
        expected = model(seen, wanted, series)
        try:
            objects_after = carry_out(data, wanted, seen)
        except InvalidInput as refused:
            assert "would have other dates" in refused.message  # noqa: PT017 - the only refusal there may be
            return
        after = [one for each in objects_after for one in seen_in(each)]
        assert sorted((one.start, one.end, one.title) for one in after) == expected
        assert len({read_source(each).uid for each in objects_after}) == len(objects_after)
        if not objects_after:
            return
        data = objects_after[-1]


@settings(max_examples=100, deadline=None)
@given(objects(), st.integers(0, 13))
def test_scopes_are_counted_as_they_are(data: bytes, number: int) -> None:
    series, seen = series_in(data), seen_in(data)
    assert series is not None
    at = seen[number % len(seen)]
    counts = count_scopes(series, at.date)
    assert counts.all == len(seen)
    assert counts.following == sum(one.date >= at.date for one in seen)


@pytest.mark.parametrize(
    ("repeats", "start", "rule"),
    [
        (Repeats("week"), "2026-12-02T18:00", "FREQ=WEEKLY"),
        (
            Repeats("week", 2, ("wednesday", "monday"), times=5),
            "2026-12-02T18:00",
            "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;COUNT=5",
        ),
        (Repeats("month", on=("wednesday",)), "2026-12-09T18:00", "FREQ=MONTHLY;BYDAY=2WE"),
        (Repeats("month", on=("wednesday",)), "2026-12-30T18:00", "FREQ=MONTHLY;BYDAY=-1WE"),
        (Repeats("day", until=date(2027, 1, 5)), "2026-12-30T18:00", "FREQ=DAILY;UNTIL=20270105T225959Z"),
        (Repeats("year"), "2026-12-30T18:00", "FREQ=YEARLY"),
    ],
)
def test_a_rule_is_made_of_words(repeats: Repeats, start: str, rule: str) -> None:
    assert str(rule_of(repeats, WrittenTime(datetime.fromisoformat(start), "Europe/Berlin"), CONTEXT.zone_of)) == rule


@pytest.mark.parametrize(
    ("repeats", "why"),
    [
        (Repeats("week", on=("monday",)), "begin on one of its weekdays: 2026-12-02 is a wednesday"),
        (Repeats("day", on=("wednesday",)), "weeks and months only"),
        (Repeats("month", on=("wednesday", "monday")), "has one weekday"),
        (Repeats("day", until=date(2026, 1, 1)), "before its first day"),
        (Repeats("day", until=date(2027, 1, 1), times=3), "not both"),
    ],
)
def test_words_that_make_no_rule_are_refused(repeats: Repeats, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        rule_of(repeats, WrittenTime(datetime.fromisoformat("2026-12-02T18:00"), "Europe/Berlin"), CONTEXT.zone_of)

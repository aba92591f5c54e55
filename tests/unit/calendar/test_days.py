"""Days and parts of days as a small model writes them, and what is free between blocks."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.modules.calendar.busy import BusyBlock, find_slots, merge_blocks
from switchboard.modules.calendar.days import read_range
from switchboard.modules.calendar.looking import CalendarRefusal
from switchboard.modules.calendar.wall_times import read_end, read_start

TODAY: Final = date(2026, 12, 2)
"""A Wednesday."""
BERLIN: Final = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("day", "to", "first", "last"),
    [
        ("", "", "2026-12-02", "2026-12-02"),
        ("today", "", "2026-12-02", "2026-12-02"),
        ("Tomorrow", "", "2026-12-03", "2026-12-03"),
        ("thursday", "", "2026-12-03", "2026-12-03"),
        ("on Thursday", "", "2026-12-03", "2026-12-03"),
        ("wed", "", "2026-12-02", "2026-12-02"),
        ("next wednesday", "", "2026-12-09", "2026-12-09"),
        ("thursday 2026-12-03", "", "2026-12-03", "2026-12-03"),
        ("2026-12-03, Thursday", "", "2026-12-03", "2026-12-03"),
        ("this week", "", "2026-12-02", "2026-12-06"),
        ("next week", "", "2026-12-07", "2026-12-13"),
        ("weekend", "", "2026-12-05", "2026-12-06"),
        ("friday", "sunday", "2026-12-04", "2026-12-06"),
        ("friday", "monday", "2026-12-04", "2026-12-07"),
        ("2026-12-24", "2027-01-06", "2026-12-24", "2027-01-06"),
    ],
)
def test_days(day: str, to: str, first: str, last: str) -> None:
    found = read_range(day, to, "", TODAY, BERLIN)
    assert (str(found.first), str(found.last)) == (first, last)


@pytest.mark.parametrize(
    ("day", "said"),
    [
        ("friday 2026-12-03", "2026-12-03 is a Thursday; the nearest Friday is 2026-12-04"),
        ("wednesday 2026-12-03", "2026-12-03 is a Thursday; the nearest Wednesday is 2026-12-02"),
        ("2026-02-30", "no date"),
        ("2026-12-03 2026-12-04", "is no day"),
        ("t", "is no day"),
        ("next 2026-12-03", "is no day"),
        ("3.12.", "is no day"),
    ],
)
def test_what_is_no_day_is_refused(day: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_range(day, "", "", TODAY, BERLIN)


@pytest.mark.parametrize(
    ("part", "begin", "end"),
    [
        ("", 0, 1440),
        ("afternoon", 720, 1080),
        ("Evening", 1080, 1440),
        ("14:00-16:30", 840, 990),
        ("14-16", 840, 960),
        ("from 9 to 12.30", 540, 750),
        ("after 15:00", 900, 1440),
        ("before 8", 0, 480),
        ("14:00", 840, 900),
        ("at 23:30", 1410, 1440),
    ],
)
def test_parts_of_days(part: str, begin: int, end: int) -> None:
    found = read_range("", "", part, TODAY, BERLIN)
    assert (found.begin, found.end) == (begin, end)


@pytest.mark.parametrize("day", ["thursday afternoon", "Thursday, in the afternoon", "2026-12-03 afternoon"])
def test_a_day_may_be_named_with_its_part(day: str) -> None:
    assert read_range(day, "", "", TODAY, BERLIN) == read_range("thursday", "", "afternoon", TODAY, BERLIN)
    assert read_range("sat at 15:00", "", "", TODAY, BERLIN) == read_range("saturday", "", "15:00", TODAY, BERLIN)


@pytest.mark.parametrize("part", ["16:00-14:00", "25:00-26:00", "9:70-10:00", "24:00", "soon", "14"])
def test_what_is_no_part_is_refused(part: str) -> None:
    with pytest.raises(ValueError, match=r"part of a day|ends before|time of day"):
        read_range("", "", part, TODAY, BERLIN)


NOON: Final = datetime(2026, 12, 3, 12, tzinfo=UTC)
BLOCKS: Final = st.lists(
    st.builds(
        lambda start, length, tentative: BusyBlock(
            NOON + timedelta(minutes=start), NOON + timedelta(minutes=start + length), tentative
        ),
        st.integers(0, 300),
        st.integers(0, 90),
        st.booleans(),
    ),
    max_size=8,
)


@given(BLOCKS)
def test_merged_blocks_say_the_same_of_each_minute(blocks: list[BusyBlock]) -> None:
    merged = merge_blocks(blocks)
    assert all(one.end <= other.start for one, other in pairwise(merged))
    for minute in range(0, 400, 7):
        at = NOON + timedelta(minutes=minute, seconds=30)
        kinds = {one.tentative for one in blocks if one.start <= at < one.end}
        found = [one.tentative for one in merged if one.start <= at < one.end]
        assert found == ([False not in kinds] if kinds else [])


@given(BLOCKS, st.sampled_from([15, 30, 60]))
def test_slots_are_free(blocks: list[BusyBlock], minutes: int) -> None:
    length = timedelta(minutes=minutes)
    slots = find_slots([(NOON, NOON + timedelta(hours=6))], blocks, length, 5)
    assert len(slots) <= 5
    for begin, end in slots:
        assert NOON <= begin < end == begin + length <= NOON + timedelta(hours=6)
        assert not any(one.start < end and one.end > begin for one in blocks if one.end > one.start)


@pytest.mark.parametrize(
    ("text", "wall"),
    [
        ("2026-12-03 18:00", "2026-12-03T18:00:00"),
        ("2026-12-03T18:00:00", "2026-12-03T18:00:00"),
        ("thursday 14:00", "2026-12-03T14:00:00"),
        ("Thursday, 2026-12-03 at 9:30", "2026-12-03T09:30:00"),
        ("next wednesday 8:00", "2026-12-09T08:00:00"),
        ("2026-12-03T18:00+01:00", "2026-12-03T18:00:00"),
        ("thursday 14:00+01:00", "2026-12-03T14:00:00"),
        ("today", "2026-12-02T00:00:00"),
    ],
)
def test_starts_of_events(text: str, wall: str) -> None:
    found = read_start(text, TODAY, BERLIN)
    assert (found.wall.isoformat(), found.all_day) == (wall, ":" not in text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("friday 2026-12-03 14:00", "2026-12-03 is a Thursday; the nearest Friday is 2026-12-04"),
        ("next week 14:00", "is not one day"),
        ("14:00", "is no time"),
        ("thursday 25:00", "is no time of day"),
        ("2026-12-03 14:00+02:00", r"the offset of Europe/Berlin is not \+02:00"),
        ("2026-12-03T14:00Z", "the offset of Europe/Berlin is not Z"),
        ("14:00+01:00", "is no time"),
        ("thursday afternoon", "is no day"),
    ],
)
def test_what_is_no_start_is_refused(text: str, said: str) -> None:
    with pytest.raises(CalendarRefusal, match=f"nothing was written: .*{said}"):
        read_start(text, TODAY, BERLIN)


@pytest.mark.parametrize(
    ("start", "end", "wall"),
    [
        ("2026-12-03 14:00", "15:30", "2026-12-03 15:30"),
        ("2026-12-03 14:00", "2026-12-04 09:00", "2026-12-04 09:00"),
        ("2026-12-03 14:00", "90 min", "2026-12-03 15:30"),
        ("2026-12-03 14:00", "1 h", "2026-12-03 15:00"),
        ("2026-12-03 23:00", "2 hours", "2026-12-04 01:00"),
        ("2026-12-03 14:00", "45minutes", "2026-12-03 14:45"),
        ("2026-12-03 14:00", "an hour", "2026-12-03 15:00"),
        ("2026-12-03 14:00", "half an hour", "2026-12-03 14:30"),
        ("2026-12-03 14:00", "Two hours", "2026-12-03 16:00"),
        ("2026-12-03 14:00", "1.5 h", "2026-12-03 15:30"),
        ("2026-12-03 14:00", "2026-12-03T15:30+01:00", "2026-12-03 15:30"),
        ("2026-12-03", "2026-12-04", "2026-12-05 00:00"),
    ],
)
def test_an_end_is_a_time_or_how_long_it_is(start: str, end: str, wall: str) -> None:
    assert f"{read_end(end, read_start(start, TODAY, BERLIN), BERLIN).wall:%Y-%m-%d %H:%M}" == wall


@pytest.mark.parametrize(
    ("start", "end"),
    [
        *(("2026-12-03 14:00", end) for end in ("0 min", "13:00", "-1 h", "1 hour 30")),
        *(("2026-12-03", "1 h"), ("9999-12-31 14:00", "20 h"), ("9999-12-31", "9999-12-31")),
    ],
)
def test_an_end_that_is_none_is_refused(start: str, end: str) -> None:
    with pytest.raises(CalendarRefusal):
        read_end(end, read_start(start, TODAY, BERLIN), BERLIN)

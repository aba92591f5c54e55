"""At which times a change of an event needs that nothing else takes place."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from switchboard.modules.calendar.conflicts import MOST_TIMES, new_times
from switchboard.modules.calendar.describing import LookingCalendar
from switchboard.modules.calendar.zones import UTC_ZONE
from tests.calendar_corpus import calendar

NOW = datetime(2027, 3, 1, tzinfo=UTC)
WITHIN = LookingCalendar(UTC_ZONE, ZoneInfo("Europe/Berlin"), ())
ONCE, WEEKLY = "UID:u|DTSTART:{}T090000Z|DURATION:PT1H", "UID:u|DTSTART:{}T090000Z|DURATION:PT1H|RRULE:FREQ=WEEKLY"
MOVED = "UID:u|RECURRENCE-ID:20270308T090000Z|DTSTART:20280308T090000Z|DURATION:PT1H"
OLD = calendar(WEEKLY.format("20260301"))


@pytest.mark.parametrize(
    ("before", "after", "count", "last"),
    [
        pytest.param(None, calendar(ONCE.format("20270302")), 1, "2027-03-02", id="tomorrow"),
        pytest.param(None, calendar(ONCE.format("20280302")), 1, "2028-03-02", id="in a year"),
        pytest.param(None, calendar(ONCE.format("20270228")), 0, "", id="past"),
        pytest.param(None, calendar(ONCE.format("99981231")), 0, "", id="at the end of time"),
        pytest.param(None, calendar(WEEKLY.format("20280302")), 15, "2028-06-08", id="a series from next year on"),
        pytest.param(OLD, calendar(WEEKLY.format("20260301"), MOVED), 1, "2028-03-08", id="a date moved by a year"),
        pytest.param(OLD, OLD, 0, "", id="unchanged"),
    ],
)
def test_what_is_new_is_found_however_far_it_is(before: bytes | None, after: bytes, count: int, last: str) -> None:
    found = new_times(before, after, NOW, WITHIN)
    assert (len(found), f"{found[-1].start:%Y-%m-%d}" if found else "") == (count, last)
    assert len(found) <= MOST_TIMES

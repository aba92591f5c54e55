"""Objects that are made to be slow cost a bounded number of steps together, and none of them in the event loop."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from zoneinfo import ZoneInfo

import pytest

from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.conflicts import WantedTime, find_conflicts, suggest_times
from switchboard.modules.calendar.describing import LookingCalendar
from switchboard.modules.calendar.events import read_object
from switchboard.modules.calendar.expansion import expand_object
from switchboard.modules.calendar.invitations import read_file
from switchboard.modules.calendar.zones import UTC_ZONE
from tests.calendar_corpus import calendar, recurring

NEVER = recurring("FREQ=DAILY;COUNT=9999999;BYMONTH=2;BYMONTHDAY=30", "17000101T090000Z")
LINES = calendar("UID:u|DTSTART:20270301T090000Z").replace(b"UID:u", b"UID:u" + b"\r\nX:" * 40_000)
BERLIN = ZoneInfo("Europe/Berlin")
WITHIN = LookingCalendar(UTC_ZONE, BERLIN, ())
NINE = WantedTime(*(datetime(2027, 3, 1, hour, tzinfo=UTC) for hour in (9, 10)))


@contextmanager
def called_here(*functions: object) -> Iterator[list[str]]:
    """The names of those functions that are called in this thread, which is that of the event loop."""
    codes = {getattr(one, "__code__", None) for one in functions}
    found: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in codes:
            found.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("slow", [NEVER, LINES], ids=["a rule", "lines"])
def test_so_many_that_not_all_can_be_looked_at_are_named(slow: bytes) -> None:
    read: list[int] = []

    def objects() -> Iterator[bytes]:
        for number in range(100):
            read.append(number)
            yield slow

    with pytest.raises(InvalidInput, match="too much in these calendars"):
        find_conflicts(objects(), [NINE], (), WITHIN)
    with pytest.raises(InvalidInput, match="too much in these calendars"):
        suggest_times(objects(), NINE, (), WITHIN)
    assert len(read) < 50


def test_a_few_of_them_hide_no_conflict() -> None:
    busy = calendar("UID:b|DTSTART:20270301T093000Z|DURATION:PT1H|SUMMARY:Dentist")
    [found] = find_conflicts([NEVER] * 5 + [busy], [NINE], (), WITHIN)
    assert (found.told, found.start - NINE.start) == ("“Dentist”", timedelta(minutes=30))


async def test_a_file_is_not_read_in_the_event_loop(tmp_path: Path) -> None:
    (tmp_path / "invite.ics").write_bytes(calendar("UID:u|DTSTART:20270301T090000Z|SUMMARY:Party"))
    with called_here(read_object, expand_object) as here:
        said = await read_file(tmp_path, "invite.ics", BERLIN, NINE.start)
    assert (said["events"][0]["title"], here) == ("Party", [])

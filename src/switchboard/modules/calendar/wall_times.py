"""Times as a person says them, for what is to be written: a day, or a day and a time, perhaps with its weekday. Pure.

`write_tools.py` reads arguments by it. In: `2026-12-03`, `2026-12-03 18:00`, `thursday 18:00`, `thursday 2026-12-03
18:00`; out: a `WrittenTime`, and what is to be said about it. A weekday that does not fit is refused. Next: `days.py`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from switchboard.modules.calendar.days import read_day
from switchboard.modules.calendar.editing.times import WrittenTime
from switchboard.modules.calendar.looking import CalendarRefusal

_TIME: Final = re.compile(r"(.*?)(?:(?<=\d)T|[, ] ?(?:at )?)(\d{1,2}):(\d\d)(?::00)?", re.IGNORECASE)
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d\d)")
_OFFSET: Final = re.compile(r"(.*\d:\d\d) ?(Z|[+-]\d\d:\d\d)", re.IGNORECASE)
_COUNTS: Final = {"half": 0.5, "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4}
_LENGTH: Final = re.compile(
    rf"(\d{{1,4}}(?:\.\d)?|{'|'.join(_COUNTS)}) ?(?:an? )?(?:(h|hours?)|(?:m|min|minutes?))", re.IGNORECASE
)
_DAY: Final = timedelta(days=1)
_FORM: Final = (
    "write thursday 14:00 or 2026-12-03 14:00, or the day alone for all of it, without an offset; "
    "the zone is an argument of its own"
)
_TOO_LATE: Final = "nothing was written: calendars end with the year 9999"


def read_start(text: str, today: date, zone: ZoneInfo) -> WrittenTime:
    """The start of an event; a weekday without a date is the next such day. Raises CalendarRefusal."""
    said = " ".join(text.split())
    if (shown := _OFFSET.fullmatch(said)) is not None:
        return _require_offset(read_start(shown[1], today, zone), shown[2], zone)
    match = _TIME.fullmatch(said)
    if match is None and ":" in said:
        raise CalendarRefusal(f"nothing was written: {said[:60]!r} is no time: {_FORM}")
    day = _day_named(match[1] if match else said, today)
    if match is None:
        return WrittenTime(datetime.combine(day, time()), all_day=True)
    try:
        return WrittenTime(datetime.combine(day, time(int(match[2]), int(match[3]))), zone.key)
    except ValueError:
        raise CalendarRefusal(f"nothing was written: {said[:60]!r} is no time of day: {_FORM}") from None


def _require_offset(at: WrittenTime, offset: str, zone: ZoneInfo) -> WrittenTime:
    """The time, if its zone has this offset then, as in what tools tell: otherwise it is not known which is meant."""
    given = datetime.fromisoformat(f"2000-01-01T00:00{offset.upper()}").utcoffset()
    if at.wall.replace(tzinfo=zone).utcoffset() != given:
        raise CalendarRefusal(f"nothing was written: the offset of {zone.key} is not {offset} then: {_FORM}")
    return at


def _day_named(text: str, today: date) -> date:
    try:
        return read_day(text, today)
    except ValueError as error:
        raise CalendarRefusal(f"nothing was written: {error}") from None
    except OverflowError:
        raise CalendarRefusal(_TOO_LATE) from None


def read_end(text: str, start: WrittenTime, zone: ZoneInfo) -> WrittenTime:
    """The end, which of days is the last one; a mere time is on the day of the start. It may be said how long it is.

    Raises CalendarRefusal.
    """
    if (length := _LENGTH.fullmatch(text.strip())) is not None and not start.all_day:
        count = _COUNTS.get(length[1].lower()) or float(length[1])
        minutes = int(60 * count if length[2] else count)
        return _require_later(_later_by(start, timedelta(minutes=minutes)), start)
    if (clock := _CLOCK.fullmatch(text.strip())) is not None and not start.all_day:
        text = f"{start.wall:%Y-%m-%d} {clock[0]}"
    end = read_start(text, start.wall.date(), zone)
    if end.all_day != start.all_day:
        raise CalendarRefusal("nothing was written: give both start and end with a time, or both as days")
    if end.all_day:
        end = _later_by(end, _DAY)
    return _require_later(end, start)


def _later_by(at: WrittenTime, delta: timedelta) -> WrittenTime:
    try:
        return at.later_by(delta)
    except OverflowError:
        raise CalendarRefusal(_TOO_LATE) from None


def _require_later(end: WrittenTime, start: WrittenTime) -> WrittenTime:
    if end.wall <= start.wall:
        raise CalendarRefusal("nothing was written: it would end before it begins")
    return end


def settle_start(at: WrittenTime, zone: ZoneInfo) -> tuple[WrittenTime, str]:
    """The time that clocks really show, and what is to be said if that is another one, or if they show it twice."""
    if at.all_day:
        return at, ""
    first, second = at.wall.replace(tzinfo=zone), at.wall.replace(tzinfo=zone, fold=1)
    real = first.astimezone(UTC).astimezone(zone).replace(tzinfo=None, fold=0)
    if real != at.wall:
        return replace(at, wall=real), f"The clocks leave out {at.wall:%H:%M} on that day; it is at {real:%H:%M}."
    if first.utcoffset() != second.utcoffset():
        return at, f"The clocks show {at.wall:%H:%M} twice on that day; it is the first one."
    return at, ""

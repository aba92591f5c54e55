"""Times as a person says them, for what is to be written: a day, or a day and a time, perhaps with its weekday. Pure.

`write_plans.py` reads arguments by it. In: `2026-12-03`, `2026-12-03 18:00`, `thursday 2026-12-03 18:00`; out: a
`WrittenTime`, and what is to be said about it. A weekday that does not fit is refused with both days. Next: `days.py`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from switchboard.modules.calendar.editing.rules import WEEKDAYS
from switchboard.modules.calendar.editing.times import WrittenTime
from switchboard.modules.calendar.looking import CalendarRefusal

_TIME: Final = re.compile(r"(?:([A-Za-z]{3,9})[, ]+)?(\d{4}-\d\d-\d\d)(?:[T ]+(\d{1,2}):(\d\d)(?::00)?)?")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d\d)")
_DAY: Final = timedelta(days=1)
_FORM: Final = (
    "write YYYY-MM-DD HH:MM, or YYYY-MM-DD for a whole day, without an offset; the zone is an argument of its own"
)


def read_start(text: str, zone: ZoneInfo) -> WrittenTime:
    """Raises CalendarRefusal."""
    match = _TIME.fullmatch(" ".join(text.split()))
    if match is None:
        raise CalendarRefusal(f"nothing was written: {text[:60]!r} is no time: {_FORM}")
    weekday, day, hour, minute = match.groups()
    try:
        found = date.fromisoformat(day)
        if hour is None:
            at = WrittenTime(datetime.combine(found, time()), all_day=True)
        else:
            at = WrittenTime(datetime.combine(found, time(int(hour), int(minute))), zone.key)
    except ValueError:
        raise CalendarRefusal(f"nothing was written: {text[:60]!r} is no time of the calendar: {_FORM}") from None
    if weekday:
        require_weekday(found, weekday)
    return at


def require_weekday(day: date, named: str) -> None:
    """Raises CalendarRefusal for another weekday, with the nearest day that is one."""
    wanted = [index for index, name in enumerate(WEEKDAYS) if name.startswith(named.lower())]
    if len(wanted) != 1:
        raise CalendarRefusal(f"nothing was written: {named!r} is no weekday")
    if day.weekday() != wanted[0]:
        near = day + _DAY * ((wanted[0] - day.weekday() + 3) % 7 - 3)
        raise CalendarRefusal(
            f"nothing was written: {day} is a {WEEKDAYS[day.weekday()].title()}; "
            f"{WEEKDAYS[wanted[0]].title()} is {near}: which is meant?"
        )


def read_end(text: str, start: WrittenTime, zone: ZoneInfo) -> WrittenTime:
    """The end, which of days is the last one; a mere time is on the day of the start. Raises CalendarRefusal."""
    if (clock := _CLOCK.fullmatch(text.strip())) is not None and not start.all_day:
        text = f"{start.wall:%Y-%m-%d} {clock[0]}"
    end = read_start(text, zone)
    if end.all_day != start.all_day:
        raise CalendarRefusal("nothing was written: give both start and end with a time, or both as days")
    if end.all_day:
        end = end.later_by(_DAY)
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

"""The days and times that a tool is asked about, as a small model writes them. Pure.

`tools.py` reads its arguments by it. In: `today`, `thursday`, `next week`, `2026-12-03`, `thursday 2026-12-03`, and
`afternoon`, `14:00-16:30`; out: an `AskedRange` of whole days with the hours of each. What does not fit is refused with
what would: a weekday and a date that differ are both told, and neither is guessed.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

MAX_DAYS: Final = 400
"""Days that one question may be about."""
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_PARTS: Final = {"morning": (6, 12), "noon": (11, 14), "afternoon": (12, 18), "evening": (18, 24), "night": (20, 24)}
_CLOCK: Final = r"(\d{1,2})(?:[:.](\d\d))?"
_HOURS: Final = re.compile(rf"(?:from\s+)?{_CLOCK}\s*(?:-|–|to|until)\s*{_CLOCK}")  # noqa: RUF001  people write it
_HOUR: Final = re.compile(r"(?:at\s+)?(\d{1,2})[:.](\d\d)")
_WITH_PART: Final = re.compile(rf"(.+?),?\s+(?:in the\s+)?({'|'.join(_PARTS)}|(?:at\s+)?\d{{1,2}}:\d\d)", re.IGNORECASE)
_FROM_OR_TO: Final = re.compile(rf"(after|from|before|until)\s+{_CLOCK}")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_DAY: Final = timedelta(days=1)
_FORM: Final = "write today, tomorrow, a weekday, this week, next week, or a date such as 2026-12-03"


class AskedRange(Struct, frozen=True):
    """From `first` to `last`, both included, in a zone; of each day the minutes from `begin` until `end`."""

    first: date
    last: date
    zone: ZoneInfo
    begin: int = 0
    end: int = 1440

    @property
    def spans(self) -> tuple[tuple[datetime, datetime], ...]:
        """The asked part of each day, in UTC."""
        days = [self.first + _DAY * index for index in range((self.last - self.first).days + 1)]
        return tuple((self._instant_of(day, self.begin), self._instant_of(day, self.end)) for day in days)

    @property
    def walls(self) -> tuple[datetime, datetime]:
        """Midnight before the first day and after the last one, on the clocks of the zone."""
        return datetime.combine(self.first, time()), datetime.combine(self.last + _DAY, time())

    def _instant_of(self, day: date, minutes: int) -> datetime:
        wall = datetime.combine(day, time()) + timedelta(minutes=minutes)
        return wall.replace(tzinfo=self.zone).astimezone(UTC)


def read_range(day: str, to: str, part: str, today: date, zone: ZoneInfo) -> AskedRange:
    """The range that three arguments name. `to` is the last day, if there are several. Raises ValueError.

    The day may be named with its part: `thursday afternoon`.
    """
    if not part.strip() and (both := _WITH_PART.fullmatch(day.strip())) is not None:
        day, part = both.groups()
    first, last = _read_days(day, today)
    if to.strip():
        last = _read_days(to, first)[1]
    if last < first:
        raise ValueError(f"the range ends on {_name_of(last)}, before it begins on {_name_of(first)}")
    if (last - first).days >= MAX_DAYS:
        raise ValueError(f"the range has more than {MAX_DAYS} days; ask for fewer")
    begin, end = _read_part(part)
    return AskedRange(first, last, zone, begin, end)


def read_day(text: str, today: date) -> date:
    """The one day that is named; a weekday is the next such day, which may be today. Raises ValueError."""
    first, last = _read_days(text, today)
    if first != last:
        raise ValueError(f"{text[:60]!r} is not one day: {_FORM}")
    return first


def find_asked_zone(name: str) -> ZoneInfo:
    """The zone with an IANA name. Raises ValueError."""
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise ValueError(f"{name!r} is no time zone: write one such as Europe/Berlin") from None


def _read_days(text: str, today: date) -> tuple[date, date]:
    said = " ".join(text.lower().replace(",", " ").split()).removeprefix("on ").removeprefix("the ")
    monday = today - _DAY * today.weekday()
    spans = {
        "": (today, today),
        "today": (today, today),
        "tonight": (today, today),
        "tomorrow": (today + _DAY, today + _DAY),
        "yesterday": (today - _DAY, today - _DAY),
        "this week": (today, monday + 6 * _DAY),
        "next week": (monday + 7 * _DAY, monday + 13 * _DAY),
        "weekend": (max(today, monday + 5 * _DAY), monday + 6 * _DAY),
        "this weekend": (max(today, monday + 5 * _DAY), monday + 6 * _DAY),
        "next weekend": (monday + 12 * _DAY, monday + 13 * _DAY),
    }
    if said in spans:
        return spans[said]
    return (found := _read_day(said, today)), found


def _read_day(said: str, today: date) -> date:
    dates = _DATE.findall(said)
    words = _DATE.sub(" ", said).split()
    later = [word for word in words if word in ("next", "this")]
    names = [word for word in words if word not in ("next", "this")]
    if len(dates) > 1 or len(names) > 1 or not (dates or names) or (dates and later):
        raise ValueError(f"{said[:60]!r} is no day: {_FORM}")
    weekday = _weekday_of(names[0]) if names else None
    if not dates:
        start = today + _DAY if later[:1] == ["next"] else today
        return start + _DAY * (((weekday or 0) - start.weekday()) % 7)
    try:
        found = date.fromisoformat(dates[0])
    except ValueError:
        raise ValueError(f"{dates[0]} is no date of the calendar") from None
    if weekday is not None and found.weekday() != weekday:
        near = found + _DAY * ((weekday - found.weekday() + 3) % 7 - 3)
        said, wanted = (_WEEKDAYS[one.weekday()].title() for one in (found, near))
        raise ValueError(f"{found} is a {said}; the nearest {wanted} is {near}: which is meant?")
    return found


def _weekday_of(word: str) -> int:
    found = [index for index, name in enumerate(_WEEKDAYS) if len(word) >= 3 and name.startswith(word.rstrip("."))]
    if len(found) != 1:
        raise ValueError(f"{word[:40]!r} is no day: {_FORM}")
    return found[0]


def _name_of(day: date) -> str:
    return f"{_WEEKDAYS[day.weekday()].title()} {day}"


def _read_part(text: str) -> tuple[int, int]:
    said = " ".join(text.lower().split())
    if not said or said in ("day", "all day", "all"):
        return 0, 1440
    if said in _PARTS:
        begin, end = _PARTS[said]
        return 60 * begin, 60 * end
    hours, side, hour = _HOURS.fullmatch(said), _FROM_OR_TO.fullmatch(said), _HOUR.fullmatch(said)
    if hour is not None:  # an hour from then on, as far as it is of this day
        begin = _read_minutes(hour[1], hour[2])
        end = min(begin + 60, 1440)
    elif hours is not None:
        begin, end = _read_minutes(hours[1], hours[2]), _read_minutes(hours[3], hours[4])
    elif side is not None:
        at = _read_minutes(side[2], side[3])
        begin, end = (at, 1440) if side[1] in ("after", "from") else (0, at)
    else:
        raise ValueError(f"{said[:40]!r} is no part of a day: write {', '.join(_PARTS)}, or hours such as 14:00-16:30")
    if begin >= end:
        raise ValueError(f"{said!r} ends before it begins; ask for each day by itself")
    return begin, end


def _read_minutes(hour: str, minute: str | None) -> int:
    found = 60 * int(hour) + int(minute or 0)
    if found > 1440 or int(minute or 0) > 59:
        raise ValueError(f"{hour}:{minute or '00'} is no time of day")
    return found

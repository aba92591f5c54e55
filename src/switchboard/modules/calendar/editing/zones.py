"""The VTIMEZONE of an object that we make: right for the years concerned, whatever a reader knows of the zone. Pure.

`building.py` and `scopes.py` put it before events in a zone that the object has not described yet. In: an IANA zone and
years; out: content lines. icalendar's own has each beginning of summer time an hour late (7.3.2). Source: RFC 5545,
3.6.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

FURTHER: Final = 10
"""Years that are described of a series without an end."""
_DAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_REGULAR: Final = 3
"""Years in a row after which a change of the clocks is taken for a rule."""


class _Onset(Struct, frozen=True):
    """The clocks change at `wall`, by the clock before."""

    wall: datetime
    before: timedelta
    after: timedelta
    name: str
    summer: bool

    @property
    def kind(self) -> tuple[bool, timedelta, timedelta, str]:
        return self.summer, self.before, self.after, self.name


def zone_lines(name: str, first: int, last: int) -> tuple[str, ...]:
    """The lines of a VTIMEZONE for these years, both included."""
    zone = ZoneInfo(name)
    start = datetime(first, 1, 1, tzinfo=UTC) - timedelta(days=2)
    onsets = sorted(_changes_between(zone, start, datetime(last + 1, 1, 1, tzinfo=UTC)), key=lambda one: one.kind)
    begins = _observance_lines(_onset_at(zone, start, start), (), "")
    groups = [_group_lines(list(group), last) for _, group in groupby(onsets, key=lambda one: one.kind)]
    inner = [line for group in (begins, *groups) for line in group]
    return ("BEGIN:VTIMEZONE", f"TZID:{name}", *inner, "END:VTIMEZONE")


def _changes_between(zone: tzinfo, start: datetime, end: datetime) -> Iterator[_Onset]:
    day = timedelta(days=1)
    while start < end:
        if _clock_state(zone, start) != _clock_state(zone, start + day):
            yield _onset_at(zone, start, _bisect_change(zone, start, start + day))
        start += day


def _clock_state(zone: tzinfo, at: datetime) -> tuple[timedelta, str]:
    local = at.astimezone(zone)
    return local.utcoffset() or timedelta(), local.tzname() or ""


def _bisect_change(zone: tzinfo, low: datetime, high: datetime) -> datetime:
    """The second at which the clocks have changed."""
    before = _clock_state(zone, low)
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=int((high - low).total_seconds()) // 2)
        low, high = (middle, high) if _clock_state(zone, middle) == before else (low, middle)
    return high


def _onset_at(zone: tzinfo, before: datetime, at: datetime) -> _Onset:
    offset = _clock_state(zone, before)[0]
    after, name = _clock_state(zone, at)
    return _Onset((at + offset).replace(tzinfo=None), offset, after, name, bool(at.astimezone(zone).dst()))


def _group_lines(group: Sequence[_Onset], last: int) -> tuple[str, ...]:
    """The changes of one kind; as a rule if they are regular until the end."""
    walls = sorted(one.wall for one in group)
    years = [wall.year for wall in walls]
    if len(walls) >= _REGULAR and years == list(range(years[0], last + 1)) and (rule := _rule_of(walls)):
        return _observance_lines(min(group, key=lambda one: one.wall), (), rule)
    return _observance_lines(min(group, key=lambda one: one.wall), walls[1:], "")


def _rule_of(walls: Sequence[datetime]) -> str:
    first = walls[0]
    if any((wall.month, wall.weekday(), wall.time()) != (first.month, first.weekday(), first.time()) for wall in walls):
        return ""
    for number in ({(wall.day - 1) // 7 + 1 for wall in walls}, {_number_from_end(wall) for wall in walls}):
        if len(number) == 1:
            return f"FREQ=YEARLY;BYMONTH={first.month};BYDAY={number.pop()}{_DAYS[first.weekday()]}"
    return ""


def _number_from_end(wall: datetime) -> int:
    week = timedelta(weeks=1)
    return next(-number for number in range(1, 6) if (wall + number * week).month != wall.month)


def _observance_lines(onset: _Onset, more: Sequence[datetime], rule: str) -> tuple[str, ...]:
    kind = "DAYLIGHT" if onset.summer else "STANDARD"
    return (
        f"BEGIN:{kind}",
        f"DTSTART:{onset.wall:%Y%m%dT%H%M%S}",
        *((f"RRULE:{rule}",) if rule else ()),
        *(f"RDATE:{wall:%Y%m%dT%H%M%S}" for wall in more),
        *((f"TZNAME:{onset.name}",) if onset.name else ()),
        f"TZOFFSETFROM:{_write_offset(onset.before)}",
        f"TZOFFSETTO:{_write_offset(onset.after)}",
        f"END:{kind}",
    )


def _write_offset(offset: timedelta) -> str:
    seconds = int(abs(offset).total_seconds())
    sign = "-" if offset < timedelta() else "+"
    rest = f"{seconds % 60:02}" if seconds % 60 else ""
    return f"{sign}{seconds // 3600:02}{seconds % 3600 // 60:02}{rest}"

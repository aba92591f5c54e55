"""Whether a time is free, by what the server has at this moment, and which other times are. Pure.

`carrying.py` asks before a write, and once more after it, in a thread: objects may be large. In: objects of the
calendars, and `WantedTime`s; out: `TimeConflict`s. What nobody has confirmed, and whole days that say nothing of it,
are told but hinder nothing. Next: `busy.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.busy import BusyBlock, busyness_of, find_slots, is_unaccepted
from switchboard.modules.calendar.describing import PRIVATE, LookingCalendar, clip_text, invitation_of
from switchboard.modules.calendar.events import CalendarEvent, count_lines, read_object
from switchboard.modules.calendar.expansion import ExpansionWindow, Occurrence, expand_object
from switchboard.modules.calendar.rules import MAX_STEPS, Budget, UnreadableEvent

MOST_TIMES: Final = 20
"""Dates of a series that are looked at."""
AHEAD: Final = timedelta(days=100)
SUGGESTED_WITHIN: Final = timedelta(days=7)
MOST_LOOKED_AT: Final = 20 * MAX_STEPS
"""Steps that all objects of a question may cost together: some two seconds."""
_LINE: Final = 3
"""Steps that a line costs, whatever is in it."""
_DAY: Final = timedelta(days=1)
_MOST_WINDOWS: Final = 4
_FAR: Final = datetime(9000, 1, 1, tzinfo=UTC)
_FROM, _UNTIL = 8, 20
"""Hours of the day in which times are suggested, unless the wanted one is outside of them."""


class WantedTime(Struct, frozen=True, order=True):
    """From `start` to `end`, in UTC."""

    start: datetime
    end: datetime


class TimeConflict(Struct, frozen=True, order=True):
    """What else is at that time. `told`: what it is, in words. `certain`: it hinders; if not, it is only told."""

    start: datetime
    end: datetime
    told: str
    uid: str
    certain: bool


def new_times(before: bytes | None, after: bytes, since: datetime, within: LookingCalendar) -> tuple[WantedTime, ...]:
    """The times at which something is to take place and did not before, from a time on; whole days are none.

    Of a series those of the first `AHEAD`, and those of dates that have been moved further.
    """
    windows = _windows_of(after, since, within)
    old = set() if before is None else set(_times_in(before, windows, within))
    found = {one for one in _times_in(after, windows, within) if one not in old}
    return tuple(sorted(found)[:MOST_TIMES])


def _windows_of(data: bytes, since: datetime, within: LookingCalendar) -> tuple[ExpansionWindow, ...]:
    """Periods, one after the other, in which the events begin that an object tells of."""
    found = read_object(data, within.zone, Budget()).series
    events = [one for series in found for one in (series.master, *series.overrides) if one is not None]
    starts = [one.start.wall.replace(tzinfo=UTC) for one in events]
    windows: list[ExpansionWindow] = []
    for start in sorted(max(since, one - _DAY) if since < one < _FAR else since for one in starts):
        if len(windows) < _MOST_WINDOWS and (not windows or start + 3 * _DAY > windows[-1].until):
            windows.append(ExpansionWindow(start, start + AHEAD))
    return tuple(windows)


def _times_in(data: bytes, windows: Iterable[ExpansionWindow], within: LookingCalendar) -> Iterator[WantedTime]:
    budget = Budget()
    for window in windows:
        for one in _dates_in(data, window, within, budget):
            if not one.start.all_day:
                yield _time_of(one, within)


def _dates_in(data: bytes, window: ExpansionWindow, within: LookingCalendar, budget: Budget) -> tuple[Occurrence, ...]:
    return expand_object(read_object(data, within.zone, budget), window, budget).occurrences


def _time_of(one: Occurrence, within: LookingCalendar) -> WantedTime:
    """What has no zone, or is a day, is in the zone of the person."""
    start = one.starts_at or one.start.wall.replace(tzinfo=within.floating)
    end = one.ends_at or one.wall_end.replace(tzinfo=within.floating)
    return WantedTime(start, end)


def find_conflicts(
    objects: Iterable[bytes], wanted: Sequence[WantedTime], own: Collection[str], within: LookingCalendar
) -> tuple[TimeConflict, ...]:
    """What overlaps a wanted time, but for events with the UIDs `own`. Ends that touch are no conflict.

    Raises InvalidInput if there is so much that not all of it can be looked at.
    """
    if not wanted:
        return ()
    window = ExpansionWindow(min(one.start for one in wanted) - _DAY, max(one.end for one in wanted) + _DAY)
    found = {
        conflict
        for conflict in busy_times(objects, window, within)
        if conflict.uid not in own and any(_overlaps_time(conflict, one) for one in wanted)
    }
    return tuple(sorted(found))


def _overlaps_time(one: TimeConflict, time: WantedTime) -> bool:
    return one.start < max(time.end, time.start + timedelta(seconds=1)) and one.end > time.start


def busy_times(objects: Iterable[bytes], window: ExpansionWindow, within: LookingCalendar) -> Iterator[TimeConflict]:
    """All times at which somebody is busy. Raises InvalidInput, as `find_conflicts`."""
    whole = Budget(MOST_LOOKED_AT)
    for data in objects:
        try:
            whole.spend(_LINE * count_lines(data))
        except UnreadableEvent:
            raise InvalidInput(
                "there is too much in these calendars at that time to tell whether it is free; look at them, and "
                "repeat it with conflicts=allow if it is meant"
            ) from None
        for one in _dates_in(data, window, within, Budget(MAX_STEPS, whole)):
            kind = busyness_of(one.event, within.addresses)
            if kind != "free":
                time = _time_of(one, within)
                yield TimeConflict(time.start, time.end, _told_event(one.event, within), one.event.uid, kind == "busy")


def _told_event(event: CalendarEvent, within: LookingCalendar) -> str:
    """Its title; unless it is private, or an invitation, whose text nobody has accepted yet."""
    if event.secrecy != "PUBLIC" and not within.shows_private:
        return PRIVATE
    if is_unaccepted(event, within.addresses):
        return invitation_of(event.organizer)
    return f"“{clip_text(event.title, 100)}”"


def suggest_times(
    objects: Iterable[bytes], wanted: WantedTime, own: Collection[str], within: LookingCalendar
) -> tuple[WantedTime, ...]:
    """Three free times of the same length, the next ones by day. Raises InvalidInput, as `find_conflicts`."""
    window = ExpansionWindow(wanted.start - _DAY, wanted.start + SUGGESTED_WITHIN + _DAY)
    blocks = [BusyBlock(one.start, one.end) for one in busy_times(objects, window, within) if one.uid not in own]
    length = wanted.end - wanted.start
    found = find_slots(_hours_after(wanted, within.floating), blocks, length, 3)
    return tuple(WantedTime(start, end) for start, end in found)


def _hours_after(wanted: WantedTime, zone: ZoneInfo) -> Iterator[tuple[datetime, datetime]]:
    local = wanted.start.astimezone(zone)
    for day in range(SUGGESTED_WITHIN.days + 1):
        midnight = (local + day * _DAY).replace(hour=0, minute=0, second=0, microsecond=0)
        begin = midnight.replace(hour=min(_FROM, local.hour))
        end = midnight.replace(hour=max(_UNTIL, local.hour)) + timedelta(hours=int(local.hour >= _UNTIL))
        yield max(begin, local) if day == 0 else begin, max(end, begin + (wanted.end - wanted.start))

"""When the events of an object take place within a window: each date by itself, bounded, and never an exception. Pure.

Called by `occurrences.py` when an object is kept or the window moves, and for ranges outside it. In: a
`CalendarObject`; out: an `Expansion`. All series of an object share one `Budget`, as its time zones do; what would cost
more, or has more than 2,000 dates in the window, is named with the reason, as is everything else that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Final

from msgspec import Struct

from switchboard.modules.calendar.events import CalendarEvent, CalendarObject, EventLength, EventSeries, EventTime
from switchboard.modules.calendar.rules import Budget, RecurrenceRule, UnreadableEvent, expand_rule

MAX_OCCURRENCES: Final = 2_000
"""Dates of one object within a window."""
_AROUND: Final = timedelta(hours=36)
"""By how much a date of some zone may lie outside a window that is in UTC."""
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_STEPS: Final = 8
"""What a date costs that is in the window: it is converted between zones several times."""

_Moment = datetime | date


class ExpansionWindow(Struct, frozen=True):
    """From `since` until, but without, `until`; both in UTC. What merely may be within it, in some zone, counts."""

    since: datetime
    until: datetime


class Occurrence(Struct, frozen=True):
    """One date of an event. `recurrence` is its start by the rule, as a RECURRENCE-ID, and empty if nothing recurs.

    `starts_at` and `ends_at` are None where no zone is: all-day and floating ones are where `start.wall` and `wall_end`
    are in the zone of whoever asks.
    """

    event: CalendarEvent
    recurrence: str
    start: EventTime
    wall_end: datetime
    starts_at: datetime | None
    ends_at: datetime | None


class Expansion(Struct, frozen=True):
    """The dates within a window, and the UIDs of which they cannot be told, with the reason."""

    occurrences: tuple[Occurrence, ...]
    problems: Mapping[str, str]


def expand_object(found: CalendarObject, window: ExpansionWindow, budget: Budget | None = None) -> Expansion:
    """All dates of an object, in no order. Cancelled ones are left out."""
    spent = budget or Budget()
    dates: list[Occurrence] = []
    problems = dict(found.problems)
    for series in found.series:
        try:
            dates += _expand_series(series, window, spent, MAX_OCCURRENCES - len(dates))
        except UnreadableEvent as error:
            problems[series.uid] = str(error)
        except OverflowError:
            problems[series.uid] = "it has dates that no calendar has"
    return Expansion(tuple(dates), problems)


def recurrence_id(time: EventTime) -> str:
    """A time as a RECURRENCE-ID: a date, a wall time, or an instant in UTC."""
    if time.all_day:
        return f"{time.wall:%Y%m%d}"
    instant = time.instant
    return f"{time.wall:%Y%m%dT%H%M%S}" if instant is None else f"{instant:%Y%m%dT%H%M%SZ}"


class _NamedDates:
    """Dates of a master, by RECURRENCE-ID or EXDATE. A mere date, where the master has times, names all of that day."""

    def __init__(self, master: CalendarEvent | None, names: Iterable[EventTime]) -> None:
        moments = [_moment_of(one, master) for one in names]
        self._master = master
        self._moments = frozenset(moments)
        self._days = frozenset(one for one in moments if not isinstance(one, datetime))

    def __contains__(self, start: EventTime) -> bool:
        return _moment_of(start, self._master) in self._moments or start.wall.date() in self._days


def _expand_series(series: EventSeries, window: ExpansionWindow, budget: Budget, most: int) -> list[Occurrence]:
    found = list(_dates_in(series, window, budget, most))
    if len(found) > most:
        raise UnreadableEvent(f"it has more than {MAX_OCCURRENCES:,} dates")
    return found


def _dates_in(series: EventSeries, window: ExpansionWindow, budget: Budget, most: int) -> Iterator[Occurrence]:
    number = 0
    for one in _candidates_of(series, window, budget):
        budget.spend(_STEPS)
        if _is_within(one, window):
            number += 1
            yield one
        if number > most:
            return


def _candidates_of(series: EventSeries, window: ExpansionWindow, budget: Budget) -> Iterator[Occurrence]:
    """The overrides, wherever they are, and the dates of the master near the window that none of them replaces."""
    for override in series.overrides:
        if override.status != "CANCELLED":
            start = override.recurrence or override.start
            yield _occurrence_of(override, _id_in(series.master, start), override.start, override.length)
    master = series.master
    if master is None:
        return
    changes = _following_changes(series)
    elsewhere = [one.recurrence for one in series.overrides if one.recurrence is not None]
    without = _NamedDates(master, [*master.recurs.without, *elsewhere])
    recurs = bool(master.recurs or series.overrides)
    for start, length in _starts_near(master, changes, window, budget):
        if start in without:
            continue
        event, moved = _changed_by(changes, master, start)
        if event.status != "CANCELLED":
            own = length if event is master and length is not None else event.length
            yield _occurrence_of(event, recurrence_id(start) if recurs else "", moved, own)


def _starts_near(
    master: CalendarEvent, changes: Iterable[CalendarEvent], window: ExpansionWindow, budget: Budget
) -> Iterator[tuple[EventTime, EventLength | None]]:
    """The starts by rules and dates that may be in the window, each once; a date may have a length of its own."""
    lengths = [
        master.length,
        *(one.length for one in changes),
        *(length for _, length in master.recurs.dates if length),
    ]
    back = max(one.wall + one.exact for one in lengths) + _AROUND
    shift = max([abs(_shift_of(one)) for one in changes], default=timedelta())
    since = _wall_of(window.since) - back - shift
    until = _wall_of(window.until) + _AROUND + shift
    seen: set[_Moment] = set()
    for time, length in _every_start(master, since, until, budget):
        key = _moment_of(time, master)
        if key not in seen:
            seen.add(key)
            yield time, length


def _every_start(
    master: CalendarEvent, since: datetime, until: datetime, budget: Budget
) -> Iterator[tuple[EventTime, EventLength | None]]:
    for time, length in master.recurs.dates:
        budget.spend()
        yield time, length
    if not master.recurs.rules:
        yield master.start, None
    for rule in master.recurs.rules:
        if master.start.all_day and (rule.frequency == "HOURLY" or rule.hours or rule.minutes or rule.seconds):
            raise UnreadableEvent("it is about whole days, and recurs by hours")
        for wall in expand_rule(rule, master.start.wall, since, min(until, _end_of(rule, master.start)), budget):
            if wall >= since:
                budget.spend(_STEPS)
                yield EventTime(wall, master.start.zone, master.start.all_day), None


def _end_of(rule: RecurrenceRule, start: EventTime) -> datetime:
    """The wall time before which the rule ends. A day that is its end is in it whole."""
    end = rule.until
    if end is None:
        return datetime.max  # noqa: DTZ901  wall times have no zone
    if end.is_day:
        return end.wall + _DAY
    if end.is_utc and start.zone is not None:
        return _wall_of(end.wall.replace(tzinfo=UTC).astimezone(start.zone.rules)) + _SECOND
    return end.wall + _SECOND


def _following_changes(series: EventSeries) -> tuple[CalendarEvent, ...]:
    """The overrides that count for later dates, too, the earliest first."""
    found = [one for one in series.overrides if one.and_following and one.recurrence is not None]
    return tuple(sorted(found, key=lambda one: one.recurrence.wall if one.recurrence else one.start.wall))


def _shift_of(change: CalendarEvent) -> timedelta:
    return timedelta() if change.recurrence is None else change.start.wall - change.recurrence.wall


def _changed_by(
    changes: Iterable[CalendarEvent], master: CalendarEvent, start: EventTime
) -> tuple[CalendarEvent, EventTime]:
    """The event that a date is of, and when that is: the latest change before it counts."""
    event, moved = master, start
    for change in changes:
        if change.recurrence is not None and _is_before(change.recurrence, start):
            event = change
            moved = EventTime(start.wall + _shift_of(change), change.start.zone, change.start.all_day)
    return event, moved


def _is_before(one: EventTime, other: EventTime) -> bool:
    first, second = one.instant, other.instant
    return one.wall < other.wall if first is None or second is None else first < second


def _occurrence_of(event: CalendarEvent, recurrence: str, start: EventTime, length: EventLength) -> Occurrence:
    begun = start.instant
    if begun is None or start.zone is None:
        return Occurrence(event, recurrence, start, start.wall + length.wall + length.exact, None, None)
    later = (start.wall + length.wall).replace(tzinfo=start.zone.rules).astimezone(UTC)
    ended = max(begun, later + length.exact)
    return Occurrence(event, recurrence, start, _wall_of(ended.astimezone(start.zone.rules)), begun, ended)


def _is_within(one: Occurrence, window: ExpansionWindow) -> bool:
    if one.starts_at is not None and one.ends_at is not None:
        return one.starts_at < window.until and (one.ends_at > window.since or one.starts_at >= window.since)
    return one.start.wall < _wall_of(window.until) + _AROUND and one.wall_end >= _wall_of(window.since) - _AROUND


def _wall_of(time: datetime) -> datetime:
    return time.replace(tzinfo=None, fold=0)


def _id_in(master: CalendarEvent | None, time: EventTime) -> str:
    """The id of an override's date, in the form in which its master's dates have it."""
    if master is None or time.all_day or master.start.all_day or time.zone is not None:
        return recurrence_id(time)
    return recurrence_id(EventTime(time.wall, master.start.zone))


def _moment_of(time: EventTime, master: CalendarEvent | None) -> _Moment:
    """What a time is called among the dates of a master: a date, a wall time, or an instant.

    A time without a zone is in the master's.
    """
    if master is None:
        return time.instant or (time.wall.date() if time.all_day else time.wall)
    if time.all_day or master.start.all_day:
        return time.wall.date()
    if master.start.zone is None:
        return time.wall
    return time.instant or EventTime(time.wall, master.start.zone).instant or time.wall

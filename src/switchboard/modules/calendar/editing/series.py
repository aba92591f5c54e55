"""An object of a calendar as its editor sees it: the event, the occurrences changed by hand, and where each line is.

`fields.py` and `scopes.py` change what it finds. In: the bytes of an object; out: a `CalendarSource`. Nothing is left
out or made better here: what cannot be read is refused, since a change could destroy it. Pure. Next: `fields.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from msgspec import Struct

from switchboard.core.text.content_lines import (
    Component,
    ContentLine,
    LineChange,
    change_lines,
    components_of,
    content_lines,
    text_of,
)
from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.rules import MOST, RruleParts, parse_rule, walls_of
from switchboard.modules.calendar.editing.times import (
    WrittenTime,
    ZoneOf,
    read_duration,
    read_time,
    time_at,
    time_in,
    times_in,
)

_DAY: Final = timedelta(days=1)


class EventPart(Struct, frozen=True):
    """One VEVENT: `where` it is, and its own lines with their indexes, without those of alarms."""

    where: Component
    own: tuple[tuple[int, ContentLine], ...]

    def all(self, name: str) -> tuple[tuple[int, ContentLine], ...]:
        """Its lines of one property."""
        return tuple((index, line) for index, line in self.own if line.name == name)

    def first(self, name: str) -> tuple[int, ContentLine] | None:
        """The first line of a property."""
        return next(iter(self.all(name)), None)

    def text(self, name: str) -> str:
        """The text of a property; empty without one."""
        return "" if (found := self.first(name)) is None else text_of(found[1])

    @property
    def start(self) -> WrittenTime:
        """Raises InvalidInput if there is none."""
        if (found := self.first("DTSTART")) is None:
            raise InvalidInput("this event has no start", field="DTSTART")
        return time_in(found[1])

    @property
    def length(self) -> timedelta | WrittenTime:
        """How long it takes on the clock; or its end, if that is in another zone. Raises InvalidInput."""
        start = self.start
        if (end := self.first("DTEND")) is not None:
            until = time_in(end[1])
            return until.wall - start.wall if until.zone == start.zone else until
        if (duration := self.first("DURATION")) is not None:
            return read_duration(duration[1].value)
        return _DAY if start.all_day else timedelta()

    @property
    def recurrence(self) -> WrittenTime | None:
        """Which date of the series it replaces; None: it is the series, or single."""
        return None if (found := self.first("RECURRENCE-ID")) is None else time_in(found[1])

    @property
    def attendees(self) -> tuple[tuple[int, ContentLine], ...]:
        return self.all("ATTENDEE")

    @property
    def organizer(self) -> str:
        """The address, in lower case and without its scheme; empty: none."""
        return "" if (found := self.first("ORGANIZER")) is None else address_of(found[1].value)


def address_of(value: str) -> str:
    """The address of a person, as it is compared."""
    plain = value.strip().lower()
    return plain.removeprefix("mailto:")


class CalendarSource(Struct, frozen=True):
    """An object with one UID. `master` is the event or the series; None: only single dates of a series are known."""

    data: bytes
    lines: tuple[ContentLine, ...]
    root: Component
    uid: str
    master: EventPart | None
    overrides: tuple[EventPart, ...]

    @property
    def parts(self) -> tuple[EventPart, ...]:
        """All events in it."""
        return self.overrides if self.master is None else (self.master, *self.overrides)

    @property
    def has_others(self) -> bool:
        """Whether anybody is invited."""
        return any(part.attendees or part.organizer for part in self.parts)

    def change(self, changes: Sequence[LineChange]) -> bytes:
        """The object with other lines, and every other byte as before."""
        return change_lines(self.data, changes)


def read_source(data: bytes) -> CalendarSource:
    """Raises InvalidInput for what is no object of one event, or cannot be read."""
    lines = content_lines(data)
    roots = [one for one in components_of(lines) if one.name == "VCALENDAR"]
    if len(roots) != 1:
        raise InvalidInput("this is no calendar object", field="VCALENDAR")
    parts = [_part_from(lines, one) for one in roots[0].inner if one.name == "VEVENT"]
    uids = {part.text("UID").strip() for part in parts}
    if len(uids) != 1 or "" in uids:
        raise InvalidInput("this object is not about one event", field="UID")
    masters = [part for part in parts if part.recurrence is None]
    overrides = tuple(part for part in parts if part.recurrence is not None)
    if len(masters) > 1 or len({part.recurrence for part in overrides}) < len(overrides):
        raise InvalidInput("this object has an event twice", field="RECURRENCE-ID")
    return CalendarSource(data, lines, roots[0], uids.pop(), next(iter(masters), None), overrides)


def _part_from(lines: Sequence[ContentLine], where: Component) -> EventPart:
    part = EventPart(where, tuple((index, lines[index]) for index in where.own()))
    if any("RANGE" in line.parameters for _, line in part.all("RECURRENCE-ID")):
        raise InvalidInput("this series has a change of “this and all following” that only its program can change")
    return part


class Series(Struct, frozen=True):
    """The dates of a master, by the wall times of its start: those of its rule and RDATEs without its EXDATEs."""

    source: CalendarSource
    master: EventPart
    start: WrittenTime
    rule: RruleParts | None
    zone_of: ZoneOf

    def as_date(self, at: WrittenTime) -> WrittenTime:
        """A RECURRENCE-ID, EXDATE or RDATE in the form of the start, as programs write them in several.

        Raises InvalidInput for one that names no date of such a series.
        """
        if at.all_day == self.start.all_day and at.zone == self.start.zone:
            return at
        if at.all_day or self.start.all_day:
            same_day = WrittenTime(at.wall.replace(hour=0, minute=0, second=0), all_day=True)
            if self.start.all_day:
                return same_day
            return WrittenTime(datetime.combine(at.wall.date(), self.start.wall.time()), self.start.zone)
        if not at.zone:
            return WrittenTime(at.wall, self.start.zone)
        return time_at(at.instant(self.zone_of), self.start, self.zone_of)

    def dates_in(self, name: str) -> dict[datetime, WrittenTime]:
        """Those of EXDATE or RDATE, by wall time."""
        written = [at for _, line in self.master.all(name) for at in times_in(line)]
        return {self.as_date(at).wall: at for at in written}

    def walls(self) -> Iterator[datetime]:
        """Its dates in order, perhaps without an end."""
        left_out, added = self.dates_in("EXDATE"), sorted(self.dates_in("RDATE"))
        ruled = iter([self.start.wall]) if self.rule is None else walls_of(self.rule, self.start, self.zone_of)
        return (wall for wall in _merge_dates(ruled, added) if wall not in left_out)

    def overridden(self) -> Mapping[datetime, EventPart]:
        """The parts that replace dates, by the wall times of those."""
        return {self.as_date(part.recurrence).wall: part for part in self.source.overrides if part.recurrence}


def _merge_dates(ruled: Iterator[datetime], added: Sequence[datetime]) -> Iterator[datetime]:
    """Both in order, each once."""
    rest = list(added)
    last: datetime | None = None
    for wall in ruled:
        while rest and rest[0] <= wall:
            first = rest.pop(0)
            if first not in (last, wall):
                yield first
                last = first
        if wall != last:
            yield wall
        last = wall
    yield from dict.fromkeys(one for one in rest if one != last)


def series_of(source: CalendarSource, zone_of: ZoneOf) -> Series | None:
    """The series of an object; None: it is a single event, or its series is unknown. Raises InvalidInput."""
    master = source.master
    if master is None or not any(master.first(name) for name in ("RRULE", "RDATE", "EXRULE")):
        return None
    rules = master.all("RRULE")
    if len(rules) > 1 or master.first("EXRULE") is not None:
        raise InvalidInput("this series has several rules of recurrence: change it in the program that made it")
    rule = parse_rule(rules[0][1].value) if rules else None
    return Series(source, master, master.start, rule, zone_of)


class ScopeCounts(Struct, frozen=True):
    """How many dates `following` and `all` would touch; None: without an end."""

    following: int | None
    all: int | None


def count_scopes(series: Series, split: datetime | None) -> ScopeCounts:
    """For a date of the series; None: for its first one."""
    if series.rule is not None and not series.rule.ends:
        return ScopeCounts(None, None)
    found = list(islice(series.walls(), MOST + 1))
    if len(found) > MOST:
        return ScopeCounts(None, None)
    return ScopeCounts(sum(split is None or wall >= split for wall in found), len(found))


def find_date(series: Series, recurrence: str) -> WrittenTime:
    """The date that the second half of an occurrence's id names. Raises InvalidInput if the series has no such date."""
    at = series.as_date(read_time(recurrence))
    if at.wall in series.overridden():
        return at
    for wall in islice(series.walls(), MOST):
        if wall == at.wall:
            return at
        if wall > at.wall:
            break
    raise InvalidInput(f"the series has no date {recurrence}", field="occurrence")

"""Which time zone is meant by a TZID, and the rules of those that stand in the object alone. Pure.

`events.py` asks for each time of an event. The order: the name of an IANA zone; an IANA zone with the clocks of the
object's VTIMEZONE; the zone that a name of Windows means; the VTIMEZONE as written; else the calendar's zone, which
is said to be a guess. What has no TZID is floating, and is no matter of this module.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from switchboard.core.text.content_lines import Component, ContentLine
from switchboard.modules.calendar.rules import Budget, UnreadableEvent, expand_rule, read_rule, wall_from
from switchboard.modules.calendar.windows_zones import WINDOWS_ZONES

_COMPARED: Final = (datetime(2015, 1, 1, tzinfo=UTC), datetime(2035, 1, 1, tzinfo=UTC))
"""The years in which an IANA zone must have the same clocks."""
_HINTED: Final = (datetime(2024, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
_WRITTEN_SINCE: Final = datetime(1970, 1, 1)  # noqa: DTZ001  wall times have no zone
"""Outlook writes today's rules from 1601 on."""
_WRITTEN_UNTIL: Final = datetime(2100, 1, 1)  # noqa: DTZ001
_OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d):?(\d\d)?")
_WALL: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d))?Z?")
_MOST_ZONES: Final = 200
_MOST_CHANGES: Final = 2_000
_STEPS: Final = 20_000
"""What the clocks of one VTIMEZONE may cost; two rules from 1970 until 2100 cost 8,000."""
_SECOND: Final = timedelta(seconds=1)


class EventZone(Struct, frozen=True):
    """A zone in which an event is. `guessed`: its own is unknown, and this is the calendar's."""

    name: str
    rules: tzinfo
    guessed: bool = False


UTC_ZONE: Final = EventZone("UTC", UTC)


class WrittenZone(tzinfo):
    """The clocks that a VTIMEZONE describes: from each of `changes`, which are in UTC, they are ahead by an offset."""

    def __init__(self, name: str, before: timedelta, changes: tuple[tuple[datetime, timedelta], ...]) -> None:
        self.name = name
        self.changes = changes
        self._at = [at for at, _ in changes]
        self._offsets = [before, *(offset for _, offset in changes)]
        # A wall time of fold 0 has the offset before a change until the later of the two clocks shows the change.
        pairs = list(zip(self._at, pairwise(self._offsets), strict=True))
        self._late = [at.replace(tzinfo=None) + max(two) for at, two in pairs]
        self._early = [at.replace(tzinfo=None) + min(two) for at, two in pairs]

    def utcoffset(self, dt: datetime | None) -> timedelta:
        """By how much the clocks are ahead, as in PEP 495."""
        if dt is None:
            return self._offsets[0]
        return self._offsets[bisect_right(self._early if dt.fold else self._late, dt.replace(tzinfo=None, fold=0))]

    def dst(self, dt: datetime | None) -> timedelta:  # noqa: ARG002
        """Not known, and of no use here."""
        return timedelta()

    def tzname(self, dt: datetime | None) -> str:  # noqa: ARG002
        """The name that the object gives it."""
        return self.name

    def fromutc(self, dt: datetime) -> datetime:
        """What the clocks show at an instant."""
        index = bisect_right(self._at, dt.replace(tzinfo=UTC))
        wall = dt.replace(tzinfo=None) + self._offsets[index]
        folded = index > 0 and wall < self._late[index - 1] and self._offsets[index] < self._offsets[index - 1]
        return wall.replace(tzinfo=self, fold=int(folded))


class ZonesOfObject(Struct, frozen=True):
    """What an object says of zones, and what its calendar does: `written` are its VTIMEZONEs by their TZID.

    `known` are those that have been found, by TZID; to find another one costs steps of the `budget`.
    """

    written: Mapping[str, tuple[ContentLine, ...]]
    calendar: EventZone
    budget: Budget
    known: dict[str, EventZone] = {}


def zones_of(
    lines: tuple[ContentLine, ...], components: Iterable[Component], calendar: EventZone, budget: Budget | None = None
) -> ZonesOfObject:
    """The zones that stand in an object. Raises UnreadableEvent for more than 200."""
    found = [one for one in components if one.name == "VTIMEZONE"]
    if len(found) > _MOST_ZONES:
        raise UnreadableEvent(f"it has more than {_MOST_ZONES} time zones")
    written = {}
    for one in found:
        inside = lines[one.first : one.last + 1]
        tzid = next((line.value.strip() for line in inside if line.name == "TZID"), "")
        written[tzid] = inside
    return ZonesOfObject(written, calendar, budget or Budget())


def zone_named(name: str) -> EventZone | None:
    """The IANA zone with a name."""
    try:
        return EventZone(name, ZoneInfo(name)) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def find_event_zone(tzid: str, zones: ZonesOfObject) -> EventZone:
    """The zone that a TZID means. Raises UnreadableEvent if the zones of the object cost more than its budget."""
    if tzid not in zones.known:
        zones.known[tzid] = _find_zone(tzid, zones)
    return zones.known[tzid]


def _find_zone(tzid: str, zones: ZonesOfObject) -> EventZone:
    name = tzid.strip().strip('"')
    if name.upper() in ("UTC", "Z", "GMT", "ETC/UTC"):
        return UTC_ZONE
    if found := zone_named(name):
        return found
    lines = zones.written.get(name) or zones.written.get(tzid) or ()
    zones.budget.spend()
    clocks = tuple((line.name, line.value.strip()) for line in lines)
    written = _read_zone(name, clocks, _hints_of(name, lines, zones.calendar)) if clocks else _NO_ZONE
    zones.budget.spend(written.steps)
    found = written.same or zone_named(WINDOWS_ZONES.get(name, "")) or _named_at_end(name)
    if found is None and written.clocks is not None:
        found = EventZone(name, written.clocks)
    return found or EventZone(zones.calendar.name, zones.calendar.rules, guessed=True)


def _hints_of(name: str, lines: Iterable[ContentLine], calendar: EventZone) -> tuple[str, ...]:
    """Zones to be tried first, so that among equal ones the one is named that is meant."""
    location = next((line.value.strip() for line in lines if line.name == "X-LIC-LOCATION"), "")
    ending = _named_at_end(name)
    cities = [one for one in WINDOWS_ZONES.values() if one.rpartition("/")[2].replace("_", " ") in name]
    return (location, ending.name if ending else "", WINDOWS_ZONES.get(name, ""), *cities, calendar.name)


def _named_at_end(name: str) -> EventZone | None:
    """The zone of `/mozilla.org/20050126_1/Europe/Berlin`."""
    parts = name.split("/")
    endings = ("/".join(parts[-many:]) for many in (3, 2) if len(parts) > many)
    return next(filter(None, map(zone_named, endings)), None)


class _ReadZone(Struct, frozen=True):
    """A VTIMEZONE: its `clocks`, if they can be read, the IANA zone with the same ones, and what that has cost."""

    clocks: WrittenZone | None
    same: EventZone | None
    steps: int


_NO_ZONE: Final = _ReadZone(None, None, 0)


@lru_cache(maxsize=256)
def _read_zone(name: str, lines: tuple[tuple[str, str], ...], hints: tuple[str, ...]) -> _ReadZone:
    """It costs an object the same whether it was read before or not: else what is read would depend on what was."""
    budget = Budget(_STEPS)
    try:
        clocks = _read_clocks(name, lines, budget)
    except (UnreadableEvent, ValueError, OverflowError):
        return _ReadZone(None, None, _STEPS - budget.left)
    if clocks is None:
        return _ReadZone(None, None, _STEPS - budget.left)
    same, compared = _same_clocks(clocks, hints)
    return _ReadZone(clocks, same, _STEPS - budget.left + compared)


def _same_clocks(written: WrittenZone, hints: tuple[str, ...]) -> tuple[EventZone | None, int]:
    """And how many offsets were compared.

    One that is hinted at needs to have them in these years alone: many write no rules of the past.
    """
    every, compared = _samples_of(written), 0
    near = [one for one in every if _HINTED[0] <= one[0] < _HINTED[1]]
    for name in dict.fromkeys([*hints, *WINDOWS_ZONES.values()]):
        if (found := zone_named(name)) is None:
            continue
        wanted = near if name in hints else every
        equal = _count_equal(wanted, found.rules)
        compared += equal + 1
        if equal == len(wanted):
            return found, compared
    return None, compared


def _count_equal(samples: Sequence[tuple[datetime, timedelta]], rules: tzinfo) -> int:
    """How many of these offsets a zone has, until the first that it does not have."""
    differs = (at for at, (time, offset) in enumerate(samples) if time.astimezone(rules).utcoffset() != offset)
    return next(differs, len(samples))


def _samples_of(written: WrittenZone) -> tuple[tuple[datetime, timedelta], ...]:
    first, last = _COMPARED
    coarse = [first + timedelta(days=7 * week) for week in range((last - first).days // 7)]
    around = [at - by for at, _ in written.changes if first <= at < last for by in (_SECOND, timedelta())]
    # The latest first: most zones that differ do so in winter or summer of any year.
    ordered = sorted({*coarse, *around}, reverse=True)
    ordered = ordered[13:40:26] + ordered
    return tuple((at, at.astimezone(written).utcoffset() or timedelta()) for at in ordered)


def _read_clocks(name: str, lines: tuple[tuple[str, str], ...], budget: Budget) -> WrittenZone | None:
    """The clocks of a VTIMEZONE; None, if it has none. Raises UnreadableEvent, ValueError and OverflowError."""
    onsets: dict[datetime, tuple[timedelta, timedelta]] = {}
    for observance in _observances_of(lines):
        before, after = _offset_of(observance["TZOFFSETFROM"]), _offset_of(observance["TZOFFSETTO"])
        for wall in _onsets_of(observance, before, budget):
            onsets[(wall - before).replace(tzinfo=UTC)] = (before, after)
            if len(onsets) > _MOST_CHANGES:
                raise UnreadableEvent("the time zone has too many changes")
    if not onsets:
        return None
    ordered = sorted(onsets.items())
    return WrittenZone(name, ordered[0][1][0], tuple((at, after) for at, (_, after) in ordered))


def _observances_of(lines: tuple[tuple[str, str], ...]) -> Iterator[dict[str, str]]:
    found: dict[str, str] | None = None
    for name, value in lines:
        if name == "BEGIN" and value.upper() in ("STANDARD", "DAYLIGHT"):
            found = {}
        elif found is None:
            continue
        elif name == "END":
            if {"DTSTART", "TZOFFSETFROM", "TZOFFSETTO"} <= found.keys():
                yield found
            found = None
        else:
            found[name] = f"{found[name]},{value}" if name == "RDATE" and name in found else value


def _onsets_of(observance: Mapping[str, str], before: timedelta, budget: Budget) -> Iterator[datetime]:
    start = _wall_of(observance["DTSTART"])
    yield start
    if "RRULE" in observance:
        rule = read_rule(observance["RRULE"])
        until = _WRITTEN_UNTIL
        if rule.until is not None:
            until = rule.until.wall + (before if rule.until.is_utc else timedelta()) + _SECOND
        yield from expand_rule(rule, start, max(start, _WRITTEN_SINCE), min(until, _WRITTEN_UNTIL), budget)
    for one in filter(None, observance.get("RDATE", "").split(",")):
        budget.spend()
        yield _wall_of(one)


def _wall_of(text: str) -> datetime:
    match = _WALL.match(text)
    if match is None:
        raise ValueError(text)
    numbers = [int(one or 0) for one in match.groups()]
    return wall_from(numbers)


def _offset_of(text: str) -> timedelta:
    match = _OFFSET.match(text)
    if match is None:
        raise ValueError(text)
    offset = timedelta(hours=int(match[2]), minutes=int(match[3]), seconds=int(match[4] or 0))
    if offset >= timedelta(days=1):
        raise ValueError(text)
    return -offset if match[1] == "-" else offset

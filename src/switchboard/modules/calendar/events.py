"""The events of an iCalendar object, as other programs write them: masters, and what overrides their dates. Pure.

Called by `occurrences.py` for objects of the mirror, and by `tools.py` for an invitation. In: the bytes of an object,
and the zone of its calendar; out: a `CalendarObject`, in which each UID has its events, or the reason why they cannot
be read. Lines are read by `core/text/content_lines.py`, in linear time. Next: `expansion.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Final, Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.content_lines import ContentLine, components_of, content_lines, text_of
from switchboard.core.text.visible import visible
from switchboard.modules.calendar.rules import Budget, RecurrenceRule, UnreadableEvent, read_rule, wall_from
from switchboard.modules.calendar.zones import UTC_ZONE, EventZone, ZonesOfObject, find_event_zone, zones_of

MAX_OBJECT: Final = 1_000_000
"""Bytes of an object."""
MAX_LINES: Final = 50_000
"""Of an object, each part of a folded one counted: to read so many takes 200 ms."""
MAX_EVENTS: Final = 2_000
"""Masters and overrides in one."""
MAX_TEXT: Final = 500
_MAX_DATES: Final = 5_000
_MAX_ATTENDEES: Final = 200
_TIME: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?")
_DURATION: Final = re.compile(
    r"([+-])?P(?:(\d{1,5})W)?(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,7})M)?(?:(\d{1,8})S)?)?"
)
_DAY: Final = timedelta(days=1)
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LONGEST: Final = timedelta(days=36_525)

EventStatus = Literal["CONFIRMED", "TENTATIVE", "CANCELLED"]
Secrecy = Literal["PUBLIC", "PRIVATE", "CONFIDENTIAL"]
"""In the order of how strict they are, but for the last two, which mean the same here."""


class EventTime(Struct, frozen=True):
    """What a clock shows; without a zone that of whoever asks. `all_day`: it is a date, and no instant."""

    wall: datetime
    zone: EventZone | None = None
    all_day: bool = False

    @property
    def instant(self) -> datetime | None:
        """In UTC. A wall time that the clocks leave out is later by what they leave out; of two, it is the first."""
        return None if self.zone is None else self.wall.replace(tzinfo=self.zone.rules).astimezone(UTC)


class EventLength(Struct, frozen=True):
    """How long something lasts: what clocks show later, and after that what really passes."""

    wall: timedelta
    exact: timedelta = timedelta()


class Attendee(Struct, frozen=True):
    """Who is invited: the address without `mailto:`, in small letters, and the answer."""

    address: str
    name: str = ""
    answer: str = "NEEDS-ACTION"


class RecurringDates(Struct, frozen=True):
    """When a master recurs: by rules and on dates, which may have lengths of their own; `without`: and when not."""

    rules: tuple[RecurrenceRule, ...] = ()
    dates: tuple[tuple[EventTime, EventLength | None], ...] = ()
    without: tuple[EventTime, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules or self.dates)


class CalendarEvent(Struct, frozen=True):
    """A VEVENT. An override has `recurrence`, the start that its date has by the rule; a master has none.

    `and_following`: what it changes counts for all later dates, too (RANGE=THISANDFUTURE). Texts are at most 500
    characters, without what cannot be seen. `shows`: what TRANSP says, or `""`.
    """

    uid: str
    start: EventTime
    length: EventLength
    recurrence: EventTime | None = None
    and_following: bool = False
    recurs: RecurringDates = RecurringDates()
    sequence: int = 0
    title: str = ""
    place: str = ""
    notes: str = ""
    status: EventStatus = "CONFIRMED"
    secrecy: Secrecy = "PUBLIC"
    shows: str = ""
    organizer: str = ""
    attendees: tuple[Attendee, ...] = ()


class EventSeries(Struct, frozen=True):
    """All events of one UID: `master` is None if only overrides are here, since we are invited to these dates alone."""

    uid: str
    master: CalendarEvent | None
    overrides: tuple[CalendarEvent, ...]


class CalendarObject(Struct, frozen=True):
    """What stands in an object. `problems`: UIDs whose events cannot be read, and why; empty for the object as a whole.

    `method` is that of an invitation: `REQUEST`, `CANCEL`, ….
    """

    series: tuple[EventSeries, ...] = ()
    problems: Mapping[str, str] = {}
    method: str = ""


def read_object(data: bytes, calendar_zone: EventZone = UTC_ZONE, budget: Budget | None = None) -> CalendarObject:
    """The events of an object; never fails. Tasks and journals are none, and no problem either.

    Whoever expands it, too, gives both the same `budget`, of which the zones that it describes cost some.
    """
    if len(data) > MAX_OBJECT:
        return CalendarObject(problems={"": f"it has more than {MAX_OBJECT:,} bytes"})
    if count_lines(data) > MAX_LINES:
        return CalendarObject(problems={"": f"it has more than {MAX_LINES:,} lines"})
    try:
        return _read_lines(content_lines(data.removeprefix(_BYTE_ORDER_MARK)), calendar_zone, budget or Budget())
    except UnreadableEvent as error:
        return CalendarObject(problems={"": str(error)})


def count_lines(data: bytes) -> int:
    """The ends of lines in an object, whatever they are."""
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _read_lines(lines: tuple[ContentLine, ...], calendar_zone: EventZone, budget: Budget) -> CalendarObject:
    outermost = components_of(lines)
    calendars = [one for one in outermost if one.name == "VCALENDAR"]
    if not calendars:
        raise UnreadableEvent("it is no iCalendar object: it has no BEGIN:VCALENDAR with an END")
    inner = list(chain.from_iterable(one.inner for one in calendars))
    events = [one for one in inner if one.name == "VEVENT"]
    if not inner or (not events and any(line.name == "BEGIN" and line.value.upper() == "VEVENT" for line in lines)):
        raise UnreadableEvent("it has no event that is complete")
    if len(events) > MAX_EVENTS:
        raise UnreadableEvent(f"it has more than {MAX_EVENTS:,} events")
    method = next((lines[at].value.strip().upper() for at in calendars[0].own() if lines[at].name == "METHOD"), "")
    zones = zones_of(lines, inner, calendar_zone, budget)
    read: dict[str, list[CalendarEvent]] = {}
    problems: dict[str, str] = {}
    for component in events:
        properties = [lines[at] for at in component.own() if lines[at].name]
        uid = _first_text(properties, "UID")[:MAX_TEXT]
        try:
            read.setdefault(uid, []).append(_event_of(uid, properties, zones))
        except UnreadableEvent as error:
            problems.setdefault(uid, str(error))
    whole = {uid: found for uid, found in read.items() if uid not in problems}
    return CalendarObject(tuple(_series_of(uid, found) for uid, found in whole.items()), problems, method)


def _series_of(uid: str, events: Iterable[CalendarEvent]) -> EventSeries:
    """Of two events for one date the newer counts. Overrides are as private as their master, or more."""
    latest: dict[tuple[datetime, bool] | None, CalendarEvent] = {}
    for one in events:
        at = None if one.recurrence is None else (one.recurrence.instant or one.recurrence.wall.replace(tzinfo=UTC))
        key = None if at is None or one.recurrence is None else (at, one.recurrence.all_day)
        if key not in latest or one.sequence >= latest[key].sequence:
            latest[key] = one
    master = latest.pop(None, None)
    return EventSeries(uid, master, tuple(_with_secrecy_of(master, one) for one in latest.values()))


def _with_secrecy_of(master: CalendarEvent | None, one: CalendarEvent) -> CalendarEvent:
    if master is None or master.secrecy == "PUBLIC" or one.secrecy != "PUBLIC":
        return one
    return replace(one, secrecy=master.secrecy)


def _event_of(uid: str, properties: Sequence[ContentLine], zones: ZonesOfObject) -> CalendarEvent:
    first: dict[str, ContentLine] = {}
    for line in properties:
        first.setdefault(line.name, line)
    if "DTSTART" not in first:
        raise UnreadableEvent("the event has no start")
    start = _time_of(first["DTSTART"], first["DTSTART"].value, zones)
    recurrence = first.get("RECURRENCE-ID")
    organizer = first.get("ORGANIZER")
    return CalendarEvent(
        uid,
        start,
        _length_of(first, start, zones),
        None if recurrence is None else _time_of(recurrence, recurrence.value, zones),
        recurrence is not None and recurrence.parameter("RANGE").upper() == "THISANDFUTURE",
        RecurringDates() if recurrence is not None else _dates_of(properties, zones),
        _number_of(first.get("SEQUENCE")),
        _first_text(properties, "SUMMARY"),
        _first_text(properties, "LOCATION"),
        _first_text(properties, "DESCRIPTION"),
        _status_of(first.get("STATUS")),
        _secrecy_of(first.get("CLASS")),
        _value_of(first.get("TRANSP")),
        "" if organizer is None else address_of(organizer.value),
        tuple(_attendee_of(line) for line in properties if line.name == "ATTENDEE")[:_MAX_ATTENDEES],
    )


def _first_text(properties: Iterable[ContentLine], name: str) -> str:
    return next((shown_text(text_of(line)) for line in properties if line.name == name), "")


def shown_text(text: str, most: int = MAX_TEXT) -> str:
    """A text of somebody as it may be shown: bounded, and without what cannot be seen."""
    clipped = visible(text[: 4 * most]).strip()
    return clipped if len(clipped) <= most else f"{clipped[: most - 1]}…"


def _value_of(line: ContentLine | None) -> str:
    return "" if line is None else line.value.strip().upper()[:40]


def _number_of(line: ContentLine | None) -> int:
    said = _value_of(line)
    return int(said) if re.fullmatch(r"\d{1,9}", said) else 0


def _status_of(line: ContentLine | None) -> EventStatus:
    said = _value_of(line)
    return cast("EventStatus", said) if said in get_args(EventStatus) else "CONFIRMED"


def _secrecy_of(line: ContentLine | None) -> Secrecy:
    """A class that nobody knows is private (RFC 5545, 3.8.1.3)."""
    said = _value_of(line) or "PUBLIC"
    return cast("Secrecy", said) if said in get_args(Secrecy) else "PRIVATE"


def address_of(value: str) -> str:
    """The address of `mailto:Ann@example.org`, in small letters; another URI as it is."""
    return shown_text(re.sub(r"(?i)^\s*mailto:", "", value), 254).lower()


def _attendee_of(line: ContentLine) -> Attendee:
    answer = line.parameter("PARTSTAT").upper()[:20] or "NEEDS-ACTION"
    return Attendee(address_of(line.value), shown_text(line.parameter("CN"), 100), answer)


def _time_of(line: ContentLine, value: str, zones: ZonesOfObject) -> EventTime:
    wrong = f"{line.name} is {shown_text(value, 40)!r}, which is no time"
    match = _TIME.fullmatch(value.strip())
    if match is None:
        raise UnreadableEvent(wrong)
    numbers = [int(one or 0) for one in match.groups()[:6]]
    numbers[5] = min(numbers[5], 59)
    try:
        wall = wall_from(numbers)
    except ValueError:
        raise UnreadableEvent(wrong) from None
    if not 1600 <= wall.year <= 9000:
        raise UnreadableEvent(f"{line.name} is in the year {wall.year}")
    if match[4] is None:
        return EventTime(wall, None, all_day=True)
    if match[7]:
        return EventTime(wall, UTC_ZONE)
    tzid = line.parameter("TZID")
    return EventTime(wall, find_event_zone(tzid, zones) if tzid else None)


def _length_of(first: Mapping[str, ContentLine], start: EventTime, zones: ZonesOfObject) -> EventLength:
    """By its end, as clocks show it if it is in the zone of the start; an end before the start is none."""
    default = EventLength(_DAY if start.all_day else timedelta())
    if "DTEND" in first:
        end = _time_of(first["DTEND"], first["DTEND"].value, zones)
        length = length_between(start, end)
    elif "DURATION" in first:
        length = _duration_of(first["DURATION"].value, start)
    else:
        return default
    if length.wall + length.exact > _LONGEST:
        raise UnreadableEvent("it lasts for more than a century")
    return default if length.wall + length.exact <= timedelta() else length


def length_between(start: EventTime, end: EventTime) -> EventLength:
    """From one time to another."""
    begun, ended = start.instant, end.instant
    if begun is None or ended is None or (start.zone and end.zone and start.zone.name == end.zone.name):
        return EventLength(end.wall - start.wall)
    return EventLength(timedelta(), ended - begun)


def _duration_of(value: str, start: EventTime) -> EventLength:
    match = _DURATION.fullmatch(value.strip().upper())
    if match is None or not any(match.groups()[1:]):
        raise UnreadableEvent(f"DURATION is {shown_text(value, 40)!r}, which is no length")
    weeks, days, hours, minutes, seconds = (int(one or 0) for one in match.groups()[1:])
    sign = -1 if match[1] == "-" else 1
    exact = sign * timedelta(hours=hours, minutes=minutes, seconds=seconds)
    nominal = sign * timedelta(days=7 * weeks + days)
    return EventLength(nominal + exact) if start.zone is None else EventLength(nominal, exact)


def _dates_of(properties: Iterable[ContentLine], zones: ZonesOfObject) -> RecurringDates:
    found: dict[str, list[ContentLine]] = {"RRULE": [], "EXRULE": [], "RDATE": [], "EXDATE": []}
    for line in properties:
        if line.name in found:
            found[line.name].append(line)
    if found["EXRULE"]:
        raise UnreadableEvent("it recurs but for an EXRULE, which is not supported")
    dates = [_period_of(line, value, zones) for line, value in _values_of(found["RDATE"])]
    without = [_time_of(line, value, zones) for line, value in _values_of(found["EXDATE"])]
    if len(dates) + len(without) > _MAX_DATES:
        raise UnreadableEvent(f"it recurs with more than {_MAX_DATES:,} dates")
    return RecurringDates(
        tuple(read_rule(line.value) for line in found["RRULE"]),
        tuple(dates),
        tuple(without),
    )


def _values_of(lines: Iterable[ContentLine]) -> Iterator[tuple[ContentLine, str]]:
    for line in lines:
        yield from ((line, value) for value in line.value.split(",") if value.strip())


def _period_of(line: ContentLine, value: str, zones: ZonesOfObject) -> tuple[EventTime, EventLength | None]:
    begin, slash, rest = value.partition("/")
    start = _time_of(line, begin, zones)
    if not slash:
        return start, None
    if rest.strip().upper().startswith(("P", "+P")):
        return start, _duration_of(rest, start)
    return start, length_between(start, _time_of(line, rest, zones))

"""Make the object of a new event: with its UID, a zone that any program can read, and who is invited. Pure.

`calendar_create` calls it. In: a `NewEvent`; out: the bytes of an object. The same event is the same bytes, whenever it
is made, so that a repeated creation is recognised. Next: `zones.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Final

from msgspec import Struct

from switchboard.core.text.content_lines import escape_text, fold_line
from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.fields import Guest, attendee_line, organizer_line
from switchboard.modules.calendar.editing.rules import RruleParts, last_wall, walls_of
from switchboard.modules.calendar.editing.times import WrittenTime, ZoneOf, iana_zone, time_line
from switchboard.modules.calendar.editing.zones import FURTHER, zone_lines

PRODUCT: Final = "-//Switchboard//Calendar//EN"
_LATEST: Final = 2199


class NewEvent(Struct, frozen=True):
    """An event that is to be created; `made` is the time of the call that creates it, in UTC."""

    uid: str
    made: datetime
    start: WrittenTime
    length: timedelta
    title: str
    place: str = ""
    notes: str = ""
    rule: RruleParts | None = None
    organizer: Guest | None = None
    guests: tuple[Guest, ...] = ()


def build_event(new: NewEvent, zone_of: ZoneOf = iana_zone) -> bytes:
    """The object. Raises InvalidInput for an event without a time, or one that others need an organizer for."""
    if new.length < timedelta() or (new.start.all_day and new.length < timedelta(days=1)):
        raise InvalidInput("the event would end before it begins", field="end")
    if new.guests and new.organizer is None:
        raise InvalidInput("nobody knows from which address this account invites", field="attendees")
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", f"PRODID:{PRODUCT}", "CALSCALE:GREGORIAN"]
    lines += zone_lines_of(new, zone_of)
    lines += _event_lines(new)
    lines.append("END:VCALENDAR")
    return b"".join(map(fold_line, lines))


def _event_lines(new: NewEvent) -> Iterator[str]:
    stamp = f"{new.made.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    yield from ("BEGIN:VEVENT", f"UID:{new.uid}", f"DTSTAMP:{stamp}", f"CREATED:{stamp}")
    yield time_line("DTSTART", new.start)
    yield time_line("DTEND", new.start.later_by(new.length))
    if new.rule is not None:
        yield f"RRULE:{new.rule}"
    for name, text in (("SUMMARY", new.title), ("LOCATION", new.place), ("DESCRIPTION", new.notes)):
        if text:
            yield f"{name}:{escape_text(text)}"
    yield "SEQUENCE:0"
    if new.guests and new.organizer is not None:
        yield organizer_line(new.organizer)
        yield from map(attendee_line, new.guests)
    yield "END:VEVENT"


def zone_lines_of(new: NewEvent, zone_of: ZoneOf) -> tuple[str, ...]:
    """The VTIMEZONE of an event, for all years in which it has dates; empty for a date, UTC and a floating time."""
    if new.start.all_day or new.start.zone in ("", "UTC"):
        return ()
    first = new.start.wall.year
    return zone_lines(new.start.zone, first, min(max(first, _last_year(new, zone_of)), _LATEST))


def _last_year(new: NewEvent, zone_of: ZoneOf) -> int:
    end = (new.start.wall + new.length).year
    if new.rule is None:
        return end
    if not new.rule.ends:
        return end + FURTHER
    if (last := last_wall(new.rule, new.start, zone_of)) is None:
        last = max(walls_of(new.rule, new.start, zone_of), default=datetime.combine(new.start.wall.date(), time()))
    return (last + new.length).year

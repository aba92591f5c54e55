"""Change the fields of one event, of a date of a series, or of the series' own part. Pure.

`scopes.py` says which parts are changed; here are the lines that this takes. In: an `EventPart` and an `EventEdit`;
out: `LineChange`s. Lines that say the same in another form, such as the HTML of a description, go with what they
repeat; DTSTAMP, LAST-MODIFIED and SEQUENCE are brought up to date; every other line stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct

from switchboard.core.text.content_lines import ContentLine, LineChange, escape_text
from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.series import EventPart, address_of
from switchboard.modules.calendar.editing.times import (
    WrittenTime,
    ZoneOf,
    quote_parameter,
    time_at,
    time_in,
    time_line,
    with_times,
    with_value,
    write_duration,
)

PartStat = Literal["ACCEPTED", "DECLINED", "TENTATIVE"]

TEXTS: Final[Mapping[str, str]] = {"title": "SUMMARY", "place": "LOCATION", "notes": "DESCRIPTION"}
"""The properties of texts that can be changed."""
_REPEATS: Final[Mapping[str, tuple[str, ...]]] = {
    "DESCRIPTION": ("X-ALT-DESC",),
    "LOCATION": ("GEO", "X-APPLE-STRUCTURED-LOCATION"),
    "DTSTART": ("X-MICROSOFT-CDO-ALLDAYEVENT", "X-MICROSOFT-MSNCALENDAR-ALLDAYEVENT"),
}
"""What other programs write beside a property, and would be wrong beside another value of it."""
_ALTERNATIVE: Final = re.compile(r';ALTREP=(?:"[^"]*"|[^;:]*)', re.IGNORECASE)
_ANSWER: Final = re.compile(r';PARTSTAT=(?:"[^"]*"|[^;:]*)', re.IGNORECASE)


class Guest(Struct, frozen=True):
    """Somebody who is invited: a mail address, and the name if it is known."""

    address: str
    name: str = ""


class EventEdit(Struct, frozen=True):
    """What is to be changed. None: not that; an empty text removes it. `length`: how long it takes on the clock."""

    title: str | None = None
    place: str | None = None
    notes: str | None = None
    start: WrittenTime | None = None
    length: timedelta | None = None
    invite: tuple[Guest, ...] = ()
    uninvite: tuple[str, ...] = ()

    def text(self, field: str) -> str | None:
        """One of the texts, by its name in `TEXTS`."""
        found: str | None = getattr(self, field)
        return found

    @property
    def reschedules(self) -> bool:
        """Whether others have to look at their answers again."""
        return self.start is not None or self.length is not None or self.place is not None


class EditContext(Struct, frozen=True):
    """Who edits, and when. `ours`: nobody else is the organizer. `organizer`: us, as one who invites."""

    now: datetime
    zone_of: ZoneOf
    ours: bool = True
    organizer: Guest | None = None


def fit_start(start: WrittenTime, like: WrittenTime, zone_of: ZoneOf) -> WrittenTime:
    """A new start in the form that the event has. Raises InvalidInput for a date instead of a time."""
    if start.all_day != like.all_day:
        kind = "all day, and stays so: give a date" if like.all_day else "at a time, and stays so: give a time"
        raise InvalidInput(f"this event is {kind}, or delete it and create a new one", field="start")
    if start.all_day or start.zone == like.zone:
        return start
    return time_at(start.instant(zone_of), like, zone_of)


def change_text(part: EventPart, name: str, text: str) -> Iterator[LineChange]:
    """Another text of a property; empty: none."""
    if part.text(name) == text:
        return
    found = part.all(name)
    for index, _ in [*found[1:], *(one for repeated in _REPEATS.get(name, ()) for one in part.all(repeated))]:
        yield LineChange(index, index + 1, ())
    if found:
        index, line = found[0]
        head = _ALTERNATIVE.sub("", line.head)
        yield LineChange(index, index + 1, (f"{head}:{escape_text(text)}",) if text else ())
    elif text:
        yield _insert_line(part, f"{name}:{escape_text(text)}")


def _insert_line(part: EventPart, *lines: str) -> LineChange:
    """New lines after the start, which every event has."""
    found = part.first("DTSTART")
    at = part.where.first + 1 if found is None else found[0] + 1
    return LineChange(at, at, lines)


def move_part(part: EventPart, delta: timedelta, length: timedelta | None) -> Iterator[LineChange]:
    """Move a part on the clock, each of its times in its own zone; it takes as long as before, or as `length` says."""
    start = part.start
    if delta and (begins := part.first("DTSTART")):
        yield LineChange(begins[0], begins[0] + 1, (with_times(begins[1], (start.later_by(delta),)),))
    if length is not None:
        yield from _set_length(part, start.later_by(delta), length)
    elif delta and (ends := part.first("DTEND")):
        yield LineChange(ends[0], ends[0] + 1, (with_times(ends[1], (time_in(ends[1]).later_by(delta),)),))


def _set_length(part: EventPart, start: WrittenTime, length: timedelta) -> Iterator[LineChange]:
    end = start.later_by(length)
    if (ends := part.first("DTEND")) is not None:
        same = ends[1].parameter("TZID") == (start.zone if start.zone != "UTC" else "")
        line = with_times(ends[1], (end,)) if same else time_line("DTEND", end)
        yield LineChange(ends[0], ends[0] + 1, (line,))
    elif (duration := part.first("DURATION")) is not None:
        yield LineChange(duration[0], duration[0] + 1, (with_value(duration[1], write_duration(length)),))
    else:
        yield _insert_line(part, time_line("DTEND", end))


def change_guests(part: EventPart, edit: EventEdit, context: EditContext) -> Iterator[LineChange]:
    """Invite and uninvite; the lines of all others stay. Raises InvalidInput if we do not know who invites."""
    leaving = {address_of(one) for one in edit.uninvite}
    there = {address_of(line.value): index for index, line in part.attendees}
    for address in leaving & set(there):
        yield LineChange(there[address], there[address] + 1, ())
    new = [one for one in edit.invite if address_of(one.address) not in there]
    if not new:
        return
    lines = [attendee_line(one) for one in new]
    if not part.organizer:
        if context.organizer is None:
            raise InvalidInput("nobody knows from which address this account invites", field="invite")
        lines.insert(0, organizer_line(context.organizer))
    yield _insert_line(part, *lines)


def attendee_line(guest: Guest) -> str:
    """Somebody who has not answered yet."""
    return f"ATTENDEE{_name_of(guest)};ROLE=REQ-PARTICIPANT;PARTSTAT=NEEDS-ACTION;RSVP=TRUE:mailto:{guest.address}"


def organizer_line(guest: Guest) -> str:
    """Who invites."""
    return f"ORGANIZER{_name_of(guest)}:mailto:{guest.address}"


def _name_of(guest: Guest) -> str:
    return f";CN={quote_parameter(guest.name)}" if guest.name else ""


def answer_lines(part: EventPart, own: frozenset[str], answer: PartStat) -> tuple[LineChange, ...]:
    """Our own answer to an invitation; nothing else of it. Empty: we are not invited to this part."""
    mine = [(index, line) for index, line in part.attendees if address_of(line.value) in own]
    return tuple(LineChange(index, index + 1, (with_answer(line, answer),)) for index, line in mine)


def with_answer(line: ContentLine, answer: PartStat) -> str:
    """The line of an attendee with another answer."""
    head = _ANSWER.sub(f";PARTSTAT={answer}", line.head, count=1)
    if head == line.head and line.parameter("PARTSTAT") != answer:
        head += f";PARTSTAT={answer}"
    return f"{head}:{line.value}"


def stamp_part(part: EventPart, context: EditContext, *, raises: bool) -> Iterator[LineChange]:
    """When it was changed; `raises`: also its SEQUENCE, by which programs of others know the latest one."""
    now = f"{context.now:%Y%m%dT%H%M%SZ}"
    for name in ("DTSTAMP", "LAST-MODIFIED"):
        for index, line in part.all(name):
            yield LineChange(index, index + 1, (with_value(line, now),))
    if not part.first("DTSTAMP"):
        yield _insert_line(part, f"DTSTAMP:{now}")
    if raises and context.ours:
        yield raise_sequence(part)


def raise_sequence(part: EventPart) -> LineChange:
    """The next SEQUENCE."""
    if (found := part.first("SEQUENCE")) is None:
        return _insert_line(part, "SEQUENCE:1")
    index, line = found
    number = int(line.value) + 1 if line.value.strip().isdecimal() else 1
    return LineChange(index, index + 1, (with_value(line, str(number)),))


def change_fields(part: EventPart, edit: EventEdit, context: EditContext) -> Sequence[LineChange]:
    """Its texts, and who is invited."""
    texts = [change_text(part, name, text) for field, name in TEXTS.items() if (text := edit.text(field)) is not None]
    return (*(change for one in texts for change in one), *change_guests(part, edit, context))


def edit_part(part: EventPart, edit: EventEdit, delta: timedelta, context: EditContext) -> Sequence[LineChange]:
    """All fields of one part, and when it was changed."""
    changes = (*change_fields(part, edit, context), *move_part(part, delta, edit.length))
    return (*changes, *stamp_part(part, context, raises=edit.reschedules)) if changes else ()

"""What the answer of an attendee, which came as a message, changes in our object. Pure.

The chore `answers` calls it. In: the bytes of a message and of the object; out: the object with another PARTSTAT, or
why not. The sender of the mail is known for certain, and speaks for nobody else. Next: `recipients.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final, get_args

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.content_lines import ContentLine, LineChange
from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.fields import PartStat, with_answer
from switchboard.modules.calendar.editing.scopes import with_override
from switchboard.modules.calendar.editing.series import CalendarSource, EventPart, find_date, read_source, series_of
from switchboard.modules.calendar.editing.times import WrittenTime, ZoneOf
from switchboard.modules.calendar.mailing.composing import recurrence_of, sequence_of, set_property
from switchboard.modules.calendar.mailing.recipients import mail_address

MOST_SAID: Final = 50
"""Dates of which one message may say something: each is a write."""
_ANSWERS: Final[dict[str, PartStat]] = {one: one for one in get_args(PartStat)}
_LONGEST_UID: Final = 1000


class AttendeeAnswer(Struct, frozen=True):
    """What an attendee says of an event or of one `date`: `made` is when, `sequence` of which version."""

    uid: str
    date: WrittenTime | None
    attendee: str
    answer: PartStat
    sequence: int
    made: datetime


class Cancellation(Struct, frozen=True):
    """That the organizer has cancelled an event, or one `date` of it."""

    organizer: str
    date: WrittenTime | None
    sequence: int


class ReadMessage(Struct, frozen=True):
    """The method of a message, the UID that it is about, and what its sender may say of it."""

    method: str
    uid: str
    answers: tuple[AttendeeAnswer, ...] = ()
    cancellations: tuple[Cancellation, ...] = ()


def read_message(data: bytes, sender: str) -> ReadMessage:
    """Of answers those of the sender are read, of cancellations those of its own events. Raises InvalidInput."""
    source = read_source(data)
    if len(source.uid) > _LONGEST_UID or "\0" in source.uid:
        raise InvalidInput("no event has such a UID", field="UID")
    if len(source.parts) > MOST_SAID:
        raise InvalidInput(f"it is about more than {MOST_SAID} dates", field="RECURRENCE-ID")
    method = next((source.lines[at].value for at in source.root.own() if source.lines[at].name == "METHOD"), "")
    read = ReadMessage(method.strip().upper(), source.uid)
    if read.method == "REPLY":
        found = [_answer_in(source, part, sender) for part in source.parts]
        return replace(read, answers=tuple(one for one in found if one is not None))
    if read.method == "CANCEL":
        gone = [
            Cancellation(sender, one.recurrence, sequence_of(one)) for one in source.parts if one.organizer == sender
        ]
        return replace(read, cancellations=tuple(gone))
    return read


def _answer_in(source: CalendarSource, part: EventPart, sender: str) -> AttendeeAnswer | None:
    for _, line in part.attendees:
        answer = _ANSWERS.get(line.parameter("PARTSTAT").upper())
        if mail_address(line) == sender and answer is not None:
            made = _made_at(part)
            return AttendeeAnswer(source.uid, part.recurrence, sender, answer, sequence_of(part), made)
    return None


def _made_at(part: EventPart) -> datetime:
    found = part.first("DTSTAMP")
    try:
        return datetime.strptime(found[1].value.strip() if found else "", "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise InvalidInput("the answer does not say when it was made", field="DTSTAMP") from None


class AppliedAnswer(Struct, frozen=True):
    """Our object with an answer; the same bytes if it has it already. `recurrence`: the date, as the object has it."""

    data: bytes
    recurrence: str


def apply_answer(data: bytes, said: AttendeeAnswer, zone_of: ZoneOf) -> AppliedAnswer:
    """An answer to a series is one to its dates, too, but for those of which they have said something else.

    Raises InvalidInput if they are not invited to it.
    """
    source = read_source(data)
    if said.date is not None:
        return _apply_to_date(source, said, zone_of)
    changes = [
        change
        for part in source.parts
        for change in _answer_lines(part, said)
        if part.recurrence is None or _is_open(source.lines[change.first])
    ]
    return AppliedAnswer(_change_source(source, changes), "")


def _apply_to_date(source: CalendarSource, said: AttendeeAnswer, zone_of: ZoneOf) -> AppliedAnswer:
    own, at = _with_date(source, said.date, zone_of)
    part = next(one for one in own.overrides if one.recurrence == at)
    if own.data != source.data and source.master is not None:
        known = [line.parameter("PARTSTAT").upper() for line in _lines_of(source.master, said)]
        if known == [said.answer]:  # it is as the series, and no part of its own
            return AppliedAnswer(source.data, recurrence_of(part))
    return AppliedAnswer(_change_source(own, _answer_lines(part, said)), recurrence_of(part))


def _change_source(source: CalendarSource, changes: list[LineChange]) -> bytes:
    if not changes:
        raise InvalidInput("the sender is not invited to it", field="ATTENDEE")
    return source.change([one for one in changes if one.lines != (_text_of(source.lines[one.first]),)])


def _answer_lines(part: EventPart, said: AttendeeAnswer) -> list[LineChange]:
    mine = [(index, line) for index, line in part.attendees if mail_address(line) == said.attendee]
    return [LineChange(index, index + 1, (with_answer(line, said.answer),)) for index, line in mine]


def _lines_of(part: EventPart, said: AttendeeAnswer) -> list[ContentLine]:
    return [line for _, line in part.attendees if mail_address(line) == said.attendee]


def _text_of(line: ContentLine) -> str:
    return f"{line.head}:{line.value}"


def _is_open(line: ContentLine) -> bool:
    return line.parameter("PARTSTAT").upper() in ("", "NEEDS-ACTION")


# Cancellations --------------------------------------------------------------------------------------------------------


def apply_cancellation(data: bytes, said: Cancellation, own: Collection[str], zone_of: ZoneOf) -> AppliedAnswer:
    """Our copy of somebody else's event as cancelled; the same bytes if it is already.

    Raises InvalidInput if it is not theirs, or ours is a later version.
    """
    source = read_source(data)
    organizers = {part.organizer for part in source.parts if part.organizer}
    if organizers != {said.organizer} or said.organizer in own:
        raise InvalidInput("its sender does not organise the event", field="ORGANIZER")
    source, at = _with_date(source, said.date, zone_of)
    parts = [part for part in source.parts if said.date is None or part.recurrence == at]
    if any(sequence_of(part) > said.sequence for part in parts):
        raise InvalidInput("there is a later version of the event", field="SEQUENCE")
    recurrence = "" if at is None else at.value
    if all(part.text("STATUS").strip().upper() == "CANCELLED" for part in parts):
        return AppliedAnswer(data, recurrence)
    changes = [change for part in parts for change in set_property(part, "STATUS", "CANCELLED")]
    return AppliedAnswer(source.change(changes), recurrence)


def _with_date(
    source: CalendarSource, at: WrittenTime | None, zone_of: ZoneOf
) -> tuple[CalendarSource, WrittenTime | None]:
    """The object with a part for a date, and the date as that has it. Raises InvalidInput if there is no such date."""
    if at is None:
        return source, None
    series = series_of(source, zone_of)
    if series is None:
        named = next((part for part in source.overrides if part.recurrence == at), None)
    else:
        try:
            date = find_date(series, series.as_date(at).value)
        except OverflowError:
            raise InvalidInput("no calendar has such a date", field="RECURRENCE-ID") from None
        source = read_source(with_override(series, date))
        named = replace(series, source=source).overridden().get(date.wall)
    if named is None:
        raise InvalidInput("the event has no such date", field="RECURRENCE-ID")
    return source, named.recurrence

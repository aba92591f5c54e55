"""What the answer of an attendee, which came as a message, changes in our object. Pure.

The chore `answers` calls it. In: the bytes of a message and of the object; out: the object with another PARTSTAT, or
why not. The sender of the mail is known for certain, and speaks for nobody else. Next: `recipients.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, get_args

from msgspec import Struct

from switchboard.core.text.content_lines import ContentLine, LineChange
from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.fields import PartStat, with_answer
from switchboard.modules.calendar.editing.scopes import with_override
from switchboard.modules.calendar.editing.series import CalendarSource, EventPart, find_date, read_source, series_of
from switchboard.modules.calendar.editing.times import WrittenTime, ZoneOf
from switchboard.modules.calendar.mailing.composing import recurrence_of, sequence_of
from switchboard.modules.calendar.mailing.recipients import mail_address

_ANSWERS: Final[dict[str, PartStat]] = {one: one for one in get_args(PartStat)}


class AttendeeAnswer(Struct, frozen=True):
    """What an attendee says of an event or of one `date`: `made` is when, `sequence` of which version."""

    uid: str
    date: WrittenTime | None
    attendee: str
    answer: PartStat
    sequence: int
    made: datetime


class ReadMessage(Struct, frozen=True):
    """The method of a message, and the UID that it is about; `answers`: those of a REPLY."""

    method: str
    uid: str
    answers: tuple[AttendeeAnswer, ...] = ()


def read_message(data: bytes, sender: str) -> ReadMessage:
    """A message, of which only what the sender says of themselves is read. Raises InvalidInput."""
    source = read_source(data)
    method = next((source.lines[at].value for at in source.root.own() if source.lines[at].name == "METHOD"), "")
    method = method.strip().upper()
    found = [_answer_in(source, part, sender) for part in source.parts] if method == "REPLY" else []
    return ReadMessage(method, source.uid, tuple(one for one in found if one is not None))


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
        return _apply_to_date(source, said, said.date, zone_of)
    changes = [
        change
        for part in source.parts
        for change in _answer_lines(part, said)
        if part.recurrence is None or _is_open(source.lines[change.first])
    ]
    return AppliedAnswer(_changed(source, changes), "")


def _apply_to_date(source: CalendarSource, said: AttendeeAnswer, at: WrittenTime, zone_of: ZoneOf) -> AppliedAnswer:
    series = series_of(source, zone_of)
    if series is None:
        part = next((one for one in source.overrides if one.recurrence == at), None)
        return _applied(source, part, said)
    date = series.as_date(at)
    if (part := series.overridden().get(date.wall)) is not None:
        return _applied(source, part, said)
    find_date(series, date.value)
    if all(line.parameter("PARTSTAT").upper() == said.answer for line in _lines_of(series.master, said)):
        return AppliedAnswer(_changed(source, _answer_lines(series.master, said)), date.value)
    own = read_source(with_override(series, date))
    return _applied(own, next((one for one in own.overrides if one.recurrence == date), None), said)


def _applied(source: CalendarSource, part: EventPart | None, said: AttendeeAnswer) -> AppliedAnswer:
    if part is None:
        raise InvalidInput("the event has no such date", field="RECURRENCE-ID")
    return AppliedAnswer(_changed(source, _answer_lines(part, said)), recurrence_of(part))


def _changed(source: CalendarSource, changes: list[LineChange]) -> bytes:
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

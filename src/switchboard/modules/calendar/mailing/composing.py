"""Messages to the programs of other people (iTIP, RFC 5546), made from the bytes of an object. Pure.

`recipients.py` says which of them are sent. In: a `CalendarSource` and the parts that a message is about; out: the
bytes of a message. Lines that we do not understand go along as they stand; what is nobody else's business stays here:
alarms, the marks of our own programs, and who was to send the message (RFC 6638, 7.1). Next: `words.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Final, Literal

from msgspec import Struct

from switchboard.core.text.content_lines import ContentLine, LineChange, escape_text
from switchboard.modules.calendar.editing.fields import PartStat, with_answer
from switchboard.modules.calendar.editing.series import CalendarSource, EventPart, address_of
from switchboard.modules.calendar.editing.times import WrittenTime, time_line, with_value

MailMethod = Literal["REQUEST", "CANCEL", "REPLY"]

LATEST_VERSION: Final = 2**31 - 1
"""The largest number that RFC 5545 knows, and a table keeps; strangers write others."""
MOST_COMMENT: Final = 200
"""Characters of what somebody adds to an answer."""

_OF_SENDING: Final = re.compile(r';SCHEDULE-(?:AGENT|STATUS|FORCE-SEND)=(?:"[^"]*"|[^;:]*)', re.IGNORECASE)
_LINE_ENDS: Final = re.compile(rb"\r\n|\r|\n")
_OF_OURS: Final = re.compile(r"X-(?:MOZ-(?:LASTACK|SNOOZE-|GENERATION|RECEIVED-)|APPLE-TRAVEL-|EVOLUTION-ALARM)")
"""Properties in which programs keep what is for their user alone, such as where a journey begins."""
_OF_ANSWERS: Final = frozenset(
    ("UID", "RECURRENCE-ID", "SEQUENCE", "DTSTART", "DTEND", "DURATION", "RRULE", "SUMMARY", "ORGANIZER")
)
_PEOPLE: Final = frozenset(("ATTENDEE", "ORGANIZER"))


def sequence_of(part: EventPart) -> int:
    """Which version of the part it is; 0 if that is no number."""
    found = part.first("SEQUENCE")
    said = "" if found is None else found[1].value.strip()
    version = int(said) if said.isdecimal() and len(said) <= len(str(LATEST_VERSION)) else 0
    return version if version <= LATEST_VERSION else 0


def set_property(part: EventPart, name: str, value: str) -> Iterator[LineChange]:
    """One line of a property, whatever there is of it now."""
    found = part.all(name)
    for index, _ in found[1:]:
        yield LineChange(index, index + 1, ())
    if found:
        index, line = found[0]
        yield LineChange(index, index + 1, (with_value(line, value),))
    else:
        at = part.where.first + 1
        yield LineChange(at, at, (f"{name}:{value}",))


def compose_request(
    source: CalendarSource, parts: Collection[EventPart], now: datetime, without: Collection[WrittenTime] = ()
) -> bytes:
    """An invitation to these parts, or what they are by now. `without`: dates to which they are not invited."""
    changes = [change for part in parts for change in set_property(part, "DTSTAMP", _stamp_of(now))]
    for part in parts:
        if without and part.recurrence is None:
            at = part.where.last
            changes.append(LineChange(at, at, tuple(time_line("EXDATE", one) for one in without)))
    return _compose_message(source, parts, "REQUEST", changes)


def compose_cancel(source: CalendarSource, part: EventPart, sequence: int, now: datetime, leaving: str) -> bytes:
    """That a part is cancelled; with `leaving`, for this attendee alone."""
    changes = [*set_property(part, "STATUS", "CANCELLED"), *set_property(part, "DTSTAMP", _stamp_of(now))]
    changes += set_property(part, "SEQUENCE", str(sequence))
    others = [index for index, line in part.attendees if leaving and address_of(line.value) != leaving]
    changes += [LineChange(index, index + 1, ()) for index in others]
    return _compose_message(source, (part,), "CANCEL", changes)


class OwnAnswer(Struct, frozen=True):
    """What we say to an invitation, and when."""

    answer: PartStat
    now: datetime
    comment: str = ""


def compose_reply(source: CalendarSource, part: EventPart, own: Collection[str], said: OwnAnswer) -> bytes:
    """Our answer to an invitation, with nothing else of the event than what says which one it is."""
    changes = [
        LineChange(index, index + 1, _answer_line(line, own, said.answer))
        for index, line in part.own
        if line.name not in _OF_ANSWERS
    ]
    head = (f"DTSTAMP:{_stamp_of(said.now)}", *((f"COMMENT:{escape_text(said.comment)}",) if said.comment else ()))
    at = part.where.first + 1
    changes.append(LineChange(at, at, (*head, "REQUEST-STATUS:2.0;Success")))
    return _compose_message(source, (part,), "REPLY", changes)


def _answer_line(line: ContentLine, own: Collection[str], answer: PartStat) -> tuple[str, ...]:
    if line.name == "ATTENDEE" and address_of(line.value) in own:
        return (_OF_SENDING.sub("", with_answer(line, answer)),)
    return ()


def _stamp_of(now: datetime) -> str:
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _compose_message(
    source: CalendarSource, parts: Collection[EventPart], method: MailMethod, changes: Collection[LineChange]
) -> bytes:
    """The object with these parts and the zones alone, with a method, and with CRLF at the end of each line."""
    kept = {part.where.first for part in parts}
    taken = {index for change in changes for index in range(change.first, change.last)}
    every = [*changes, *_method_lines(source, method)]
    for one in source.root.inner:
        if one.name != "VTIMEZONE" and one.first not in kept:
            every.append(LineChange(one.first, one.last + 1, ()))
    for part in parts:
        every += [LineChange(one.first, one.last + 1, ()) for one in part.where.inner]
        every += [change for change in _private_lines(part) if change.first not in taken]
    return _LINE_ENDS.sub(b"\r\n", source.change(every))


def _method_lines(source: CalendarSource, method: MailMethod) -> Iterator[LineChange]:
    """In place of a method that programs have left in the object by mistake."""
    for index in source.root.own():
        if source.lines[index].name == "METHOD":
            yield LineChange(index, index + 1, ())
    at = source.root.first + 1
    yield LineChange(at, at, (f"METHOD:{method}",))


def _private_lines(part: EventPart) -> Iterator[LineChange]:
    for index, line in part.own:
        if _OF_OURS.match(line.name):
            yield LineChange(index, index + 1, ())
        elif line.name in _PEOPLE and (head := _OF_SENDING.sub("", line.head)) != line.head:
            yield LineChange(index, index + 1, (f"{head}:{line.value}",))


def recurrence_of(part: EventPart) -> str:
    """Its RECURRENCE-ID as a value; empty for a series or a single event."""
    at = part.recurrence
    return "" if at is None else at.value

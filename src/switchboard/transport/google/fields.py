"""The fields of events in the Calendar API that an iCalendar object has, and what changes of it are there. Pure.

`writing.py` compares the fields of two objects and writes what differs. In: bytes of iCalendar; out: `ObjectFields`.
Lines that are none of these fields, such as stamps, alarms and what other programs note, change nothing. Next:
`writing.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import chain
from typing import Any, Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from switchboard.core.text.content_lines import Component, ContentLine, components_of, content_lines, text_of
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.collection_server import ServerError
from switchboard.transport.google.events import ANSWERS

_TIME: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?")
_DURATION: Final = re.compile(r"\+?P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
_DAY: Final = timedelta(days=1)
_STATUS: Final = {"TENTATIVE": "tentative"}
_VISIBILITY: Final = {"PUBLIC": "public", "PRIVATE": "private", "CONFIDENTIAL": "confidential"}
_ANSWER_OF: Final = {said: answer for answer, said in ANSWERS.items()}
_TEXTS: Final = {"SUMMARY": "summary", "LOCATION": "location", "DESCRIPTION": "description"}


class FieldTime(Struct, frozen=True):
    """What a line says: a date, or a wall time in a zone, which is UTC or an IANA name."""

    wall: datetime
    zone: str = ""
    all_day: bool = False

    @property
    def instant(self) -> datetime:
        """A day begins at midnight in UTC, as in `events.GoogleTime`."""
        return self.wall.replace(tzinfo=UTC if self.zone in ("", "UTC") else ZoneInfo(self.zone)).astimezone(UTC)

    @property
    def json(self) -> JsonObject:
        """As the API takes it."""
        if self.all_day:
            return {"date": f"{self.wall:%Y-%m-%d}"}
        return {"dateTime": f"{self.wall:%Y-%m-%dT%H:%M:%S}{'Z' if self.zone == 'UTC' else ''}", "timeZone": self.zone}

    def later_by(self, length: timedelta) -> FieldTime:
        """On the clock."""
        return FieldTime(self.wall + length, self.zone, self.all_day)


class PartFields(Struct, frozen=True):
    """What one VEVENT says: `plain` fields as JSON, attendees by address with their names and answers.

    `left_out`: dates of a series that do not take place, by their instants, each with its line.
    """

    start: FieldTime
    length: timedelta
    plain: Mapping[str, Any]
    attendees: Mapping[str, tuple[str, str]]
    left_out: Mapping[datetime, str]

    @property
    def recurrence(self) -> list[str]:
        """As the API takes it, with the dates that do not take place."""
        return [*self.plain["recurrence"], *self.left_out.values()]

    def on(self, at: datetime) -> PartFields:
        """Of a series: the date that begins at an instant, as the series has it."""
        zone = UTC if self.start.zone in ("", "UTC") else ZoneInfo(self.start.zone)
        start = FieldTime(at.astimezone(zone).replace(tzinfo=None), self.start.zone, self.start.all_day)
        times = {"start": start.json, "end": start.later_by(self.length).json, "recurrence": []}
        return PartFields(start, self.length, {**self.plain, **times}, self.attendees, {})


class ObjectFields(Struct, frozen=True):
    """An object: its UID, its event or series (None: only dates of one are known), and the dates that are different."""

    uid: str
    master: PartFields | None
    dates: Mapping[datetime, PartFields]

    @property
    def left_out(self) -> frozenset[datetime]:
        """The dates that do not take place."""
        return frozenset(self.master.left_out if self.master is not None else ())

    def on(self, at: datetime) -> PartFields | None:
        """What it says of a date; None: nothing."""
        return self.dates.get(at) or (self.master.on(at) if self.master is not None else None)


NO_FIELDS: Final = ObjectFields("", None, {})


def object_fields(data: bytes) -> ObjectFields:
    """Raises ServerError (`refused`) for what Google cannot keep."""
    lines = content_lines(data)
    roots = [one for one in components_of(lines) if one.name == "VCALENDAR"]
    parts = [one for root in roots for one in root.inner if one.name == "VEVENT"]
    if not parts:
        raise _refusal_of("there is no event in it")
    own = [_own_lines(lines, one) for one in parts]
    masters = [one for one in own if "RECURRENCE-ID" not in one]
    if len(masters) > 1:
        raise _refusal_of("there are several events in it")
    uid = next((text_of(one["UID"][0]) for one in own if "UID" in one), "")
    dates = {time_of(one["RECURRENCE-ID"][0]).instant: _fields_of(one) for one in own if "RECURRENCE-ID" in one}
    return ObjectFields(uid, _fields_of(masters[0]) if masters else None, dates)


def _own_lines(lines: Sequence[ContentLine], part: Component) -> Mapping[str, list[ContentLine]]:
    found: dict[str, list[ContentLine]] = {}
    for index in part.own():
        found.setdefault(lines[index].name, []).append(lines[index])
    return found


def _refusal_of(why: str) -> ServerError:
    return ServerError("refused", f"Google cannot keep this event: {why}")


def _fields_of(own: Mapping[str, list[ContentLine]]) -> PartFields:
    start = _start_of(own)
    end = _end_of(own, start)
    rules = [f"{line.head}:{line.value}" for name in ("RRULE", "RDATE") for line in own.get(name, ())]
    plain: JsonObject = {
        **{field: text_of(own[name][0]) if name in own else "" for name, field in _TEXTS.items()},
        "start": start.json,
        "end": end.json,
        "recurrence": rules,
        "status": _STATUS.get(_word_of(own, "STATUS"), "confirmed"),
        "visibility": _VISIBILITY.get(_word_of(own, "CLASS"), "default"),
        "transparency": "transparent" if _word_of(own, "TRANSP") == "TRANSPARENT" else "opaque",
    }
    attendees = {
        line.value.strip().lower().removeprefix("mailto:"): (
            line.parameter("CN"),
            _ANSWER_OF.get(line.parameter("PARTSTAT").upper(), "needsAction"),
        )
        for line in own.get("ATTENDEE", ())
    }
    left_out = dict(_left_out(own.get("EXDATE", ())))
    return PartFields(start, end.wall - start.wall, plain, attendees, left_out)


def _word_of(own: Mapping[str, list[ContentLine]], name: str) -> str:
    return own[name][0].value.strip().upper() if name in own else ""


def _left_out(lines: Iterable[ContentLine]) -> Iterator[tuple[datetime, str]]:
    for line in lines:
        for value in line.value.split(","):
            yield _read_time(line, value).instant, f"{line.head}:{value.strip()}"


def _start_of(own: Mapping[str, list[ContentLine]]) -> FieldTime:
    if "DTSTART" not in own:
        raise _refusal_of("it has no start")
    return time_of(own["DTSTART"][0])


def _end_of(own: Mapping[str, list[ContentLine]], start: FieldTime) -> FieldTime:
    if "DTEND" in own:
        return time_of(own["DTEND"][0])
    if "DURATION" in own:
        match = _DURATION.fullmatch(own["DURATION"][0].value.strip().upper())
        if match is None:
            raise _refusal_of("its length is none")
        weeks, days, hours, minutes, seconds = (int(one or 0) for one in match.groups())
        return start.later_by(timedelta(days=7 * weeks + days, hours=hours, minutes=minutes, seconds=seconds))
    return start.later_by(_DAY) if start.all_day else start


def time_of(line: ContentLine) -> FieldTime:
    """The value of a line with one time. Raises ServerError (`refused`)."""
    return _read_time(line, line.value)


def _read_time(line: ContentLine, value: str) -> FieldTime:
    match = _TIME.fullmatch(value.strip())
    if match is None:
        raise _refusal_of(f"{line.name} is no time")
    try:
        year, month, day, hour, minute, second = (int(one or 0) for one in match.groups()[:6])
        wall = datetime.combine(date(year, month, day), time(hour, minute, min(second, 59)))
    except ValueError:
        raise _refusal_of(f"{line.name} is no time") from None
    if match[4] is None:
        return FieldTime(wall, all_day=True)
    zone = "UTC" if match[7] else line.parameter("TZID")
    try:
        ZoneInfo(zone)
    except (OSError, ValueError, LookupError):
        raise _refusal_of(
            f"{line.name} is in no time zone that has a name" if zone else f"{line.name} has no zone"
        ) from None
    return FieldTime(wall, zone)


# What differs ---------------------------------------------------------------------------------------------------------


def changed_fields(old: PartFields, new: PartFields) -> JsonObject:
    """The plain fields that are another value in `new`; None removes one."""
    changed = {name: value for name, value in new.plain.items() if value != old.plain[name]}
    return {name: None if value in ("", []) else value for name, value in changed.items()}


def lies_between(old: ObjectFields, now: ObjectFields, new: ObjectFields) -> bool:
    """Whether an object has nothing else than what it had before, or is to have: nobody else has changed it."""
    if (old.master is None) != (now.master is None):
        return False
    if not (now.master is None or _is_date_between(old.master, now.master, new.master)):
        return False
    stays, may_go = old.left_out & new.left_out, old.left_out | new.left_out | (old.dates.keys() - new.dates.keys())
    if not stays <= now.left_out <= may_go:
        return False
    return all(_is_date_between(old.on(at), part, new.on(at)) for at, part in now.dates.items())


def is_done(now: ObjectFields, new: ObjectFields) -> bool:
    """Whether an object is all that it is to be."""
    return lies_between(new, now, new) and set(new.dates) <= set(now.dates)


def has_some(old: ObjectFields, now: ObjectFields, new: ObjectFields) -> bool:
    """Whether anything of what is new is there."""
    pairs = [(old.master, now.master, new.master), *((old.on(at), now.on(at), new.on(at)) for at in new.dates)]
    return (old.left_out ^ new.left_out) != (now.left_out ^ new.left_out) or any(
        one.plain[name] == after.plain[name] != before.plain[name]
        for before, one, after in pairs
        if before is not None and one is not None and after is not None
        for name in after.plain
    )


def _is_date_between(old: PartFields | None, now: PartFields, new: PartFields | None) -> bool:
    first, last = old or new, new or old
    return first is not None and last is not None and _is_between(first, now, last)


def _is_between(old: PartFields, now: PartFields, new: PartFields) -> bool:
    plain = all(now.plain[name] in (old.plain[name], new.plain[name]) for name in new.plain)
    everybody = set(chain(old.attendees, now.attendees, new.attendees))
    invited = all(_answer_in(now, one) in (_answer_in(old, one), _answer_in(new, one)) for one in everybody)
    return plain and invited


def is_part_of(wanted: PartFields, there: PartFields) -> bool:
    """Whether all that is wanted is there; who is invited may have answered meanwhile."""
    plain = all(_normal_value(there.plain[name]) == _normal_value(value) for name, value in wanted.plain.items())
    return plain and set(wanted.attendees) <= set(there.attendees)


def _normal_value(value: object) -> object:
    """Without what a server may write in another way: the order of a rule's parts, ends of lines and of texts."""
    if isinstance(value, str):
        return "\n".join(line.rstrip() for line in value.strip().splitlines())
    if isinstance(value, list):
        return sorted(tuple(sorted(str(one).upper().partition(":")[2].split(";"))) for one in value)
    return value


def _answer_in(part: PartFields, address: str) -> str:
    return part.attendees[address][1] if address in part.attendees else ""


def merged_attendees(
    old: Mapping[str, tuple[str, str]], new: Mapping[str, tuple[str, str]], there: Sequence[JsonMapping]
) -> list[JsonObject] | None:
    """The array as it was just read, with what `new` changes in `old`; None: that is nothing."""
    kept = [dict(one) for one in there if _address_in(one) in new or _address_in(one) not in old]
    for one in kept:
        address = _address_in(one)
        if address in old and old[address][1] != new[address][1]:
            one["responseStatus"] = new[address][1]
    known = {_address_in(one) for one in there}
    kept += [new_attendee(one, name) for one, (name, _) in new.items() if one not in old and one not in known]
    return kept if kept != [*there] else None


def _address_in(attendee: JsonMapping) -> str:
    return str(attendee.get("email", "")).lower()


def new_attendee(address: str, name: str) -> JsonObject:
    """Somebody who is invited."""
    return {"email": address, "displayName": name} if name else {"email": address}

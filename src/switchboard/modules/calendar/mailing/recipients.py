"""Who gets which message when an object changes, and in which version. Pure.

`write_plans.py` calls it for accounts whose invitations are mailed. In: the bytes of an object before and after; out:
the bytes to write, with the versions by which programs of others know the latest one, and `PlannedMail`s. Each is one
by (UID, RECURRENCE-ID, SEQUENCE, method, recipient). Next: `composing.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.content_lines import ContentLine, LineChange
from switchboard.modules.calendar.editing.scopes import with_override
from switchboard.modules.calendar.editing.series import (
    CalendarSource,
    EventPart,
    Series,
    address_of,
    read_source,
    series_of,
)
from switchboard.modules.calendar.editing.times import WrittenTime, ZoneOf
from switchboard.modules.calendar.mailing.composing import (
    MailMethod,
    OwnAnswer,
    compose_cancel,
    compose_reply,
    compose_request,
    recurrence_of,
    sequence_of,
    set_property,
)
from switchboard.modules.calendar.mailing.words import MailWords, words_of, words_of_answer

_AGENT: Final = re.compile(r';SCHEDULE-AGENT=(?:"[^"]*"|[^;:]*)', re.IGNORECASE)
_CLIENT: Final = re.compile(r';SCHEDULE-AGENT="?CLIENT"?(?=[;:]|$)', re.IGNORECASE)
_SIGNIFICANT: Final = ("DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "LOCATION", "STATUS")
"""What a version is new by. EXDATE is told date by date."""
_MOST_DATES: Final = 50


class PlannedMail(Struct, frozen=True):
    """A message to one address. `ics`: the message; `words`: the same for a person.

    The first five make it one.
    """

    uid: str
    recurrence: str
    sequence: int
    method: MailMethod
    recipient: str
    sender: str
    ics: bytes
    words: MailWords


class ObjectChange(Struct, frozen=True):
    """An object before and after a write; None: it is not there. `sent`: the latest version that was mailed before."""

    before: bytes | None
    after: bytes | None
    own: frozenset[str]
    zone_of: ZoneOf
    now: datetime
    sent: int = -1


class MailedWrite(Struct, frozen=True):
    """An object to write, and whom to mail what once it is written."""

    after: bytes | None
    mails: tuple[PlannedMail, ...]


def mailed_write(change: ObjectChange) -> MailedWrite:
    """A write of an object that we organise. Raises InvalidInput."""
    after = None if change.after is None else with_agent(change.after, client=True)
    final = with_versions(replace(change, after=after))
    return MailedWrite(final, mails_between(replace(change, after=final)))


def with_agent(data: bytes, *, client: bool) -> bytes:
    """An object whose attendees are told by us; if not, by the server again, where we have told them before."""
    changes = []
    for part in read_source(data).parts:
        for index, line in part.attendees:
            head = f"{_AGENT.sub('', line.head)};SCHEDULE-AGENT=CLIENT" if client else _CLIENT.sub("", line.head)
            if head != line.head and not (client and line.parameter("SCHEDULE-AGENT").upper() == "CLIENT"):
                changes.append(LineChange(index, index + 1, (f"{head}:{line.value}",)))
    return read_source(data).change(changes)


def attendees_of(part: EventPart, own: Collection[str]) -> Mapping[str, ContentLine]:
    """Those of a part who can be mailed, by address, without us and the organizer."""
    found = {mail_address(line): line for _, line in part.attendees}
    return {one: line for one, line in found.items() if one and one not in own and one != part.organizer}


def mail_address(line: ContentLine) -> str:
    """The address at which somebody is mailed; empty: there is none."""
    named = address_of(line.value)
    plain = named if "@" in named and ":" not in named else line.parameter("EMAIL").strip().lower()
    return plain if "@" in plain else ""


# Versions -------------------------------------------------------------------------------------------------------------


def with_versions(change: ObjectChange) -> bytes | None:
    """The object to write: a part that has changed for others has a later SEQUENCE than they have seen."""
    if change.after is None:
        return None
    after = read_source(change.after)
    before = None if change.before is None else read_source(change.before)
    changes = [one for part in after.parts for one in _raise_version(part, before, after, change)]
    return after.change(changes)


def _raise_version(
    part: EventPart, before: CalendarSource | None, after: CalendarSource, change: ObjectChange
) -> Iterator[LineChange]:
    wanted = _wanted_version(part, before, after, change)
    if sequence_of(part) < wanted:
        yield from set_property(part, "SEQUENCE", str(wanted))


def _wanted_version(part: EventPart, before: CalendarSource | None, after: CalendarSource, change: ObjectChange) -> int:
    if before is None:
        return change.sent + 1
    old = _part_before(part, before)
    if old is None:
        return sequence_of(part)
    if part.recurrence is None and _is_reset(before, after, change):
        return max(change.sent, *map(sequence_of, before.parts)) + 1
    changed = _is_changed(old, part) or (old.recurrence is None) != (part.recurrence is None)
    left = attendees_of(old, change.own).keys() - attendees_of(part, change.own).keys()
    if part.recurrence is None and left:
        return max(map(sequence_of, before.parts)) + 1
    if part.recurrence is not None:
        left |= _left_series(before, after, change) & attendees_of(part, change.own).keys()
    less = part.recurrence is None and _left_out(before, after, change)
    return sequence_of(old) + (1 if changed or left or less else 0)


def _left_series(before: CalendarSource, after: CalendarSource, change: ObjectChange) -> Collection[str]:
    """Who is not invited to the series any more, but perhaps to dates of it."""
    if before.master is None or after.master is None:
        return set()
    return attendees_of(before.master, change.own).keys() - attendees_of(after.master, change.own).keys()


def _part_before(part: EventPart, before: CalendarSource) -> EventPart | None:
    """The same part before; of a date that was none of its own, the series."""
    rid = recurrence_of(part)
    return next((one for one in before.parts if recurrence_of(one) == rid), before.master)


def _is_changed(old: EventPart, new: EventPart) -> bool:
    """Whether time, place, recurrence or status differ."""
    return any(_values_of(old, name) != _values_of(new, name) for name in _SIGNIFICANT)


def _values_of(part: EventPart, name: str) -> list[tuple[str, str]]:
    return sorted((line.parameter("TZID"), line.value.strip()) for _, line in part.all(name))


def _is_reset(before: CalendarSource, after: CalendarSource, change: ObjectChange) -> bool:
    """Whether dates that were changed or left out are as the series again, which no message about them could say."""
    old, new = series_of(before, change.zone_of), series_of(after, change.zone_of)
    if old is None or new is None:
        return False
    if old.dates_in("EXDATE").keys() - new.dates_in("EXDATE").keys():
        return True
    if _rejoin_dates(old, new, change.own):
        return True
    kept = new.overridden().keys() | new.dates_in("EXDATE").keys()
    return any(_has_date(new, wall) for wall in old.overridden().keys() - kept)


def _rejoin_dates(old: Series, new: Series, own: Collection[str]) -> bool:
    """Whether somebody is invited again to a date without which they have the series."""
    series = attendees_of(old.master, own).keys() & attendees_of(new.master, own).keys()
    dates = new.overridden()
    return any(
        (attendees_of(dates[wall], own).keys() - attendees_of(part, own).keys()) & series
        for wall, part in old.overridden().items()
        if wall in dates
    )


def _has_date(series: Series, wall: datetime) -> bool:
    return next((one for one in series.walls() if one >= wall), None) == wall


def _left_out(before: CalendarSource, after: CalendarSource, change: ObjectChange) -> Sequence[WrittenTime]:
    """Dates that the series has no more, one by one."""
    if before.master is None or after.master is None:
        return ()
    old, new = series_of(before, change.zone_of), series_of(after, change.zone_of)
    if old is None or new is None or _is_changed(before.master, after.master):
        return ()
    known = old.dates_in("EXDATE")
    return [old.as_date(at) for wall, at in new.dates_in("EXDATE").items() if wall not in known][:_MOST_DATES]


# Who gets what --------------------------------------------------------------------------------------------------------


def mails_between(change: ObjectChange) -> tuple[PlannedMail, ...]:
    """All messages of a write; `change.after` is what `with_versions` and `with_agent` have made."""
    before = None if change.before is None else read_source(change.before)
    after = None if change.after is None else read_source(change.after)
    people: dict[str, None] = {}
    for source in (before, after):
        for part in source.parts if source is not None else ():
            people |= dict.fromkeys(attendees_of(part, change.own))
    return tuple(mail for one in people for mail in _mails_to(one, before, after, change))


def _mails_to(
    address: str, before: CalendarSource | None, after: CalendarSource | None, change: ObjectChange
) -> Iterator[PlannedMail]:
    old = _parts_with(address, before, change)
    new = _parts_with(address, after, change)
    if before is not None and (not new or ("" in old and "" not in new)):
        yield from _cancel_all(address, before, old, after, change)
        old = {}
    if after is None or not new:
        return
    if "" in new and _is_told_anew(address, before, after, change):
        without = [one.recurrence for one in after.overrides if one.recurrence and recurrence_of(one) not in new]
        yield _make_request(address, after, [*new.values()], change, is_new="" not in old, without=without)
        return
    for rid, part in new.items():
        previous = None if before is None else _part_before(part, before)
        invited = bool(old) and previous is not None and address in attendees_of(previous, change.own)
        if rid and (previous is None or not invited or _is_news(previous, part)):
            yield _make_request(address, after, [part], change, is_new=not invited)
    if before is not None and old:
        yield from _cancel_dates(address, before, after, change)


def _parts_with(address: str, source: CalendarSource | None, change: ObjectChange) -> dict[str, EventPart]:
    parts = source.parts if source is not None else ()
    return {recurrence_of(part): part for part in parts if address in attendees_of(part, change.own)}


def _is_told_anew(address: str, before: CalendarSource | None, after: CalendarSource, change: ObjectChange) -> bool:
    """Whether the series as a whole is told: it is new to them, or is not as it was."""
    if before is None or before.master is None or after.master is None:
        return True
    known = address in attendees_of(before.master, change.own)
    return not known or _is_changed(before.master, after.master) or _is_reset(before, after, change)


def _is_news(previous: EventPart, part: EventPart) -> bool:
    """Whether a date is different from what was told of it."""
    if previous.recurrence is None:
        return True
    return _is_changed(previous, part)


def _make_request(
    address: str,
    source: CalendarSource,
    parts: Sequence[EventPart],
    change: ObjectChange,
    *,
    is_new: bool,
    without: Sequence[WrittenTime] = (),
) -> PlannedMail:
    first = parts[0]
    words = words_of(first, "REQUEST", is_new=is_new)
    ics = compose_request(source, parts, change.now, without)
    version = sequence_of(first)
    return PlannedMail(source.uid, recurrence_of(first), version, "REQUEST", address, first.organizer, ics, words)


def _cancel_all(
    address: str,
    before: CalendarSource,
    parts: Mapping[str, EventPart],
    after: CalendarSource | None,
    change: ObjectChange,
) -> Iterator[PlannedMail]:
    """The event goes, or they are no longer invited to any of it."""
    for part in [parts[""]] if "" in parts else parts.values():
        yield _make_cancel(address, before, part, _version_of_end(part, before, after), change, all_leave=after is None)


def _version_of_end(part: EventPart, before: CalendarSource, after: CalendarSource | None) -> int:
    latest = max(sequence_of(one) for one in before.parts) if part.recurrence is None else sequence_of(part)
    if after is None:
        return latest + 1
    now = next((one for one in after.parts if recurrence_of(one) == recurrence_of(part)), after.master)
    return max(latest + 1, 0 if now is None else sequence_of(now))


def _make_cancel(
    address: str, source: CalendarSource, part: EventPart, sequence: int, change: ObjectChange, *, all_leave: bool
) -> PlannedMail:
    ics = compose_cancel(source, part, sequence, change.now, "" if all_leave else address)
    words = words_of(part, "CANCEL")
    return PlannedMail(source.uid, recurrence_of(part), sequence, "CANCEL", address, part.organizer, ics, words)


def _cancel_dates(
    address: str, before: CalendarSource, after: CalendarSource, change: ObjectChange
) -> Iterator[PlannedMail]:
    """Dates of what remains: left out, or to which they are no longer invited."""
    kept = _parts_with(address, after, change)
    gone: dict[str, PlannedMail] = {}
    if (series := series_of(before, change.zone_of)) is not None and after.master is not None:
        for source, part, version in _dates_gone(series, after, kept, change):
            if address in attendees_of(part, change.own):
                left_out = source.master is not None and recurrence_of(part) not in map(recurrence_of, after.overrides)
                gone[recurrence_of(part)] = _make_cancel(address, source, part, version, change, all_leave=left_out)
    if "" not in kept:
        for rid, part in _parts_with(address, before, change).items():
            if rid not in kept and rid not in gone:
                version = _version_of_end(part, before, after)
                gone[rid] = _make_cancel(address, before, part, version, change, all_leave=False)
    yield from gone.values()


def _dates_gone(
    series: Series, after: CalendarSource, kept: Collection[str], change: ObjectChange
) -> Iterator[tuple[CalendarSource, EventPart, int]]:
    """Dates that are left out, or others than those of which somebody is told, and the version of their end."""
    for at in _left_out(series.source, after, change):
        source, part = _part_of_date(series, at)
        yield source, part, max(sequence_of(after.master or part), sequence_of(part) + 1)
    for new in after.overrides if "" in kept else ():
        if new.recurrence is not None and recurrence_of(new) not in kept:
            source, part = _part_of_date(series, series.as_date(new.recurrence))
            yield source, part, sequence_of(new)


def _part_of_date(series: Series, at: WrittenTime) -> tuple[CalendarSource, EventPart]:
    """A date of a series as a part of its own, and the object that has it."""
    source = read_source(with_override(series, at))
    of_date = (one for one in source.overrides if one.recurrence and series.as_date(one.recurrence).wall == at.wall)
    return source, next(of_date)


def reply_to(source: CalendarSource, part: EventPart, own: Collection[str], said: OwnAnswer) -> PlannedMail:
    """Our answer to the organizer of a part, by the address that is invited."""
    mine = next((one for _, line in part.attendees if (one := address_of(line.value)) in own), "")
    ics = compose_reply(source, part, own, said)
    words = words_of_answer(part, said.answer, mine, said.comment)
    return PlannedMail(source.uid, recurrence_of(part), sequence_of(part), "REPLY", part.organizer, mine, ics, words)

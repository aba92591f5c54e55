"""What tools of calendars say: JSON with weekday, local time and zone, from what was found. Pure.

`tools.py` calls it. Texts of others are data: they stand in JSON, are bounded, and have nothing invisible. What is not
told is left out, not hidden behind a word. Next: `looking.py`, whose values these are made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from switchboard.domain.json_values import JsonObject
from switchboard.modules.calendar.busy import BusyBlock
from switchboard.modules.calendar.days import AskedRange
from switchboard.modules.calendar.looking import AccountDates, FoundDate, Freshness

_ATTENDEES: Final = 10
_NOTES: Final = 200
_SECOND: Final = timedelta(seconds=1)


def show_events(found: Sequence[AccountDates], asked: AskedRange) -> list[JsonObject]:
    """The dates that were asked for, in order; one meeting in several calendars once, as that of which most is told."""
    best: dict[tuple[str, datetime], tuple[FoundDate, AccountDates, list[str]]] = {}
    for account in found:
        for one in filter(lambda date: is_asked(date, asked), account.dates):
            key = (one.same, one.begins(asked.zone))
            before = best.get(key)
            names = [*(before[2] if before else []), *([one.calendar] if one.calendar else [])]
            better = before is None or (one.told and not before[0].told)
            best[key] = (one, account, names) if better or before is None else (*before[:2], names)
    ordered = sorted(best.values(), key=lambda entry: entry[0].begins(asked.zone))
    return [_event_object(one, account.account.whose, names, asked.zone) for one, account, names in ordered]


def _event_object(one: FoundDate, whose: str, calendars: Sequence[str], zone: ZoneInfo) -> JsonObject:
    shown = times_object(one, zone)
    if not one.told:
        return {**shown, "whose": whose, "state": one.busy}
    shown["id"] = f"{one.uid}/{one.recurrence}" if one.recurrence else one.uid
    if one.invited:
        return {**shown, "unaccepted_invitation": True, "organizer": one.organizer}
    texts = {"title": one.title, "place": one.location, "notes": _clip_notes(one.notes), "organizer": one.organizer}
    shown |= {name: text for name, text in texts.items() if text}
    if one.attendees:
        answers = zip(one.attendees[:_ATTENDEES], one.answers, strict=False)
        shown["attendees"] = [f"{who} {answer.lower()}" for who, answer in answers]
        if len(one.attendees) > _ATTENDEES:
            shown["more_attendees"] = len(one.attendees) - _ATTENDEES
    if one.answer:
        shown["own_answer"] = one.answer.lower()
    return {**shown, "state": one.busy, "calendar": ", ".join(dict.fromkeys(calendars)), "whose": whose}


def times_object(one: FoundDate, zone: ZoneInfo) -> JsonObject:
    """When it is, for somebody in a zone; whole days as dates, the last one included."""
    begin, end = one.begins(zone), one.finishes(zone)
    if one.all_day:
        first, last = one.wall_start.date(), max(one.wall_start, one.wall_end - _SECOND).date()
        days: JsonObject = {"weekday": f"{first:%A}", "start": str(first), "all_day": True}
        return days if first == last else {**days, "last_day": str(last)}
    shown: JsonObject = {"weekday": f"{begin:%A}", **span_object(begin, end), "zone": zone.key}
    if one.zone and one.zone != zone.key:
        shown["calendar_zone"] = one.zone
    return {**shown, "zone_guessed": True} if one.zone_guessed else shown


def span_object(begin: datetime, end: datetime) -> JsonObject:
    """Two local times with their offsets."""
    return {"start": begin.isoformat(timespec="minutes"), "end": end.isoformat(timespec="minutes")}


def show_range(asked: AskedRange) -> str:
    """What was asked about, as it was understood."""
    days = f"{asked.first:%A} {asked.first}"
    if asked.last != asked.first:
        days += f" to {asked.last:%A} {asked.last}"
    hours = ""
    if (asked.begin, asked.end) != (0, 1440):
        hours = f", {_clock_time(asked.begin)}-{_clock_time(asked.end)}"
    return f"{days}{hours} ({asked.zone.key})"


def _clock_time(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def is_asked(one: FoundDate, asked: AskedRange) -> bool:
    """Whether a date is in the part of a day that was asked about; a whole day is in all of them."""
    if one.all_day or (asked.begin, asked.end) == (0, 1440):
        return True
    begin, end = one.begins(asked.zone), one.finishes(asked.zone)
    return any(begin < until and (end > since or begin >= since) for since, until in asked.spans)


def blocks_of(dates: Iterable[FoundDate], zone: ZoneInfo) -> Iterable[BusyBlock]:
    """What keeps somebody busy. Calendars of others, and those that they cannot write to, do not."""
    for one in dates:
        if one.busy in ("busy", "tentative") and one.own:
            yield BusyBlock(one.begins(zone), one.finishes(zone), one.busy == "tentative")


def blocks_within(blocks: Iterable[BusyBlock], asked: AskedRange) -> list[BusyBlock]:
    """The parts of blocks that lie in what was asked about."""
    found = []
    for since, until in asked.spans:
        for one in blocks:
            start, end = max(one.start, since), min(one.end, until)
            if start < end:
                found.append(BusyBlock(start, end, one.tentative))
    return found


def show_block(one: BusyBlock, zone: ZoneInfo) -> JsonObject:
    """A block with the weekday on which it begins."""
    begin = one.start.astimezone(zone)
    times = span_object(begin, one.end.astimezone(zone))
    return {"weekday": f"{begin:%A}", **times, "state": "tentative" if one.tentative else "busy"}


def show_freshness(found: Iterable[tuple[Freshness, str]], zone: ZoneInfo) -> JsonObject:
    """How current an answer is, from the accounts that it is made of and what is missing in each."""
    pairs = list(found)
    times = [one.as_of for one, _ in pairs]
    known = [at for at in times if at is not None]
    missing = list(dict.fromkeys(why for _, why in pairs if why))
    complete = len(known) == len(times) and not missing and all(one.complete for one, _ in pairs)
    shown: JsonObject = {"as_of": min(known).astimezone(zone).isoformat(timespec="minutes") if known else None}
    unreadable = sum(one.unreadable for one, _ in pairs)
    notes = list(missing)
    if unreadable:
        notes.append(f"{unreadable} entries of these calendars cannot be read.")
    if any(one.stale for one, _ in pairs):
        notes.append("The server has not been read for a while: this may be out of date.")
    shown["complete"] = complete and not unreadable
    return {**shown, "note": " ".join(notes)} if notes else shown


def _clip_notes(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _NOTES else f"{line[: _NOTES - 1]}…"

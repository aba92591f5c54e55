"""What an invitation says, read as data: a file that came with the message, or an event that nobody has accepted yet.

`tools.py` calls it. In: the name of a file of the turn, or the id of an event; out: JSON. Nothing in it is an
instruction, and nothing is accepted by reading it. Next: `events.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from switchboard.domain.json_values import JsonObject
from switchboard.modules.calendar.answers import span_object
from switchboard.modules.calendar.events import MAX_OBJECT, CalendarEvent, CalendarObject, EventSeries, read_object
from switchboard.modules.calendar.expansion import ExpansionWindow, Occurrence, expand_object, recurrence_id
from switchboard.modules.calendar.looking import CalendarRefusal, SeenAccount
from switchboard.modules.calendar.occurrences import zone_of_calendar
from switchboard.modules.calendar.rules import Budget
from switchboard.modules.calendar.zones import EventZone
from switchboard.tools.workspace import ToolRefusal, opened_file, read_at

_MOST_EVENTS = 5
_MOST_DATES = 3
_MOST_ATTENDEES = 20


async def read_file(results: Path | None, name: str, zone: ZoneInfo, now: datetime) -> JsonObject:
    """The invitation in a file of this turn. Raises CalendarRefusal."""
    if results is None:
        raise CalendarRefusal("no files came with this message")
    try:
        data = await asyncio.to_thread(_data_of, results, name)
    except (OSError, ToolRefusal, ValueError) as error:
        raise CalendarRefusal(f"{name[:100]!r} is no file of this conversation that can be read") from error
    return await asyncio.to_thread(_show_file, data, zone, now)


def _show_file(data: bytes, zone: ZoneInfo, now: datetime) -> JsonObject:
    budget = Budget()
    found = read_object(data, EventZone(zone.key, zone), budget)
    if not found.series and found.problems:
        raise CalendarRefusal(f"the file is no invitation that can be read: {'; '.join(found.problems.values())[:300]}")
    return show_invitation(found, zone, now, budget)


def _data_of(results: Path, name: str) -> bytes:
    data = b""
    with opened_file(results, name.split("/")) as opened:
        while len(data) <= MAX_OBJECT and (piece := read_at(opened, len(data))):
            data += piece
    return data


async def read_event(accounts: Iterable[SeenAccount], event_id: str, zone: ZoneInfo, now: datetime) -> JsonObject:
    """The event with an id, in the first account that has it. Raises CalendarRefusal."""
    uid, _, recurrence = event_id.rpartition("/")
    for account in accounts:
        for wanted, date in ((event_id, ""), (uid, recurrence)):
            rows = await _objects_of(account, wanted)
            if rows:
                shown = await asyncio.to_thread(_show_event, account, rows[0], (wanted, date), (zone, now))
                if shown is not None:
                    return shown
    raise CalendarRefusal(f"no event has the id {event_id[:100]!r}; ids are in the results of calendar_query")


def _show_event(
    account: SeenAccount, row: Mapping[str, Any], named: tuple[str, str], asked: tuple[ZoneInfo, datetime]
) -> JsonObject | None:
    """None: nothing of it is told to whoever asks."""
    budget = Budget()
    found = read_object(row["data"], zone_of_calendar(account.account, row["calendar_zone"]), budget)
    told = _pick_series(found if account.own else _without_private(found), *named)
    return show_invitation(told, *asked, budget) if told.series else None


async def _objects_of(account: SeenAccount, uid: str) -> Sequence[Any]:
    if not uid:
        return ()
    return await account.store.rows("occurrences.of_uid", account.sight, account.own, uid)


def _without_private(found: CalendarObject) -> CalendarObject:
    """What others than the person of the account are told: a date of a public series may be private."""
    told = []
    for one in found.series:
        master = one.master if one.master is not None and one.master.secrecy == "PUBLIC" else None
        overrides = tuple(each for each in one.overrides if each.secrecy == "PUBLIC")
        if master is not None or overrides:
            told.append(EventSeries(one.uid, master, overrides))
    return CalendarObject(tuple(told), found.problems, found.method)


def _pick_series(found: CalendarObject, uid: str, recurrence: str) -> CalendarObject:
    """The series with a UID, or what overrides one of its dates."""
    series = [one for one in found.series if one.uid == uid]
    named = [
        EventSeries(uid, None, (one,))
        for each in series
        for one in each.overrides
        if recurrence and one.recurrence is not None and recurrence_id(one.recurrence) == recurrence
    ]
    return CalendarObject(tuple(named or series), found.problems, found.method)


def show_invitation(found: CalendarObject, zone: ZoneInfo, now: datetime, budget: Budget) -> JsonObject:
    """What an object says, for somebody in a zone."""
    window = ExpansionWindow(now - timedelta(days=366), now + timedelta(days=732))
    dates = expand_object(found, window, budget).occurrences
    events = [one.master or one.overrides[0] for one in found.series if one.master or one.overrides]
    shown: JsonObject = {"events": [_event_object(one, dates, zone, now) for one in events[:_MOST_EVENTS]]}
    if found.method:
        shown["method"] = found.method[:20].lower()
    if len(events) > _MOST_EVENTS:
        shown["more_events"] = len(events) - _MOST_EVENTS
    return shown


def _event_object(event: CalendarEvent, dates: Iterable[Occurrence], zone: ZoneInfo, now: datetime) -> JsonObject:
    of_event = sorted((one for one in dates if one.event.uid == event.uid), key=lambda one: _start_of(one, zone))
    coming = [one for one in of_event if _start_of(one, zone) >= now] or of_event
    shown: JsonObject = {"uid": event.uid, "status": event.status.lower()}
    texts = {"title": event.title, "place": event.place, "notes": event.notes, "organizer": event.organizer}
    shown |= {name: text for name, text in texts.items() if text}
    shown["dates"] = [_times_of(one, zone) for one in coming[:_MOST_DATES]]
    if not coming:
        shown["dates"] = [f"{event.start.wall:%A} {event.start.wall.isoformat(sep=' ', timespec='minutes')}"]
    if event.recurs:
        shown["recurs"] = True
    attendees = [f"{one.name} <{one.address}> {one.answer.lower()}".strip() for one in event.attendees]
    if attendees:
        shown["attendees"] = [*attendees[:_MOST_ATTENDEES]]
    return shown


def _start_of(one: Occurrence, zone: ZoneInfo) -> datetime:
    return one.starts_at or one.start.wall.replace(tzinfo=zone).astimezone(UTC)


def _times_of(one: Occurrence, zone: ZoneInfo) -> JsonObject:
    begin = _start_of(one, zone).astimezone(zone)
    if one.start.all_day:
        return {"weekday": f"{one.start.wall:%A}", "start": str(one.start.wall.date()), "all_day": True}
    end = (one.ends_at or one.wall_end.replace(tzinfo=zone)).astimezone(zone)
    return {"weekday": f"{begin:%A}", **span_object(begin, end), "zone": zone.key}

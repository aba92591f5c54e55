"""The dates of a series at Google that are different, or do not take place: each is an event of its own there.

`writing.py` calls it once the series itself is as it should be. In: the series as it is now, and what its dates were
and should be; out: writes of those that differ. Next: `requests.py`.
"""

from __future__ import annotations

from datetime import datetime

from switchboard.ports.collection_server import ServerError
from switchboard.transport.google.events import GoogleEvent
from switchboard.transport.google.fields import ObjectFields, PartFields
from switchboard.transport.google.requests import CalendarEvents
from switchboard.transport.google.series import EventGroup


async def change_dates(events: CalendarEvents, group: EventGroup, old: ObjectFields, new: ObjectFields) -> None:
    """Raises ServerError. What an earlier attempt has written is not written again."""
    if group.master is None:
        await _change_lone_dates(events, group, old, new)
        return
    for at, part in new.dates.items():
        await _change_date(events, group, at, (old.dates.get(at), part))
    for at in old.dates:
        if at not in new.dates and at not in new.left_out:
            await _reset_date(events, group, at, new.on(at))
    for at in sorted(new.left_out - old.left_out):
        await _drop_date(events, group, at)
    for at in sorted(old.left_out - new.left_out - new.dates.keys()):
        await _bring_back(events, group, at)


async def _change_lone_dates(events: CalendarEvents, group: EventGroup, old: ObjectFields, new: ObjectFields) -> None:
    """Those of a series to which only some dates invite this calendar."""
    for event in group.dates:
        if event.is_cancelled or event.date is None or event.date not in old.dates:
            continue
        if event.date in new.dates:
            await events.change(event, old.dates[event.date], new.dates[event.date])
        else:
            await events.delete(event)


async def _change_date(
    events: CalendarEvents, group: EventGroup, at: datetime, parts: tuple[PartFields | None, PartFields]
) -> None:
    old, new = parts
    if old is not None and old == new:
        return
    event = await _find_date(events, group, at)
    if event is None:
        raise ServerError("refused", f"the series has no date {at:%Y-%m-%d %H:%M} at Google")
    if event.is_cancelled:
        event = await events.patch(event, {"status": "confirmed"})
    await events.change(event, old or events.fields_of(event), new)


async def _reset_date(events: CalendarEvents, group: EventGroup, at: datetime, wanted: PartFields | None) -> None:
    """A date is as the series again; one that the series does not have any more goes."""
    event = group.find_date(at)
    if event is None or event.is_cancelled or wanted is None:
        return
    if await _date_by_rule(events, group, at) is None:
        await events.delete(event)
    else:
        await events.change(event, events.fields_of(event), wanted)


async def _drop_date(events: CalendarEvents, group: EventGroup, at: datetime) -> None:
    event = await _find_date(events, group, at)
    if event is not None and not event.is_cancelled:
        await events.delete(event)


async def _bring_back(events: CalendarEvents, group: EventGroup, at: datetime) -> None:
    """One that was cancelled; what the series itself left out, it has again already."""
    event = group.find_date(at)
    if event is None or not event.is_cancelled:
        return
    if await _date_by_rule(events, group, at) is not None:
        await events.patch(event, {"status": "confirmed"})


async def _find_date(events: CalendarEvents, group: EventGroup, at: datetime) -> GoogleEvent | None:
    return group.find_date(at) or await _date_by_rule(events, group, at)


async def _date_by_rule(events: CalendarEvents, group: EventGroup, at: datetime) -> GoogleEvent | None:
    return None if group.master is None else await events.instance_at(group.master, at)

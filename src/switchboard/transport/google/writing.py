"""Write events at Google so that nobody else's change is lost, each once, and nothing but what was changed.

`calendars.py` calls it. In: objects as they were and as they should be; out: what Google has then. Objects are compared
field by field, and what differs is patched: whatever else is in an event stays. A write that is repeated finds what is
done already, and mails nobody twice. Next: `dates.py`, `requests.py`.
"""

from __future__ import annotations

from switchboard.domain.json_values import JsonObject
from switchboard.ports.collection_server import ServerError, ServerObject
from switchboard.transport.google.client import GoogleError
from switchboard.transport.google.dates import change_dates
from switchboard.transport.google.events import UID_KEY
from switchboard.transport.google.fields import (
    NO_FIELDS,
    ObjectFields,
    PartFields,
    has_some,
    is_done,
    is_part_of,
    lies_between,
    merged_attendees,
    new_attendee,
    object_fields,
)
from switchboard.transport.google.requests import CalendarEvents
from switchboard.transport.google.series import EventGroup, id_for, ids_of

# New events -----------------------------------------------------------------------------------------------------------


async def create_event(events: CalendarEvents, new: ServerObject) -> ServerObject:
    """As `CollectionServer.create_object`. Under the id of a deleted event, as an undo has it, it is there again; what
    was created under this proposal before, and was deleted since, is not: `changed`.
    """
    wanted = object_fields(new.data)
    if wanted.master is None:
        raise ServerError("refused", "only single dates of a series are known, and Google makes none of these")
    group = await _find_or_insert(events, new.name, wanted, wanted.master)
    if group.is_deleted:
        if new.name != group.name:
            raise ServerError("changed", "it was created before, and somebody has deleted it since")
        group = await _restore_event(events, group, wanted.master)
    await change_dates(events, group, events.all_fields(group), wanted)
    return await _read_written(events, group.name)


async def _find_or_insert(events: CalendarEvents, name: str, wanted: ObjectFields, master: PartFields) -> EventGroup:
    """What there is under the name, or what was inserted. Raises ServerError (`changed`) if it is something else."""
    if name == ids_of(name)[0]:
        group = await events.read(name)
        if group.events:
            return _require_same(group, events, master)
    try:
        await events.insert(_inserted_body(id_for(name), wanted.uid, master))
    except GoogleError as error:
        if error.state == "unknown":
            return _require_same(await _look_for(events, name, error), events, master)
        if error.status != 409:
            raise
        return _require_same(await events.read(name), events, master)
    return await events.read(name)


def _inserted_body(event_id: str, uid: str, master: PartFields) -> JsonObject:
    body: JsonObject = {
        "id": event_id,
        **_said_fields(master),
        "extendedProperties": {"private": {UID_KEY: uid}},
    }
    if master.attendees:
        body["attendees"] = [new_attendee(one, name) for one, (name, _) in master.attendees.items()]
    return body


def _said_fields(master: PartFields) -> JsonObject:
    fields = {**master.plain, "recurrence": master.recurrence}
    return {name: value for name, value in fields.items() if value not in ("", [])}


def _require_same(group: EventGroup, events: CalendarEvents, master: PartFields) -> EventGroup:
    """Raises ServerError (`changed`) if it is something else; what is deleted is compared with nothing."""
    if not group.is_there:
        return group
    there = events.all_fields(group).master
    if there is None or not is_part_of(master, there):
        raise ServerError("changed", f"there is something else under the name {group.name!r}")
    return group


async def _look_for(events: CalendarEvents, name: str, after: GoogleError) -> EventGroup:
    """What an insertion without an answer has made. Raises ServerError."""
    group = await _look_again(events, name, after)
    if not group.events:
        raise ServerError("later", str(after)) from after
    return group


async def _look_again(events: CalendarEvents, name: str, after: GoogleError) -> EventGroup:
    try:
        return await events.read(name)
    except GoogleError as error:
        raise GoogleError("unknown", f"{after}; then {error}") from error


async def _restore_event(events: CalendarEvents, group: EventGroup, master: PartFields) -> EventGroup:
    """A deleted event is there again, as it should be."""
    [deleted] = [one for one in group.events if not one.recurring_event_id]
    body: JsonObject = {**_said_fields(master), "status": "confirmed"}
    if (merged := merged_attendees({}, master.attendees, deleted.attendees)) is not None:
        body["attendees"] = merged
    await events.patch(deleted, body)
    return await events.read(group.name)


# Changes --------------------------------------------------------------------------------------------------------------


async def replace_event(events: CalendarEvents, old: ServerObject, data: bytes) -> ServerObject:
    """As `CollectionServer.replace_object`. What an earlier attempt has written is not written again."""
    _require_etag(old)
    before, new = object_fields(old.data), object_fields(data)
    group = await events.read(old.name)
    if not group.is_there:
        raise ServerError("changed", f"{old.name} is deleted")
    if group.etag != old.etag and not lies_between(before, events.all_fields(group), new):
        raise ServerError("changed", f"{old.name} is another by now")
    try:
        await _change_group(events, group, before, new)
    except GoogleError as error:
        if error.state not in ("unknown", "changed"):
            raise
        await _require_done(events, old, (before, new), error)
    return await _read_written(events, group.name)


async def _change_group(events: CalendarEvents, group: EventGroup, before: ObjectFields, new: ObjectFields) -> None:
    if group.master is not None and before.master is not None and new.master is not None:
        await events.change(group.master, before.master, new.master)
        if not (group.master.recurrence or new.master.recurrence):
            return
        group = await events.read(group.name)
    await change_dates(events, group, before, new)


async def _require_done(
    events: CalendarEvents, old: ServerObject, parts: tuple[ObjectFields, ObjectFields], after: GoogleError
) -> None:
    """Raises ServerError unless all was written: `later` or `changed` if nothing was, `unknown` if a part may be.

    An answer may have been lost; or somebody else has changed a date of a series after others were written.
    """
    before, new = parts
    group = await _look_again(events, old.name, after)
    now = events.all_fields(group)
    if is_done(now, new):
        return
    if group.etag == old.etag:
        raise ServerError("later", str(after)) from after
    raise ServerError("unknown" if has_some(before, now, new) else "changed", str(after)) from after


# Deletion -------------------------------------------------------------------------------------------------------------


async def delete_event(events: CalendarEvents, old: ServerObject) -> None:
    """As `CollectionServer.delete_object`."""
    _require_etag(old)
    group = await events.read(old.name)
    if not group.is_there:
        return
    if group.etag != old.etag:
        before = object_fields(old.data) if old.data else NO_FIELDS
        if not lies_between(before, events.all_fields(group), before):
            raise ServerError("changed", f"{old.name} is another by now")
    for event in [group.master] if group.master is not None else group.dates:
        if not event.is_cancelled:
            await events.delete(event)


def _require_etag(old: ServerObject) -> None:
    if not old.etag:
        raise ServerError("unprotected", "no ETag is known, so a change could undo somebody else's unnoticed")


async def _read_written(events: CalendarEvents, name: str) -> ServerObject:
    """What there is after a write. Raises ServerError: `unknown` if it cannot be read, `changed` if it is gone."""
    try:
        group = await events.read(name)
    except GoogleError as error:
        raise GoogleError("unknown", f"it was written, but cannot be read: {error}") from error
    if not group.is_there:
        raise ServerError("changed", "it was written, and somebody has deleted it since")
    return group.as_object(events.user)

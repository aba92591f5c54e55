"""Requests about single events of one calendar, each under the ETag with which the event was read.

`writing.py` and `dates.py` make them. In: events as they were read; out: events as they are then, or GoogleError. Next:
`client.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.collection_server import ServerError
from switchboard.transport.google.client import GoogleClient, GoogleError, GoogleRequest, quote_segment
from switchboard.transport.google.events import GoogleEvent, event_of
from switchboard.transport.google.fields import (
    NO_FIELDS,
    ObjectFields,
    PartFields,
    changed_fields,
    merged_attendees,
    object_fields,
)
from switchboard.transport.google.series import EventGroup, read_group


class CalendarEvents(Struct, frozen=True):
    """The events of a calendar; `path` is that of the calendar, `user` who has signed in.

    `sends`: Google mails those who are invited. That is said with every write: what Google does otherwise was another
    thing at other times.
    """

    client: GoogleClient
    path: str
    user: str
    sends: bool

    @property
    def _update_parameters(self) -> Mapping[str, str]:
        return {"sendUpdates": "all" if self.sends else "none"}

    def _path_of(self, event_id: str) -> str:
        return f"{self.path}/events/{quote_segment(event_id)}"

    async def read(self, name: str) -> EventGroup:
        """What there is under the name of an object."""
        return await read_group(self.client, self.path, name)

    async def insert(self, body: JsonMapping) -> None:
        """A new event."""
        await self.client.send(GoogleRequest("POST", f"{self.path}/events", self._update_parameters, body))

    async def patch(self, event: GoogleEvent, body: JsonMapping) -> GoogleEvent:
        """Change what is named, and nothing else."""
        return event_of(
            await self.client.send(
                GoogleRequest("PATCH", self._path_of(event.id), self._update_parameters, body, event.etag)
            )
        )

    async def change(self, event: GoogleEvent, old: PartFields, new: PartFields) -> None:
        """Patch what differs between `old` and `new`, and is not there yet. Raises ServerError."""
        there = self.fields_of(event)
        body = {name: value for name, value in changed_fields(old, new).items() if there.plain[name] != new.plain[name]}
        body |= _changed_dates(body, old, new, there)
        if (merged := merged_attendees(old.attendees, new.attendees, event.attendees)) is not None:
            if event.attendees_omitted:
                raise ServerError("refused", "Google does not show all who are invited, so that none can be changed")
            body["attendees"] = merged
        if body:
            await self.patch(event, body)

    async def delete(self, event: GoogleEvent) -> None:
        """That it is gone already is success."""
        path = self._path_of(event.id)
        try:
            await self.client.send(GoogleRequest("DELETE", path, self._update_parameters, etag=event.etag))
        except GoogleError as error:
            if error.state == "unknown":
                await self._require_gone(path, event, error)
            elif error.state != "missing":
                raise

    async def _require_gone(self, path: str, event: GoogleEvent, after: GoogleError) -> None:
        try:
            there = event_of(await self.client.get(path))
        except GoogleError as error:
            if error.state == "missing":
                return
            raise GoogleError("unknown", f"{after}; then {error}") from error
        if not there.is_cancelled:
            raise ServerError("later" if there.etag == event.etag else "changed", str(after)) from after

    async def instance_at(self, series: GoogleEvent, at: datetime) -> GoogleEvent | None:
        """The date that a series has then by its rule, cancelled or not; None: it has none."""
        all_day = series.start is not None and bool(series.start.date)
        wanted = f"{at:%Y-%m-%d}" if all_day else f"{at:%Y-%m-%dT%H:%M:%SZ}"
        found = await self.client.get(
            f"{self._path_of(series.id)}/instances", {"originalStart": wanted, "showDeleted": True}
        )
        return next((one for one in map(event_of, found.get("items", ())) if one.date == at), None)

    def fields_of(self, event: GoogleEvent) -> PartFields:
        """What one event says."""
        found = object_fields(EventGroup(event.id, (event,)).as_object(self.user).data)
        return found.master or next(iter(found.dates.values()))

    def all_fields(self, group: EventGroup) -> ObjectFields:
        """What a series says with its dates."""
        return object_fields(group.as_object(self.user).data) if group.is_there else NO_FIELDS


def _changed_dates(body: JsonMapping, old: PartFields, new: PartFields, there: PartFields) -> JsonObject:
    """The recurrence of a series that is moved or ruled again, or that has again what it left out by itself."""
    if ("start" in body and there.recurrence) or "recurrence" in body:
        return {"recurrence": new.recurrence or None}
    back = set(old.left_out) - set(new.left_out)
    if not back & set(there.left_out):
        return {}
    return {
        "recurrence": [*there.plain["recurrence"], *(line for at, line in there.left_out.items() if at not in back)]
    }

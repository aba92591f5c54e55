"""Series of events as objects of the port: Google lists a series, and each date of it that is different, one by one.

`calendars.py` and `writing.py` ask here. In: a client, the path of a calendar; out: `EventGroup`s. The name of an
object is the id of its event or series. Next: `events.py`.
"""

from __future__ import annotations

from base64 import b32hexencode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from msgspec import Struct, ValidationError

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.collection_server import ServerError, ServerObject
from switchboard.transport.google.client import GoogleClient, GoogleError, Parameters, quote_segment
from switchboard.transport.google.events import GoogleEvent, calendar_object, event_of

MOST_OF_OBJECT: Final = 1_000_000
LIST: Final[Parameters] = {"singleEvents": False, "showDeleted": True, "maxResults": 2500}
"""Of all lists that a token may follow: they are asked for with the same parameters."""
_ID: Final = frozenset("0123456789abcdefghijklmnopqrstuv")


class EventGroup(Struct, frozen=True):
    """An event, or a series first and then those of its dates that are different or do not take place."""

    name: str
    events: tuple[GoogleEvent, ...]

    @property
    def master(self) -> GoogleEvent | None:
        """The event or series, if it is there; None: single dates of a series alone are known here."""
        first = self.events[0] if self.events else None
        return None if first is None or first.recurring_event_id or first.is_cancelled else first

    @property
    def dates(self) -> tuple[GoogleEvent, ...]:
        """Those of the series that are different, or do not take place."""
        return tuple(one for one in self.events if one.recurring_event_id)

    @property
    def is_there(self) -> bool:
        """Whether anything of it takes place."""
        return self.master is not None or any(not one.is_cancelled for one in self.dates)

    @property
    def is_deleted(self) -> bool:
        """Whether it was there, and its id stays taken."""
        return bool(self.events) and not self.is_there

    @property
    def etag(self) -> str:
        """That of the event; of a series one that is another whenever any of its dates is."""
        if len(self.events) == 1:
            return self.events[0].etag
        told = [f"{one.id} {'' if one.is_cancelled else one.etag}" for one in self.events]
        return f'"{sha256(chr(10).join(told).encode()).hexdigest()[:32]}"'

    def find_date(self, at: object) -> GoogleEvent | None:
        """The one that stands for this date of the series."""
        return next((one for one in self.dates if one.date == at), None)

    def as_object(self, user: str) -> ServerObject:
        """Raises ServerError: `unreadable`, `too_large`."""
        try:
            data = calendar_object(self.events, user)
        except (ValueError, OverflowError) as error:
            raise ServerError("unreadable", f"the event {self.name} cannot be read: {error}") from error
        if len(data) > MOST_OF_OBJECT:
            raise ServerError("too_large", f"it has more than {MOST_OF_OBJECT:,} bytes")
        return ServerObject(self.name, self.etag, data)


def group_of(name: str, events: Iterable[GoogleEvent]) -> EventGroup:
    """The series comes first, then its dates in order."""
    return EventGroup(name, tuple(sorted(events, key=lambda one: (one.id != name, one.id))))


def id_for(name: str) -> str:
    """The id of an event that is created under a name: the same for the same name, in base32hex (RFC 4648)."""
    return b32hexencode(uuid5(NAMESPACE_URL, name).bytes).decode().rstrip("=").lower()


def ids_of(name: str) -> tuple[str, ...]:
    """The ids that an object with this name may have."""
    made = (id_for(name),)
    return (name, *made) if 5 <= len(name) <= 1024 and _is_id(name) else made


def _is_id(name: str) -> bool:
    """Ids of imported events begin with an underscore."""
    return _ID.issuperset(name.removeprefix("_"))


async def list_events(client: GoogleClient, calendar: str, parameters: Parameters) -> tuple[list[JsonObject], str]:
    """All pages of events as they are, and the token to ask with the next time. Raises GoogleError."""
    found: list[JsonObject] = []
    token = ""
    async for page in client.pages(f"{calendar}/events", parameters):
        found += page.get("items", ())
        token = str(page.get("nextSyncToken", ""))
    return found, token


async def read_group(client: GoogleClient, calendar: str, name: str) -> EventGroup:
    """What there is under a name, deleted or not; without events if nothing ever was. Raises GoogleError."""
    for one in ids_of(name):
        try:
            found = await client.get(f"{calendar}/events/{quote_segment(one)}")
        except GoogleError as error:
            if error.state == "missing":
                continue
            raise
        return await _group_with(client, calendar, one, _read_event(found))
    return await _dates_alone(client, calendar, name)


async def _group_with(client: GoogleClient, calendar: str, name: str, first: GoogleEvent) -> EventGroup:
    if first.is_cancelled or not first.recurrence:
        return EventGroup(name, (first,))
    every, _ = await list_events(client, calendar, {**LIST, "iCalUID": first.i_cal_uid})
    mine = [one for one in map(_read_event, every) if one.series_id == name]
    return group_of(name, mine or [first])


async def _dates_alone(client: GoogleClient, calendar: str, name: str) -> EventGroup:
    """Of a series to which only some dates of which this calendar is invited: by what its dates are called."""
    if not _is_id(name):
        return EventGroup(name, ())
    every, _ = await list_events(client, calendar, {**LIST, "iCalUID": f"{name}@google.com"})
    return group_of(name, [one for one in map(_read_event, every) if one.recurring_event_id == name])


def _read_event(found: JsonMapping) -> GoogleEvent:
    try:
        return event_of(found)
    except ValidationError as error:
        raise GoogleError("unreadable", f"the event {str(found.get('id'))[:100]} cannot be read: {error}") from error


def group_events(found: Sequence[JsonObject]) -> tuple[dict[str, EventGroup], dict[str, ServerError]]:
    """Of a list: the series and single events by name, and why some cannot be read."""
    groups: dict[str, list[GoogleEvent]] = {}
    wrong: dict[str, ServerError] = {}
    for one in found:
        try:
            event = _read_event(one)
        except GoogleError as error:
            wrong[str(one.get("recurringEventId") or one.get("id"))] = error
            continue
        groups.setdefault(event.series_id, []).append(event)
    made = {name: group_of(name, events) for name, events in groups.items() if name not in wrong}
    return made, wrong


def named_etags(groups: Mapping[str, EventGroup]) -> dict[str, str]:
    """The ETags of those that are there."""
    return {name: one.etag for name, one in groups.items() if one.is_there}

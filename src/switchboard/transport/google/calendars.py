"""Google's calendars behind the port of servers: one object for all that a module asks of an account.

Modules open one with `open_google_calendars`, and see nothing but the port. What a list has told of events is kept for
those who then read them, as Google lists events whole. Next: `series.py` for reading, `writing.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

import httpx2

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.collection_server import (
    CollectionServer,
    ServerCollection,
    ServerContents,
    ServerError,
    ServerListing,
    ServerObject,
)
from switchboard.transport.google.client import (
    CALENDAR_API,
    WHOLE_S,
    GoogleClient,
    GoogleError,
    open_google,
    quote_segment,
)
from switchboard.transport.google.events import UID_KEY
from switchboard.transport.google.requests import CalendarEvents
from switchboard.transport.google.series import (
    LIST,
    EventGroup,
    group_events,
    list_events,
    named_etags,
    read_group,
)
from switchboard.transport.google.writing import create_event, delete_event, replace_event
from switchboard.transport.oauth.tokens import AccessTokens

_WRITING: Final = frozenset({"owner", "writer"})
_LOST: Final = frozenset({400, 404, 410})
"""Answers to a token that is not known any more; a list without one is then asked for, and fails by itself if it must.
"""


@asynccontextmanager
async def open_google_calendars(
    tokens: AccessTokens, user: str, *, sends: bool, api: str = CALENDAR_API, whole: float = WHOLE_S
) -> AsyncIterator[CollectionServer]:
    """An account. `user`: its mail address. `sends`: Google mails those who are invited. `whole`: of one exchange."""
    async with open_google(tokens, api, whole=whole) as client:
        yield GoogleCalendars(client, user, sends=sends)


class GoogleCalendars:
    """See `switchboard.ports.collection_server.CollectionServer`. Objects are named by the ids of events."""

    def __init__(self, client: GoogleClient, user: str, *, sends: bool) -> None:
        self._client = client
        self._user = user
        self._sends = sends
        self._listed: dict[tuple[str, str], EventGroup | ServerError] = {}

    @property
    def host(self) -> str:
        """As in the port."""
        return self._client.host

    async def find_collections(self) -> tuple[ServerCollection, ...]:
        """As in the port; the user's own first calendar is the first."""
        found: list[JsonObject] = []
        async for page in self._client.pages("users/me/calendarList", {"maxResults": 250}):
            found += page.get("items", ())
        found.sort(key=lambda one: one.get("primary") is not True)
        return tuple(_collection_of(self._client, one) for one in found)

    async def list_changes(self, collection: str, token: str) -> ServerListing:
        """As in the port."""
        calendar = self._path_of(collection)
        if not token:
            return await self.list_everything(collection)
        try:
            found, cursor = await list_events(self._client, calendar, {**LIST, "syncToken": token})
        except GoogleError as error:
            if error.status in _LOST:
                return await self.list_everything(collection)
            raise
        groups, wrong = group_events(found)
        for name, one in groups.items():
            if any(each.recurring_event_id or each.recurrence for each in one.events):  # the rest of it is not listed
                groups[name] = await read_group(self._client, calendar, name)
        self._keep_listed(collection, groups, wrong)
        gone = frozenset(name for name, one in groups.items() if not one.is_there)
        return ServerListing({**named_etags(groups), **dict.fromkeys(wrong, "")}, gone, cursor)

    async def list_everything(self, collection: str) -> ServerListing:
        """As in the port."""
        found, cursor = await list_events(self._client, self._path_of(collection), LIST)
        groups, wrong = group_events(found)
        self._keep_listed(collection, groups, wrong)
        etags = {**named_etags(groups), **dict.fromkeys(wrong, "")}
        return ServerListing(etags, cursor=cursor, whole=True, complete=bool(cursor))

    def _keep_listed(self, collection: str, groups: Mapping[str, EventGroup], wrong: Mapping[str, ServerError]) -> None:
        self._listed = {(collection, name): one for name, one in groups.items()}
        self._listed |= {(collection, name): error for name, error in wrong.items()}

    async def read_objects(self, collection: str, names: Sequence[str]) -> ServerContents:
        """As in the port: what the list before has told, each once, or what there is now."""
        calendar = self._path_of(collection)
        objects: list[ServerObject] = []
        gone: set[str] = set()
        unreadable: dict[str, ServerError] = {}
        for name in names:
            try:
                group = await self._take_group(collection, calendar, name)
                if group.is_there:
                    objects.append(group.as_object(self._user))
                else:
                    gone.add(name)
            except ServerError as error:
                if error.state not in ("unreadable", "too_large", "forbidden"):
                    raise
                unreadable[name] = error
        return ServerContents(tuple(objects), frozenset(gone), unreadable)

    async def _take_group(self, collection: str, calendar: str, name: str) -> EventGroup:
        known = self._listed.pop((collection, name), None)
        if isinstance(known, ServerError):
            raise known
        return known or await read_group(self._client, calendar, name)

    async def read_object(self, collection: str, name: str) -> ServerObject:
        """As in the port."""
        group = await read_group(self._client, self._path_of(collection), name)
        if not group.is_there:
            raise ServerError("missing", f"there is no {name}")
        return group.as_object(self._user)

    async def objects_between(self, collection: str, since: datetime, until: datetime) -> tuple[ServerObject, ...]:
        """As in the port. Google says which dates there are; a series is then read as a whole."""
        calendar = self._path_of(collection)
        within = {"timeMin": _moment_of(since), "timeMax": _moment_of(until)}
        found, _ = await list_events(self._client, calendar, {"singleEvents": True, "maxResults": 2500, **within})
        single = [one for one in found if not one.get("recurringEventId")]
        groups, _ = group_events(single)
        for name in dict.fromkeys(str(one["recurringEventId"]) for one in found if one.get("recurringEventId")):
            groups[name] = await read_group(self._client, calendar, name)
        return tuple(one.as_object(self._user) for one in groups.values() if one.is_there)

    async def objects_with_uid(self, collection: str, uid: str) -> tuple[ServerObject, ...]:
        """As in the port: by the UID that was noted here, or by Google's."""
        calendar = self._path_of(collection)
        noted = {"privateExtendedProperty": f"{UID_KEY}={uid}"}
        for wanted in (noted, {"iCalUID": uid}):
            found, _ = await list_events(self._client, calendar, {**LIST, **wanted})
            names = dict.fromkeys(str(one.get("recurringEventId") or one.get("id")) for one in found)
            groups = [await read_group(self._client, calendar, name) for name in names]
            if there := tuple(one.as_object(self._user) for one in groups if one.is_there):
                return there
        return ()

    async def create_object(self, collection: str, new: ServerObject) -> ServerObject:
        """As in the port."""
        made = await create_event(self._events_in(collection), new)
        return self._forget_listed(collection, made)

    async def replace_object(self, collection: str, old: ServerObject, data: bytes) -> ServerObject:
        """As in the port."""
        made = await replace_event(self._events_in(collection), old, data)
        return self._forget_listed(collection, made)

    async def delete_object(self, collection: str, old: ServerObject) -> None:
        """As in the port."""
        await delete_event(self._events_in(collection), old)
        self._listed.pop((collection, old.name), None)

    def _forget_listed(self, collection: str, made: ServerObject) -> ServerObject:
        self._listed.pop((collection, made.name), None)
        return made

    def _events_in(self, collection: str) -> CalendarEvents:
        return CalendarEvents(self._client, self._path_of(collection), self._user, self._sends)

    def _path_of(self, collection: str) -> str:
        """The path of a calendar below the API's address. Raises ServerError for one that is elsewhere."""
        prefix = f"{self._client.api}/"
        if not collection.startswith(f"{prefix}calendars/"):
            raise ServerError("missing", f"there is no {collection}")
        return collection.removeprefix(prefix)


def _moment_of(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _collection_of(client: GoogleClient, said: JsonMapping) -> ServerCollection:
    name, role = str(said["id"]), said.get("accessRole")
    return ServerCollection(
        str(httpx2.URL(f"{client.api}/calendars/{quote_segment(name)}")),
        name,
        str(said.get("summaryOverride") or said.get("summary") or name).replace("\0", ""),
        role in _WRITING,
        colour=str(said.get("backgroundColor", "")),
        zone=str(said.get("timeZone", "")),
        shared=role != "owner",
    )

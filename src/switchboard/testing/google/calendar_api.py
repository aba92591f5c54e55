"""The methods of the Calendar API v3 that are played here, by their names in Google's discovery document.

`server.py` calls them. In: an `ApiCall`; out: JSON, None for no content, or `GoogleRefusal`. Next: `calendar.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.testing.google.calendar import OWN, GoogleCalendar
from switchboard.testing.google.dates import instant_of
from switchboard.testing.google.errors import GoogleRefusal
from switchboard.testing.google.listing import ListedPage, TokenList

_NOT_WITH_TOKEN: Final = frozenset(
    {
        "iCalUID",
        "orderBy",
        "privateExtendedProperty",
        "q",
        "sharedExtendedProperty",
        "timeMax",
        "timeMin",
        "updatedMin",
    }
)
_FAR: Final = timedelta(days=730)


class ApiCall(Struct, frozen=True):
    """A request. `path` has what stands in braces in the path of its method; `etag` is that of If-Match."""

    name: str
    path: Mapping[str, str]
    parameters: Mapping[str, str]
    body: JsonObject | None = None
    etag: str = ""

    def require_body(self) -> JsonObject:
        """The body. Raises GoogleRefusal without one."""
        if self.body is None:
            raise GoogleRefusal(400, "required", "Required")
        return self.body

    def is_set(self, name: str) -> bool:
        """Whether a parameter is true."""
        return self.parameters.get(name) == "true"


class CalendarApi:
    """The calendars of one user, the first of which is theirs."""

    def __init__(self, *calendars: GoogleCalendar, page_size: int = 250) -> None:
        self.calendars = {one.name: one for one in calendars or (GoogleCalendar(),)}
        lost = GoogleRefusal(410, "fullSyncRequired", "Sync token is no longer valid, a full sync is required.")
        self.lists = {name: TokenList(lost, page_size) for name in self.calendars}

    def answer(self, call: ApiCall) -> JsonObject | None:
        """Raises GoogleRefusal."""
        if call.name == "calendarList.list":
            return self._list_calendars()
        calendar = self.calendars.get(call.path["calendarId"].replace("primary", OWN))
        if calendar is None:
            raise GoogleRefusal(404, "notFound", "Not Found")
        if call.name == "events.list":
            return self._list_events(calendar, call)
        if call.name == "events.instances":
            return self._list_instances(calendar, call)
        return _act_on_event(calendar, call, call.path.get("eventId", ""), tells=_is_telling(call))

    def _list_calendars(self) -> JsonObject:
        items = [
            {
                "kind": "calendar#calendarListEntry",
                "etag": '"1"',
                "id": one.name,
                "summary": one.name,
                "timeZone": one.zone,
                "backgroundColor": "#16a765",
                "accessRole": one.role,
                **({"primary": True} if one.name == OWN else {}),
            }
            for one in reversed(self.calendars.values())
        ]
        return {"kind": "calendar#calendarList", "etag": '"1"', "items": items}

    def _list_events(self, calendar: GoogleCalendar, call: ApiCall) -> JsonObject:
        if "syncToken" in call.parameters and (
            _NOT_WITH_TOKEN & call.parameters.keys() or call.parameters.get("showDeleted") == "false"
        ):
            raise GoogleRefusal(400, "invalid", "Sync token cannot be used with other request restrictions")
        if call.parameters.get("orderBy") == "startTime" and not call.is_set("singleEvents"):
            raise GoogleRefusal(400, "invalid", "The requested ordering is not available for the particular query.")
        page = self.lists[calendar.name].page_of(
            call.parameters, calendar.state, lambda since: _select_events(calendar, call, since)
        )
        return _page_json(calendar, page)

    def _list_instances(self, calendar: GoogleCalendar, call: ApiCall) -> JsonObject:
        series = calendar.get(call.path["eventId"])
        start = call.parameters.get("originalStart")
        time = None if start is None else {"date" if len(start) == len("2026-01-01") else "dateTime": start}
        wanted = None if time is None else instant_of(time)
        until = None if wanted is None else wanted + timedelta(days=1)
        found = [
            one
            for one in calendar.instances(series, until)
            if wanted is None or instant_of(one["originalStartTime"]) == wanted
            if one["status"] != "cancelled" or call.is_set("showDeleted")
        ]
        return _page_json(calendar, ListedPage(found))


def _act_on_event(calendar: GoogleCalendar, call: ApiCall, event_id: str, *, tells: bool) -> JsonObject | None:
    match call.name:
        case "events.get":
            return calendar.get(event_id)
        case "events.insert":
            return calendar.insert(call.require_body(), tells=tells)
        case "events.patch":
            return calendar.patch(event_id, call.require_body(), call.etag, tells=tells)
        case "events.update":
            return calendar.update(event_id, call.require_body(), call.etag, tells=tells)
        case _:
            calendar.delete(event_id, call.etag, tells=tells)
            return None


def _is_telling(call: ApiCall) -> bool:
    said = call.parameters.get("sendUpdates", "none")
    if said not in ("all", "externalOnly", "none"):
        raise GoogleRefusal(400, "invalid", "Invalid value for: sendUpdates")
    return said != "none"


def _page_json(calendar: GoogleCalendar, page: ListedPage) -> JsonObject:
    answer: JsonObject = {
        "kind": "calendar#events",
        "etag": f'"p{calendar.state}"',
        "summary": calendar.name,
        "timeZone": calendar.zone,
        "accessRole": calendar.role,
        "items": [*page.items],
    }
    if page.next_page:
        answer["nextPageToken"] = page.next_page
    if page.next_sync:
        answer["nextSyncToken"] = page.next_sync
    return answer


def _select_events(calendar: GoogleCalendar, call: ApiCall, since: int | None) -> Sequence[JsonObject]:
    if since is not None:
        return [one for name, one in calendar.events.items() if calendar.changed[name] > since]
    if call.is_set("singleEvents"):
        begin = _moment_in(call, "timeMin", datetime.min.replace(tzinfo=UTC))
        return calendar.between(begin, _moment_in(call, "timeMax", calendar.now() + _FAR))
    if "timeMin" in call.parameters or "timeMax" in call.parameters:
        raise GoogleRefusal(400, "invalid", "ranges of series as a whole are not played here")
    every = calendar.events.values()
    shown = [one for one in every if _is_shown(call, one)]
    if (uid := call.parameters.get("iCalUID")) is not None:
        shown = [one for one in shown if _series_or_self(calendar, one).get("iCalUID") == uid]
    if (noted := call.parameters.get("privateExtendedProperty")) is not None:
        name, _, value = noted.partition("=")
        private = (one.get("extendedProperties", {}).get("private", {}) for one in shown)
        shown = [one for one, properties in zip(shown, private, strict=True) if properties.get(name) == value]
    return shown


def _series_or_self(calendar: GoogleCalendar, one: JsonObject) -> JsonObject:
    """What is known of a cancelled date stands in its series."""
    return calendar.events.get(str(one.get("recurringEventId")), one)


def _is_shown(call: ApiCall, one: JsonObject) -> bool:
    """Cancelled dates of series are also shown to whoever asks for series as a whole."""
    return one["status"] != "cancelled" or call.is_set("showDeleted") or "recurringEventId" in one


def _moment_in(call: ApiCall, name: str, usual: datetime) -> datetime:
    given = call.parameters.get(name)
    return usual if given is None else instant_of({"dateTime": given})

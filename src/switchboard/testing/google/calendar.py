"""A calendar as Google keeps it, strict: ids that stay taken, ETags, dates of series that are events of their own.

`calendar_api.py` makes calls of requests. In: JSON; out: JSON, or `GoogleRefusal`. What is not documented, and may be
either way, can be chosen: see `keeps_lost_dates`. Next: `mails.py`, for what a write sends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.testing.google.dates import end_after, instant_of, starts_of, time_like, written_time
from switchboard.testing.google.errors import GoogleRefusal
from switchboard.testing.google.mails import TOLD, SentMail, mails_of

OWN: Final = "ann@home.example"
"""Who has signed in."""
_ID: Final = re.compile(r"[0-9a-v]{5,1024}")
_INSTANCE: Final = re.compile(r"(.+)_(\d{8}(?:T\d{6}Z)?)")
_ADDRESS: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_RECURRENCE: Final = re.compile(r"(?:RRULE|RDATE|EXDATE)[:;].+")
_SERVER_SAYS: Final = frozenset({"kind", "etag", "htmlLink", "created", "updated", "creator", "organizer"})
_OF_IDENTITY: Final = frozenset({"id", "iCalUID", "sequence", "recurringEventId", "originalStartTime"})
_AHEAD: Final = timedelta(days=730)


class GoogleCalendar:
    """One calendar. `own`: the address to which it belongs. `role`: what its user may do with it.

    `keeps_lost_dates`: dates that were changed by hand stay when the series does not have them any more.
    """

    def __init__(self, name: str = OWN, *, own: str = OWN, role: str = "owner", zone: str = "Europe/Berlin") -> None:
        self.name = name
        self.own = own
        self.role = role
        self.zone = zone
        self.events: dict[str, JsonObject] = {}
        self.changed: dict[str, int] = {}
        """The state in which each event was written."""
        self.state = 0
        self.mails: list[SentMail] = []
        self.keeps_lost_dates = False
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)

    # What there is ----------------------------------------------------------------------------------------------------

    def get(self, event_id: str) -> JsonObject:
        """Also what is cancelled, and a date of a series that is none of its own yet."""
        if (found := self.events.get(event_id)) is not None:
            return deepcopy(found)
        if (match := _INSTANCE.fullmatch(event_id)) and (series := self.events.get(match[1])) is not None:
            for one in self.instances(series):
                if one["id"] == event_id:
                    return one
        raise GoogleRefusal(404, "notFound", "Not Found")

    def instances(self, series: JsonMapping, until: datetime | None = None) -> Iterator[JsonObject]:
        """All dates of a series by its rule, those that were changed by hand as they are."""
        if "recurrence" not in series or series["status"] == "cancelled":
            return
        for start in starts_of(series, until or self.now() + _AHEAD):
            one = _date_of(series, start)
            yield deepcopy(self.events.get(one["id"], one))

    def dates_of(self, series_id: str) -> list[JsonObject]:
        """Those that were changed by hand, or cancelled."""
        return [one for one in self.events.values() if one.get("recurringEventId") == series_id]

    def between(self, since: datetime, until: datetime) -> list[JsonObject]:
        """What takes place then, date by date."""
        every = [one for one in self.events.values() if one["status"] != "cancelled" and "recurrence" not in one]
        for series in [one for one in self.events.values() if "recurrence" in one]:
            every += [one for one in self.instances(series, until) if one["id"] not in self.events]
        return [deepcopy(one) for one in every if instant_of(one["start"]) < until and instant_of(one["end"]) > since]

    # Writes -----------------------------------------------------------------------------------------------------------

    def insert(self, body: JsonMapping, *, tells: bool) -> JsonObject:
        """A new event. An id stays taken for ever."""
        self._require_writer()
        event_id = str(body.get("id") or f"g{self.state:019d}")
        if not _ID.fullmatch(event_id):
            raise GoogleRefusal(400, "invalid", "Invalid resource id value.")
        if "id" in body and "iCalUID" in body:
            raise GoogleRefusal(400, "invalid", "Either the id or the iCalUID may be given.")
        if event_id in self.events:
            raise GoogleRefusal(409, "duplicate", "The requested identifier already exists.")
        stamp = written_time(self.now(), "UTC")
        event = {
            **_checked_body(body),
            "id": event_id,
            "kind": "calendar#event",
            "iCalUID": str(body.get("iCalUID") or f"{event_id}@google.com"),
            "created": stamp,
            "sequence": 0,
            "status": body.get("status", "confirmed"),
            "creator": {"email": self.own, "self": True},
            "organizer": {"email": self.own, "self": True},
        }
        return self._store_event(None, event, tells=tells)

    def receive(self, event: JsonMapping) -> JsonObject:
        """An invitation of somebody else arrives."""
        stamp = written_time(self.now(), "UTC")
        whole = {"kind": "calendar#event", "created": stamp, "sequence": 0, "status": "confirmed", **deepcopy(event)}
        return self._store_event(None, whole, tells=False)

    def patch(self, event_id: str, body: JsonMapping, etag: str, *, tells: bool) -> JsonObject:
        """Arrays are replaced, objects are merged, and null removes a field."""
        self._require_writer()
        old = self._require_state(event_id, etag)
        if old["status"] == "cancelled" and body.get("status") not in ("confirmed", "tentative"):
            raise GoogleRefusal(403, "forbidden", "Forbidden")
        if old["status"] == "cancelled" and "start" not in old:
            old = {**_date_of(self.events[old["recurringEventId"]], instant_of(old["originalStartTime"])), "etag": ""}
        new = _merge_patch(old, _checked_body(body, old))
        return self._write_event(old, new, tells=tells)

    def update(self, event_id: str, body: JsonMapping, etag: str, *, tells: bool) -> JsonObject:
        """What is not sent is removed."""
        self._require_writer()
        old = self._require_state(event_id, etag)
        kept = {name: value for name, value in old.items() if name in _SERVER_SAYS | _OF_IDENTITY}
        new = {"status": "confirmed", **_checked_body(body), **kept}
        return self._write_event(old, new, tells=tells)

    def _write_event(self, old: JsonMapping, new: JsonObject, *, tells: bool) -> JsonObject:
        if "recurringEventId" in new and "recurrence" in new:
            raise GoogleRefusal(400, "invalid", "A date of a series does not recur.")
        _require_times(new)
        if any(old.get(name) != new.get(name) for name in TOLD) and new["organizer"].get("self"):
            new["sequence"] = int(new["sequence"]) + 1
        stored = self._store_event(old, new, tells=tells)
        if "recurrence" in stored and not self.keeps_lost_dates:
            self._forget_lost_dates(stored)
        return stored

    def delete(self, event_id: str, etag: str, *, tells: bool) -> None:
        """The dates of a series go with it."""
        self._require_writer()
        old = self._require_state(event_id, etag)
        if old["status"] == "cancelled":
            raise GoogleRefusal(410, "deleted", "Resource has been deleted")
        gone = {**old, "status": "cancelled", "sequence": int(old["sequence"]) + 1}
        if tells:
            self.mails += mails_of(old, gone, self.now())
        if "recurringEventId" in old:
            names = ("id", "kind", "status", "recurringEventId", "originalStartTime")
            gone = {name: gone[name] for name in names}
        self._keep_event(gone)
        for one in self.dates_of(event_id):
            self._keep_event({**one, "status": "cancelled"})

    def _require_writer(self) -> None:
        if self.role not in ("owner", "writer"):
            raise GoogleRefusal(403, "forbidden", "You need to have writer access to this calendar.")

    def _require_state(self, event_id: str, etag: str) -> JsonObject:
        found = self.get(event_id)
        if etag not in ("", "*", found["etag"]):
            raise GoogleRefusal(412, "conditionNotMet", "Precondition Failed")
        return found

    def _store_event(self, old: JsonMapping | None, event: JsonObject, *, tells: bool) -> JsonObject:
        _require_times(event)
        event["attendees"] = [self._attendee_from(one) for one in event.get("attendees", ())]
        if not event["attendees"]:
            del event["attendees"]
        for name in ("start", "end"):
            event[name] = _stored_time(event[name], self.zone)
        if "recurrence" in event:
            next(starts_of(event, datetime.max.replace(tzinfo=UTC)), None)  # a rule that is none is refused
        event["updated"] = written_time(self.now(), "UTC")
        self._keep_event(event)
        if tells:
            self.mails += mails_of(old, event, self.now())
        return deepcopy(event)

    def _keep_event(self, event: JsonObject) -> None:
        self.state += 1
        event["etag"] = f'"{3_000_000_000_000_000 + self.state}"'
        self.events[event["id"]] = event
        self.changed[event["id"]] = self.state

    def _attendee_from(self, given: JsonMapping) -> JsonObject:
        if not _ADDRESS.fullmatch(str(given.get("email", ""))):
            raise GoogleRefusal(400, "invalid", "Invalid attendee email.")
        mine = {"self": True} if given["email"].lower() == self.own else {}
        return {"responseStatus": "needsAction", **{name: one for name, one in given.items() if name != "self"}, **mine}

    def _forget_lost_dates(self, series: JsonMapping) -> None:
        there = {one["id"] for one in self.instances(series)}
        for one in self.dates_of(series["id"]):
            if one["id"] not in there:
                del self.events[one["id"]], self.changed[one["id"]]


def _date_of(series: JsonMapping, start: datetime) -> JsonObject:
    left_out = ("recurrence", "id")
    named = f"{start:%Y%m%d}" if "date" in series["start"] else f"{start:%Y%m%dT%H%M%SZ}"
    return {
        **deepcopy({name: value for name, value in series.items() if name not in left_out}),
        "id": f"{series['id']}_{named}",
        "recurringEventId": series["id"],
        "originalStartTime": time_like(series["start"], start),
        "start": time_like(series["start"], start),
        "end": end_after(series, start),
    }


def _checked_body(body: JsonMapping, old: JsonMapping | None = None) -> JsonObject:
    """What a client may write. Raises GoogleRefusal."""
    if body.get("attendeesOmitted"):
        raise GoogleRefusal(400, "invalid", "attendeesOmitted was written")
    for one in body.get("recurrence") or ():
        if not _RECURRENCE.fullmatch(one):
            raise GoogleRefusal(400, "invalid", "Invalid recurrence rule.")
    if body.get("status") == "cancelled" and old is None:
        raise GoogleRefusal(400, "invalid", "Invalid status value.")
    return {name: deepcopy(value) for name, value in body.items() if name not in _SERVER_SAYS}


def _require_times(event: JsonMapping) -> None:
    start, end = event.get("start"), event.get("end")
    if not start or not end:
        raise GoogleRefusal(400, "required", "Missing end time.")
    if ("date" in start) != ("date" in end) or ("date" in start and "dateTime" in start):
        raise GoogleRefusal(400, "invalid", "Invalid start time.")
    if "recurrence" in event and "date" not in start and not start.get("timeZone"):
        raise GoogleRefusal(400, "required", "Missing time zone definition for start time.")
    if instant_of(end) < instant_of(start):
        raise GoogleRefusal(400, "timeRangeEmpty", "The specified time range is empty.")


def _stored_time(given: JsonMapping, calendar_zone: str) -> JsonObject:
    if "date" in given:
        return {"date": given["date"]}
    zone = str(given.get("timeZone") or calendar_zone)
    return {"dateTime": written_time(instant_of({**given, "timeZone": zone}), zone), "timeZone": zone}


def _merge_patch(old: JsonMapping, patch: JsonMapping) -> JsonObject:
    merged: JsonObject = dict(deepcopy(old))
    for name, value in patch.items():
        before: Any = merged.get(name)
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = _merge_patch(before if isinstance(before, dict) else {}, value)
        else:
            merged[name] = deepcopy(value)
    return merged

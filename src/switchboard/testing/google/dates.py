"""When the dates of a recurring event are, as the server of tests has them. Pure.

`calendar.py` asks. Rules are walked by the calendar module's own code, which is tested beside others' implementations.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Final
from zoneinfo import ZoneInfo

from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.modules.calendar.editing.series import read_source, series_of
from switchboard.modules.calendar.editing.times import iana_zone
from switchboard.testing.google.errors import GoogleRefusal

_MOST: Final = 3_000


def instant_of(time: JsonMapping) -> datetime:
    """Of a start or an end; a day begins at midnight in UTC. Raises GoogleRefusal."""
    try:
        found = datetime.fromisoformat(str(time.get("dateTime") or time["date"]))
        if found.tzinfo is None:
            found = found.replace(tzinfo=ZoneInfo(str(time.get("timeZone") or "UTC")))
    except (KeyError, ValueError, OSError, LookupError) as error:
        raise GoogleRefusal(400, "invalid", "Invalid value for: Invalid format") from error
    return found.astimezone(UTC)


def time_like(time: JsonMapping, at: datetime) -> JsonObject:
    """A time in the form of another one."""
    if "date" in time:
        return {"date": f"{at:%Y-%m-%d}"}
    zone = str(time.get("timeZone") or "UTC")
    return {"dateTime": written_time(at, zone), "timeZone": zone}


def written_time(at: datetime, zone: str) -> str:
    """With its offset, and UTC as `Z`."""
    return at.astimezone(ZoneInfo(zone)).isoformat().replace("+00:00", "Z")


def starts_of(event: JsonMapping, until: datetime) -> Iterator[datetime]:
    """The starts of a series before `until`, without those that it leaves out. Raises GoogleRefusal for no rule."""
    start = event["start"]
    all_day = "date" in start
    zone = ZoneInfo("UTC" if all_day else str(start.get("timeZone") or "UTC"))
    wall = instant_of(start).astimezone(zone)
    named = f";VALUE=DATE:{wall:%Y%m%d}" if all_day else f";TZID={zone.key}:{wall:%Y%m%dT%H%M%S}"
    lines = ("BEGIN:VCALENDAR", "BEGIN:VEVENT", "UID:x", f"DTSTART{named}", *event["recurrence"])
    data = "\r\n".join((*lines, "END:VEVENT", "END:VCALENDAR", "")).encode()
    try:
        series = series_of(read_source(data), iana_zone)
    except InvalidInput as error:
        raise GoogleRefusal(400, "invalid", f"Invalid recurrence rule: {error.message}") from error
    walls = iter(()) if series is None else series.walls()
    found = (one.replace(tzinfo=zone).astimezone(UTC) for one in islice(walls, _MOST))
    return takewhile(lambda at: at < until, found)


def length_of(event: JsonMapping) -> timedelta:
    """How long an event is on the clock of its start."""
    if "date" in event["start"]:
        return instant_of(event["end"]) - instant_of(event["start"])
    zone = ZoneInfo(str(event["start"].get("timeZone") or "UTC"))
    begin, end = (instant_of(event[name]).astimezone(zone).replace(tzinfo=None) for name in ("start", "end"))
    return end - begin


def end_after(event: JsonMapping, start: datetime) -> JsonObject:
    """The end of the date of a series that begins then."""
    zone = ZoneInfo("UTC" if "date" in event["start"] else str(event["start"].get("timeZone") or "UTC"))
    wall = start.astimezone(zone).replace(tzinfo=None) + length_of(event)
    return time_like(event["end"], wall.replace(tzinfo=zone).astimezone(UTC))

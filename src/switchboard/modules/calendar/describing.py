"""What an event is, in words for whoever approves a change, or is told of one. Pure.

`sending.py`, `conflicts.py` and `write_plans.py` call it. In: the bytes of an object; out: text with weekday, local
time and zone.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from switchboard.core.text.visible import visible, visible_start
from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.series import EventPart, address_of, read_source
from switchboard.modules.calendar.editing.times import WrittenTime
from switchboard.modules.calendar.zones import EventZone

PRIVATE: Final = "(private)"
_MOST: Final = 200
_DAY: Final = timedelta(days=1)


class LookingCalendar(Struct, frozen=True):
    """How objects are read: the calendar's zone, the zone of the person, and the person's addresses."""

    zone: EventZone
    floating: ZoneInfo
    addresses: Collection[str]
    shows_private: bool = True


def describe_object(data: bytes, within: LookingCalendar) -> str:
    """The event or the series in an object, in one line."""
    try:
        source = read_source(data)
        part = source.master or source.overrides[0]
        repeats = ", recurring" if part.first("RRULE") else ""
        return f"{describe_for(part, within)}{repeats}"
    except InvalidInput:
        return "something that cannot be read"


def describe_for(part: EventPart, within: LookingCalendar) -> str:
    """What is told of it to whoever asks: nothing private, and no text of an invitation that nobody has accepted."""
    if not within.shows_private and is_private(part):
        return f"{PRIVATE}, {describe_when(part)}"
    if part.organizer and part.organizer not in within.addresses and _is_open(part, within.addresses):
        return f"{invitation_of(part.organizer)}, {describe_when(part)}"
    return describe_part(part)


def is_private(part: EventPart) -> bool:
    """Whether it is for the person of its calendar alone."""
    return part.text("CLASS").strip().upper() not in ("", "PUBLIC")


def invitation_of(organizer: str) -> str:
    """Of which only its sender is told."""
    return f"(an invitation by {clip_text(organizer, 100)}, not accepted yet)"


def _is_open(part: EventPart, addresses: Collection[str]) -> bool:
    """Whether nobody here has answered it; unknown addresses answer nothing."""
    answers = [line.parameter("PARTSTAT") for _, line in part.attendees if address_of(line.value) in addresses]
    return bool(part.attendees) and (answers or [""])[0].upper() in ("", "NEEDS-ACTION")


def describe_part(part: EventPart) -> str:
    """Its title, and when it is."""
    return f"“{clip_text(part.text('SUMMARY')) or '(no title)'}”, {describe_when(part)}"


def describe_when(part: EventPart) -> str:
    """From when to when it is."""
    length = part.length
    end = length if isinstance(length, WrittenTime) else part.start.later_by(length)
    return describe_times(part.start, end)


def describe_times(start: WrittenTime, end: WrittenTime) -> str:
    """From one time to another; of days, both included."""
    if start.all_day:
        last = end.later_by(-_DAY)
        until = "" if last.wall <= start.wall else f" to {last.wall:%A %Y-%m-%d}"
        return f"{start.wall:%A %Y-%m-%d}{until}, all day"
    same = start.wall.date() == end.wall.date() and start.zone == end.zone
    until = f"{end.wall:%H:%M}" if same else f" {end.wall:%A %Y-%m-%d %H:%M}"
    zone = f" {start.zone}" if start.zone else ""
    other = f" {end.zone}" if end.zone != start.zone else ""
    return f"{start.wall:%A %Y-%m-%d %H:%M}{zone if other else ''}-{until}{other or zone}"


def clip_text(text: str, most: int = _MOST) -> str:
    """A text of somebody as one line, bounded and without what cannot be seen: it cannot look like a line of ours."""
    return visible_start(" ".join(visible(text).split()), most)

"""What an event is, in words for whoever approves a change, or is told of one. Pure.

`carrying.py` and `write_plans.py` call it. In: the bytes of an object; out: text with weekday, local time and zone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from switchboard.core.text.visible import visible
from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.series import EventPart, read_source
from switchboard.modules.calendar.editing.times import WrittenTime

_MOST: Final = 200
_DAY: Final = timedelta(days=1)


def describe_object(data: bytes) -> str:
    """The event or the series in an object, in one line."""
    try:
        source = read_source(data)
        part = source.master or source.overrides[0]
        repeats = ", recurring" if part.first("RRULE") else ""
        return f"{describe_part(part)}{repeats}"
    except InvalidInput:
        return "something that cannot be read"


def describe_part(part: EventPart) -> str:
    """Its title, and when it is."""
    title = clip_text(part.text("SUMMARY")) or "(no title)"
    length = part.length
    end = length if isinstance(length, WrittenTime) else part.start.later_by(length)
    return f"“{title}”, {describe_times(part.start, end)}"


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
    plain = " ".join(visible(text).split())
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"

"""Schedules: named sets of time windows, such as office hours.

Rules can match the schedules in which a message arrived.

Built by `app/channels.py` from the settings, used where facts are derived. In: a moment; out: the names of the
schedules that include it. Next: `core/routing/facts.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Final

from msgspec import Struct

from switchboard.core.zones import find_zone
from switchboard.ports.channel import SEVERAL

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = f"(?:{'|'.join(DAYS)})"
_WINDOW: Final = re.compile(rf"(?:({_DAY})(?:-({_DAY}))? +)?(\d\d):(\d\d)-(\d\d):(\d\d)")
_MINUTES: Final = 24 * 60


class Window(Struct, frozen=True):
    """From one minute of the day up to another, on some days of the week (0 is Monday); it may end on the next day."""

    days: frozenset[int]
    start: int
    end: int

    def holds(self, day: int, minute: int) -> bool:
        """Whether it includes a minute of a day of the week."""
        if self.start < self.end:
            return day in self.days and self.start <= minute < self.end
        return (day in self.days and minute >= self.start) or ((day - 1) % 7 in self.days and minute < self.end)


class Schedule(Struct, frozen=True):
    """Windows under one name, in local time of a time zone."""

    name: str
    zone: tzinfo
    windows: tuple[Window, ...]

    def holds(self, moment: datetime) -> bool:
        """Whether one of its windows includes the moment."""
        there = moment.astimezone(self.zone)
        return any(one.holds(there.weekday(), there.hour * 60 + there.minute) for one in self.windows)


def read_schedule(name: str, zone: str, windows: Sequence[str]) -> Schedule:
    """The schedule with these windows by the clocks of a time zone, named as IANA does. Raises ValueError."""
    return Schedule(name, find_zone(zone), tuple(map(parse_window, windows)))


def schedules_at(schedules: Sequence[Schedule], moment: datetime) -> str | None:
    """The names of the schedules that include the moment, as the fact `schedule`; None if there are none."""
    return SEVERAL.join(one.name for one in schedules if one.holds(moment)) or None


def parse_window(text: str) -> Window:
    """The window in `mon-fri 09:00-17:00`, `sat 10:00-12:00`, or for every day, `22:00-06:00`. Raises ValueError."""
    found = _WINDOW.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a time window: write mon-fri 09:00-17:00, sat 10:00-12:00 or 22:00-06:00")
    first, last, *clock = found.groups()
    start, end = (_minute(text, hour, minute) for hour, minute in (clock[:2], clock[2:]))
    if start == end:
        raise ValueError(f"{text!r} is empty: for whole days write 00:00-24:00")
    return Window(_days(first, last), start, end)


def _minute(text: str, hour: str, minute: str) -> int:
    found = int(hour) * 60 + int(minute)
    if int(minute) > 59 or found > _MINUTES:
        raise ValueError(f"{text!r}: {hour}:{minute} is not a time of day")
    return found


def _days(first: str | None, last: str | None) -> frozenset[int]:
    if first is None:
        return frozenset(range(7))
    start, end = DAYS.index(first), DAYS.index(last or first)
    return frozenset((start + offset) % 7 for offset in range((end - start) % 7 + 1))

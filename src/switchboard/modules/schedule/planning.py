"""When a task is due, when next, and what becomes of it if nobody was there in time. Pure.

`tools.py` makes tasks with it and `due.py` carries them on; next: `recurrence.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from msgspec import Struct

from switchboard.core.zones import find_zone
from switchboard.modules.schedule.instants import fingerprint_of, instant_of, is_left_out, wall_at
from switchboard.modules.schedule.recurrence import Recurrence, next_instant, read_recurrence, shortest_interval
from switchboard.modules.schedule.spoken import WEEKDAYS

Kind = Literal["say", "do"]
"""`say`: the text is said as it stands, without a model. `do`: the butler does what the text asks, in a turn."""

SAY_LATE: Final = timedelta(hours=24)
"""So late something may still be said, with the remark that it is late."""
DO_LATE: Final = timedelta(hours=1)
"""So late something may still be done, or half the time until it is due again, if that is less."""
LEAST_INTERVAL: Final = {"say": timedelta(minutes=5), "do": timedelta(minutes=15)}
ON_TIME: Final = timedelta(minutes=1)
"""Less is not called late."""
_COUNTED: Final = 1000
FARTHEST: Final = timedelta(days=5 * 366)
"""How far ahead a task may be due for the first time."""


class TaskTiming(Struct, frozen=True):
    """When a task is due: once at a wall time, or whenever a cron expression says; in the zone with this name."""

    zone: str
    wall: datetime | None = None
    """Naive; None: it recurs."""
    cron: str = ""


class Due(Struct, frozen=True):
    """One time at which a task is due: the instant (UTC), and the wall time, naive; of a repeated one, which.

    The wall time is what the clocks show then. Only that of a task that is due once stays as it was said, even if the
    clocks leave it out.
    """

    at: datetime
    wall: datetime
    fold: int = 0


def first_due(timing: TaskTiming, now: datetime) -> Due:
    """When a new task is due for the first time. Raises ValueError if never, with what would be correct."""
    zone = find_zone(timing.zone)
    if timing.wall is None:
        return _recurring_due(read_recurrence(timing.cron), timing.zone, now)
    there = wall_at(now, zone)
    ahead = timing.wall - there
    if ahead > FARTHEST:
        raise ValueError(f"{show_wall(timing.wall)} is more than five years ahead: give an earlier date")
    # Near the ends of the calendar, a wall time may be no instant at all.
    at = now if ahead < -SAY_LATE else instant_of(timing.wall, zone)
    if at <= now:
        raise ValueError(
            f"{show_wall(timing.wall)} has passed: it is {show_wall(there)} in {timing.zone}. "
            "Call it again with the time as they said it, or YYYY-MM-DD HH:MM"
        )
    return Due(at, timing.wall)


def next_due(timing: TaskTiming, after: datetime) -> Due | None:
    """When it is due next after an instant at which it was due; None: it was due once."""
    if timing.wall is not None:
        return None
    try:
        return _recurring_due(Recurrence(timing.cron), timing.zone, after)
    except (ValueError, OverflowError):
        return None


def due_after_pause(timing: TaskTiming, due: Due | None, now: datetime) -> Due | None:
    """When a task is due next that was paused and goes on now; None: it was due once, and that time has passed.

    `due`: when it was to be due next. What went by is left out. Raises ValueError, OverflowError if it cannot be
    planned.
    """
    if timing.wall is None:
        return _recurring_due(Recurrence(timing.cron), timing.zone, now)
    again = None if due is None else due_again(timing, due)
    return again if again is not None and again.at > now else None


def next_times(timing: TaskTiming, due: Due | None, count: int) -> list[Due]:
    """That one and those that follow, at most so many."""
    found: list[Due] = []
    while due is not None and len(found) < count:
        found.append(due)
        due = next_due(timing, due.at)
    return found


def due_again(timing: TaskTiming, due: Due) -> Due:
    """The same wall time under the rules that the zone has now: they may have been changed since it was planned."""
    zone = find_zone(timing.zone)
    at = due.wall.replace(tzinfo=zone, fold=due.fold).astimezone(UTC)
    return Due(at, due.wall, due.fold)


def catch_up(timing: TaskTiming, due: Due, now: datetime) -> tuple[Due, int, Due | None]:
    """The latest time until `now` at which it was due, how many before it went by, and when it is due next.

    Of more than a thousand that went by, the number is a lower bound, and the time may be one before the latest.
    What went by unattended is not made up for one by one: a task that recurs fires once.
    """
    passed = 0
    following = next_due(timing, due.at)
    while following is not None and following.at <= now:
        due, passed = following, passed + 1
        # Whatever is not of the last day is missed anyway: after months, not each of the times is looked at.
        following = next_due(timing, due.at if passed < _COUNTED else max(due.at, now - SAY_LATE - ON_TIME))
    return due, passed, following


def comes_too_late(kind: Kind, due: Due, following: Due | None, now: datetime) -> bool:
    """Whether it is missed: neither said nor done any more."""
    late = now - due.at
    if kind == "say":
        return late > SAY_LATE
    return late > (DO_LATE if following is None else min(DO_LATE, (following.at - due.at) / 2))


def check_interval(kind: Kind, cron: str) -> None:
    """Raise ValueError if it recurs more often than tasks of its kind may."""
    shortest, least = shortest_interval(read_recurrence(cron)), LEAST_INTERVAL[kind]
    if shortest < least:
        minutes = int(least.total_seconds() // 60)
        raise ValueError(
            f"{cron!r} is due every {int(shortest.total_seconds() // 60)} minutes: "
            f"a task that is to {kind} something may be due every {minutes} minutes at most"
        )


def zone_fingerprint(timing: TaskTiming) -> str:
    """What differs if the rules of its zone were changed."""
    return fingerprint_of(find_zone(timing.zone))


def show_wall(wall: datetime) -> str:
    """`Thursday 2026-12-24 18:30`."""
    return f"{WEEKDAYS[wall.weekday()]} {wall:%Y-%m-%d %H:%M}"


def show_due(due: Due, zone_name: str) -> str:
    """`Thursday 2026-12-24 18:30 Europe/Berlin`; if the clocks leave it out, also what they show then."""
    zone = find_zone(zone_name)
    shown = f"{show_wall(due.wall)} {zone_name}"
    if not is_left_out(due.wall, zone):
        return shown
    return f"{shown} (the clocks leave that out; it will be {wall_at(due.at, zone):%H:%M})"


def _recurring_due(recurrence: Recurrence, zone_name: str, after: datetime) -> Due:
    zone = find_zone(zone_name)
    at = next_instant(recurrence, zone, after)
    return Due(at, wall_at(at, zone), at.astimezone(zone).fold)

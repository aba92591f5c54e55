"""When something that recurs is due: cron's five fields, in a time zone.

`tools.py` reads what a model has written, and `planning.py` asks for the next time. The fields mean wall times, see
`instants.py`; only where the hour is `*` every hour counts, also one that the clocks repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from switchboard.modules.schedule.instants import change_around, instant_of, second_instant_of, wall_at

MAX_EXPRESSION: Final = 100
"""Characters of an expression."""
_NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FORM: Final = "write five fields, minute hour day month weekday, such as 30 7 * * mon-fri"
_ANY_DAY: Final = datetime(2001, 1, 1)  # noqa: DTZ001  wall times have no zone


class Recurrence(Struct, frozen=True):
    """An expression that `read_recurrence` has checked."""

    expression: str

    @property
    def is_hourly(self) -> bool:
        """Whether every hour counts, so that it goes on in an hour that the clocks repeat."""
        return self.expression.split()[1] == "*"


def read_recurrence(text: str) -> Recurrence:
    """What cron's five fields, or a name such as @daily, say. Raises ValueError, with what would be correct."""
    written = " ".join(text.split()).lower()
    expression = _NICKNAMES.get(written, written)
    fields = expression.split()
    if len(fields) != 5 or len(expression) > MAX_EXPRESSION:
        raise ValueError(f"{text[:MAX_EXPRESSION]!r} has not five fields: {_FORM}")
    if fields[2] != "*" and fields[4] != "*":
        raise ValueError(
            f"{text!r} names days of the month and of the week: is it due on days that are both, or either? "
            "Write * for one of them, or make two tasks"
        )
    try:
        next(CronSim(expression, _ANY_DAY))
    except CronSimError as error:
        raise ValueError(f"{text!r} can never be due, or is no cron expression ({error}): {_FORM}") from None
    except StopIteration:
        raise ValueError(f"{text!r} can never be due: there is no such date") from None
    return Recurrence(expression)


def describe_recurrence(expression: str) -> str:
    """A checked expression in words, such as `at 18:00 every day`."""
    words = CronSim(expression, _ANY_DAY).explain()
    return f"{words[:1].lower()}{words[1:]}"


def shortest_interval(recurrence: Recurrence) -> timedelta:
    """The least time between two wall times at which it is due, if the days on which it is due follow each other."""
    simulated = CronSim(recurrence.expression, _ANY_DAY)
    times = sorted(60 * hour + minute for hour in simulated.hours for minute in simulated.minutes)
    following = [*times[1:], times[0] + 24 * 60]
    return timedelta(minutes=min(later - earlier for earlier, later in zip(times, following, strict=True)))


def next_instant(recurrence: Recurrence, zone: ZoneInfo, after: datetime) -> datetime:
    """The first instant after another one (both UTC) at which it is due. Raises ValueError if there is none."""
    start = wall_at(after, zone) - change_around(after, zone) - timedelta(minutes=1)
    found: datetime | None = None
    until: datetime | None = None
    # Where the clocks change, wall times in order are not instants in order: a time that is left out is later than
    # some that follow it. So after the first that was found, those count that are as near as the clocks change.
    for wall in _wall_times(recurrence, start):
        if until is not None and wall > until:
            break
        for instant in _instants_of(recurrence, wall, zone):
            if instant > after and (found is None or instant < found):
                found = instant
                until = wall_at(instant, zone) + change_around(instant, zone)
    if found is None:
        raise ValueError(f"{recurrence.expression!r} is not due again")
    return found


def _instants_of(recurrence: Recurrence, wall: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    yield instant_of(wall, zone)
    if recurrence.is_hourly:
        yield second_instant_of(wall, zone)


def _wall_times(recurrence: Recurrence, after: datetime) -> Iterator[datetime]:
    yield from CronSim(recurrence.expression, after)

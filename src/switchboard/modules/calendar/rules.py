"""Recurrence rules (RFC 5545, 3.3.10), expanded lazily and within a budget, in wall times. Pure.

`expansion.py` calls it for events, `zones.py` for the changes of clocks in a VTIMEZONE. No library that expands rules
can be stopped: a rule that never comes true keeps dateutil busy until the year 9999. Here each day that is looked at
costs a step, nothing behind the end of the window is looked at, and a rule without COUNT begins near the window.
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from itertools import product
from typing import Final, Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

MAX_STEPS: Final = 60_000
"""What the zones and dates of one object may cost: about 100 ms, and never 250."""

Frequency = Literal["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY"]
_FREQUENT: Final = ("MINUTELY", "SECONDLY")
_WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_BYDAY: Final = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_UNTIL: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?")
_DAY: Final = timedelta(days=1)
_NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "BYMONTH": (1, 12),
    "BYWEEKNO": (-53, 53),
    "BYYEARDAY": (-366, 366),
    "BYMONTHDAY": (-31, 31),
    "BYHOUR": (0, 23),
    "BYMINUTE": (0, 59),
    "BYSECOND": (0, 60),
    "BYSETPOS": (-366, 366),
}


class UnreadableEvent(ValueError):
    """Why an object, or what recurs in it, cannot be read."""


class Budget:
    """What is left of the steps that one object may cost, `within` what a call may cost that reads several.

    Raises UnreadableEvent when nothing is.
    """

    def __init__(self, steps: int = MAX_STEPS, within: Budget | None = None) -> None:
        self.left = steps
        self._within = within

    def spend(self, steps: int = 1) -> None:
        """Count steps before they are made."""
        if self._within is not None:
            self._within.spend(steps)
        self.left -= steps
        if self.left < 0:
            raise UnreadableEvent("it takes too long to find out when it is")


class RuleEnd(Struct, frozen=True):
    """UNTIL as written: `wall`, and whether it is a day or in UTC."""

    wall: datetime
    is_day: bool = False
    is_utc: bool = False


class RecurrenceRule(Struct, frozen=True):
    """An RRULE, with the numbers of its parts. A weekday is its ordinal, 0 if it has none, and 0 (Monday) to 6."""

    frequency: Frequency
    interval: int = 1
    count: int | None = None
    until: RuleEnd | None = None
    months: frozenset[int] = frozenset()
    weeks: frozenset[int] = frozenset()
    year_days: frozenset[int] = frozenset()
    month_days: frozenset[int] = frozenset()
    weekdays: frozenset[tuple[int, int]] = frozenset()
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    seconds: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    week_start: int = 0


def read_rule(text: str) -> RecurrenceRule:
    """The value of an RRULE. Raises UnreadableEvent, with what is wrong."""
    parts: dict[str, str] = {}
    for part in filter(None, text.strip().rstrip(";").split(";")):
        name, equals, value = part.upper().partition("=")
        if not equals or (name := name.strip()) in parts:
            raise UnreadableEvent(
                f"the recurrence rule has a part {part[:40]!r}, which is no NAME=VALUE, or stands twice"
            )
        parts[name] = value.strip()
    if parts.get("RSCALE", "GREGORIAN") != "GREGORIAN" or parts.get("SKIP", "OMIT") != "OMIT":
        raise UnreadableEvent("it recurs by RSCALE or SKIP, which is not supported")
    numbers = {name: _numbers_in(parts, name) for name in _NUMBERS}
    return RecurrenceRule(
        _frequency_of(parts),
        _number_in(parts, "INTERVAL") or 1,
        _number_in(parts, "COUNT"),
        _until_of(parts),
        frozenset(numbers["BYMONTH"]),
        frozenset(numbers["BYWEEKNO"]),
        frozenset(numbers["BYYEARDAY"]),
        frozenset(numbers["BYMONTHDAY"]),
        _weekdays_of(parts),
        numbers["BYHOUR"],
        numbers["BYMINUTE"],
        numbers["BYSECOND"],
        numbers["BYSETPOS"],
        _week_start_of(parts),
    )


def _frequency_of(parts: Mapping[str, str]) -> Frequency:
    said = parts.get("FREQ", "")
    if said in _FREQUENT:
        raise UnreadableEvent(f"it recurs {said.lower()}, which is not supported")
    if said not in get_args(Frequency):
        raise UnreadableEvent(f"the recurrence rule has FREQ={said[:20]!r}")
    return cast("Frequency", said)


def _number_in(parts: Mapping[str, str], name: str) -> int | None:
    if name not in parts:
        return None
    if not re.fullmatch(r"\d{1,9}", parts[name]) or int(parts[name]) == 0:
        raise UnreadableEvent(f"the recurrence rule has {name}={parts[name][:20]}: write a number from 1")
    return int(parts[name])


def _until_of(parts: Mapping[str, str]) -> RuleEnd | None:
    if "UNTIL" not in parts:
        return None
    wrong = f"the recurrence rule has UNTIL={parts['UNTIL'][:40]}, which is no time"
    match = _UNTIL.fullmatch(parts["UNTIL"])
    if match is None:
        raise UnreadableEvent(wrong)
    numbers = [int(one or 0) for one in match.groups()[:6]]
    try:
        wall = wall_from(numbers)
    except ValueError:
        raise UnreadableEvent(wrong) from None
    return RuleEnd(wall, match[4] is None, bool(match[7]))


def wall_from(numbers: Sequence[int]) -> datetime:
    """A wall time from its year, month, day, hour, minute and second. Raises ValueError."""
    year, month, day, hour, minute, second = numbers
    return datetime(year, month, day, hour, minute, second)  # noqa: DTZ001  wall times have no zone


def _numbers_in(parts: Mapping[str, str], name: str) -> tuple[int, ...]:
    least, most = _NUMBERS[name]
    found = set()
    for one in filter(None, parts.get(name, "").split(",")):
        number = int(one) if re.fullmatch(r"\s*[+-]?\d{1,3}\s*", one) else most + 1
        if not least <= number <= most or (number == 0 and least < 0):
            raise UnreadableEvent(f"the recurrence rule has {name}={one[:20]}")
        found.add(number)
    return tuple(sorted(found))


def _weekdays_of(parts: Mapping[str, str]) -> frozenset[tuple[int, int]]:
    found = set()
    for one in filter(None, parts.get("BYDAY", "").split(",")):
        match = _BYDAY.fullmatch(one.strip())
        if match is None or not -53 <= int(match[1] or 1) <= 53 or match[1] in ("0", "+0", "-0"):
            raise UnreadableEvent(f"the recurrence rule has BYDAY={one[:20]}")
        found.add((int(match[1] or 0), _WEEKDAYS.index(match[2])))
    return frozenset(found)


def _week_start_of(parts: Mapping[str, str]) -> int:
    said = parts.get("WKST", "MO")
    if said not in _WEEKDAYS:
        raise UnreadableEvent(f"the recurrence rule has WKST={said[:20]}")
    return _WEEKDAYS.index(said)


def expand_rule(
    rule: RecurrenceRule, start: datetime, since: datetime, until: datetime, budget: Budget
) -> Iterator[datetime]:
    """The wall times of a rule from `start`, which is always the first, to `until`; those long before `since` are left
    out if nothing depends on them. UNTIL is the caller's, who knows the zone: `until` is the earlier of both.

    Raises UnreadableEvent when the budget is spent.
    """
    number = 1
    if start < until:
        yield start
    for wall in _walls_of(rule, start, since if rule.count is None else start, until, budget):
        if wall <= start:
            continue
        number += 1
        if wall >= until or (rule.count is not None and number > rule.count):
            return
        budget.spend()
        yield wall


def _walls_of(
    rule: RecurrenceRule, start: datetime, since: datetime, until: datetime, budget: Budget
) -> Iterator[datetime]:
    if rule.frequency == "HOURLY":
        yield from _walls_of_hours(rule, start, since, until, budget)
        return
    times = _times_of(rule, start, budget)
    matches = _day_filter(rule, start)
    for days in _days_by_period(rule, start.date(), since.date(), until.date()):
        budget.spend(len(days))
        found = [day for day in days if matches(day)]
        budget.spend(len(found) * (len(times) - 1) if found else 0)
        walls = [datetime.combine(day, at) for day in found for at in times]
        yield from _by_position(walls, rule.positions)


def _walls_of_hours(
    rule: RecurrenceRule, start: datetime, since: datetime, until: datetime, budget: Budget
) -> Iterator[datetime]:
    matches = _day_filter(rule, start)
    step = timedelta(hours=rule.interval)
    within = [(m, s) for m, s in product(rule.minutes or (start.minute,), rule.seconds or (start.second,)) if s < 60]
    hour = start.replace(minute=0, second=0)
    hour += max(0, (since - hour) // step - 1) * step
    while hour < until:
        budget.spend(2)
        if matches(hour.date()) and (not rule.hours or hour.hour in rule.hours):
            budget.spend(len(within))
            walls = [hour.replace(minute=minute, second=second) for minute, second in within]
            yield from _by_position(walls, rule.positions)
        hour += step


def _times_of(rule: RecurrenceRule, start: datetime, budget: Budget) -> list[time]:
    hours, minutes = rule.hours or (start.hour,), rule.minutes or (start.minute,)
    seconds = [one for one in rule.seconds or (start.second,) if one < 60]
    budget.spend(len(hours) * len(minutes) * len(seconds))
    return [time(*one) for one in product(hours, minutes, seconds)]


def _by_position(walls: Sequence[datetime], positions: Sequence[int]) -> Sequence[datetime]:
    if not positions:
        return walls
    within = {one - 1 if one > 0 else len(walls) + one for one in positions}
    return [walls[index] for index in sorted(within) if 0 <= index < len(walls)]


def _days_by_period(rule: RecurrenceRule, first: date, since: date, until: date) -> Iterator[Sequence[date]]:
    """The days of each year, month, week or day of the rule, from that of `first`; those that end before `since` are
    passed over. The last one may reach behind `until`."""
    if rule.frequency in ("DAILY", "WEEKLY"):
        length = 7 if rule.frequency == "WEEKLY" else 1
        begin = first - timedelta(days=(first.weekday() - rule.week_start) % 7) if length == 7 else first
        step = timedelta(days=length * rule.interval)
        begin += max(0, (since - begin) // step) * step
        while begin <= until:
            yield [begin + _DAY * index for index in range(length)]
            begin = _later_day(begin, step)
        return
    each = 12 if rule.frequency == "YEARLY" else 1
    month = first.year * 12 + (first.month - 1 if each == 1 else 0)
    step_months = each * rule.interval
    month += max(0, (since.year * 12 + since.month - 1 - month) // step_months) * step_months
    while month <= until.year * 12 + until.month - 1 and month // 12 <= 9998:
        chosen = range(month, month + each)
        wanted = [one for one in chosen if not rule.months or one % 12 + 1 in rule.months] or chosen[:0]
        if rule.weeks or rule.year_days:
            wanted = list(chosen)
        yield _days_of(wanted)
        month += step_months


def _later_day(day: date, step: timedelta) -> date:
    try:
        return day + step
    except OverflowError:
        return date.max


def _days_of(months: Sequence[int]) -> list[date]:
    return [
        date(month // 12, month % 12 + 1, day)
        for month in months
        for day in range(1, monthrange(month // 12, month % 12 + 1)[1] + 1)
    ]


def _day_filter(rule: RecurrenceRule, start: datetime) -> Callable[[date], bool]:
    """Whether a day is one of the rule's. What the rule leaves open is taken from its start."""
    rule_days = _with_days_of_start(rule, start)
    checks: list[Callable[[date], bool]] = []
    if months := rule_days.months:
        checks.append(lambda day: day.month in months)
    if weeks := rule_days.weeks:
        checks.append(lambda day: _in_weeks(day, weeks, rule.week_start))
    if year_days := rule_days.year_days:
        checks.append(lambda day: _is_at(day.timetuple().tm_yday, 366 if isleap(day.year) else 365, year_days))
    if month_days := rule_days.month_days:
        checks.append(lambda day: _is_at(day.day, monthrange(day.year, day.month)[1], month_days))
    if rule_days.weekdays:
        checks.append(_weekday_filter(rule_days))
    return lambda day: all(check(day) for check in checks)


def _with_days_of_start(rule: RecurrenceRule, start: datetime) -> RecurrenceRule:
    if rule.frequency in ("DAILY", "HOURLY") or rule.weekdays or rule.year_days or rule.month_days:
        return rule
    if rule.frequency == "WEEKLY" or rule.weeks:
        return replace(rule, weekdays=frozenset({(0, start.weekday())}))
    months = rule.months or (frozenset({start.month}) if rule.frequency == "YEARLY" else rule.months)
    return replace(rule, months=months, month_days=frozenset({start.day}))


def _is_at(place: int, length: int, wanted: frozenset[int]) -> bool:
    return place in wanted or place - length - 1 in wanted


def _weekday_filter(rule: RecurrenceRule) -> Callable[[date], bool]:
    """With ordinals, which count within the month or the year; elsewhere they mean nothing."""
    if rule.frequency == "MONTHLY" or (rule.frequency == "YEARLY" and rule.months and not rule.weeks):
        return lambda day: _is_nth(day.day, monthrange(day.year, day.month)[1], day.weekday(), rule.weekdays)
    if rule.frequency == "YEARLY" and not rule.weeks:
        return lambda day: _is_nth(
            day.timetuple().tm_yday, 366 if isleap(day.year) else 365, day.weekday(), rule.weekdays
        )
    plain = frozenset(weekday for _, weekday in rule.weekdays)
    return lambda day: day.weekday() in plain


def _is_nth(place: int, length: int, weekday: int, wanted: frozenset[tuple[int, int]]) -> bool:
    nth, last = (place - 1) // 7 + 1, -((length - place) // 7 + 1)
    return (0, weekday) in wanted or (nth, weekday) in wanted or (last, weekday) in wanted


def _in_weeks(day: date, weeks: frozenset[int], week_start: int) -> bool:
    """By the number of the day's week. The first of a year has at least four days in it, so that it may begin in the
    year before."""
    if not 2 <= day.year <= 9997:
        return False
    starts = [_first_week(day.year + by, week_start) for by in (-1, 0, 1, 2)]
    index = max(index for index, one in enumerate(starts) if one <= day)
    number, last = (day - starts[index]).days // 7 + 1, (starts[index + 1] - starts[index]).days // 7
    return _is_at(number, last, weeks)


def _first_week(year: int, week_start: int) -> date:
    fourth = date(year, 1, 4)
    return fourth - timedelta(days=(fourth.weekday() - week_start) % 7)

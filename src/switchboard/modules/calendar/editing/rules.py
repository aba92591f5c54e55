"""Rules of recurrence (RRULE): made of a few fields, read, moved, split, and carried out on wall times. Pure.

`scopes.py` calls it. In: the value of an RRULE and the wall time of DTSTART; out: another value, or wall times. What
cannot be moved or split without other dates is refused with what would be right. Source: RFC 5545, 3.3.10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Literal, cast

from msgspec import Struct

from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.times import WrittenTime, ZoneOf, read_time, time_at
from switchboard.modules.calendar.rules import Budget, UnreadableEvent, expand_rule, read_rule

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
WEEKDAYS: Final[tuple[Weekday, ...]] = (
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
)
MOST: Final = 2_000
"""Occurrences of one series that are looked at."""
_DAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_SECOND: Final = timedelta(seconds=1)
_UNITS: Final = {"day": "DAILY", "week": "WEEKLY", "month": "MONTHLY", "year": "YEARLY"}
_FURTHEST: Final = timedelta(days=36_500)
_REPEATS: Final = re.compile(
    r"(?:every )?(?:(?P<number>\d{1,2}|other|second) )?"
    r"(?P<unit>day|week|month|year|weekday|daily|weekly|monthly|yearly)s?"
    r"(?: on (?P<days>[a-z, ]+?))?"
    r"(?:,? (?:until (?P<until>\d{4}-\d\d-\d\d)|(?:for )?(?P<times>\d{1,3}) times))?"
)
_ADVERBS: Final = {"daily": "day", "weekly": "week", "monthly": "month", "yearly": "year", "weekday": "week"}
_FORM: Final = "write such as: week; 2 weeks on mon, wed; month on tue; day until 2027-01-31; week 10 times"
_NO_RULE: Final = "its rule of recurrence cannot be read; change it in the program that made it"


class Repeats(Struct, frozen=True):
    """How a new series recurs: every `interval` units, until a day or so many times, else without an end."""

    every: Literal["day", "week", "month", "year"]
    interval: int = 1
    on: tuple[Weekday, ...] = ()
    """For weeks: the weekdays; if empty, that of the start. For months: the same numbered weekday, such as the 2nd."""
    until: date | None = None
    times: int | None = None


def read_repeats(text: str) -> Repeats:
    """`week`, `every 2 weeks on mon, wed until 2027-01-31`, `month on tue 10 times`. Raises InvalidInput."""
    match = _REPEATS.fullmatch(" ".join(text.lower().split()))
    if match is None:
        raise InvalidInput(f"{text[:60]!r} says not how it recurs: {_FORM}", field="repeats")
    number, unit = match["number"] or "1", match["unit"]
    days = "mon, tue, wed, thu, fri" if unit == "weekday" else match["days"] or ""
    try:
        until = date.fromisoformat(match["until"]) if match["until"] else None
    except ValueError:
        raise InvalidInput(f"{match['until']} is no date of the calendar", field="repeats") from None
    every = cast("Literal['day', 'week', 'month', 'year']", _ADVERBS.get(unit, unit))
    interval = int(number) if number.isdecimal() else 2
    times = int(match["times"]) if match["times"] else None
    if interval == 0 or times == 0:
        raise InvalidInput(f"{text[:60]!r} recurs never: {_FORM}", field="repeats")
    return Repeats(every, interval, tuple(map(_weekday_named, days.replace(",", " ").split())), until, times)


def _weekday_named(word: str) -> Weekday:
    found = [name for name in WEEKDAYS if len(word) >= 3 and name.startswith(word.removesuffix("s"))]
    if len(found) != 1:
        raise InvalidInput(f"{word[:20]!r} is no weekday: {_FORM}", field="repeats")
    return found[0]


class RruleParts(Struct, frozen=True):
    """The parts of an RRULE, by their names in upper case and in their order."""

    parts: Mapping[str, str]

    def __str__(self) -> str:
        return ";".join(f"{name}={value}" for name, value in self.parts.items())

    def with_parts(self, **parts: str | None) -> RruleParts:
        """With other parts; None removes one."""
        merged = {**self.parts, **parts}
        return RruleParts({name: value for name, value in merged.items() if value is not None})

    @property
    def frequency(self) -> str:
        return self.parts["FREQ"].upper()

    @property
    def ends(self) -> bool:
        """Whether it has an end."""
        return bool({"COUNT", "UNTIL"} & set(self.parts))


def rule_of(repeats: Repeats, start: WrittenTime, zone_of: ZoneOf) -> RruleParts:
    """The rule of a new series. Raises InvalidInput for fields that contradict each other."""
    if repeats.until is not None and repeats.times is not None:
        raise InvalidInput("a series ends on a day or after a number of times, not both", field="repeats")
    if repeats.on and repeats.every not in ("week", "month"):
        raise InvalidInput("weekdays are named for series of weeks and months only", field="repeats")
    parts = {"FREQ": _UNITS[repeats.every]}
    if repeats.interval > 1:
        parts["INTERVAL"] = str(repeats.interval)
    if repeats.on:
        parts["BYDAY"] = _by_day(repeats, start)
    if repeats.times is not None:
        parts["COUNT"] = str(repeats.times)
    if repeats.until is not None:
        if repeats.until < start.wall.date():
            raise InvalidInput(f"the series would end on {repeats.until}, before its first day", field="repeats")
        parts["UNTIL"] = write_until(start, datetime.combine(repeats.until, time(23, 59, 59)), zone_of)
    return RruleParts(parts)


def _by_day(repeats: Repeats, start: WrittenTime) -> str:
    """The first date is one of the series; anything else is undefined, and read differently by every program."""
    days = sorted({WEEKDAYS.index(one) for one in repeats.on})
    if start.wall.weekday() not in days:
        right = f"{start.wall:%Y-%m-%d} is a {WEEKDAYS[start.wall.weekday()]}"
        raise InvalidInput(f"the series has to begin on one of its weekdays: {right}", field="repeats")
    if repeats.every == "week":
        return ",".join(_DAYS[one] for one in days)
    if len(days) > 1:
        raise InvalidInput("a series of months has one weekday", field="repeats")
    number = (start.wall.day - 1) // 7 + 1
    return f"{-1 if number == 5 else number}{_DAYS[days[0]]}"


def parse_rule(value: str) -> RruleParts:
    """The value of an RRULE. Raises InvalidInput for one that cannot be carried out, or would never come to an end."""
    parts: dict[str, str] = {}
    for one in value.strip().strip(";").split(";"):
        name, mark, said = one.partition("=")
        if not mark or name.upper() in parts:
            raise InvalidInput(_NO_RULE, field="RRULE")
        parts[name.upper()] = said
    rule = RruleParts(parts)
    if set(parts) >= {"COUNT", "UNTIL"}:
        raise InvalidInput(_NO_RULE, field="RRULE")
    try:
        read_rule(value)
    except UnreadableEvent as error:
        raise InvalidInput(f"{error}: change it in the program that made it", field="RRULE") from error
    return rule


def walls_of(rule: RruleParts, start: WrittenTime, zone_of: ZoneOf) -> Iterator[datetime]:
    """Its wall times in order, at most those of a hundred years. Raises InvalidInput if they cannot be told."""
    last = last_wall(rule, start, zone_of) or start.wall + _FURTHEST
    ruled = read_rule(str(rule.with_parts(UNTIL=None)))
    try:
        yield from expand_rule(ruled, start.wall, start.wall, last + _SECOND, Budget())
    except UnreadableEvent as error:
        raise InvalidInput(f"the dates of this series cannot be told: {error}", field="RRULE") from error


def last_wall(rule: RruleParts, start: WrittenTime, zone_of: ZoneOf) -> datetime | None:
    """The UNTIL of a rule on the clock of its start; None: it has none. A date means its whole day."""
    if "UNTIL" not in rule.parts:
        return None
    until = read_time(rule.parts["UNTIL"])
    if until.all_day:
        return until.wall + timedelta(days=1) - _SECOND
    if until.zone == "UTC" and not start.all_day:
        return time_at(until.wall.replace(tzinfo=UTC), start, zone_of).wall
    return until.wall


def write_until(start: WrittenTime, last: datetime, zone_of: ZoneOf) -> str:
    """An UNTIL in the form that fits a start: a date, a floating time, or UTC."""
    at = WrittenTime(last, start.zone, start.all_day)
    if start.all_day or not start.zone:
        return at.value
    return f"{at.instant(zone_of):%Y%m%dT%H%M%SZ}"


def count_before(rule: RruleParts, start: WrittenTime, split: datetime, zone_of: ZoneOf) -> int:
    """How many wall times it has before another one. Raises InvalidInput for more than 2,000."""
    number = 0
    for wall in walls_of(rule, start, zone_of):
        if wall >= split:
            break
        number += 1
        if number > MOST:
            raise InvalidInput(f"more than {MOST:,} dates of this series are before that one", field="occurrence")
    return number


def end_before(rule: RruleParts, start: WrittenTime, split: datetime, zone_of: ZoneOf) -> RruleParts:
    """The rule up to a second before a wall time, or the day before if it is of days."""
    last = split - (timedelta(days=1) if start.all_day else _SECOND)
    return rule.with_parts(COUNT=None, UNTIL=write_until(start, last, zone_of))


def begin_at(rule: RruleParts, start: WrittenTime, split: datetime, zone_of: ZoneOf) -> RruleParts:
    """The rule from one of its wall times on. Raises InvalidInput if it would have other dates then."""
    if "BYSETPOS" in rule.parts and rule.frequency == "WEEKLY":
        raise InvalidInput("this series cannot be split: its rule picks dates from each week", field="scope")
    if next((wall for wall in walls_of(rule, start, zone_of) if wall >= split), None) != split:
        raise InvalidInput("this date was added to the series by hand: use the scope this or all", field="scope")
    if "COUNT" not in rule.parts:
        return rule
    return rule.with_parts(COUNT=str(int(rule.parts["COUNT"]) - count_before(rule, start, split, zone_of)))


def move_rule(rule: RruleParts, start: WrittenTime, delta: timedelta, zone_of: ZoneOf) -> RruleParts:
    """The rule of a series that is moved as a whole: each of its dates by the same time on the clock.

    Raises InvalidInput if no rule of this kind has those dates.
    """
    moved = start.later_by(delta)
    days = (moved.wall.date() - start.wall.date()).days
    if moved.wall.time() != start.wall.time():
        _require_none(rule, ("BYHOUR", "BYMINUTE", "BYSECOND"))
    if days:
        rule = _move_days(rule, start.wall.date(), days)
    if (last := last_wall(rule, start, zone_of)) is None:
        return rule
    return rule.with_parts(UNTIL=write_until(moved, last + delta, zone_of))


def _move_days(rule: RruleParts, first: date, days: int) -> RruleParts:
    _require_none(rule, ("BYSETPOS", "BYYEARDAY", "BYWEEKNO", "BYMONTHDAY", "BYMONTH"))
    match rule.frequency:
        case "WEEKLY":
            by_day = rule.parts.get("BYDAY")
            turned = {} if by_day is None else {"BYDAY": _turn_days(by_day.split(","), days)}
            if "WKST" in rule.parts or int(rule.parts.get("INTERVAL", "1")) > 1:
                turned["WKST"] = _turn_days([rule.parts.get("WKST", "MO")], days)
            return rule.with_parts(**turned)
        case "MONTHLY" | "YEARLY":
            _require_none(rule, ("BYDAY",))
            moved = first + timedelta(days=days)
            if max(first.day, moved.day) > 28 or (first.year, first.month) != (moved.year, moved.month):
                raise InvalidInput(_OTHER_DAYS, field="start")
            return rule
        case _:
            _require_none(rule, ("BYDAY",))
            return rule


_OTHER_DAYS: Final = (
    "moved to another day, this series would have other dates than before: "
    "delete it from the first date that changes (scope following), and create a new one"
)


def _turn_days(days: Sequence[str], by: int) -> str:
    try:
        return ",".join(_DAYS[(_DAYS.index(one.strip().upper()) + by) % 7] for one in days)
    except ValueError:
        raise InvalidInput(_OTHER_DAYS, field="start") from None


def _require_none(rule: RruleParts, names: Sequence[str]) -> None:
    if any(name in rule.parts for name in names):
        raise InvalidInput(_OTHER_DAYS, field="start")

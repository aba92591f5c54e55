"""Random recurring events as other programs write them, and ical.js, which expands them beside ours.

`tests/unit/calendar/test_beside_icaljs.py` compares the two.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from switchboard.modules.calendar.rules import Budget, expand_rule, read_rule

ICALJS: Final = Path(__file__).parent / "icaljs"
ZONES: Final = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Africa/Casablanca",
)
_WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_DAY: Final = timedelta(days=1)


class RandomSeries(Struct, frozen=True):
    """An object with one series. `kind` is `day`, `floating`, `utc` or the zone; `start` its first wall time."""

    number: int
    kind: str
    start: datetime
    rule: str
    ics: str
    extras: frozenset[str]
    """What there is besides the rule: `exdate`, `rdate`, `override`, `duration`."""
    beside: bool
    """Whether the start may be no date of the rule."""


def series_of(number: int) -> RandomSeries:
    """The series with this number; always the same."""
    random = Random(number)
    kind = random.choice(["day", "floating", "utc", *ZONES, *ZONES])
    start = datetime(2024, 1, 1) + timedelta(days=random.randrange(800))  # noqa: DTZ001
    if kind != "day":
        start += timedelta(minutes=15 * random.randrange(96))
    rule, start, beside = _rule_from(random, kind, start)
    extras: set[str] = set()
    lines = [f"UID:{number}", "DTSTAMP:20240101T000000Z", f"DTSTART{_time(kind, start)}", f"SUMMARY:series {number}"]
    lines.append(_length(random, kind, start, extras))
    lines.append(f"RRULE:{rule}{_until(random, kind, start) if 'COUNT' not in rule else ''}")
    some = _some_dates(random, rule, start)
    if random.random() < 0.4:
        extras.add("exdate")
        lines += [f"EXDATE{_time(kind, one)}" for one in random.sample(some, min(len(some), random.randrange(1, 4)))]
    if random.random() < 0.3:
        extras.add("rdate")
        more = start + timedelta(days=random.randrange(1, 900), minutes=0 if kind == "day" else random.randrange(1440))
        lines.append(f"RDATE{_time(kind, more)}")
    events = [lines]
    for one in random.sample(some, min(len(some), random.choice([0, 0, 1, 2]))):
        extras.add("override")
        moved = one + timedelta(days=random.randrange(-20, 20), minutes=0 if kind == "day" else random.randrange(600))
        changed = [f"UID:{number}", "DTSTAMP:20240101T000000Z", f"RECURRENCE-ID{_time(kind, one)}"]
        events.append([*changed, f"DTSTART{_time(kind, moved)}", "DURATION:P1D" if kind == "day" else "DURATION:PT45M"])
    zone = vtimezone(kind) if kind in ZONES else ""
    body = "".join("BEGIN:VEVENT\r\n" + "\r\n".join(one) + "\r\nEND:VEVENT\r\n" for one in events)
    ics = f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//tests//EN\r\n{zone}{body}END:VCALENDAR\r\n"
    return RandomSeries(number, kind, start, rule, ics, frozenset(extras), beside)


def _rule_from(random: Random, kind: str, start: datetime) -> tuple[str, datetime, bool]:
    """A rule and a start, which mostly is a date of the rule, as the standard asks for."""
    frequencies = ["YEARLY", "MONTHLY", "MONTHLY", "WEEKLY", "WEEKLY", "DAILY", "HOURLY"]
    frequency = random.choice(frequencies[:-1] if kind == "day" else frequencies)
    parts = [f"FREQ={frequency}"]
    if random.random() < 0.4 or frequency == "HOURLY":
        parts.append(f"INTERVAL={random.randrange(7, 50) if frequency == 'HOURLY' else random.randrange(1, 5)}")
    if random.random() < 0.25:
        parts.append(f"COUNT={random.randrange(1, 80)}")
    others = ",".join(random.sample([one for one in _WEEKDAYS if one != _WEEKDAYS[start.weekday()]], 2))
    nth = (start.day - 1) // 7 + 1
    weekday = _WEEKDAYS[start.weekday()]
    hours = [] if kind == "day" else [f"BYHOUR={_in_order(start.hour, 21)}"]
    choices = {
        "YEARLY": [
            "",
            f"BYMONTH={start.month}",
            f"BYMONTH={start.month};BYDAY={nth if nth < 5 else -1}{weekday}",
            f"BYMONTH={start.month};BYMONTHDAY={start.day}",
            f"BYYEARDAY={_in_order(start.timetuple().tm_yday, 200)}",
            f"BYDAY={weekday};BYWEEKNO={start.isocalendar().week}",
            f"BYMONTH={start.month};BYDAY={weekday},{others};BYSETPOS=1,-1",
        ],
        "MONTHLY": [
            "",
            f"BYMONTHDAY={start.day},-1",
            f"BYMONTHDAY={start.day},31",
            f"BYDAY={nth if nth < 5 else -1}{weekday}",
            f"BYDAY={weekday},{others}",
            "BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
            "BYDAY=MO,TU,WE,TH,FR;BYSETPOS=2,4",
            f"BYMONTH={_in_order(start.month, 6)};BYMONTHDAY={start.day}",
            "BYDAY=FR;BYMONTHDAY=13",
        ],
        "WEEKLY": ["", f"BYDAY={weekday},{others}", f"BYDAY={weekday},{others};WKST=SU", "BYDAY=MO,WE,FR"],
        "DAILY": ["", f"BYMONTH={_in_order(start.month, 7)}", "BYDAY=MO,TU,WE,TH,FR", *hours],
        "HOURLY": ["", f"BYDAY={weekday},{others}"],
    }
    chosen = random.choice(choices[frequency])
    rule = ";".join([*parts, chosen] if chosen else parts)
    if random.random() < 0.15:
        return rule, start, True
    within = replace(read_rule(rule), count=None)
    found = list(islice(expand_rule(within, start, start, start + 4000 * _DAY, Budget()), 1, 2))
    return (rule, found[0], False) if found else (rule, start, True)


def _in_order(*numbers: int) -> str:
    """For ical.js, which loses dates if the numbers of a part are in another order."""
    return ",".join(map(str, sorted({*numbers})))


def _time(kind: str, wall: datetime) -> str:
    if kind == "day":
        return f";VALUE=DATE:{wall:%Y%m%d}"
    if kind == "floating":
        return f":{wall:%Y%m%dT%H%M%S}"
    return f":{wall:%Y%m%dT%H%M%S}Z" if kind == "utc" else f";TZID={kind}:{wall:%Y%m%dT%H%M%S}"


def _length(random: Random, kind: str, start: datetime, extras: set[str]) -> str:
    if kind == "day":
        return f"DTEND{_time(kind, start + _DAY * random.randrange(1, 4))}"
    if random.random() < 0.3:
        extras.add("duration")
        return f"DURATION:{random.choice(['PT30M', 'P1D', 'P1DT2H', 'PT26H', 'P1W'])}"
    return f"DTEND{_time(kind, start + timedelta(minutes=15 * random.randrange(1, 60)))}"


def _until(random: Random, kind: str, start: datetime) -> str:
    if random.random() < 0.6:
        return ""
    end = start + timedelta(days=random.randrange(1, 900))
    if kind == "day":
        return f";UNTIL={end:%Y%m%d}"
    return f";UNTIL={end:%Y%m%dT%H%M%S}" + ("" if kind == "floating" else "Z")


def _some_dates(random: Random, rule: str, start: datetime) -> list[datetime]:
    """Some dates of the series, and now and then some that are not of it."""
    if random.random() < 0.1:
        return [start + 7 * _DAY * index for index in range(1, 12)]
    return list(islice(expand_rule(read_rule(rule), start, start, start + 900 * _DAY, Budget()), 12))


@cache
def vtimezone(name: str) -> str:
    """A VTIMEZONE with each change of the clocks by itself, from the rules of Python."""
    lines = [f"BEGIN:VTIMEZONE\r\nTZID:{name}\r\n"]
    for at, before, after in _changes(name):
        which = "DAYLIGHT" if after > before else "STANDARD"
        lines.append(
            f"BEGIN:{which}\r\nDTSTART:{(at + before):%Y%m%dT%H%M%S}\r\nTZOFFSETFROM:{_offset(before)}\r\n"
            f"TZOFFSETTO:{_offset(after)}\r\nEND:{which}\r\n"
        )
    return "".join([*lines, "END:VTIMEZONE\r\n"])


def _changes(name: str) -> Iterator[tuple[datetime, timedelta, timedelta]]:
    zone = ZoneInfo(name)
    at, step = datetime(2023, 1, 1, tzinfo=UTC), timedelta(hours=1)
    before = at.astimezone(zone).utcoffset() or timedelta()
    yield at - 20000 * _DAY, before, before
    while at.year < 2028:
        at += step
        after = at.astimezone(zone).utcoffset() or timedelta()
        if after != before:
            yield at, before, after
            before = after


def _offset(offset: timedelta) -> str:
    minutes = int(offset.total_seconds() // 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}{abs(minutes) % 60:02d}"


def expand_by_icaljs(series: Sequence[RandomSeries], until: datetime) -> dict[int, Any]:
    """What ical.js finds, by the number of the series."""
    jobs = [{"id": one.number, "ics": one.ics, "until": until.timestamp()} for one in series]
    done = subprocess.run(
        ["node", str(ICALJS / "expand.cjs")],  # noqa: S607
        input="\n".join(map(json.dumps, jobs)),
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
        cwd=ICALJS,
    )
    return {found["id"]: found for found in map(json.loads, done.stdout.splitlines())}

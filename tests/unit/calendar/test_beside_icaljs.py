"""2,000 random series are expanded as by ical.js, which shares no code with ours, or the difference is named."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from switchboard.modules.calendar.events import read_object
from switchboard.modules.calendar.expansion import ExpansionWindow, expand_object
from tests.random_series import ICALJS, ZONES, RandomSeries, expand_by_icaljs, series_of
from tests.width import wide

WINDOW: Final = ExpansionWindow(datetime(2025, 6, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
FIRST: Final = datetime(2025, 7, 10)  # noqa: DTZ001
LAST: Final = datetime(2026, 11, 20)  # noqa: DTZ001
"""Walls of what is compared; the window is wider by more than any event or zone."""


def is_here() -> bool:
    return shutil.which("node") is not None and (ICALJS / "node_modules").is_dir()


class Shown(NamedTuple):
    """A date: its walls, and its instants if it has a zone."""

    start: datetime
    end: datetime
    starts: int
    ends: int


def is_compared(one: Shown) -> bool:
    return one.start < LAST and one.end > FIRST


def our_dates(ics: str) -> set[Shown]:
    expansion = expand_object(read_object(ics.encode()), WINDOW)
    assert expansion.problems == {}
    found = (
        Shown(
            one.start.wall,
            one.wall_end,
            int(one.starts_at.timestamp()) if one.starts_at else 0,
            int(one.ends_at.timestamp()) if one.ends_at else 0,
        )
        for one in expansion.occurrences
    )
    return {one for one in found if is_compared(one)}


def their_dates(series: RandomSeries, found: Any) -> set[Shown]:
    assert not found["error"], series.ics
    zoned = series.kind not in ("day", "floating")
    pairs = [[(datetime.fromisoformat(wall.rstrip("Z")), at) for wall, at in pair] for pair in found["found"]]
    dates = {Shown(a, b, at if zoned else 0, until if zoned else 0) for (a, at), (b, until) in pairs}
    return {one for one in dates if is_compared(one)}


def without_overrides(series: RandomSeries, keep: set[str]) -> str:
    """The object without overrides but those of dates with these names."""
    parts = re.split(r"(?=BEGIN:VEVENT)", series.ics)
    kept = [
        part
        for part in parts
        if "RECURRENCE-ID" not in part or re.findall(r"RECURRENCE-ID[^:]*:(\S+)", part)[0] in keep
    ]
    text = "".join(kept)
    return text if text.endswith("END:VCALENDAR\r\n") else f"{text}END:VCALENDAR\r\n"


def name_difference(series: RandomSeries, theirs: set[Shown]) -> str:
    """Why both may differ; empty if there is no such reason."""
    dates = {named(series, one) for one in all_dates(series)}
    known = our_dates(without_overrides(series, dates))
    if known == theirs:
        return "an override of a date that the series does not have: we keep it"
    for why, is_it in CLASSES.items():
        if is_it(series, known, theirs):
            return why
    return ""


def named(series: RandomSeries, one: Shown) -> str:
    """The date in the form of a RECURRENCE-ID of the series."""
    if series.kind == "day":
        return f"{one.start:%Y%m%d}"
    return f"{one.start:%Y%m%dT%H%M%S}{'Z' if series.kind == 'utc' else ''}"


def all_dates(series: RandomSeries) -> set[Shown]:
    """Those by rules and dates, a year at a time, as more than 2,000 are refused."""
    plain = read_object(without_overrides(series, set()).encode())
    years = [datetime(year, 1, 1, tzinfo=UTC) for year in range(2023, 2031)]
    found = [
        one
        for since, until in pairwise(years)
        for one in expand_object(plain, ExpansionWindow(since, until)).occurrences
    ]
    return {Shown(one.start.wall, one.wall_end, 0, 0) for one in found}


def are_hours_exact(series: RandomSeries, ours: set[Shown], theirs: set[Shown]) -> bool:
    return "duration" in series.extras and series.kind in ZONES and are_same_but_ends(ours, theirs)


def is_first_over_change(series: RandomSeries, ours: set[Shown], theirs: set[Shown]) -> bool:
    [ends] = re.findall(r"DTEND;TZID=[^:]*:(\S+)", series.ics) or [""]
    if not ends:
        return False
    zone = ZoneInfo(series.kind)
    end = datetime.strptime(ends, "%Y%m%dT%H%M%S").replace(tzinfo=zone)
    passed = end.astimezone(UTC) - series.start.replace(tzinfo=zone).astimezone(UTC)
    is_at_gap = end.utcoffset() != end.replace(fold=1).utcoffset()
    over_change = is_at_gap or passed != end.replace(tzinfo=None) - series.start
    return over_change and are_same_but_ends(ours, theirs)


def are_same_but_ends(ours: set[Shown], theirs: set[Shown]) -> bool:
    """At the edges of what is compared one may be in and the other not."""
    ends = {one.starts: one.ends for one in theirs}
    others = {one.starts for one in ours} ^ ends.keys()
    near = [one.end - FIRST <= timedelta(hours=1) for one in ours | theirs if one.starts in others]
    return all(near) and all(abs(ends.get(one.starts, one.ends) - one.ends) <= 3600 for one in ours)


def is_start_counted(series: RandomSeries, ours: set[Shown], theirs: set[Shown]) -> bool:
    """They lack the first one, and with COUNT have another last one instead."""
    lacked, more = ours - theirs, theirs - ours
    first = f"{series.start:%Y%m%d}" if series.kind == "day" else f"{series.start:%Y%m%dT%H%M%S}"
    is_moved = re.search(f"RECURRENCE-ID[^:]*:{first}", series.ics) is not None
    ended = not more or ("COUNT" in series.rule and len(more) == 1)
    return (
        series.beside and ended and len(lacked) <= 1 and (is_moved or {one.start for one in lacked} <= {series.start})
    )


def is_at_change(series: RandomSeries, ours: set[Shown], theirs: set[Shown]) -> bool:
    """All that differ begin or end at walls that clocks leave out, or show twice."""
    if series.kind not in ZONES:
        return False
    zone = ZoneInfo(series.kind)
    at_change = {one.start for one in ours | theirs for wall in one[:2] if is_doubtful(wall, zone)}
    starts = {one.start for one in ours ^ theirs}
    return starts <= at_change and {one.start for one in ours} == {one.start for one in theirs}


def is_doubtful(wall: datetime, zone: ZoneInfo) -> bool:
    return wall.replace(tzinfo=zone).utcoffset() != wall.replace(tzinfo=zone, fold=1).utcoffset()


def is_week_ignored(series: RandomSeries, _: set[Shown], theirs: set[Shown]) -> bool:
    plain = re.sub(r";(BYWEEKNO|COUNT|INTERVAL)=\d+", "", series.ics)
    return "BYWEEKNO" in series.rule and theirs <= our_dates(plain.replace("FREQ=YEARLY", "FREQ=WEEKLY"))


def is_month_added(series: RandomSeries, ours: set[Shown], theirs: set[Shown]) -> bool:
    interval = re.search(r"FREQ=MONTHLY;INTERVAL=(\d)", series.rule)
    if interval is None or "BYMONTH=" not in series.rule or not ours <= theirs:
        return False
    first = series.start.year * 12 + series.start.month
    return all((one.start.year * 12 + one.start.month - first) % int(interval[1]) for one in theirs - ours)


CLASSES: Final[dict[str, Callable[[RandomSeries, set[Shown], set[Shown]], bool]]] = {
    "a DURATION of hours is what passes (RFC 5545, 3.3.6), not what clocks show later": are_hours_exact,
    "an event that ends at 10:00 always does, though its first one is over a change of clocks": is_first_over_change,
    "a start that is no date of the rule is the first one (RFC 5545, 3.8.5.3)": is_start_counted,
    "a time that clocks leave out is later by that, one that they show twice is the first (3.3.5)": is_at_change,
    "ical.js takes no notice of BYWEEKNO beside BYDAY": is_week_ignored,
    "ical.js adds months of BYMONTH that the INTERVAL leaves out": is_month_added,
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not is_here(), reason="ical.js is not here: make icaljs")
def test_random_series_are_those_of_ical_js() -> None:
    series = [series_of(number) for number in range(wide(2_000, 100))]
    found = expand_by_icaljs(series, LAST.replace(tzinfo=UTC) + timedelta(days=25))
    classes: Counter[str] = Counter()
    for one in series:
        ours, theirs = our_dates(one.ics), their_dates(one, found[one.number])
        if ours != theirs:
            why = name_difference(one, theirs)
            assert why, (one, sorted(ours - theirs)[:3], sorted(theirs - ours)[:3])
            classes[why] += 1
    print(dict(classes))  # noqa: T201
    assert sum(classes.values()) < 500, classes

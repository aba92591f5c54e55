"""When tasks are due: wall times in zones whose clocks change, against a search minute by minute."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.modules.schedule.instants import fingerprint_of, instant_of
from switchboard.modules.schedule.planning import (
    Due,
    TaskTiming,
    catch_up,
    check_interval,
    comes_too_late,
    due_again,
    first_due,
    next_times,
    show_due,
)
from switchboard.modules.schedule.recurrence import Recurrence, next_instant, read_recurrence
from switchboard.modules.schedule.spoken import read_wall

BERLIN = "Europe/Berlin"
NOW = datetime.fromisoformat("2026-11-29 13:00").replace(tzinfo=ZoneInfo(BERLIN))
MINUTE = timedelta(minutes=1)
Matches = tuple[frozenset[int], frozenset[int], frozenset[int]]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "wall", "expected"),
    [
        (BERLIN, "2026-03-29 02:30", "2026-03-29 01:30"),  # left out: 03:30
        (BERLIN, "2026-10-25 02:30", "2026-10-25 00:30"),  # twice: the first
        ("America/New_York", "2026-03-08 02:30", "2026-03-08 07:30"),
        ("America/New_York", "2026-11-01 01:30", "2026-11-01 05:30"),
        ("Australia/Lord_Howe", "2026-10-04 02:15", "2026-10-03 15:45"),  # by half an hour: 02:45
        ("Australia/Lord_Howe", "2026-04-05 01:45", "2026-04-04 14:45"),
        ("America/Sao_Paulo", "2018-11-04 00:30", "2018-11-04 03:30"),  # left out, in the last summer
        ("America/Sao_Paulo", "2019-11-03 00:30", "2019-11-03 03:30"),  # no summer time any more
        ("Pacific/Apia", "2011-12-30 09:00", "2011-12-30 19:00"),  # the day that was left out: the 31st, 09:00
        ("Africa/Casablanca", "2026-02-15 02:30", "2026-02-15 01:30"),  # before Ramadan, twice: the first
        ("Africa/Casablanca", "2026-03-22 02:30", "2026-03-22 02:30"),  # after it, left out: 03:30
    ],
)
def test_a_wall_time_has_one_instant(zone: str, wall: str, expected: str) -> None:
    assert instant_of(read_wall(wall, NOW), ZoneInfo(zone)) == utc(expected)


@pytest.mark.parametrize(
    ("zone", "cron", "after", "expected"),
    [
        (BERLIN, "30 2 * * *", "2026-03-28 00:00", ["03-28 01:30", "03-29 01:30", "03-30 00:30"]),
        (BERLIN, "30 2 * * *", "2026-10-24 00:00", ["10-24 00:30", "10-25 00:30", "10-26 01:30"]),
        (BERLIN, "*/30 * * * *", "2026-10-24 23:59", ["10-25 00:00", "10-25 00:30", "10-25 01:00", "10-25 01:30"]),
        (BERLIN, "*/30 2-3 * * *", "2026-03-29 00:30", ["03-29 01:00", "03-29 01:30", "03-30 00:00"]),
        (BERLIN, "*/30 2 * * *", "2026-10-25 00:10", ["10-25 00:30", "10-26 01:00"]),
        ("America/New_York", "30 1 * * *", "2026-10-31 12:00", ["11-01 05:30", "11-02 06:30"]),
        ("America/New_York", "30 2 * * *", "2026-03-08 00:00", ["03-08 07:30", "03-09 06:30"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04 00:00", ["04-04 14:45", "04-05 15:15"]),
        ("Pacific/Apia", "0 9 * * *", "2011-12-29 00:00", ["12-29 19:00", "12-30 19:00", "12-31 19:00"]),
        ("America/Sao_Paulo", "0 0 * * sun", "2018-10-30 00:00", ["11-04 03:00", "11-11 02:00"]),
        ("Africa/Casablanca", "30 2 * * *", "2026-03-21 00:00", ["03-21 02:30", "03-22 02:30", "03-23 01:30"]),
        (BERLIN, "0 12 29 2 *", "2026-01-01 00:00", ["02-29 11:00", "02-29 11:00"]),  # 2028, 2032
        (BERLIN, "0 8 l * *", "2026-02-01 00:00", ["02-28 07:00", "03-31 06:00"]),
    ],
)
def test_what_recurs_is_due_once_for_each_wall_time(zone: str, cron: str, after: str, expected: list[str]) -> None:
    found = [utc(after)]
    for _ in expected:
        found.append(next_instant(read_recurrence(cron), ZoneInfo(zone), found[-1]))
    assert [f"{one:%m-%d %H:%M}" for one in found[1:]] == expected


STARTS = {
    BERLIN: ("2026-03-28", "2026-10-24", "2026-07-01"),
    "America/New_York": ("2026-03-07", "2026-10-31"),
    "Australia/Lord_Howe": ("2026-10-03", "2026-04-04"),
    "America/Sao_Paulo": ("2018-11-03", "2019-02-16"),
    "Pacific/Apia": ("2011-12-29", "2010-09-25"),
    "Africa/Casablanca": ("2026-02-14", "2026-03-21"),
}


def fields_within(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A field, and the values that it means."""
    every = st.integers(1, high).map(lambda step: (f"*/{step}", frozenset(range(low, high + 1, step))))
    some = st.frozensets(st.integers(low, high), min_size=1, max_size=4)
    return st.one_of(
        st.just(("*", frozenset(range(low, high + 1)))),
        every,
        some.map(lambda values: (",".join(map(str, sorted(values))), values)),
        st.tuples(st.integers(low, high), st.integers(low, high)).map(
            lambda ends: (f"{min(ends)}-{max(ends)}", frozenset(range(min(ends), max(ends) + 1)))
        ),
    )


@cache
def walls_around(zone: str, day: str) -> tuple[list[tuple[datetime, datetime, bool]], list[datetime]]:
    """Each minute of six days: the instant, what the clocks show, whether for the first time; and what is left out."""
    shown: dict[datetime, datetime] = {}
    minutes = []
    for number in range(-2 * 1440, 4 * 1440):
        at = utc(day) + number * MINUTE
        wall = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
        minutes.append((at, wall, wall not in shown))
        shown.setdefault(wall, at)
    begin = min(shown)
    span = int((max(shown) - begin) / MINUTE)
    return minutes, [wall for number in range(span) if (wall := begin + number * MINUTE) not in shown]


def due_by_search(where: tuple[str, str], matches: Matches, *, hourly: bool) -> list[datetime]:
    """All instants of these days at which it is due, found by looking at what the clocks show each minute."""

    def is_meant(wall: datetime) -> bool:
        minutes, hours, weekdays = matches
        return wall.minute in minutes and wall.hour in hours and wall.isoweekday() % 7 in weekdays

    minutes, left_out = walls_around(*where)
    found = {at for at, wall, first in minutes if (hourly or first) and is_meant(wall)}
    moved = {wall + len(left_out) * MINUTE for wall in left_out if is_meant(wall)}
    return sorted(found | {at for at, wall, first in minutes if first and wall in moved})


@given(
    where=st.sampled_from([(zone, day) for zone, days in STARTS.items() for day in days]),
    minutes=fields_within(0, 59),
    hours=fields_within(0, 23),
    weekdays=fields_within(0, 6),
    offset=st.integers(0, 1440),
)
def test_the_next_time_is_that_of_a_search(
    where: tuple[str, str],
    minutes: tuple[str, frozenset[int]],
    hours: tuple[str, frozenset[int]],
    weekdays: tuple[str, frozenset[int]],
    offset: int,
) -> None:
    zone, start, end = ZoneInfo(where[0]), utc(where[1]) + offset * MINUTE, utc(where[1]) + timedelta(days=3)
    cron = read_recurrence(f"{minutes[0]} {hours[0]} * * {weekdays[0]}")
    searched = due_by_search(where, (minutes[1], hours[1], weekdays[1]), hourly=hours[0] == "*")
    expected = [one for one in searched if start < one <= end]
    at = start
    for one in expected[:40]:
        at = next_instant(cron, zone, at)
        assert at == one
    if len(expected) <= 40:
        assert next_instant(cron, zone, at) > end


@given(st.text(max_size=120) | st.text(alphabet="0123456789*/-,#lw@ mon", max_size=110))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        found = read_recurrence(text)
        assert next_instant(found, ZoneInfo("UTC"), utc("2026-01-01")) > utc("2026-01-01")


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("0 0 30 2 *", "can never be due"),
        ("* * * * * *", "has not five fields"),
        ("0 9 1 * mon", "both, or either"),
        ("61 * * * *", "no cron expression"),
        ("tomorrow", "has not five fields"),
    ],
)
def test_what_can_never_be_due_is_refused(cron: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_recurrence(cron)


@pytest.mark.parametrize(
    ("timing", "why"),
    [
        (TaskTiming(BERLIN, read_wall("2026-11-29 09:00", NOW)), "has passed: it is Sunday 2026-11-29 13:00"),
        (TaskTiming(BERLIN, read_wall("2036-11-29 09:00", NOW)), "more than five years"),
        (TaskTiming("Europe/Atlantis", cron="0 9 * * *"), "there is no time zone"),
        (TaskTiming("../../etc/passwd", cron="0 9 * * *"), "there is no time zone"),
    ],
)
def test_a_task_that_would_never_fire_is_refused(timing: TaskTiming, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        first_due(timing, utc("2026-11-29 12:00"))


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("2026-02-30 09:00", "does not exist"),
        ("2026-12-24 24:30", "does not exist"),
        ("friday", "no day with a time"),
        ("next week 9:00", "no day with a time"),
        ("the 24th 18:30", "no day with a time"),
        ("2026-12-24", "no day with a time"),
        ("someday 18:30", "names no day: write it as"),
        ("today 25:30", "no time of day"),
        ("2026-12-24T18:30+01:00", "without an offset"),
        ("13pm", "no time of day"),
        ("friday 2026-12-24 18:30", "is a Thursday, not a friday: ask"),
        ("someday 2026-12-24 18:30", "not a someday"),
    ],
)
def test_a_wall_time_that_does_not_exist_is_refused(written: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_wall(written, NOW)


@pytest.mark.parametrize("written", ["2026-12-24 18:30", "Thu, 2026-12-24 18:30", "Thursday 2026-12-24T18:30:00"])
def test_a_wall_time_may_have_its_weekday(written: str) -> None:
    assert read_wall(written, NOW) == read_wall("2026-12-24 18:30", NOW)


@pytest.mark.parametrize(
    ("said", "wall"),
    [
        ("18:30", "2026-12-02 18:30"),
        ("11:30", "2026-12-02 11:30"),
        ("tonight", "2026-12-02 20:00"),
        ("tonight at 8:30", "2026-12-02 20:30"),
        ("this evening", "2026-12-02 19:00"),
        ("Today at 9:00", "2026-12-02 09:00"),
        ("3pm", "2026-12-02 15:00"),
        ("tomorrow 9:00", "2026-12-03 09:00"),
        ("tomorrow at 12:15 am", "2026-12-03 00:15"),
        ("tomorrow morning at 7:30", "2026-12-03 07:30"),
        ("Tomorrow afternoon, 3:00", "2026-12-03 15:00"),
        ("on thursday 9:00", "2026-12-03 09:00"),
        ("Tue, 9:00", "2026-12-08 09:00"),
        ("wednesday 18:30", "2026-12-02 18:30"),
        ("wednesday noon", "2026-12-09 12:00"),
        ("in 90 minutes", "2026-12-02 13:30"),
        ("in an hour", "2026-12-02 13:00"),
        ("in two days at 10:00", "2026-12-04 10:00"),
        ("in a week at 10:00", "2026-12-09 10:00"),
    ],
)
def test_a_wall_time_may_be_said_from_now(said: str, wall: str) -> None:
    noon = datetime.fromisoformat("2026-12-02 12:00").replace(tzinfo=ZoneInfo(BERLIN))
    assert read_wall(said, noon) == read_wall(wall, NOW)


def test_two_hours_before_the_clocks_change_are_two_hours() -> None:
    late = datetime.fromisoformat("2026-10-25 01:30").replace(tzinfo=ZoneInfo(BERLIN))
    assert read_wall("in 3 hours", late) == read_wall("2026-10-25 03:30", NOW)


def test_tasks_recur_no_oftener_than_their_kind_may() -> None:
    check_interval("say", "*/5 * * * *")
    check_interval("do", "*/15 9-17 * * *")
    with pytest.raises(ValueError, match="every 4 minutes"):
        check_interval("say", "*/7 * * * *")  # 56, 0
    with pytest.raises(ValueError, match="every 15 minutes at most"):
        check_interval("do", "*/10 * * * *")
    with pytest.raises(ValueError, match="every 1 minutes"):
        check_interval("do", "0,59 0,23 * * *")


HOURLY = TaskTiming("UTC", cron="0 * * * *")
YEARLY = TaskTiming("UTC", cron="0 0 1 1 *")


@pytest.mark.parametrize(
    ("timing", "late", "say", "do"),
    [
        (HOURLY, timedelta(minutes=30), False, False),
        (HOURLY, timedelta(minutes=31), False, True),
        (YEARLY, timedelta(minutes=60), False, False),
        (YEARLY, timedelta(minutes=61), False, True),
        (YEARLY, timedelta(hours=24), False, True),
        (YEARLY, timedelta(hours=25), True, True),
    ],
)
def test_how_late_something_may_be(timing: TaskTiming, late: timedelta, *, say: bool, do: bool) -> None:
    due = Due(utc("2026-01-01"), read_wall("2026-01-01 00:00", NOW))
    latest, passed, following = catch_up(timing, due, due.at + late)
    assert (latest, passed) == (due, 0)
    assert comes_too_late("say", due, following, due.at + late) is say
    assert comes_too_late("do", due, following, due.at + late) is do


def test_what_went_by_fires_once() -> None:
    due = first_due(HOURLY, utc("2026-01-01 00:30"))
    latest, passed, following = catch_up(HOURLY, due, utc("2026-01-01 05:10"))
    assert (latest.at, passed) == (utc("2026-01-01 05:00"), 4)
    assert following is not None
    assert following.at == utc("2026-01-01 06:00")


def test_ten_years_that_went_by_are_not_counted_one_by_one() -> None:
    often = TaskTiming(BERLIN, cron="*/5 * * * *")
    latest, passed, following = catch_up(often, first_due(often, utc("2016-01-01")), utc("2026-01-01 00:01"))
    assert latest.at == utc("2026-01-01 00:00")
    assert 1000 < passed < 1400
    assert following is not None
    assert following.at == utc("2026-01-01 00:05")


def test_a_planned_wall_time_stays_when_the_rules_of_its_zone_change() -> None:
    planned = Due(utc("2026-06-01 08:00"), read_wall("2026-06-01 09:00", NOW))  # under rules of which nothing is left
    assert due_again(TaskTiming(BERLIN, planned.wall), planned).at == utc("2026-06-01 07:00")
    second = Due(utc("2026-10-25 01:30"), read_wall("2026-10-25 02:30", NOW), fold=1)
    assert due_again(TaskTiming(BERLIN, cron="30 * * * *"), second) == second


def test_zones_are_told_apart_by_their_rules() -> None:
    assert len({fingerprint_of(ZoneInfo(zone)) for zone in STARTS}) == len(STARTS)


def test_what_is_shown_says_what_the_clocks_leave_out() -> None:
    timing = TaskTiming(BERLIN, read_wall("2026-03-29 02:30", NOW))
    due = first_due(timing, utc("2026-01-01"))
    assert (
        show_due(due, BERLIN) == "Sunday 2026-03-29 02:30 Europe/Berlin (the clocks leave that out; it will be 03:30)"
    )
    assert [show_due(one, BERLIN) for one in next_times(TaskTiming(BERLIN, cron="0 9 * * mon"), due, 2)][1:] == [
        "Monday 2026-03-30 09:00 Europe/Berlin"
    ]


def test_an_expression_is_kept_as_it_means() -> None:
    assert read_recurrence("@daily") == Recurrence("0 0 * * *")
    assert read_recurrence(" 30  7 * * MON-FRI ") == Recurrence("30 7 * * mon-fri")

"""When events take place: changes of clocks in six zones, which zone is meant, and rules with weeks of the year."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from icalendar.timezone import windows_to_olson

from switchboard.modules.accounts.settings import DavAccount, PasswordPlace
from switchboard.modules.calendar.events import EventTime, read_object
from switchboard.modules.calendar.expansion import ExpansionWindow, expand_object
from switchboard.modules.calendar.occurrences import zone_of_calendar
from switchboard.modules.calendar.rules import Budget, UnreadableEvent, expand_rule, read_rule
from switchboard.modules.calendar.windows_zones import WINDOWS_ZONES
from switchboard.modules.calendar.zones import EventZone, WrittenZone, zone_named
from tests.calendar_corpus import CUSTOM, OUTLOOK, calendar
from tests.random_series import ZONES, vtimezone

EVER: Final = ExpansionWindow(datetime(2005, 1, 1, tzinfo=UTC), datetime(2032, 1, 1, tzinfo=UTC))
TOKYO: Final = EventZone("Asia/Tokyo", ZoneInfo("Asia/Tokyo"))

CHANGES: Final = (
    # zone, the first of three daily wall times, and when these are in UTC
    ("Europe/Berlin", "20270327T023000", ("27 01:30", "28 01:30", "29 00:30")),  # 02:30 is left out on the 28th
    ("Europe/Berlin", "20271030T023000", ("30 00:30", "31 00:30", "01 01:30")),  # twice on the 31st: the first
    ("America/New_York", "20270313T023000", ("13 07:30", "14 07:30", "15 06:30")),
    ("America/New_York", "20271106T013000", ("06 05:30", "07 05:30", "08 06:30")),
    ("Australia/Lord_Howe", "20271002T021500", ("01 15:45", "02 15:45", "03 15:15")),  # half an hour
    ("Australia/Lord_Howe", "20270403T014500", ("02 14:45", "03 14:45", "04 15:15")),
    ("America/Sao_Paulo", "20181103T003000", ("03 03:30", "04 03:30", "05 02:30")),  # midnight is left out
    ("America/Sao_Paulo", "20191102T003000", ("02 03:30", "03 03:30", "04 03:30")),  # no more summer time
    ("Pacific/Apia", "20111229T120000", ("29 22:00", "30 22:00", "30 22:00")),  # 30 December is left out whole
    ("Africa/Casablanca", "20260214T023000", ("14 01:30", "15 01:30", "16 02:30")),  # Ramadan
    ("Africa/Casablanca", "20260321T023000", ("21 02:30", "22 02:30", "23 01:30")),
)


WRITTEN: Final = ("Europe", "America/New", "Australia", "Africa")
"""Zones of which the rules that are written begin before the change."""


@pytest.mark.parametrize(
    ("zone", "first", "expected", "written"),
    [
        (*change, written)
        for change in CHANGES
        for written in (False, True)
        if not written or change[0].startswith(WRITTEN)
    ],
)
def test_changes_of_clocks(zone: str, first: str, expected: tuple[str, ...], written: bool) -> None:
    """By the name of the zone, and by rules that stand in the object under a name of its own."""
    before = vtimezone(zone).replace(f"TZID:{zone}", "TZID:Own") if written else ""
    lines = f"UID:u|DTSTART;TZID={'Own' if written else zone}:{first}|DURATION:PT1H|RRULE:FREQ=DAILY;COUNT=3"
    data = calendar(lines, before=before.replace("\r\n", "|"))
    found = sorted(one.starts_at for one in expand_object(read_object(data), EVER).occurrences if one.starts_at)
    assert tuple(f"{one:%d %H:%M}" for one in found) == tuple(dict.fromkeys(expected))


def test_whole_days_are_dates_in_every_zone() -> None:
    data = calendar("UID:u|DTSTART;VALUE=DATE:20270327|DTEND;VALUE=DATE:20270330")
    [one] = expand_object(read_object(data, TOKYO), EVER).occurrences
    assert (one.start, one.wall_end, one.starts_at) == (
        EventTime(datetime(2027, 3, 27), None, all_day=True),  # noqa: DTZ001
        datetime(2027, 3, 30),  # noqa: DTZ001
        None,
    )


@pytest.mark.parametrize(
    ("tzid", "before", "name", "guessed"),
    [
        ("Europe/Berlin", "", "Europe/Berlin", False),
        ("UTC", "", "UTC", False),
        ("W. Europe Standard Time", "", "Europe/Berlin", False),
        ("/mozilla.org/20050126_1/America/Argentina/Salta", "", "America/Argentina/Salta", False),
        ('"Amsterdam, Berlin, Bern"', OUTLOOK, "Europe/Berlin", False),
        ("Customized Time Zone", CUSTOM, "Customized Time Zone", False),
        ("Nowhere", "", "Asia/Tokyo", True),
        ("Customized Time Zone", "", "Asia/Tokyo", True),
        # Its name is one of Windows, and its rules are those of another zone: the rules count.
        (
            "Tokyo Standard Time",
            OUTLOOK.replace("Amsterdam, Berlin, Bern", "Tokyo Standard Time"),
            "Europe/Budapest",
            False,
        ),
        *((f"/x/{zone}", vtimezone(zone).replace(f"TZID:{zone}", f"TZID:/x/{zone}"), zone, False) for zone in ZONES),
    ],
)
def test_which_zone_is_meant(tzid: str, before: str, name: str, guessed: bool) -> None:
    data = calendar(f"UID:u|DTSTART;TZID={tzid}:20270301T090000", before=before.replace("\r\n", "|"))
    [series] = read_object(data, TOKYO).series
    assert series.master is not None
    zone = series.master.start.zone
    assert zone is not None
    assert (zone.name, zone.guessed) == (name, guessed)


@pytest.mark.parametrize(
    ("calendar_zone", "account_zone", "meant"),
    [
        ("Asia/Tokyo", "Europe/Vienna", "Asia/Tokyo"),
        ("", "Europe/Vienna", "Europe/Vienna"),
        ("Home", "Europe/Vienna", "Europe/Vienna"),
        ("", "", "UTC"),
    ],
)
def test_where_the_zone_of_a_calendar_comes_from(calendar_zone: str, account_zone: str, meant: str) -> None:
    account = DavAccount("https://dav.example", "ann", PasswordPlace(env="P"), person="ann", zone=account_zone)
    assert zone_of_calendar(account, calendar_zone).name == meant


def test_names_of_windows_are_those_of_cldr() -> None:
    [theirs] = [one for one in vars(windows_to_olson).values() if isinstance(one, dict) and "UTC-11" in one]
    assert theirs == WINDOWS_ZONES
    assert all(zone_named(name) for name in WINDOWS_ZONES.values())


def test_written_clocks_are_those_of_the_zone() -> None:
    data = calendar("UID:u|DTSTART;TZID=Own:20270301T090000", before=CUSTOM.replace("Customized Time Zone", "Own"))
    [series] = read_object(data).series
    assert series.master is not None
    assert series.master.start.zone is not None
    assert isinstance(series.master.start.zone.rules, WrittenZone)
    assert series.master.start.instant == datetime(2027, 3, 1, 7, 43, tzinfo=UTC)


WEEKS: Final = (
    # rule, start, dates (RFC 5545 and ISO 8601)
    ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO;COUNT=3", "1997-05-12", ("1997-05-12", "1998-05-11", "1999-05-17")),
    ("FREQ=YEARLY;BYWEEKNO=1;BYDAY=MO;COUNT=3", "2024-01-01", ("2024-01-01", "2024-12-30", "2025-12-29")),
    ("FREQ=YEARLY;BYWEEKNO=53;BYDAY=FR;COUNT=3", "2021-01-01", ("2021-01-01", "2027-01-01", "2032-12-31")),
    ("FREQ=YEARLY;BYWEEKNO=-1;BYDAY=TH;COUNT=2", "2026-12-31", ("2026-12-31", "2027-12-30")),
    ("FREQ=YEARLY;BYWEEKNO=20;COUNT=2", "1997-05-12", ("1997-05-12", "1998-05-11")),
    ("FREQ=YEARLY;BYWEEKNO=1;WKST=SU;BYDAY=SU;COUNT=2", "2023-01-01", ("2023-01-01", "2023-12-31")),
)


@pytest.mark.parametrize(("rule", "start", "expected"), WEEKS)
def test_weeks_of_the_year(rule: str, start: str, expected: tuple[str, ...]) -> None:
    begin = datetime.fromisoformat(start)
    found = expand_rule(read_rule(rule), begin, begin, begin + timedelta(days=9000), Budget())
    assert tuple(str(one.date()) for one in found) == expected


@pytest.mark.parametrize("rule", ["FREQ=DAILY", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=HOURLY;BYMINUTE=1,2"])
def test_a_rule_costs_what_is_near_the_window(rule: str) -> None:
    """One that began centuries ago, too; what is counted from its start is refused instead."""
    begin, since = datetime(1700, 1, 1), datetime(2027, 1, 1)  # noqa: DTZ001
    list(expand_rule(read_rule(rule), begin, since, since + timedelta(days=30), Budget(6_000)))
    with pytest.raises(UnreadableEvent):
        list(expand_rule(read_rule(f"{rule};COUNT=9999999"), begin, since, since + timedelta(days=30), Budget(6_000)))


def test_nothing_behind_the_window_is_looked_at() -> None:
    begin = datetime(2027, 1, 1)  # noqa: DTZ001
    assert [*expand_rule(read_rule("FREQ=DAILY"), begin, begin, begin + timedelta(days=2), Budget(10))] == [
        begin,
        begin + timedelta(days=1),
    ]

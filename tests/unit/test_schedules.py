"""Named windows of time, and the fact that a message came in during one of them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from switchboard.app.channels import known_channels
from switchboard.app.settings import Settings
from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.routing.check import check_facts
from switchboard.core.routing.facts import facts
from switchboard.core.schedules import Schedule, parse_window, schedules_at
from tests.lab import envelope

BERLIN = ZoneInfo("Europe/Berlin")
SCHEDULES = (
    Schedule("office", BERLIN, (parse_window("mon-fri 09:00-17:00"), parse_window("sat 10:00-12:00"))),
    Schedule("night", BERLIN, (parse_window("22:00-06:00"),)),
    Schedule("weekend", BERLIN, (parse_window("sat-sun 00:00-24:00"),)),
)
TABLE = Channels(CHANNELS.values(), SCHEDULES)


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-07-06T07:00:00Z", "office"),  # a Monday, 09:00 in Berlin
        ("2026-07-06T06:59:59Z", None),
        ("2026-07-06T15:00:00Z", None),
        ("2026-01-05T07:30:00Z", None),  # in winter 08:30
        ("2026-01-05T08:30:00Z", "office"),
        ("2026-07-11T08:30:00Z", "office\nweekend"),
        ("2026-07-11T20:30:00Z", "night\nweekend"),
        ("2026-07-13T03:59:00Z", "night"),  # begun on Sunday
    ],
)
def test_a_message_is_in_the_windows_in_which_it_came(moment: str, expected: str | None) -> None:
    at = datetime.fromisoformat(moment)
    assert schedules_at(SCHEDULES, at) == expected
    found = facts(envelope(), TABLE["telegram"], TABLE.schedule_at(at))
    assert found.get("schedule") == expected
    assert check_facts(found, TABLE) == []


def test_a_window_over_the_end_of_the_week_and_one_over_midnight() -> None:
    assert parse_window("sat-mon 10:00-11:00").days == {5, 6, 0}
    friday_night = parse_window("fri 22:00-06:00")
    assert friday_night.holds(4, 22 * 60)
    assert friday_night.holds(5, 5 * 60)
    assert not friday_night.holds(4, 5 * 60)


@pytest.mark.parametrize(
    "text", ["", "mon", "9:00-17:00", "mon-fri", "09:00-24:01", "09:60-10:00", "09:00-09:00", "day 09:00-10:00"]
)
def test_what_is_no_window_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a time window|not a time of day|is empty"):
        parse_window(text)


def test_schedules_are_named_in_the_settings() -> None:
    given = {
        "always": {"zone": "UTC", "windows": ["00:00-24:00"]},
        "never_on_sunday": {"zone": "UTC", "windows": ["sun 00:00-00:01"]},
    }
    known = known_channels(Settings.model_validate({"schedules": given}))
    assert known.schedule_at(datetime(2026, 7, 6, tzinfo=UTC)) == "always"
    for wrong in (
        {"zone": "Europe/Berlim", "windows": ["00:00-24:00"]},
        {"zone": "UTC", "windows": ["24/7"]},
        {"zone": "UTC", "windows": []},
    ):
        with pytest.raises(ValidationError):
            Settings.model_validate({"schedules": {"wrong": wrong}})


def test_a_rule_names_a_schedule_that_there_is() -> None:
    [problem] = check_facts({"channel": "email", "schedule": "offfice"}, TABLE)
    assert problem.message == "schedule can never be 'offfice': it is the name of a schedule: night, office or weekend"
    [none] = check_facts({"channel": "email", "schedule": "office"}, CHANNELS)
    assert "there is none; add one under [schedules]" in none.message
    assert schedules_at((), datetime.now(UTC)) is None

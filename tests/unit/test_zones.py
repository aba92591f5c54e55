"""Names of time zones: those of the IANA, which mean the same on every machine."""

from __future__ import annotations

from zoneinfo import available_timezones

import pytest
from pydantic import ValidationError

from switchboard.agents.turns.options import TurnOptions
from switchboard.app.settings import ScheduleSettings
from switchboard.core.zones import find_zone

OTHERS = ("localtime", "posixrules", "posix/Europe/Berlin", "right/Europe/Berlin", "Factory", "", "../etc/passwd", "\0")
"""Names of files beside the zones, and of nothing."""


def test_every_zone_is_found_by_its_name() -> None:
    names = available_timezones().difference(OTHERS)
    assert {find_zone(name).key for name in names} == names


@pytest.mark.parametrize("name", OTHERS)
def test_other_names_are_refused_with_a_reason(name: str) -> None:
    for read in (find_zone, lambda zone: TurnOptions(zone=zone), lambda zone: ScheduleSettings(zone, ("mon",)).check()):
        with pytest.raises((ValueError, ValidationError), match=r"there is no time zone .*; write one such as Europe"):
            read(name)

"""When a wall time is: a time of day on a date, as a person says it, in a time zone.

`recurrence.py` and `planning.py` call it. A wall time that a change of the clocks leaves out moves forward by what is
left out; of one that comes twice, the first is meant.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Final
from zoneinfo import TZPATH, ZoneInfo

_AROUND: Final = timedelta(hours=25)
"""No zone changes its clocks by more than a day: Samoa has left out one."""


def instant_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """When the clocks of the zone show a wall time (naive), in UTC."""
    # Fold 0 is what both rules mean: Python takes the offset that was in force before the change.
    return wall.replace(tzinfo=zone, fold=0).astimezone(UTC)


def second_instant_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """When they show it for the second time; the first, if there is no second."""
    second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return second if wall_at(second, zone) == wall else instant_of(wall, zone)


def wall_at(at: datetime, zone: ZoneInfo) -> datetime:
    """What the clocks of the zone show at an instant, naive."""
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def is_left_out(wall: datetime, zone: ZoneInfo) -> bool:
    """Whether the clocks of the zone never show this wall time."""
    return wall_at(instant_of(wall, zone), zone) != wall


def change_around(at: datetime, zone: ZoneInfo) -> timedelta:
    """By how much the clocks of the zone change within a day of an instant; 0 nearly always."""
    offsets = [(at + by).astimezone(zone).utcoffset() or timedelta() for by in (-_AROUND, timedelta(), _AROUND)]
    return max(offsets) - min(offsets)


def fingerprint_of(zone: ZoneInfo) -> str:
    """What differs if the rules of the zone were changed: a hash of its file. Empty if there is no file."""
    places = [Path(directory) for directory in TZPATH] + [Path(str(files("tzdata") / "zoneinfo"))]
    for place in places:
        file = place / zone.key
        if file.is_file():
            return sha256(file.read_bytes()).hexdigest()[:16]
    return ""

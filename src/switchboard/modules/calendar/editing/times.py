"""Times of events as they stand in an object: a wall time, and how it is written. Pure.

All of `editing/` works with them: what moves is the wall time, and the form in which others wrote it stays. In: a
content line; out: a `WrittenTime`, or the line for another time. Next: `rules.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.content_lines import ContentLine
from switchboard.domain.errors import InvalidInput

ZoneOf = Callable[[str], tzinfo | None]
"""The zone that an object means by a TZID; None: nobody knows. The empty name is that of floating times."""

_VALUE: Final = re.compile(r"(\d{8})(?:T(\d{6})(Z?))?")
_DURATION: Final = re.compile(r"([+-]?)P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.IGNORECASE)
_DAY: Final = timedelta(days=1)


class WrittenTime(Struct, frozen=True):
    """A wall time; that of a date is midnight. `zone` is its TZID, `UTC`, or empty for a floating time and a date."""

    wall: datetime
    zone: str = ""
    all_day: bool = False

    def later_by(self, delta: timedelta) -> WrittenTime:
        """The same on the clock, so much later."""
        return replace(self, wall=self.wall + delta)

    @property
    def value(self) -> str:
        """As the value of a property."""
        if self.all_day:
            return f"{self.wall:%Y%m%d}"
        return f"{self.wall:%Y%m%dT%H%M%S}" + ("Z" if self.zone == "UTC" else "")

    @property
    def parameters(self) -> str:
        """As the parameters of a property, each with its semicolon."""
        if self.all_day:
            return ";VALUE=DATE"
        return "" if self.zone in ("", "UTC") else f";TZID={quote_parameter(self.zone)}"

    def instant(self, zone_of: ZoneOf) -> datetime:
        """In UTC. A wall time that a zone leaves out is as much later, one that occurs twice is the first.

        Raises InvalidInput if nobody knows the zone.
        """
        return self.wall.replace(tzinfo=_require_zone(self.zone, zone_of)).astimezone(UTC)


def _require_zone(name: str, zone_of: ZoneOf) -> tzinfo:
    zone = UTC if name == "UTC" else zone_of(name)
    if zone is None:
        raise InvalidInput(
            f"nobody knows the time zone {name!r} of this event: change it where it was made", field="zone"
        )
    return zone


def iana_zone(name: str) -> tzinfo | None:
    """The zone of an IANA name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def time_at(instant: datetime, like: WrittenTime, zone_of: ZoneOf) -> WrittenTime:
    """An instant, written as another time is. Raises InvalidInput if nobody knows that zone."""
    local = instant.astimezone(_require_zone(like.zone, zone_of)).replace(tzinfo=None, fold=0)
    if like.all_day:
        local = datetime.combine(local.date(), time())
    return replace(like, wall=local)


def day_time(day: date) -> WrittenTime:
    """A date."""
    return WrittenTime(datetime.combine(day, time()), all_day=True)


def read_time(value: str, zone: str = "") -> WrittenTime:
    """A value of the type DATE or DATE-TIME. Raises InvalidInput for another one."""
    match = _VALUE.fullmatch(value.strip().upper())
    wrong = InvalidInput(f"{value[:40]!r} is no time of a calendar", field="time")
    if match is None:
        raise wrong
    day, clock, mark = match.groups()
    try:
        wall = datetime.strptime(f"{day}{(clock or '000000')[:6]}", "%Y%m%d%H%M%S")  # noqa: DTZ007 - a wall time
    except ValueError:
        raise wrong from None
    return WrittenTime(wall, "UTC" if mark else zone if clock else "", all_day=clock is None)


def times_in(line: ContentLine) -> tuple[WrittenTime, ...]:
    """Those of a property such as DTSTART, EXDATE or RDATE; of a period its start. Raises InvalidInput."""
    zone = line.parameter("TZID")
    return tuple(read_time(one.partition("/")[0], zone) for one in line.value.split(",") if one.strip())


def time_in(line: ContentLine) -> WrittenTime:
    """The only one of a property. Raises InvalidInput."""
    found = times_in(line)
    if len(found) != 1:
        raise InvalidInput(f"{line.name} has to be one time", field=line.name)
    return found[0]


def with_value(line: ContentLine, value: str) -> str:
    """The line with another value and the same parameters."""
    return f"{line.head}:{value}"


def with_times(line: ContentLine, times: Iterable[WrittenTime]) -> str:
    """The line with other times of the same form."""
    return with_value(line, ",".join(one.value for one in times))


def time_line(name: str, at: WrittenTime) -> str:
    """A new line of a time."""
    return f"{name}{at.parameters}:{at.value}"


def read_duration(value: str) -> timedelta:
    """A value of the type DURATION. Raises InvalidInput."""
    match = _DURATION.fullmatch(value.strip())
    if match is None or not any(match.groups()[1:]):
        raise InvalidInput(f"{value[:40]!r} is no duration", field="duration")
    weeks, days, hours, minutes, seconds = (int(one or 0) for one in match.groups()[1:])
    length = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    return -length if match[1] == "-" else length


def write_duration(length: timedelta) -> str:
    """As a value of the type DURATION."""
    days, seconds = divmod(int(length.total_seconds()), 86_400)
    hours, minutes, rest = seconds // 3600, seconds % 3600 // 60, seconds % 60
    clock = "".join(f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M"), (rest, "S")) if number)
    whole = f"P{days}D" if days else "P"
    if clock:
        return f"{whole}T{clock}"
    return whole if days else "PT0S"


def quote_parameter(value: str) -> str:
    """The value of a parameter, in quotes if it needs them; what it cannot have is left out."""
    plain = "".join(character for character in value if character >= " " and character not in '"\x7f')
    return f'"{plain}"' if re.search(r"[:;,]", plain) else plain

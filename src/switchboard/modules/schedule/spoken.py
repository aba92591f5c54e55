"""When a person means, as they said it: `tonight`, `tomorrow 9:00`, `in 2 hours`, `thursday evening`, or a date. Pure.

`tools.py` reads its argument by it, as small models know what was said and not what it means. In: the words, and what
time it is there; out: a wall time, naive, which is told in full wherever the task is. Next: `planning.py`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DATED: Final = re.compile(
    r"(?:(?P<weekday>[A-Za-z]{2,9})[,.]? +)?(?P<date>\d{4}-\d\d-\d\d)[ T]+(?P<time>\d\d?:\d\d)(?::\d\d)?", re.ASCII
)
_PARTS: Final = {"morning": 9, "noon": 12, "afternoon": 15, "evening": 19, "night": 20, "tonight": 20}
"""The hours that are meant if none is said."""
_LATE: Final = {"afternoon": 8, "evening": 12, "night": 12, "tonight": 12}
"""In these, hours before that one are meant on the clock of twelve hours: `8 in the evening` is 20:00."""
_COUNTS: Final = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3}
_COUNT: Final = rf"(\d{{1,3}}|{'|'.join(_COUNTS)})"
_LATER: Final = re.compile(rf"in {_COUNT} (minutes?|hours?)")
_SPOKEN: Final = re.compile(
    rf"(?:in {_COUNT} (?P<unit>day|week)s?|(?P<day>today|tomorrow|[a-z]{{3,9}}day|mon|tue|wed|thu|fri|sat|sun))?"
    rf" ?(?:(?:this |in the )?(?P<part>{'|'.join(_PARTS)}))?"
    r" ?(?:at )?(?:(?P<hour>\d\d?)(?::(?P<minute>\d\d)|(?= ?[ap]m))(?: ?(?P<half>[ap]m))?)?"
)
_FORM: Final = "write it as they said it, without an offset, or YYYY-MM-DD HH:MM"
"""Without a time that a small model could copy."""


def read_wall(text: str, now: datetime) -> datetime:
    """A wall time. Raises ValueError if there is no such time, and if it is on another weekday than somebody believes.

    What has passed is returned as it is; of a weekday the next is meant, which is today if its time is still to come.
    """
    if (dated := _DATED.fullmatch(text.strip())) is not None:
        return _read_dated(text, dated)
    said = " ".join(text.lower().replace(",", " ").split()).removeprefix("on ")
    if (later := _LATER.fullmatch(said)) is not None:
        minutes = _read_number(later[1]) * (60 if later[2].startswith("hour") else 1)
        then = (now.astimezone(UTC) + timedelta(minutes=minutes)).astimezone(now.tzinfo)
        return then.replace(second=0, microsecond=0, tzinfo=None, fold=0)
    spoken = _SPOKEN.fullmatch(said)
    if spoken is None or not (spoken["hour"] or spoken["part"]):
        raise ValueError(f"{text!r} is no day with a time of day: {_FORM}")
    at = _time_of(text, spoken)
    return datetime.combine(_day_of(text, spoken, at, now), at)


def _read_dated(text: str, found: re.Match[str]) -> datetime:
    try:
        wall = datetime.fromisoformat(f"{found['date']} {found['time'].zfill(5)}")
    except ValueError as error:
        raise ValueError(f"{text!r} does not exist: {error}") from None
    weekday, actual = found["weekday"] or "", WEEKDAYS[wall.weekday()]
    if not actual.lower().startswith(weekday.lower()):
        raise ValueError(f"{wall:%Y-%m-%d} is a {actual}, not a {weekday}: ask which of the two is meant")
    return wall


def _read_number(text: str) -> int:
    return _COUNTS.get(text) or int(text)


def _time_of(text: str, spoken: re.Match[str]) -> time:
    part, half = spoken["part"] or "", spoken["half"]
    hour = int(spoken["hour"] or _PARTS[part])
    if half:
        hour = hour % 12 + 12 * (half == "pm") if 1 <= hour <= 12 else 24  # which is refused below
    elif 1 <= hour < _LATE.get(part, 0):
        hour += 12
    try:
        return time(hour, int(spoken["minute"] or 0))
    except ValueError:
        raise ValueError(f"{text!r} is no time of day: {_FORM}") from None


def _day_of(text: str, spoken: re.Match[str], at: time, now: datetime) -> date:
    if spoken["unit"]:
        return now.date() + timedelta(days=_read_number(spoken[1]) * (7 if spoken["unit"] == "week" else 1))
    day = spoken["day"] or "today"
    if day in ("today", "tomorrow"):
        return now.date() + timedelta(days=day == "tomorrow")
    found = [index for index, name in enumerate(WEEKDAYS) if name.lower().startswith(day)]
    if not found:
        raise ValueError(f"{text!r} names no day: {_FORM}")
    ahead = (found[0] - now.weekday()) % 7
    return now.date() + timedelta(days=ahead or (0 if at > now.time() else 7))

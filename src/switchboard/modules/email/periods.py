"""The days of a search, as a model writes them. Pure.

`tools.py` reads its arguments by it. In: `2026-10-03`, `2026-10`, `2026`, `yesterday`, `last month`; out: the first
and the last day.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, timedelta
from typing import Final

_DATE: Final = re.compile(r"(\d{4})(?:-(\d\d?))?(?:-(\d\d?))?")
_DAY: Final = timedelta(days=1)
_FORM: Final = "write a day such as 2026-10-03, a month such as 2026-10, or yesterday, last week, last month, last year"


def read_period(text: str, today: date) -> tuple[date, date]:
    """The days that are named, both included. Raises ValueError."""
    words = " ".join(text.lower().split())
    if words in ("today", "yesterday"):
        day = today - _DAY * (words == "yesterday")
        return day, day
    which, _, unit = words.partition(" ")
    if which in ("this", "last") and unit in ("week", "month", "year"):
        first, last = _period_with(today, unit)
        return (first, last) if which == "this" else _period_with(first - _DAY, unit)
    found = _DATE.fullmatch(words)
    if found is None:
        raise ValueError(f"{text[:60]!r} is no day or month: {_FORM}")
    year, month, day_of_month = (int(one) if one else 0 for one in found.groups())
    try:
        if day_of_month:
            day = date(year, month, day_of_month)
            return day, day
        return _period_with(date(year, month or 1, 1), "month" if month else "year")
    except ValueError:
        raise ValueError(f"there is no day {text[:60]!r}: {_FORM}") from None


def _period_with(day: date, unit: str) -> tuple[date, date]:
    """The whole week, month or year in which a day is."""
    if unit == "week":
        monday = day - _DAY * day.weekday()
        return monday, monday + 6 * _DAY
    if unit == "month":
        return day.replace(day=1), day.replace(day=monthrange(day.year, day.month)[1])
    return date(day.year, 1, 1), date(day.year, 12, 31)

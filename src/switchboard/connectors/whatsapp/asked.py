"""Who was asked to write again within a day, in a form that has room for many in the cursor. Kept by `memory.py`."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

_MARK: Final = 6
"""Characters of a mark, so that the cursor has room for many people: 36 bits of a hash."""
_MOST: Final = 3000
_HOURS: Final = 25
"""Noted by the hour: one that has begun counts as a whole one."""


@dataclass(slots=True)
class PeopleAsked:
    """Who was asked, and in which hour since 1970: marks of all names of each."""

    hours: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, by_hour: Mapping[str, str]) -> PeopleAsked:
        """Out of a cursor."""
        places = [(text[at : at + _MARK], hour) for hour, text in by_hour.items() for at in range(0, len(text), _MARK)]
        return cls({mark: int(hour) for mark, hour in places if hour.isdecimal()})

    def by_hour(self) -> dict[str, str]:
        """For a cursor: by hour, the marks in a row."""
        found = dict[str, str]()
        for mark, hour in self.hours.items():
            found[str(hour)] = found.get(str(hour), "") + mark
        return found

    def was_asked(self, names: Sequence[str], now: float) -> bool:
        """Whether within a day, by any name."""
        return any(_hour_of(now) - self.hours.get(_mark_of(name), -_HOURS) < _HOURS for name in names)

    def note(self, names: Sequence[str], now: float) -> bool:
        """Somebody is asked. False: there is no room for more, and whoever is not noted must not be asked."""
        self.hours = {mark: hour for mark, hour in self.hours.items() if _hour_of(now) - hour < _HOURS}
        if len(self.hours) + len(names) > _MOST:
            return False
        self.hours |= dict.fromkeys(map(_mark_of, names), _hour_of(now))
        return True

    def forget(self, names: Sequence[str]) -> None:
        """They were not asked after all."""
        for name in names:
            self.hours.pop(_mark_of(name), None)


def _hour_of(now: float) -> int:
    return int(now // 3600)


def _mark_of(name: str) -> str:
    return urlsafe_b64encode(sha256(name.encode()).digest()).decode("ascii")[:_MARK]

"""What a number's connector remembers: who wrote when, who was asked to write again, what was billed.

Kept by `channel.py`. What must survive the process is in the cursor, which the server keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import islice
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from switchboard.connectors.whatsapp.settings import WINDOW_S
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.raw import word

_T = TypeVar("_T")
_MOST_PEOPLE: Final = 10_000
_MOST_ASKED: Final = 300
_MOST_BILLED: Final = 300
_DAY_S: Final = 24 * 3600.0


class NumberCursor(Struct, frozen=True, omit_defaults=True):
    """As it is written. `posted`: the last settled webhook; `asked`: who was sent the template, and when.

    `billed`: how many messages were, in which month, and the last of them, so that none counts twice.
    """

    posted: int = 0
    asked: dict[str, int] = {}
    billed: dict[str, int] = {}
    counted: list[str] = []

    @classmethod
    def read(cls, text: str | None) -> NumberCursor:
        """Parse a cursor. An invalid one is an empty one: webhooks come again, and are recognised."""
        try:
            return msgspec.json.decode(text or "{}", type=cls)
        except msgspec.MsgspecError:
            return cls()

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode("ascii")


@dataclass(slots=True)
class NumberMemory:
    """`since`: since when everything that people write is known, in seconds since 1970."""

    since: float
    wrote: dict[str, float] = field(default_factory=dict)
    """When somebody has last written, by id and by phone."""
    phones: dict[str, str] = field(default_factory=dict)
    """The identity of who has written with a phone number."""
    asked: dict[str, int] = field(default_factory=dict)
    billed: dict[str, int] = field(default_factory=dict)
    counted: dict[str, None] = field(default_factory=dict)
    others: int = 0
    """How many messages and reports of other numbers came."""

    def restore(self, cursor: NumberCursor) -> None:
        """What an earlier process knew."""
        self.asked, self.billed = dict(cursor.asked), dict(cursor.billed)
        self.counted = dict.fromkeys(cursor.counted)

    def cursor(self, posted: int) -> str:
        """After these webhooks."""
        return str(NumberCursor(posted, self.asked, self.billed, list(self.counted)))

    def counters(self) -> Mapping[str, int]:
        """What is shown with the counters of the account."""
        return {f"billed in {month}": count for month, count in self.billed.items()} | {
            name: count for name, count in (("for other numbers", self.others),) if count
        }

    def note_written(self, names: Iterable[str], identity: str, phone: str | None, sent: float) -> None:
        """Somebody has written."""
        for name in names:
            self.wrote[name] = max(self.wrote.get(name, 0.0), sent)
        if phone is not None:
            self.phones[phone] = identity
        _forget_first(self.wrote, _MOST_PEOPLE)
        _forget_first(self.phones, _MOST_PEOPLE)

    def is_window_closed(self, names: Sequence[str], answered: float, now: float) -> bool:
        """Whether the person has certainly not written for a day; `answered`: when the answered message was sent."""
        wrote = [self.wrote[name] for name in names if name in self.wrote]
        return now - max(answered, *wrote, 0.0) >= WINDOW_S and (bool(wrote) or self.since <= answered)

    def may_ask(self, names: Sequence[str], now: float) -> bool:
        """Whether the template may be sent: once a day."""
        return all(now - self.asked.get(name, 0) >= _DAY_S for name in names)

    def note_asked(self, names: Iterable[str], now: float) -> None:
        """It was sent."""
        for name in names:
            self.asked.pop(name, None)
            self.asked[name] = int(now)
        _forget_first(self.asked, _MOST_ASKED)

    def forget_asked(self, names: Iterable[str]) -> None:
        """It was not sent after all."""
        for name in names:
            self.asked.pop(name, None)

    def note_billed(self, wamid: str, when: datetime) -> None:
        """A delivered message is billed; reports of it may come again."""
        mark = sha256(wamid.encode()).hexdigest()[:12]
        if mark in self.counted:
            return
        self.counted[mark] = None
        month = f"{when:%Y-%m}"
        self.billed[month] = self.billed.get(month, 0) + 1
        _forget_first(self.counted, _MOST_BILLED)
        for earlier in sorted(self.billed)[:-2]:
            del self.billed[earlier]


def names_in(address: JsonMapping) -> tuple[str, ...]:
    """The names of somebody in an address, or in a report; of both there may be only one."""
    known = (word(address.get(name)) for name in ("recipient", "to"))
    return tuple(one for one in known if one is not None)


def _forget_first(known: dict[str, _T], most: int) -> None:
    for name in list(islice(known, max(len(known) - most, 0))):
        del known[name]

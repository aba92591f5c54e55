"""What a number's connector remembers: who wrote when, who was asked to write again, what was billed.

Kept by `channel.py`. What must survive the process is in the cursor, which the server keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Struct

from switchboard.connectors.whatsapp.asked import PeopleAsked
from switchboard.connectors.whatsapp.moves import NumberMove, moved_address
from switchboard.connectors.whatsapp.settings import WINDOW_S
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.raw import word

_MOST_PEOPLE: Final = 10_000
_MOST_COUNTED: Final = 10_000
_MOST_BILLED: Final = 300
"""The same in the cursor: Meta repeats reports mostly within minutes."""
_MOST_MOVES: Final = 80


class NumberCursor(Struct, frozen=True, omit_defaults=True):
    """As it is written. `posted`: the last settled webhook; `asked_by_hour`: who was sent the template, and when.

    `billed`: how many messages were, in which month, and the last of them, so that none counts twice; `moves`: the last
    people who have another number.
    """

    posted: int = 0
    asked_by_hour: dict[str, str] = {}
    billed: dict[str, int] = {}
    counted: list[str] = []
    moves: list[NumberMove] = []

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
    owners: dict[str, str] = field(default_factory=dict)
    """The id to write to of who has written with a phone number; empty: they have none."""
    moves: list[NumberMove] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)
    """To whom Meta has said that it is too late to write, until they write."""
    asked: PeopleAsked = field(default_factory=PeopleAsked)
    billed: dict[str, int] = field(default_factory=dict)
    counted: dict[str, None] = field(default_factory=dict)
    others: int = 0
    """How many messages and reports of other numbers came."""

    def restore(self, cursor: NumberCursor) -> None:
        """What an earlier process knew."""
        self.asked.hours = PeopleAsked.read(cursor.asked_by_hour).hours
        self.billed = dict(cursor.billed)
        self.counted, self.moves = dict.fromkeys(cursor.counted), list(cursor.moves)

    def cursor(self, posted: int) -> str:
        """After these webhooks."""
        return str(
            NumberCursor(posted, self.asked.by_hour(), self.billed, list(self.counted)[-_MOST_BILLED:], self.moves)
        )

    def counters(self) -> Mapping[str, int]:
        """What is shown with the counters of the account."""
        return {f"billed in {month}": count for month, count in self.billed.items()} | {
            name: count for name, count in (("for other numbers", self.others),) if count
        }

    def note_written(self, address: JsonMapping, identity: str, sent: float) -> None:
        """Somebody has written, who is answered there. What was written earlier may arrive later."""
        phone, user_id = word(address.get("to")), word(address.get("recipient"))
        if phone is not None and sent >= self.wrote.get(phone, 0.0):
            self.phones[phone] = identity
            self.owners[phone] = user_id or ""
        for name in names_in(address):
            self.wrote[name] = max(self.wrote.get(name, 0.0), sent)
            self.closed.discard(name)
        for known in (self.wrote, self.phones, self.owners):
            _forget_first(known, _MOST_PEOPLE)

    def note_move(self, move: NumberMove) -> None:
        """Somebody has another number; Meta may tell it again."""
        if move not in self.moves:
            self.moves = [*self.moves, move][-_MOST_MOVES:]

    def address_now(self, address: JsonObject) -> JsonObject:
        """Where to write to the person of an address: after a move, and never to a number that is somebody else's."""
        now = moved_address(address, self.moves)
        phone, user_id = word(now.get("to")), word(now.get("recipient"))
        if phone is None or user_id is None or self.owners.get(phone, user_id) in (user_id, ""):
            return now
        return {name: value for name, value in now.items() if name != "to"}

    def is_window_closed(self, names: Sequence[str], answered: float, now: float) -> bool:
        """Whether the person has certainly not written for a day; `answered`: when the answered message was sent."""
        is_known = self.since <= answered or any(name in self.wrote for name in names)
        is_over = is_known and self.is_late(names, answered, now)
        return is_over or not self.closed.isdisjoint(names)

    def is_late(self, names: Sequence[str], answered: float, now: float) -> bool:
        """Whether nothing is known that the person has written within a day."""
        return now - max(answered, *(self.wrote.get(name, 0.0) for name in names), 0.0) >= WINDOW_S

    def note_closed(self, names: Iterable[str]) -> None:
        """Meta has said that the person has not written for a day."""
        if len(self.closed) >= _MOST_PEOPLE:
            self.closed.clear()
        self.closed.update(names)

    def note_billed(self, wamid: str, when: datetime) -> None:
        """A delivered message is billed; reports of it may come again."""
        mark = sha256(wamid.encode()).hexdigest()[:12]
        if mark in self.counted:
            return
        self.counted[mark] = None
        month = f"{when:%Y-%m}"
        self.billed[month] = self.billed.get(month, 0) + 1
        _forget_first(self.counted, _MOST_COUNTED)
        for earlier in sorted(self.billed)[:-2]:
            del self.billed[earlier]


def names_in(address: JsonMapping) -> tuple[str, ...]:
    """The names of somebody in an address, or in a report; of both there may be only one."""
    known = (word(address.get(name)) for name in ("recipient", "to"))
    return tuple(one for one in known if one is not None)


def _forget_first(known: dict[str, Any], most: int) -> None:
    for name in list(islice(known, max(len(known) - most, 0))):
        del known[name]

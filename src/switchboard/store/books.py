"""The books: every message and every target accounted for, and what contradicts itself, in sentences.

Called by `app/views.py` for `GET /v1/books`, `switchboard doctor` and the demo. Reads everything in one snapshot, one
pass per table; changes nothing. Next: an operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from asyncpg.pool import PoolConnectionProxy

from switchboard.store.database import Database, Row, query, seconds

_PROBLEMS: Final = (
    *(
        "no_decision",
        "route",
        "branches",
        "no_message",
        "delivery_lane",
        "no_turn",
        "no_reply",
        "no_dead_letter",
        "notice",
    ),
    *("digest", "letter", "reroute", "reply_lane", "lane_state", "lane_item", "lane_paused"),
)
_PROBLEMS_BY_AGE: Final = ("lane_owner", "lane_waiting", "untold")


@dataclass(frozen=True, slots=True)
class Balance:
    """What was accepted, and what became of it; the five states add up to `accepted`, or something is lost."""

    accepted: int
    in_flight: int
    answered: int
    declined: int
    dead: int
    cancelled: int

    @property
    def difference(self) -> int:
        """Accepted minus accounted for: 0, or so many are missing (negative: doubled)."""
        return self.accepted - (self.in_flight + self.answered + self.declined + self.dead + self.cancelled)


@dataclass(frozen=True, slots=True)
class Books:
    """Per message, per target (message x butler, or dead letter), and every contradiction found."""

    messages: Balance
    targets: Balance
    problems: tuple[str, ...]

    @property
    def balanced(self) -> bool:
        """Both balances add up. Problems may be there all the same: a paused lane loses nothing."""
        return self.messages.difference == 0 and self.targets.difference == 0


def _balance(row: Row) -> Balance:
    return Balance(**{name: row[name] for name in Balance.__slots__})


async def audit_books(database: Database, *, patience_s: float = 300.0) -> Books:
    """Balance the books now. `patience_s` is how long a lane or a letter may wait, or a lease be over."""
    async with database.connection() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        [messages] = await connection.fetch(query("books.messages"))
        [targets] = await connection.fetch(query("books.targets"))
        return Books(_balance(messages), _balance(targets), tuple(await _problems(connection, patience_s)))


async def balance(database: Database) -> tuple[Balance, Balance]:
    """Messages and targets only, for metrics."""
    async with database.connection() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        [messages] = await connection.fetch(query("books.messages"))
        [targets] = await connection.fetch(query("books.targets"))
        return _balance(messages), _balance(targets)


async def _problems(connection: PoolConnectionProxy[Row], patience_s: float) -> list[str]:
    found: list[str] = []
    for name in _PROBLEMS:
        found += [row["problem"] for row in await connection.fetch(query(f"books.problem_{name}"))]
    for name in _PROBLEMS_BY_AGE:
        rows = await connection.fetch(query(f"books.problem_{name}"), seconds(patience_s))
        found += [row["problem"] for row in rows]
    return found

"""The books: every message and every target accounted for, and all contradictions, in sentences.

They are checked in ranges of request_ids, which begin with their time: no statement reads more than a day, and each day
is a snapshot of its own. One worker balances them every minute for `GET /v1/books` and the metrics, see
`app/ops/maintenance.py`; `checks/books.py` checks them. Only `book`, `outcome`, `tally` and `balance` are written.
Next: an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple
from datetime import UTC, date, datetime, timedelta
from typing import Final
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct
from msgspec.structs import replace

from switchboard.domain.ledger import EMPTY_BALANCE, Balance
from switchboard.store.database import Database, Row, part_as, query, row_as, rows_as, seconds

PATIENCE_S: Final = 300.0
"""How long a lane or a dead letter may wait, a lease be over, or a balance be old."""
_OF_A_DAY: Final = (
    *("no_decision", "route", "branches", "no_message", "delivery_lane", "no_turn", "no_reply", "no_dead_letter"),
    *("notice", "digest", "dead_letter", "reroute", "entry"),
)
_OPEN: Final = (
    *(
        "route_pending",
        "delivery_pending",
        "dead_letter_pending",
        "reply_lane",
        "lane_state",
        "lane_item",
        "lane_paused",
    ),
    *("parked", "parked_count"),
)
_OPEN_BY_AGE: Final = ("lane_owner", "lane_waiting", "overdue", "untold")
_PAST_DAYS_PER_MINUTE: Final = 8
_ONE_DAY: Final = timedelta(days=1)


class Books(Struct, frozen=True):
    """Per message, per target (message x butler, or dead letter), and every contradiction found."""

    messages: Balance
    targets: Balance
    problems: tuple[str, ...] = ()

    @property
    def balanced(self) -> bool:
        """Whether both balances add up. There may still be problems: a paused lane loses nothing."""
        return self.messages.difference == 0 and self.targets.difference == 0

    def __add__(self, other: Books) -> Books:
        problems = tuple(dict.fromkeys((*self.problems, *other.problems)))
        return Books(self.messages + other.messages, self.targets + other.targets, problems)


class KeptBooks(Struct, frozen=True):
    """The last record of a worker: the balance of all days, and contradictions among everything open."""

    books: Books
    at: datetime | None
    age: float

    @property
    def stale(self) -> bool:
        """Whether no worker has balanced the books recently."""
        return self.age > PATIENCE_S


class Outcomes(Struct, frozen=True):
    """Decided messages: delivered by rules, delivered by a model, and dead-lettered."""

    routed: int = 0
    classified: int = 0
    dead: int = 0


class DeliveryTally(Struct, frozen=True):
    """The outcomes of one butler's deliveries."""

    answered: int = 0
    dead: int = 0
    in_flight: int = 0


class DayBooks(Struct, frozen=True):
    """The books of one day (UTC)."""

    day: date
    books: Books


class Checkup(Struct, frozen=True):
    """The last 24 hours and everything open; a past day, if there is one; days known not to balance."""

    recent: Books
    past: DayBooks | None
    unbalanced: tuple[date, ...]


class _Range(Struct, frozen=True):
    """The messages accepted between two moments, as request_ids, both inclusive."""

    lowest: UUID
    highest: UUID


_ALL: Final = _Range(UUID(int=0), UUID(int=2**128 - 1))


async def audit_books(
    database: Database, *, patience_s: float = PATIENCE_S, told: Callable[[DayBooks], None] | None = None
) -> Books:
    """Check everything, day by day, calling `told` after each, and record that it was done.

    `patience_s` is how long a lane or a dead letter may wait, or a lease may have expired. Raises Unavailable.
    """
    found = Books(EMPTY_BALANCE, EMPTY_BALANCE, await _open_problems(database, patience_s))
    found += Books(EMPTY_BALANCE, EMPTY_BALANCE, await _problems(database, ("lane_idle",)))
    days = await _days(database)
    for day in days:
        of_day = await _books_of(database, _range_of(day, days), audit=True)
        await _write(database, day, of_day, audited=True)
        found += of_day
        if told is not None:
            told(DayBooks(day, of_day))
    return found


async def check_books(database: Database) -> Checkup:
    """Check the last 24 hours, everything open, and the past day with the oldest audit. Raises Unavailable."""
    recent = await _recent(database) + Books(EMPTY_BALANCE, EMPTY_BALANCE, await _open_problems(database, PATIENCE_S))
    past = await _check_past_day(database)
    unbalanced = dict.fromkeys(row["day"] for row in await database.rows(query("books.unbalanced")))
    return Checkup(recent, past, tuple(unbalanced))


async def _recent(database: Database) -> Books:
    since = _Range(_lowest_id(datetime.now(UTC) - _ONE_DAY), _ALL.highest)
    return await _books_of(database, since, audit=True)


async def _check_past_day(database: Database) -> DayBooks | None:
    days = await _days(database)
    for day in await _longest_ago(database, days[:-1], "audited_at", 1):
        books = await _books_of(database, _range_of(day, days), audit=True)
        await _write(database, day, books, audited=True)
        return DayBooks(day, books)
    return None


async def balance_books(database: Database) -> int:
    """Balance today, yesterday and some past days in rotation, and record it; returns the number of days."""
    days = await _days(database)
    due = [*await _longest_ago(database, days[:-2], "checked_at", _PAST_DAYS_PER_MINUTE), *days[-2:]]
    for day in due:
        span = _range_of(day, days)
        await _write(database, day, await _books_of(database, span, audit=False), audited=False)
        if day < days[-1]:
            await database.run(query("books.write_tally"), day, span.lowest, span.highest)
    for day in days[-2:]:
        await _count_outcomes(database, day, _range_of(day, days))
    await database.run(query("books.write_balance"), await _open_problems(database, PATIENCE_S))
    return len(due)


async def _count_outcomes(database: Database, day: date, span: _Range) -> None:
    [found] = rows_as(Outcomes, await database.rows(query("books.outcomes"), span.lowest, span.highest))
    await database.run(query("books.write_outcomes"), day, found.routed, found.classified, found.dead)


async def outcomes_of(database: Database, day: date) -> Outcomes:
    """The recorded outcomes of the messages accepted on a day (UTC). Raises Unavailable."""
    return row_as(Outcomes, await database.row(query("books.outcomes_of"), day)) or Outcomes()


async def tallies(database: Database) -> dict[str, DeliveryTally]:
    """Tallies by butler. Answered deliveries of past days come from the record; only those since yesterday are counted.

    If no worker has balanced the books since an earlier day, counting begins on that day. Raises Unavailable.
    """
    last = await database.value(query("books.last_day"))
    since = last and min(last, datetime.now(UTC).date() - _ONE_DAY)
    first = _lowest_id(_midnight(since)) if since else _ALL.lowest
    rows = await database.rows(query("books.tallies"), since or date.min, first)
    return {row["system_id"]: part_as(DeliveryTally, row) for row in rows}


async def balance_now(database: Database) -> KeptBooks:
    """Balance the books, also check the last 24 hours, and return the same as `kept_books`. Raises Unavailable."""
    await balance_books(database)
    checked = await _recent(database)
    kept = await kept_books(database)
    return replace(kept, books=replace(kept.books, problems=(*kept.books.problems, *checked.problems)))


async def kept_books(database: Database) -> KeptBooks:
    """The last record, without reading any message. Raises Unavailable."""
    row = await database.row(query("books.balance"))
    sums = {row["kind"]: part_as(Balance, row) for row in await database.rows(query("books.sums"))}
    problems = () if row is None else tuple(row["problems"])
    books = Books(sums.get("messages", EMPTY_BALANCE), sums.get("targets", EMPTY_BALANCE), problems)
    if row is None:
        return KeptBooks(books, None, float("inf"))
    return KeptBooks(books, row["at"], row["age"].total_seconds())


async def _books_of(database: Database, span: _Range, *, audit: bool) -> Books:
    """One snapshot of the messages in a range: their balance and, on request, their contradictions."""
    async with database.snapshot() as connection:
        [messages] = rows_as(Balance, await connection.fetch(query("books.messages"), span.lowest, span.highest))
        [targets] = rows_as(Balance, await connection.fetch(query("books.targets"), span.lowest, span.highest))
        problems = await _find_problems(connection, _OF_A_DAY if audit else (), span.lowest, span.highest)
        return Books(messages, targets, problems)


async def _open_problems(database: Database, patience_s: float) -> tuple[str, ...]:
    patience = seconds(patience_s)
    return (*await _problems(database, _OPEN), *await _problems(database, _OPEN_BY_AGE, patience))


async def _problems(database: Database, names: tuple[str, ...], *args: object) -> tuple[str, ...]:
    async with database.snapshot() as connection:
        return await _find_problems(connection, names, *args)


async def _find_problems(
    connection: PoolConnectionProxy[Row], names: tuple[str, ...], *args: object
) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        found += [row["problem"] for row in await connection.fetch(query(f"books.problem_{name}"), *args)]
    return tuple(found)


async def _write(database: Database, day: date, books: Books, *, audited: bool) -> None:
    for kind, balance in (("messages", books.messages), ("targets", books.targets)):
        await database.run(query("books.write"), day, kind, *astuple(balance), audited)


async def _days(database: Database) -> list[date]:
    """All days (UTC) from the oldest message to today, which is the last."""
    first = await database.value(query("books.first"))
    today = datetime.now(UTC).date()
    oldest = today if first is None else min(_day_of(first), today)
    return [oldest + n * _ONE_DAY for n in range((today - oldest).days + 1)]


async def _longest_ago(database: Database, days: list[date], column: str, limit: int) -> list[date]:
    """The days that are due: first those never done, then those done longest ago."""
    turns: Mapping[date, datetime | None] = {r["day"]: r[column] for r in await database.rows(query("books.turns"))}
    never = datetime.min.replace(tzinfo=UTC)
    return sorted(days, key=lambda day: (turns.get(day) or never, day))[:limit]


def _day_of(request_id: UUID) -> date:
    return datetime.fromtimestamp((request_id.int >> 80) / 1000, UTC).date()


def _lowest_id(moment: datetime) -> UUID:
    """The lowest UUIDv7 of a moment: its first 48 bits are milliseconds."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)


def _range_of(day: date, days: list[date]) -> _Range:
    """The first day and today are open-ended, so that the days together cover every possible id."""
    lowest = _ALL.lowest if day == days[0] else _lowest_id(_midnight(day))
    highest = _ALL.highest if day == days[-1] else UUID(int=_lowest_id(_midnight(day + _ONE_DAY)).int - 1)
    return _Range(lowest, highest)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)

"""What models cost, and which of them are in cooldown.

Read by `app/classification/spending.py`, `app/metrics.py` and `app/ops/doctor.py`; `app/classification/models.py`
records cooldowns, `app/ops/maintenance.py` removes what has expired. Spending is booked by `store/classification.py`.
Next: `queries/model_usage.sql`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal
from uuid import UUID

from switchboard.core.storable import storable_text
from switchboard.store.database import Database, query, rows_as

By = Literal["day", "model", "butler", "team", "message", "asker"]


@dataclass(frozen=True, slots=True)
class Totals:
    """What was spent: messages, attempts and how many of them failed, tokens; `cost` in micro-dollars, None: untold."""

    messages: int
    attempts: int
    failed: int
    tokens_in: int
    tokens_out: int
    cost: int | None


@dataclass(frozen=True, slots=True)
class Usage(Totals):
    """The same of one day, model, butler, team, message or asker; `key` None: of no model, or for nobody."""

    key: str | None


@dataclass(frozen=True, slots=True)
class Span:
    """From (inclusive) until (exclusive)."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Day:
    """The spending of a day: spent, reserved by running sessions, and how often its cap prevented asking a model."""

    tokens: int
    micros: int
    refused: int
    held_tokens: int
    held_micros: int


@dataclass(frozen=True, slots=True)
class Cooldown:
    """A model that is in cooldown in some process until then."""

    model: str
    until: datetime
    why: str


# Spending -----------------------------------------------------------------------------------------------------------


async def usage(database: Database, by: By, span: Span, limit: int) -> list[Usage]:
    """What was spent in that time, days newest first, all others dearest first."""
    if by in {"butler", "asker"}:
        return rows_as(Usage, await database.rows(query(f"model_usage.usage_by_{by}"), span.since, span.until, limit))
    return rows_as(Usage, await database.rows(query("model_usage.usage"), by, span.since, span.until, limit))


async def total(database: Database, span: Span) -> Totals:
    """What was spent in that time altogether."""
    [found] = rows_as(Totals, await database.rows(query("model_usage.usage_total"), span.since, span.until))
    return found


async def spending_of(database: Database, day: date) -> Day:
    """The spending of a day (UTC)."""
    [found] = rows_as(Day, await database.rows(query("model_usage.day"), day))
    return found


# Models in cooldown --------------------------------------------------------------------------------------------------


async def cooldown(database: Database, process: UUID, model: str, seconds: float, why: str) -> None:
    """Record that a model is in cooldown in a process for this long."""
    values = (model, process, timedelta(seconds=seconds), storable_text(why)[:500])
    await database.run(query("model_usage.cooldown"), *values)


async def cooldowns(database: Database) -> list[Cooldown]:
    """The models in cooldown in some process, with the longest wait of each."""
    return rows_as(Cooldown, await database.rows(query("model_usage.cooldowns")))


async def forget_expired(database: Database) -> int:
    """Remove reservations that were not settled in time, and cooldowns that are over; how many rows."""
    reservations = await database.run(query("model_usage.forget_reservations"))
    return _count(reservations) + _count(await database.run(query("model_usage.forget_cooldowns")))


def _count(tag: str) -> int:
    return int(tag.rpartition(" ")[2])

"""What models cost, and which of them are in cooldown.

Read by `app/models/spending.py` and `app/models/checks.py`, and by `app/metrics.py`; `app/models/classifier.py` records
cooldowns, `app/ops/maintenance.py` removes what has expired. Spending is recorded by `store/models/classification.py`.
Next: `queries/model_usage.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from msgspec import Struct

from switchboard.core.policy.budget import SenderCaps
from switchboard.core.text.storable import storable_text
from switchboard.core.uuid7 import first_uuid7
from switchboard.domain.ledger import Flow
from switchboard.domain.llm import TokensSpent
from switchboard.store.database import Database, query, rows_as
from switchboard.store.models.classification import Reservation

By = Literal["day", "model", "butler", "team", "message", "asker"]
_MOST_INT: Final = 2**31 - 1
_BOOKED: Final = frozenset({"day", "model", "asker"})
"""By these all requests are counted, by whole days; by team and message those that were made for one message. By butler
all are, and of the requests for classification a share."""


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Messages, attempts, tokens and cost of a period; `cost_usd` is null if it is unknown."""

    messages: int
    attempts: int
    failed: int
    tokens_in: int
    tokens_out: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class UsageRow(UsageTotals):
    """The usage of one day, model, butler, team, message or asker. `key` is null for undelivered messages."""

    key: str | None


class UsagePeriod(Struct, frozen=True):
    """From (inclusive) until (exclusive)."""

    since: datetime
    until: datetime


class Day(Struct, frozen=True):
    """The spending of a day: spent, reserved by running sessions, and how often its cap prevented asking a model.

    `newcomer_tokens`: for senders without earlier model use; `senders_refused`: by limits per sender.
    """

    tokens: int
    micros: int
    refused: int
    newcomer_tokens: int
    senders_refused: int
    held_tokens: int
    held_micros: int
    held_newcomer_tokens: int


class RefusedKey(Struct, frozen=True):
    """A model whose provider has been refusing a key since then."""

    model: str
    at: datetime
    why: str


class Cooldown(Struct, frozen=True):
    """A model that is in cooldown in some process until then."""

    model: str
    until: datetime
    why: str


class LearnedContext(Struct, frozen=True):
    """A model that reads no more than so many tokens, as its refusals have shown; that counts until then."""

    model: str
    tokens: int
    until: datetime


# Spending -----------------------------------------------------------------------------------------------------------


UsageKey = tuple[int, int, str]
"""Where a row stands among the others: its cost in micro-dollars, its tokens (0 and 0 of a day), its key."""


class ButlerSpending(Struct, frozen=True):
    """What models were asked for a butler on a day; `cost_usd` is null if nothing is known of it."""

    system_id: str
    tokens: int
    cost_usd: float | None


async def spent_by_butlers(database: Database, day: date) -> list[ButlerSpending]:
    """Of those for which a model was asked, without the choice of the butler."""
    return rows_as(ButlerSpending, await database.rows(query("model_usage.by_butler"), day))


async def usage(
    database: Database, by: By, span: UsagePeriod, limit: int, *, after: UsageKey | None = None
) -> list[UsageRow]:
    """The usage in a period, days newest first, all others most expensive first; `after`: the last row before."""
    values = (*_bounds(span), limit, *(after or (None, None, None)))
    if by == "butler":
        return rows_as(UsageRow, await database.rows(query("model_usage.usage_by_butler"), *values))
    name = "usage_booked" if by in _BOOKED else "usage"
    return rows_as(UsageRow, await database.rows(query(f"model_usage.{name}"), *values, by))


def _bounds(span: UsagePeriod) -> tuple[datetime, datetime, UUID, UUID]:
    """Times, and the ids of messages that came between them."""
    return span.since, span.until, first_uuid7(span.since), first_uuid7(span.until)


def key_of_usage(by: By, row: UsageRow) -> UsageKey:
    """The position of this row."""
    if by == "day":
        return 0, 0, row.key or ""
    return (
        -1 if row.cost_usd is None else round(row.cost_usd * 1_000_000),
        row.tokens_in + row.tokens_out,
        row.key or "",
    )


async def total(database: Database, by: By, span: UsagePeriod) -> UsageTotals:
    """The sum of all rows by this."""
    name = "usage_total_by_butler" if by == "butler" else "usage_total_booked" if by in _BOOKED else "usage_total"
    [found] = rows_as(UsageTotals, await database.rows(query(f"model_usage.{name}"), *_bounds(span)))
    return found


async def spending_of(database: Database, day: date) -> Day:
    """The spending of a day (UTC)."""
    [found] = rows_as(Day, await database.rows(query("model_usage.day"), day))
    return found


class ModelDay(TokensSpent, frozen=True):
    """The usage of a model on a day, for all callers. `tokens_in` include cached tokens."""

    model: str
    attempts: int = 0
    failed: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: float | None = None


async def models_of(database: Database, day: date) -> list[ModelDay]:
    """The models used on a day (UTC)."""
    return rows_as(ModelDay, await database.rows(query("model_usage.models_of_day"), day))


# Limits per sender ----------------------------------------------------------------------------------------------------


class SenderAdmission(Struct, frozen=True):
    """Whether a model may be asked for a message. `flow` None: its sender is unknown.

    `reached`: the limit that forbids it, by its name in the settings; `wait_s`: when to try again, None: unknown.
    """

    flow: Flow | None
    reached: str | None
    wait_s: float | None


async def admit(
    database: Database, request_id: UUID, wanted: Reservation, lifetime: timedelta, caps: SenderCaps
) -> SenderAdmission:
    """Check the limits of the message's sender; if none is reached, count a session and reserve its tokens.

    Reservations count as used. One not settled within `lifetime` is released: its process died.
    """
    asked = (request_id, wanted.reservation_id, wanted.day, wanted.amount.tokens, lifetime)
    limits = (caps.per_minute, caps.tokens, caps.newcomer_tokens)
    [found] = rows_as(SenderAdmission, await database.rows(query("model_usage.admit"), *asked, *limits))
    return found


async def settle(database: Database, flow: Flow, reserved: Reservation, tokens: int) -> None:
    """Book the usage of an admitted sender, and release the reservation."""
    await database.run(query("model_usage.settle"), flow, reserved.reservation_id, reserved.day, tokens)


async def forget_flows(database: Database, keep_days: int) -> int:
    """Forget which senders used models before that many days ago; one who returns counts as new."""
    return await database.change_rows(query("model_usage.forget_flows"), keep_days)


# Models in cooldown --------------------------------------------------------------------------------------------------


async def cooldown(
    database: Database, process: UUID, model: str, seconds: float, why: str, *, for_all: bool = False
) -> None:
    """Record that a model is in cooldown in a process for this long; `for_all`: no other may ask it either."""
    values = (model, process, timedelta(seconds=seconds), storable_text(why)[:500], for_all)
    await database.run(query("model_usage.cooldown"), *values)


async def refuse_key(database: Database, model: str, key_hash: str, why: str) -> bool:
    """Pause a model for all processes with this key; returns whether it was not paused before."""
    return await database.change_rows(query("model_usage.refuse_key"), model, key_hash, storable_text(why)[:500]) > 0


async def refused_keys(database: Database) -> list[RefusedKey]:
    """The models that are paused because their provider has refused a key."""
    return rows_as(RefusedKey, await database.rows(query("model_usage.refused_keys")))


async def trust_keys(database: Database, model: str) -> None:
    """End the pause of a model, whatever its key."""
    await database.run(query("model_usage.trust_keys"), model)


async def cooldowns(database: Database) -> list[Cooldown]:
    """The models in cooldown in some process, with the longest wait of each."""
    return rows_as(Cooldown, await database.rows(query("model_usage.cooldowns")))


async def limit_context(database: Database, process: UUID, model: str, tokens: int, seconds: float) -> None:
    """Record that a process has learned how much a model can read, which counts for so many seconds."""
    values = (model, process, min(tokens, _MOST_INT), timedelta(seconds=seconds))
    await database.run(query("model_usage.limit_context"), *values)


async def contexts(database: Database) -> list[LearnedContext]:
    """The models of which some process has learned how much they can read, with the smallest number of each."""
    return rows_as(LearnedContext, await database.rows(query("model_usage.contexts")))


class SlotFound(Struct, frozen=True):
    """The result of asking for a slot. Without one, `paused_s` (seconds of a pause) or `refused` (its key) says why.

    `context`: the tokens that the model can read, as another process has learned, for the next `context_s` seconds.
    """

    taken: bool
    paused_s: float
    refused: str | None
    context: int | None = None
    context_s: float = 0.0


class SlotWanted(Struct, frozen=True):
    """A request for one of `most` slots of this name to ask a model, for `ttl` seconds. A smaller `rank` comes first.

    `key_hash` is the hash of the key; `fresh`: from a new process.
    """

    model: str
    slot: str
    most: int
    ttl: float
    rank: int = 0
    key_hash: str = ""
    fresh: bool = False


async def take_slot(database: Database, lease: UUID, process: UUID, wanted: SlotWanted) -> SlotFound:
    """Take a slot, if one is free, nobody is ahead, and the model is not paused for this process."""
    slot = (wanted.model, wanted.slot, wanted.most, wanted.rank, lease)
    key = (process, timedelta(seconds=wanted.ttl), wanted.key_hash, wanted.fresh)
    [found] = rows_as(SlotFound, await database.rows(query("model_usage.take_slot"), *slot, *key))
    return found


async def renew_slots(database: Database, leases: Sequence[UUID], ttl: float) -> None:
    """Keep these slots for `ttl` more seconds."""
    await database.run(query("model_usage.renew_slots"), list(leases), timedelta(seconds=ttl))


async def free_slot(database: Database, lease: UUID) -> None:
    """Give a slot back."""
    await database.run(query("model_usage.free_slot"), lease)


async def forget_expired(database: Database) -> int:
    """Remove reservations not settled in time, expired cooldowns, slots of dead processes, and the like."""
    names = ("forget_reservations", "forget_cooldowns", "forget_slots", "forget_refused_keys")
    return sum([await database.change_rows(query(f"model_usage.{name}")) for name in names])

"""The steps of items, and the events that steps wait for.

Called by `lanes/journal.py` and `lanes/waiting.py`; each function is one transaction. Next: `store/messages/outbox.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.storable import storable_json
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import Item
from switchboard.domain.llm import TokensSpent
from switchboard.domain.message import RequestId
from switchboard.ports.engine import StepState
from switchboard.store.database import Database, from_json, query, rows_as, seconds, to_json

StepEffect = Literal["idempotent", "queryable", "effectful", "event"]
"""Those of an engine, and that of an event, which is waited for."""


class Step(TokensSpent, frozen=True):
    """A journaled part of an item's work. `cost` in micro-dollars."""

    path: str
    state: StepState
    effect: StepEffect
    idempotency_key: UUID
    result: Any = None
    cost: int | None = None


class StepWrite(Struct, frozen=True):
    """A step to be written in the next commit, with the item that authorises it."""

    item: Item
    request_id: RequestId
    step: Step


class DecidedEvent(Struct, frozen=True):
    """A decided event. `result`: the result that the first decision gave its step; None: too late."""

    result: JsonObject | None
    fresh: bool
    """Whether this call decided it."""


async def load_steps(database: Database, item: Item, request_id: RequestId) -> dict[str, Step]:
    """The journal of an item so far, by path."""
    rows = await database.rows(query("steps.load"), item.lane, item.seq, request_id)
    steps = (replace(one, result=one.result and from_json(one.result)) for one in rows_as(Step, rows))
    return {step.path: step for step in steps}


async def write_steps(database: Database, worker: int, batch: Sequence[StepWrite]) -> list[bool]:
    """Write journal steps in one transaction; returns for each whether it counted. False: fenced, stop at once."""
    counted = await database.value(query("steps.write"), worker, [_step_row(one) for one in batch])
    there = set(counted or ())
    return [n in there for n in range(1, len(batch) + 1)]


def _step_row(write: StepWrite) -> tuple[object, ...]:
    item, step = write.item, write.step
    result = None if step.state == "started" else to_json(step.result)
    where = (item.lane, item.epoch, item.seq, write.request_id, step.path)
    return (*where, step.effect, step.state, step.idempotency_key, result, step.tokens_in, step.tokens_out, step.cost)


async def expect(database: Database, worker: int, write: StepWrite, within: float | None) -> bool:
    """Register the event that a step awaits, for at most `within` seconds. Repeating it changes nothing.

    False: fenced.
    """
    item, step = write.item, write.step
    deadline = None if within is None else seconds(within)
    return bool(
        await database.value(
            query("steps.expect"),
            *(worker, item.lane, item.epoch, item.seq, write.request_id, step.path, step.idempotency_key, deadline),
        )
    )


async def park(database: Database, worker: int, item: Item, keys: Sequence[UUID]) -> bool:
    """Park an item until one of these events is decided. False: fenced."""
    return bool(await database.value(query("steps.park"), worker, item.lane, item.epoch, item.seq, list(keys)))


async def decide(database: Database, key: UUID, value: object) -> DecidedEvent | None:
    """Decide the event with this key; None if no step ever waited for it."""
    row = await database.row(query("steps.decide"), key, storable_json({"value": value}))
    return None if row is None else DecidedEvent(row["result"], row["fresh"])


async def forget_events(database: Database, below: UUID, limit: int) -> int:
    """Remove events of ended items whose messages have lower ids; returns how many."""
    return await database.change_rows(query("steps.forget_events"), below, limit)

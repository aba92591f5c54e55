"""The rows of the engine: claim, steps, settle, retry, rescue, workers.

Called by `lanes/` (the engine) and by the legs of `journey/`; each function is one transaction.
Next: `store/outbox.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import asyncpg
from msgspec import structs

from switchboard.core.stored import stored_envelope
from switchboard.domain.envelope import Envelope
from switchboard.domain.ledger import Item, LaneKey, TurnOutcome
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import DeadLetterCategory, SystemId, TeamId
from switchboard.store.database import Database, Row, query, seconds, to_json

WORK_POOL: Final = "work"
ROUTE_POOL: Final = "route"
"""Route lanes wait apart: models are slow, and may not take the places of everything else."""
LOCK_CLASS: Final = 0x5357
"""First key of the advisory locks by which workers show that they live."""

Effect = Literal["idempotent", "queryable", "effectful"]


@dataclass(frozen=True, slots=True)
class Work:
    """What a turn needs to know: the message, for whom, and for a notice also the dead letter."""

    lane: LaneKey
    seq: int
    request_id: RequestId
    conversation: Conversation
    system_id: SystemId
    team_id: TeamId
    segment: int
    envelope: Envelope
    """As it arrived; but of a message that a model split, `payload.normalized_text` is the part for this butler."""
    received_at: datetime
    dead_letter: Mapping[str, Any] | None
    """For a notice: dead_letter_id, team_id, category, reason, system_id; for a digest more (see `lanes.load`)."""
    resumed: bool = True
    """Whether an earlier attempt may have left steps in the journal."""
    whole_text: str | None = None
    """The text of the whole message where this butler gets a part of it; else None."""


@dataclass(frozen=True, slots=True)
class Step:
    """A journaled part of a turn."""

    n: int
    name: str
    state: Literal["started", "done"]
    idempotency_key: UUID
    result: Any


@dataclass(frozen=True, slots=True)
class Burial:
    """How a delivery ends that nobody could carry out."""

    dead_letter_id: UUID
    category: DeadLetterCategory
    reason: str
    handler: SystemId | None


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of a turn. `pool` names where a reply waits: None is the mailbox that is read at the door."""

    item: Item
    outcome: TurnOutcome
    engine: str | None
    started_at: datetime | None
    error_class: str | None = None
    error: str | None = None
    hand_on: bool = True
    pause: bool = False
    outbox_id: UUID | None = None
    text: str | None = None
    pool: str | None = None
    burial: Burial | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """Whether the settlement counted (else: fenced), and the next seq of the lane if it was handed on."""

    ok: bool
    next_seq: int | None


async def register_worker(
    connection: asyncpg.Connection, *, host: str, pid: int, version: str, ttl: float, lock: bool
) -> int:
    """Enter the worker and, where advisory locks are to be had, take the lock that dies with the connection.

    The lock is taken before the row can be seen, so nobody mistakes a new worker for a dead one.
    """
    async with connection.transaction():
        worker: int = await connection.fetchval(query("lanes.register"), host, pid, version, seconds(ttl), lock)
        if lock:
            await connection.execute(query("lanes.hold_lock"), LOCK_CLASS, worker)
    return worker


async def beat(database: Database, worker: int) -> bool:
    """Say that the worker lives. False: somebody has taken its lanes over."""
    return await database.run(query("lanes.beat"), worker) == "UPDATE 1"


async def rescue(database: Database) -> int:
    """Free the lanes of dead workers; returns how many."""
    return int(await database.value(query("lanes.rescue"), LOCK_CLASS))


async def release_worker(database: Database, worker: int) -> int:
    """Leave in good order; returns how many lanes others take over."""
    return int(await database.value(query("lanes.release"), worker))


async def claim(
    database: Database, worker: int, quota: Sequence[int], routes: Sequence[int] = (), *, pool: str = WORK_POOL
) -> list[Item]:
    """Take up to `quota[tier]` ready lanes of each tier, and of the route lanes up to `routes[tier]`."""
    if any(routes):
        rows = await database.rows(query("lanes.claim_both"), pool, ROUTE_POOL, worker, list(quota), list(routes))
    else:
        rows = await database.rows(query("lanes.claim"), pool, worker, list(quota))
    return [Item(LaneKey(r["key"]), r["kind"], r["tier"], r["seq"], r["epoch"], r["attempts"]) for r in rows]


async def load_work(database: Database, items: Sequence[Item]) -> list[Work]:
    """The message of each item, in order. Raises `LookupError` if one has none."""
    rows = await database.rows(query("lanes.load"), [i.lane for i in items], [i.seq for i in items])
    if len(rows) != len(items):
        raise LookupError(f"{len(items) - len(rows)} of {[(i.lane, i.seq) for i in items]} are nowhere")
    return [_work(r) for r in rows]


def _work(r: Row) -> Work:
    envelope = stored_envelope(r["envelope"])
    work = Work(
        lane=LaneKey(r["lane"]),
        seq=r["seq"],
        request_id=RequestId(r["request_id"]),
        conversation=Conversation(r["conversation"]),
        system_id=SystemId(r["system_id"]),
        team_id=TeamId(r["team_id"]),
        segment=r["segment"],
        envelope=envelope,
        received_at=r["received_at"],
        dead_letter=r["dead_letter"],
        resumed=r["resumed"],
    )
    if r["text"] is None:
        return work
    part = structs.replace(envelope.payload, normalized_text=r["text"])
    cut = structs.replace(envelope, payload=part)
    return replace(work, envelope=cut, whole_text=envelope.payload.normalized_text)


async def load_steps(database: Database, item: Item) -> dict[int, Step]:
    """The journal of an item so far, by number."""
    rows = await database.rows(query("lanes.steps"), item.lane, item.seq)
    return {r["n"]: Step(r["n"], r["name"], r["state"], r["idempotency_key"], r["result"]) for r in rows}


async def write_step(database: Database, worker: int, item: Item, step: Step, effect: Effect) -> bool:
    """Journal a step. False: fenced, stop at once."""
    return bool(
        await database.value(
            query("lanes.write_step"),
            worker,
            item.lane,
            item.epoch,
            item.seq,
            step.n,
            step.name,
            effect,
            step.idempotency_key,
            step.state,
            None if step.state == "started" else to_json(step.result),
        )
    )


async def settle(database: Database, worker: int, batch: Sequence[Settlement]) -> list[Settled]:
    """End turns, all in one transaction; each one wholly or, when fenced, not at all."""
    rows = await database.rows(query("lanes.settle"), worker, *_settle_columns(batch))
    by_lane = {r["lane"]: r for r in rows}
    return [Settled(by_lane[s.item.lane]["ok"], by_lane[s.item.lane]["next_seq"]) for s in batch]


def _settle_columns(batch: Sequence[Settlement]) -> list[list[Any]]:
    return [
        [s.item.lane for s in batch],
        [s.item.epoch for s in batch],
        [s.item.seq for s in batch],
        [s.outcome for s in batch],
        [s.error_class for s in batch],
        [s.error for s in batch],
        [s.engine for s in batch],
        [s.started_at for s in batch],
        [s.hand_on for s in batch],
        [s.pause for s in batch],
        [s.outbox_id for s in batch],
        [s.text for s in batch],
        [s.pool for s in batch],
        [s.burial.dead_letter_id if s.burial else None for s in batch],
        [s.burial.category if s.burial else None for s in batch],
        [s.burial.reason if s.burial else None for s in batch],
        [s.burial.handler if s.burial else None for s in batch],
    ]


async def retry(database: Database, worker: int, settlement: Settlement, delay: float) -> bool:
    """Put a failed item back for another attempt after `delay` seconds; the lane waits. False: fenced."""
    s = settlement
    return bool(
        await database.value(
            query("lanes.retry"),
            worker,
            s.item.lane,
            s.item.epoch,
            s.item.seq,
            s.outcome,
            s.error_class,
            s.error,
            s.engine,
            s.started_at,
            seconds(delay),
        )
    )


async def list_lanes(
    database: Database, states: Sequence[str] = ("ready", "running", "paused")
) -> list[dict[str, Any]]:
    """Lanes that are not idle, the longest waiting first, at most 200."""
    return [dict(r) for r in await database.rows(query("lanes.list"), list(states))]


async def resume_lane(database: Database, lane: str) -> bool:
    """Let a paused lane go on with its next item."""
    return await database.run(query("lanes.resume"), lane) == "UPDATE 1"

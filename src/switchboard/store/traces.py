"""What traces are made of: finished rows of messages, and how far they have been sent to a collector.

Called by `app/ops/traces.py`, `store/checks/traces.py` and `app/metrics.py`. In: request ids; out: records without any
content. Nothing here is in the path of a message. Next: `core/traces.py`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar
from uuid import UUID

from msgspec import Struct

from switchboard.core.text.storable import storable_text
from switchboard.core.traces import (
    MessageRecord,
    TracedAttempt,
    TracedClassification,
    TracedDeadLetter,
    TracedDecision,
    TracedMessage,
    TracedReply,
    TracedStep,
)
from switchboard.core.uuid7 import first_uuid7
from switchboard.store.database import Database, query, row_as, rows_as

_LATE: Final = timedelta(minutes=1)
"""So long after its id was given a message may still be stored."""
_OLDEST: Final = timedelta(days=7)
"""What was accepted before, while there was nobody to take spans, is passed over."""
_MOST_WHY: Final = 300
_PART_OF: Final = 2**32
_Part = TypeVar("_Part", TracedDecision, TracedClassification, TracedAttempt, TracedStep, TracedReply, TracedDeadLetter)


class Claimed(Struct, frozen=True):
    """A message that is due, and the ids of its spans that the collector has."""

    request_id: UUID
    exported: Sequence[int]


class Exported(Struct, frozen=True):
    """Spans that the collector has taken. `again`: when to look at the message again; None: that was all of it."""

    request_id: UUID
    spans: Sequence[int]
    again: timedelta | None


class TraceStanding(Struct, frozen=True):
    """How far it is: spans sent in all, messages of which some are to be sent, and since when the collector fails."""

    spans: int
    failing_since: datetime | None
    why: str
    messages: int
    behind_s: float


async def begin(database: Database, now: datetime) -> None:
    """Begin with what is accepted from now on, unless it has begun before."""
    await database.run(query("traces.begin"), first_uuid7(now))


async def take(database: Database, now: datetime, share: float, limit: int) -> None:
    """Take up new messages: this share of them."""
    part = round(share * _PART_OF)
    await database.run(query("traces.take"), first_uuid7(now - _OLDEST), first_uuid7(now - _LATE), limit, part)


async def claim(database: Database, limit: int, lease: timedelta) -> list[Claimed]:
    """Messages that are due; each is due for others after `lease`."""
    return rows_as(Claimed, await database.rows(query("traces.claim"), limit, lease))


async def load(database: Database, ids: Sequence[UUID]) -> list[MessageRecord]:
    """What is on record about these messages. Whether one is at work is read first: else it has no more."""
    messages = rows_as(TracedMessage, await database.rows(query("traces.messages"), ids))
    decisions = await _load_parts(database, "decisions", TracedDecision, ids)
    classifications = await _load_parts(database, "classifications", TracedClassification, ids)
    attempts = await _load_parts(database, "attempts", TracedAttempt, ids)
    steps = await _load_parts(database, "steps", TracedStep, ids)
    replies = await _load_parts(database, "replies", TracedReply, ids)
    dead = await _load_parts(database, "dead_letters", TracedDeadLetter, ids)
    return [
        MessageRecord(message, decisions[of], classifications[of], attempts[of], steps[of], replies[of], dead[of])
        for message in messages
        for of in [message.request_id]
    ]


async def record(database: Database, exported: Sequence[Exported]) -> None:
    """The collector has these."""
    await database.run(
        query("traces.done"),
        [one.request_id for one in exported],
        [json.dumps(list(one.spans)) for one in exported],
        [one.again is None for one in exported],
        [one.again or timedelta() for one in exported],
        sum(len(one.spans) for one in exported),
    )


async def fail(database: Database, why: str) -> None:
    """The collector has not taken them."""
    await database.run(query("traces.failed"), storable_text(why)[:_MOST_WHY])


async def standing(database: Database, now: datetime) -> TraceStanding | None:
    """How far it is; None while no worker sends traces."""
    return row_as(TraceStanding, await database.row(query("traces.standing"), first_uuid7(now - _LATE)))


async def _load_parts(
    database: Database, name: str, kind: type[_Part], ids: Sequence[UUID]
) -> Mapping[UUID, list[_Part]]:
    parts: defaultdict[UUID, list[_Part]] = defaultdict(list)
    for one in rows_as(kind, await database.rows(query(f"traces.{name}"), ids)):
        parts[one.request_id].append(one)
    return parts

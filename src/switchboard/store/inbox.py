"""Messages in and out of the inbox: the accept transaction, and what doors show of a message.

`journey/accept.py` hands in messages with their decisions; doors read. Next: `store/lanes.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from switchboard.core.stored import stored_json
from switchboard.domain.envelope import PolicyTier
from switchboard.domain.ledger import LaneKey
from switchboard.domain.message import Conversation, Message, RequestId
from switchboard.domain.routing import Decision, SystemId
from switchboard.store.database import Database, Row, query, storable_text, to_json
from switchboard.store.ids import new_uuid7

TIERS: Final[Mapping[PolicyTier, int]] = {"high_priority": 0, "interactive": 1, "default": 2, "passive": 3}


class Acceptance(Struct, frozen=True):
    """What the sender is told: the id of the message, or of the first one if this is a duplicate.

    `decision` is what was decided about a new message; None for a duplicate, and while it `waits`: to be classified, or
    behind a message of its conversation that does.
    """

    request_id: RequestId
    duplicate: bool
    decision: Decision | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class ToClassify:
    """What stands in for the decision about a message for which a model must be asked: what to decide it by then."""

    facts: Mapping[str, str]


class Arrival(Struct, frozen=True):
    """A message, what was decided about it, and whom it was pinned to (should it have to be decided later)."""

    message: Message
    decided: Decision | ToClassify
    pinned: SystemId | None = None


class Prepared(Struct, frozen=True):
    """An arrival and its JSON: made while an earlier batch is written, so that its own waits for nothing but rows."""

    arrival: Arrival
    envelope: str
    trail: str | None
    facts: str


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as doors show it. `state`: in_flight, answered, declined, dead, cancelled."""

    request_id: RequestId
    conversation: Conversation
    channel: str
    endpoint: str
    sender: str
    thread: str | None
    envelope: Mapping[str, Any]
    media_type: str
    received_at: datetime
    state: str


def turn_lane(system_id: SystemId, conversation: Conversation) -> LaneKey:
    """The lane in which a butler answers a conversation."""
    return LaneKey(f"turn:{system_id}:{conversation}")


def prepare(arrival: Arrival) -> Prepared:
    """What `accept` would else do first."""
    decided = arrival.decided
    trail = to_json(decided.trail) if isinstance(decided, Decision) else None
    return Prepared(arrival, _without_raw(arrival.message), trail, to_json(decided.facts))


async def accept(database: Database, given: Sequence[Arrival | Prepared], *, queued: bool = False) -> list[Acceptance]:
    """Store what is new of `given` in one transaction, with its decisions, deliveries and dead letters.

    `queued`: messages may wait to be classified. One of a conversation in which some do waits behind them, and its
    decision is forgotten: it is made anew when its turn comes. That is so without `queued` as well, for a process may
    not know yet what others do; but where nobody waits, it costs one look and makes no lane.

    Returns one answer per message, in order, after the commit. Raises `Unavailable` when the outcome is unknown or
    nothing was stored; handing in the same messages again is safe.
    """
    prepared = [one if isinstance(one, Prepared) else prepare(one) for one in given]
    batch = [one.arrival for one in prepared]
    rows = await database.rows(
        query("inbox.accept"),
        *_message_columns(prepared),
        *_decision_columns(prepared),
        [isinstance(arrival.decided, ToClassify) for arrival in batch] if queued else None,
        [arrival.pinned for arrival in batch],
        *_delivery_columns(batch),
        *_unrouted_columns(batch),
    )
    in_order = sorted(rows, key=itemgetter(0))
    return [_acceptance(arrival, *row) for row, arrival in zip(in_order, batch, strict=True)]


def _acceptance(arrival: Arrival, _ord: int, first: RequestId, waits: bool) -> Acceptance:
    # An id that is our own means fresh, also when an earlier attempt to commit this very batch got through unheard.
    if first != arrival.message.request_id:
        return Acceptance(first, duplicate=True)
    if waits or isinstance(arrival.decided, ToClassify):
        return Acceptance(first, duplicate=False, waits=waits)
    return Acceptance(first, duplicate=False, decision=arrival.decided)


async def find_authors(database: Database, replies: Sequence[tuple[Conversation, str]]) -> list[SystemId | None]:
    """Which butler wrote what is replied to: (conversation, the platform's id of it) each; None: none of ours."""
    rows = await database.rows(query("inbox.authors"), [c for c, _ in replies], [storable_text(i) for _, i in replies])
    found = {row["ord"]: SystemId(row["system_id"]) for row in rows}
    return [found.get(ord_) for ord_ in range(1, len(replies) + 1)]


def _message_columns(batch: Sequence[Prepared]) -> list[list[Any]]:
    messages = [one.arrival.message for one in batch]
    return [
        [m.conversation for m in messages],
        [m.dedupe_key for m in messages],
        [m.request_id for m in messages],
        [m.envelope.source.channel for m in messages],
        [m.envelope.source.endpoint_identity for m in messages],
        [m.envelope.sender.identity for m in messages],
        [m.envelope.event.external_thread_id for m in messages],
        [one.envelope for one in batch],
        [m.raw for m in messages],
        [m.media_type for m in messages],
        [m.received_at for m in messages],
        [TIERS[m.envelope.control.policy_tier] for m in messages],
    ]


def _without_raw(message: Message) -> str:
    return stored_json(message.envelope).decode()


def _decision_columns(batch: Sequence[Prepared]) -> list[list[Any]]:
    decided = (one.arrival.decided for one in batch)
    decisions = [d if isinstance(d, Decision) else None for d in decided]
    return [
        [d and d.version for d in decisions],
        [d and len(d.chosen) + len(d.unrouted) for d in decisions],
        [one.trail for one in batch],
        [one.facts for one in batch],
    ]


def _columns(rows: Iterable[tuple[object, ...]], width: int) -> list[list[Any]]:
    columns: list[list[Any]] = [[] for _ in range(width)]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return columns


def _delivery_columns(batch: Sequence[Arrival]) -> list[list[Any]]:
    rows = (
        (ord_, turn_lane(chosen.system_id, arrival.message.conversation), chosen.system_id, chosen.team_id)
        for ord_, arrival in enumerate(batch, 1)
        if isinstance(arrival.decided, Decision)
        for chosen in arrival.decided.chosen
    )
    return _columns(rows, 4)


def _unrouted_columns(batch: Sequence[Arrival]) -> list[list[Any]]:
    rows = (
        (ord_, new_uuid7(), branch.team_id, branch.category, branch.reason, branch.handler)
        for ord_, arrival in enumerate(batch, 1)
        if isinstance(arrival.decided, Decision)
        for branch in arrival.decided.unrouted
    )
    return _columns(rows, 6)


def _stored(row: Row) -> StoredMessage:
    return StoredMessage(**{name: row[name] for name in StoredMessage.__slots__})


async def get_message(database: Database, request_id: UUID) -> StoredMessage | None:
    """One message by its id."""
    row = await database.row(query("inbox.get"), request_id)
    return _stored(row) if row else None


async def get_raw(database: Database, request_id: UUID) -> tuple[bytes, str] | None:
    """The bytes as they arrived, and their media type."""
    row = await database.row(query("inbox.raw"), request_id)
    return (row["raw"], row["media_type"]) if row else None


async def list_messages(
    database: Database,
    *,
    before: UUID | None = None,
    limit: int = 50,
    channel: str | None = None,
    endpoint: str | None = None,
) -> list[StoredMessage]:
    """Newest first; `before` is the id of the last message of the page before."""
    rows = await database.rows(query("inbox.list"), before, limit, channel, endpoint)
    return [_stored(row) for row in rows]


async def count_backlog(database: Database) -> int:
    """How much waits for workers or is being worked on: what back-pressure is measured by."""
    return int(await database.value(query("inbox.backlog")))

"""Messages in and out of the inbox: the accept transaction, and what doors show of a message.

`journey/accept.py` hands in messages with their decisions; doors read. Next: `store/lanes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from secrets import token_hex
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

_SEPARATOR: Final = f"\x1e{token_hex(8)}\x1e"
"""Between the texts of a column. Keys and names may hold the control character, but nobody can guess the digits."""
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
    """An arrival and its row: made while an earlier batch is written, so that its own waits for rows alone."""

    arrival: Arrival
    row: tuple[str, ...]


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
    message, decided = arrival.message, arrival.decided
    source, decision = message.envelope.source, decided if isinstance(decided, Decision) else None
    row = (
        message.conversation,
        message.dedupe_key,
        message.request_id.hex,
        source.channel,
        source.endpoint_identity,
        message.envelope.sender.identity,
        message.envelope.event.external_thread_id or "",
        stored_json(message.envelope).decode(),
        message.media_type,
        to_json(message.received_at)[1:-1],
        str(TIERS[message.envelope.control.policy_tier]),
        str(decision.version) if decision else "",
        str(len(decision.chosen) + len(decision.unrouted)) if decision else "",
        to_json(decision.trail) if decision else "",
        to_json(decided.facts),
        arrival.pinned or "",
        "f" if decision else "t",
        str(len(message.raw)),
    )
    return Prepared(arrival, row)


async def accept(
    database: Database,
    given: Sequence[Arrival | Prepared],
    *,
    queued: bool = False,
    wake: Callable[[], None] = lambda: None,
) -> list[Acceptance]:
    """Store what is new of `given` in one transaction, with its decisions, deliveries and dead letters.

    `queued`: messages may wait to be classified. One of a conversation in which some do waits behind them, and its
    decision is forgotten: it is made anew when its turn comes. That is so without `queued` as well, for a process may
    not know yet what others do; but where nobody waits, it costs one look and makes no lane.

    `wake` is called if a lane has work now that had none a moment ago; where work waits for longer, workers know of it.

    Returns one answer per message, in order, after the commit. Raises `Unavailable` when the outcome is unknown or
    nothing was stored; handing in the same messages again is safe.
    """
    prepared = [one if isinstance(one, Prepared) else prepare(one) for one in given]
    batch = [one.arrival for one in prepared]
    raws = [arrival.message.raw for arrival in batch]
    *columns, asks, sizes = _joined((one.row for one in prepared), 18)
    starts = _SEPARATOR.join(map(str, accumulate(map(len, raws[:-1]), initial=1)))
    rows = await database.rows(
        query("inbox.accept"),
        _SEPARATOR,
        *columns,
        asks if queued else None,
        sizes,
        starts,
        b"".join(raws),
        *_joined(_delivery_rows(batch), 4),
        *_unrouted_columns(batch),
    )
    told = {ord_: (first, waits) for ord_, first, waits in rows}
    if told.pop(0, None):
        wake()
    new = [(arrival.message.request_id, False) for arrival in batch]
    return [_acceptance(arrival, *told.get(n, new[n - 1])) for n, arrival in enumerate(batch, 1)]


def _acceptance(arrival: Arrival, first: RequestId | None, waits: bool) -> Acceptance:
    if first is None:
        raise LookupError(f"{arrival.message.request_id} is neither stored nor known")
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


def _joined(rows: Iterable[tuple[str, ...]], width: int) -> list[str]:
    """The columns of `rows`, each as one text."""
    return [_SEPARATOR.join(column) for column in zip(*rows, strict=True)] or [""] * width


def _columns(rows: Iterable[tuple[object, ...]], width: int) -> list[list[Any]]:
    columns: list[list[Any]] = [[] for _ in range(width)]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return columns


def _delivery_rows(batch: Sequence[Arrival]) -> Iterator[tuple[str, ...]]:
    for ord_, arrival in enumerate(batch, 1):
        if isinstance(arrival.decided, Decision):
            for chosen in arrival.decided.chosen:
                lane = turn_lane(chosen.system_id, arrival.message.conversation)
                yield str(ord_), lane, chosen.system_id, chosen.team_id


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

"""Replies on their way: leases for connectors, receipts, resending, and what the interfaces show.

Called by `journey/reply.py`; rows come from the turn's settlement (`store/work/lanes.py`). Next:
`store/messages/dead_letters.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote
from uuid import UUID

import msgspec
from msgspec import Struct

from switchboard.core.text.storable import storable_or_none
from switchboard.domain.errors import NotFound
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import Item, LaneKey, LeasedRow, OutboxPart, OutboxRow, OutboxState, PartState, ReplyFile
from switchboard.domain.routing import TeamId, Unrouted
from switchboard.ports.channel import Receipt
from switchboard.ports.connector import LateFailure
from switchboard.store.database import Database, Row, each_as, part_as, query, row_as, rows_as, seconds
from switchboard.store.ids import new_uuid7

MAX_SENDS: Final = 8
"""Attempts to send before a reply is abandoned (and can be sent again by an operator)."""
LEASE_S: Final = 60.0
"""Seconds for which a reply is leased again with each part of it that is recorded."""
_COUNTED_STAY: Final = timedelta(days=35)
"""Reports of replies that were not delivered: one may come again."""
_UNKNOWN_STAY: Final = timedelta(days=2)
"""Reports of messages that no reply has sent: a receipt may still come."""


Unsent = Literal["uncertain", "braked", "blocked", "undelivered", "unsent"]
"""What has happened to a reply of which people must be told."""


class OpenReplies(NamedTuple):
    """The number of replies, and the seconds since the first was created."""

    replies: int = 0
    oldest_s: float = 0.0


class WaitingReplies(Struct, frozen=True):
    """How many replies wait for the connector of an endpoint, and since when."""

    channel: str
    endpoint: str
    replies: int
    since: datetime


class UntoldReply(Struct, frozen=True):
    """A reply that was not sent, or may not have been, and the team of its butler; None if no team has it any more.

    `mail`: it is a mail that the butler has written.
    """

    outbox_id: UUID
    why: Unsent
    team_id: TeamId | None
    mail: bool = False


def pull_pool(channel: str, endpoint: str) -> str:
    """The pool in which the replies for one connector wait. No two connectors share one, whatever their names."""
    return f"pull:{quote(channel, safe='')}:{endpoint}"


async def lease(database: Database, pool: str, *, limit: int, lease_s: float, idempotent: bool) -> list[LeasedRow]:
    """The next reply of up to `limit` conversations of this pool, oldest first; each with its lease (epoch)."""
    rows = await database.rows(query("outbox.lease"), pool, limit, seconds(lease_s), idempotent)
    return rows_as(LeasedRow, ({**_with_files(row), "parts": each_as(OutboxPart, row["parts"])} for row in rows))


async def record_part(database: Database, outbox_id: UUID, lease: int, part: OutboxPart) -> PartState | None:
    """Record the state of a part and renew the lease; returns its present state, None if the lease has ended."""
    state: PartState | None = await database.value(
        query("outbox.record_part"),
        *(outbox_id, lease, part.part, part.of, part.state, part.key),
        *(part.platform_message_id, storable_or_none(part.error), seconds(LEASE_S)),
    )
    return state


async def parts_of(database: Database, outbox_id: UUID) -> list[OutboxPart]:
    """The parts of a reply that were sent, refused, or begun."""
    return rows_as(OutboxPart, await database.rows(query("outbox.parts"), outbox_id))


async def load_send(database: Database, item: Item) -> OutboxRow | None:
    """The reply of a claimed send lane."""
    return _reply(await database.row(query("outbox.by_item"), item.lane, item.seq))


async def get_reply(database: Database, outbox_id: UUID) -> OutboxRow:
    """One reply by its id. Raises NotFound."""
    reply = _reply(await database.row(query("outbox.by_id"), outbox_id))
    if reply is None:
        raise NotFound(f"there is no reply {outbox_id}")
    return reply


async def settle_send(
    database: Database, worker: int | None, lane: LaneKey, epoch: int, seq: int, receipt: Receipt
) -> OutboxState | None:
    """Record a receipt; returns the present state of the reply, None if the lease is no longer the caller's."""
    state: OutboxState | None = await database.value(
        query("outbox.settle"),
        worker,
        lane,
        epoch,
        seq,
        receipt.outcome,
        storable_or_none(receipt.platform_message_id),
        storable_or_none(receipt.error),
        seconds(receipt.delay),
        MAX_SENDS,
        receipt.because,
    )
    return state


async def give_back(database: Database, reply: LeasedRow, why: str) -> None:
    """Free a reply that was leased but not handed over, which does not count as an attempt."""
    await database.run(
        query("outbox.settle"),
        *(None, reply.lane, reply.lease, reply.seq, "retryable", None, why, seconds(0), None, None),
    )


async def untold(database: Database, limit: int) -> list[UntoldReply]:
    """Replies of which people must be told, oldest first."""
    return rows_as(UntoldReply, await database.rows(query("outbox.untold"), limit))


async def tell(database: Database, reply: UntoldReply, told: Unrouted) -> bool:
    """Make a dead letter of the reply. False: people already know, or it is being sent again."""
    values = (new_uuid7(), told.category, told.reason, told.team_id, told.handler)
    return bool(await database.value(query("outbox.tell"), reply.outbox_id, reply.why, *values))


async def report_late_failure(database: Database, channel: str, endpoint: str, late: LateFailure) -> OutboxState | None:
    """Keep a report, once, and let the reply fail; returns its state.

    None: no reply has sent that message. If one does later, it fails with its receipt.
    """
    account = channel, endpoint, late.platform_message_id
    about = msgspec.json.encode((*account, late.at.astimezone(UTC)))
    late_failure_id, reason = UUID(bytes=sha256(about).digest()[:16]), storable_or_none(late.reason)
    await database.run(query("outbox.keep_late_failure"), late_failure_id, *account, reason, late.because, late.at)
    state: OutboxState | None = await database.value(query("outbox.fail_late"), *account)
    return state


async def forget_late_failures(
    database: Database, counted: timedelta = _COUNTED_STAY, unknown: timedelta = _UNKNOWN_STAY
) -> int:
    """Forget reports of that age, of replies and of messages that no reply has sent; returns how many."""
    return int(await database.value(query("outbox.forget_late_failures"), counted, unknown))


async def expire_leases(database: Database) -> int:
    """Free replies whose connector disappeared without a receipt."""
    return int(await database.value(query("outbox.expire_leases"), MAX_SENDS))


async def resend(database: Database, outbox_id: UUID) -> bool:
    """Put an uncertain, failed or dead reply at the end of its lane again. False: it is in another state."""
    return bool(await database.value(query("outbox.resend"), outbox_id))


async def replies_of(database: Database, request_id: UUID) -> tuple[str, list[OutboxRow]]:
    """The state of a message, and all its replies at that moment, in the order of their ids."""
    rows = await database.rows(query("outbox.of_message"), request_id)
    return rows[0]["message_state"], [
        part_as(OutboxRow, _with_files(row)) for row in rows if row["outbox_id"] is not None
    ]


async def page_of_replies(
    database: Database, *, state: OutboxState | None = None, before: UUID | None = None, limit: int
) -> list[OutboxRow]:
    """Replies, newest first, of all endpoints; `before` is the last one of the page before."""
    return rows_as(
        OutboxRow, map(_with_files, await database.rows_with_custom_plan(query("outbox.page"), state, before, limit))
    )


async def count_unsent(database: Database) -> dict[str, int]:
    """The number of replies that wait for an operator, by state: uncertain, failed, dead."""
    return {row["state"]: row["replies"] for row in await database.rows(query("outbox.unsent"))}


async def count_open(database: Database) -> dict[str, OpenReplies]:
    """The number of unsent replies, by state."""
    rows = await database.rows(query("outbox.open"))
    return {row["state"]: OpenReplies(row["replies"], row["oldest_s"]) for row in rows}


async def waiting_for_connectors(database: Database, limit: int) -> list[WaitingReplies]:
    """Up to `limit` endpoints with replies for their connectors, those that wait longest first."""
    return rows_as(WaitingReplies, await database.rows(query("outbox.waiting"), limit))


async def list_receipts(database: Database, request_id: UUID) -> list[JsonObject]:
    """Every attempt to send a reply to this message."""
    return [dict(r) for r in await database.rows(query("outbox.receipts"), request_id)]


def _reply(row: Row | None) -> OutboxRow | None:
    return row_as(OutboxRow, row and _with_files(row))


def _with_files(row: Row) -> dict[str, Any]:
    """The row with its files as values."""
    return {**row, "files": each_as(ReplyFile, row["files"])}

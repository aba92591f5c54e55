"""Accounts of connectors: which instance serves one, and how far it has received.

Called by `app/connectors/accounts.py`, and by `journey/reply.py`, which hands replies only to the holder. Next:
`store/messages/outbox.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.core.text.storable import storable_text
from switchboard.core.uuid7 import first_uuid7
from switchboard.domain.errors import AccountHeld, Conflict
from switchboard.domain.json_values import JsonObject
from switchboard.domain.routing import Move
from switchboard.store.database import Database, query, rows_as, seconds
from switchboard.store.messages.outbox import expire_leases, pull_pool

TTL_S: Final = 15.0
"""Seconds for which an account is leased; its holder renews it every third of that."""


_MANY: Final = 100
_MANY_REPLIES: Final = 1000


@dataclass(frozen=True, slots=True)
class Answering:
    """A butler is working on an answer there; `address` is the `event.reply_address` of the message."""

    conversation: str
    address: JsonObject


@dataclass(frozen=True, slots=True)
class RecentReply:
    """A reply: how many seconds ago it was created, and when it was sent, if at all. `failed`: at least once."""

    outbox_id: UUID
    conversation: str
    recipient: str
    made_s: float
    sent_s: float | None
    failed: bool


@dataclass(frozen=True, slots=True)
class AccountLease:
    """The account is the caller's for `ttl_s` seconds.

    `cursor`: where its last holder stopped, null at first. `since`: when it was first leased. `replays`: number of
    events in quarantine to submit again. `moved`: maps the present thread of a conversation on the platform to the
    thread that identifies it. `answering`: up to 100 conversations in which a butler works on an answer; `recent`: up
    to 1000 replies, newest first; both on request. `heard`: how many messages of a group its butlers hear. `accepts`:
    fields of envelopes that servers of earlier releases refuse, and that this one reads.
    """

    lease: int
    ttl_s: float
    cursor: str | None
    since: datetime
    replays: int = 0
    moved: Mapping[str, str] = field(default_factory=dict)
    answering: Sequence[Answering] = ()
    recent: Sequence[RecentReply] = ()
    heard: int = 0
    accepts: Sequence[str] = ("passages", "recordings")


class Holder(Struct, frozen=True):
    """The process that asks for an account.

    `restarted`: the last one with its `instance_id` is dead; its account and replies are free at once. `reconnected`:
    it may have missed an answer; the replies that it had not begun to send are free. `heard`: how many messages of a
    group its butlers hear, as the file of the account says; None: it does not tell.
    """

    instance_id: str
    restarted: bool = False
    reconnected: bool = False
    heard: int | None = None


async def lease_account(database: Database, channel: str, endpoint: str, holder: Holder) -> AccountLease:
    """Lease the account, or renew the lease. Raises AccountHeld if another instance has it."""
    values = (channel, endpoint, holder.instance_id, seconds(TTL_S), holder.restarted, holder.heard)
    if holder.restarted or holder.reconnected:
        async with database.transaction() as one:
            ended = await _end_replies(one, channel, endpoint, holder)
            row = await one.row(query("accounts.lease"), *values)
        if ended:
            await expire_leases(database)
    else:
        row = await database.row(query("accounts.lease"), *values)
    if row is None:
        await require_free(database, channel, endpoint)
        raise AccountHeld("another instance", 1.0)  # until a moment ago
    return AccountLease(
        row["lease"], TTL_S, row["cursor"], row["since"], row["replays"], row["moved"], heard=row["heard"]
    )


async def _end_replies(transaction: Database, channel: str, endpoint: str, holder: Holder) -> int:
    """End the leases of the instance's replies; returns how many.

    The account is locked first: this waits for requests for replies that are being answered, whose leases we then see,
    and an intent of a dead process comes too late.
    """
    if await transaction.value(query("accounts.lock"), channel, endpoint) != holder.instance_id:
        return 0
    rows = await transaction.rows(query("accounts.lock_replies"), pull_pool(channel, endpoint))
    return await transaction.change_rows(query("accounts.end_replies"), [row["key"] for row in rows], holder.restarted)


async def answering(database: Database, channel: str, endpoint: str) -> list[Answering]:
    """The conversations of an account in which a turn runs."""
    return rows_as(Answering, await database.rows(query("accounts.answering"), channel, endpoint, _MANY))


async def recent(database: Database, channel: str, endpoint: str, since: datetime) -> list[RecentReply]:
    """The replies of an account created since then."""
    values = (channel, endpoint, first_uuid7(since), _MANY_REPLIES)
    return rows_as(RecentReply, await database.rows(query("accounts.recent"), *values))


async def require_free(database: Database, channel: str, endpoint: str) -> None:
    """Raises AccountHeld if an instance holds a lease of the account."""
    row = await database.row(query("accounts.holder"), channel, endpoint)
    if row is not None:
        raise AccountHeld(row["instance_id"], row["left_s"])


async def release_account(database: Database, channel: str, endpoint: str, lease: int) -> None:
    """End a lease before its time. Raises Conflict if it has ended already."""
    _require(await database.value(query("accounts.release"), channel, endpoint, lease), lease)


async def save_cursor(database: Database, channel: str, endpoint: str, lease: int, cursor: str) -> None:
    """Keep the cursor for the next holder. Raises Conflict if the lease has ended."""
    kept = storable_text(cursor)
    _require(await database.value(query("accounts.save_cursor"), channel, endpoint, lease, kept), lease)


async def move(database: Database, channel: str, endpoint: str, lease: int, old: str, new: str) -> None:
    """Record that a conversation continues in another thread. Raises Conflict if the lease has ended."""
    threads = (storable_text(old), storable_text(new))
    _require(await database.value(query("accounts.move"), channel, endpoint, lease, *threads), lease)


async def moves(database: Database) -> list[Move]:
    """The conversations of all accounts that have moved."""
    return rows_as(Move, await database.rows(query("accounts.moves")))


async def forget(database: Database, age: timedelta) -> int:
    """Forget the cursors of accounts removed longer than `age` ago, by their last token; returns how many."""
    return int(await database.value(query("accounts.forget"), age))


async def require_lease(transaction: Database, channel: str, endpoint: str, lease: int) -> None:
    """Keep others from taking the account until the transaction ends. Raises Conflict if the lease has ended."""
    _require(await transaction.value(query("accounts.fence"), channel, endpoint, lease), lease)


def _require(held: object, lease: int) -> None:
    if not held:
        raise Conflict(f"the lease {lease} of this account is not (or no longer) held", code="lease_lost")

"""Reply: the answer goes back to its conversation, in order, and its fate is recorded.

There are three ways, depending on where the message came from (`ReplyWays`): an `api` endpoint with a callback gets a
signed POST from a worker (`SendLeg`); a connector fetches with a lease and submits receipts (`ReplyService`); all
others (`cli`, `api` without callback) read the reply over the API, so it counts as sent as soon as it is written.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from functools import partial
from typing import Final, Protocol
from uuid import UUID

import structlog
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.envelope.identity import EMBEDDED
from switchboard.core.notices import NOTICE, account_in
from switchboard.core.originals import Original, whole_envelope
from switchboard.core.policy.retry import backoff
from switchboard.core.text.storable import storable_text
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import Conflict, Unavailable
from switchboard.domain.ledger import Item, LeasedRow, OutboxPart, OutboxRow, OutboxState, PartState, ReplyChoice
from switchboard.domain.routing import Member, SystemId
from switchboard.journey.choices import Choices
from switchboard.lanes.faults import point
from switchboard.lanes.kinds import WORK_POOL, Claim
from switchboard.lanes.notifier import WORK, Notifier, outbox_topic
from switchboard.ports.channel import Channel, Receipt
from switchboard.ports.engine import Fenced, Readers, Turn
from switchboard.ports.facts import Reader
from switchboard.store.connectors.accounts import require_free, require_lease
from switchboard.store.database import Database
from switchboard.store.memory.history import StoredReaders
from switchboard.store.messages import outbox as store
from switchboard.store.messages.inbox import get_raw
from switchboard.store.messages.outbox import pull_pool
from switchboard.store.rules.versions import allow_automatic
from switchboard.store.work.lanes import Work
from switchboard.tasks import wait_at_most

log = structlog.get_logger(__name__)

_LOOK_EVERY_S: Final = 1.0
"""Poll interval of those who wait for replies, where the process does not look for all of them (`lanes/looks.py`)."""


class Callback(Protocol):
    """Posts replies to one `api` endpoint."""

    async def send(self, reply: OutboxRow) -> Receipt:
        """Try once. Never raises: the receipt reports failures."""
        ...


class ReplyWays:
    """Whether and where a reply to a message waits, and who reads it; `callbacks` by `api` endpoint.

    `readers`: shared with the engines, so that each turn looks up its readers once.
    """

    def __init__(
        self,
        database: Database,
        callbacks: Mapping[str, Callback],
        channels: Channels = CHANNELS,
        readers: Readers | None = None,
    ) -> None:
        self._database = database
        self._callbacks = callbacks
        self._channels = channels
        self._readers = readers or StoredReaders(database, channels)

    def pool(self, work: Work) -> str | None:
        """The pool in which the reply waits; None for the mailbox that is read over the API, or by a program."""
        source = work.envelope.source
        if source.channel == NOTICE:
            return pull_pool(*account_in(source.endpoint_identity))
        return pool_of(self._channels[source.channel], source.endpoint_identity, self._callbacks)

    async def withheld(self, work: Work, *, allowed: bool = False) -> str | None:
        """The sign that the message is automatic, so that it gets no reply; None: a person may be waiting.

        Two programs that answer each other never stop, so replying must be `allowed`, or permitted by a rule; in a loop
        it never is.
        """
        source = work.envelope.source
        channel = self._channels[source.channel]
        asks = channel.tells_automatic and not _is_returned(source.endpoint_identity)
        kept = await get_raw(self._database, work.request_id) if asks else None
        envelope = whole_envelope(Original(*kept, work.envelope)) if kept else None
        if envelope is None or (sign := channel.automatic(envelope)) is None:
            return None
        if channel.looped(envelope) is not None:
            return sign
        return None if allowed or await allow_automatic(self._database, work.request_id) else sign

    async def whole(self, turn: Turn) -> Envelope:
        """The message of the turn as it was accepted, with its `payload.raw` if that is still kept."""
        kept = await get_raw(self._database, turn.request_id)
        envelope = whole_envelope(Original(*kept, turn.envelope)) if kept else None
        if envelope is None:
            return turn.envelope
        return replace(turn.envelope, payload=replace(turn.envelope.payload, raw=envelope.payload.raw))

    def replied_to(self, whole: Envelope) -> str | None:
        """The platform's id of the message that a `whole` message replies to; None if it is not a reply."""
        return self._channels[whole.source.channel].replied_to(whole)

    def channel_of(self, whole: Envelope) -> Channel:
        """The channel of a message, which may be one of a plug-in."""
        return self._channels[whole.source.channel]

    async def reader(self, turn: Turn) -> Reader:
        """The readers of the turn and of its reply."""
        return await self._readers.of(turn)


def _is_returned(endpoint: str) -> bool:
    """Whether a program asks for the reply itself, so that nobody sends it."""
    return endpoint.startswith(EMBEDDED)


def pool_of(channel: Channel, endpoint: str, callbacks: Container[str]) -> str | None:
    """Where replies to messages of this endpoint wait, as in `ReplyWays`; `callbacks`: the endpoints that have one."""
    if _is_returned(endpoint):
        return None
    if channel.callbacks and endpoint in callbacks:
        return WORK_POOL.name
    return None if channel.replies == "interface" else pull_pool(channel.name, endpoint)


class SendLeg:
    """Handles `send:` lanes of the workers: posts the reply and settles with the receipt."""

    def __init__(self, database: Database, callbacks: Mapping[str, Callback]) -> None:
        self._database = database
        self._callbacks = callbacks

    async def __call__(self, item: Item, claim: Claim) -> Item | None:
        reply = await store.load_send(self._database, item)
        if reply is None:
            raise Fenced
        if item.attempts > store.MAX_SENDS:  # a callback that kills its worker leaves no receipt to be counted
            receipt = Receipt("retryable", error="every worker that tried to send this died")
        else:
            point("during_send")
            receipt = await self._send(reply)
        if receipt.outcome == "retryable":
            receipt = replace(receipt, delay=max(receipt.delay, backoff(item.attempts, jitter=random.random())))
        state = await store.settle_send(self._database, claim.worker, item.lane, item.epoch, item.seq, receipt)
        if state is None:
            raise Fenced
        if state != "sent":
            # Not the error, which may quote the reply: `outbox show` has it. A pending reply is tried again.
            ids = {"outbox_id": str(reply.outbox_id), "request_id": str(reply.request_id)}
            write = log.info if state == "pending" else log.warning
            write("reply not sent", **ids, attempt=item.attempts, state=state, retry_in_s=round(receipt.delay, 2))
        return None

    async def _send(self, reply: OutboxRow) -> Receipt:
        callback = self._callbacks.get(reply.endpoint)
        if callback is None:
            return Receipt("failed", error=f"no callback is configured for the api endpoint {reply.endpoint!r}")
        try:
            return await callback.send(reply)
        except Exception as error:  # violates its contract; the attempts must still run out
            log.exception("callback raised", endpoint=reply.endpoint)
            return Receipt("retryable", error=storable_text(f"{type(error).__name__}: {error}")[:2000])


class PullRequest(Struct, frozen=True):
    """A connector's request. `idempotent`: its platform accepts idempotency keys, so a send may be repeated.

    `account_lease`: the account's lease, if an instance holds one.
    """

    channel: str
    endpoint: str
    limit: int = 20
    wait_s: float = 0.0
    lease_s: float = 60.0
    idempotent: bool = False
    account_lease: int | None = None


class ReplyService:
    """Serves replies to connectors, and accepts their receipts. `members`: the present butlers."""

    def __init__(
        self, database: Database, notifier: Notifier, members: Callable[[], Mapping[SystemId, Member]] = dict
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._choices = Choices(database, members)

    async def choices(self, replies: Sequence[LeasedRow]) -> Mapping[UUID, Sequence[ReplyChoice]]:
        """The buttons below these replies, by reply; none if they cannot be looked up, as their texts say the same."""
        try:
            return await self._choices.below(replies)
        except Unavailable as error:
            log.warning("replies go without buttons", why=error.message)
            return {}

    async def pull(self, request: PullRequest, over: asyncio.Event | None = None) -> list[LeasedRow]:
        """The next replies of this endpoint, one per conversation, leased; waits up to `wait_s` s for the first.

        `over` ends the wait. Do not cancel instead, as a lease taken at that moment would have no
        owner. Raises Conflict if the account is leased and `account_lease` is not its lease.
        """
        if request.account_lease is None:
            await require_free(self._database, request.channel, request.endpoint)
        pool = pull_pool(request.channel, request.endpoint)
        ring = asyncio.Event()
        deadline = asyncio.get_running_loop().time() + request.wait_s
        with self._notifier.subscribe(outbox_topic(pool), ring.set):
            while over is None or not over.is_set():
                ring.clear()
                leased = await self._lease(request, pool)
                left = deadline - asyncio.get_running_loop().time()
                if leased or left <= 0 or (over is not None and over.is_set()):
                    return leased
                watched = self._notifier.looks.fresh
                pause = left if watched else min(left, _LOOK_EVERY_S)
                await wait_at_most(pause, ring, *(() if over is None else (over,)))
                if watched and self._notifier.looks.fresh and not ring.is_set():
                    return []  # until now nothing has come: we would have heard of it
            return []

    async def _lease(self, request: PullRequest, pool: str) -> list[LeasedRow]:
        take = partial(
            store.lease, pool=pool, limit=request.limit, lease_s=request.lease_s, idempotent=request.idempotent
        )
        if request.account_lease is None:
            return await take(self._database)
        async with self._database.transaction() as one:
            await require_lease(one, request.channel, request.endpoint, request.account_lease)
            return await take(one)

    async def give_back(self, replies: Sequence[LeasedRow]) -> None:
        """Free replies leased for a disconnected client: they were certainly not sent, but would become uncertain."""
        for reply in replies:
            await store.give_back(self._database, reply, "the connector disconnected before the reply was handed over")
            self._notifier.notify(outbox_topic(pull_pool(reply.channel, reply.endpoint)))

    async def receipt(self, outbox_id: UUID, lease: int, receipt: Receipt) -> OutboxState:
        """Record the platform's answer. Raises NotFound; Conflict if the lease has expired or was never held."""
        reply = await store.get_reply(self._database, outbox_id)
        if receipt.outcome in {"retryable", "later"}:
            receipt = replace(receipt, delay=max(receipt.delay, backoff(reply.attempts or 1, jitter=random.random())))
        state = await store.settle_send(self._database, None, reply.lane, lease, reply.seq, receipt)
        if state is None:
            raise _not_held(reply, lease)
        self._notifier.notify(outbox_topic(pull_pool(reply.channel, reply.endpoint)))
        return state

    async def part(self, reply: OutboxRow, lease: int, part: OutboxPart, account_lease: int | None) -> PartState:
        """Record a part of a reply; returns its present state. Raises Conflict if a lease has ended."""
        async with self._database.transaction() as one:
            if part.state == "intent" and account_lease is not None:
                await require_lease(one, reply.channel, reply.endpoint, account_lease)
            elif part.state == "intent":
                await require_free(one, reply.channel, reply.endpoint)
            state = await store.record_part(one, reply.outbox_id, lease, part)
        if state is None:
            raise _not_held(reply, lease)
        return state

    async def resend(self, outbox_id: UUID, record: Callable[[Database], Awaitable[None]] | None = None) -> None:
        """Send a reply again that was not sent, or may not have been; `record` is called in the same transaction.

        Raises NotFound, Conflict.
        """
        reply = await store.get_reply(self._database, outbox_id)
        async with self._database.transaction() as one:
            if not await store.resend(one, outbox_id):
                raise Conflict(
                    f"reply {outbox_id} is {reply.state}; only uncertain, failed or dead ones are sent again"
                )
            if record is not None:
                await record(one)
        self._notifier.notify(WORK)  # a worker posts it, if the endpoint has a callback
        self._notifier.notify(outbox_topic(pull_pool(reply.channel, reply.endpoint)))


def _not_held(reply: OutboxRow, lease: int) -> Conflict:
    return Conflict(
        f"the lease {lease} of reply {reply.outbox_id} is not (or no longer) held; its state is {reply.state}"
    )

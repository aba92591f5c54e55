"""Reply: the answer goes back to the conversation it came from, in order, and what became of it is on record.

Three ways, by where the message came from (`reply_pool`): an `api` endpoint with a callback gets a signed POST from a
worker (`SendLeg`); a connector pulls with a lease and hands in receipts (`ReplyDesk`); everyone else (`cli`, `api`
without callback) reads the reply at the door, so that it is sent as soon as it is written.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol
from urllib.parse import quote
from uuid import UUID

import structlog

from switchboard.core.policy.retry import backoff
from switchboard.domain.errors import Conflict, NotFound
from switchboard.domain.ledger import Item, OutboxRow, OutboxState
from switchboard.lanes.bell import WORK, Bell, outbox_topic
from switchboard.lanes.faults import point
from switchboard.lanes.journal import Fenced
from switchboard.lanes.worker import Hold
from switchboard.store import outbox as store
from switchboard.store.database import Database, storable_text
from switchboard.store.lanes import WORK_POOL, Work
from switchboard.store.outbox import Receipt

log = structlog.get_logger(__name__)

_LOOK_EVERY_S: Final = 1.0
"""Of whoever waits for replies: nothing rings when a retry becomes due, or when the waiting is over."""
DOOR_CHANNELS: Final = frozenset({"cli", "api", "mcp", "dashboard"})
"""Channels whose replies are read at the door."""


def pull_pool(channel: str, endpoint: str) -> str:
    """The pool in which the replies for one connector wait. No two connectors share one, whatever their names."""
    return f"pull:{quote(channel, safe='')}:{endpoint}"


class Callback(Protocol):
    """Posts replies to one `api` endpoint."""

    async def send(self, reply: OutboxRow) -> Receipt:
        """Try once; never raises: what went wrong is in the receipt."""
        ...


def reply_pool(callbacks: Mapping[str, Callback]) -> Callable[[Work], str | None]:
    """Where replies wait, by the message they answer; `callbacks` by `api` endpoint."""

    def choose(work: Work) -> str | None:
        source = work.envelope.source
        return pool_of(source.channel, source.endpoint_identity, callbacks)

    return choose


def pool_of(channel: str, endpoint: str, callbacks: Container[str]) -> str | None:
    """Where replies to messages of this endpoint wait; `callbacks` are the `api` endpoints that have one."""
    if channel == "api" and endpoint in callbacks:
        return WORK_POOL
    return None if channel in DOOR_CHANNELS else pull_pool(channel, endpoint)


class SendLeg:
    """Handles `send:` lanes of the workers: posts the reply and settles with the receipt."""

    def __init__(self, database: Database, callbacks: Mapping[str, Callback]) -> None:
        self._database = database
        self._callbacks = callbacks

    async def __call__(self, item: Item, hold: Hold) -> Item | None:
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
        state = await store.settle_send(self._database, hold.worker, item.lane, item.epoch, item.seq, receipt)
        if state is None:
            raise Fenced
        return None

    async def _send(self, reply: OutboxRow) -> Receipt:
        callback = self._callbacks.get(reply.endpoint)
        if callback is None:
            return Receipt("failed", error=f"no callback is configured for the api endpoint {reply.endpoint!r}")
        try:
            return await callback.send(reply)
        except Exception as error:  # against its promise; the attempts must run out all the same
            log.exception("callback raised", endpoint=reply.endpoint)
            return Receipt("retryable", error=storable_text(f"{type(error).__name__}: {error}")[:2000])


@dataclass(frozen=True, slots=True)
class PullRequest:
    """What a connector asks for. `idempotent`: its platform takes an idempotency key, so a send may be repeated."""

    channel: str
    endpoint: str
    limit: int = 20
    wait_s: float = 0.0
    lease_s: float = 60.0
    idempotent: bool = False


class ReplyDesk:
    """Where connectors fetch replies and hand in receipts."""

    def __init__(self, database: Database, bell: Bell) -> None:
        self._database = database
        self._bell = bell

    async def pull(self, request: PullRequest, over: asyncio.Event | None = None) -> list[OutboxRow]:
        """The next replies of this endpoint, one per conversation, leased; waits up to `wait_s` s for the first.

        `over` ends the waiting within a second. Do not cancel instead: a lease taken at that moment would be nobody's.
        """
        pool = pull_pool(request.channel, request.endpoint)
        ring = asyncio.Event()
        stop = self._bell.subscribe(outbox_topic(pool), ring.set)
        deadline = asyncio.get_running_loop().time() + request.wait_s
        try:
            while over is None or not over.is_set():
                ring.clear()
                leased = await store.lease(
                    self._database,
                    pool,
                    limit=request.limit,
                    lease_s=request.lease_s,
                    idempotent=request.idempotent,
                )
                left = deadline - asyncio.get_running_loop().time()
                if leased or left <= 0 or (over is not None and over.is_set()):
                    return leased
                try:
                    async with asyncio.timeout(min(left, _LOOK_EVERY_S)):
                        await ring.wait()
                except TimeoutError:
                    pass
            return []
        finally:
            stop()

    async def receipt(self, outbox_id: UUID, lease: int, receipt: Receipt) -> OutboxState:
        """Record what the platform said. Raises NotFound, and Conflict when the lease has run out or was never held."""
        reply = await store.get_reply(self._database, outbox_id)
        if reply is None:
            raise NotFound(f"there is no reply {outbox_id}")
        if receipt.outcome == "retryable":
            receipt = replace(receipt, delay=max(receipt.delay, backoff(reply.attempts or 1, jitter=random.random())))
        state = await store.settle_send(self._database, None, reply.lane, lease, reply.seq, receipt)
        if state is None:
            raise Conflict(
                f"the lease {lease} of reply {outbox_id} is not (or no longer) held; its state is {reply.state}"
            )
        self._bell.ring(outbox_topic(pull_pool(reply.channel, reply.endpoint)))
        return state

    async def resend(self, outbox_id: UUID) -> None:
        """Send again what was not, or perhaps not, sent. Raises NotFound, Conflict."""
        reply = await store.get_reply(self._database, outbox_id)
        if reply is None:
            raise NotFound(f"there is no reply {outbox_id}")
        if not await store.resend(self._database, outbox_id):
            raise Conflict(f"reply {outbox_id} is {reply.state}; only uncertain, failed or dead ones are sent again")
        self._bell.ring(WORK)  # a worker posts it, if the endpoint has a callback
        self._bell.ring(outbox_topic(pull_pool(reply.channel, reply.endpoint)))

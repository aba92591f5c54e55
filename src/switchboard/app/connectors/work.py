"""What a connector does besides submitting: fetch replies, submit receipts, send heartbeats.

HTTP and MCP call `ConnectorService` with the caller's `Principal`. In: requests of `journey/reply.py`; out: rows of the
outbox. Next: `journey/reply.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from switchboard.app.access import CONNECTOR, OPERATOR, Access, Action, Principal
from switchboard.app.messages.blobs import OUTBOX, own_reply
from switchboard.domain.errors import Conflict
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import LeasedRow, OutboxPart, OutboxState, PartState, ReplyChoice, ReplyFile
from switchboard.journey.reply import PullRequest, ReplyService
from switchboard.ports.channel import Receipt
from switchboard.ports.connector import LateFailure
from switchboard.store.connectors import heartbeats as connectors
from switchboard.store.connectors.heartbeats import INTERVAL_S, Heartbeat
from switchboard.store.database import Database
from switchboard.store.messages import outbox
from switchboard.store.messages.outbox import LEASE_S
from switchboard.store.people import audit

HEARTBEAT: Final = Action("heartbeat", CONNECTOR)
CONNECTORS: Final = Action("connectors", OPERATOR)

__all__ = [
    "INTERVAL_S",
    "LEASE_S",
    "ConnectorService",
    "Heartbeat",
    "LateFailure",
    "LeasedReply",
    "OutboxPart",
    "PullRequest",
    "Receipt",
]


@dataclass(frozen=True, slots=True)
class LeasedReply:
    """A reply to send now. The receipt must carry its `lease`; `recipient` is who wrote the message.

    `address` is the `event.reply_address` of the message, null if it had none; `parts` are those that were sent before,
    or may have been. If it is `unreachable`, nothing can be sent there, as a receipt has said since the message came:
    report it as failed, `blocked`, without trying. `choices`: buttons to show below it, null if there are none; those
    of a reply to the press of a button replace the ones that were pressed. The bytes of `files` are at
    `/v1/outbox/{outbox_id}/files/{n}`, `n` from 0.
    """

    outbox_id: UUID
    lease: int
    conversation: str
    thread: str | None
    recipient: str
    reply_to: str
    text: str
    files: Sequence[ReplyFile]
    system_id: str
    request_id: UUID
    idempotency_key: UUID
    attempts: int
    address: JsonObject | None
    parts: Sequence[OutboxPart]
    unreachable: bool
    choices: Sequence[ReplyChoice] | None = None


class ConnectorService:
    """Serves connectors; an operator may act for any of them."""

    def __init__(self, database: Database, replies: ReplyService, access: Access) -> None:
        self._database = database
        self._replies = replies
        self._access = access

    async def fetch(self, caller: Principal, request: PullRequest, gone: asyncio.Event) -> list[LeasedReply]:
        """The next replies of the caller's endpoint, leased. `gone` is set when nobody waits for the answer any longer.

        Raises Forbidden.
        """
        await self._access.check_endpoint(caller, OUTBOX, request.channel, request.endpoint)
        replies = await self._replies.pull(request, gone)
        if gone.is_set():
            await self._replies.give_back(replies)
            return []
        choices = await self._replies.choices(replies)
        return [_reply_from_row(reply, choices.get(reply.outbox_id)) for reply in replies]

    async def receive(self, caller: Principal, outbox_id: UUID, lease: int, receipt: Receipt) -> OutboxState:
        """Record the platform's answer. Raises NotFound (also for another endpoint's reply), Conflict."""
        await own_reply(self._database, self._access, caller, outbox_id)
        if lease <= 0:
            raise Conflict(f"the lease {lease} of reply {outbox_id} is not held")
        return await self._replies.receipt(outbox_id, lease, receipt)

    async def report_late_failure(
        self, caller: Principal, channel: str, endpoint: str, late: LateFailure
    ) -> OutboxState | None:
        """A message was not delivered after all; the state of its reply, None if no reply has sent it (yet).

        Raises Forbidden.
        """
        await self._access.check_endpoint(caller, OUTBOX, channel, endpoint)
        return await outbox.report_late_failure(self._database, channel, endpoint, late)

    async def record_part(
        self, caller: Principal, outbox_id: UUID, lease: int, part: OutboxPart, account_lease: int | None
    ) -> PartState:
        """Record a part before and after it is sent; returns its present state.

        Raises NotFound (also for another endpoint's reply), Conflict.
        """
        reply = await own_reply(self._database, self._access, caller, outbox_id)
        return await self._replies.part(reply, lease, part, account_lease)

    async def resend(self, caller: Principal, outbox_id: UUID, reason: str | None = None) -> None:
        """Send a reply again that was not sent, or may not have been. Raises NotFound, Conflict."""
        detail = {"outbox_id": str(outbox_id), "reason": reason}
        await self._replies.resend(outbox_id, lambda one: audit.append(one, caller.name, "reply:resent", detail))

    async def heartbeat(self, caller: Principal, beat: Heartbeat) -> None:
        """Keep the newest heartbeat of the caller's endpoint. Raises Forbidden, TooManyInstances."""
        await self._access.check_endpoint(caller, HEARTBEAT, beat.channel, beat.endpoint)
        await connectors.heartbeat(self._database, beat)


def _reply_from_row(row: LeasedRow, choices: Sequence[ReplyChoice] | None) -> LeasedReply:
    # A reply that is sent twice has the same key: its own id.
    return LeasedReply(
        *(row.outbox_id, row.lease, row.conversation, row.thread, row.recipient, row.reply_to, row.text, row.files),
        *(row.system_id, row.request_id),
        idempotency_key=row.outbox_id,
        attempts=row.attempts,
        address=row.address,
        parts=row.parts,
        unreachable=row.unreachable,
        choices=choices,
    )

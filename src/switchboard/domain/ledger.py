"""What the legs hand to each other of the ledger: a claimed item, a reply on its way, and the states they can be in.

Written by `store/` in the transactions of the four legs; `lanes/` and `journey/` work on it, every door shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NewType
from uuid import UUID

from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import SystemId

LaneKey = NewType("LaneKey", str)
"""`turn:System1/health:telegram/bot/42`, `send:telegram/bot/42`: one durable first-in-first-out mailbox."""

OutboxState = Literal["pending", "sending", "sent", "uncertain", "failed", "dead"]
TurnOutcome = Literal["answered", "declined", "refused", "failed", "lost", "unknown", "fenced", "expired", "routed"]


@dataclass(frozen=True, slots=True)
class Item:
    """A claimed piece of work. (lane, epoch) is the fencing token: whoever holds an older epoch can write nothing."""

    lane: LaneKey
    kind: str
    tier: int
    seq: int
    epoch: int
    attempts: int
    """Which attempt this is, from 1; lost workers count."""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A reply on its way. `lease` is what a receipt must show (0 when nobody holds it)."""

    outbox_id: UUID
    lane: LaneKey
    seq: int
    conversation: Conversation
    request_id: RequestId
    system_id: SystemId
    channel: str
    endpoint: str
    thread: str | None
    recipient: str
    reply_to: str
    text: str
    state: OutboxState
    attempts: int
    lease: int
    platform_message_id: str | None
    error: str | None
    created_at: datetime
    settled_at: datetime | None

"""What became of a message: deliveries, turns, outbox rows, dead letters, and the states they can be in.

The states are written by `store/` in the transactions of the four legs and read by every door.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NewType
from uuid import UUID

from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import DeadLetterCategory, SystemId, TeamId

LaneKey = NewType("LaneKey", str)
"""`turn:System1/health:telegram/bot/42`, `send:telegram/bot/42`: one durable first-in-first-out mailbox."""

LaneState = Literal["idle", "ready", "running", "paused", "dead"]
DeliveryState = Literal["pending", "answered", "declined", "dead", "cancelled"]
"""`pending` covers waiting, running and waiting to be retried: which of them, the lane says."""
OutboxState = Literal["pending", "sending", "sent", "uncertain", "failed", "dead"]
TurnOutcome = Literal["answered", "declined", "refused", "failed", "lost", "unknown", "fenced", "expired"]


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
class Delivery:
    """One message x one butler: the row that says truthfully what became of it."""

    lane: LaneKey
    seq: int
    conversation: Conversation
    request_id: RequestId
    system_id: SystemId
    team_id: TeamId
    segment: int
    state: DeliveryState
    error_class: str | None
    created_at: datetime
    settled_at: datetime | None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a turn wants to send back; where it goes is not the turn's to say."""

    text: str


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


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that nobody could take, whole, and why."""

    dead_letter_id: UUID
    team_id: TeamId
    request_id: RequestId
    conversation: Conversation
    channel: str
    payload: Mapping[str, Any]
    reason: str
    category: DeadLetterCategory
    system_id: SystemId | None
    received_at: datetime
    created_at: datetime
    status: Literal["pending", "handled"]
    handled_by: str | None
    resolution: str | None

"""What the legs pass to each other: a claimed item, a reply on its way, and the states they can be in.

Written by `store/` in the transactions of the four legs; `lanes/` and `journey/` work on it, every interface shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from operator import add
from typing import Final, Literal, NewType
from uuid import UUID

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import SystemId, TeamId

LaneKey = NewType("LaneKey", UUID)
"""One durable first-in-first-out mailbox; a hash of its kind, butler and conversation (`lane_key` in SQL)."""
LaneName = NewType("LaneName", str)
"""The human-readable form: `turn:System1/health:telegram/bot/42`, `send:telegram/bot/42`."""

Flow = int
"""Everything one sender sends to one endpoint; the upper 31 of 63 bits stand for the endpoint (`flow_key` in SQL)."""

FailureClass = Literal["validation", "routing", "target_unavailable", "timeout", "overload", "internal"]
"""The kind of a butler's failure; remote butlers use the same words."""
PartState = Literal["intent", "sent", "refused", "uncertain", "later"]
OutboxState = Literal["pending", "sending", "sent", "uncertain", "failed", "dead"]
TurnOutcome = Literal[
    "answered",
    "declined",
    "refused",
    "failed",
    "lost",
    "unknown",
    "fenced",
    "expired",
    "routed",
    "parked",
    "cancelled",
]


class Item(Struct, frozen=True):
    """A claimed piece of work. (lane, epoch) is the fencing token: a worker with an older epoch cannot write."""

    lane: LaneKey
    kind: str
    tier: int
    seq: int
    epoch: int
    attempts: int
    """Which attempt this is, from 1; attempts whose worker was lost count."""
    flow: Flow = 0
    """The flow whose share of the workers it uses."""


@dataclass(frozen=True, slots=True)
class DeadLetterOrigin:
    """A dead letter: its message, and the team where it died."""

    dead_letter_id: UUID
    request_id: RequestId
    conversation: Conversation
    team_id: TeamId


class StepOnRecord(Struct, frozen=True):
    """A step of a turn, by the lane and its item, without what was written or said; a model may have named its path."""

    lane: UUID
    seq: int
    path: str
    state: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """A message, and its conversation."""

    request_id: RequestId
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class MessageOrigin(MessagePlace):
    """Where a message came from, and who wrote it."""

    channel: str
    endpoint: str
    sender: str
    thread: str | None


@dataclass(frozen=True, slots=True)
class LanePlace:
    """An item of a lane, by the lane's readable name."""

    lane: LaneName
    seq: int


@dataclass(frozen=True, slots=True)
class ReplyFile:
    """A file of a reply. `sha256`, in hexadecimal, identifies its bytes, but gives no access to them."""

    filename: str
    media_type: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Balance:
    """Counts by state; the states add up to `accepted`."""

    accepted: int
    in_flight: int
    answered: int
    declined: int
    dead: int
    cancelled: int
    held: int
    history: int
    """Kept, and sent to nobody."""

    @property
    def difference(self) -> int:
        """Accepted minus accounted for: 0, or the number of missing (negative: duplicated) items."""
        became = self.in_flight + self.answered + self.declined + self.dead + self.cancelled
        return self.accepted - became - self.held - self.history

    def __add__(self, other: Balance) -> Balance:
        return Balance(*map(add, astuple(self), astuple(other)))


EMPTY_BALANCE: Final = Balance(*8 * (0,))

MAX_CHOICES: Final = 8
"""Maximum number of choices below a reply."""


@dataclass(frozen=True, slots=True)
class ReplyChoice:
    """A button below a reply. `value`: what a press of it brings back, at most 48 bytes of ASCII."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A reply on its way. `lease` is 0 unless a connector holds it."""

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
    files: Sequence[ReplyFile]
    state: OutboxState
    attempts: int
    lease: int
    platform_message_id: str | None
    error: str | None
    created_at: datetime
    settled_at: datetime | None


@dataclass(frozen=True, slots=True)
class OutboxPart:
    """A part of a reply, numbered from 0 to `of` - 1. `intent`: it may be on its way; `later`: it is not, and
    must wait; nothing is known about a part without a row.

    `key`: the idempotency key under which the platform knows it. `age_s`: seconds since its state was
    recorded, or since it was first begun.
    """

    part: int
    of: int
    state: PartState
    key: str | None = None
    platform_message_id: str | None = None
    error: str | None = None
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LeasedRow(OutboxRow):
    """A reply that a connector has just leased, with the `event.reply_address` of the message it answers.

    `parts`: its parts that were already sent, or may have been. `unreachable`: since the message arrived, the platform
    has said that nothing can be sent to its conversation.
    """

    address: JsonObject | None
    parts: Sequence[OutboxPart]
    unreachable: bool

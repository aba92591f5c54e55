"""The shapes of bodies of connectors: leases, receipts, posted events, quarantine and heartbeats.

`server/http` reads and answers with them. Next: `app/connectors/`.
"""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from switchboard.app.connectors.drafts import WrittenSoFar
from switchboard.app.connectors.quarantine import Quarantined
from switchboard.app.connectors.work import LeasedReply
from switchboard.domain.ledger import OutboxRow, OutboxState, PartState
from switchboard.domain.shown import Connector, ConnectorState
from switchboard.ports.surroundings import MAX_HEARD
from switchboard.server.contracts.base import Body, Number, ResponseBody, Word, Words


class OutboxNext(Body):
    """Whose replies to lease, how many, how long to wait for the first, and for how long.

    `parts`: nothing is sent before the intent to send that part is recorded. `account_lease` is needed as long as an
    instance has leased the account.
    """

    channel: Word
    endpoint: Word
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    wait_s: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] = 0
    lease_s: Annotated[float, Field(ge=5, le=3600, allow_inf_nan=False)] = 60
    idempotent: bool = False
    parts: bool = False
    account_lease: Number | None = None


class AccountLeaseBody(Body):
    """Which account, and who asks: an `instance_id` that no other running process has.

    `restarted`: the last process with this id is certainly dead. Then the account and the replies that it had leased
    are free at once; a part that it had begun to send is `uncertain`. `reconnected`: this process may have missed
    an answer with replies. Then those that it had leased and not begun to send are free at once.
    `answering`: tell where butlers are working on an answer, so that it can be shown. `recent_s`: tell the replies of
    so many seconds, so that limits outlast a process. `heard`: from now on, butlers are told as many messages of a
    group that were said since their last turn there, and not to them.
    """

    channel: Word
    endpoint: Word
    instance_id: Word
    restarted: bool = False
    reconnected: bool = False
    answering: bool = False
    recent_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    heard: Annotated[int, Field(ge=0, le=MAX_HEARD)] | None = None


class CursorBody(Body):
    """How far the holder of the lease has received."""

    channel: Word
    endpoint: Word
    lease: Number
    cursor: Annotated[str, StringConstraints(max_length=65_536, pattern=r"^[^\x00]*$")]


class AccountBody(Body):
    """Which account."""

    channel: Word
    endpoint: Word


class PostedNext(Body):
    """Which events that a platform posted are wanted: those after the number `after`; waits so long for the first."""

    channel: Word
    endpoint: Word
    after: Number = 0
    wait_s: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] = 0


class ConversationMoveBody(Body):
    """The conversation of the thread `old` continues in the thread `new`."""

    channel: Word
    endpoint: Word
    lease: Number
    old: Word
    new: Word


class QuarantineBody(Body):
    """An event that could not be made into a message; `raw` is base64 of at most 25 MiB."""

    channel: Word
    endpoint: Word
    event_id: Word
    reason: Words
    raw: str


class ReceiptBody(Body):
    """The outcome of one attempt to send a reply.

    `because`, of one that failed: `braked`, no more are sent there because a program seems to answer, or `blocked`,
    nothing can be sent there. People are notified once, as of a dead letter.
    """

    lease: Number
    outcome: Literal["sent", "retryable", "later", "failed", "uncertain"]
    because: Literal["braked", "blocked"] | None = None
    platform_message_id: Word | None = None
    error: Words | None = None
    retry_after_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = 0


class PartBody(Body):
    """The state of a part of a reply: `intent` before it is sent, then `sent` or `refused`; parts count from 0.

    `later`: the platform did not accept it, and is to be asked again; the intent is withdrawn.
    """

    lease: Number
    part: Annotated[int, Field(ge=0, lt=1000)]
    of: Annotated[int, Field(ge=1, le=1000)]
    state: Literal["intent", "sent", "refused", "later"]
    key: Word | None = None
    platform_message_id: Word | None = None
    error: Words | None = None
    account_lease: Number | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> PartBody:
        if self.part >= self.of:
            raise ValueError(f"part counts from 0, so of {self.of} parts the last one is {self.of - 1}")
        return self


class HeartbeatBody(Body):
    """`connector.heartbeat.v1`. `lag_s`: how far the connector is behind the platform, in seconds.

    `failed` needs a person; `standby`: another process serves the account; `stopped` is the last heartbeat of a
    process. `error` is the former name of `failed`.
    """

    schema_version: Literal["connector.heartbeat.v1"] = "connector.heartbeat.v1"
    channel: Word
    endpoint: Word
    instance_id: Word
    version: Word | None = None
    state: ConnectorState | Literal["error"]
    error_message: Words | None = None
    counters: dict[Word, Number] = Field({}, max_length=100)
    lag_s: Annotated[float, Field(ge=0, le=1e9)] | None = None


class LeasedReplies(ResponseBody):
    """At most one reply per conversation, to keep the order."""

    replies: list[LeasedReply]


class OutboxRows(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    replies: list[OutboxRow]
    next_cursor: str | None


class ReplyState(ResponseBody):
    """The state of the reply after the request."""

    state: OutboxState


class PartRecorded(ResponseBody):
    """The state of the part after the request. The reply is leased for `lease_s` more seconds."""

    state: PartState
    lease_s: float


class CursorKept(ResponseBody):
    """The cursor is saved."""

    status: Literal["saved"]


class ConversationMoveKept(ResponseBody):
    """The move is known."""

    status: Literal["saved"]


class PostedRow(ResponseBody):
    """An event as the platform posted it, in base64."""

    posted_id: int
    raw: str


class WrittenTexts(ResponseBody):
    """In no order; none for turns that have written nothing yet."""

    texts: list[WrittenSoFar]


class PostedRows(ResponseBody):
    """In their order."""

    events: list[PostedRow]


class PostedSettled(ResponseBody):
    """They are not returned again."""

    status: Literal["settled"]


class QuarantinePage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    events: list[Quarantined]
    next_cursor: str | None


class Replayed(ResponseBody):
    """The connector is to submit the event again."""

    quarantine_id: UUID
    replay: Literal[True]


class Discarded(ResponseBody):
    """The event is no longer kept."""

    quarantine_id: UUID
    status: Literal["discarded"]


class HeartbeatAnswer(ResponseBody):
    """Send the next heartbeat after `interval_s` seconds."""

    status: Literal["ok"]
    interval_s: int


class ConnectorList(ResponseBody):
    """By channel and endpoint. `next_cursor` is null on the last page."""

    connectors: list[Connector]
    next_cursor: str | None

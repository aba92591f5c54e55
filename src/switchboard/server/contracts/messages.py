"""The shapes of bodies, for reading requests and for the OpenAPI.

Routers use the request models; responses are the frozen values of `app/` and `domain/`, wrapped as described here.
Unknown fields are refused; strings hold no NUL, which PostgreSQL cannot store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import BaseModel, Field, StringConstraints, model_validator

from switchboard.app.access import Role, Token
from switchboard.app.connectors.accounts import AccountLease
from switchboard.app.connectors.drafts import WrittenSoFar
from switchboard.app.connectors.quarantine import Put, Quarantined, QuarantinedDetail
from switchboard.app.connectors.work import LeasedReply
from switchboard.app.messages.blobs import Uploaded
from switchboard.app.messages.explain import Explanation
from switchboard.app.messages.views import AgentView, MessageDetail, MessageReplies, MessageView, TeamView
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import OutboxRow, OutboxState, PartState
from switchboard.domain.routing import SystemId, TeamId
from switchboard.domain.shown import Connector, ConnectorState, Found, ShownDelivery
from switchboard.ports.surroundings import MAX_HEARD

__all__ = [
    "AccountLease",
    "Explanation",
    "MessageDetail",
    "MessageReplies",
    "Put",
    "QuarantinedDetail",
    "TeamView",
    "Uploaded",
]

_WORD: Final = StringConstraints(min_length=1, max_length=512, pattern=r"^[^\x00]+$")
Word = Annotated[str, _WORD]
TeamRef = Annotated[TeamId, _WORD]
SystemRef = Annotated[SystemId, _WORD]
Words = Annotated[str, StringConstraints(max_length=4000, pattern=r"^[^\x00]*$")]
Line = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]*$")
]
Id = Annotated[UUID, Field(strict=False)]
"""JSON has it as a string."""
Cursor = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
Limit = Annotated[int, Field(ge=1, le=500)]
Number = Annotated[int, Field(ge=0, le=2**53)]


class Body(BaseModel, extra="forbid", frozen=True, strict=True):
    """A request body: unknown fields are refused, and nothing is coerced, such as "no" to false."""


class ResponseBody(BaseModel, frozen=True, defer_build=True):
    """The answer of an interface."""

    # Answers are never validated: their schemas are built when the OpenAPI is requested, not at every start.


# Requests -----------------------------------------------------------------------------------------------------------


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
    counters: Annotated[dict[Word, Number], Field(max_length=100)] = {}
    lag_s: Annotated[float, Field(ge=0, le=1e9)] | None = None


class LaneBody(Body):
    """The lane to resume."""

    lane: Annotated[str, StringConstraints(min_length=1, max_length=4000, pattern=r"^[^\x00]+$")]


class NewToken(Body):
    """A token to create: a connector's has `channel` and `endpoint`, an agent's has `system_id`, others neither."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$")]
    role: Role
    channel: Word | None = None
    endpoint: Word | None = None
    system_id: Word | None = None
    expires_in_days: Annotated[int, Field(ge=1, le=36_500)] | None = None

    @model_validator(mode="after")
    def _bound(self) -> NewToken:
        bound = {"channel": self.channel, "endpoint": self.endpoint, "system_id": self.system_id}
        wanted = {"connector": {"channel", "endpoint"}, "agent": {"system_id"}}.get(self.role, set())
        given = {name for name, value in bound.items() if value is not None}
        if given != wanted:
            needs = " and ".join(sorted(wanted)) or "no channel, endpoint or system_id"
            raise ValueError(f"a token with the role {self.role} needs {needs}, and nothing else")
        return self


# Answers ------------------------------------------------------------------------------------------------------------


class ErrorInfo(ResponseBody):
    """`code` is stable, `message` may change.

    `field` is present if a single field is at fault, `details` if more can be said.
    """

    code: str
    message: str
    field: str | None = None
    details: JsonObject | None = None


class ErrorBody(ResponseBody):
    """The form of every error."""

    error: ErrorInfo


class FilesAnswer(ResponseBody):
    """Whether the files of a message are to be uploaded before it is submitted, and how large one may be.

    `reason`: why not. The message was accepted before (`known`), nobody will see it (`history`), or its sender must be
    let in first (`stranger`).
    """

    wanted: bool
    reason: Literal["known", "history", "stranger"] | None
    most_bytes: Annotated[int, Field(ge=0)]


class AcceptedBody(ResponseBody):
    """The message is stored. A duplicate has the id of the first message and no triage fields."""

    request_id: UUID
    status: Literal["accepted"]
    duplicate: bool
    triage_decision: Literal["routed", "dead_letter", "pending", "held", "history"] = Field(default="routed")
    triage_target: str = Field(default="")


class HookAnswer(ResponseBody):
    """The outcome of a webhook.

    `quarantined`: it could not be made into a message, and an operator can replay it; `ignored`: it is not for this
    server; `kept`: the connector of the account turns it into a message.
    """

    status: Literal["accepted", "duplicate", "quarantined", "ignored", "kept"]
    request_id: UUID | None
    quarantine_id: UUID | None


class BatchAnswer(ResponseBody):
    """A result or an error per envelope, in the order of the request."""

    results: list[AcceptedBody | ErrorBody]


class MessagePage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    messages: list[MessageView]
    next_cursor: str | None


class FoundIds(ResponseBody):
    """Messages, dead letters, replies, rules, contacts, and events in quarantine, whose ids begin as asked."""

    matches: list[Found]


class DeliveryPage(ResponseBody):
    """Newest message first. `next_cursor` is null on the last page."""

    deliveries: list[ShownDelivery]
    next_cursor: str | None


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


class TeamList(ResponseBody):
    """By id, with the version of the rules. `next_cursor` is null on the last page."""

    version: int
    teams: list[TeamView]
    next_cursor: str | None


class AgentList(ResponseBody):
    """By id. `next_cursor` is null on the last page."""

    agents: list[AgentView]
    next_cursor: str | None


class LaneView(ResponseBody):
    """A queue that is not idle. `parked` counts items that wait for an event or a time while the others continue."""

    lane: str
    kind: str
    pool: str
    state: str
    waiting: int
    attempts: int
    owner: int | None
    epoch: int
    ready_at: datetime
    lease_until: datetime | None
    parked: int
    """Items that wait for an event or a time while the others continue."""


class LaneList(ResponseBody):
    """The longest waiting first. `next_cursor` is null on the last page."""

    lanes: list[LaneView]
    next_cursor: str | None


class Resumed(ResponseBody):
    """The lane continues with its next item."""

    lane: str
    state: Literal["resumed"]


class Released(ResponseBody):
    """The account is free."""

    status: Literal["released"]


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


@dataclass(frozen=True, slots=True)
class TokenIssued(Token):
    """The only response that contains the secret (`token`)."""

    token: str = field(repr=False)


class TokenList(ResponseBody):
    """Oldest first. `next_cursor` is null on the last page."""

    tokens: list[Token]
    next_cursor: str | None


class Revoked(ResponseBody):
    """The token is no longer valid."""

    name: str
    status: Literal["revoked"]


class BalanceView(ResponseBody):
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


class BooksView(BalanceView):
    """The balance per message and, in `targets`, per message and butler.

    `stale` is true if it is more than five minutes old.
    """

    balanced: bool
    targets: BalanceView
    problems: list[str]
    balanced_at: datetime | None
    stale: bool


class Health(ResponseBody):
    """Whether the database can be reached."""

    status: Literal["ok", "unavailable"]
    version: str

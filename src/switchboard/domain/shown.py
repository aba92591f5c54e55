"""What is on record as every interface shows it: deliveries, attempts, choices of models, dead letters, connectors.

`store/` reads these values, `app/` limits them to what a caller may see, `server/contracts` publishes their fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

from switchboard.domain.json_values import JsonMapping
from switchboard.domain.ledger import DeadLetterOrigin, LaneName, LanePlace, MessagePlace, ReplyFile

MessageState = Literal["in_flight", "answered", "declined", "dead", "cancelled", "held", "history"]
"""What became of a message as a whole; `held`: its sender has not been approved; `history`: it went to nobody."""
ShownState = Literal["pending", "running", "retrying", "waiting", "answered", "declined", "dead", "cancelled"]
"""The state of a delivery; for a pending one, the lane says whether it runs, is retried, or waits for an event."""


@dataclass(frozen=True, slots=True)
class ShownDelivery(MessagePlace):
    """A message on its way to one butler. `attempts` counts all that were started, including those of lost workers."""

    system_id: str
    team_id: str
    segment: int
    lane: LaneName
    seq: int
    state: ShownState
    attempts: int
    error_class: str | None
    created_at: datetime
    settled_at: datetime | None


@dataclass(frozen=True, slots=True)
class Attempt(LanePlace):
    """One run of a butler on a delivery.

    `usage` lists tokens and cost per model, null if no model was asked; `stop_reason` says why the run was stopped
    early.
    """

    epoch: int
    outcome: str
    error_class: str | None
    error: str | None
    engine: str | None
    worker: int | None
    started_at: datetime | None
    finished_at: datetime
    stop_reason: str | None
    """Why it was stopped, or stopped early; None: it was not."""
    usage: Sequence[JsonMapping] | None


@dataclass(frozen=True, slots=True)
class ShownStep(LanePlace):
    """A recorded step of a turn, such as a model call, without its result.

    `tool`: the name of the tool it called; `as_text`: its model wrote this call as the text of its answer.
    """

    path: str
    tool: str | None
    effect: str
    state: str
    epoch: int
    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    started_at: datetime
    ended_at: datetime | None
    as_text: bool


@dataclass(frozen=True, slots=True)
class OfferedTools(LanePlace):
    """The tools that a turn with a model began with, and whether an owner of its butler had written."""

    by_owner: bool
    tools: Sequence[str]


@dataclass(frozen=True, slots=True)
class FactInTurn(LanePlace):
    """A fact that a model was told before a message; author and text are null if it was forgotten meanwhile."""

    fact_id: UUID
    author: str | None
    text: str | None


@dataclass(frozen=True, slots=True)
class RefusedCall(LanePlace):
    """A call of a model, in the request `path`, that failed or was not made.

    `said` is the beginning of what the model was told, null if the call was not made.
    """

    path: str
    tool: str
    said: str | None


@dataclass(frozen=True, slots=True)
class ShownWaiting(LanePlace):
    """Where the message waits, or waited; `before_it` counts earlier messages of its conversation."""

    pinned: str | None
    state: str
    created_at: datetime
    settled_at: datetime | None
    attempts: int
    before_it: int
    ready_at: datetime | None


@dataclass(frozen=True, slots=True)
class ShownTranscription:
    """What a machine heard in attachment `n` (from 0) of a message; `error`: why it is not known, or not yet.

    `host` is where it was sent, `language` the one that was asked for, `spoken` the one that was found. `paid`: it was
    sent for this message, and not for an earlier one with the same bytes. `ended_at` null: it is still to be tried.
    """

    n: int
    state: Literal["open", "done", "failed"]
    tries: int
    text: str
    spoken: str
    error: str | None
    host: str
    model: str
    language: str
    seconds: int
    first_at: datetime
    ended_at: datetime | None
    paid: bool


@dataclass(frozen=True, slots=True)
class ClassificationRow:
    """One attempt to classify, as it is logged. `cost_usd` is None if not reported."""

    request_id: UUID
    conversation: str
    team_id: str
    candidates: tuple[str, ...]
    result: JsonMapping = field(default_factory=dict)
    session_id: UUID | None = None
    model: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    duration_ms: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged(ClassificationRow):
    """One attempt of a model to choose a butler: what it chose, what it cost, and how it was corrected."""

    n: int
    at: datetime
    corrected_to: str | None
    corrected_by: str | None
    corrected_at: datetime | None
    correction: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Logged):
    """A classification with the beginning of the message's `text`.

    It is omitted if the caller may not read the message (`seen`).
    """

    seen: bool
    text: str | None


@dataclass(frozen=True, slots=True)
class ShownDeadLetter(DeadLetterOrigin):
    """A message that could not be delivered.

    Its sender and the beginning of its text are shown as long as they are kept. `handler` is the System4 that was
    notified; `handled_by_system_id` a butler, or the name of an operator's token. `part` is what died here if a model
    split the message, null for all of it.
    """

    channel: str
    category: str
    reason: str
    system_id: str | None
    handler: str | None
    status: str
    handled_by_system_id: str | None
    resolution: str | None
    received_at: datetime
    created_at: datetime
    handled_at: datetime | None
    rerouted_n: int | None
    sender_told_at: datetime | None
    emptied_at: datetime | None
    sender: str | None
    text: str | None
    part: str | None


@dataclass(frozen=True, slots=True)
class Notice:
    """The notification of a System4 about a dead letter, or about several (`dead_letters`)."""

    dead_letter_id: UUID
    lane: str
    seq: int
    team_id: str
    system_id: str
    state: str
    error_class: str | None
    attempts: int
    created_at: datetime
    settled_at: datetime | None
    dead_letters: int


@dataclass(frozen=True, slots=True)
class ReplyView:
    """A reply as shown with its message."""

    outbox_id: UUID
    system_id: str
    text: str
    files: Sequence[ReplyFile]
    state: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class MadeDelivery(LanePlace):
    """A delivery that this request created."""

    system_id: str
    team_id: str


ConnectorState = Literal["starting", "healthy", "degraded", "failed", "standby", "stopped"]


@dataclass(frozen=True, slots=True)
class ConnectorReport:
    """What a process of an account says of itself."""

    channel: str
    endpoint: str
    instance_id: str
    version: str | None
    state: ConnectorState
    error_message: str | None
    counters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Connector(ConnectorReport):
    """The last heartbeat of a process of an account. `liveness` follows from its age.

    `since`: when this state began. `lag_s`: how far it is behind the platform; null if it is not behind or does not
    say. `serving`: it serves the account, and is not merely standing by. `catching_up`: the number of conversations of
    the account in which late messages wait.
    """

    since: datetime
    lag_s: float | None
    first_seen_at: datetime
    last_seen_at: datetime
    liveness: Literal["online", "stale", "offline"]
    serving: bool
    catching_up: int


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Something that an operator did, or a request that was refused.

    `actor` is the name of a token; `detail` never holds a secret.
    """

    audit_id: UUID
    at: datetime
    actor: str
    action: str
    detail: JsonMapping


@dataclass(frozen=True, slots=True)
class SopRules:
    """The rules that an SOP has registered: how many, how many are active, in which teams."""

    source: str
    rules: int
    active: int
    teams: Sequence[str]


@dataclass(frozen=True, slots=True)
class Found:
    """Something whose id begins or ends as given; `request_id`: its message, if it has one.

    An `event` is one in quarantine.
    """

    kind: Literal["message", "dead_letter", "reply", "rule", "contact", "event", "approval", "fact", "summary", "run"]
    id: UUID
    request_id: UUID | None


@dataclass(frozen=True, slots=True)
class ShownFact:
    """A fact that a butler has learned.

    `space` says who may see it: `private:<author>`, `group:<conversation>` or `shared`; `said_by` what its author is to
    the subject; `said_at` when the first message said so. What is `undone_at` some time counts as never said.
    """

    fact_id: UUID
    system_id: str
    author: str
    subject: str
    space: str
    text: str
    created_at: datetime
    predicate: str
    denied: bool
    said_by: str
    said_at: datetime
    valid_from: datetime | None
    valid_to: datetime | None
    run: UUID | None
    undone_at: datetime | None


@dataclass(frozen=True, slots=True)
class ShownStanding:
    """What became of a fact: the one that took its place, the one that it says again, and those that contradict it.

    `replaces`: those whose place it took.
    """

    superseded_by: UUID | None
    confirms: UUID | None
    contradicts: Sequence[UUID]
    replaces: Sequence[UUID] = ()


@dataclass(frozen=True, slots=True)
class ShownRun:
    """What a model was asked for the facts of one space. `outcome`: null as long as it has not answered.

    `person`: in whose private messages it looked; empty: in what was said in front of others. `tokens`: an estimate
    until it has answered. `facts`: how many were new. What is `undone_at` some time counts as never said.
    """

    run: UUID
    system_id: str
    conversation: str
    person: str
    first_position: int
    last_position: int
    episodes: int
    model: str
    tokens: int
    cost_usd: float | None
    outcome: Literal["kept", "rejected", "failed", "stale"] | None
    reason: str
    facts: int
    started_at: datetime
    ended_at: datetime | None
    undone_at: datetime | None


@dataclass(frozen=True, slots=True)
class ShownEntity:
    """Whom or what facts of a butler are about. `also`: other names that an owner has given; `why` it was found."""

    system_id: str
    name: str
    also: Sequence[str]
    facts: int
    why: str


@dataclass(frozen=True, slots=True)
class FactSource:
    """A person's own words that a fact was taken from; null where they have been erased."""

    position: int
    request_id: UUID | None
    text: str | None
    created_at: datetime | None


ContactState = Literal["stranger", "approved", "denied"]


@dataclass(frozen=True, slots=True)
class ShownContact:
    """Someone who wrote to a restricted endpoint, or was approved: a person, a group, or `unverified`.

    `unverified`: senders of unauthenticated mail; `late`: a conversation in which messages came too late to be
    answered. `held` messages wait; `refused` ones were not stored. `owner_of`: the butlers that they own by a code.
    """

    contact_id: UUID
    channel: str
    endpoint: str
    scope: Literal["person", "group", "unverified", "late"]
    identity: str
    display_name: str | None
    state: ContactState
    held: int
    refused: int
    first_seen_at: datetime
    last_seen_at: datetime
    decided_at: datetime | None
    decided_by: str | None
    owner_of: Sequence[str] = ()


ApprovalState = Literal["pending", "approved", "refused", "answered", "expired", "ended"]
"""`expired`: nobody decided in time; `ended`: the turn went on without a decision, as after `/stop`."""


@dataclass(frozen=True, slots=True)
class ShownApproval:
    """What a butler asks people, and what they have decided.

    `call`: whether `tool` may be called with `arguments`; `why` says why people must decide. `question`: `arguments`
    holds the question and its `options`. `message` is the beginning of the message that is being answered. `digest`
    binds a decision to this call. `answer` is the answer to a question, or what was said with a refusal. `effect` is
    that of repeating the call, `risk` the tool's, both with these arguments and as of when it was asked; null of
    questions, and of what releases before 0.2 have asked.
    """

    approval_id: UUID
    kind: Literal["call", "question"]
    state: ApprovalState
    system_id: str
    tool: str
    arguments: JsonMapping
    why: str
    digest: str
    request_id: UUID
    channel: str
    endpoint: str
    sender: str
    message: str
    asked_at: datetime
    deadline_at: datetime
    decided_at: datetime | None
    decided_by: str | None
    answer: str | None
    effect: str | None = None
    risk: str | None = None


PlanState = Literal["running", "waiting", "stopping", "answered", "declined", "dead", "cancelled"]
"""`waiting` for people; `stopping`: somebody has asked for its end; the last four are those of its delivery."""


@dataclass(frozen=True, slots=True)
class ShownPlanStep:
    """A step of a plan, without its result; `size` is the result's length in characters, `why` says why it is not done.

    `state`: `pending`, `waiting` (for an approval), `started`, `done`, `failed`, `skipped` or `cancelled`. `seconds`:
    how long it worked, without the seconds that it `waited` for people or for a model that was unavailable.
    """

    id: str
    action: str
    target: str
    args: JsonMapping
    needs: Sequence[str]
    state: str
    why: str
    size: int
    tokens: int
    started_at: datetime | None
    ended_at: datetime | None
    seconds: float | None = None
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """What a butler has decided to do with a message, and how far it has come.

    `source`: where the decision comes from: the router's answer (`exact`, `stripped`, `repaired`), or a `template`.
    `ended`: how many of its steps have ended; `done`: how many of those are done. `tokens` of the `token_budget` were
    generated, or may have been. `steps` is empty in lists, which have no `seconds`: as of a step.
    """

    request_id: UUID
    system_id: str
    state: PlanState
    message: str
    action: str
    source: str
    target: str
    ended: int
    done: int
    tokens: int
    token_budget: int | None
    began_at: datetime
    ended_at: datetime | None
    deadline_at: datetime | None = None
    notes: Sequence[str] = ()
    steps: Sequence[ShownPlanStep] = ()
    seconds: float | None = None
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class ShownSummary:
    """The text that replaces the oldest part of a conversation. `restorable`: how many entries can be restored."""

    summary_id: UUID
    system_id: str
    conversation: str
    first_position: int
    last_position: int
    text: str
    created_at: datetime
    restored_at: datetime | None
    restorable: int


McpToolState = Literal["accepted", "new", "changed", "gone"]
"""`new` and `changed` tools wait for an operator to accept them; `gone`: the server does not list it at the moment."""


@dataclass(frozen=True, slots=True)
class ShownMcpServer:
    """An MCP server as a worker last found it: `at` what time, `why` it could not be used, how many `tools` could be.

    `at` null: no worker has started it yet. `waiting` counts the tools that wait for an operator.
    """

    server: str
    at: datetime | None = None
    why: str | None = None
    tools: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class ShownMcpTool:
    """A tool of an MCP server: as it was `accepted` (null: never), and as it was last `seen` (null: it is gone).

    `name` is what models call it; `left_out` says why no model is offered it although it is accepted. `accepted_by`
    null: it was accepted because the server listed it when it was first used.
    """

    tool: str
    state: McpToolState
    name: str
    effect: str
    risk: str
    left_out: str | None
    accepted: JsonMapping | None
    accepted_at: datetime | None
    accepted_by: str | None
    seen: JsonMapping | None
    seen_mark: str | None
    seen_at: datetime

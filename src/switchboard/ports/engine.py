"""The port of engines: what an engine is given, what it may use, what it returns and how it fails.

An engine is found by an entry point of the group `switchboard.engines`: a function from `EngineContext` to `Engine`,
called once per worker. `journey/turn.py` runs it, `lanes/journal.py` implements the journal. Next:
`testing/engines.py`, the rules that every engine keeps.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, Protocol, runtime_checkable
from uuid import UUID

import msgspec
from msgspec import Struct

from switchboard.domain.envelope import Attachment, Envelope
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.ledger import FailureClass
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import Member, SystemId, TeamId
from switchboard.ports import effects
from switchboard.ports.facts import Fact, Reader
from switchboard.ports.history import Entry
from switchboard.ports.memos import Memos
from switchboard.ports.models import Models
from switchboard.ports.sandbox import SandboxRules
from switchboard.ports.tools import Keeps, Toolset

StopReason = Literal[
    "end",
    "length",
    "refused",
    "aborted",
    "error",
    "limit:requests",
    "limit:tool_calls",
    "limit:tokens",
    "limit:money",
    "limit:time",
    "limit:repeats",
]
"""Why a turn ended; everything but `end` is about a model that was stopped, or stopped early."""

Effect = effects.Effect

Act = Callable[[UUID], Awaitable[Any]]
"""Does a step, or asks what became of it; called with the step's idempotency key."""

StepState = Literal["started", "done", "failed", "skipped", "cancelled"]

NOT_DONE: Final = object()
"""What `ask` returns when the step has had no effect."""


# What goes in -------------------------------------------------------------------------------------------------------


class Delta(Struct, frozen=True):
    """A piece of a reply while it is being written: the text so far is `text_so_far[:offset] + text`.

    `step`: the number of the request to a model that writes it, from 1. `tool`: the name of a tool that is called now;
    the text stays as it is.
    """

    offset: int
    text: str
    step: int = 0
    tool: str = ""


class Stop(Protocol):
    """Whether a person has asked for the end of a turn."""

    def is_set(self) -> bool: ...

    async def wait(self) -> object:
        """Returns when it is asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """One delivery to one butler. The texts in `envelope` and `dead_letter` were written by strangers: data only."""

    member: Member
    """The butler, with its options from the team file."""
    team_id: TeamId
    request_id: RequestId
    conversation: Conversation
    envelope: Envelope
    """As it arrived, without `payload.raw`; if a model split the message, the text is the part for this butler."""
    received_at: datetime
    attempt: int = 1
    """Which attempt this is, from 1. An attempt whose worker was lost counts."""
    segment: int = 0
    """Which part of a split message this is, from 1; 0: it is the whole message."""
    whole_text: str | None = None
    """The text of the whole message where this butler gets a part of it."""
    dead_letter: JsonMapping | None = None
    """Set for a notice, whose reply is not sent. See `delivery.v1` in docs/butlers.md."""
    user_context: str = ""
    """What the caller knows of the person; for this turn only."""
    on_delta: Callable[[Delta], None] | None = field(default=None, compare=False, repr=False)
    """Where to send the reply while it is being written, from an engine that is `Stoppable`; None: nobody listens."""
    stop: Stop | None = field(default=None, compare=False, repr=False)
    """For an engine that can stop in the middle, see `Stoppable`; else None."""
    below: Callable[[], Mapping[str, str]] = field(default=dict, compare=False, repr=False)
    """Names the teams and butlers below its own team, to which it may hand the message on, and what is said of each."""
    keeps: Keeps | None = field(default=None, compare=False, repr=False)
    """For what lives in this process from one turn of the conversation to the next; None: there is no other process."""

    @property
    def text(self) -> str:
        """What the butler is to answer."""
        return self.envelope.payload.normalized_text


# What may be used ---------------------------------------------------------------------------------------------------


class Costed(Struct, frozen=True):
    """What `act` may return instead of its bare result, so that the journal knows what it cost (micro-dollars)."""

    result: Any
    tokens_in: int = 0
    tokens_out: int = 0
    cost: int | None = None


class Ask(Struct, frozen=True):
    """What people decide while a step waits: whether a tool may be called, or the answer to a question.

    The decision is `{"decision": "approved" | "refused" | "answered", "by", "text", "digest"}`.
    """

    kind: Literal["call", "question"]
    tool: str
    arguments: JsonMapping
    why: str
    digest: str
    """What is approved: the decision has it too, so that it can be compared before the call."""
    readers: str
    """Who sees it in chat: `directory_of` in `core/readers.py`."""


class Pending(Struct, frozen=True):
    """What an earlier message of the conversation waits for."""

    approval_id: UUID
    kind: Literal["call", "question"]
    tool: str
    arguments: JsonMapping
    message: str
    """The beginning of the text of that message."""


class Decided(Struct, frozen=True):
    """The result of waiting: the given value, or that the time was over."""

    value: Any
    expired: bool = False


class OnRecord(Struct, frozen=True):
    """What the journal has of a step. `result` of one that has ended; of one that failed it is why.

    `tokens`: that its models have generated, or may have, in all attempts.
    """

    state: StepState
    result: Any = None
    tokens: int = 0


class Journal(Protocol):
    """The steps of this turn: what is done is never done again, what may have happened is never repeated blindly."""

    def check(self) -> None:
        """Raise `Fenced` if another worker may have taken over; for the moment just before something takes effect."""
        ...

    async def flush(self) -> None:
        """Wait until every step that has ended is on record. Raises `Fenced`."""
        ...

    async def step(
        self, path: str, act: Act, *, effect: Effect = "idempotent", ask: Act | None = None, reserve: int = 0
    ) -> Any:
        """Run `act(idempotency_key)` once and return its JSON value; after an interruption, return what is recorded.

        A step is known by its path, which is asked for once in an attempt; its key is the same in every attempt. If its
        end is not on record: idempotent steps run again; for queryable ones `ask(key)` returns the result, or
        `NOT_DONE`; effectful ones raise `OutcomeUnknown`. Raises `Fenced` if another worker has taken over.

        `reserve`: the tokens that it may generate. They are on record before it begins, and stay spent if its end never
        is; what `Costed` says takes their place.
        """
        ...

    async def end(self, path: str, state: Literal["failed", "skipped", "cancelled"], why: Any = None) -> None:
        """Record that a step is not run, or no longer; one that has ended stays as it is."""
        ...

    def on_record(self) -> Mapping[str, OnRecord]:
        """The steps of this turn so far, by path; those of this attempt that have just ended are among them."""
        ...

    async def expect(self, path: str, *, within: float | None = None, ask: Ask | None = None) -> UUID:
        """Register that a step waits for an event, at most `within` seconds; returns the key that decides it.

        `ask`: people decide it, and are asked this. The person whose message it is hears of it when the turn waits.
        """
        ...

    async def wait(self, path: str, *, within: float | None = None) -> Decided:
        """The decision of the event that a step waits for. Raises `Parked` while there is none."""
        ...


class RemoteAgents(Protocol):
    """What is known at run time of butlers on other machines."""

    async def endpoint_of(self, member: Member) -> str | None:
        """The URL to call at the moment, None if it is not known. Raises `Unavailable`."""
        ...

    async def seen(self, system_id: SystemId) -> None:
        """The butler has just answered."""
        ...


class History(Protocol):
    """What was said before. What a turn may read is found out from its message, whatever the engine asks."""

    async def load(self, turn: Turn) -> Sequence[Entry]:
        """At most 40 entries of this butler and conversation, the oldest first, the latest summary before them.

        Where they start moves by 20, so that prompts keep their beginning. What was said in private is there for the
        same person in private only, and for a message whose sender is not sure there is nothing. Raises `Unavailable`.
        """
        ...


class Facts(Protocol):
    """What was learned, by this butler. What a turn may read is found out from its message."""

    async def visible(self, turn: Turn, limit: int = 100) -> Sequence[Fact]:
        """The latest facts that may be told where the turn answers, the newest first. Raises `Unavailable`."""
        ...

    async def share(self, turn: Turn, fact_id: UUID) -> bool:
        """Share a fact with all who talk to the butler. False: the caller is not its author, or it does not exist."""
        ...


class Files(Protocol):
    """The bytes of what came with messages, and of what goes with answers."""

    def read(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The bytes, piece by piece; none for what is not stored. Raises `Unavailable`."""
        ...

    async def link(self, attachment: Attachment) -> str | None:
        """A URL that gives the bytes to anyone who has it, for an hour; None: not stored. Raises `Unavailable`."""
        ...

    async def keep(
        self, turn: Turn, filename: str, pieces: AsyncIterable[bytes], *, media_type: str = "", size_bytes: int = 0
    ) -> Attachment:
        """Store a file of this turn, to be one of the `attachments` of its answer. The same bytes twice are one file.

        `size_bytes`: if it is known before. One that is too large, or for which there is no room, comes back with
        `unavailable`, and the reply says so in words. Raises `Unavailable`, and what `pieces` raises.
        """
        ...

    async def upload_link(self, turn: Turn) -> str:
        """A URL to which files for the answer of this turn can be posted for an hour. Raises `Unavailable`."""
        ...


class Approvals(Protocol):
    """What people are asked in a conversation of a butler. What a turn may see is found out from its message."""

    async def pending(self, turn: Turn, readers: str, limit: int) -> Sequence[Pending]:
        """The oldest `limit` things that earlier messages wait for and `readers` see in chat. Raises `Unavailable`."""
        ...

    async def count(self, turn: Turn) -> int:
        """How much is waited for, no matter who may see it. Raises `Unavailable`."""
        ...


class Readers(Protocol):
    """Who reads what a turn answers."""

    async def of(self, turn: Turn) -> Reader:
        """As its message says. Raises `Unavailable`."""
        ...


class EngineContext(Struct, frozen=True):
    """What an engine may use of the installation besides its turn; passed to its entry point."""

    memos: Memos
    remote_agents: RemoteAgents
    program_user: str | None = None
    """The user that runs the programs of engines, unless the member names one; None: the worker's."""
    models: Models | None = None
    """The models of the settings; None: there are none."""
    workspaces: Path | None = None
    """Where butlers have the directories of their files, unless their options name one."""
    readers: Readers | None = None
    """Who reads; None: as far as the message alone shows."""
    history: History | None = None
    """What was said before; None: nothing is kept."""
    facts: Facts | None = None
    """What was learned; None: nothing is."""
    files: Files | None = None
    """What came with messages, and goes with answers; None: nothing is stored."""
    sandbox: SandboxRules = msgspec.field(default_factory=SandboxRules)
    """What the commands of a turn may take."""
    toolset: Toolset | None = None
    """Tools beside those of the engine; None: there are none."""
    approvals: Approvals | None = None
    """Questions and approvals of people; None: nobody can be asked."""
    closing: AsyncExitStack | None = None
    """Closed when no turn comes any more, with what engines keep running; None: that ends with this process."""
    roles: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The models that play `main`, `router` and `specialist` in plans, as far as the settings say."""


# What comes out -----------------------------------------------------------------------------------------------------


class ModelUsage(Struct, frozen=True):
    """What one model was used for in a turn. `input_tokens` include those read from its cache and written into it."""

    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: float | None = None


class _Result(Struct, frozen=True, kw_only=True):
    stop_reason: StopReason = "end"
    usage: tuple[ModelUsage, ...] = ()
    warning: str = ""
    """What the operator should know of a turn that went well otherwise; `explain` shows it."""
    entries: tuple[Entry, ...] = ()
    """What the turn adds to the history, saved together with its reply; the positions are given then."""


class Answer(_Result, frozen=True):
    """The butler replies."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    """What `Files.keep` has returned, and attachments of the message; of any other the reply gives the name alone."""


class NoReply(_Result, frozen=True):
    """The butler has handled the message, and no reply is needed."""

    reason: str = ""


class Refusal(_Result, frozen=True):
    """The butler declines; the message becomes a dead letter."""

    reason: str


class HandedOn(_Result, frozen=True):
    """One of `Turn.below` is to answer: the message goes there, by a further decision. `reason`: why."""

    to: str
    reason: str = ""


TurnResult = Answer | NoReply | Refusal | HandedOn


class EngineFailure(Exception):
    """The engine could not complete its turn. If `retryable`, it is retried, otherwise the delivery ends at once.

    `tokens`: what models generated anyway; if `act` raises it, that is what stays spent of those reserved.
    """

    tokens: int = 0

    def __init__(self, message: str, *, error_class: FailureClass = "internal", retryable: bool = True) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retryable = retryable


class Outage(EngineFailure):
    """What the engine depends on has been unavailable since `since`, for all messages: not an attempt.

    The turn is tried again until that is six hours ago; `retry_after` in seconds, if the other side asks for a pause.
    """

    def __init__(
        self,
        message: str,
        *,
        since: datetime,
        retry_after: float | None = None,
        error_class: FailureClass = "target_unavailable",
    ) -> None:
        super().__init__(message, error_class=error_class)
        self.since = since
        self.retry_after = retry_after


class NoEffect(EngineFailure):
    """It failed, and certainly nothing has happened: it may be tried again even where repeating is not allowed."""


class Fenced(Exception):
    """Another worker has taken over, and this attempt is invalid. Stop at once; write nothing."""


class Parked(Exception):
    """The turn waits for an event. Do not catch it: the turn is run again when the event is decided."""

    def __init__(self, keys: Sequence[UUID]) -> None:
        super().__init__(f"waits for {', '.join(map(str, keys))}")
        self.keys = tuple(keys)
        """The keys of all events that this attempt knew as undecided."""


class StepFailed(Exception):
    """A step ended without a result. If `act` raises it, that is recorded, and every replay raises it again."""

    def __init__(self, result: Any) -> None:
        super().__init__(str(result))
        self.result = result
        """JSON: why; or that with what it cost, as `Costed`."""


class OutcomeUnknown(Exception):
    """An effectful step was begun and its end was never recorded; only a person or the other side can know."""


class Engine(Protocol):
    """What answers for a butler. Whatever has an effect, or costs, goes through `journal.step`."""

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn. Raises `EngineFailure`; `Fenced` and `OutcomeUnknown` of the journal pass through.

        Cancelled, it leaves nothing running.
        """
        ...


@runtime_checkable
class ChecksOptions(Protocol):
    """An engine that can tell before the first message whether a member's options are right."""

    def check(self, member: Member) -> None:
        """Raises `EngineFailure` that names each wrong option."""
        ...


@runtime_checkable
class ChecksMachine(Protocol):
    """An engine that needs something of the machine it runs on, such as a program."""

    def lacking(self, member: Member) -> str | None:
        """What this machine lacks for a member whose options are right; None: nothing."""
        ...


@runtime_checkable
class SetsPatience(Protocol):
    """An engine whose turns may take longer than `turn.timeout` of the settings."""

    def patience(self, member: Member) -> float:
        """Seconds after which an attempt is broken off. Raises `EngineFailure` for wrong options."""
        ...


@runtime_checkable
class Stoppable(Protocol):
    """An engine whose turns end within a second of `Turn.stop`, with what they have, and `aborted` as the reason."""

    @property
    def stoppable(self) -> bool: ...


OpenEngine = Callable[[EngineContext], Engine]
"""The entry point."""

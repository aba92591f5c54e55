"""The port of engines: what an engine gets, what it may use, what it returns and how it fails.

An engine is found by an entry point of the group `switchboard.engines`: a function from `EngineContext` to `Engine`,
called once per worker. `journey/turn.py` runs it, `lanes/journal.py` implements the journal. Next:
`testing/engines.py`, the rules that every engine keeps.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
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
from switchboard.ports.facts import EntityAlias, Fact, OwnWords, Reader
from switchboard.ports.history import Entry, SaidEntry, WantedHistory
from switchboard.ports.memos import Memos
from switchboard.ports.models import Models
from switchboard.ports.sandbox import SandboxRules
from switchboard.ports.search import Search
from switchboard.ports.surroundings import Surrounding
from switchboard.ports.tools import Keeps, Risk, Toolset

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
"""Executes a step, or asks what became of it; called with the step's idempotency key."""

StepState = Literal["started", "done", "failed", "skipped", "cancelled"]

NOT_DONE: Final = object()
"""What `ask` returns when the step has had no effect."""


# What goes in -------------------------------------------------------------------------------------------------------


class TurnPhase(Struct, frozen=True):
    """What a turn is doing that takes a while, and for about how many seconds. `reading`: a slow model reads."""

    phase: Literal["reading"]
    seconds: int


class Delta(Struct, frozen=True):
    """A piece of a reply while it is being written: the text so far is `text_so_far[:offset] + text`.

    `step`: the number of the model request that writes it, from 1. `tool`: the name of a tool whose call begins, with
    its `arguments` as JSON, shortened, or ends: `succeeded` says how. `status`: what is being done otherwise. With
    either, the text stays the same.
    """

    offset: int
    text: str
    step: int = 0
    tool: str = ""
    status: TurnPhase | None = None
    arguments: str = ""
    succeeded: bool | None = None


class Stop(Protocol):
    """Whether a person has asked the turn to end."""

    def is_set(self) -> bool: ...

    async def wait(self) -> object:
        """Return once somebody has asked."""
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
    """The text of the whole message if this butler gets only a part of it."""
    dead_letter: JsonMapping | None = None
    """Set for a notice, whose reply is not sent. See `delivery.v1` in docs/butlers.md."""
    user_context: str = ""
    """What the caller knows about the person; for this turn only."""
    on_delta: Callable[[Delta], None] | None = field(default=None, compare=False, repr=False)
    """Called by a `Stoppable` engine with the reply as it is written; None: nobody listens."""
    stop: Stop | None = field(default=None, compare=False, repr=False)
    """For an engine that can stop in the middle, see `Stoppable`; otherwise None."""
    drain: Stop | None = field(default=None, compare=False, repr=False)
    """Set when the worker is about to end: what only waits should not begin anything else; None: nobody says so."""
    below: Callable[[], Mapping[str, str]] = field(default=dict, compare=False, repr=False)
    """The teams and butlers below its own team to which it may hand the message on, each with its description."""
    keeps: Keeps | None = field(default=None, compare=False, repr=False)
    """For anything that stays in this process between turns of the conversation; None: there is no other process."""
    place: int = 0
    """The place of the delivery in its lane, the same in every attempt; 0: unknown. Who gets it again has another."""

    @property
    def text(self) -> str:
        """What the butler is to answer."""
        return self.envelope.payload.normalized_text


# What may be used ---------------------------------------------------------------------------------------------------


class Costed(Struct, frozen=True):
    """What `act` may return instead of its bare result, so that the journal knows the cost (micro-dollars)."""

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
    """What is approved: the decision contains it too, so that the two can be compared before the call."""
    readers: str
    """Who sees it in chat: `directory_of` in `core/people/readers.py`."""
    effect: Effect | None = None
    """Those of the call with these arguments; None of a question."""
    risk: Risk | None = None


class Pending(Struct, frozen=True):
    """Something that an earlier message of the conversation waits for."""

    approval_id: UUID
    kind: Literal["call", "question"]
    tool: str
    arguments: JsonMapping
    message: str
    """The beginning of the text of that message."""


class Decided(Struct, frozen=True):
    """The result of waiting: the decided value, or that time ran out."""

    value: Any
    expired: bool = False


class OnRecord(Struct, frozen=True):
    """What the journal knows about a step. `result` of a step that has ended; if it failed, the reason.

    `tokens`: what its models have generated, or may have, in all attempts.
    """

    state: StepState
    result: Any = None
    tokens: int = 0


class Journal(Protocol):
    """The steps of this turn: what is done is never repeated, and what may have been done is never repeated blindly."""

    def check(self) -> None:
        """Raise `Fenced` if another worker may have taken over; to be called just before something takes effect."""
        ...

    async def flush(self) -> None:
        """Wait until every step that has ended is on record. Raises `Fenced`."""
        ...

    async def step(
        self, path: str, act: Act, *, effect: Effect = "idempotent", ask: Act | None = None, reserve: int = 0
    ) -> Any:
        """Run `act(idempotency_key)` once and return its JSON value; after an interruption, return what is recorded.

        A step is identified by its path, which is used once per attempt; its key is the same in every attempt. If a
        step was interrupted: an idempotent one runs again; for a queryable one `ask(key)` returns the result, or
        `NOT_DONE`; an effectful one raises `OutcomeUnknown`. Raises `Fenced` if another worker has taken over.

        `reserve`: the tokens that the step may generate. They are recorded before it begins, and stay spent if its end
        is never recorded; otherwise the amount in `Costed` replaces them.
        """
        ...

    async def end(self, path: str, state: Literal["failed", "skipped", "cancelled"], why: Any = None) -> None:
        """Record that a step is not run, or no longer running; one that has ended stays as it is."""
        ...

    def key_of(self, path: str) -> UUID:
        """The idempotency key that `step` hands to `act`, for a step of this path."""
        ...

    def on_record(self) -> Mapping[str, OnRecord]:
        """The steps of this turn so far, by path, including those of this attempt that have just ended."""
        ...

    async def expect(self, path: str, *, within: float | None = None, ask: Ask | None = None) -> UUID:
        """Register that a step waits for an event, at most `within` seconds; returns the key that decides it.

        `ask`: what people are asked if they decide it. The sender of the message is told of it when the turn waits.
        """
        ...

    async def wait(self, path: str, *, within: float | None = None) -> Decided:
        """The decision of the event that a step waits for. Raises `Parked` while there is none."""
        ...


class RemoteAgents(Protocol):
    """What is known at run time about butlers on other machines."""

    async def endpoint_of(self, member: Member) -> str | None:
        """The URL to call at present, None if it is unknown. Raises `Unavailable`."""
        ...

    async def seen(self, system_id: SystemId) -> None:
        """The butler has just answered."""
        ...


class History(Protocol):
    """What was said before. The turn's message determines what may be read, whatever the engine asks for."""

    async def load(self, turn: Turn) -> Sequence[Entry]:
        """At most 40 entries of this butler and conversation, oldest first, after the latest summary.

        Their start moves by 20 at a time, so that prompts keep their beginning. What a person said in private is
        returned only to that person in private; for a message of uncertain sender, nothing. Raises `Unavailable`.
        """
        ...

    async def search(self, turn: Turn, wanted: WantedHistory) -> Sequence[SaidEntry]:
        """Messages in all conversations that may be told where the turn answers, with the replies; the best first.

        Of one message, all entries, if any of them fits. Raises `Unavailable`.
        """
        ...


class Facts(Protocol):
    """What this butler has learned. The turn's message determines what may be read."""

    async def visible(self, turn: Turn, limit: int = 100) -> Sequence[Fact]:
        """The latest facts that may be told where the turn answers, newest first. Raises `Unavailable`."""
        ...

    async def find_own(self, turn: Turn, words: str, limit: int) -> Sequence[Fact]:
        """The person's own of the `visible` facts that may answer these words, the best first. Raises `Unavailable`.

        Others' words may not come by a tool that counts as own.
        """
        ...

    async def choose(self, turn: Turn, limit: int) -> Sequence[Fact]:
        """Those of them that a turn is told first: of safety, then relevant to its message, then the latest.

        Raises `Unavailable`.
        """
        ...

    async def is_forgotten(self, turn: Turn, texts: Collection[str], position: int) -> bool:
        """Whether one of these texts of the person, or the entry at a position, was forgotten. Raises `Unavailable`.

        0: the entry of the turn's message, if it has one.
        """
        ...

    async def may_change(self, turn: Turn, fact_ids: Collection[UUID], *, as_owner: bool) -> Collection[UUID]:
        """Those of these `visible` facts that the person said, or that are about them; of an owner, all of them.

        Raises `Unavailable`.
        """
        ...

    async def forget(self, turn: Turn, fact_ids: Collection[UUID], *, as_owner: bool) -> int:
        """Forget those of them for good, with what says the same; returns how many are gone. Raises `Unavailable`."""
        ...

    async def aliases(self, turn: Turn) -> Sequence[EntityAlias]:
        """The aliases of entities that hold for this butler. Raises `Unavailable`."""
        ...

    async def link_entity(self, turn: Turn, name: str, alias: str) -> bool:
        """Give an entity another name. False: it has that already. Raises `Unavailable`."""
        ...

    async def unlink_entity(self, turn: Turn, name: str, alias: str) -> bool:
        """Take a name from an entity again. False: it does not have it. Raises `Unavailable`."""
        ...

    async def is_learning(self, turn: Turn) -> bool:
        """Whether what is said where the turn answers may be kept: people switch that off. Raises `Unavailable`."""
        ...

    async def share(self, turn: Turn, fact_id: UUID) -> bool:
        """Share a fact with all who talk to the butler. False: the caller is not its author, or it does not exist."""
        ...


class Files(Protocol):
    """The bytes of files that came with messages, and of files that go with answers."""

    def read(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The bytes, piece by piece; none if it is not stored. Raises `Unavailable`."""
        ...

    async def link(self, attachment: Attachment) -> str | None:
        """A URL at which anyone can read the bytes for an hour; None: they are not stored. Raises `Unavailable`."""
        ...

    async def keep(
        self, turn: Turn, filename: str, pieces: AsyncIterable[bytes], *, media_type: str = "", size_bytes: int = 0
    ) -> Attachment:
        """Store a file of this turn, to be one of the `attachments` of its answer. The same bytes twice are one file.

        `size_bytes`: if known in advance. If the file is too large, or there is no room for it, the result has
        `unavailable` set, and the reply says so. Raises `Unavailable`, and whatever `pieces` raises.
        """
        ...

    async def upload_link(self, turn: Turn) -> str:
        """A URL to which files for the answer of this turn can be posted for an hour. Raises `Unavailable`."""
        ...


class Approvals(Protocol):
    """What people are asked in a conversation of a butler. The turn's message determines what may be seen."""

    async def pending(self, turn: Turn, readers: str, limit: int) -> Sequence[Pending]:
        """The oldest `limit` requests of earlier messages that `readers` see in chat. Raises `Unavailable`."""
        ...

    async def count(self, turn: Turn) -> int:
        """How many requests are pending, no matter who may see them. Raises `Unavailable`."""
        ...


class Readers(Protocol):
    """Who reads the answer of a turn."""

    async def of(self, turn: Turn) -> Reader:
        """The reader according to the turn's message. Raises `Unavailable`."""
        ...


class Names(Protocol):
    """What models call persons whom operators have linked."""

    async def of(self, people: Collection[str]) -> Mapping[str, str]:
        """By who they are, as `core/people/readers.py` names people, for those whose handle proves who writes.

        Their messages must be authentic. Raises `Unavailable`.
        """
        ...


class Surroundings(Protocol):
    """What stands around messages."""

    async def of(self, turn: Turn) -> Surrounding:
        """What the reader of the turn may see of it, at this moment: to be asked once, when the turn begins.

        Raises `Unavailable`.
        """
        ...


class EngineContext(Struct, frozen=True):
    """What an engine may use of the installation besides its turn; passed to its entry point."""

    memos: Memos
    remote_agents: RemoteAgents
    program_user: str | None = None
    """The user that runs the programs of engines, unless the member names one; None: the worker's."""
    models: Models | None = None
    """The configured models; None: there are none."""
    workspaces: Path | None = None
    """Where butlers keep their files, each in a directory of its own, unless its options name another."""
    readers: Readers | None = None
    """Who reads the answers; None: only what the message itself shows is known."""
    history: History | None = None
    """What was said before; None: nothing is kept."""
    surroundings: Surroundings | None = None
    """What stands around messages; None: only the message itself is known."""
    facts: Facts | None = None
    """What was learned; None: nothing is learned."""
    names: Names | None = None
    """The names of persons; None: people are called as platforms do."""
    files: Files | None = None
    """The files of messages and answers; None: nothing is stored."""
    sandbox: SandboxRules = msgspec.field(default_factory=SandboxRules)
    """What the commands of a turn may use."""
    search: Search | None = None
    """Finds pages in the web; None: it cannot be searched."""
    toolset: Toolset | None = None
    """Tools besides those of the engine; None: there are none."""
    approvals: Approvals | None = None
    """Questions to people and their approvals; None: nobody can be asked."""
    closing: AsyncExitStack | None = None
    """Closed after the last turn, to end what engines keep running; None: that ends with this process."""
    roles: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The models in the roles `main`, `router` and `specialist` of plans, as far as configured."""


# What comes out -----------------------------------------------------------------------------------------------------


class ModelUsage(Struct, frozen=True):
    """The usage of one model in a turn. `input_tokens` include those read from its cache and written to it."""

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
    """What the operator should know about a turn that otherwise went well; `explain` shows it."""
    entries: tuple[Entry, ...] = ()
    """What the turn adds to the history; saved together with its reply, which assigns the positions."""
    remembered: tuple[OwnWords, ...] = ()
    """Words of the person that become facts, which are saved together with the entries."""


class Answer(_Result, frozen=True):
    """The butler replies."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    """Results of `Files.keep`, and attachments of the message; any other is only named in the reply."""


class NoReply(_Result, frozen=True):
    """The butler has handled the message, and no reply is needed."""

    reason: str = ""


class Refusal(_Result, frozen=True):
    """The butler declines; the message becomes a dead letter."""

    reason: str


class HandedOn(_Result, frozen=True):
    """Another butler or team, one of `Turn.below`, is to answer: a further decision sends the message there."""

    to: str
    reason: str = ""


TurnResult = Answer | NoReply | Refusal | HandedOn


class EngineFailure(Exception):
    """The engine could not complete its turn. If `retryable`, it is retried; otherwise the delivery ends at once.

    `tokens`: what models generated all the same; if `act` raises it, only these remain spent of those reserved.
    """

    tokens: int = 0

    def __init__(self, message: str, *, error_class: FailureClass = "internal", retryable: bool = True) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retryable = retryable


class Outage(EngineFailure):
    """What the engine depends on has been unavailable since `since`, for all messages. It does not count as an attempt.

    The turn is retried until six hours after `since`; `retry_after`: seconds, if the other side asks for a pause.
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
    """It failed, and certainly had no effect, so it may be retried even where repeating is not allowed."""


class Fenced(Exception):
    """Another worker has taken over, and this attempt is invalid. Stop at once; write nothing."""


class Parked(Exception):
    """The turn waits for an event. Do not catch it: the turn runs again when the event is decided."""

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
    """An effectful step was begun, but its end was never recorded; only a person or the other side can know it."""


class Engine(Protocol):
    """What answers for a butler. Whatever has an effect, or costs something, goes through `journal.step`."""

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn. Raises `EngineFailure`; `Fenced` and `OutcomeUnknown` of the journal pass through.

        If cancelled, it leaves nothing running.
        """
        ...


@runtime_checkable
class ChecksOptions(Protocol):
    """An engine that can check a member's options before the first message."""

    def check(self, member: Member) -> None:
        """Raises an `EngineFailure` that names every wrong option."""
        ...


@runtime_checkable
class ChecksMachine(Protocol):
    """An engine that needs something on its machine, such as a program."""

    def lacking(self, member: Member) -> str | None:
        """What this machine lacks for a member with valid options; None: nothing."""
        ...


@runtime_checkable
class SetsPatience(Protocol):
    """An engine whose turns may take longer than `turn.timeout` of the settings."""

    def patience(self, member: Member) -> float:
        """Seconds after which an attempt is aborted. Raises `EngineFailure` for wrong options."""
        ...


@runtime_checkable
class Stoppable(Protocol):
    """An engine whose turns end within a second of `Turn.stop`, with what they have so far and the reason `aborted`."""

    @property
    def stoppable(self) -> bool: ...


@runtime_checkable
class Remembers(Protocol):
    """An engine whose turns add what was said to the history. Of one that fails, what it was asked is kept."""

    @property
    def remembers(self) -> bool: ...


OpenEngine = Callable[[EngineContext], Engine]
"""The entry point."""

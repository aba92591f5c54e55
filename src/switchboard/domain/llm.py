"""Requests to models and their replies: one form for every provider and every command line.

Made by the caller (`journey/ask.py` for classification); `llm/` turns a `Request` into that of a provider and its
answer into a `Reply`. Values only: no I/O, no clock. Next: `llm/port.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct

from switchboard.domain.json_values import JsonMapping

FailureKind = Literal[
    "rate_limited",  # the provider says so, or has no quota left
    "unavailable",  # unreachable, connection lost, or an error of its own; for a command line also: no tool server
    "refused",  # the model will not answer this
    "timeout",
    "garbage",  # not an answer: no JSON, cut off, too large
    "context_too_long",
    "auth",
    "defect",  # the request is wrong: no such model, no such program, a call that is not allowed
]
NotAsked = Literal[
    "cooldown",  # the breaker is open, or the provider asked for a pause
    "busy",  # the maximum number of sessions was running
    "budget",  # it could exceed what may be spent
    "at_fault",  # it fails at this request only, even in its shortest form
]
Unmade = Literal[
    "",
    "cut_off",  # a call was begun, and the answer was cut off at its limit
    "as_text",  # the answer ends with calls written as text, which are not carried out
]
"""Why a reply makes calls of which it has none."""
Outcome = Literal["answered", "unfit", FailureKind, NotAsked]
"""`unfit`: it answered, but the caller rejected the answer."""

AWAY: Final[frozenset[Outcome]] = frozenset({"rate_limited", "unavailable", "timeout", "auth"})
"""Failures that say nothing about the request: the model may answer once they are over."""

_PAUSED: Final[frozenset[Outcome]] = frozenset({"cooldown", "busy"})
_NOT_ASKED: Final = frozenset(get_args(NotAsked))
_ANSWERED: Final = frozenset({"answered", "unfit"})
_KINDS: Final[Mapping[str, FailureKind]] = {kind: kind for kind in get_args(FailureKind)}
_UNKNOWN: Final[Mapping[Outcome, FailureKind]] = {"at_fault": "defect"}
_OF_THE_REQUEST: Final = frozenset({"refused", "context_too_long"})
_NOT_RETRYABLE: Final = frozenset({"refused", "context_too_long", "auth", "defect"})


# What is asked -------------------------------------------------------------------------------------------------------


class OfferedTool(Struct, frozen=True):
    """A tool that the model may call; `parameters` is the JSON Schema of its arguments.

    `once`: if it must be called, one call is the whole answer.
    """

    name: str
    description: str
    parameters: JsonMapping
    once: bool = False


@dataclass(frozen=True, slots=True)
class ToolServer:
    """The MCP server where a command line calls the tools of a request; not used by an API."""

    url: str
    token: str = field(repr=False)
    name: str = "switchboard"


class ToolCall(Struct, frozen=True):
    """One call as the model made it, and what came back if the session carried it out itself.

    `ok` depends on the result alone, and is None where no result was seen; `result` is any JSON value. `server` is the
    MCP server's name where the source gives it separately from the tool's. `malformed` is the text of arguments that
    are not a JSON object, as the model wrote it; `arguments` is empty then, and the call must not be carried out.
    `as_text`: the model wrote it as the text of its answer.
    """

    name: str
    arguments: Mapping[str, object] = msgspec.field(default_factory=dict)
    result: object = None
    ok: bool | None = None
    id: str | None = None
    server: str | None = None
    malformed: str = ""
    as_text: bool = False


class ToolResult(Struct, frozen=True):
    """The result of a call that the model made in its previous message."""

    call_id: str
    text: str
    ok: bool = True


CarryOut = Callable[[ToolCall], Awaitable[ToolResult]]
"""Carries out a call that a program makes while it runs."""


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that a model with `vision` can see."""

    media_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a chat: by the `user`, with the results of earlier calls, or by the `assistant`, with its calls.

    The user's `images` reach only models with `vision`. `blocks` are the provider's own, reasoning included, and are
    sent back unchanged, but only to the model that `origin` names; any other model gets the text and the calls.
    """

    role: Literal["user", "assistant"]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    blocks: tuple[Mapping[str, object], ...] = field(default=(), repr=False)
    origin: str = ""
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One question.

    `force`: the tool that must be called; "" leaves the choice to the model. `max_tokens`: the limit of the answer.
    `deadline`: seconds from now. `idle`: the seconds for which a stream that has begun may be silent. `whole`: an
    answer that is cut off at `max_tokens` is a failure; otherwise it is returned without its calls. `no_calls`: the
    tools are shown, because providers require that if there were calls before, but none may be called now. `key` is
    the message that the request belongs to. A command line needs a `server`, or `carrying`, with which it does a whole
    turn of at most `rounds` requests: `carrying` is called at the start and returns the function that carries out its
    calls. `on_usage` is called with what it has used so far.
    """

    messages: tuple[ChatMessage, ...]
    system: str = ""
    tools: tuple[OfferedTool, ...] = ()
    force: str = ""
    max_tokens: int = 1024
    deadline: float = 60.0
    idle: float = 60.0
    whole: bool = True
    no_calls: bool = False
    key: str = ""
    server: ToolServer | None = None
    carrying: Callable[[], CarryOut] | None = field(default=None, compare=False, repr=False)
    rounds: int = 25
    on_usage: Callable[[Usage], None] | None = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The whole request as one text, for programs that take nothing else."""
        return self.system + self.said

    @property
    def said(self) -> str:
        """The same without the system prompt."""
        return "\n\n".join(part for one in self.messages for part in _parts_of_message(one))


def _parts_of_message(message: ChatMessage) -> Iterator[str]:
    yield from (result.text for result in message.results)
    if message.text:
        yield message.text
    yield from (f"{call.name}({dict(call.arguments)})" for call in message.calls)


# What comes back -----------------------------------------------------------------------------------------------------


class TokensSpent(Struct, frozen=True, kw_only=True):
    """Tokens that models have read and written for something on record."""

    tokens_in: int = 0
    tokens_out: int = 0


class Usage(Struct, frozen=True):
    """Tokens as the provider counted them, summed over the session; `cost_usd` None where it is not reported.

    `cache_read` and `cache_write` are parts of `input_tokens`. `estimated`: the provider reported nothing, and the
    figures are an upper estimate, not a bill.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    cache_read: int = 0
    cache_write: int = 0
    estimated: bool = False

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost_usd is None else self.cost_usd + (other.cost_usd or 0.0)
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            other.cost_usd if cost is None else cost,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.estimated or other.estimated,
        )


NO_USAGE: Final = Usage()


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer.

    `stop_reason`: `end`, `tool_calls`, `length`, `refused`, `context_too_long`, else what the source said; None: the
    end was never seen. `by_program`: the calls went from a program to the request's tool server, whose record is the
    truth; otherwise they have not been carried out yet. `thought`: the model is known to have thought before it
    answered. `unmade`: why calls that the model has begun are not in `calls`; they are not in `text` either. `blocks`
    and `origin` as in `ChatMessage`.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = NO_USAGE
    model: str | None = None
    errors: tuple[str, ...] = ()
    stop_reason: str | None = None
    by_program: bool = False
    thought: bool = False
    blocks: tuple[Mapping[str, object], ...] = field(default=(), repr=False)
    origin: str = ""
    unmade: Unmade = ""

    @property
    def message(self) -> ChatMessage:
        """This reply as a message of the next request."""
        return ChatMessage("assistant", self.text, self.calls, blocks=self.blocks, origin=self.origin)


class ModelDelta(Struct, frozen=True):
    """A piece of a reply that is still being written: more text, or one more complete call.

    `end` comes last: the reply without what earlier deltas have already contained. `reset`: all deltas so far are void
    because that reply failed; another model may begin its own. `reading`: nothing is written yet, as a slow model reads
    the request, for about so many seconds.
    """

    text: str = ""
    call: ToolCall | None = None
    end: Reply | None = None
    reset: bool = False
    reading: int = 0


OnDelta = Callable[[ModelDelta], None]
"""Called with each delta as it arrives. It must neither block nor raise."""


def fold(deltas: Iterable[ModelDelta]) -> Reply:
    """The reply that these deltas make up; one that broke off has no `stop_reason`."""
    text, calls, end = "", list[ToolCall](), Reply()
    for delta in deltas:
        if delta.reset:
            text, calls, end = "", [], Reply()
        text += delta.text
        calls += [] if delta.call is None else [delta.call]
        end = delta.end or end
    return replace(end, text=text + end.text, calls=(*calls, *end.calls))


class ModelFailure(Exception):
    """A session that failed; what it said and cost until then is in `reply`.

    `retryable`: the same model may succeed later. `alive`: the other side works, and only rejects this request, so
    there is no reason to mistrust it. `retry_after`: seconds, if the provider asks for a pause. `limit`: of a request
    that is too long, the tokens that the other side says it can read; `certain`: whether it said that this is so.
    `overloaded`: it says that it has too much to do, or is not reached, which has nothing to do with the request.
    """

    def __init__(  # noqa: PLR0913 - what there is to know of a failure, all but two of it optional
        self,
        kind: FailureKind,
        message: str,
        *,
        retryable: bool | None = None,
        retry_after: float | None = None,
        alive: bool | None = None,
        reply: Reply | None = None,
        limit: int | None = None,
        certain: bool = True,
        overloaded: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retryable = kind not in _NOT_RETRYABLE if retryable is None else retryable
        self.retry_after = retry_after
        self.alive = kind in _OF_THE_REQUEST if alive is None else alive
        self.reply = reply or Reply()
        self.limit = limit
        self.certain = certain
        self.overloaded = overloaded or kind in {"rate_limited", "auth"}


class ModelAttempt(Struct, frozen=True):
    """The result of trying one model; `name` is its name in the settings. `micros` are micro-dollars."""

    name: str
    outcome: Outcome
    message: str = ""
    usage: Usage = NO_USAGE
    micros: int = 0
    ms: int = 0
    retryable: bool = True
    retry_after: float | None = None

    @property
    def asked(self) -> bool:
        """Whether it was asked at all."""
        return self.outcome not in _NOT_ASKED


class Bill(Struct, frozen=True):
    """What one session cost. `asker` says what the model was asked for; `model` is its name in the settings.

    `butler`: the system_id of the member whose work it was; "": nobody's.
    """

    asker: str
    model: str
    usage: Usage = NO_USAGE
    micros: int = 0
    failed: bool = False
    butler: str = ""


class Report(Struct, frozen=True):
    """The outcome of a request: the reply (None: no model answered), and every attempt, in order."""

    reply: Reply | None
    attempts: tuple[ModelAttempt, ...] = ()

    @property
    def asked(self) -> bool:
        """Whether any model was asked."""
        return any(one.asked for one in self.attempts)

    @property
    def spent_up(self) -> bool:
        """Whether every model was skipped because of a budget."""
        return bool(self.attempts) and all(one.outcome == "budget" for one in self.attempts)

    @property
    def last(self) -> ModelAttempt | None:
        """The attempt that produced the reply; without a reply, the last one."""
        counted = [one for one in self.attempts if self.reply is None or one.outcome in _ANSWERED]
        # An empty answer, which counts as a failure, is returned if there is no better one.
        return next(reversed(counted or self.attempts), None)

    @property
    def tried(self) -> tuple[ModelAttempt, ...]:
        """All the other attempts."""
        return tuple(one for one in self.attempts if one is not self.last)

    @property
    def failure(self) -> ModelFailure | None:
        """Why no model answered, as one failure; retryable if one of the models is.

        Of a model that was asked several times the last answer counts. The kind is that of the last unavailable model
        if there is one, whatever the others said; then that of the last paused one; then that of the last one asked.
        """
        if self.reply is not None:
            return None
        last = self._by_model
        kind = _KINDS.get(self._failed[-1], _UNKNOWN.get(self._failed[-1], "unavailable")) if last else "unavailable"
        told = "; ".join(dict.fromkeys(map(_describe_attempt, self.attempts))) or "there is no model"
        latest = {one.name: one.retry_after for one in self.attempts}.values()
        waits = [wait for wait in latest if wait is not None]
        retryable = any(one.retryable for one in last)
        return ModelFailure(kind, told[:2000], retryable=retryable, retry_after=min(waits, default=None))

    @property
    def _by_model(self) -> Sequence[ModelAttempt]:
        """The attempt that counts of each model: the last one, but a pause does not hide why it failed before."""
        found: dict[str, ModelAttempt] = {}
        for one in self.attempts:
            before = found.pop(one.name, one)
            found[one.name] = before if before.asked and one.outcome in _PAUSED else one
        return tuple(found.values())

    @property
    def _failed(self) -> list[Outcome]:
        """The outcomes that decide the kind: of unavailable models, else of paused ones, else of all others."""
        outcomes = [one.outcome for one in self._by_model]
        away = [one for one in outcomes if one in AWAY] or [one for one in outcomes if one in _PAUSED]
        asked = [one for one in outcomes if one not in _NOT_ASKED]
        return away or asked or outcomes


def _describe_attempt(attempt: ModelAttempt) -> str:
    if attempt.outcome in {"cooldown", "at_fault"}:
        return f"model {attempt.name} {attempt.message}"
    return f"{attempt.name}: {attempt.outcome}: {attempt.message}"

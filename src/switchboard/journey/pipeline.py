"""The pipeline: one message, a model, and the butlers that it chose. Its class and field names are public.

`app/classifier.py` calls `MessagePipeline.process` for messages that no rule decided; embedders call it with no more
than a pool and a dispatch function. A text and what is known of it enter; a `RoutingResult` leaves, and a row per
attempt in the log. Nothing raises but trouble with the database and a request context that is none.

    with a request context      the Switchboard made it: nothing is derived, no id is made, nothing is deduped
    without one                 source by `tool_args`, identity by the tool's name, a UUIDv7, dedupe where it is enabled

Next: `route_call.py` for each call, `core/pipeline/verdict.py` for what they mean, `core/pipeline/result.py` for the
result.
"""

from __future__ import annotations

import contextlib
import uuid
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from time import perf_counter
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog
from pydantic import ValidationError

from switchboard.core.checked import checked
from switchboard.core.identity import conversation
from switchboard.core.pipeline.history import history_limits, select_history
from switchboard.core.pipeline.prompt import ROUTE_TOOL, Asked, Prompt, route_tool_schema, routing_prompt
from switchboard.core.pipeline.result import choices, result_of, word_by_word
from switchboard.core.pipeline.source import SourceMetadata, source_metadata
from switchboard.core.pipeline.transcript import NO_USAGE, ToolCall, Transcript, Usage, string, transcript_of
from switchboard.core.pipeline.verdict import Route, Verdict, is_ours, parse_calls, reconcile
from switchboard.domain.envelope import Attachment, Envelope
from switchboard.domain.errors import InvalidInput, SwitchboardError, Unavailable
from switchboard.domain.pipeline import Candidate, RoutingResult, Utterance
from switchboard.journey.route_call import take
from switchboard.store import classification as store
from switchboard.store.classification import Attempt, NewSession, Pool, Session
from switchboard.store.ids import new_uuid7

__all__ = [
    "Dispatched",
    "MessagePipeline",
    "RoutingContext",
    "RoutingResult",
    "RoutingTask",
    "Tried",
    "routing_context",
]

log = structlog.get_logger(__name__)

SESSION_LIFETIME: Final = timedelta(minutes=10)
"""After that the token of a session opens nothing, even if nobody ended it."""
HISTORY_TOKENS: Final = 50_000
"""Of every history, that of chats included: thirty messages can be of any length."""
_DONE: Final = frozenset({"ok", "accepted"})
_NO_SESSION: Final = Transcript()
_NOBODY: Final = "there is nobody to choose from: no butler is alive and within reach"


@dataclass(frozen=True, slots=True)
class RoutingContext:
    """What the current task is routing; `routing_context()` gives it to whatever runs within `process`."""

    request_id: str
    source_butler: str
    source_metadata: Mapping[str, str]
    request_context: Mapping[str, Any] | None = None
    conversation_history: tuple[Utterance, ...] = ()


_routing_ctx_var: ContextVar[RoutingContext | None] = ContextVar("switchboard_routing_context", default=None)


def routing_context() -> RoutingContext | None:
    """What this task is routing; None outside of `process`."""
    return _routing_ctx_var.get()


def _clear_routing_context() -> None:
    _routing_ctx_var.set(None)


@dataclass(frozen=True, slots=True)
class RoutingTask:
    """What a dispatch function is given: the question, and for a session that calls tools itself the key to ours.

    `prompt.text` is the whole as one text; `tool` the JSON Schema of the arguments of `route_to_butler`. `token` opens
    this one tool at `/mcp`, for this message only, until the session is over; `taken` says whether a call has come in
    there and was accepted.
    """

    prompt: Prompt
    tool: Mapping[str, Any]
    request_id: str
    candidates: tuple[Candidate, ...]
    token: str = field(repr=False)
    taken: Callable[[], Awaitable[bool]] = field(repr=False)

    @property
    def text(self) -> str:
        """The whole prompt."""
        return self.prompt.text


@dataclass(frozen=True, slots=True)
class Tried:
    """A session that came to nothing before another was asked."""

    model: str
    error: str
    usage: Usage = NO_USAGE
    ms: int = 0


@dataclass(frozen=True, slots=True)
class Dispatched:
    """More than a transcript. `by_token`: its calls went to our server, whose record wins over what it claims."""

    transcript: Transcript
    by_token: bool = False
    tried: tuple[Tried, ...] = ()


DispatchFn = Callable[[RoutingTask], Awaitable[object]]
"""Runs one session: returns a `Dispatched`, a `Transcript`, or what `transcript_of` reads (an object, or a text).

A call with a result has been carried out by whoever ran the session. One without is carried out here.
"""
ClassifyFn = Callable[[str, Sequence[Candidate], RoutingContext], Awaitable[object]]
"""In place of a session: gives a name, a `{butler, segment?}`, or a list of these."""
RouteFn = Callable[[str, str, RoutingContext], Awaitable[object]]
"""Hands a text on to a butler: `{"status": "ok" | "accepted"}`; anything else, or an error, is a failure."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A message as far as it is known."""

    text: str
    request_id: UUID
    conversation: str
    team_id: str
    asked: Asked
    context: RoutingContext
    candidates: tuple[Candidate, ...] | None = None
    attachments: tuple[Attachment, ...] = ()
    lane: str | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was decided. `carried_out`: whom the session itself has handed the message to."""

    verdict: Verdict
    transcript: Transcript = _NO_SESSION
    session_id: UUID | None = None
    tried: tuple[Tried, ...] = ()
    carried_out: frozenset[str] = frozenset()


class MessagePipeline:
    """Asks a model which butlers get a message. `source_butler` says in whose name, in logs and contexts.

    The pool is of a database that Switchboard has migrated; its own settings do not matter.
    """

    def __init__(
        self,
        switchboard_pool: Pool,
        dispatch_fn: DispatchFn,
        source_butler: str,
        *,
        classify_fn: ClassifyFn | None = None,
        route_fn: RouteFn | None = None,
        enable_ingress_dedupe: bool = False,
    ) -> None:
        self._database = store.over(switchboard_pool)
        self._dispatch_fn = dispatch_fn
        self._source_butler = source_butler
        self._classify_fn = classify_fn
        self._route_fn = route_fn
        self._dedupe = enable_ingress_dedupe

    def set_pipeline(self, *_: object) -> None:
        """Deprecated: modules do not wire themselves any more. Accepted, and without effect."""
        warnings.warn(
            "set_pipeline() is deprecated: a connector submits to the Switchboard, which asks the pipeline itself",
            DeprecationWarning,
            stacklevel=2,
        )

    async def process(
        self,
        message_text: str,
        tool_args: Mapping[str, Any],
        *,
        tool_name: str | None = None,
        request_context: Mapping[str, Any] | None = None,
    ) -> RoutingResult:
        """Classify one message and route it; what went wrong is in the result.

        `request_context`, or else `tool_args`: `source_channel`, `source_endpoint_identity`, `sender_identity`,
        `external_thread_id` and so on, further `sender_name`, `chat_type`, `sent_at`, `attachments`. A request context
        also has `request_id`, `conversation`, `team_id`, and `candidates` [{name, description, capabilities}]; without
        candidates they are those of the root team. Raises InvalidInput for a request context that is none, Unavailable.
        """
        if request_context is not None:
            case = _given(message_text, request_context, self._source_butler)
            return await self._isolated(case)
        source = source_metadata(tool_args, tool_name)
        case = _derived(message_text, source, tool_args, self._source_butler)
        key = source.idempotency_key if self._dedupe else None
        return await (self._isolated(case) if key is None else self._once(case, source, key))

    async def _once(self, case: _Case, source: SourceMetadata, key: str) -> RoutingResult:
        """Process a message unless one with its key was; a key whose message came to nothing is free again."""
        whence = _digest(self._source_butler, source.source_channel, source.source_endpoint_identity)
        name = _digest(key)
        holder = await store.claim_key(self._database, whence, name, case.request_id)
        if holder is not None:
            return RoutingResult("", {"status": "duplicate", "request_id": str(holder)})
        kept = False
        try:
            result = await self._isolated(case)
            kept = bool(result.target_butler)
        finally:
            settle = store.keep_key if kept else store.release_key
            await settle(self._database, whence, name, case.request_id)
        return result

    async def _isolated(self, case: _Case) -> RoutingResult:
        """Within a routing context of its own: tasks inherit what is set, and never see what another task sets.

        Whoever routes within `process`, as a `route_fn` may, has his own back afterwards.
        """
        before = _routing_ctx_var.get()
        _routing_ctx_var.set(case.context)
        try:
            return await self._routed(case)
        finally:
            _clear_routing_context()
            if before is not None:
                _routing_ctx_var.set(before)

    async def _routed(self, case: _Case) -> RoutingResult:
        began = perf_counter()
        candidates = tuple(await store.butlers(self._database)) if case.candidates is None else case.candidates
        history = await self._history(case)
        case = replace(case, candidates=candidates, context=replace(case.context, conversation_history=history))
        _routing_ctx_var.set(case.context)
        answer = await self._answered(case, candidates)
        answer = replace(answer, verdict=word_by_word(answer.verdict, case.text))
        outcomes = await self._handed_on(case, answer)
        await self._log(case, answer, round((perf_counter() - began) * 1000))
        return result_of(case.context.request_id, answer.transcript.model, answer.verdict, outcomes)

    async def _history(self, case: _Case) -> tuple[Utterance, ...]:
        limits = history_limits(case.asked.channel)
        if not case.conversation or limits.strategy == "none":
            return ()
        limits = replace(limits, max_tokens=min(limits.max_tokens or HISTORY_TOKENS, HISTORY_TOKENS))
        now = datetime.now(UTC)
        said = await store.history(self._database, case.conversation, case.request_id, limits, now)
        return select_history(said, limits, now)

    async def _answered(self, case: _Case, candidates: tuple[Candidate, ...]) -> _Answer:
        if not candidates:
            return _Answer(Verdict(error=_NOBODY))
        if self._classify_fn is not None:
            return await self._by_function(self._classify_fn, case, candidates)
        return await self._by_session(case, candidates)

    async def _by_function(self, classify_fn: ClassifyFn, case: _Case, candidates: tuple[Candidate, ...]) -> _Answer:
        try:
            said = await classify_fn(case.text, candidates, case.context)
        except Exception as error:
            return _Answer(Verdict(error=_told(error)))
        calls = tuple(ToolCall(ROUTE_TOOL, one, {"status": "accepted"}, ok=True) for one in choices(said))
        return _Answer(parse_calls(Transcript(calls=calls, ended="classify_fn"), candidates))

    async def _by_session(self, case: _Case, candidates: tuple[Candidate, ...]) -> _Answer:
        """Run one session. Its token is dead before its record is read, so that nothing can come in afterwards."""
        secret = store.SESSION_PREFIX + token_urlsafe(32)
        new = NewSession(
            case.conversation, case.request_id, case.team_id, candidates, SESSION_LIFETIME, case.lane, case.seq
        )
        prompt = routing_prompt(
            candidates, case.asked, case.context.conversation_history, case.attachments, case.team_id
        )
        session_id = await store.open_session(self._database, new, sha256(secret.encode()).digest())
        session = Session(
            session_id,
            *(new.conversation, new.request_id, new.team_id, new.candidates),
            expires_at=datetime.now(UTC) + new.lifetime,
        )
        tool = route_tool_schema(candidates)
        task = RoutingTask(prompt, tool, str(case.request_id), candidates, secret, lambda: self._has_taken(session))
        try:
            dispatched = await self._dispatched(task)
            if not dispatched.by_token:
                dispatched = replace(dispatched, transcript=await self._taken(session, dispatched.transcript))
        finally:
            await store.end_session(self._database, session_id)
        return await self._judged(session, dispatched)

    async def _has_taken(self, session: Session) -> bool:
        recorded = await store.calls_of(self._database, session.conversation, session.session_id)
        return any(one.ok for one in recorded)

    async def _dispatched(self, task: RoutingTask) -> Dispatched:
        """One session, whatever becomes of it: a session that broke off may have called before."""
        try:
            said = await self._dispatch_fn(task)
        except Unavailable:
            raise
        except Exception as error:
            log.warning("session failed", request_id=task.request_id, error=_told(error))
            return Dispatched(Transcript(errors=(_told(error),)), by_token=True)
        return said if isinstance(said, Dispatched) else Dispatched(transcript_of(said))

    async def _taken(self, session: Session, transcript: Transcript) -> Transcript:
        """The transcript with the calls carried out that nobody has: those of an API, which only says what to call."""
        calls: list[ToolCall] = []
        for call in transcript.calls:
            if call.ok is not None or not is_ours(call):
                calls.append(call)
                continue
            try:
                result = await take(self._database, session, call.arguments)
            except SwitchboardError as error:
                result = {"status": "refused", "error": str(error)}
            calls.append(replace(call, result=result, ok=result["status"] in _DONE, server=None))
        return replace(transcript, calls=tuple(calls))

    async def _judged(self, session: Session, dispatched: Dispatched) -> _Answer:
        transcript = dispatched.transcript
        verdict = parse_calls(transcript, session.candidates)
        recorded = await store.calls_of(self._database, session.conversation, session.session_id)
        if dispatched.by_token:
            verdict = reconcile(verdict, recorded)
        # Whom our record does not name, but the transcript does with a good result, the session has served by itself.
        seen = {one.butler for one in recorded}
        carried_out = frozenset() if dispatched.by_token else frozenset(verdict.acked) - seen
        return _Answer(verdict, transcript, session.session_id, dispatched.tried, carried_out)

    async def _handed_on(self, case: _Case, answer: _Answer) -> dict[str, str | None]:
        """Per butler that was chosen None, or why it did not get its part; who is not in here, nobody has told yet."""
        outcomes: dict[str, str | None] = {}
        for route in answer.verdict.routed:
            if route.butler in answer.carried_out:
                outcomes[route.butler] = None
            elif route.butler in answer.verdict.acked or answer.verdict.inferred:
                if self._route_fn is not None:
                    outcomes[route.butler] = await _routed_by(self._route_fn, route, case)
                elif not answer.verdict.inferred:
                    outcomes[route.butler] = None
        return outcomes

    async def _log(self, case: _Case, answer: _Answer, ms: int) -> None:
        names = tuple(candidate.name for candidate in case.candidates or ())
        row = Attempt(case.request_id, case.conversation, case.team_id, names, session_id=answer.session_id)
        for tried in answer.tried:
            await store.log_attempt(
                self._database,
                replace(_with_usage(row, tried.usage), model=tried.model, ms=tried.ms, error=tried.error or "failed"),
            )
        last = replace(
            _with_usage(row, answer.transcript.usage),
            verdict=store.verdict_record(answer.verdict),
            model=answer.transcript.model,
            ms=max(0, ms - sum(tried.ms for tried in answer.tried)),
            error=answer.verdict.error,
        )
        await store.log_attempt(self._database, last)


# What is known of a message -----------------------------------------------------------------------------------------


def _given(text: str, context: Mapping[str, Any], source_butler: str) -> _Case:
    """The case that the Switchboard described."""
    try:
        request_id = UUID(str(context["request_id"]))
    except (KeyError, ValueError):
        raise InvalidInput(
            "a request context has a request_id, which is a UUID", field="request_context.request_id"
        ) from None
    seq = context.get("seq")
    candidates = context.get("candidates")
    case = _case(text, request_id, source_metadata(context), context, source_butler)
    return replace(
        case,
        context=replace(case.context, request_context=context),
        conversation=string(context.get("conversation")),
        team_id=string(context.get("team_id")),
        candidates=None if candidates is None else _candidates(candidates),
        lane=string(context.get("lane")) or None,
        seq=seq if isinstance(seq, int) else None,
    )


def _derived(text: str, source: SourceMetadata, tool_args: Mapping[str, Any], source_butler: str) -> _Case:
    """The case as the arguments of a tool tell it, with an id of its own."""
    case = _case(text, _new_id(), source, tool_args, source_butler)
    return replace(case, conversation=_conversation(source, case.request_id))


def _case(text: str, request_id: UUID, source: SourceMetadata, known: Mapping[str, Any], source_butler: str) -> _Case:
    asked = Asked(
        text,
        source.source_channel or "unknown",
        source.sender_identity or "unknown",
        string(known.get("sender_name")) or None,
        string(known.get("chat_type")) or None,
        string(known.get("sent_at")) or None,
    )
    context = RoutingContext(str(request_id), source_butler, source.known())
    return _Case(text, request_id, "", "", asked, context, attachments=_attachments(known.get("attachments")))


def _new_id() -> UUID:
    """A UUIDv7: Python's own where it has one."""
    make: Callable[[], UUID] = getattr(uuid, "uuid7", new_uuid7)
    return make()


def _conversation(source: SourceMetadata, request_id: UUID) -> str:
    """The key that a message with this source would get at a door; empty where too little is known, or it is odd."""
    try:
        envelope = checked(
            Envelope,
            {
                "schema_version": "ingest.v1",
                "source": {
                    "channel": source.source_channel,
                    "provider": "embedder",
                    "endpoint_identity": source.source_endpoint_identity,
                },
                "event": {
                    "external_event_id": str(request_id),
                    "external_thread_id": source.external_thread_id,
                    "observed_at": datetime.now(UTC),
                },
                "sender": {"identity": source.sender_identity},
                "payload": {"normalized_text": "-"},
            },
        )
    except ValidationError:
        return ""
    return conversation(envelope)


def _candidates(given: object) -> tuple[Candidate, ...]:
    try:
        return msgspec.convert(given, tuple[Candidate, ...], from_attributes=True)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"candidates: {error}", field="request_context.candidates") from None


def _attachments(given: object) -> tuple[Attachment, ...]:
    """What is known of attachments; what is none is passed over."""
    found: list[Attachment] = []
    for one in given if isinstance(given, list | tuple) else ():
        with contextlib.suppress(ValidationError):
            found.append(one if isinstance(one, Attachment) else checked(Attachment, one))
    return tuple(found)


def _digest(*parts: str | None) -> str:
    """A key of any parts, of one length."""
    return sha256(msgspec.json.encode(parts)).hexdigest()


# What came of it -----------------------------------------------------------------------------------------------------


def _told(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"the session took too long{f': {error}' if str(error) else ''}"
    return f"{type(error).__name__}: {error}"[:500]


async def _routed_by(route_fn: RouteFn, route: Route, case: _Case) -> str | None:
    """Hand a part on; None, or why it was not taken."""
    try:
        said = await route_fn(route.butler, case.text if route.segment is None else route.segment, case.context)
    except Unavailable:
        raise
    except Exception as error:
        return _told(error)
    if isinstance(said, Mapping) and string(said.get("status")) in _DONE:
        return None
    return f"{route.butler} did not take it: {said!r}"[:500]


def _with_usage(row: Attempt, usage: Usage) -> Attempt:
    cost = None if usage.cost_usd is None else round(usage.cost_usd * 1_000_000)
    return replace(row, tokens_in=usage.input_tokens, tokens_out=usage.output_tokens, cost=cost)

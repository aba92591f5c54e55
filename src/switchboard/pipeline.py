"""Classification for embedders: `from switchboard.pipeline import MessagePipeline`. Its names are public.

A thin façade over `journey/ask.py`, which the Switchboard's own route leg asks directly: an embedder's text and what it
knows of it enter; a `RoutingResult` leaves, and a row per attempt in the log. Nothing raises but trouble with the
database and a request context that is none. docs/models.md shows it at work.

    with a request context      the Switchboard made it: nothing is derived, no id is made, nothing is deduped
    without one                 source by `tool_args`, identity by the tool's name, a UUIDv7, dedupe where it is enabled
"""

from __future__ import annotations

import contextlib
import uuid
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from inspect import signature
from time import perf_counter
from typing import Final
from uuid import UUID

import msgspec
from pydantic import ValidationError

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.classification.history import LIMITS
from switchboard.core.classification.judge import parse_calls
from switchboard.core.classification.prompt import ROUTE_TOOL, Asked
from switchboard.core.classification.result import choices, result_of
from switchboard.core.classification.source import SourceMetadata, source_metadata
from switchboard.core.envelope.strict import strict
from switchboard.core.identity import conversation
from switchboard.core.lenient import string
from switchboard.core.replies import reply_of
from switchboard.domain.classification import Candidate, Classification, Part, RoutingResult, Utterance
from switchboard.domain.envelope import Attachment, Envelope
from switchboard.domain.errors import InvalidInput, Unavailable
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.llm import Attempt, Reply, Report, ToolCall, Usage
from switchboard.journey.ask import (
    Answer,
    Question,
    RoutingTask,
    by_session,
    concluded,
    error_text,
    history_of,
)
from switchboard.ports.channel import Strategy
from switchboard.store import classification as store
from switchboard.store.classification import Pool
from switchboard.store.ids import new_uuid7

__all__ = [
    "Attempt",
    "MessagePipeline",
    "Reply",
    "Report",
    "RoutingContext",
    "RoutingResult",
    "RoutingTask",
    "ToolCall",
    "Usage",
    "email_check_and_route_inbox",
    "routing_context",
]

_DONE: Final = frozenset({"ok", "accepted"})


@dataclass(frozen=True, slots=True)
class RoutingContext:
    """What the current task is routing; `routing_context()` gives it to whatever runs within `process`."""

    request_id: str
    source_butler: str
    source_metadata: Mapping[str, str]
    request_context: JsonMapping | None = None
    conversation_history: tuple[Utterance, ...] = ()


_routing_ctx_var: ContextVar[RoutingContext | None] = ContextVar("switchboard_routing_context", default=None)


def routing_context() -> RoutingContext | None:
    """What this task is routing; None outside of `process`."""
    return _routing_ctx_var.get()


def _clear_routing_context() -> None:
    _routing_ctx_var.set(None)


DispatchFn = Callable[..., Awaitable[object]]
"""Runs one session, given a `RoutingTask`, or its text if it has a parameter `prompt`.

It returns a `Report`, a `Reply`, or what `reply_of` reads: an object of any kind, a list of calls, or a text.

A call with a result has been carried out by whatever ran the session. One without is carried out here.
"""
ClassifyFn = Callable[[str, Sequence[Candidate], RoutingContext], Awaitable[object]]
"""In place of a session: gives a name, a `{butler, segment?}`, or a list of these."""
RouteFn = Callable[[str, str, RoutingContext], Awaitable[object]]
"""Hands a text on to a butler: `{"status": "ok" | "accepted"}`; anything else, or an error, is a failure."""


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

    def set_pipeline(self, *_: object, **__: object) -> None:
        """Deprecated: modules do not wire themselves any more. Accepted, and without effect."""
        warnings.warn(
            "set_pipeline() is deprecated: a connector submits to the Switchboard, which asks the pipeline itself",
            DeprecationWarning,
            stacklevel=2,
        )

    async def process(
        self,
        message_text: str,
        tool_args: JsonMapping | None = None,
        *,
        tool_name: str | None = None,
        request_context: JsonMapping | None = None,
    ) -> RoutingResult:
        """Classify one message and route it; what went wrong is in the result.

        `request_context`, or else `tool_args`: `source_channel`, `source_endpoint_identity`, `sender_identity`,
        `external_thread_id` and so on, further `sender_name`, `chat_type`, `sent_at`, `attachments`. A request context
        also has `request_id`, `conversation`, `team_id`, and `candidates` [{name, description, capabilities}]; without
        candidates they are those of the root team. Raises InvalidInput for a request context that is none, Unavailable.
        """
        known = (tool_args or {}) if request_context is None else request_context
        source = source_metadata(known, tool_name if request_context is None else None)
        if request_context is None:
            question = _derived(message_text, source, known)
        else:
            question = await self._storable(_given(message_text, known))
        context = RoutingContext(str(question.request_id), self._source_butler, source.known(), request_context)
        key = source.idempotency_key if self._dedupe and request_context is None else None
        if key is None:
            return await self._isolated(question, context)
        return await self._once(question, context, key)

    async def _storable(self, question: Question) -> Question:
        """The question, if its classification can be stored: better known before a model is paid for it."""
        if await store.has_month(self._database, question.request_id):
            return question
        raise InvalidInput(
            "the request_id of a request context is a UUIDv7 of a month that Switchboard keeps",
            field="request_context.request_id",
        )

    async def _once(self, question: Question, context: RoutingContext, key: str) -> RoutingResult:
        """Process a message unless one with its key was; a key whose message came to nothing is free again."""
        source, request_id = context.source_metadata, question.request_id
        whence = (self._source_butler, source.get("source_channel"), source.get("source_endpoint_identity"))
        hashed = (await self._database.keys()).of("pipeline", msgspec.json.encode((*whence, key)))
        holder = await store.claim_key(self._database, hashed, request_id)
        if holder is not None:
            return RoutingResult("", {"status": "duplicate", "request_id": str(holder)})
        kept = False
        try:
            result = await self._isolated(question, context)
            kept = bool(result.target_butler)
        finally:
            settle = store.keep_key if kept else store.release_key
            await settle(self._database, hashed, request_id)
        return result

    async def _isolated(self, question: Question, context: RoutingContext) -> RoutingResult:
        """Within a routing context of its own: tasks inherit what is set, and never see what another task sets.

        What routes within `process`, as a `route_fn` may, has its own back afterwards.
        """
        before = _routing_ctx_var.get()
        try:
            return await self._routed(question, context)
        finally:
            _clear_routing_context()
            if before is not None:
                _routing_ctx_var.set(before)

    async def _routed(self, question: Question, context: RoutingContext) -> RoutingResult:
        began = perf_counter()
        given = (context.request_context or {}).get("candidates")
        candidates = tuple(await store.butlers(self._database)) if given is None else _candidates(given)
        question = replace(question, candidates=candidates)
        said = await history_of(self._database, question, _strategy(question, context))
        context = replace(context, conversation_history=said)
        _routing_ctx_var.set(context)
        answer = await concluded(self._database, question, await self._answered(question, context), began)
        outcomes = await self._handed_on(question, answer, context)
        return result_of(context.request_id, answer.model, answer.classification, outcomes)

    async def _answered(self, question: Question, context: RoutingContext) -> Answer:
        if self._classify_fn is None or not question.candidates:
            return await by_session(self._database, question, context.conversation_history, self._dispatched)
        try:
            said = await self._classify_fn(question.text, question.candidates, context)
        except Exception as error:
            return Answer(Classification(error=error_text(error)))
        calls = tuple(ToolCall(ROUTE_TOOL, one, {"status": "accepted"}, ok=True) for one in choices(said))
        return Answer(parse_calls(Reply(calls=calls, stop_reason="classify_fn"), question.candidates))

    async def _dispatched(self, task: RoutingTask) -> Report:
        by_keyword = "prompt" in _parameters(self._dispatch_fn)
        said = await (self._dispatch_fn(prompt=task.text) if by_keyword else self._dispatch_fn(task))
        return said if isinstance(said, Report) else Report(reply_of(said))

    async def _handed_on(self, question: Question, answer: Answer, context: RoutingContext) -> dict[str, str | None]:
        """Per butler that was chosen None, or why it did not get its part; the others have not been told yet."""
        outcomes: dict[str, str | None] = {}
        found = answer.classification
        for part in found.routed:
            if part.butler in answer.carried_out:
                outcomes[part.butler] = None
            elif part.butler in found.acked or found.inferred:
                if self._route_fn is not None:
                    outcomes[part.butler] = await _routed_by(self._route_fn, part, question.text, context)
                elif not found.inferred:
                    outcomes[part.butler] = None
        return outcomes


async def email_check_and_route_inbox(pipeline: MessagePipeline, mails: Iterable[JsonMapping]) -> list[RoutingResult]:
    """Deprecated tool of the e-mail module: route mails that it has fetched, each with its `text` and source arguments.

    The connector for mail submits them to the Switchboard instead.
    """
    warnings.warn(
        "email_check_and_route_inbox is deprecated: use a connector for mail, which submits to the Switchboard",
        DeprecationWarning,
        stacklevel=2,
    )
    return [
        await pipeline.process(
            string(mail.get("text")), {"source_channel": "email", **mail}, tool_name="email_check_and_route_inbox"
        )
        for mail in mails
    ]


# What is known of a message -----------------------------------------------------------------------------------------


def _parameters(function: Callable[..., object]) -> Iterable[str]:
    try:
        return signature(function).parameters
    except (TypeError, ValueError):  # of a built-in function nobody knows them
        return ()


def _given(text: str, context: JsonMapping) -> Question:
    """The question about a message that the Switchboard described."""
    try:
        request_id = UUID(str(context["request_id"]))
    except (KeyError, ValueError):
        raise InvalidInput(
            "a request context has a request_id, which is a UUIDv7", field="request_context.request_id"
        ) from None
    if source_metadata(context).source_channel is None:
        raise InvalidInput(
            "a request context names its source as route.v1 does: source_channel, source_endpoint_identity, "
            "source_sender_identity",
            field="request_context.source_channel",
        )
    return Question(
        *(request_id, string(context.get("conversation")), string(context.get("team_id"))),
        *_described(text, source_metadata(context), context),
    )


def _derived(text: str, source: SourceMetadata, tool_args: JsonMapping) -> Question:
    """The question as the arguments of a tool tell it, with an id of its own: Python's own UUIDv7 where it has one."""
    make: Callable[[], UUID] = getattr(uuid, "uuid7", new_uuid7)
    request_id = make()
    return Question(request_id, _conversation(source, request_id), "", *_described(text, source, tool_args))


def _described(text: str, source: SourceMetadata, known: JsonMapping) -> tuple[Asked, tuple[Attachment, ...]]:
    asked = Asked(
        text,
        source.source_channel or "unknown",
        source.sender_identity or "unknown",
        string(known.get("sender_name")) or None,
        string(known.get("chat_type")) or None,
        string(known.get("sent_at")) or None,
    )
    return asked, _attachments(known.get("attachments"))


def _conversation(source: SourceMetadata, request_id: UUID) -> str:
    """The key that a message with this source would get at an interface; empty if too little is known, or it is odd."""
    try:
        envelope = strict(
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
    return conversation(envelope, CHANNELS[envelope.source.channel])


def _strategy(question: Question, context: RoutingContext) -> Strategy:
    """What the Switchboard says of the channel, which may be one that only it knows; else that of our own channels."""
    given = LIMITS.get(string((context.request_context or {}).get("history")))
    return CHANNELS[question.message.channel].history if given is None else given.strategy


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
            found.append(one if isinstance(one, Attachment) else strict(Attachment, one))
    return tuple(found)


async def _routed_by(route_fn: RouteFn, part: Part, text: str, context: RoutingContext) -> str | None:
    """Hand a part on; None, or why it was not taken."""
    try:
        said = await route_fn(part.butler, text if part.segment is None else part.segment, context)
    except Unavailable:
        raise
    except Exception as error:
        return error_text(error)
    if isinstance(said, Mapping) and string(said.get("status")) in _DONE:
        return None
    return f"{part.butler} did not take it: {said!r}"[:500]

"""Classification for embedders: `from switchboard.pipeline import MessagePipeline`. Its names are public.

A thin façade over `journey/ask.py`, which the Switchboard's own route leg asks directly, and `journey/submit.py`, which
dedupes and delivers: an embedder's text and what it knows of it enter; a `RoutingResult` leaves, and a row per attempt
in the log. Nothing raises but trouble with the database and what can be no message. docs/models.md shows it at work.

    with a request context      the Switchboard made it: nothing is derived, no id is made, nothing is deduped
    without one                 source by `tool_args`, identity by the tool's name, a UUIDv7, dedupe where it is enabled
    with a `route_fn`           it delivers, and the inbox has nothing of the message but its key
    without one                 it is accepted with its decision and deliveries, in one transaction
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from inspect import signature
from time import perf_counter
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.classification.history import LIMITS
from switchboard.core.classification.judge import parse_calls
from switchboard.core.classification.prompt import ROUTE_TOOL, AskedMessage
from switchboard.core.classification.result import choices, result_of
from switchboard.core.classification.source import (
    IntakeContext,
    SourceArguments,
    envelope_of,
    given_candidates,
    given_request_id,
    source_metadata,
)
from switchboard.core.replies import reply_of
from switchboard.core.text.lenient import string
from switchboard.core.uuid7 import uuid7_time
from switchboard.domain.classification import Candidate, Classification, RoutedPart, RoutingResult, Utterance
from switchboard.domain.errors import Unavailable
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.llm import ModelAttempt, Reply, Report, ToolCall, Usage
from switchboard.domain.message import Message, RequestId
from switchboard.journey.ask import (
    Question,
    RoutingTask,
    SessionOutcome,
    by_session,
    conclude_classification,
    error_text,
    history_of,
)
from switchboard.journey.submit import DecidedSubmission, SubmitLeg
from switchboard.lanes.logs import hide_variables
from switchboard.ports.channel import Strategy
from switchboard.store.database import ForeignDatabase
from switchboard.store.ids import new_uuid7
from switchboard.store.models.classification import Pool

__all__ = [
    "MessagePipeline",
    "ModelAttempt",
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


class RoutingContext(Struct, frozen=True):
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
    """Asks a model which butlers get a message, and delivers it. `source_butler` says in whose name, in contexts.

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
        hide_variables()
        self._database = ForeignDatabase(switchboard_pool, "read_committed")
        self._leg = SubmitLeg(self._database, ForeignDatabase(switchboard_pool, "repeatable_read"))
        self._dispatch_fn = dispatch_fn
        self._source_butler = source_butler
        self._classify_fn = classify_fn
        self._route_fn = route_fn
        self._dedupe = enable_ingress_dedupe

    def set_pipeline(self, *_: object, **__: object) -> None:
        """Deprecated: modules no longer wire themselves. Accepted, and without effect."""
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
        """Classify one message and deliver it; what went wrong is in the result.

        `request_context`, or else `tool_args`: `source_channel`, `source_endpoint_identity`, `sender_identity`,
        `external_thread_id` and so on, further `sender_name`, `chat_type`, `sent_at`, `attachments`. A request context
        also has `request_id`, `conversation`, `team_id`, and `candidates` [{name, description, capabilities}]; without
        candidates they are those of the team, by default of the root. A message that the inbox has already is only
        classified: the Switchboard delivers it. Raises InvalidInput for what can be no message or request context,
        Unavailable.
        """
        known = (tool_args or {}) if request_context is None else request_context
        source = source_metadata(known, tool_name if request_context is None else None)
        request_id = _new_id() if request_context is None else given_request_id(request_context)
        if request_context is not None:
            await self._leg.check_month(request_id)
        envelope = envelope_of(
            message_text, source, known, IntakeContext(request_id, uuid7_time(request_id), self._source_butler)
        )
        message = await self._leg.message(
            envelope,
            request_id,
            string(known.get("conversation")),
            dedupe=self._dedupe,
            keep=self._route_fn is None,
        )
        context = RoutingContext(str(request_id), self._source_butler, source.known(), request_context)
        question = _question_of(message, source, known)

        async def process(one: Message) -> RoutingResult:
            return await self._route_isolated(one, question, context)

        if request_context is not None or not self._dedupe or not (source.idempotency_key or source.external_event_id):
            return await process(message)
        return await self._leg.once(message, process)

    async def _route_isolated(self, message: Message, question: Question, context: RoutingContext) -> RoutingResult:
        """Within a routing context of its own: tasks inherit what is set, and never see what another task sets.

        What routes within `process`, as a `route_fn` may, has its own back afterwards.
        """
        before = _routing_ctx_var.get()
        try:
            return await self._route_message(message, question, context)
        finally:
            _clear_routing_context()
            if before is not None:
                _routing_ctx_var.set(before)

    async def _route_message(self, message: Message, question: Question, context: RoutingContext) -> RoutingResult:
        began, given = perf_counter(), given_candidates(context.request_context or {})
        question = await self._leg.with_candidates(question) if given is None else replace(question, candidates=given)
        said = await history_of(self._database, question, _strategy_for(question, context))
        context = replace(context, conversation_history=said)
        _routing_ctx_var.set(context)
        answer = await self._ask_strategy(question, context, began)
        found = answer.classification
        if self._route_fn is not None:
            outcomes = await _handed_on(self._route_fn, question, context, answer)
            return result_of(context.request_id, answer.model, found, outcomes)
        if await self._leg.is_stored(question.request_id):
            status = "chosen" if found.chosen else ""
            return result_of(context.request_id, answer.model, found, dict.fromkeys(found.acked), status)

        async def answers(below: Question) -> SessionOutcome:
            return await self._ask_strategy(below, context, perf_counter())

        return await self._leg.deliver(DecidedSubmission(message, question, answer), answers)

    async def _ask_strategy(self, question: Question, context: RoutingContext, began: float) -> SessionOutcome:
        """The answer, which the log has as taking from `began`: with what was read for it, as in the route leg."""
        return await conclude_classification(
            self._database, question, await self._answer_question(question, context), began
        )

    async def _answer_question(self, question: Question, context: RoutingContext) -> SessionOutcome:
        if self._classify_fn is None or not question.candidates:
            return await by_session(self._database, question, context.conversation_history, self._await_report)
        try:
            said = await self._classify_fn(question.text, question.candidates, context)
        except Exception as error:
            return SessionOutcome(Classification(error=error_text(error)))
        calls = tuple(ToolCall(ROUTE_TOOL, one, {"status": "accepted"}, ok=True) for one in choices(said))
        return SessionOutcome(parse_calls(Reply(calls=calls, stop_reason="classify_fn"), question.candidates))

    async def _await_report(self, task: RoutingTask) -> Report:
        by_keyword = "prompt" in _parameters_of(self._dispatch_fn)
        said = await (self._dispatch_fn(prompt=task.text) if by_keyword else self._dispatch_fn(task))
        return said if isinstance(said, Report) else Report(reply_of(said))


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


def _parameters_of(function: Callable[..., object]) -> Iterable[str]:
    try:
        return signature(function).parameters
    except (TypeError, ValueError):  # of a built-in function nobody knows them
        return ()


def _new_id() -> RequestId:
    """Python's own UUIDv7 where it has one."""
    make: Callable[[], UUID] = getattr(uuid, "uuid7", new_uuid7)
    return RequestId(make())


def _question_of(message: Message, source: SourceArguments, known: JsonMapping) -> Question:
    sender, payload = message.envelope.sender, message.envelope.payload
    asked = AskedMessage(
        payload.normalized_text,
        source.source_channel or "unknown",
        sender.identity,
        sender.display_name,
        string(known.get("chat_type")) or None,
        string(known.get("sent_at")) or None,
    )
    team_id = string(known.get("team_id"))
    return Question(message.request_id, message.conversation, team_id, asked, tuple(payload.attachments))


def _strategy_for(question: Question, context: RoutingContext) -> Strategy:
    """What the Switchboard says of the channel, which may be one that only it knows; else that of our own channels."""
    given = LIMITS.get(string((context.request_context or {}).get("history")))
    return CHANNELS[question.message.channel].history if given is None else given.strategy


# What becomes of it --------------------------------------------------------------------------------------------------


async def _handed_on(
    route_fn: RouteFn, question: Question, context: RoutingContext, answer: SessionOutcome
) -> dict[str, str | None]:
    """Per butler that was chosen None, or why it did not get its part; the others have not been told yet."""
    outcomes: dict[str, str | None] = {}
    for part in answer.classification.chosen:
        told = part.butler in answer.carried_out
        outcomes[part.butler] = None if told else await _routed_by(route_fn, part, question.text, context)
    return outcomes


async def _routed_by(route_fn: RouteFn, part: RoutedPart, text: str, context: RoutingContext) -> str | None:
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

"""Classification for embedders: `from switchboard.pipeline import MessagePipeline`. Its names are public.

A thin façade over `journey/ask.py`, which the Switchboard's own route leg asks directly, and over the inbox: an
embedder's text and what it knows of it enter; a `RoutingResult` leaves, and a row per attempt in the log. Nothing
raises but trouble with the database and what can be no message. docs/models.md shows it at work.

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
from dataclasses import dataclass, replace
from inspect import signature
from time import perf_counter
from typing import Final
from uuid import UUID

import msgspec
from msgspec import structs

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.classification.history import LIMITS
from switchboard.core.classification.judge import parse_calls, resolve
from switchboard.core.classification.prompt import ROUTE_TOOL, Asked
from switchboard.core.classification.result import choices, result_of
from switchboard.core.classification.source import Seen, SourceMetadata, envelope_of, source_metadata
from switchboard.core.content import compared_content
from switchboard.core.identity import content_of, conversation, dedupe_key, key_of_its_own, named_in, thread_of
from switchboard.core.lenient import string
from switchboard.core.replies import reply_of
from switchboard.core.routing.decide import decide_with
from switchboard.core.routing.facts import facts
from switchboard.core.uuid7 import uuid7_time
from switchboard.domain.classification import Candidate, Classification, RoutedPart, RoutingResult, Utterance
from switchboard.domain.errors import InvalidInput, Unavailable
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.llm import ModelAttempt, Reply, Report, ToolCall, Usage
from switchboard.domain.message import Conversation, Message, RequestId
from switchboard.domain.routing import Classified, Decision, Target, TeamId, Undecided
from switchboard.journey.ask import (
    Question,
    RoutingTask,
    SessionOutcome,
    by_session,
    classified,
    concluded,
    error_text,
    history_of,
)
from switchboard.journey.candidates import Live, read_live
from switchboard.lanes.logs import hide_variables
from switchboard.lanes.notifier import WORK, Notifier
from switchboard.ports.channel import Strategy
from switchboard.store import classification as store
from switchboard.store import inbox
from switchboard.store.classification import Pool
from switchboard.store.database import ForeignDatabase
from switchboard.store.ids import new_uuid7
from switchboard.store.inbox import Arrival

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
        self._snapshots = ForeignDatabase(switchboard_pool, "repeatable_read")
        self._notifier = Notifier(self._database)
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
        request_id = _new_id() if request_context is None else await self._storable(request_context)
        message = await self._message(message_text, source, known, request_id)
        context = RoutingContext(str(request_id), self._source_butler, source.known(), request_context)
        case = _Case(message, _question(message, source, known), context)
        if request_context is not None or not self._dedupe or not (source.idempotency_key or source.external_event_id):
            return await self._isolated(case)
        return await self._once(case)

    async def _storable(self, context: JsonMapping) -> RequestId:
        """Its request_id, if it can be stored at all; checked before a model is paid."""
        request_id = _given_id(context)
        if not await store.has_month(self._database, request_id):
            raise InvalidInput(
                "the request_id of a request context is a UUIDv7 of a month that Switchboard keeps",
                field="request_context.request_id",
            )
        return request_id

    async def _message(self, text: str, source: SourceMetadata, known: JsonMapping, request_id: RequestId) -> Message:
        """The message as the inbox stores it. Its key is its own where nothing is to be deduped."""
        at = uuid7_time(request_id)
        envelope = envelope_of(text, source, known, Seen(request_id, at, self._source_butler))
        channel = CHANNELS[envelope.source.channel]
        place, named = string(known.get("conversation")), named_in(envelope, channel)
        if not place and named is not None:
            [place] = await inbox.find_places(self._database, [named], keep=self._route_fn is None)
        return Message(
            request_id=request_id,
            conversation=Conversation(place) if place else conversation(envelope, channel),
            dedupe_key=dedupe_key(envelope, channel) if self._dedupe else f"event:{request_id}",
            envelope=envelope,
            raw=msgspec.json.encode(envelope),
            media_type="application/json",
            received_at=at,
            thread=thread_of(envelope, channel),
            content=content_of(envelope, channel),
        )

    async def _once(self, case: _Case) -> RoutingResult:
        """Process a message unless one with its key was; a key whose message came to nothing is free again."""
        message, keys = case.message, await self._database.keys()
        source, body = message.envelope.source, keys.of("body", compared_content(message))
        key = keys.event(source.channel, source.endpoint_identity, message.dedupe_key)
        holder = await store.claim_key(self._database, key, message.request_id)
        if holder is None:
            return await self._holding(case, key, body)
        if message.content is None or not await store.is_of_another(self._database, key, body):
            return _duplicate(holder)
        # Strangers choose the ids of this channel, so one that is taken must not swallow another message.
        own_key = key_of_its_own(message.dedupe_key, message.content)
        return await self._once(replace(case, message=structs.replace(message, dedupe_key=own_key)))

    async def _holding(self, case: _Case, key: str, body: str) -> RoutingResult:
        kept, request_id = False, case.message.request_id
        try:
            result = await self._isolated(case)
            kept = bool(result.target_butler)
        finally:
            if kept:
                await store.keep_key(self._database, key, body, request_id)
            else:
                await store.release_key(self._database, key, request_id)
        return result

    async def _isolated(self, case: _Case) -> RoutingResult:
        """Within a routing context of its own: tasks inherit what is set, and never see what another task sets.

        What routes within `process`, as a `route_fn` may, has its own back afterwards.
        """
        before = _routing_ctx_var.get()
        try:
            return await self._routed(case)
        finally:
            _clear_routing_context()
            if before is not None:
                _routing_ctx_var.set(before)

    async def _routed(self, case: _Case) -> RoutingResult:
        began = perf_counter()
        question = await self._with_candidates(case.question, (case.context.request_context or {}).get("candidates"))
        said = await history_of(self._database, question, _strategy(question, case.context))
        case = replace(case, question=question, context=replace(case.context, conversation_history=said))
        _routing_ctx_var.set(case.context)
        answer = await concluded(self._database, question, await self._answered(question, case.context), began)
        if self._route_fn is not None:
            return _result(case, answer, await self._handed_on(self._route_fn, case, answer))
        if await store.is_stored(self._database, question.request_id):
            outcomes = dict.fromkeys(answer.classification.acked)
            return _result(case, answer, outcomes, "chosen" if answer.classification.chosen else "")
        return await self._delivered(case, answer)

    async def _with_candidates(self, question: Question, given: object) -> Question:
        if given is not None:
            return replace(question, candidates=_candidates(given))
        live = await read_live(self._snapshots, TeamId(question.team_id))
        return _asked(live, live.start, question)

    async def _answered(self, question: Question, context: RoutingContext) -> SessionOutcome:
        if self._classify_fn is None or not question.candidates:
            return await by_session(self._database, question, context.conversation_history, self._dispatched)
        try:
            said = await self._classify_fn(question.text, question.candidates, context)
        except Exception as error:
            return SessionOutcome(Classification(error=error_text(error)))
        calls = tuple(ToolCall(ROUTE_TOOL, one, {"status": "accepted"}, ok=True) for one in choices(said))
        return SessionOutcome(parse_calls(Reply(calls=calls, stop_reason="classify_fn"), question.candidates))

    async def _dispatched(self, task: RoutingTask) -> Report:
        by_keyword = "prompt" in _parameters(self._dispatch_fn)
        said = await (self._dispatch_fn(prompt=task.text) if by_keyword else self._dispatch_fn(task))
        return said if isinstance(said, Report) else Report(reply_of(said))

    async def _handed_on(self, route_fn: RouteFn, case: _Case, answer: SessionOutcome) -> dict[str, str | None]:
        """Per butler that was chosen None, or why it did not get its part; the others have not been told yet."""
        outcomes: dict[str, str | None] = {}
        for part in answer.classification.chosen:
            if part.butler in answer.carried_out:
                outcomes[part.butler] = None
            else:
                outcomes[part.butler] = await _routed_by(route_fn, part, case.question.text, case.context)
        return outcomes

    async def _delivered(self, case: _Case, answer: SessionOutcome) -> RoutingResult:
        """Store the message with its deliveries, if it has any."""
        outcomes: dict[str, str | None] = dict.fromkeys(answer.carried_out)
        left = [part for part in answer.classification.chosen if part.butler not in outcomes]
        start = TeamId(case.question.team_id)
        live = await read_live(self._snapshots, start)
        targets, unknown = _targets(left, live)
        outcomes |= unknown
        if not targets:
            return _result(case, answer, outcomes)
        if teams := [target.team_id for target in targets.values() if target.team_id is not None]:
            live = await read_live(self._snapshots, start, teams)
        decision = await self._decided(case, live, _first(case.question, answer, targets))
        accepted = await inbox.accept_split(self._database, Arrival(case.message, decision), self._wake)
        if accepted.duplicate:
            return _duplicate(accepted.request_id)
        if accepted.waits:
            return _result(case, answer, outcomes, "waiting")
        return _result(
            case, answer, outcomes | {name: _lost(target, decision, live) for name, target in targets.items()}
        )

    def _wake(self) -> None:
        self._notifier.notify(WORK)

    async def _decided(self, case: _Case, live: Live, first: Classified) -> Decision:
        """Down the tree from the team that was asked about: by the rules, and by the model where no rule matches."""
        envelope = case.message.envelope
        # An embedder has no settings, so there are no schedules here, and no channels but ours; docs/models.md says so.
        known = facts(envelope, CHANNELS[envelope.source.channel])
        answers = {Undecided(live.start): first}
        while isinstance(found := decide_with(live.index, known, answers, start=live.start), Undecided):
            answers[found] = await self._asked_below(case, live, found)
        return found

    async def _asked_below(self, case: _Case, live: Live, asked: Undecided) -> Classified:
        began, message = perf_counter(), case.question.message
        part = replace(message, text=message.text if asked.segment is None else asked.segment)
        question = _asked(live, asked.team_id, replace(case.question, message=part))
        answer = await concluded(self._database, question, await self._answered(question, case.context), began)
        return classified(question, answer)


@dataclass(frozen=True, slots=True)
class _Case:
    """A message in the pipeline."""

    message: Message
    question: Question
    context: RoutingContext


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


def _given_id(context: JsonMapping) -> RequestId:
    """The request_id of a context that the Switchboard made. Raises InvalidInput for any other."""
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
    return RequestId(request_id)


def _new_id() -> RequestId:
    """Python's own UUIDv7 where it has one."""
    make: Callable[[], UUID] = getattr(uuid, "uuid7", new_uuid7)
    return RequestId(make())


def _question(message: Message, source: SourceMetadata, known: JsonMapping) -> Question:
    sender, payload = message.envelope.sender, message.envelope.payload
    asked = Asked(
        payload.normalized_text,
        source.source_channel or "unknown",
        sender.identity,
        sender.display_name,
        string(known.get("chat_type")) or None,
        string(known.get("sent_at")) or None,
    )
    team_id = string(known.get("team_id"))
    return Question(message.request_id, message.conversation, team_id, asked, tuple(payload.attachments))


def _asked(live: Live, team_id: TeamId, question: Question) -> Question:
    """The question about the live candidates of a team."""
    candidates, targets = live.candidates(team_id), live.targets(team_id)
    return replace(question, team_id=team_id, candidates=candidates, targets=targets)


def _strategy(question: Question, context: RoutingContext) -> Strategy:
    """What the Switchboard says of the channel, which may be one that only it knows; else that of our own channels."""
    given = LIMITS.get(string((context.request_context or {}).get("history")))
    return CHANNELS[question.message.channel].history if given is None else given.strategy


def _candidates(given: object) -> tuple[Candidate, ...]:
    try:
        return msgspec.convert(given, tuple[Candidate, ...], from_attributes=True)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"candidates: {error}", field="request_context.candidates") from None


# What becomes of it --------------------------------------------------------------------------------------------------


def _duplicate(first: UUID) -> RoutingResult:
    return RoutingResult("", {"status": "duplicate", "request_id": str(first)})


def _result(case: _Case, answer: SessionOutcome, outcomes: Mapping[str, str | None], status: str = "") -> RoutingResult:
    return result_of(case.context.request_id, answer.model, answer.classification, outcomes, status)


def _targets(parts: Iterable[RoutedPart], live: Live) -> tuple[dict[str, Target], dict[str, str]]:
    """The target of each name among the live ones, and why others have none: a context may bring its own names."""
    candidates, targets, unknown = live.candidates(live.start), dict[str, Target](), dict[str, str]()
    by_name = dict(zip((one.name for one in candidates), live.targets(live.start), strict=True))
    for part in parts:
        found = resolve(part.butler, candidates)
        if isinstance(found, str):
            targets[part.butler] = by_name[found]
        else:
            unknown[part.butler] = found.why
    return targets, unknown


def _first(question: Question, answer: SessionOutcome, targets: Mapping[str, Target]) -> Classified:
    """What the model chose, of the names that have a target."""
    found = answer.classification
    routed = tuple(part for part in found.routed if part.butler in targets)
    question = replace(question, candidates=tuple(Candidate(name) for name in targets), targets=tuple(targets.values()))
    return classified(question, replace(answer, classification=replace(found, routed=routed)))


def _lost(target: Target, decision: Decision, live: Live) -> str | None:
    """Why the part of a target was delivered to no butler; None if it was delivered."""
    if target.team_id is None:
        teams = frozenset({live.start})
        got = any(one.system_id == target.system_id for one in decision.chosen)
    else:
        teams = live.below(target.team_id)
        got = any(one.team_id in teams for one in decision.chosen)
    return None if got else "; ".join(one.reason for one in decision.unrouted if one.team_id in teams) or "not reached"


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

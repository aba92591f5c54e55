"""Asking a model: to which candidates of a team does a message go?

The route leg (`classify.py`) calls `ModelClassifier.ask` with a `Question` for each team in which no rule fired. It
returns a `Classified` or fails, saying whether, and when, another attempt makes sense. `pipeline.py` does the same for
embedders, through `by_session` and `conclude_classification`.

    Question → RoutingTask (prompt, tool, token) → Report of the models → Classification → Classified

Which models are asked is decided above this package: `app/classification` passes an `AskModels` over `llm/`. Next:
`route_call.py` for each call, `core/classification/judge.py` for what the calls mean.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from time import perf_counter
from typing import Final, Protocol
from uuid import UUID

import structlog
from msgspec import Struct, structs

from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.classification.history import LIMITS, select_history
from switchboard.core.classification.judge import is_ours, parse_calls, reconcile, unfit
from switchboard.core.classification.prompt import AskedMessage, Prompt, route_tool, routing_prompt
from switchboard.core.classification.result import in_no_part, word_by_word
from switchboard.core.text.lenient import sanitize_error
from switchboard.core.text.tokens import asked_tokens, estimate_tokens
from switchboard.core.uuid7 import uuid7_time
from switchboard.domain.classification import Candidate, Classification, Utterance
from switchboard.domain.envelope import Attachment
from switchboard.domain.errors import SwitchboardError, Unavailable
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.llm import ChatMessage, ModelAttempt, OfferedTool, Reply, Report, Request, ToolCall, ToolServer
from switchboard.domain.routing import Classified, Route, Target
from switchboard.domain.shown import ClassificationRow
from switchboard.journey.route_call import take
from switchboard.ports.channel import Strategy
from switchboard.ports.engine import NOT_DONE, Journal
from switchboard.store.database import Database
from switchboard.store.models import classification as store
from switchboard.store.models.classification import ClassificationSession, NewSession

log = structlog.get_logger(__name__)

SESSION_LIFETIME: Final = timedelta(minutes=10)
"""After this time the token of a session is invalid, even if nothing has ended the session."""
HISTORY_TOKENS: Final = 50_000
"""Limit of every history, including that of chats: thirty messages can be of any length."""
MAX_ANSWER_TOKENS: Final = 16_384
"""Maximum tokens of an answer; a model's own limit is lower."""
_DONE: Final = frozenset({"ok", "accepted"})
_NO_REPORT: Final = Report(Reply())
_NO_CANDIDATE: Final = "there are no candidates: no butler is alive and reachable"
_NOT_RECORDED: Final = "it reports a call that our server has no record of"


class Question(Struct, frozen=True):
    """To which of the `candidates` of a team to send this message, or the part that reached the team.

    A candidate is named by its system_id or team_id; `targets`, if given, run parallel to the candidates.
    """

    request_id: UUID
    conversation: str
    team_id: str
    message: AskedMessage
    attachments: tuple[Attachment, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    targets: tuple[Target, ...] = ()
    attempt: int = 1
    """Which attempt of the item that waits for the answer."""

    @property
    def text(self) -> str:
        """The text to classify."""
        return self.message.text


class ClassifierFailure(Exception):
    """No model could be asked, or none answered. Retryable failures are tried again, others are final."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class ClassifierBusy(ClassifierFailure):
    """Try again in `retry_in` seconds at the earliest. `asked`: whether any model was asked."""

    def __init__(self, message: str, *, retry_in: float = 0.0, asked: bool = True) -> None:
        super().__init__(message)
        self.retry_in = retry_in
        self.asked = asked


class Classifier(Protocol):
    """Asks models. Paid requests go through `journal.step`, as `classify <team_id> <digest>`, to be paid for once.

    The digest is that of the text: the rules may change between two attempts, and with them the part of the message
    that reaches a team.
    """

    async def ask(self, question: Question, journal: Journal) -> Classified:
        """Return the chosen candidates. Raises `ClassifierFailure`, `Fenced`, `OutcomeUnknown`, `Unavailable`."""


@dataclass(frozen=True, slots=True)
class RoutingTask:
    """The input of one session: the prompt, and access to our tool for a session that calls tools itself.

    `prompt.text` is the whole as one text; `tool` is `route_to_butler` with the JSON Schema of its arguments. `token`
    permits this one tool at `/mcp`, for this message only, until the session is over; `taken` says whether a call has
    arrived there and was accepted.
    """

    prompt: Prompt
    tool: OfferedTool
    request_id: str
    candidates: tuple[Candidate, ...]
    token: str = field(repr=False)
    taken: Callable[[], Awaitable[bool]] = field(repr=False)

    @property
    def text(self) -> str:
        """The whole prompt."""
        return self.prompt.text

    def request(self, mcp_url: str | None, deadline: float, max_tokens: int = MAX_ANSWER_TOKENS) -> Request:
        """The request to a model; `mcp_url` is where command lines call the tool."""
        return Request(
            (ChatMessage("user", self.prompt.question),),
            self.prompt.instructions,
            (self.tool,),
            force=self.tool.name,
            max_tokens=max_tokens,
            deadline=deadline,
            key=self.request_id,
            server=None if mcp_url is None else ToolServer(mcp_url, self.token),
        )

    def shorter(self, request: Request, tokens: int) -> Request:
        """The request with as much of the history as fits within `tokens`; everything else is always included."""
        around = asked_tokens(request) - estimate_tokens(request.text)
        prompt = self.prompt.within(tokens - around)
        return replace(request, messages=(ChatMessage("user", prompt.question),))

    async def unfit(self, reply: Reply) -> str | None:
        """What is wrong with a reply; None if it routes the message. Our server's record is trusted, not the reply."""
        wrong = unfit(reply, self.candidates)
        if wrong is not None or not any(is_ours(call) and call.ok for call in reply.calls):
            return wrong
        return None if await self.taken() else _NOT_RECORDED


AskModels = Callable[[RoutingTask], Awaitable[Report]]
"""Runs one session. If no model answered, that is an outcome, not an error."""


class SessionOutcome(Struct, frozen=True):
    """The outcome of a session. `carried_out`: the butlers to which the session itself has passed the message."""

    classification: Classification
    report: Report = _NO_REPORT
    session_id: UUID | None = None
    carried_out: frozenset[str] = frozenset()

    @property
    def model(self) -> str | None:
        """The model that answered, otherwise the last one asked."""
        reply, last = self.report.reply, self.report.last
        return (reply.model if reply is not None else None) or (last.name if last is not None else None)


async def history_of(database: Database, question: Question, strategy: Strategy) -> tuple[Utterance, ...]:
    """The earlier messages of the conversation, as far as the channel's strategy shows them.

    Their age is measured from the receipt of the message being classified, which may have waited for a model.
    """
    limits = LIMITS[strategy]
    if not question.conversation or strategy == "none":
        return ()
    limits = structs.replace(limits, max_tokens=min(limits.max_tokens or HISTORY_TOKENS, HISTORY_TOKENS))
    received = uuid7_time(question.request_id)
    said = await store.history(database, question.conversation, question.request_id, limits, received)
    return select_history(said, limits, received)


async def by_session(
    database: Database, question: Question, said: Sequence[Utterance], ask: AskModels
) -> SessionOutcome:
    """Run one session. Its token is revoked before its record is read, so that no call can arrive afterwards."""
    if not question.candidates:
        return SessionOutcome(Classification(error=_NO_CANDIDATE))
    secret = store.SESSION_PREFIX + token_urlsafe(32)
    session = await _open_session(database, question, secret)
    q, tool = question, route_tool(question.candidates)
    prompt = routing_prompt(q.candidates, q.message, said, q.attachments, q.team_id)
    task = RoutingTask(prompt, tool, str(q.request_id), q.candidates, secret, lambda: _has_taken(database, session))
    try:
        report = await _run_session(ask, task)
        if report.reply is not None and not report.reply.by_program:
            report = structs.replace(report, reply=await _carried_out(database, session, report.reply))
    finally:
        await store.end_session(database, session.session_id)
    return await _evaluate_report(database, session, report)


async def conclude_classification(
    database: Database, question: Question, answer: SessionOutcome, began: float
) -> SessionOutcome:
    """The answer, with segments in the message's own words, and a log row per attempt. `began`: perf_counter."""
    answer = structs.replace(answer, classification=word_by_word(answer.classification, question.text))
    ms = round((perf_counter() - began) * 1000)
    names = tuple(candidate.name for candidate in question.candidates)
    row = ClassificationRow(
        question.request_id, question.conversation, question.team_id, names, session_id=answer.session_id
    )
    for tried in answer.report.tried:
        why = f"{tried.outcome}: {tried.message}"[:1000]
        await store.log_attempt(
            database, replace(_add_usage(row, tried), model=tried.name, duration_ms=tried.ms, error=why)
        )
        ms -= tried.ms
    last = replace(
        _last_billed(row, answer.report), model=answer.model, duration_ms=max(0, ms), error=answer.classification.error
    )
    await store.log_attempt(database, replace(last, result=store.classification_record(answer.classification)))
    return answer


def classified_from_outcome(question: Question, answer: SessionOutcome) -> Classified:
    """The answer in the form that the decision needs; failed if nobody was chosen."""
    if not answer.classification.chosen:
        return Classified(failed=answer.classification.error or "no answer")
    return _classified_from_record(question, _record(question, answer))


class ModelClassifier:
    """Asks models: the `Classifier` of a worker. `attempts`: the last one accepts an incomplete split."""

    def __init__(self, database: Database, ask: AskModels, attempts: int, channels: Channels = CHANNELS) -> None:
        self._database = database
        self._ask = ask
        self._attempts = attempts
        self._channels = channels

    async def ask(self, question: Question, journal: Journal) -> Classified:
        """Return the chosen candidates; after a crash, from the journal, not paid twice. Raises ClassifierFailure."""

        async def act(_: UUID) -> object:
            return await self._classify_question(question)

        # Nothing should be paid for twice, so the answer is recorded before it takes effect; without a record, the
        # model is asked again.
        found = await journal.step(_step(question), act, effect="queryable", ask=_not_known)
        return _classified_from_record(question, found)

    async def _classify_question(self, question: Question) -> JsonObject:
        """The classification in the form kept by the journal."""
        began = perf_counter()
        history = await history_of(self._database, question, self._channels[question.message.channel].history)
        answer = await by_session(self._database, question, history, self._ask)
        answer = await conclude_classification(self._database, question, answer, began)
        found = answer.classification
        if found.error is not None and (not found.chosen or question.attempt < self._attempts):
            raise _failure(answer)
        return _record(question, answer)


# One session ---------------------------------------------------------------------------------------------------------


async def _open_session(database: Database, question: Question, secret: str) -> ClassificationSession:
    q = question
    new = NewSession(q.conversation, q.request_id, q.team_id, q.candidates, SESSION_LIFETIME)
    session_id = await store.open_session(database, new, sha256(secret.encode()).digest())
    expires = datetime.now(UTC) + new.lifetime
    return ClassificationSession(new.conversation, new.request_id, new.team_id, new.candidates, session_id, expires)


async def _has_taken(database: Database, session: ClassificationSession) -> bool:
    recorded = await store.calls_of(database, session.request_id, session.session_id)
    return any(one.ok for one in recorded)


async def _run_session(ask: AskModels, task: RoutingTask) -> Report:
    """Run one session to the end, whatever the result: a session that was cut short may have made calls before."""
    try:
        return await ask(task)
    except Unavailable:
        raise
    except Exception as error:
        log.warning("session failed", request_id=task.request_id, error=error_text(error))
        return Report(Reply(errors=(error_text(error),), by_program=True))


def error_text(error: Exception) -> str:
    """The failure for an error raised by a caller's function."""
    if isinstance(error, TimeoutError):
        return sanitize_error(f"the session took too long{f': {error}' if str(error) else ''}")
    return sanitize_error(f"{type(error).__name__}: {error}")


async def _carried_out(database: Database, session: ClassificationSession, reply: Reply) -> Reply:
    """The reply after executing its pending calls: an API only names the calls to make."""
    calls: list[ToolCall] = []
    for call in reply.calls:
        if call.ok is not None or not is_ours(call):
            calls.append(call)
            continue
        try:
            result = await take(database, session, call.arguments)
        except SwitchboardError as error:
            result = {"status": "refused", "error": str(error)}
        calls.append(structs.replace(call, result=result, ok=result["status"] in _DONE, server=None))
    return replace(reply, calls=tuple(calls))


async def _evaluate_report(database: Database, session: ClassificationSession, report: Report) -> SessionOutcome:
    failure = report.failure
    reply = report.reply or Reply(errors=() if failure is None else (failure.message,), by_program=True)
    found = parse_calls(reply, session.candidates)
    recorded = await store.calls_of(database, session.request_id, session.session_id)
    if reply.by_program:
        found = reconcile(found, recorded)
        if failure is not None and not found.routed and not found.failed:
            found = structs.replace(found, error=failure.message)  # no session could have been interrupted
        return SessionOutcome(found, report, session.session_id)
    # If the reply reports success for a butler and our record does not, the session has served the butler itself.
    served = frozenset(found.acked) - {one.butler for one in recorded}
    return SessionOutcome(found, report, session.session_id, served)


# What is recorded --------------------------------------------------------------------------------------------------


def _add_usage(row: ClassificationRow, attempt: ModelAttempt) -> ClassificationRow:
    # Nothing was spent, or no price was reported: unknown is not free.
    used, cost = attempt.usage, attempt.micros / 1_000_000 or None
    return replace(row, tokens_in=used.input_tokens, tokens_out=used.output_tokens, cost_usd=cost)


def _last_billed(row: ClassificationRow, report: Report) -> ClassificationRow:
    if report.reply is None:
        return row if report.last is None else _add_usage(row, report.last)
    used = report.reply.usage
    return replace(row, tokens_in=used.input_tokens, tokens_out=used.output_tokens, cost_usd=used.cost_usd)


def _step(question: Question) -> str:
    """The name of the step; changed rules may send another part of the text, which is a different step."""
    return f"classify {question.team_id} {sha256(question.text.encode()).hexdigest()[:12]}"


async def _not_known(_: UUID) -> object:
    return NOT_DONE


def _failure(answer: SessionOutcome) -> ClassifierFailure:
    """Why there is no classification, and, if no model could be asked, when to try again."""
    failure = answer.report.failure
    if failure is None:
        return ClassifierFailure(answer.classification.error or "no answer")
    asked = answer.report.asked
    if failure.retryable and not (failure.retry_after is None and asked):
        return ClassifierBusy(failure.message, retry_in=failure.retry_after or 0.0, asked=asked)
    return ClassifierFailure(failure.message, retryable=failure.retryable)


def _record(question: Question, answer: SessionOutcome) -> JsonObject:
    """The classification as JSON. A sole butler gets the whole message; so do all if a part was not assigned."""
    found = answer.classification
    whole = found.error is not None or len(found.chosen) == 1
    parts = {route.butler: None if whole else route.segment for route in found.chosen}
    left = in_no_part(question.text, parts.values())
    notes = (
        f"by {answer.model or 'a model'}",
        ", inferred from its text" if found.inferred else "",
        "" if found.error is None else f"; the whole message, because a part was not assigned: {found.error}",
        f'; in no part: "{left}"' if left else "",
    )
    return {"parts": list(parts.items()), "detail": "".join(notes)[:2000]}


def _classified_from_record(question: Question, found: JsonMapping) -> Classified:
    """The recorded answer. Fails if a butler is no longer a candidate, as its part would be lost."""
    targets = {one.name: target for one, target in zip(question.candidates, question.targets, strict=True)}
    if gone := [name for name, _ in found["parts"] if name not in targets]:
        return Classified(failed=f"the model chose {', '.join(gone)}, which can no longer be reached")
    return Classified(tuple(Route(targets[name], part) for name, part in found["parts"]), detail=found["detail"])

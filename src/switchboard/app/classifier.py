"""The models behind the route leg: a `Classifier` that asks them through the pipeline.

`app/wiring.py` makes it for a worker; `journey/classify.py` calls it for each team in which no rule fired. A `Question`
enters; a `Classified` leaves, or a failure that says whether, and when, another attempt makes sense. Next:
`journey/pipeline.py`, and `agents/sessions/dispatch.py` for who is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from switchboard.agents.sessions.account import Hold
from switchboard.agents.sessions.bridge import Terms, ask, told
from switchboard.agents.sessions.dispatch import Dispatcher, Report
from switchboard.core.pipeline.result import in_no_part
from switchboard.core.policy.budget import Account, Amount, Cap, Refusal
from switchboard.domain.pipeline import RoutingResult
from switchboard.domain.routing import Classified, Route
from switchboard.journey.classify import ClassifierBusy, ClassifierFailure, Question
from switchboard.journey.pipeline import Dispatched, MessagePipeline, RoutingTask
from switchboard.lanes.journal import Journal
from switchboard.store import classification as store
from switchboard.store.classification import Reservation
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7

SOURCE: Final = "switchboard"
"""In whose name messages are routed."""
_HELD: Final = timedelta(minutes=10)
_NO_CAP: Final = Cap()


@dataclass(frozen=True, slots=True)
class Asking:
    """How models are asked: `attempts` of one message, seconds for all models of one, where our MCP server is."""

    attempts: int = 3
    timeout: float = 120.0
    mcp_url: str | None = None


class StoredDay:
    """The day's account in the database: one for all processes. Days are those of UTC."""

    def __init__(self, database: Database, today: Callable[[], date] = lambda: datetime.now(UTC).date()) -> None:
        self._database = database
        self._today = today

    async def reserve(self, wanted: Amount, cap: Cap) -> Hold | Refusal:
        """Set `wanted` aside, or say why not. Without a limit there is nothing to keep within, and nobody waits."""
        if cap == _NO_CAP:
            return Hold(wanted, f"{self._today().isoformat()} {new_uuid7()}")
        made = await store.reserve_day(self._database, self._today(), wanted, cap, _HELD)
        return made if isinstance(made, Refusal) else Hold(wanted, f"{made.day.isoformat()} {made.reservation_id}")

    async def settle(self, hold: Hold, actual: Amount) -> None:
        """Free the hold and book what it really cost, on the day when it was made."""
        day, _, reservation_id = hold.key.partition(" ")
        reservation = Reservation(UUID(reservation_id), date.fromisoformat(day), hold.amount)
        await store.settle_day(self._database, reservation, actual)


class ModelClassifier:
    """Asks the models of a dispatcher."""

    def __init__(self, database: Database, dispatcher: Dispatcher, asking: Asking) -> None:
        self._database = database
        self._dispatcher = dispatcher
        self._asking = asking

    async def classify(self, question: Question, journal: Journal) -> Classified:
        """Who gets it. A verdict is paid for once: after a crash the journal knows it. Raises ClassifierFailure."""

        async def act(_: UUID) -> object:
            return await self._ask(question)

        found = await journal.step(_step(question), act)
        return _classified(question, found)

    async def _ask(self, question: Question) -> dict[str, Any]:
        """The verdict, as the journal keeps it."""
        reports: list[Report] = []

        async def dispatch(task: RoutingTask) -> Dispatched:
            report = await self._run(task, question)
            reports.append(report)
            return told(report)

        pipeline = MessagePipeline(self._database.pool, dispatch, SOURCE)
        result = await pipeline.process(question.text, {}, request_context=_context(question))
        chosen = [name for name in result.routed_targets if name not in result.failed_targets]
        if result.classification_error is not None and (not chosen or question.attempt < self._asking.attempts):
            raise _failure(result, reports)
        return _record(result, chosen, question.text)

    async def _run(self, task: RoutingTask, question: Question) -> Report:
        terms = Terms(self._asking.mcp_url, self._asking.timeout)
        return await ask(self._dispatcher, task, terms, await self._spent(question))

    async def _spent(self, question: Question) -> Account:
        """What this message has cost so far, earlier attempts and other teams included."""
        rows = await store.attempts(self._database, question.request_id)
        tokens = sum(row.tokens_in + row.tokens_out for row in rows)
        return Account(spent=Amount(tokens, sum(row.cost or 0 for row in rows)))


def _step(question: Question) -> str:
    """By what the journal knows the verdict: about another part, as the rules may have it meanwhile, it is another."""
    return f"classify {question.team.team_id} {sha256(question.text.encode()).hexdigest()[:12]}"


def _context(question: Question) -> dict[str, Any]:
    """What the Switchboard knows of a message, in the words of a request context."""
    envelope = question.envelope
    known = {
        "request_id": str(question.request_id),
        "conversation": question.conversation,
        "team_id": question.team.team_id,
        "candidates": question.candidates,
        "source_channel": envelope.source.channel,
        "source_identity": envelope.source.provider,
        "source_endpoint_identity": envelope.source.endpoint_identity,
        "sender_identity": envelope.sender.identity,
        "sender_name": envelope.sender.display_name,
        "chat_type": envelope.sender.chat_type,
        "external_event_id": envelope.event.external_event_id,
        "external_thread_id": envelope.event.external_thread_id,
        "idempotency_key": envelope.control.idempotency_key,
        "sent_at": envelope.event.observed_at.isoformat(),
        "received_at": question.received_at.isoformat(),
        "attachments": envelope.payload.attachments,
        "lane": question.lane,
        "seq": question.seq,
    }
    return {name: value for name, value in known.items() if value is not None}


def _failure(result: RoutingResult, reports: list[Report]) -> ClassifierFailure:
    """Why there is no verdict. When nobody could be asked, when that may be better."""
    why = result.classification_error or "no verdict"
    failure = reports[-1].failure if reports else None
    if failure is None:
        return ClassifierFailure(why)
    if failure.retryable and not (failure.retry_after is None and reports[-1].asked):
        return ClassifierBusy(failure.message, retry_in=failure.retry_after or 0.0, asked=reports[-1].asked)
    return ClassifierFailure(failure.message, retryable=failure.retryable)


def _record(result: RoutingResult, chosen: list[str], text: str) -> dict[str, Any]:
    """The verdict as JSON. Whoever is left alone, and all whose message has a part for nobody, get the whole."""
    whole = result.classification_error is not None or len(chosen) == 1
    given = {one["butler"]: one["segment"] for one in result.route_result["targets"]}
    parts = {name: None if whole else given.get(name) for name in chosen}
    return {
        "routes": [{"butler": name, "segment": part} for name, part in parts.items()],
        "in_no_part": in_no_part(text, parts.values()),
        "model": result.route_result["model"],
        "inferred": result.route_result["inferred"],
        "error": result.classification_error,
    }


def _classified(question: Question, found: Mapping[str, Any]) -> Classified:
    """A verdict as an answer. Who of it is no candidate any more spoils all of it: his part would be lost."""
    targets = {one.name: target for one, target in zip(question.candidates, question.targets, strict=True)}
    routes = [Route(targets[one["butler"]], one["segment"]) for one in found["routes"] if one["butler"] in targets]
    gone = [one["butler"] for one in found["routes"] if one["butler"] not in targets]
    if gone:
        return Classified(failed=f"the model chose {', '.join(gone)}, which can no longer be reached")
    detail = f"by {found['model'] or 'a model'}"
    if found["inferred"]:
        detail += ", inferred from its text"
    if found["error"] is not None:
        detail += f"; whole, because a part went to nobody: {found['error']}"
    if found.get("in_no_part"):  # a verdict of an earlier release does not say
        detail += f'; in no part: "{found["in_no_part"]}"'
    return Classified(tuple(routes), detail=detail[:2000])

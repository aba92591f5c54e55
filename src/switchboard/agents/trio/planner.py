"""The planner: the router's model decides what to do with a message, and whether results answer it.

`run.py` and `steps.py` call `ModelPlanner` through the protocol of `port.py`; `app/plans/trying.py` tries it. Requests
are made in `core/planning/prompts.py`, answers read in `core/planning/ladder.py`; here they are sent and counted. Next:
`ports/models.py`, through which models are asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from msgspec import structs

from switchboard.agents.trio.port import Planned, PlanQuestion, Reviewed
from switchboard.agents.turns.requests import ModelUse
from switchboard.core.planning.ladder import Retry, SettledDecision, settle, settle_review
from switchboard.core.planning.machine import Plan
from switchboard.core.planning.prompts import (
    FittedRequest,
    Make,
    asked_again,
    refused_schema,
    review_request,
    route_request,
    with_room,
    without_schema,
)
from switchboard.core.text.tokens import fits
from switchboard.domain.llm import ModelAttempt, ModelFailure, Reply, Report, Request, Usage
from switchboard.domain.planning import Review
from switchboard.ports.engine import ModelUsage
from switchboard.ports.models import Asking, Habits, Models

ASKER: Final = "plan"
"""The purpose of requests, in the rows of usage."""
UNKNOWN_CONTEXT: Final = 4_096
"""Assumed context of a router's model, in tokens, if unknown: routers are small, and a cut-off plan is useless."""

T = TypeVar("T")


@dataclass
class _Climb:
    """One climb of the ladder. `window` is the context of the first model; `ends` is by the clock of the event loop."""

    question: PlanQuestion
    make: Make
    window: int
    ends: float
    answers: list[Reply] = field(default_factory=list)
    use: ModelUse = field(default_factory=ModelUse)
    notes: list[str] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """The tokens that may still be generated."""
        return self.question.tokens - sum(one.output_tokens for one in self.use.usage)

    def book(self, attempt: ModelAttempt, reserved: int) -> None:
        """Book the usage of an attempt; if unreported, everything that it might have generated."""
        used = attempt.usage
        cost = attempt.micros / 1e6 if attempt.micros or used.cost_usd is not None else None
        generated = reserved if used.estimated else used.output_tokens
        name, read, wrote = attempt.name, used.cache_read, used.cache_write
        self.use.add(ModelUsage(name, used.input_tokens, generated, read, wrote, cost))


class ModelPlanner:
    """Plans by asking models. Remembers what it learns of each beyond the settings: no schemas, or thinking."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._learned: dict[str, Habits] = {}

    def _habits(self, name: str) -> Habits:
        return self._learned.get(name) or self._models.habits(name)

    async def plan(self, question: PlanQuestion) -> Planned:
        """As in the protocol."""
        climb = await self._climb(question, partial(route_request, question.text, question.menu))

        def read(answers: Sequence[Reply]) -> SettledDecision | Retry:
            return settle(answers, question.menu, question.limits, question.templates)

        found = await self._settle_decision(climb, read)
        if isinstance(found, Retry):
            found = SettledDecision(question.templates.best, "template", len(climb.answers), faults=found.faults)
        return Planned(found, climb.use.usage, tuple(climb.notes))

    async def review(self, question: PlanQuestion, plan: Plan, texts: Mapping[str, str]) -> Reviewed:
        """As in the protocol."""

        def read(answers: Sequence[Reply]) -> Review | Retry:
            return settle_review(answers, question.menu, question.limits, plan.steps)

        climb = await self._climb(question, partial(review_request, plan, question.text, texts, question.menu))
        found = await self._settle_decision(climb, read)
        return Reviewed(Review("complete") if isinstance(found, Retry) else found, climb.use.usage, tuple(climb.notes))

    async def _climb(self, question: PlanQuestion, make: Make) -> _Climb:
        ends = asyncio.get_running_loop().time() + question.seconds
        return _Climb(question, make, await self._models.context(question.models[0], UNKNOWN_CONTEXT), ends)

    async def _settle_decision(self, climb: _Climb, read: Callable[[Sequence[Reply]], T | Retry]) -> T | Retry:
        """The decision that follows from the answers; `Retry` if none does and asking again is not possible.

        Raises ModelFailure.
        """
        asked = self._fit_request(climb.make, climb)
        climb.notes += _notes_of(asked)
        climb.answers.append(await self._reply(asked.request, climb.make, climb))
        found = read(climb.answers)
        if not isinstance(found, Retry) or climb.tokens < climb.question.limits.least:
            return found
        make = partial(asked_again, climb.make, _text_of_reply(climb.answers[0]), found.text)
        try:
            reply = await self._reply(self._fit_request(make, climb).request, make, climb)
        except ModelFailure as failure:
            climb.notes.append(f"the router was not asked again: {failure.message}")
            return found
        climb.answers.append(reply)
        return read(climb.answers)

    def _fit_request(self, make: Make, climb: _Climb, window: int | None = None) -> FittedRequest:
        """A request with room for its answer: at most what the context leaves."""
        limits, thinks = climb.question.limits, self._habits(climb.question.models[0]).thinks
        wanted = min(limits.thinking_tokens if thinks else limits.router_tokens, climb.tokens)
        return with_room(make, wanted, climb.window if window is None else window)

    async def _reply(self, request: Request, make: Make, climb: _Climb) -> Reply:
        """The answer to a request. A model that rejects schemas is asked again, and from then on, without one."""
        if not self._habits(climb.question.models[0]).schemas:
            request = without_schema(request)
        report = await self._ask_models(request, make, climb)
        refused = refused_schema(report)
        if report.reply is None and request.tools and refused:
            self._learned |= {name: structs.replace(self._habits(name), schemas=False) for name in refused}
            climb.notes.append(f"{', '.join(sorted(refused))} takes no schema, and was asked without")
            report = await self._ask_models(without_schema(request), make, climb)
        if report.reply is None:
            raise _failure_with_usage(report, climb)
        name = report.reply.model
        if report.reply.stop_reason == "length" and name:
            self._learned[name] = structs.replace(self._habits(name), thinks=True)
        return report.reply

    async def _ask_models(self, request: Request, make: Make, climb: _Climb) -> Report:
        def shorter(whole: Request, tokens: int) -> Request:
            """A shorter request for a model with a smaller context than the first."""
            if fits(whole, tokens):
                return whole
            smaller = self._fit_request(make, climb, tokens + whole.max_tokens).request
            return smaller if whole.tools else without_schema(smaller)

        question = climb.question
        left = climb.ends - asyncio.get_running_loop().time()
        sent = replace(request, deadline=max(left, 0.0), whole=False, key=question.key)
        asking = Asking(
            question.models,
            ASKER,
            shorter=shorter,
            on_share_of=question.on_share_of,
            butler=question.butler,
            again=question.again,
            name=question.name,
        )
        report = await self._models.ask(sent, asking)
        for attempt in report.attempts:
            if attempt.asked:
                climb.book(attempt, sent.max_tokens)
        return report


def _text_of_reply(reply: Reply) -> str:
    """An answer as text."""
    return reply.text or "\n".join(one.malformed or json.dumps(dict(one.arguments)) for one in reply.calls)


def _failure_with_usage(report: Report, climb: _Climb) -> ModelFailure:
    """Why no model answered, with all usage until then."""
    failure = report.failure or ModelFailure("unavailable", "there is no model")
    used = climb.use.usage
    total = Usage(sum(one.input_tokens for one in used), sum(one.output_tokens for one in used))
    failure.reply = replace(failure.reply, usage=total)
    return failure


def _notes_of(asked: FittedRequest) -> list[str]:
    notes = []
    if asked.left_out:
        notes.append(f"the router was not told of {', '.join(asked.left_out)}: there was no space")
    if asked.cut_to is not None:
        notes.append(f"of its input the router was shown {asked.cut_to:,} characters: there was no space for more")
    return notes

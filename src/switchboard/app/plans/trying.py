"""What a planning butler would do with a message: asks its router without running the plan.

`server/http/plans.py` calls `PlanTrials`, for operators. The server process asks the models, so keys must be in its
environment; their cost is recorded as usual. In: a text; out: a `PlanTrial`. Next: `agents/trio/engine.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from switchboard.agents.trio.engine import TrioEngine
from switchboard.agents.trio.planner import ModelPlanner
from switchboard.agents.trio.port import Planned, PlanQuestion
from switchboard.app.models.process import ProcessModels
from switchboard.app.ops.engines import engine_context
from switchboard.app.runtime import Runtime
from switchboard.core.planning.ladder import PlanSource, SettledDecision
from switchboard.core.planning.read import steps_of
from switchboard.domain.errors import InvalidInput, NotFound
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.llm import ModelFailure
from switchboard.domain.planning import Pipeline, PipelineStep, RouteAction, RouteDecision
from switchboard.domain.routing import Member
from switchboard.journey.handing_on import below
from switchboard.ports.engine import EngineFailure, ModelUsage
from switchboard.store.models.mcp_tools import StoredPins
from switchboard.tools.mcp_servers import McpServers

_TRIO: Final = "trio"


@dataclass(frozen=True, slots=True)
class PlanTrial:
    """What a butler would do. `source` says where it is from: the router's answer as it is (`exact`), without
    thinking and fences (`stripped`), with its punctuation repaired (`repaired`), or a `template`.

    `tries`: how often the router was asked; `faults`: why an answer was not taken; `failure`: why there was none.
    `confidence` is null for a template. `notes`: what the router was not shown.
    """

    butler: str
    models: Sequence[str]
    source: PlanSource
    tries: int
    confidence: float | None
    unsure: bool
    action: RouteAction
    target: str
    args: JsonMapping
    steps: Sequence[PipelineStep]
    faults: Sequence[str]
    notes: Sequence[str]
    failure: str
    tokens_in: int
    tokens_out: int
    cost_usd: float | None


class PlanTrials:
    """Tries plans. Close it at the end."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        runtime.closing.push_async_callback(self._close)

    async def try_plan(self, text: str, butler: str | None) -> PlanTrial:
        """Ask the router of a butler, by default of the only one that plans. Raises NotFound, InvalidInput."""
        member, book = self._find_planner(butler), self._runtime.rule_book
        try:
            question = await self._engine.question(member, text, below(book.rules, book.remote_agents, member.team_id))
        except EngineFailure as failure:
            raise InvalidInput(str(failure), field="butler") from failure
        try:
            planned, why = await self._ask_router(question), ""
        except ModelFailure as failure:
            planned, why = _plan_from_template(question, failure), failure.message
        return _trial_of(member, question, planned, why)

    async def _ask_router(self, question: PlanQuestion) -> Planned:
        """Raises ModelFailure."""
        [router] = question.models
        if flaw := self._models.flaw(router):
            raise ModelFailure("auth", f"{router}, as this server has it: {flaw}")
        return await self._planner.plan(question)

    @cached_property
    def _models(self) -> ProcessModels:
        return ProcessModels(self._runtime.settings, self._runtime.database)

    @cached_property
    def _planner(self) -> ModelPlanner:
        return ModelPlanner(self._models)

    @cached_property
    def _engine(self) -> TrioEngine:
        settings, database = self._runtime.settings, self._runtime.database
        servers = McpServers(settings.servers, StoredPins(database), starts=False)
        return TrioEngine(engine_context(settings, database, self._runtime.channels, self._models, servers))

    async def _close(self) -> None:
        if "_models" in self.__dict__:
            await self._models.aclose()

    def _find_planner(self, butler: str | None) -> Member:
        members = self._runtime.rule_book.rules.members.values()
        planning = {str(one.system_id): one for one in members if one.engine == _TRIO and one.active}
        if butler is None and len(planning) == 1:
            return next(iter(planning.values()))
        found = None if butler is None else planning.get(butler)
        if found is not None:
            return found
        if not planning:
            raise InvalidInput("no active butler plans: give one the engine trio, see docs/plans.md", field="butler")
        there = ", ".join(sorted(planning))
        if butler is None:
            raise InvalidInput(f"several butlers plan; name one: {there}", field="butler")
        raise NotFound(f"no active butler {butler!r} has the engine trio; those that have: {there}")


def _plan_from_template(question: PlanQuestion, failure: ModelFailure) -> Planned:
    """The template that a turn uses if its router is unavailable."""
    used = failure.reply.usage
    spent = (ModelUsage(question.models[0], used.input_tokens, used.output_tokens),) if used.tokens else ()
    return Planned(SettledDecision(question.templates.best, "template", 0), spent)


def _trial_of(member: Member, question: PlanQuestion, planned: Planned, why: str) -> PlanTrial:
    settled, usage = planned.settled, planned.usage
    decided = settled.decision
    if isinstance(decided, Pipeline):
        decided = RouteDecision("pipeline", steps=decided.steps)
    costs = [one.cost_usd for one in usage if one.cost_usd is not None]
    return PlanTrial(
        butler=member.system_id,
        models=question.models,
        source=settled.source,
        tries=settled.tries,
        confidence=None if settled.source == "template" else decided.confidence,
        unsure=settled.unsure,
        action=decided.action,
        target=decided.target,
        args=decided.args,
        steps=steps_of(decided, question.limits),
        faults=settled.faults,
        notes=planned.notes,
        failure=why,
        tokens_in=sum(one.input_tokens for one in usage),
        tokens_out=sum(one.output_tokens for one in usage),
        cost_usd=sum(costs) if costs else None,
    )

"""Turns of the engine `trio` against scripted models: plans that are given, and what they run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from switchboard.agents.trio.engine import TrioEngine
from switchboard.agents.trio.port import Planned, Planner, PlanQuestion, Reviewed
from switchboard.core.planning.ladder import SettledDecision
from switchboard.core.planning.machine import Plan
from switchboard.domain.planning import Pipeline, PipelineAction, PipelineStep, Review, RouteDecision
from switchboard.llm.spec import ModelSpec
from switchboard.ports.engine import EngineContext, ModelUsage
from switchboard.ports.tools import Tool
from switchboard.testing.scripted_llm import ScriptedLlm
from tests.asking import spec
from tests.engines import Book
from tests.turning import Asked, NoMemos


def tool(name: str, target: str, needs: str = "", **args: object) -> PipelineStep:
    return PipelineStep(name, "tool", target, args, tuple(needs.split()))


def writes(
    name: str, needs: str = "", task: str = "Write.", action: PipelineAction = "specialist", most: int = 8_000
) -> PipelineStep:
    return PipelineStep(name, action, "synthesize", {"task": task}, tuple(needs.split()), most)


def review(name: str, needs: str = "") -> PipelineStep:
    return PipelineStep(name, "router_review", "review", {}, tuple(needs.split()))


@dataclass
class Given:
    """A planner whose plans and reviews are given; it counts what it was asked."""

    decision: Pipeline | RouteDecision
    reviews: Sequence[Review] = ()
    tokens: int = 30
    unsure: bool = False
    notes: tuple[str, ...] = ()
    """Of its reviews."""
    asked: list[PlanQuestion] = field(default_factory=list)
    reviewed: list[tuple[Plan, Mapping[str, str]]] = field(default_factory=list)

    async def plan(self, question: PlanQuestion) -> Planned:
        self.asked.append(question)
        return Planned(
            SettledDecision(self.decision, "exact", 1, self.unsure), (ModelUsage("router", 10, self.tokens),)
        )

    async def review(self, question: PlanQuestion, plan: Plan, texts: Mapping[str, str]) -> Reviewed:
        self.asked.append(question)
        self.reviewed.append((plan, texts))
        return Reviewed(self.reviews[len(self.reviewed) - 1], (ModelUsage("router", 10, self.tokens),), self.notes)


def plan(*steps: PipelineStep, **more: Any) -> Pipeline:
    return Pipeline(steps, **more)


@asynccontextmanager
async def a_trio(
    llm: ScriptedLlm,
    planner: Planner | None,
    tools: Sequence[Tool] = (),
    *,
    specs: Sequence[ModelSpec] = (),
    **context: Any,
) -> AsyncIterator[tuple[TrioEngine, Asked]]:
    """The engine over the scripted model, which plays all roles, or over these models."""
    models = Asked(specs or [spec("openai", llm.url, "m", timeout=20.0)])
    try:
        yield trio_engine(models, planner, tools, **context), models
    finally:
        await models.aclose()


def trio_engine(models: Asked, planner: Planner | None, tools: Sequence[Tool] = (), **context: Any) -> TrioEngine:
    given = {"workspaces": Path("/nonexistent"), **context}
    return TrioEngine(EngineContext(NoMemos(), Book(), models=models, **given), tools, planner=planner)

"""A worker with a butler whose router hands every message on; it works until all have ended, or it is killed.

    python -m tests.acceptance.handing_node DATABASE TRACE

The trace says `asked` for every question to the router.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from switchboard.agents.trio.port import Planned, PlanQuestion, Reviewed
from switchboard.core.planning.machine import Plan
from switchboard.domain.planning import RouteDecision
from switchboard.domain.routing import Rule, SystemId, TeamId
from switchboard.testing.echo import Echo
from tests.asking import spec
from tests.chaos.node import Trace
from tests.hands import at_work, settled
from tests.lab import butler, lab, rule, team_of
from tests.trios import Given, trio_engine
from tests.turning import Asked
from tests.waiting import eventually

NIGHT: Final = TeamId("night")
CLERK, OWL = SystemId("System1/clerk"), SystemId("System1/owl")
TREE: Final = (
    team_of(butler("clerk", "trio", owners=["api:alice"])),
    team_of(butler("owl"), team_id=NIGHT),
)
RULES: Final[tuple[Rule, ...]] = (rule(CLERK), rule(OWL, team=NIGHT))


class Handing:
    """A planner that says that it was asked."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._given = Given(RouteDecision("subagent", NIGHT))

    async def plan(self, question: PlanQuestion) -> Planned:
        self._trace.write("asked")
        return await self._given.plan(question)

    async def review(self, question: PlanQuestion, plan: Plan, texts: Mapping[str, str]) -> Reviewed:
        return await self._given.review(question, plan, texts)


async def work(url: str, trace: Path) -> None:
    """A worker, until all have ended."""
    async with lab(url, TREE, RULES) as parts:
        models = Asked([spec("openai", "http://127.0.0.1:9", "m")])
        try:
            engine = trio_engine(models, Handing(Trace(trace)))
            async with at_work(parts.worker({"trio": engine, "echo": Echo()})):
                await eventually(lambda: settled(parts))
        finally:
            await models.aclose()


def main(arguments: Sequence[str]) -> None:
    """As the command line says."""
    url, trace = arguments
    asyncio.run(work(url, Path(trace)))

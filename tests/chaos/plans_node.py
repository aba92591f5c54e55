"""A worker whose butler plans: its plans are drawn from the number in a message, its tools write down what they do.

    main([DATABASE, LLM, DIRECTORY])          it works until it is killed
    main([DATABASE, LLM, DIRECTORY, "last"])  … or until nothing is left to do
    main([DATABASE, LLM, DIRECTORY, "brief"]) … and stands still in the middle, and is taken for dead after two seconds

The trace says `ready PID` when it begins to work, and for every call of a tool `NAME KEY LABEL TIME`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from switchboard.agents.trio.port import Planned, PlanQuestion, Reviewed
from switchboard.core.planning.ladder import SettledDecision
from switchboard.core.planning.machine import Plan
from switchboard.core.policy.retry import OutagePolicy
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.planning import Pipeline, PipelineStep, Review
from switchboard.domain.routing import Rule
from switchboard.journey.turn import TurnLimits
from switchboard.lanes.faults import arm
from switchboard.ports.engine import ModelUsage
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.testing.scripted_llm import Call, Reply, Request
from tests.asking import spec
from tests.chaos.node import Trace
from tests.hands import at_work, settled
from tests.lab import butler, lab, rule, team_of
from tests.trios import review, tool, trio_engine, writes
from tests.turning import Act, Asked, Noting
from tests.waiting import eventually

TTL: Final = 2.0
BUDGET: Final = 8_000
CONVERSATIONS: Final = 60
TOOLS: Final = ("look", "pay", "ask")
LOOP: Final = "/loop"
"""How the label of a call ends that a specialist makes itself."""
TEAM: Final = team_of(
    butler(
        "clerk",
        "trio",
        owners=[f"api:s{n}" for n in range(CONVERSATIONS)],
        own=list(TOOLS),
        plan={"token_budget": BUDGET, "attempts": 100},
    )
)
RULES: Final[tuple[Rule, ...]] = (rule("System1/clerk"),)
OUTAGE: Final = OutagePolicy(least=0.2, most=1.0, told=60.0, given_up=600.0)
LIMITS: Final = TurnLimits(attempts=100, timeout=60, backoff_base=0.05, backoff_cap=0.5, outage=OUTAGE)


def message(n: int, least: int, most: int) -> str:
    """The text of a message whose plan has so many steps."""
    return f"plan {n} of {least} to {most} steps"


def plan_of(text: str) -> Pipeline:
    """The plan for a message: the same each time."""
    _, n, _, least, _, most, _ = text.split()
    dice = random.Random(int(n))
    count = dice.randint(int(least), int(most))
    return Pipeline(tuple(_step(dice, n, i) for i in range(1, count + 1)), token_budget=BUDGET)


def _step(dice: random.Random, n: str, i: int) -> PipelineStep:
    needs = sorted(dice.sample(range(1, i), min(i - 1, dice.choice((0, 1, 1, 2, 3)))))
    name, needed, label = f"s{i}", " ".join(f"s{need}" for need in needs), f"{n}.{i}"
    kind = dice.choices(("look", "pay", "ask", "write", "loop", "review"), (8, 3, 2, 4, 1, 1))[0]
    if kind in TOOLS:
        return tool(name, kind, needed, text=label)
    if kind == "review":
        return review(name, needed)
    action: Final = "specialist_with_tools" if kind == "loop" else "specialist"
    return writes(name, needed, f"Write {label}.", action)


class Drawn:
    """A planner that draws its plans; its reviews add a step at times."""

    async def plan(self, question: PlanQuestion) -> Planned:
        return Planned(SettledDecision(plan_of(question.text), "exact", 1), (ModelUsage("router", 10, 40),))

    async def review(self, question: PlanQuestion, plan: Plan, texts: Mapping[str, str]) -> Reviewed:
        more = len(plan.steps) % 3 == 0 and len(plan.steps) < 30
        label = f"{question.text.split()[1]}.{len(plan.steps) + 1}"
        added = (tool("more", "look", text=label),) if more else ()
        return Reviewed(Review("extend" if more else "complete", added), (ModelUsage("router", 10, 20 + len(texts)),))


def brain(request: Request) -> Reply:
    """Specialists with tools call one; all of them write a word."""
    if request.tools and not request.results:
        label = request.prompt.rpartition("Write ")[2].split()[0].rstrip(".")
        return Reply(calls=(Call("look", {"text": f"{label}{LOOP}"}),))
    return Reply(text="Written.")


def tools(trace: Trace) -> list[Noting]:
    """Each takes a moment."""

    def act(name: str) -> Act:
        async def acts(arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
            trace.write(name, scope.key, arguments["text"], repr(time.time()))
            await asyncio.sleep(random.random() * 0.06)
            return ToolOutcome(f"{name} {arguments['text']}")

        return acts

    return [
        Noting("look", act=act("look")),
        Noting("pay", "effectful", act("pay")),
        Noting("ask", "queryable", act("ask")),
    ]


async def work(url: str, llm: str, directory: Path, mode: str) -> None:
    """Until it is killed, or all is done."""
    ttl = TTL if mode == "brief" else 60.0
    async with lab(url, [TEAM], RULES) as parts:
        models = Asked([spec("openai", llm, "m", timeout=20.0, concurrency=CONVERSATIONS)], parts.database)
        trace = Trace(directory / "trace")
        engine = trio_engine(models, Drawn(), tools(trace), workspaces=directory / "workspaces")
        try:
            async with at_work(parts.worker({"trio": engine}, limits=LIMITS, ttl=ttl)):
                trace.write("ready", os.getpid())
                if mode == "last":
                    await eventually(lambda: settled(parts), within=240)
                else:
                    await asyncio.Event().wait()
        finally:
            await models.aclose()


def main(arguments: Sequence[str]) -> None:
    """As the command line says."""
    url, llm, directory, *more = arguments
    if more == ["brief"]:
        arm("before_step:40:s", lambda: os.kill(os.getpid(), signal.SIGSTOP))
    asyncio.run(work(url, llm, Path(directory), *more or [""]))

"""Random plans, carried out by the engine as a scheduler says that tries everything at every moment.

Their steps are tools and reviews. Time is virtual and stands still while anything happens, so that many steps end at
the same moment.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from switchboard.agents.trio.port import PlanQuestion, Reviewed
from switchboard.core.planning.machine import Plan
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.planning import PipelineStep, Review
from switchboard.ports.engine import EngineFailure
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.testing.engines import MemoryJournal, a_turn
from tests.asking import spec
from tests.trios import Given, trio_engine
from tests.turning import OWNER, Asked, Noting
from tests.unit.planning.scheduler import BruteForce, Case, Course, case


class _Selector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen"
        self.now += max(timeout, 0.0)
        return []


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


@dataclass
class _World(Given):
    """What the tools and reviews of a case do, and when: `started` and `ended` in seconds, by step."""

    journal: MemoryJournal = field(default_factory=MemoryJournal)
    courses: Mapping[str, Course] = field(default_factory=dict)
    adds: Mapping[str, Review] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    async def review(self, question: PlanQuestion, plan: Plan, texts: Mapping[str, str]) -> Reviewed:
        [name] = [step.id for step in plan.steps if step.action == "router_review" and step.id in plan.running]
        await self._pass(name)
        self.reviews = (*self.reviews, self.adds.get(name, Review("complete")))
        return await super().review(question, plan, texts)

    async def look(self, _: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """What a step does that calls the tool."""
        [name] = [path for path in self.journal.record.started if self.journal.record.key(path) == scope.key]
        await self._pass(name)
        return ToolOutcome("said", ok=self.courses.get(name, Course()).state == "done")

    async def _pass(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        self.started[name] = loop.time()
        try:
            await asyncio.sleep(self.courses.get(name, Course()).takes)
        finally:
            self.ended[name] = loop.time()


def _only_tools_and_reviews(one: Case) -> Case:
    """A review never ends at the moment of anything else, nor is the plan stopped then: either might be told first.

    After a review that gives up a scheduler would not stop what runs; the engine does.
    """
    steps = tuple(_plain(step) for step in one.pipeline.steps)
    reviews = [step.id for step in steps if step.action == "router_review"]
    adds = {name: structs.replace(added, steps=tuple(map(_tool, added.steps))) for name, added in one.adds.items()}
    courses = dict(one.courses)
    for n, name in enumerate(reviews):  # fractions of a second whose sums are all different, and less than a half
        courses[name] = replace(courses[name], takes=courses[name].takes + 2.0 ** -(n + 2), state="done")
    halt = None if one.halt is None else one.halt[0] + 0.5
    return replace(
        one,
        pipeline=structs.replace(one.pipeline, steps=steps, token_budget=100_000),
        courses=courses,
        adds=adds if halt is None else {name: added for name, added in adds.items() if added.verdict != "give_up"},
        halt=None if halt is None else (halt, "cancelled"),
        together=True,
    )


def _plain(step: PipelineStep) -> PipelineStep:
    return replace(step, target="review", args={}) if step.action == "router_review" else _tool(step)


def _tool(step: PipelineStep) -> PipelineStep:
    return replace(step, action="tool", target="look", args={"text": str(step.args["n"])})


async def _ran(one: Case, world: _World) -> None:
    stop = asyncio.Event()
    if one.halt is not None:
        asyncio.get_running_loop().call_later(one.halt[0], stop.set)
    options = {"owners": OWNER, "plan": {"at_once": one.limits.at_once, "steps": one.limits.steps}}
    turn = replace(a_turn(options), stop=stop)
    models = Asked([spec("openai", "http://127.0.0.1:1", "m")])
    try:
        await trio_engine(models, world, [Noting("look", act=world.look)]).run(turn, world.journal)
    except EngineFailure as failure:
        if "nothing of the plan was done" not in str(failure):
            raise
    finally:
        await models.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@given(st.integers(0, 2**64).map(lambda seed: _only_tools_and_reviews(case(Random(seed)))))
def test_everything_starts_and_ends_when_a_brute_force_scheduler_says_so(one: Case) -> None:
    expected = BruteForce(one).run()
    world = _World(one.pipeline, courses=one.courses, adds=one.adds)
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(_ran(one, world))
    assert world.started == expected.started
    assert world.ended == {name: expected.ended[name][0] for name in world.started}
    states = {name: world.journal.on_record()[name].state for name in expected.ended}
    assert states == {name: state for name, (_, state) in expected.ended.items()}

"""Measures the cost of a plan beyond its steps: its time over that of its longest chain, and that of empty steps.

Called by `switchboard bench plan`, and by a test that asserts everything but the times. The engine `trio` runs given
plans, alternating between the journal of the database and one in memory. No model writes plans of this size: the
limits are raised so that the executor itself is measured.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from random import Random
from secrets import token_urlsafe
from statistics import median
from time import perf_counter
from typing import Final

from msgspec import Struct

from switchboard.agents.trio.engine import TrioEngine
from switchboard.agents.trio.port import Planned, PlanQuestion, Reviewed
from switchboard.app.ops.engines import engine_context
from switchboard.app.runtime import Switchboard
from switchboard.app.settings import Settings
from switchboard.app.wiring import open_runtime, open_switchboard
from switchboard.bench import lab
from switchboard.bench.turn import submission
from switchboard.core.planning.ladder import SettledDecision
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.machine import Plan
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.llm import Report, Request
from switchboard.domain.planning import Pipeline, PipelineStep, Review
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.journey.accept import AcceptLeg
from switchboard.lanes.journal import StepLog, StoredJournal
from switchboard.lanes.kinds import KINDS, WORK_POOL
from switchboard.ports.engine import Answer, EngineContext, Journal
from switchboard.ports.models import NO_CONTEXT, USUAL, Asking, Habits
from switchboard.ports.tools import ToolOutcome, ToolScope, ToolSpec
from switchboard.store.database import Database
from switchboard.store.work import lanes, processes
from switchboard.store.work.processes import NewProcess
from switchboard.testing.engines import MemoryJournal, a_turn

SIZES: Final = (101, 401)
LIMITS: Final = PlanLimits(steps=512, at_once=64)
_DONE: Final = "done"
_WORK: Final = "work"
_BEHIND: Final = 24
"""A step needs some of this many before it, so fewer than `at_once` can ever run in parallel."""
_OPTIONS: Final = {
    "plan": {"steps": LIMITS.steps, "at_once": LIMITS.at_once},
    "grants": {"owners": [_WORK], "others": [_WORK], "groups": [_WORK]},
}
_TTL_S: Final = 3600.0


class Both(Struct, frozen=True):
    """One figure, with the journal of the database and with one in memory."""

    journaled: float
    in_memory: float

    def over(self, base: float) -> Both:
        """Both as multiples of `base`."""
        return Both(self.journaled / base, self.in_memory / base)


class PlanResult(Struct, frozen=True):
    """Medians over the rounds. `ratio`: time divided by that of the longest chain, by number of steps; `free_us`:
    microseconds per empty step; `crowd`: the ratio for `plans` of the smallest size at once, until the last has ended.
    """

    ratio: Mapping[int, Both]
    free_us: Both
    crowd: Both
    plans: int


class Given(Struct, frozen=True):
    """A plan, and the seconds of its longest chain."""

    pipeline: Pipeline
    chain_s: float


def uneven(steps: int, seed: int) -> Given:
    """A plan in which each step takes up to 0.1 s, and needs up to three of those before it.

    The last step needs all steps that no other step needs.
    """
    chance = Random(seed)
    takes = [round(chance.random() * 0.1, 4) for _ in range(steps - 1)] + [0.0]
    needs = [_needs(chance, n) for n in range(steps - 1)]
    needed = {need for some in needs for need in some}
    needs.append([n for n in range(steps - 1) if n not in needed])
    ends: list[float] = []
    for took, some in zip(takes, needs, strict=True):
        ends.append(took + max((ends[need] for need in some), default=0.0))
    return Given(Pipeline(tuple(map(_step, range(steps), takes, needs))), max(ends))


def _needs(chance: Random, n: int) -> list[int]:
    before = range(max(0, n - _BEHIND), n)
    return sorted(chance.sample(before, min(len(before), chance.randint(1, 3))))


def _step(n: int, takes: float, needs: Sequence[int]) -> PipelineStep:
    return PipelineStep(f"s{n}", "tool", _WORK, {"seconds": takes}, tuple(f"s{need}" for need in needs))


def free(steps: int) -> Given:
    """A plan of steps that do nothing and need nothing."""
    return Given(Pipeline(tuple(_step(n, 0.0, ()) for n in range(steps))), 0.0)


async def measure(rounds: int = 5, plans: int = 100, sizes: Sequence[int] = SIZES) -> PlanResult:
    """Run it on a separate database."""
    async with AsyncExitStack() as stack:
        place = stack.enter_context(lab.home())
        server = await stack.enter_async_context(embedded_postgres(place / "data" / "postgres"))
        settings = Settings(database_url=server.url, data_dir=place / "data", teams_dir=place / "teams")
        runtime = await stack.enter_async_context(open_runtime(settings))
        runner = await _runner(await stack.enter_async_context(open_switchboard(runtime)))
        await runner.seconds(free(min(sizes)), 1, 1)  # start-up costs of the first plan
        single = {size: uneven(size, size) for size in sizes}
        nothing, crowd = free(max(sizes)), single[min(sizes)]
        return PlanResult(
            {size: (await runner.seconds(one, 1, rounds)).over(one.chain_s) for size, one in single.items()},
            (await runner.seconds(nothing, 1, rounds)).over(len(nothing.pipeline.steps) / 1e6),
            (await runner.seconds(crowd, plans, rounds)).over(crowd.chain_s),
            plans,
        )


class _Runner(Struct, frozen=True):
    """Runs plans as a worker of the database."""

    accept: AcceptLeg
    database: Database
    worker: int
    log: StepLog
    context: EngineContext

    async def seconds(self, given: Given, plans: int, rounds: int) -> Both:
        """Run this many plans at once, until the last has ended; medians. The two journals take turns."""
        journaled: list[float] = []
        in_memory: list[float] = []
        for _ in range(rounds):
            in_memory.append(await self._took(given, [MemoryJournal() for _ in range(plans)]))
            journaled.append(await self._took(given, await self._journals(plans)))
        return Both(median(journaled), median(in_memory))

    async def _journals(self, plans: int) -> Sequence[StoredJournal]:
        """The journals of new messages, each in its own conversation, whose lanes are claimed by us."""
        for chat in (token_urlsafe(8) for _ in range(plans)):
            message = lab.message(f"in {chat}", chat)
            message["event"]["observed_at"] = datetime.now(UTC).isoformat()  # old messages are caught up with slowly
            await self.accept.accept(submission(message))
        quota = {WORK_POOL.name: (plans,) * 4}
        items = await lanes.claim(self.database, self.worker, tuple(KINDS), quota)
        if len(items) != plans:
            raise ValueError(f"of {plans} messages {len(items)} could be claimed")
        works = await lanes.load_work(self.database, items)
        return [
            await StoredJournal.open(self.log, item, work.request_id) for item, work in zip(items, works, strict=True)
        ]

    async def _took(self, given: Given, journals: Sequence[Journal]) -> float:
        """Seconds until everything of the plans is on record."""
        engine = TrioEngine(self.context, (_Work(),), planner=_Planner(given.pipeline))
        began = perf_counter()
        answers = await asyncio.gather(*(engine.run(a_turn(_OPTIONS), journal) for journal in journals))
        await asyncio.gather(*(journal.flush() for journal in journals))
        took = perf_counter() - began
        steps = len(given.pipeline.steps)
        if any(not isinstance(one, Answer) or one.text.count(_DONE) != steps for one in answers):
            raise ValueError(f"a plan was not done: {answers[0]}")
        return took


async def _runner(parts: Switchboard) -> _Runner:
    runtime = parts.runtime
    new = NewProcess("worker", (), "bench", os.getpid(), "0", _TTL_S)
    worker = await processes.register(runtime.database, new)
    whole = engine_context(runtime.settings, runtime.database, runtime.channels)
    context = EngineContext(whole.memos, whole.remote_agents, models=_NoModels(), workspaces=whole.workspaces)
    return _Runner(parts.accept, runtime.database, worker, StepLog(runtime.database, worker), context)


class _Work:
    """A tool that takes the requested number of seconds."""

    spec = ToolSpec(
        _WORK, "Takes a while.", {"type": "object", "properties": {"seconds": {"type": "number"}}}, "idempotent"
    )

    async def call(self, arguments: JsonMapping, _: ToolScope) -> ToolOutcome:
        await asyncio.sleep(float(arguments["seconds"]))
        return ToolOutcome(_DONE)


class _Planner(Struct, frozen=True):
    """A planner with a given plan."""

    pipeline: Pipeline

    async def plan(self, _: PlanQuestion) -> Planned:
        return Planned(SettledDecision(self.pipeline, "exact", 1))

    async def review(self, question: PlanQuestion, plan: Plan, texts: Mapping[str, str]) -> Reviewed:  # noqa: ARG002
        return Reviewed(Review("complete"))


class _NoModels:
    """A model that these plans never ask."""

    names = ("none",)
    runners = ()

    async def context(self, _: str, unknown: int = NO_CONTEXT) -> int:
        return unknown

    def flaw(self, _: str) -> str | None:
        return None

    def habits(self, _: str) -> Habits:
        return USUAL

    async def ask(self, request: Request, asking: Asking) -> Report:  # noqa: ARG002
        raise ValueError("these plans ask no model")

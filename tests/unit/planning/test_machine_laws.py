"""The laws of `core/planning/machine.py`, on random plans. `make plans` tries 21,000 of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.machine import Finish, Park, Plan, Recorded, StartStep, StepEnd, StepEnded, resume
from switchboard.domain.planning import Pipeline, PipelineStep, Review
from tests.unit.planning.scheduler import GUARD, KEPT, BruteForce, Case, Course, Trace, by_machine, case

WIDE = settings(max_examples=3 * settings().max_examples)
SEEDS = st.integers(0, 2**64)
CASES = SEEDS.map(lambda seed: case(Random(seed)))
"""Drawn by one number each, which is a hundred times as fast as number by number; small plans come first."""


@WIDE
@given(CASES)
def test_everything_starts_and_ends_when_a_brute_force_scheduler_says_so(one: Case) -> None:
    trace, expected = by_machine(one), BruteForce(one).run()
    assert trace.started == expected.started
    assert trace.ended == expected.ended
    assert {step.id for step in trace.plan.steps} == {step.id for step in expected.steps}


@given(CASES)
def test_every_plan_ends_once_and_each_step_once_after_its_needs(one: Case) -> None:
    trace = by_machine(one)
    assert trace.plan.ended
    assert [isinstance(command, Finish) for command in trace.commands].count(True) == 1
    order = list(trace.plan.ends)
    assert sorted(order) == sorted(step.id for step in trace.plan.steps)
    for step in trace.plan.steps:
        assert all(order.index(need) < order.index(step.id) for need in step.needs) or trace.plan.halted
    for before, after in pairwise(trace.plans):
        assert list(after.ends)[: len(before.ends)] == list(before.ends)


@given(CASES)
def test_nothing_starts_before_what_it_needs_or_beyond_the_limits(one: Case) -> None:
    trace = by_machine(one)
    steps = {step.id: step for step in trace.plan.steps}
    for step in (steps[step_id] for step_id in trace.started):
        done = [trace.plan.ends[need].state == "done" for need in step.needs]
        assert all(done) or (any(done) and step.action != "tool") or step.action == "router_review"
        assert all(trace.ended[need][0] <= trace.started[step.id] for need in step.needs)
    for plan in trace.plans:
        assert len(plan.running) <= one.limits.at_once
        assert len(plan.steps) <= one.limits.steps
        assert plan.rounds <= one.pipeline.max_rounds
        assert plan.spent + sum(plan.running.values()) + KEPT <= one.pipeline.token_budget
        assert sum(steps[name].action == "router_review" for name in plan.running) <= 1


@given(CASES)
def test_after_something_from_outside_nothing_has_effects_without_approval(one: Case) -> None:
    trace = by_machine(one)
    for before, after in pairwise(trace.plans):
        for step in after.steps:
            begun = step.id in after.running and step.id not in before.running
            if begun and after.read_outside and GUARD.acts(step):
                assert step.id in trace.asked
                assert one.courses[step.id].approved


@given(CASES)
def test_a_plan_is_parked_only_when_nothing_runs(one: Case) -> None:
    for plan in by_machine(one).plans:
        assert plan.ended or plan.running or plan.asked


@WIDE
@given(CASES, SEEDS.map(Random))
def test_a_plan_is_the_same_after_any_part_of_it_is_on_record(one: Case, random: Random) -> None:
    """The ends are on record as far as they were committed, and are read in no order."""
    trace = by_machine(one)
    ends = list(trace.plan.ends.values())
    parts = [len(plan.ends) for plan in trace.plans] if one.together else range(len(ends) + 1)
    recorded = ends[: random.choice(parts)]
    live = next(plan for plan in trace.plans if len(plan.ends) >= len(recorded))
    plan, commands = resume(one.pipeline, one.limits, GUARD, on_record(one, live, recorded, random))
    if live.halted is not None:  # what had begun is not begun again
        left = {name: end for name, end in plan.ends.items() if name not in live.running}
        assert (plan.ended, left, plan.steps) == (True, dict(live.ends), live.steps)
        return
    assert seen(plan) == seen(live)
    assert {command.step.id for command in commands if isinstance(command, StartStep)} == set(live.running)
    assert any(isinstance(command, Finish) for command in commands) == live.ended


def on_record(one: Case, live: Plan, ends: list[StepEnd], random: Random) -> Recorded:
    reviews = {step.id for step in live.steps if step.action == "router_review"}
    found = [StepEnded(end, one.adds.get(end.id, Review("complete")) if end.id in reviews else None) for end in ends]
    return Recorded(
        random.sample(found, len(found)),
        begun=frozenset(live.running),
        approved=live.approved,
        halted=None if live.halted == "gave_up" else live.halted,
    )


def seen(plan: Plan) -> tuple[object, ...]:
    """What a plan is, apart from the order in which its steps ended."""
    kept = plan.steps, dict(sorted(plan.ends.items())), plan.rounds, set(plan.running), plan.asked
    return (*kept, plan.halted, plan.notes, plan.spent)


@given(CASES, SEEDS.map(Random))
def test_a_plan_that_is_resumed_ends(one: Case, random: Random) -> None:
    """Whatever is lost: what had begun is begun again, and what it had reserved counts as spent."""
    trace = by_machine(one)
    live = random.choice(trace.plans)
    recorded = on_record(one, live, list(live.ends.values()), random)
    lost = structs.replace(recorded, lost=sum(live.running.values()))
    again = by_machine(one, lambda: resume(one.pipeline, one.limits, GUARD, lost))
    assert again.plan.ended
    assert set(again.plan.ends) >= set(live.ends)


def test_nothing_waits_for_the_others_of_its_level() -> None:
    """And the scheduler that tries everything would notice a machine in which it did."""
    steps = (
        PipelineStep("s1", "tool", "own", {"n": 1}),
        PipelineStep("s2", "tool", "own", {"n": 2}),
        PipelineStep("s3", "tool", "own", {"n": 3}, ("s1",)),
    )
    one = Case(Pipeline(steps), PlanLimits(), {"s2": Course(takes=9)}, {})
    assert by_machine(one).started["s3"] == 1
    late = replace(one, pipeline=Pipeline((*steps[:2], replace(steps[2], needs=("s1", "s2")))))
    assert by_machine(late).started != BruteForce(one).run().started


def test_the_random_plans_have_everything_in_them() -> None:
    """A law over plans in which nothing happens would say nothing."""
    random = Random(1)
    traces: list[Trace] = [by_machine(case(random)) for _ in range(1500)]
    states = {state for trace in traces for _, state in trace.ended.values()}
    assert states == {"done", "failed", "skipped", "cancelled"}
    assert {trace.plan.rounds for trace in traces} == {1, 2, 3}
    assert any(trace.asked for trace in traces)
    assert any(isinstance(command, Park) for trace in traces for command in trace.commands)
    assert {trace.plan.halted for trace in traces} == {None, "cancelled", "deadline", "attempts", "gave_up"}

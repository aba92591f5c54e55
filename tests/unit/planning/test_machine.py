"""The machine of plans, case by case; `test_machine_laws.py` has what is true of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from switchboard.core.planning.guard import guard_of
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.machine import (
    Approved,
    AskApproval,
    Finish,
    Halt,
    Park,
    Plan,
    PlanCommand,
    PlanEvent,
    Record,
    Recorded,
    StartStep,
    StepEnd,
    StepEnded,
    StepRefused,
    StopStep,
    advance,
    begin,
    resume,
)
from switchboard.domain.planning import Pipeline, PipelineAction, PipelineStep, Review
from tests.unit.planning.menus import tool

GUARD = guard_of((tool("fetch", {}), tool("send", {}, effect="effectful")))


def step(name: str, needs: str = "", action: PipelineAction = "tool", target: str = "fetch") -> PipelineStep:
    return PipelineStep(name, action, target, {"of": name}, tuple(needs.split()))


def shown(commands: Sequence[PlanCommand]) -> list[str]:
    """Commands in a word each."""
    found = []
    for command in commands:
        match command:
            case StartStep(one, tokens):
                found.append(f"start {one.id}" + (f" {tokens}" if tokens else ""))
            case AskApproval(one):
                found.append(f"ask {one.id}")
            case Record(end):
                found.append(f"{end.state} {end.id}: {end.why}")
            case StopStep(name):
                found.append(f"stop {name}")
            case Park(names):
                found.append(f"park {' '.join(names)}")
            case Finish():
                found.append("finish")
    return found


def done(name: str, tokens: int = 0, review: Review | None = None) -> StepEnded:
    return StepEnded(StepEnd(name, "done", 10, tokens), review)


def failed(name: str) -> StepEnded:
    return StepEnded(StepEnd(name, "failed", why="404"))


RESEARCH = (step("s1"), step("s2"), step("s3", "s1 s2", "specialist", "synthesize"))
REVIEWED = (*RESEARCH, step("s4", "s3", "router_review", "review"))
MORE = Review("extend", (step("n1"), step("n2", "n1 s3", "specialist", "synthesize")))
SENDING = (step("s1"), step("s2", "s1", target="send"), step("s3", "s1"))
TWO_SENDING = (step("s1"), step("s2", "s1", target="send"), step("s3", "s1", target="send"))


@pytest.mark.parametrize(
    ("steps", "events", "expected"),
    [
        pytest.param(
            RESEARCH,
            [done("s2"), done("s1"), done("s3", 900)],
            [["start s1", "start s2"], [], ["start s3 1500"], ["finish"]],
            id="the example of the design",
        ),
        pytest.param(
            RESEARCH,
            [failed("s2"), done("s1"), done("s3")],
            [["start s1", "start s2"], [], ["start s3 1500"], ["finish"]],
            id="a specialist works with what there is",
        ),
        pytest.param(
            RESEARCH,
            [failed("s2"), failed("s1")],
            [["start s1", "start s2"], [], ["skipped s3: s1, s2 not done", "finish"]],
            id="a specialist without anything is skipped",
        ),
        pytest.param(
            (step("s1"), step("s2", "s1"), step("s3", "s2"), step("s4", "s3", "specialist")),
            [failed("s1")],
            [
                ["start s1"],
                ["skipped s2: s1 not done", "skipped s3: s2 not done", "skipped s4: s3 not done", "finish"],
            ],
            id="what needs a tool that failed is skipped, down to the end",
        ),
        pytest.param(
            REVIEWED,
            [failed("s1"), failed("s2"), done("s4", 10, Review("complete"))],
            [["start s1", "start s2"], [], ["skipped s3: s1, s2 not done", "start s4 800"], ["finish"]],
            id="a review looks at what has failed, too",
        ),
        pytest.param(
            REVIEWED,
            [done("s1"), done("s2"), done("s3"), done("s4", 10, MORE), done("s5"), done("s6")],
            [
                ["start s1", "start s2"],
                [],
                ["start s3 1500"],
                ["start s4 800"],
                ["start s5"],
                ["start s6 1500"],
                ["finish"],
            ],
            id="a review adds steps, which are numbered on",
        ),
        pytest.param(
            REVIEWED,
            [done("s1"), done("s2"), done("s3"), done("s4", 10, Review("extend", RESEARCH[:2]))],
            [["start s1", "start s2"], [], ["start s3 1500"], ["start s4 800"], ["finish"]],
            id="old ids are no new steps",
        ),
        pytest.param(
            REVIEWED,
            [
                done("s1"),
                done("s2"),
                done("s3"),
                done("s4", 10, Review("extend", (replace(RESEARCH[0], id="n1"),))),
            ],
            [["start s1", "start s2"], [], ["start s3 1500"], ["start s4 800"], ["finish"]],
            id="an extension of what is there already is complete",
        ),
        pytest.param(
            (step("s1", action="router_review"), step("s2", "s1")),
            [done("s1", 1, Review("give_up"))],
            [["start s1 800"], ["skipped s2: the review gave up", "finish"]],
            id="giving up starts nothing more",
        ),
        pytest.param(
            (step("s1", action="router_review"), step("s2"), step("s3", "s2")),
            [done("s1", 1, Review("give_up")), done("s2")],
            [["start s1 800", "start s2"], ["skipped s3: the review gave up"], ["finish"]],
            id="giving up stops nothing that runs",
        ),
        pytest.param(
            SENDING,
            [done("s1"), done("s3"), Approved("s2"), done("s2")],
            [["start s1"], ["start s3", "ask s2"], ["park s2"], ["start s2"], ["finish"]],
            id="the others go on while one waits for approval",
        ),
        pytest.param(
            TWO_SENDING,
            [done("s1"), StepRefused("s3", "not now"), Approved("s2"), Approved("s2"), done("s2")],
            [
                ["start s1"],
                ["ask s2", "ask s3", "park s2 s3"],
                ["failed s3: not now", "park s2"],
                ["start s2"],
                [],
                ["finish"],
            ],
            id="several wait, each for its own decision; a second one changes nothing",
        ),
        pytest.param(
            (step("s1", target="send"), step("s2", "s1"), step("s3", "s2", target="send")),
            [done("s1"), done("s2"), Halt("cancelled"), Approved("s3")],
            [["start s1"], ["start s2"], ["ask s3", "park s3"], ["cancelled s3: stopped", "finish"], []],
            id="nothing is read before the first; a stop takes what waits",
        ),
        pytest.param(
            RESEARCH,
            [done("s1"), Halt("cancelled"), Halt("deadline"), done("s2")],
            [["start s1", "start s2"], [], ["stop s2", "cancelled s3: stopped"], [], ["finish"]],
            id="an end that was on its way wins over a stop",
        ),
        pytest.param(
            RESEARCH,
            [done("s1"), Halt("deadline"), StepEnded(StepEnd("s2", "cancelled")), Halt("cancelled")],
            [["start s1", "start s2"], [], ["stop s2", "skipped s3: the time was up"], ["finish"], []],
            id="the time is up",
        ),
    ],
)
def test_courses(steps: tuple[PipelineStep, ...], events: Sequence[PlanEvent], expected: list[list[str]]) -> None:
    guard = structs.replace(GUARD, own=frozenset({"send"}))
    plan, commands = begin(Pipeline(steps), PlanLimits(), guard)
    found = [shown(commands)]
    for event in events:
        plan, commands = advance(plan, event)
        found.append(shown(commands))
    assert found == expected
    assert plan.ended


def run(
    steps: tuple[PipelineStep, ...], limits: PlanLimits | None = None, max_rounds: int = 3, token_budget: int = 20_000
) -> tuple[Plan, list[str]]:
    plan, commands = begin(Pipeline(steps, max_rounds, token_budget), limits or PlanLimits(), GUARD)
    return plan, shown(commands)


def test_no_more_than_the_limit_run_at_once() -> None:
    many = tuple(step(f"s{n}") for n in range(1, 6))
    plan, commands = run(many, PlanLimits(at_once=2))
    assert commands == ["start s1", "start s2"]
    assert shown(advance(plan, done("s2"))[1]) == ["start s3"]


def test_tokens_are_reserved_and_what_is_not_used_is_given_back() -> None:
    writers = tuple(step(f"s{n}", action="specialist") for n in (1, 2, 3))
    plan, commands = run(writers, token_budget=3_000)
    assert commands == ["start s1 1500"]  # 400 are kept, so for a second one too little is left
    plan, following = advance(plan, done("s1", 600))
    assert shown(following) == ["start s2 1500"]
    plan, following = advance(plan, done("s2", 1500))
    assert shown(following) == ["start s3 500"]
    plan, following = advance(plan, done("s3", 500))
    assert (shown(following), plan.spent) == (["finish"], 2600)


def test_without_tokens_models_are_skipped_and_tools_go_on() -> None:
    plan, commands = run(
        (step("s1", action="specialist"), step("s2", "s1"), step("s3", action="specialist")), token_budget=1_000
    )
    assert commands == ["start s1 600"]
    plan, following = advance(plan, done("s1", 600))
    assert shown(following) == ["skipped s3: the token budget was used up", "start s2"]


def test_one_round_has_no_review() -> None:
    plan, _ = run((step("s1"), step("s2", "s1", "router_review")), max_rounds=1)
    assert shown(advance(plan, done("s1"))[1]) == ["skipped s2: no round was left", "finish"]


def test_reviews_take_place_one_after_the_other() -> None:
    plan, commands = run(
        (step("s1", action="router_review"), step("s2", action="router_review"), step("s3")), max_rounds=2
    )
    assert commands == ["start s1 800", "start s3"]
    plan, following = advance(plan, done("s1", 1, Review("extend", (step("n1"),))))
    assert shown(following) == ["skipped s2: no round was left", "start s4"]


@pytest.mark.parametrize(
    ("review", "note"),
    [
        (Review("extend", (step("n1", "n2"), step("n2", "n1"))), "n1 → n2 → n1: these need each other in a circle"),
        (Review("extend", (step("n1", "s9"),)), "n1 needs s9, which is not there"),
        (Review("extend", tuple(step(f"n{n}") for n in range(4))), "a plan has at most 4 steps"),
    ],
)
def test_an_extension_that_cannot_be_is_left_out_and_said(review: Review, note: str) -> None:
    plan, _ = run((step("s1", action="router_review"),), PlanLimits(steps=4))
    plan, commands = advance(plan, done("s1", 1, review))
    assert shown(commands) == ["finish"]
    assert plan.notes == (f"what a review wanted to add was left out: {note}",)


def test_what_is_new_needs_what_was_there_instead_of_its_double() -> None:
    plan, _ = run((step("s1"), step("s2", "s1", "router_review")))
    plan, _ = advance(plan, done("s1"))
    added = (
        replace(step("s1"), id="n1"),
        step("n2", "n1", "specialist", "write"),
        step("n3", "n2 n1", "specialist", "write"),
    )
    plan, commands = advance(plan, done("s2", 1, Review("extend", added)))
    assert [(one.id, one.needs) for one in plan.steps[2:]] == [("s3", ("s1",)), ("s4", ("s3", "s1"))]
    assert (shown(commands), plan.rounds) == (["start s3 1500"], 2)


def test_a_specialist_that_is_given_more_is_no_double() -> None:
    plan, _ = run((step("s1"), step("s2", "s1", "specialist"), step("s3", "s2", "router_review")))
    for name in ("s1", "s2"):
        plan, _ = advance(plan, done(name))
    again = replace(plan.steps[1], id="n2", needs=("s1", "n1"))
    plan, _ = advance(plan, done("s3", 1, Review("extend", (step("n1"), again))))
    assert [one.id for one in plan.steps] == ["s1", "s2", "s3", "s4", "s5"]


def test_what_had_begun_is_begun_again_without_asking_again() -> None:
    ends = (done("s1"),)
    recorded = Recorded(ends, begun=frozenset({"s2"}), lost=1500)
    plan, commands = resume(Pipeline(TWO_SENDING), PlanLimits(), GUARD, recorded)
    assert (shown(commands), plan.spent) == (["start s2", "ask s3"], 1500)


def test_what_had_begun_comes_before_what_could_begin() -> None:
    steps = (step("s1"), step("s2", "s1"), step("s3", "s1"), step("s4"))
    recorded = Recorded((done("s1"),), begun=frozenset({"s2", "s4"}))
    _, commands = resume(Pipeline(steps), PlanLimits(at_once=2), GUARD, recorded)
    assert shown(commands) == ["start s2", "start s4"]


def test_what_had_begun_when_a_plan_was_stopped_may_have_taken_effect() -> None:
    recorded = Recorded((done("s1"),), begun=frozenset({"s2"}), halted="cancelled")
    _, commands = resume(Pipeline(SENDING), PlanLimits(), GUARD, recorded)
    doubt = "stopped; it had begun, and whether it took effect is not known"
    assert shown(commands) == [f"cancelled s2: {doubt}", "cancelled s3: stopped", "finish"]


def test_what_does_not_run_cannot_end() -> None:
    plan, _ = run(RESEARCH)
    with pytest.raises(ValueError, match="step s3 does not run, it is pending"):
        advance(plan, done("s3"))
    plan, _ = advance(plan, done("s1"))
    with pytest.raises(ValueError, match="step s1 does not run, it is done"):
        advance(plan, done("s1"))


def test_a_graph_that_is_none_does_not_begin() -> None:
    with pytest.raises(ValueError, match="s1 needs s2, which is not there"):
        run((step("s1", "s2"),))


def test_steps_in_any_order_begin_in_one_that_works() -> None:
    plan, commands = run(RESEARCH[::-1])
    assert ([one.id for one in plan.steps], commands) == (["s2", "s1", "s3"], ["start s2", "start s1"])

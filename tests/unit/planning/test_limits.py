"""The limits of plans are those that the page on plans names, and the options those of its tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from switchboard.agents.trio.options import PlanOptions, TrioOptions
from switchboard.agents.trio.planner import UNKNOWN_CONTEXT
from switchboard.core.planning.check import MOST_ARGS
from switchboard.core.planning.form import MOST_STEPS, MOST_TOOLS
from switchboard.core.planning.guard import guard_of
from switchboard.core.planning.ladder import SettledDecision, settle
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.machine import Recorded, StepEnd, StepEnded, resume
from switchboard.core.planning.prompts import LEAD_WORDS, review_request
from switchboard.core.planning.read import read_decision, read_review, steps_of
from switchboard.core.planning.templates import templates
from switchboard.domain.llm import Reply
from switchboard.domain.planning import Pipeline, PipelineAction, PipelineStep, Review, RouteDecision
from tests.unit.planning.answers import SEED
from tests.unit.planning.menus import ARXIV, CRATE, MENU

PAGE = (Path(__file__).parents[3] / "docs" / "plans.md").read_text(encoding="utf-8")
LIMITS = PlanLimits()
FIXED = {
    "steps of one form that the router fills in": MOST_STEPS,
    "tools that it is offered": MOST_TOOLS,
    "characters of the arguments of a step": MOST_ARGS,
    "tokens of context that a router has, unless they are known": UNKNOWN_CONTEXT,
    "words of a lead": LEAD_WORDS,
}


def table(head: str) -> Mapping[str, float]:
    """The second column of a table by the first."""
    [rows] = re.findall(rf"^\| {head} \|.*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    cells = ([cell.strip() for cell in row.split("|")] for row in rows.splitlines())
    return {cell[1].strip("`"): float(cell[2]) for cell in cells}


@pytest.mark.parametrize(("head", "limits"), [("limit", FIXED), ("`plan`", PlanOptions().model_dump())])
def test_the_page_names_every_limit_with_its_value(head: str, limits: Mapping[str, float]) -> None:
    assert table(head) == limits


def test_a_call_of_a_tool_has_half_a_minute_as_the_page_says() -> None:
    assert f"| `tool_timeout` | {TrioOptions().tool_timeout:g} | seconds for one call of a tool |" in PAGE
    assert PlanOptions().limits == LIMITS


# What each option changes ---------------------------------------------------------------------------------------------

RESERVED: Mapping[str, PipelineAction] = {
    "specialist_tokens": "specialist",
    "with_tools_tokens": "specialist_with_tools",
    "review_tokens": "router_review",
}
OTHERWISE = {"kept_tokens": "kept", "least_tokens": "least"}
OF_TURNS = {"max_rounds", "token_budget", "deadline", "attempts", "tries", "calls"}


def options(**given: float) -> PlanOptions:
    return PlanOptions.model_validate(given)


@pytest.mark.parametrize("name", sorted(PlanOptions.model_fields.keys() - OF_TURNS))
def test_an_option_is_a_limit_of_its_plans(name: str) -> None:
    value = {"unsure_below": 0.25, "thinking_tokens": 1_234, "template_budget": 2_345, "least_tokens": 123}.get(
        name, 456
    )
    limits = options(**{name: value}).limits
    found = limits.reserve[RESERVED[name]] if name in RESERVED else getattr(limits, OTHERWISE.get(name, name))
    assert found == value


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"tool_chars": 199}, "tool_chars"),
        ({"specialist_chars": 100_001}, "specialist_chars"),
        ({"unsure_below": 1.5}, "unsure_below"),
        ({"least_tokens": 0}, "least_tokens"),
        ({"token_budget": 599}, "token_budget must be at least 600 (kept_tokens and least_tokens together)"),
        ({"kept_tokens": 3_900}, "template_budget must be at least 4100 (kept_tokens and least_tokens together)"),
        ({"review_tokens": 100}, "review_tokens must be at least 200 (least_tokens)"),
        ({"router_tokens": 100}, "router_tokens must be at least 200 (least_tokens)"),
        ({"router_tokens": 3_000}, "thinking_tokens must be at least 3000 (router_tokens)"),
    ],
)
def test_options_that_no_plan_can_keep_to_are_named(given: Mapping[str, float], wrong: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(wrong)):
        options(**given)


def test_what_models_and_templates_plan_has_the_sizes_of_the_options() -> None:
    limits = options(tool_chars=300, specialist_chars=900, template_budget=1_000).limits
    decided = read_decision(SEED, MENU, limits)
    assert isinstance(decided, RouteDecision)
    added = read_review({"verdict": "extend", "steps": SEED["steps"]}, MENU, limits, ())
    assert isinstance(added, Review)
    single = read_decision({"action": "specialist", "target": "write", "args": {"task": "Write."}}, MENU, limits)
    assert isinstance(single, RouteDecision)
    found = templates(f"compare {ARXIV} {CRATE}", MENU, limits)
    assert found.matching is not None
    for steps in (steps_of(decided, limits), added.steps, found.matching.steps):
        assert [step.max_chars for step in steps] == [300, 300, 900]
    assert [step.max_chars for step in (*steps_of(single, limits), *found.plain.steps)] == [900, 900]
    assert {found.matching.token_budget, found.plain.token_budget} == {1_000}


@pytest.mark.parametrize(
    ("asked", "sizes"),
    [
        ([500, 600, 700], [500, 600, 700]),
        ([99_999, 9, 99_999], [2_000, 200, 3_000]),
        ([None, "700", True], [2_000, 2_000, 3_000]),
        ([0, -5, 1e9], [2_000, 2_000, 3_000]),
    ],
)
def test_what_a_router_says_of_sizes_counts_within_the_options(asked: list[object], sizes: list[int]) -> None:
    limits = options(tool_chars=2_000, specialist_chars=3_000).limits
    steps = [{**one, "max_chars": size} for one, size in zip(SEED["steps"], asked, strict=True)]
    decided = read_decision({**SEED, "steps": steps}, MENU, limits)
    added = read_review({"verdict": "extend", "steps": steps}, MENU, limits, ())
    assert isinstance(decided, RouteDecision)
    assert isinstance(added, Review)
    for found in (decided.steps, added.steps):
        assert [step.max_chars for step in found] == sizes


@pytest.mark.parametrize(("below", "source"), [(0.0, "exact"), (0.5, "template"), (0.3, "exact")])
def test_how_sure_a_router_must_be_is_an_option(below: float, source: str) -> None:
    limits = options(unsure_below=below).limits
    found = settle(
        [Reply('{"action": "respond", "confidence": 0.3}')], MENU, limits, templates("compare", MENU, limits)
    )
    assert isinstance(found, SettledDecision)
    assert found.source == source


def test_a_review_sees_twice_what_a_specialist_does() -> None:
    limits = options(specialist_chars=500).limits
    steps = (PipelineStep("s1", "specialist", "write", {"task": "Write."}),)
    one, _ = resume(Pipeline(steps), limits, guard_of(MENU.tools), Recorded([StepEnded(StepEnd("s1", "done"))]))
    assert review_request(one, "x" * 9_000, {"s1": "y" * 9_000}, MENU, 800, 32_768).cut_to == 1_000

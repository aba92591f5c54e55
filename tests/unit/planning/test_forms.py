"""One form per question: what a model is asked for, what is read in its place, and which names refusals use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from switchboard.core.planning.form import REVIEW, ROUTE_DECISION, review_tool, route_tool
from switchboard.core.planning.ladder import Retry, SettledDecision, Templates, settle
from switchboard.core.planning.machine import begin
from switchboard.core.planning.menu import SPECIALIST_TASKS, Menu
from switchboard.core.planning.prompts import review_request, route_request, without_schema
from switchboard.core.planning.read import Faulty, read_decision, read_review
from switchboard.core.text.tokens import estimate_tokens
from switchboard.core.turns.frozen import FrozenTool
from switchboard.domain.json_values import JsonObject
from switchboard.domain.llm import OfferedTool, Reply, Request
from switchboard.domain.planning import Pipeline, PipelineAction, PipelineStep, RouteAction, RouteDecision, Verdict
from switchboard.llm.bodies import local_chat
from switchboard.llm.json_form import for_grammars
from switchboard.llm.spec import ModelSpec
from switchboard.ports.tools import OfModule
from switchboard.tools.registry import build_tools
from tests.unit.planning.answers import plan, tool, write
from tests.unit.planning.menus import ARXIV, CRATE, LIMITS, MENU
from tests.unit.planning.menus import tool as menu_tool

LOCAL = ModelSpec("local", "openai", "m", base_url="http://127.0.0.1:1/v1", profile="local")
PLAIN = Templates(Pipeline((PipelineStep("s1", "specialist", "write", {"task": "Answer."}, (), 8_000),), 1, 4_000))
FETCH_A = tool("web_fetch", {"url": ARXIV})
FETCH_C = tool("web_fetch", {"url": CRATE})
EMPTY = Menu()
BEFORE = begin(Pipeline((PipelineStep("s1", "tool", "now"),), 3, 4_000), LIMITS, MENU.guard)[0]


def routed(menu: Menu = MENU) -> Request:
    return route_request("Compare the two.", menu, 800, 100_000).request


def reviewed(menu: Menu = MENU) -> Request:
    return review_request(BEFORE, "Compare the two.", {}, menu, 800, 100_000).request


@pytest.mark.parametrize("request_of", [routed, reviewed])
def test_what_is_called_once_is_asked_for_as_it_is(request_of: object) -> None:
    asked = routed() if request_of is routed else reviewed()
    form = local_chat(asked, LOCAL)["response_format"]["json_schema"]["schema"]
    assert form == for_grammars(asked.tools[0].parameters)
    assert not {"thought", "calls"} & set(form["properties"])


def test_of_what_may_be_called_more_than_once_a_list_is_asked_for() -> None:
    often = OfferedTool("route_to_butler", "Hands it on.", {"type": "object", "properties": {"to": {"type": "string"}}})
    asked = Request(routed().messages, "", (often,), often.name)
    form = local_chat(asked, LOCAL)["response_format"]["json_schema"]["schema"]
    assert list(form["properties"]) == ["thought", "calls"]


def decided(text: str) -> RouteDecision | tuple[str, ...]:
    found = settle([Reply(text)], MENU, LIMITS, PLAIN)
    if isinstance(found, Retry):
        return found.faults
    assert isinstance(found, SettledDecision)
    assert isinstance(found.decision, RouteDecision)
    return found.decision


def alone(step: JsonObject, **more: object) -> JsonObject:
    """A step as a decision: without what it needs."""
    return {name: value for name, value in step.items() if name != "needs"} | more


TWO_PAGES = [alone(FETCH_A, confidence=0.9), alone(FETCH_C, confidence=0.7), alone(write("Compare."), confidence=0.8)]


@pytest.mark.parametrize("wrap", [lambda calls: {"thought": "Both.", "calls": calls}, lambda calls: calls])
def test_a_list_of_tools_and_specialists_is_a_plan_in_order(wrap: object) -> None:
    assert callable(wrap)
    found = decided(json.dumps(wrap(TWO_PAGES)))
    assert isinstance(found, RouteDecision), found
    assert [(step.id, step.target, step.needs) for step in found.steps] == [
        ("s1", "web_fetch", ()),
        ("s2", "web_fetch", ("s1",)),
        ("s3", "synthesize", ("s1", "s2")),
    ]
    assert (found.action, found.confidence) == ("pipeline", 0.7)


@pytest.mark.parametrize("action", sorted({*get_args(RouteAction), *get_args(PipelineAction)} - {"tool", "specialist"}))
def test_a_list_with_any_other_action_is_refused(action: str) -> None:
    other = {"action": action, "target": "write", "args": {"task": "x", "question": "y?"}, "steps": []}
    found = decided(json.dumps({"calls": [alone(FETCH_A), other]}))
    assert isinstance(found, tuple)
    assert "one decision" in found[0]


def test_what_a_plan_reads_it_does_not_replace_by_constants() -> None:
    path = {"path": {"type": "string"}}
    fill = menu_tool("write_file", path | {"content": {"type": "string"}}, ("path", "content"), "effectful")
    menu = structs.replace(MENU, tools=(*MENU.tools, fill))
    read, drop = tool("read_file", {"path": "notes/a.md"}), tool("delete_file", {"path": "notes/a.md"}, 1)
    fill_in = tool("write_file", {"path": "notes/a.md", "content": "Good morning"}, 1)
    found = read_decision(plan(read, fill_in), menu, LIMITS)
    assert isinstance(found, Faulty)
    assert "specialist_with_tools" in found.faults[0]
    assert isinstance(read_decision(plan(read, drop), menu, LIMITS), RouteDecision)
    assert isinstance(read_decision(plan(write("Note it."), fill_in), menu, LIMITS), RouteDecision)


def test_what_no_specialist_sees_is_left_out_after_it_and_refused_before() -> None:
    search, compare = tool("web_search", {"query": "more"}, 3), write("Compare.", 1, 2)
    whole = read_decision(plan(FETCH_A, FETCH_C, compare), MENU, LIMITS)
    assert isinstance(whole, RouteDecision)
    assert read_decision(plan(FETCH_A, FETCH_C, compare, search), MENU, LIMITS) == whole
    unseen = read_decision(plan(FETCH_A, FETCH_C, write("Compare.", 1)), MENU, LIMITS)
    assert unseen == Faulty(("s2: nobody sees its result, since no specialist needs it; leave it out",))
    seen = read_decision(plan(FETCH_A, FETCH_C, compare, search, write("Add to it.", 3, 4)), MENU, LIMITS)
    alone = read_decision(plan(FETCH_A, search | {"needs": []}), MENU, LIMITS)
    assert [len(found.steps) for found in (seen, alone) if isinstance(found, RouteDecision)] == [5, 2]


def test_steps_behind_one_that_is_left_out_are_numbered_anew() -> None:
    drop, search = tool("delete_file", {"path": "notes/a.md"}, 3), tool("web_search", {"query": "more"}, 1)
    found = read_decision(plan(write("Say it."), drop, search), MENU, LIMITS)
    assert isinstance(found, RouteDecision)
    assert [(step.id, step.target, step.needs) for step in found.steps] == [
        ("s1", "synthesize", ()),
        ("s2", "delete_file", ("s1",)),
    ]


# Refusals and prompts -------------------------------------------------------------------------------------------------

OURS = {
    *get_args(RouteAction),
    *get_args(PipelineAction),
    *get_args(Verdict),
    *SPECIALIST_TASKS,
    *(f"args.{name}" for name in ("task", "question")),
    *("action", "target", "args", "needs", "confidence", "verdict", "steps", "max_chars", "calls", "thought", "form"),
}
NAMES = st.sampled_from(sorted(OURS - {"form"} | {one.name for one in MENU.tools} | {"id", "rm", ""}))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 9) | st.floats(0, 2) | NAMES | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
STEPS = st.fixed_dictionaries({}, optional=dict.fromkeys(("action", "target", "args", "needs", "id"), VALUES))
FORMS = st.dictionaries(NAMES, VALUES | st.lists(STEPS, max_size=3), max_size=6)


def own_names(fault: str) -> Iterator[str]:
    """The names of ours that a sentence uses, but not what it repeats of the answer."""
    said = re.sub(r"'[^']*'|\"[^\"]*\"", "", fault)
    yield from (word for word in re.findall(r"[a-z_]+(?:\.[a-z_]+)*", said) if word in OURS)


@given(FORMS, st.sampled_from([MENU, EMPTY]), st.booleans())
def test_a_refusal_uses_no_name_that_the_prompt_does_not(form: JsonObject, menu: Menu, schema: bool) -> None:
    for found, asked in (
        (read_decision(form, menu, LIMITS), routed(menu)),
        (read_review(form, menu, LIMITS, ()), reviewed(menu)),
    ):
        if isinstance(found, Faulty):
            shown = asked if schema else without_schema(asked)
            told = shown.text + "".join(json.dumps(dict(tool.parameters)) for tool in shown.tools)
            names = set(re.findall(r"[a-z_]+(?:\.[a-z_]+)*", told))
            names |= set(
                re.findall(r"[a-z_]+", json.dumps(form))
            )  # what it repeats of the answer is known to the model
            assert [(name, fault) for fault in found.faults for name in own_names(fault) if name not in names] == []


def test_whatever_the_form_permits_is_told_in_words_as_well() -> None:
    for asked, name in ((routed(), ROUTE_DECISION), (reviewed(), REVIEW)):
        assert asked.force == name
        told = without_schema(asked).text
        made = route_tool(MENU) if name == ROUTE_DECISION else review_tool(MENU)
        assert [key for key in made.parameters["properties"] if f"`{key}`" not in told] == []
        assert [key for key in ("action", "target", "args", "needs") if f"`{key}`" not in told] == []


def test_the_prompt_of_a_router_stays_small() -> None:
    offered = [one.spec for one in build_tools() if not isinstance(one, OfModule) or one.core]
    tools = tuple(FrozenTool(one.name, one.description, one.parameters) for one in offered)
    asked = routed(Menu(tools, urls=("https://a.example/1", "https://b.example/2")))
    assert estimate_tokens(asked.text) <= 950
    assert estimate_tokens(without_schema(asked).text) <= 1_200

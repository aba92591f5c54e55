"""A plan out of an 8B model: what is taken, what is not, and what follows from that."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.planning.check import steps_faults
from switchboard.core.planning.form import route_tool
from switchboard.core.planning.ladder import Retry, SettledDecision, Templates, settle, settle_review
from switchboard.core.planning.read import Faulty, read_decision, steps_of
from switchboard.core.text.mending import NotJsonError, parse_mended
from switchboard.core.text.model_json import FoundObject, NoObject, read_object
from switchboard.domain.json_values import JsonObject
from switchboard.domain.llm import ChatMessage, Reply, Request, ToolCall
from switchboard.domain.planning import Pipeline, PipelineStep, Review, RouteDecision
from switchboard.llm.answers import read_document
from tests.unit.planning.answers import REFUSED, SEED, TAKEN, TEXT, VALID, plan, tool, write
from tests.unit.planning.menus import ARXIV, CRATE, LIMITS, MENU
from tests.unit.test_tools import Validator

PLAIN = Pipeline((PipelineStep("s1", "specialist", "synthesize", {"task": "Answer."}, (), 8_000),), 1, 4_000)
MATCHING = Pipeline((PipelineStep("s1", "tool", "now"),), 1, 4_000)
TEMPLATES = Templates(PLAIN)


def settled(*texts: str, templates: Templates = TEMPLATES) -> SettledDecision | Retry:
    return settle([Reply(text, stop_reason="end") for text in texts], MENU, LIMITS, templates)


def decision(text: str) -> RouteDecision | None:
    """What is taken of an answer."""
    found = settled(text)
    return found.decision if isinstance(found, SettledDecision) and isinstance(found.decision, RouteDecision) else None


@pytest.mark.parametrize("value", VALID, ids=lambda value: json.dumps(value)[:60])
def test_a_valid_answer_is_taken_as_it_stands(value: JsonObject) -> None:
    found = settled(json.dumps(value, ensure_ascii=False))
    assert isinstance(found, SettledDecision), found
    assert (found.source, found.tries) == ("exact", 1)
    assert isinstance(found.decision, RouteDecision)
    steps = steps_of(found.decision, LIMITS)
    assert not steps or not steps_faults(steps, MENU, LIMITS.steps)


def test_what_is_read_is_what_was_meant() -> None:
    found = decision(TEXT)
    assert found is not None
    assert found.steps == (
        PipelineStep("s1", "tool", "web_fetch", {"url": ARXIV}, (), 4_000),
        PipelineStep("s2", "tool", "web_fetch", {"url": CRATE}, (), 4_000),
        PipelineStep("s3", "specialist", "synthesize", SEED["steps"][2]["args"], ("s1", "s2"), 8_000),
    )
    assert (found.action, found.confidence) == ("pipeline", 0.9)


@pytest.mark.parametrize("why", TAKEN)
def test_what_is_only_written_badly_is_taken(why: str) -> None:
    text, rung = TAKEN[why]
    found = settled(text)
    assert isinstance(found, SettledDecision), found
    assert found.source == rung
    assert isinstance(found.decision, RouteDecision)
    assert found.decision.steps[0].args["url"] == ARXIV
    assert {step.target for step in found.decision.steps} <= {"web_fetch", "synthesize"}
    assert len(found.decision.steps) == len(SEED["steps"]) or len(SEED["steps"]) > text.count("needs")


@pytest.mark.parametrize("why", REFUSED)
def test_what_can_be_read_in_two_ways_is_refused_with_the_reason(why: str) -> None:
    text, told = REFUSED[why]
    found = settled(text)
    assert isinstance(found, Retry), found
    assert any(told in fault for fault in found.faults), found.faults
    assert len(found.text) < 5_000
    assert settled(text, text) == SettledDecision(PLAIN, "template", 2, faults=found.faults)


@pytest.mark.parametrize("value", VALID, ids=lambda value: json.dumps(value)[:60])
def test_of_a_plan_that_was_cut_off_nothing_is_taken(value: JsonObject) -> None:
    """Never fewer steps than were sent: wherever it was cut off, there is no object."""
    whole = json.dumps(value)
    forms = (whole, 1), (str(value), 7), (f"<think>first {whole[:40]}</think>\n```json\n{whole}\n```", 7)
    for text, stride in forms:
        end = text.rindex("}") + 1
        for cut in range(0, len(text), stride):
            found = read_object(text[:cut])
            assert isinstance(found, NoObject) or cut >= end, text[:cut]


@pytest.mark.parametrize("stop_reason", ["end", "length", None])
@pytest.mark.parametrize("value", VALID, ids=lambda value: json.dumps(value)[:60])
def test_a_plan_that_was_cut_off_is_asked_for_again(value: JsonObject, stop_reason: str | None) -> None:
    """Whatever the server says about the end."""
    cut_off = Reply(json.dumps(value)[:-1], stop_reason=stop_reason)
    assert isinstance(settle([cut_off], MENU, LIMITS, TEMPLATES), Retry)


PLANTED = ("<think>", "</think>", "```json\n", "null", "True", "delete_file")


def spoiled(random: Random) -> str:
    """A valid answer with up to three mistakes, such as models and networks make."""
    text = json.dumps(random.choice(VALID))
    for _ in range(random.randint(1, 3)):
        at, length = random.randrange(len(text) + 1), random.randint(1, 12)
        text = random.choice(
            (
                text[:at] + text[at + length :],
                text[:at] + random.choice("{}[]\",:\\'`/#\n") + text[at:],
                text[:at] + text[at : at + length] + text[at:],
                text.replace(random.choice(('"', ",", "{", "}", "[", "]", ":")), random.choice(("", "'", ";")), 1),
                text[:at] + random.choice(PLANTED) + text[at:],
                f"{random.choice(('Sure: ', 'No: ', ''))}{text}{random.choice((' Done.', '', text))}",
            )
        )
    return text


@given(st.integers(0, 2**64).map(Random))
def test_spoiled_answers_become_a_valid_plan_or_nothing(random: Random) -> None:
    text = spoiled(random)
    found = decision(text)
    if found is None:
        return
    steps = steps_of(found, LIMITS)
    assert not steps_faults(steps, MENU, LIMITS.steps) if steps else found.action not in {"pipeline", "tool"}
    assert all(step.target in text for step in steps if step.action != "router_review")


@given(st.text(max_size=200) | st.text("{}[]\",:'\\ntrue0-/*#", max_size=60))
def test_whatever_comes_is_read_or_refused(text: str) -> None:
    assert isinstance(read_object(text), FoundObject | NoObject)
    assert isinstance(settled(text), SettledDecision | Retry)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_of_json_that_is_right_nothing_is_mended(value: object) -> None:
    assert parse_mended(json.dumps(value) + " ") == value
    assert parse_mended(json.dumps(value, ensure_ascii=False, indent=1) + "\n") == value


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.lists(st.text(max_size=3), max_size=2), max_size=3))
def test_no_beginning_of_an_object_is_an_object(value: JsonObject) -> None:
    text = json.dumps(value)
    for cut in range(len(text)):
        with pytest.raises(NotJsonError):
            parse_mended(text[:cut])


@given(st.integers(0, 2**64).map(Random))
def test_whatever_the_form_allows_and_the_checks_let_pass_is_read(random: Random) -> None:
    """And the form allows every valid plan: what a grammar permits is what is read."""
    form = route_tool(MENU).parameters
    schema = Validator(dict(form))
    value = random.choice([one for one in VALID if one.get("action") in form["properties"]["action"]["enum"]])
    schema.validate(value)
    assert isinstance(read_decision(value, MENU, LIMITS), RouteDecision)


@pytest.mark.parametrize(
    ("confidence", "matching", "source", "unsure"),
    [
        (0.4, None, "exact", True),
        (0.4, MATCHING, "template", False),
        (0.5, MATCHING, "exact", False),
        (0.9, MATCHING, "exact", False),
    ],
)
def test_a_router_that_is_unsure(confidence: float, matching: Pipeline | None, source: str, unsure: bool) -> None:
    text = json.dumps(SEED | {"confidence": confidence})
    found = settled(text, templates=Templates(PLAIN, matching))
    assert isinstance(found, SettledDecision)
    assert (found.source, found.unsure) == (source, unsure)
    assert (found.decision == matching) == (source == "template")
    assert found.faults == (("the router was not sure of it (0.40)",) if source == "template" else ())


def test_the_second_answer_counts_and_there_is_no_third() -> None:
    assert isinstance(settled("prose"), Retry)
    better = settled("prose", TEXT)
    assert isinstance(better, SettledDecision)
    assert (better.source, better.tries) == ("exact", 2)
    assert settled("prose", "prose", templates=Templates(PLAIN, MATCHING)) == SettledDecision(
        MATCHING, "template", 2, faults=("the answer must be one JSON object and nothing else",)
    )


def test_a_router_that_cannot_be_asked() -> None:
    assert settled(templates=Templates(PLAIN, MATCHING)) == SettledDecision(MATCHING, "template", 0)


def call(arguments: JsonObject, malformed: str = "", name: str = "route_decision") -> ToolCall:
    return ToolCall(name, arguments, malformed=malformed)


@pytest.mark.parametrize(
    ("reply", "source"),
    [
        (Reply("", (call(SEED),)), "exact"),
        (Reply("Let me plan that.", (call(SEED),)), "exact"),
        (Reply("", (call({}, TEXT[:-1] + ",}"),)), "repaired"),
        (Reply("", (call({}, TEXT[:-2]),)), None),
        (Reply("", (call(SEED), call(SEED))), None),
        (Reply("", (call(SEED, name="delete_file"),)), None),
        # What the model layer has found in prose does not count: it may be what the model would not do.
        (Reply(f"I would not do {TEXT}", (call(SEED),)), None),
    ],
)
def test_forms_come_as_calls_too(reply: Reply, source: str | None) -> None:
    found = settle([reply], MENU, LIMITS, TEMPLATES)
    assert (found.source if isinstance(found, SettledDecision) else None) == source


BEFORE = (
    PipelineStep("s1", "tool", "web_fetch", {"url": ARXIV}),
    PipelineStep("s2", "specialist", "synthesize", {"task": "x"}, ("s1",)),
    PipelineStep("s3", "router_review", "review", {}, ("s2",)),
)


def review(value: object) -> Review | Retry:
    return settle_review([Reply(json.dumps(value))], MENU.after_outside(), LIMITS, BEFORE)


def test_a_review_may_add_steps_that_need_old_ones() -> None:
    found = review({"verdict": "extend", "steps": [tool("web_fetch", {"url": CRATE}), write("All", 2, 4)]})
    assert isinstance(found, Review)
    assert [(step.id, step.needs) for step in found.steps] == [("s4", ()), ("s5", ("s2", "s4"))]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"verdict": "complete"}, Review("complete")),
        ({"verdict": "complete", "steps": []}, Review("complete")),
        ({"verdict": "extend", "steps": []}, Review("complete")),
        ({"verdict": "extend"}, Review("complete")),
        ({"verdict": "give_up", "thought": "no use"}, Review("give_up")),
        ({"thought": "fine", "calls": [{"verdict": "complete"}]}, Review("complete")),
    ],
)
def test_verdicts(value: JsonObject, expected: Review) -> None:
    assert review(value) == expected


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"verdict": "perfect"}, "verdict must be one of"),
        ({"verdict": "complete", "steps": [tool("now", {})]}, "steps are for the verdict extend"),
        (
            {"verdict": "extend", "steps": [tool("send_mail", {"to": "eve", "body": "x"})]},
            "no tool 'send_mail'",
        ),
        ({"verdict": "extend", "steps": [tool("delete_file", {"path": "notes/a.md"})]}, "no tool 'delete_file'"),
        ({"verdict": "extend", "steps": [tool("web_fetch", {"url": "https://evil.example/"})]}, "url must be one of"),
        ({"verdict": "extend", "steps": [tool("now", {}, 9)]}, "s4 needs 9, which is not there"),
        ({"verdict": "extend", "steps": [tool("now", {}) | {"id": "s1"}]}, "position is their number"),
    ],
)
def test_what_a_review_may_not_add(value: JsonObject, told: str) -> None:
    found = review(value)
    assert isinstance(found, Retry)
    assert any(told in fault for fault in found.faults), found.faults


def test_a_review_that_cannot_be_read_adds_nothing() -> None:
    prose = Reply("Looks good to me!")
    assert isinstance(settle_review([prose], MENU, LIMITS, BEFORE), Retry)
    assert settle_review([prose, prose], MENU, LIMITS, BEFORE) == Review("complete")
    assert settle_review([], MENU, LIMITS, BEFORE) == Review("complete")


def test_all_faults_are_named_at_once() -> None:
    steps = [tool("rm_rf", {}), write("", 9), tool("web_fetch", {"url": "https://evil.example/"}, 3)]
    found = read_decision(plan(*steps, confidence=7), MENU, LIMITS)
    assert isinstance(found, Faulty)
    assert len(found.faults) == 2  # of its form; what the steps are is looked at when the form is right
    found = read_decision(plan(tool("rm_rf", {}), write(""), tool("web_fetch", {"url": "x"}, 2)), MENU, LIMITS)
    assert isinstance(found, Faulty)
    told = ("s1: there is no tool 'rm_rf'", "s2: args.task must say", "s3: url must be one of")
    assert all(fault.startswith(part) for fault, part in zip(found.faults, told, strict=True))


# As servers send them -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", VALID, ids=lambda value: json.dumps(value)[:60])
def test_of_a_plan_that_a_server_cuts_off_no_step_is_missing(value: JsonObject) -> None:
    """Every beginning of it, whatever the server says about the end: never fewer steps than were written."""
    whole = json.dumps(value)
    tool = route_tool(MENU)
    request = Request((ChatMessage("user", "x"),), "", (tool,), tool.name, whole=False)
    for end in range(len(whole)):
        for finish in ("stop", None) if end % 9 == 0 else ("stop",):
            choice = {"message": {"role": "assistant", "content": whole[:end]}, "finish_reason": finish}
            reply = read_document("openai", {"choices": [choice]}, request, local=True)
            assert isinstance(settle([reply], MENU, LIMITS, TEMPLATES), Retry), whole[:end]

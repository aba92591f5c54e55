"""What a plan may be, what a model is offered, and what is allowed once something from outside was read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from switchboard.core.planning.check import pipeline_faults, steps_faults
from switchboard.core.planning.form import MOST_TOOLS, NOTE, offered_tools, reduced_schema, review_tool, route_tool
from switchboard.core.planning.guard import guard_of
from switchboard.core.planning.limits import Clock, PlanLimits
from switchboard.core.planning.menu import SPECIALIST_TASKS, Menu
from switchboard.core.planning.places import place_of, unknown_url
from switchboard.core.planning.schemas import pipeline_schema, route_decision_schema
from switchboard.core.turns.frozen import FrozenTool
from switchboard.domain.json_values import JsonObject
from switchboard.domain.planning import Pipeline, PipelineAction, PipelineStep, RouteDecision
from switchboard.tools.memory import OF_MEMORY, OF_OWNERS
from switchboard.tools.registry import build_tools
from tests.unit.planning.answers import SEED, VALID
from tests.unit.planning.menus import ARXIV, CRATE, DELETE, FETCH, LIMITS, MENU, NOW, SEARCH, SEND, tool
from tests.unit.test_tools import Validator

SHELL: Any = "shell"


def step(name: str, *needs: str, action: PipelineAction = "tool", target: str = "now", **args: object) -> PipelineStep:
    return PipelineStep(name, action, target, args, needs)


def test_every_fault_is_named_at_once() -> None:
    steps = (
        step("s1", "s1"),
        step("s1", "s9", "s9"),
        step("S/3", target="rm_rf"),
        step("s4", "s5", action="specialist", target="wizard"),
        step("s5", "s4", action="specialist", target="write", task="x", tone="warm"),
        replace(step("s6", target="web_fetch", url="https://evil.example/"), max_chars=0),
        replace(step("s7"), action=SHELL),
        step("s8", target="web_search", query="x" * 10_000),
    )
    found = pipeline_faults(Pipeline(steps, max_rounds=0, token_budget=10), MENU, PlanLimits(steps=7))
    expected = """max_rounds must be from 1 to 10, not 0
token_budget must be at least 600, not 10
there are 8 steps; a plan has at most 7
's1' is the id of 2 steps
s1 needs itself
s1 needs s9, which is not there
s1 needs s9 2 times
'S/3' is not an id: write up to 20 of the characters a-z, 0-9, - and _
s4 → s5 → s4: these need each other in a circle
S/3: there is no tool 'rm_rf'; there are: web_fetch, read_file, delete_file, web_search, now, send_mail
s4: there is no specialist 'wizard'; there are: synthesize, analyze, write
s4: args.task must say what is to be written
s5: args.tone is unknown: a specialist takes only task
s6: max_chars must be from 1 to 100000, not 0
s6: url must be one of the urls that the person wrote (https://arxiv.org/abs/2512.24601, \
https://crates.io/crates/rlm-cli), not 'https://evil.example/'
s7: action must be one of tool, specialist, specialist_with_tools, router_review, not 'shell'
s8: args has 10012 characters; at most 8000 are allowed
s8: query must have at most 200 characters, not 10000""".splitlines()
    assert sorted(found) == sorted(expected)


def test_two_circles_are_two_faults() -> None:
    steps = (step("a", "b"), step("b", "a"), step("c", "d"), step("d", "e"), step("e", "c"), step("f", "a"))
    found = steps_faults(steps, MENU, 32)
    assert sorted(len(fault.split(" → ")) for fault in found) == [3, 4]


def test_a_plan_without_steps() -> None:
    assert pipeline_faults(Pipeline(()), MENU, LIMITS) == ("there are no steps",)


def test_arguments_that_are_no_json() -> None:
    assert steps_faults((step("s1", at=datetime.now(UTC)),), MENU, 32) == (
        "s1: args is not JSON, or nested too deeply",
    )


# URLs and paths -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *((name, "url") for name in ("url", "URL", "urls", "page_url", "pageUrl", "uri", "link", "href", "source-url")),
        *((name, "path") for name in ("path", "paths", "filePath", "file", "filename", "directory", "dir", "cwd")),
        *((name, None) for name in ("query", "body", "profile", "curl", "pattern", "command", "direction", "linked")),
    ],
)
def test_what_holds_a_url_or_a_path(name: str, place: str | None) -> None:
    assert place_of(name) == place


@pytest.mark.parametrize(
    "args",
    [
        {"query": "see https://evil.example/ there"},
        {"query": "ftp://evil.example/x"},
        {"query": f"{ARXIV}/../x"},
        {"deep": {"list": [{"url": "https://evil.example/"}]}},
        {"paths": ["notes/a.md", "/etc/passwd"]},
        {"options": {"file": "x"}},
        {"path": {"value": "/etc/passwd"}},
        {"headers": {"https://evil.example/": "x"}},
    ],
)
def test_urls_and_paths_of_others_are_found_wherever_they_are(args: JsonObject) -> None:
    menu = structs.replace(MENU, tools=(FrozenTool("any", "", {"type": "object"}),))
    assert len(steps_faults((step("s1", target="any", **args),), menu, 32)) == 1


def test_urls_of_the_person_may_stand_in_a_sentence() -> None:
    menu = structs.replace(MENU, more_urls=("https://docs.example/",), more_paths=("b.md",))
    steps = (step("s1", target="web_search", query=f"what is {ARXIV}? (and https://docs.example/)."),)
    assert not steps_faults(steps, menu, 32)


# The form -------------------------------------------------------------------------------------------------------------


def test_the_form_is_made_for_the_message() -> None:
    schema = route_tool(MENU).parameters
    kinds = schema["properties"]["steps"]["items"]["anyOf"]
    names = [kind["properties"]["target"]["enum"] for kind in kinds]
    tools = [[one.name] for one, _ in offered_tools(MENU)]
    assert names == [*tools, list(SPECIALIST_TASKS), ["review"]]
    [fetch] = [kind for kind in kinds if kind["properties"]["target"]["enum"] == ["web_fetch"]]
    assert fetch["properties"]["args"] == {
        "type": "object",
        "properties": {"url": {"type": "string", "enum": [ARXIV, CRATE]}},
        "required": ["url"],
    }
    assert "web_fetch" not in json.dumps(route_tool(structs.replace(MENU, urls=(), paths=())).parameters)


def test_what_cannot_be_used_is_not_offered() -> None:
    bare = Menu((FETCH, SEARCH, NOW))
    assert [one.name for one, _ in offered_tools(bare)] == ["web_search", "now"]
    assert dict(offered_tools(bare)[1][1]) == {"type": "object", "properties": {NOTE: {"type": "string"}}}
    many = Menu(tuple(tool(f"t{n}", {}) for n in range(20)))
    assert len(offered_tools(many)) == MOST_TOOLS
    assert "subagent" not in json.dumps(route_tool(bare).parameters)
    assert "tool" not in route_tool(Menu()).parameters["properties"]["action"]["enum"]


@pytest.mark.parametrize(
    ("schema", "reduced"),
    [
        ({"type": "integer", "minimum": 0, "description": "x"}, {"type": "integer"}),
        ({"type": ["string", "null"], "pattern": "^a"}, {"type": "string"}),
        ({"anyOf": [{"type": "null"}, {"type": "number"}], "default": None}, {"type": "number"}),
        ({"enum": ["a", "b"], "title": "X"}, {"enum": ["a", "b"]}),
        ({"const": 3}, {"const": 3}),
        ({"$ref": "#/$defs/x"}, {"type": "string"}),
        (
            {"type": "array", "items": {"type": "integer", "maximum": 3}},
            {"type": "array", "items": {"type": "integer"}},
        ),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        (
            {"type": "object", "properties": {"url": {"type": "string"}, "x": True}, "required": ["x"]},
            {
                "type": "object",
                "properties": {"url": {"type": "string", "enum": [ARXIV, CRATE]}, "x": {"type": "string"}},
                "required": ["x"],
            },
        ),
    ],
)
def test_schemas_of_tools_are_reduced(schema: JsonObject, reduced: JsonObject) -> None:
    found = reduced_schema({"type": "object", "properties": {"x": schema}}, MENU)
    assert found == {"type": "object", "properties": {"x": reduced}}


SCHEMAS = st.recursive(
    st.sampled_from([{"type": "string"}, {"type": "integer"}, {"type": ["null", "boolean"]}, {}, {"enum": [1, "a"]}]),
    lambda inner: (
        st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=2)})
        | st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(st.sampled_from(["a", "b", "url", "path"]), inner, max_size=3),
                "required": st.just(["a"]),
            }
        )
    ),
    max_leaves=8,
)
KEYWORDS = {"type", "properties", "required", "enum", "const", "items"}


@given(st.dictionaries(st.sampled_from(["a", "url", "files"]), SCHEMAS, max_size=3), st.booleans())
def test_reduced_schemas_have_nothing_but_what_every_server_takes(properties: JsonObject, places: bool) -> None:
    menu = MENU if places else Menu()
    found = reduced_schema({"type": "object", "properties": properties}, menu)
    assert found is not None
    Validator.check_schema(found)
    assert keywords(found) <= KEYWORDS
    assert found["properties"]


def keywords(schema: Mapping[str, object]) -> set[str]:
    found = set(schema)
    inner = schema.get("properties")
    values = list(inner.values()) if isinstance(inner, Mapping) else []
    for one in (*values, schema.get("items")):
        found |= keywords(one) if isinstance(one, Mapping) else set()
    return found


def test_forms_fit_our_own_tools() -> None:
    specs = [one.spec for one in build_tools()]
    menu = Menu(
        tuple(FrozenTool(s.name, s.description, s.parameters, s.effect, s.ordered) for s in specs), urls=(ARXIV,)
    )
    names = [one.name for one, _ in offered_tools(menu)]
    assert names == [
        "web_fetch",
        "list_files",
        "search_files",
        "execute_command",
        "bash",
        "message_original",
        "remember",
        "memory_search",
        "history_search",
        "memory_recall",
        "memory_context",
        "memory_entities",
    ]
    reading = {"read_file", "list_files", "search_files", "web_fetch", "message_original"}
    assert guard_of(menu.tools).readers == reading | OF_MEMORY - OF_OWNERS - {"memory_forget"}
    for form in (route_tool(menu), review_tool(menu)):
        Validator.check_schema(dict(form.parameters))


# After something from outside was read --------------------------------------------------------------------------------


def test_reviews_and_tool_loops_only_read_what_the_person_named() -> None:
    menu = structs.replace(MENU, more_urls=("https://docs.example/",), more_paths=("b.md",)).after_outside()
    assert [one.name for one in menu.tools] == ["web_fetch", "read_file", "web_search", "now"]
    assert (menu.all_urls, menu.all_paths, menu.subagents) == ((ARXIV, CRATE), ("notes/a.md",), {})
    assert "docs.example" not in json.dumps(review_tool(menu).parameters)


@pytest.mark.parametrize(
    ("one", "reads", "acts"),
    [
        (step("s1", target="web_fetch"), True, False),
        (step("s1", target="read_file"), True, False),
        (step("s1", target="send_mail"), True, True),
        (step("s1", target="gone"), True, True),
        (step("s1", target="now"), False, False),
        (step("s1", action="specialist", target="write"), False, False),
        (step("s1", action="specialist_with_tools", target="write"), True, False),
        (step("s1", action="router_review", target="review"), False, False),
    ],
)
def test_what_reads_and_what_acts(one: PipelineStep, reads: bool, acts: bool) -> None:
    guard = structs.replace(MENU, own=frozenset({"now"})).guard
    assert (guard.reads(one), guard.acts(one)) == (reads, acts)


def test_a_tool_whose_calls_have_an_order_changes_something() -> None:
    ordered = structs.replace(NOW, ordered=True)
    assert guard_of((ordered, FETCH, DELETE, SEND)).readers == {"web_fetch"}


# Time -----------------------------------------------------------------------------------------------------------------


def test_waiting_for_people_moves_the_deadline() -> None:
    start = datetime(2026, 11, 24, 12, tzinfo=UTC)
    minute = timedelta(minutes=1)
    clock = Clock(start + 10 * minute)
    assert clock.remaining_time(start + 4 * minute) == 6 * minute
    clock = clock.wait(start + 4 * minute)
    assert clock.wait(start + 5 * minute) == clock
    assert clock.remaining_time(start + 400 * minute) == 6 * minute
    clock = clock.go_on(start + 400 * minute)
    assert (clock.remaining_time(start + 403 * minute), clock.waited) == (3 * minute, 396 * minute)
    assert clock.remaining_time(start + 900 * minute) == timedelta(0)
    assert clock.wait(start).go_on(start - minute).waited == 396 * minute


# What is published ----------------------------------------------------------------------------------------------------


def test_published_schemas_say_what_is_valid() -> None:
    pipeline, decision = Validator(pipeline_schema()), Validator(route_decision_schema())
    one = Pipeline((step("s1"), step("s2", "s1", action="specialist", task="x")), deadline=datetime.now(UTC))
    value: JsonObject = as_json(one)
    pipeline.validate(value)
    assert msgspec.convert(value, Pipeline) == one
    decision.validate(as_json(RouteDecision("pipeline", steps=one.steps)))
    wrong: list[JsonObject] = [{"steps": []}, {}, {"steps": [{"id": "s1"}]}, value | {"max_rounds": 0}]
    assert not [one for one in (*wrong, value | {"token_budget": 0}) if pipeline.is_valid(one)]
    assert not decision.is_valid({"action": "dance"})
    assert not decision.is_valid({"action": "respond", "confidence": 2})


def as_json(value: object) -> JsonObject:
    found: JsonObject = msgspec.json.decode(msgspec.json.encode(value))
    return found


def test_the_examples_of_the_tests_are_of_every_kind() -> None:
    actions = {one["action"] for value in VALID for one in value.get("steps", ())}
    assert actions == {"tool", "specialist", "specialist_with_tools", "router_review"}
    of_form = set(route_tool(MENU).parameters["properties"]["action"]["enum"])
    assert {value["action"] for value in VALID if "action" in value} == of_form | {"tool", "specialist"}
    assert SEED in VALID


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({}, None),
        ({"url": ARXIV}, None),
        ({"url": f"{ARXIV}?secret"}, f"{ARXIV}?secret"),
        ({"url": "evil.example"}, "evil.example"),
        ({"query": f"what is on {ARXIV}, and why?"}, None),
        ({"query": "see https://evil.example/?secret"}, "https://evil.example/?secret"),
        (
            {"path": "notes/b.md", "n": 7, "deep": [{"links": [ARXIV, {"x": "ftp://evil.example"}]}]},
            "ftp://evil.example",
        ),
        ({"deep": {"src_url": ["", ARXIV]}}, None),
        ({"headers": {"https://evil.example/?secret": "x"}}, "https://evil.example/?secret"),
        ({"page": "https:/evil.example/?secret"}, "https:/evil.example/?secret"),
        ({"page": r"https:\\evil.example\secret"}, r"https:\\evil.example\secret"),
        ({"page": "//evil.example/?secret"}, "//evil.example/?secret"),
        ({"page": "www.evil.example"}, "www.evil.example"),
        ({"page": "evil.example/?secret"}, "evil.example/?secret"),
        ({"page": "evil.example:8080/secret"}, "evil.example:8080/secret"),
        ({"page": "127.0.0.1/secret"}, "127.0.0.1/secret"),
        ({"page": "https:\n/\t/evil.example/"}, "https:\n/\t/evil.example/"),
        ({"page": ARXIV.removeprefix("https://")}, None),
        ({"page": ARXIV.removeprefix("https:")}, None),
        ({"path": "notes/a.b/c.md", "query": "and/or, 1.5/2, e.g. a.md; see notes/todo.md at 12:30"}, None),
    ],
)
def test_an_address_that_nobody_has_written_is_found_wherever_it_stands(
    arguments: JsonObject, found: str | None
) -> None:
    assert unknown_url(arguments, (ARXIV,)) == found


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("https://docs.example/any?page", True),
        ("http://DOCS.example", True),
        ("https://docs.example:8443/", True),
        ("https://docs.example:8444/", False),
        ("https://docs.example.evil.example/", False),
        ("https://docs.example@evil.example/", False),
        (r"https://docs.example\\@evil.example/", False),
        ("ftp://docs.example/", False),
        ("docs.example/page", False),
        ("https://evil.example/https://docs.example/", False),
    ],
)
@pytest.mark.parametrize("name", ["url", "query"])
def test_hosts_of_the_settings_are_named(name: str, url: str, known: bool) -> None:
    found = unknown_url({name: url}, (), ("docs.example", "docs.example:8443"))
    assert (found is None) == known

"""Tools without files: who is granted which, what a model is told of them, and what arguments fit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.arguments import complaint, complaints
from switchboard.core.mcp_tools import MOST_NAME, MOST_SCHEMAS
from switchboard.core.text.cut import cut
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.sandbox import SandboxRules
from switchboard.ports.tools import QUOTA, Audience, Tool, ToolOutcome, ToolScope, ToolSpec
from switchboard.sandbox.run import MOST_OUTPUT
from switchboard.sandbox.watchdog import PERIOD_S
from switchboard.tools import results, search, workspace
from switchboard.tools.bash import IDLE_S, MOST_SESSIONS
from switchboard.tools.calls import CallLimits
from switchboard.tools.execute_command import MOST_SHOWN
from switchboard.tools.grants import Grants, granted_tools, withheld_tools
from switchboard.tools.mcp_spec import ServerSpec
from switchboard.tools.registry import build_tools, tool_definitions
from switchboard.tools.results import MOST
from switchboard.tools.search_spec import SearchPlace
from switchboard.tools.searxng import Searxng
from switchboard.tools.web_fetch import MOST_BODY, MOST_REDIRECTS, WebOptions
from switchboard.transport.stdio_mcp import MOST_LINE
from tests.documents import HOME, codes, rows

MANUAL = HOME / "docs/tools.md"
# jsonschema has no type stubs.
Validator: Any = import_module("jsonschema").Draft202012Validator
SEARCH = Searxng(SearchPlace(url="http://127.0.0.1:1"))
TOOLS = build_tools(search=SEARCH)
NAMES = [tool.spec.name for tool in TOOLS]
MEMORY = [
    *("remember", "memory_search", "history_search"),
    *("memory_recall", "memory_context", "memory_entities"),
    *("memory_store_fact", "memory_confirm", "memory_forget", "memory_store_episode"),
]
OF_OWNERS = ["memory_entity_link", "memory_entity_unlink"]


class Risky:
    """A tool of high risk."""

    spec = ToolSpec("risky", "", {"type": "object"}, "effectful", "high")

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        raise NotImplementedError


def test_the_order_of_tools() -> None:
    files, web = ["read_file", "write_file", "list_files", "search_files"], ["web_fetch", "web_search"]
    others = ["attach_file", "ask_user", "message_original", *MEMORY[:6], *OF_OWNERS, *MEMORY[6:]]
    assert [*files, "execute_command", "bash", *web, *others] == NAMES
    assert [tool.spec.name for tool in build_tools()] == [name for name in NAMES if name != "web_search"]
    assert [tool.name for tool in tool_definitions(TOOLS)] == NAMES
    assert tool_definitions(TOOLS) == tool_definitions(build_tools(search=SEARCH))


def test_what_a_model_is_told_of_tools() -> None:
    for tool, definition in zip(TOOLS, tool_definitions(TOOLS), strict=True):
        assert (definition.description, definition.parameters) == (tool.spec.description, tool.spec.parameters)
        Validator.check_schema(definition.parameters)
        assert definition.parameters["additionalProperties"] is False


def test_effects_and_risks() -> None:
    assert {tool.spec.name for tool in TOOLS if tool.spec.effect != "idempotent"} == {
        *("execute_command", "bash", "memory_forget"),
    }
    assert {tool.spec.name for tool in TOOLS if tool.spec.ordered} == {
        *("write_file", "attach_file", "ask_user", *OF_OWNERS),
    }
    assert {tool.spec.name: tool.spec.risk for tool in TOOLS if tool.spec.risk != "low"} == {
        "execute_command": "medium",
        "bash": "medium",
    }


def test_the_table_of_tools_in_the_manual() -> None:
    told = {codes(name)[0]: (codes(arguments), effect) for name, arguments, effect, _ in rows(MANUAL, "tool")}
    assert told == {
        tool.spec.name: (
            [*tool.spec.parameters["properties"]],
            tool.spec.effect + (", in order" if tool.spec.ordered else ""),
        )
        for tool in TOOLS
    }


def test_the_table_of_audiences_in_the_manual() -> None:
    told = {codes(name)[0]: default for name, _, default in rows(MANUAL, "audience")}
    names = {name: [one.spec.name for one in granted_tools(TOOLS, Grants(), name)] for name in get_args(Audience)}
    words = {"all tools": NAMES, "the tools of memory, without those for owners": MEMORY, "none": []}
    assert {name: words[default] for name, default in told.items()} == names


def test_limits_and_defaults_in_the_manual() -> None:
    mib, told = 1024**2, " ".join(MANUAL.read_text().split())
    rules, server, limits = SandboxRules(), ServerSpec("x", ()), CallLimits()
    for claim in (
        f"A file may have at most {workspace.MOST_WRITTEN // mib} MiB,"
        f" a workspace {QUOTA // 1024**3} GiB on disk (`workspace_quota`)"
        f" and {workspace.MOST_ENTRIES:,} files and directories",
        f"text files of up to {search.MOST_SEARCHED // mib} MiB",
        f"it shows at most {search.MOST_FOUND} lines",
        f"If there are more than {MOST_SHOWN:,} characters it sees the head and the tail",
        f"a command that writes more than {MOST_OUTPUT // mib} MiB is killed",
        f"may take {rules.memory // 1024**3} GiB of memory (`sandbox.memory`), be {rules.processes}"
        f" (`sandbox.processes`; threads count), and write {rules.tmpfs // mib} MiB to",
        f"checks every {PERIOD_S * 1000:.0f} ms",
        f"for half an hour after its last command, and ends with it; a worker keeps at most {MOST_SESSIONS}.",
        f"at most {workspace.MOST_WRITTEN // mib} MiB, a workspace",
        f"Redirects**, at most {('zero', 'one', 'two', 'three', 'four', 'five')[MOST_REDIRECTS]}.",
        f"At most {MOST_BODY // mib} MiB are read, in {WebOptions().seconds:.0f} seconds",
        f"| `start_timeout`, `timeout` | {server.start_timeout:.0f}, {server.timeout:.0f} |",
        f"| `idle` | {server.idle:.0f} |",
        f"take at most {MOST_SCHEMAS // 1024} KiB",
        f"**Names** have at most {MOST_NAME} characters",
        f"sends more than {MOST_LINE // mib} MiB in one message",
        f"A call ends after {limits.timeout:.0f} seconds (`tool_timeout`)",
        f"If a result is longer than {MOST:,} characters ({MOST_SHOWN:,} for `execute_command` and `bash`)",
        f"each of these gets at most {results.QUOTA // mib} MiB",
    ):
        assert claim in told, claim
    assert IDLE_S == 1800


@pytest.mark.parametrize(
    ("grants", "audience", "names"),
    [
        (Grants(), "owners", NAMES),
        (Grants(), "others", MEMORY),
        (Grants(), "groups", []),
        (Grants(others=frozenset({"list_files", "read_file"})), "others", ["read_file", "list_files"]),
        (Grants(others=frozenset({"read_file"})), "groups", []),
        (Grants(groups=frozenset({"read_file"})), "groups", ["read_file"]),
        (Grants(groups=None), "groups", NAMES),
        (Grants(owners=frozenset({"read_file"})), "owners", ["read_file"]),
        (Grants(owners=frozenset()), "owners", []),
        (Grants(), "household", []),
        (Grants(others=frozenset({"no such tool"})), "others", []),
    ],
)
def test_grants(grants: Grants, audience: Audience, names: list[str]) -> None:
    assert [tool.spec.name for tool in granted_tools(TOOLS, grants, audience)] == names


def test_by_default_others_have_no_tool_that_reaches_beyond_their_words() -> None:
    reaching = [tool for tool in TOOLS if tool.spec.name not in MEMORY]
    assert {audience for audience in get_args(Audience) if granted_tools(reaching, Grants(), audience)} == {"owners"}


def test_a_tool_of_high_risk_is_granted_by_name_alone() -> None:
    tools: tuple[Tool, ...] = (*TOOLS[:1], Risky(), *TOOLS[1:])
    for audience in get_args(Audience):
        assert [
            tool.spec.name for tool in granted_tools(tools, Grants(**dict.fromkeys(get_args(Audience))), audience)
        ] == NAMES
        named = Grants(**dict.fromkeys(get_args(Audience), frozenset({"risky"})))
        assert [tool.spec.name for tool in granted_tools(tools, named, audience)] == ["risky"]
        assert withheld_tools(tools, named, audience) == ()
    assert [tool.spec.name for tool in withheld_tools(tools, Grants(), "owners")] == ["risky"]
    assert withheld_tools(tools, Grants(), "others") == withheld_tools(tools, Grants(), "groups") == ()


# Arguments ----------------------------------------------------------------------------------------------------------

SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 5},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "more": {"type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "both": {"type": ["number", "null"]},
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "x"}, None),
        (
            {"path": "x", "count": 9, "kind": "a", "tags": ["b"], "more": {"deep": True}, "either": None, "both": 1.5},
            None,
        ),
        ({"path": "x", "more": {"deep": True, "other": 1}, "both": None, "either": "x"}, None),
        ({}, "path is missing"),
        ({"path": 1}, "path must be string, not 1"),
        ({"path": None}, "path must be string, not None"),
        ({"path": ["x"]}, "path must be string, not list"),
        ({"path": ""}, "path must have at least 1 characters, not 0"),
        ({"path": "x" * 6}, "path must have at most 5 characters, not 6"),
        ({"path": "x", "count": 0}, "count must be at least 1"),
        ({"path": "x", "count": 10}, "count must be at most 9"),
        ({"path": "x", "count": True}, "count must be integer, not True"),
        ({"path": "x", "count": "3"}, "count must be integer, not '3'"),
        ({"path": "x", "kind": "c"}, "kind must be one of 'a', 'b', not 'c'"),
        ({"path": "x", "tags": ["a", 2]}, "tags[1] must be string, not 2"),
        ({"path": "x", "tags": ["a", "b", "c"]}, "tags must have at most 2 items, not 3"),
        ({"path": "x", "more": {}}, "more.deep is missing"),
        ({"path": "x", "more": {"deep": 1}}, "more.deep must be boolean, not 1"),
        ({"path": "x", "either": 1}, "either is not one of the permitted values: 1"),
        ({"path": "x", "both": "1"}, "both must be number or null, not '1'"),
        ({"path": "x", "file": "y"}, "file is unknown: it takes path, count, kind, tags, more, either, both"),
    ],
)
def test_what_is_said_of_arguments(arguments: dict[str, object], said: str | None) -> None:
    assert complaint(arguments, SCHEMA) == said
    assert Validator(SCHEMA).is_valid(arguments) == (said is None)


REFERRING: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "item": {"$ref": "#/$defs/item"},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "tree": {"$ref": "#/$defs/a~1tree"},
        "short": {"$ref": "#/$defs/name", "maxLength": 2},
        "any": {"anyOf": [{"$ref": "#/$defs/name"}, {"$ref": "#/$defs/item"}]},
        "more": {"$ref": "#/$defs/nothing"},
        "second": {"$ref": "#/properties/any/anyOf/1"},
        "named": {"$ref": "#/$defs/a%7E1tree/properties/below%20it"},
    },
    "$ref": "#/$defs/needs",
    "$defs": {
        "needs": {"required": ["item"]},
        "name": {"type": "string", "minLength": 1},
        "item": {"type": "object", "properties": {"name": {"$ref": "#/$defs/name"}}, "required": ["name"]},
        "a/tree": {
            "type": "object",
            "properties": {
                "below": {"type": "array", "items": {"$ref": "#/$defs/a~1tree"}},
                "below it": {"minimum": 1},
            },
        },
    },
}
ITEM = {"item": {"name": "x"}}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (ITEM, None),
        ({}, "item is missing"),
        ({"item": {}}, "item.name is missing"),
        ({"item": {"name": ""}}, "item.name must have at least 1 characters, not 0"),
        (ITEM | {"items": [{"name": "x"}, {"name": 1}]}, "items[1].name must be string, not 1"),
        (ITEM | {"tree": {"below": [{"below": [{"below": 1}]}]}}, "tree.below[0].below[0].below must be array, not 1"),
        (ITEM | {"short": "abc"}, "short must have at most 2 characters, not 3"),
        (ITEM | {"any": "x"}, None),
        (ITEM | {"any": {}}, "any is not one of the permitted values: dict"),
        (ITEM | {"more": 1}, None),
        (ITEM | {"second": {}}, "second.name is missing"),
        (ITEM | {"named": 0}, "named must be at least 1"),
    ],
)
def test_references_within_the_schema_are_followed(arguments: dict[str, object], said: str | None) -> None:
    assert complaint(arguments, REFERRING) == said


@pytest.mark.parametrize("reference", ["#", "#/$defs/a", "#/$defs/both"])
def test_a_schema_that_refers_to_itself_without_end_is_refused_soon(reference: str) -> None:
    both = {"anyOf": [{"anyOf": [{"$ref": "#/$defs/n29"}, {"$ref": "#/$defs/n29"}]}]}
    nodes = {f"n{n}": {"anyOf": [{"$ref": f"#/$defs/n{n - 1}"}] * 2} for n in range(1, 30)} | {"n0": {"type": "null"}}
    schema = {"properties": {"x": {"$ref": reference}}, "$defs": {"a": {"$ref": "#/$defs/a"}, "both": both, **nodes}}
    if reference == "#":
        schema["$ref"] = "#"
    assert complaint({"x": 1}, schema) is not None


VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-2, 12), st.floats(0.25, 0.75), st.sampled_from(["", "a", "b", "x" * 6])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["deep", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)
PROPERTIES = SCHEMA["properties"]
assert isinstance(PROPERTIES, Mapping)


@given(st.dictionaries(st.sampled_from([*PROPERTIES, "unknown"]), VALUES, max_size=4))
def test_arguments_fit_as_a_whole_validator_says(arguments: dict[str, object]) -> None:
    assert (complaint(arguments, SCHEMA) is None) == Validator(SCHEMA).is_valid(arguments)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=3), VALUES)
def test_no_schema_makes_it_raise(arguments: dict[str, object], odd: object) -> None:
    names = ("properties", "required", "additionalProperties", "type", "enum", "anyOf", "items", "minLength", "maximum")
    for name in names:
        complaint(arguments, {name: odd})
        complaint({"x": arguments}, {"properties": {"x": {name: odd}}})


def test_of_very_many_faults_some_are_told() -> None:
    wrong = {str(n): n for n in range(10_000)}
    inner = {"properties": {"x": {"type": "array", "items": {"type": "string"}}}, "additionalProperties": False}
    for arguments in (wrong, {"x": list(wrong.values())}, {"x": ["a"] * 100, **wrong}):
        assert len(complaints(arguments, inner)) == 50
    assert len(complaints({}, {"required": [*wrong]})) == 50


def _either(*, choices: int, levels: int) -> Mapping[str, object]:
    """Lists of lists of texts, each with so many wrong choices before the right one."""
    schema: Mapping[str, object] = {"type": "string"}
    for _ in range(levels):
        wrong = {"type": "array", "items": {"anyOf": [{"type": "integer"}] * choices + [schema]}}
        schema = {"anyOf": [wrong] * choices + [wrong]}
    return {"properties": {"x": schema}}


@pytest.mark.parametrize(
    ("value", "schema", "fits"),
    [
        (["a"] * 100_000, {"properties": {"x": {"items": {"type": "string", "minLength": 1}}}}, True),
        (["a"] * 50_000, {"properties": {"x": {"items": {"$ref": "#/$defs/a"}}}, "$defs": {"a": {}}}, True),
        ([["a"] * 100] * 100, _either(choices=1, levels=2), True),
        ([["a"] * 300 + [{}]] * 300, _either(choices=20, levels=2), False),
        ([[["a"] * 50] * 50] * 50, _either(choices=20, levels=3), False),
        (["899"] * 200_000, {"properties": {"x": {"items": {"enum": [str(n) for n in range(900)]}}}}, False),
        ([{}] * 100_000, {"properties": {"x": {"items": {"required": [7] * 3000}}}}, False),
    ],
)
def test_only_so_much_is_compared(value: object, schema: Mapping[str, object], fits: bool) -> None:
    began = time.process_time()
    said = complaint({"x": value}, schema)
    assert said is None if fits else said is not None and "cannot be checked" in said
    assert time.process_time() - began < 5


def test_a_pattern_of_a_schema_is_not_run() -> None:
    schema = {"properties": {"x": {"type": "string", "pattern": "(a+)+$"}}}
    assert complaint({"x": "a" * 50 + "!"}, schema) is None


def test_arguments_of_thousands_of_levels() -> None:
    deep: object = 1
    schema: dict[str, object] = {}
    for _ in range(5000):
        deep, schema = [deep], {"type": "array", "items": schema}
    assert complaint({"x": deep}, {"properties": {"x": schema}}) == "the arguments are nested too deeply"


# Results ------------------------------------------------------------------------------------------------------------


@given(st.text(min_size=0, max_size=3000), st.integers(500, 2000))
def test_cutting_keeps_head_and_tail(text: str, most: int) -> None:
    shown = cut(text, most, "it is in the file x")
    assert len(shown) <= most
    assert shown == text or ("it is in the file x" in shown and f"of {len(text)} characters" in shown)
    assert shown[:50] == text[:50]
    assert shown[-50:] == text[-50:]


def test_what_fits_is_not_cut() -> None:
    assert cut("x" * MOST, MOST, "") == "x" * MOST

"""Tools of MCP servers by their form: names, schemas, marks, room."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.pretty import pretty_repr

from switchboard.app.mcp_servers import unknown_names
from switchboard.core.mcp_tools import (
    MOST_SCHEMAS,
    describe_tool,
    pin_tool,
    server_of,
    shallow_json,
    size_of,
    tool_name,
    unusable,
)
from switchboard.core.turns.offering import fit_servers
from switchboard.ports.mcp import ListedTool
from switchboard.ports.tools import ToolSpec
from switchboard.tools.mcp_spec import ServerSpec
from switchboard.tools.registry import build_tools
from tests.routing import butler, team_of

LOOK = ListedTool("look", "looks", {"type": "object", "properties": {"at": {"type": "string"}}})


def deep(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        inner = {"type": "object", "properties": {"x": inner}}
    return inner


def takes(argument: object, **defined: object) -> ListedTool:
    return replace(LOOK, parameters={"type": "object", "properties": {"a": argument}, "$defs": defined})


def doubling(levels: int) -> dict[str, Any]:
    """Few parts, each with two references to the one before."""
    refer = [{"anyOf": [{"$ref": f"#/$defs/n{n - 1}"}] * 2} for n in range(1, levels)]
    return {"n0": {"type": "string"}} | {f"n{n}": one for n, one in enumerate(refer, 1)}


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        (LOOK, None),
        (replace(LOOK, name="x" * 56), None),
        (replace(LOOK, name="x" * 57), "longer than 64 characters"),
        (replace(LOOK, name="files.read"), "other characters"),
        (replace(LOOK, name=""), "other characters"),
        (replace(LOOK, name="lies\u202e"), "other characters"),
        (replace(LOOK, description="x" * MOST_SCHEMAS), "bytes"),
        (replace(LOOK, parameters={}), "not that of an object"),
        (replace(LOOK, parameters={"type": "object", "anyOf": [{}]}), "begins with anyOf"),
        (replace(LOOK, parameters=deep(30)), "nested more than"),
        (replace(LOOK, parameters={"type": "object", "properties": {"a b": {}}}), "name that providers refuse"),
        (
            replace(LOOK, parameters={"type": "object", "properties": {"a": {"$ref": "https://x"}}}),
            "another document",
        ),
        (takes({"$ref": "#/$defs/a"}, a={"type": "string"}), None),
        (takes({"$ref": "#/$defs/a"}, a={"$ref": "#/$defs/b"}, b={"type": "object", "properties": {"c": True}}), None),
        (takes({"$ref": "#/$defs/a%20b%7E1c"}, **{"a b/c": {"type": "string"}}), None),
        (takes({"$ref": "#/$defs/a/anyOf/1"}, a={"anyOf": [{"type": "null"}, {"type": "string"}]}), None),
        (takes({"$ref": "#/$defs/a/anyOf/2"}, a={"anyOf": [{}, {}]}), "which it does not have"),
        (takes({"$ref": "#/$defs/a/anyOf/-1"}, a={"anyOf": [{}, {}]}), "which it does not have"),
        (takes({"$ref": "#/$defs/a/anyOf/²"}, a={"anyOf": [{}, {}]}), "which it does not have"),
        (takes({"$ref": "#/$defs/%61"}, a={"$ref": "#/$defs/a"}), "refers to itself"),
        (takes({"const": {"$ref": "https://x", "type": 7}}), None),
        (takes({"$ref": "#/$defs/b"}, a={}), "which it does not have"),
        (takes({"$ref": "#here"}), "which it does not have"),
        (takes({"$ref": "#"}), "refers to itself"),
        (takes({"$ref": "#/$defs/a"}, a={"$ref": "#/$defs/a"}), "refers to itself"),
        (takes({"$ref": "#/$defs/a"}, a={"type": "array", "items": {"$ref": "#/$defs/a"}}), "refers to itself"),
        (takes({"$ref": 7}), "invalid `$ref`"),
        (takes({"$dynamicRef": "#a"}), "which providers refuse"),
        (takes({"$ref": "#/$defs/n13"}, **doubling(14)), "parts"),
        (takes({"type": "text"}), "invalid `type`"),
        (takes({"type": []}), "invalid `type`"),
        (takes({"type": "array"}), "without `items`"),
        (takes({"type": "array", "items": [{}]}), "where a schema belongs"),
        (takes({"enum": []}), "invalid `enum`"),
        (takes({"required": True}), "invalid `required`"),
        (takes({"properties": []}), "invalid `properties`"),
        (takes({"anyOf": {}}), "invalid `anyOf`"),
        (takes({"minLength": -1}), "invalid `minLength`"),
        (takes("string"), "where a schema belongs"),
    ],
)
def test_what_no_model_can_be_offered_is_left_out(tool: ListedTool, why: str | None) -> None:
    found = unusable("server", [tool], {})
    assert (tool.name in found) is (why is not None)
    assert why is None or why in found[tool.name]


def test_our_own_tools_would_pass() -> None:
    ours = [ListedTool(tool.spec.name, "", tool.spec.parameters) for tool in build_tools()]
    assert unusable("server", ours, {}) == {}


def test_of_two_tools_of_one_name_neither_is_offered_unless_one_is_renamed() -> None:
    tools = [LOOK, replace(LOOK, name="see")]
    assert unusable("server", tools, {}) == {}
    assert {*unusable("server", tools, {"see": "look"})} == {"look", "see"}
    assert unusable("server", [replace(LOOK, name="files.read")], {"files.read": "read"}) == {}


@given(st.from_regex(r"\A[a-z][a-z0-9-]{0,29}\Z"), st.text("abc_-", min_size=1))
def test_the_server_is_known_by_the_name_of_a_tool(server: str, tool: str) -> None:
    assert server_of(tool_name(server, tool)) == server


@given(
    st.recursive(
        st.sampled_from([None, True, 7, "x]", 'a"[\\', "{"]),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("a[}"), inner, max_size=3)
        ),
    ),
    st.integers(1, 4),
)
def test_of_json_what_is_far_inside_is_left_out(value: Any, most: int) -> None:
    def cut(value: Any, left: int) -> Any:
        if isinstance(value, dict):
            return {key: cut(one, left - 1) for key, one in value.items()} if left else None
        return (
            [cut(one, left - 1) for one in value]
            if isinstance(value, list) and left
            else (None if isinstance(value, list) else value)
        )

    assert json.loads(shallow_json(json.dumps(value).encode(), most)) == cut(value, most)


@pytest.mark.parametrize("text", [b"[[[[", b"]]]]", b'[["', b"[[[[]]", b""])
def test_what_is_no_json_does_not_become_some(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting|Invalid|Extra|Unterminated"):
        json.loads(shallow_json(text, 2))


def test_our_own_tools_are_of_no_server() -> None:
    assert server_of("read_file") == ""


@pytest.mark.parametrize(
    "other",
    [
        replace(LOOK, name="see"),
        replace(LOOK, description="looks "),
        replace(LOOK, parameters={**LOOK.parameters, "required": ["at"]}),
        replace(LOOK, parameters={"type": "object", "properties": {"at": {"type": "string", "description": "\u200b"}}}),
    ],
)
def test_the_mark_changes_with_all_that_a_model_is_told(other: ListedTool) -> None:
    assert pin_tool(LOOK).mark != pin_tool(other).mark


def test_the_mark_stays_whatever_the_order_of_keys() -> None:
    turned = replace(LOOK, parameters=dict(reversed(list(LOOK.parameters.items()))))
    assert pin_tool(turned).mark == pin_tool(LOOK).mark


@given(st.text())
def test_a_description_is_data_whatever_is_in_it(text: str) -> None:
    told = describe_tool(replace(LOOK, description=text))
    assert json.loads(told.partition(": ")[2]) == text
    assert "\n" not in told


@given(st.lists(st.integers(0, 5000), max_size=12))
def test_what_is_offered_has_room(sizes: list[int]) -> None:
    specs = [ToolSpec(f"s__t{n}", "x" * size, {"type": "object"}, "effectful") for n, size in enumerate(sizes)]
    chosen = set(fit_servers(specs, ()))
    listed = [ListedTool(spec.name, spec.description, spec.parameters) for spec in specs if spec.name in chosen]
    assert sum(len(json.dumps([one.name, one.description, one.parameters])) for one in listed) <= MOST_SCHEMAS * 1.1
    assert not specs or chosen or size_of(ListedTool("t", specs[0].description, {})) > MOST_SCHEMAS


@pytest.mark.parametrize(
    ("butlers", "teams", "told"),
    [
        (("System1/clerk", "*"), ("house", "*"), []),
        (("clerk",), (), ["butlers: there is no butler 'clerk'; did you mean System1/clerk?"]),
        (("System1/clark",), (), ["butlers: there is no butler 'System1/clark'; did you mean System1/clerk?"]),
        (("porter",), (), ["butlers: there is no butler 'porter'; known here: System1/clerk"]),
        ((), ("House",), ["teams: there is no team 'House'; did you mean house?"]),
    ],
)
def test_servers_that_are_for_nobody_are_told(
    butlers: tuple[str, ...], teams: tuple[str, ...], told: list[str]
) -> None:
    known = team_of(butler("clerk", "model"), team_id="house")
    found = unknown_names([ServerSpec("files", ("true",), butlers=butlers, teams=teams)], [known])
    assert list(found) == [f"mcp_servers: files: {one}" for one in told]


def test_the_environment_of_a_server_is_not_shown() -> None:
    server = ServerSpec("files", ("true",), env={"KEY": "s3cret"})
    assert "s3cret" not in repr(server) + pretty_repr(server)

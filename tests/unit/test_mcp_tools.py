"""Tools of MCP servers by their form: names, schemas, marks, room."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.core.mcp_tools import (
    MOST_SCHEMAS,
    described,
    fitting,
    pinned,
    server_of,
    size_of,
    tool_name,
    unusable,
)
from switchboard.ports.mcp import ListedTool
from switchboard.ports.tools import ToolSpec

LOOK = ListedTool("look", "looks", {"type": "object", "properties": {"at": {"type": "string"}}})


def deep(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        inner = {"type": "object", "properties": {"x": inner}}
    return inner


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
        (replace(LOOK, parameters={"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}), None),
    ],
)
def test_what_no_model_can_be_offered_is_left_out(tool: ListedTool, why: str | None) -> None:
    found = unusable("server", [tool], {})
    assert (tool.name in found) is (why is not None)
    assert why is None or why in found[tool.name]


def test_of_two_tools_with_one_name_neither_is_offered_unless_one_is_renamed() -> None:
    tools = [LOOK, replace(LOOK, name="see")]
    assert unusable("server", tools, {}) == {}
    assert {*unusable("server", tools, {"see": "look"})} == {"look", "see"}
    assert unusable("server", [replace(LOOK, name="files.read")], {"files.read": "read"}) == {}


@given(st.from_regex(r"\A[a-z][a-z0-9-]{0,29}\Z"), st.text("abc_-", min_size=1))
def test_the_server_is_known_by_the_name_of_a_tool(server: str, tool: str) -> None:
    assert server_of(tool_name(server, tool)) == server


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
    assert pinned(LOOK).mark != pinned(other).mark


def test_the_mark_stays_whatever_the_order_of_keys() -> None:
    turned = replace(LOOK, parameters=dict(reversed(list(LOOK.parameters.items()))))
    assert pinned(turned).mark == pinned(LOOK).mark


@given(st.text())
def test_a_description_is_data_whatever_is_in_it(text: str) -> None:
    told = described(replace(LOOK, description=text))
    assert json.loads(told.partition(": ")[2]) == text
    assert "\n" not in told


@given(st.lists(st.integers(0, 5000), max_size=12))
def test_what_is_offered_has_room(sizes: list[int]) -> None:
    specs = [ToolSpec(f"s__t{n}", "x" * size, {"type": "object"}, "effectful") for n, size in enumerate(sizes)]
    chosen = set(fitting(specs))
    listed = [ListedTool(spec.name, spec.description, spec.parameters) for spec in specs if spec.name in chosen]
    assert sum(len(json.dumps([one.name, one.description, one.parameters])) for one in listed) <= MOST_SCHEMAS * 1.1
    assert not specs or chosen or size_of(ListedTool("t", specs[0].description, {})) > MOST_SCHEMAS

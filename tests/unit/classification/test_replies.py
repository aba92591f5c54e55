"""`core/replies.py`: calls and sessions in every shape that providers and embedders give them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.replies import ARGUMENT_KEYS, call_of, reply_of
from switchboard.core.text.lenient import clean, text_of_error
from switchboard.domain.llm import Reply, ToolCall, Usage
from tests.strategies import json_values

GOOD = {"butler": "health"}


@pytest.mark.parametrize("key", ARGUMENT_KEYS)
@pytest.mark.parametrize("value", [GOOD, '{"butler": "health"}'])
def test_arguments_are_found_under_every_key_as_an_object_or_as_json(key: str, value: object) -> None:
    assert call_of({"name": "t", key: value}) == ToolCall("t", GOOD)


def test_the_seeds_know_five_keys() -> None:
    assert ARGUMENT_KEYS == ("input", "args", "arguments", "parameters", "params")


@pytest.mark.parametrize(
    ("raw", "call"),
    [
        ({"name": "t"}, ToolCall("t")),
        ({"tool": "t", "server": "s", "id": "7"}, ToolCall("t", server="s", id="7")),
        ({"tool_name": "t", "tool_id": "7"}, ToolCall("t", id="7")),
        ({"type": "function", "id": "c1", "function": {"name": "t", "arguments": "{}"}}, ToolCall("t", id="c1")),
        ({"name": "t", "arguments": "no json"}, ToolCall("t", malformed="no json")),
        ({"name": "t", "arguments": '["a"]'}, ToolCall("t", malformed='["a"]')),
        *(({"name": "t", "arguments": none}, ToolCall("t")) for none in ("", " ", "null", "{}", " { } ")),
        ({"name": "t", "input": [1], "args": GOOD}, ToolCall("t", GOOD)),
        ({"name": "t", "result": {"status": "ok"}}, ToolCall("t", result={"status": "ok"}, ok=True)),
        ({"name": "t", "output": "done", "status": "completed"}, ToolCall("t", result="done", ok=True)),
        ({"name": "t", "result": "x", "status": "failed"}, ToolCall("t", result="x", ok=False)),
        ({"name": "t", "result": "x", "error": "boom"}, ToolCall("t", result="x", ok=False)),
        ({"name": "t", "result": "x", "is_error": True}, ToolCall("t", result="x", ok=False)),
        ({"name": "t", "result": "x", "ok": False}, ToolCall("t", result="x", ok=False)),
        ({"name": "t", "status": "pending"}, ToolCall("t")),
        ({"name": 7}, None),
        ({"name": ""}, None),
        ({}, None),
    ],
)
def test_a_call_in_any_shape(raw: dict[str, Any], call: ToolCall | None) -> None:
    assert call_of(raw) == call


def test_a_session_as_an_embedder_gives_it() -> None:
    raw = {
        "output": "Routed to health.",
        "tool_calls": [{"name": "route_to_butler", "input": GOOD, "result": {"status": "ok"}}, {"x": 1}, "no call"],
        "usage": {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.25},
        "model": "m1",
        "errors": ["slow"],
        "error": {"message": "boom"},
        "stop_reason": "end_turn",
    }
    call = ToolCall("route_to_butler", GOOD, {"status": "ok"}, True)
    expected = Reply("Routed to health.", (call,), Usage(10, 5, 0.25), "m1", ("slow", "boom"), "end_turn")
    assert reply_of(raw) == expected
    assert reply_of(expected) is expected


@pytest.mark.parametrize(
    ("raw", "text"), [("Routed to health", "Routed to health"), (None, ""), (7, ""), ([], ""), ({"text": 7}, "")]
)
def test_less_than_a_session_is_a_session_without_calls(raw: object, text: str) -> None:
    session = reply_of(raw)
    assert (session.text, session.calls, session.errors) == (text, (), ())


@pytest.mark.parametrize("number", [-1, True, 2**60, 1.5, "10", None])
def test_odd_numbers_count_for_nothing(number: object) -> None:
    raw = {"usage": {"input_tokens": number, "output_tokens": 1, "cost_usd": "1"}}
    assert reply_of(raw).usage == Usage(0, 1, None)


@given(json_values())
def test_whatever_a_dispatch_function_returns_is_a_session(raw: Any) -> None:
    session = reply_of({"text": raw, "tool_calls": [raw, {"name": "t", "args": raw}], "usage": raw, "error": raw})
    assert session.calls[-1].name == "t"
    assert isinstance(reply_of(raw), Reply)


def test_a_result_that_is_nested_too_deep_is_an_error_and_no_crash() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert reply_of({"text": deep}).errors == ("the session's result is nested too deep",)


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_what_is_cleaned_can_be_stored(value: Any) -> None:
    assert "\x00" not in str(clean(value)).encode("utf-8").decode()
    assert clean({"a\x00": ["\ud800", ("\udc00",)]}) == {"a": ["\ufffd", ["\ufffd"]]}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("boom", "boom"),
        ({"message": "boom"}, "boom"),
        ({"name": "APIError", "data": {"message": "boom"}}, "boom"),
        ({"code": 7}, '{"code": 7}'),
        (None, ""),
        (7, ""),
        ("x" * 900, "x" * 500),
    ],
)
def test_what_an_error_says(error: object, text: str) -> None:
    assert text_of_error(error) == text

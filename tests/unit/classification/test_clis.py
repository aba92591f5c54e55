"""`llm/outputs.py` on recorded sessions of the four CLIs, and on what is left of them when they break off.

`tests/fixtures/cli/<cli>/<case>.jsonl` is what a real CLI printed against a scripted model; `cases.json` beside them
says how it ended and what the server of its one tool recorded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.classification.judge import parse_calls, reconcile
from switchboard.domain.classification import Candidate, RecordedCall
from switchboard.domain.llm import Reply, ToolCall, Usage
from switchboard.llm.outputs import read_output
from switchboard.llm.port import CliKind as Cli
from switchboard.llm.spec import CLI_KINDS as CLIS
from tests.strategies import json_values

RECORDED: Final = Path(__file__).parents[2] / "fixtures" / "cli"
CANDIDATES: Final = (Candidate("health"), Candidate("finance"))
CASES: Final[list[tuple[Cli, str]]] = [
    (cli, path.stem) for cli in CLIS for path in sorted((RECORDED / cli).glob("*.jsonl"))
]
NAMES: Final[dict[Cli, str]] = {
    "claude-code": "mcp__switchboard__route_to_butler",
    "codex": "route_to_butler",
    "gemini-cli": "mcp_switchboard_route_to_butler",
    "opencode": "switchboard_route_to_butler",
}


def output(cli: Cli, case: str) -> str:
    return (RECORDED / cli / f"{case}.jsonl").read_text("utf-8")


def server_saw(cli: Cli, case: str) -> list[dict[str, Any]]:
    cases = json.loads((RECORDED / cli / "cases.json").read_text("utf-8"))
    saw: list[dict[str, Any]] = cases["cases"][case]["recorded"]
    return saw


def lines(*objects: dict[str, Any]) -> str:
    return "\n".join(json.dumps(one, ensure_ascii=False) for one in objects)


def test_every_cli_was_recorded() -> None:
    for cli in CLIS:
        assert {case for of, case in CASES if of == cli} >= {"ok", "two_calls", "no_call", "tool_error"}


@pytest.mark.parametrize(("cli", "case"), CASES)
def test_what_counts_as_acked_is_what_the_server_recorded(cli: Cli, case: str) -> None:
    classification = parse_calls(read_output(cli, output(cli, case)), CANDIDATES)
    saw = server_saw(cli, case)
    assert sorted(classification.acked) == sorted(one["butler"] for one in saw)
    assert {route.butler: route.segment for route in classification.routed if route.butler in classification.acked} == {
        one["butler"]: one["prompt"] for one in saw
    }
    assert (classification.error is None) is bool(saw or classification.inferred)
    assert (
        reconcile(classification, [RecordedCall(one["butler"], True, one["prompt"]) for one in saw]) == classification
    )


@pytest.mark.parametrize("cli", CLIS)
def test_a_session_that_went_well(cli: Cli) -> None:
    session = read_output(cli, output(cli, "ok"))
    [call] = session.calls
    assert (call.name, call.ok) == (NAMES[cli], True)
    assert call.arguments == {"butler": "health", "prompt": "for health"}
    assert call.server == ("switchboard" if cli == "codex" else None)
    assert session.text == "Routed to health."
    assert session.stop_reason
    assert session.usage.input_tokens > 500
    assert 10 < session.usage.output_tokens < 100


@pytest.mark.parametrize("cli", CLIS)
def test_without_a_call_the_text_is_all_there_is(cli: Cli) -> None:
    session = read_output(cli, output(cli, "no_call"))
    assert (session.calls, session.text) == ((), "Routed to health.")
    assert parse_calls(session, CANDIDATES).inferred


@pytest.mark.parametrize("cli", CLIS)
def test_a_tool_that_refuses_is_not_ok_whatever_the_exit_code(cli: Cli) -> None:
    [call] = read_output(cli, output(cli, "tool_error")).calls
    assert call.ok is False
    assert "rror" in str(call.result)


@pytest.mark.parametrize(
    ("case", "part"), [("denied", "denied"), ("mcp_down", "MCP server switchboard: failed"), ("api_error", "API Error")]
)
def test_claude_code_says_why_although_it_may_exit_with_0(case: str, part: str) -> None:
    error = parse_calls(read_output("claude-code", output("claude-code", case)), CANDIDATES).error
    assert error is not None
    assert part in error


@pytest.mark.parametrize(
    ("cli", "case", "text"),
    [
        ("claude-code", "ok", None),
        ("codex", "denied", "approval policy is never"),
        ("gemini-cli", "garbage", "Unterminated string"),
    ],
)
def test_the_reason_of_a_failure_is_kept(cli: Cli, case: str, text: str | None) -> None:
    error = parse_calls(read_output(cli, output(cli, case)), CANDIDATES).error
    assert (text in (error or "")) if text else error is None


@pytest.mark.parametrize(("cli", "case"), [one for one in CASES if one[1] in {"ok", "two_calls"}])
def test_a_session_cut_anywhere_never_claims_more_than_the_whole(cli: Cli, case: str) -> None:
    whole = output(cli, case)
    all_acked = parse_calls(read_output(cli, whole), CANDIDATES).acked
    seen: list[int] = []
    for end in range(0, len(whole), max(1, len(whole) // 150)):
        session = read_output(cli, whole[:end])
        acked = parse_calls(session, CANDIDATES).acked
        assert acked == all_acked[: len(acked)]
        seen.append(len(acked))
    assert seen == sorted(seen)
    assert seen[0] == 0 < len(all_acked)


@pytest.mark.parametrize("cli", CLIS)
def test_a_call_without_its_result_is_not_ok(cli: Cli) -> None:
    begun: dict[Cli, dict[str, Any]] = {
        "claude-code": {
            "type": "assistant",
            "message": {"content": [{"type": "tool_use", "id": "1", "name": "t", "input": {"a": 1}}]},
        },
        "codex": {
            "type": "item.started",
            "item": {"id": "1", "type": "mcp_tool_call", "tool": "t", "arguments": {"a": 1}, "status": "in_progress"},
        },
        "gemini-cli": {"type": "tool_use", "tool_name": "t", "tool_id": "1", "parameters": {"a": 1}},
        "opencode": {
            "type": "tool_use",
            "part": {"tool": "t", "callID": "1", "state": {"status": "running", "input": {"a": 1}}},
        },
    }
    session = read_output(cli, lines(begun[cli]))
    assert session == Reply(calls=(ToolCall("t", {"a": 1}, None, None, "1"),), by_program=True)


def test_one_line_with_two_results_gives_each_call_its_own() -> None:
    uses = [{"type": "tool_use", "id": name, "name": "t", "input": {}} for name in "ab"]
    results = [{"type": "tool_result", "tool_use_id": name, "content": f"for {name}"} for name in "ab"]
    session = read_output(
        "claude-code",
        lines(
            {"type": "assistant", "message": {"content": uses}},
            {"type": "user", "message": {"content": results}, "tool_use_result": {"structuredContent": {"for": "b"}}},
        ),
    )
    assert [call.result for call in session.calls] == ["for a", "for b"]


def test_a_call_that_was_denied_afterwards_is_not_ok() -> None:
    use = {"type": "tool_use", "id": "1", "name": "t", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "done"}
    session = read_output(
        "claude-code",
        lines(
            {"type": "assistant", "message": {"content": [use]}},
            {"type": "user", "message": {"content": [result]}},
            {"type": "result", "permission_denials": [{"tool_use_id": "1"}], "usage": {"output_tokens": 3}},
        ),
    )
    assert (session.calls[0].ok, session.usage) == (False, Usage(0, 3))


def test_a_refusal_keeps_its_own_words() -> None:
    [call] = read_output("claude-code", output("claude-code", "denied")).calls
    assert call.ok is False
    assert "don't ask mode" in str(call.result)


@pytest.mark.parametrize("flag", ["is_error", "isError"])
def test_a_result_of_codex_that_says_it_is_an_error_is_one(flag: str) -> None:
    result = {"content": [{"type": "text", "text": "no"}], flag: True, "structured_content": {"status": "ok"}}
    item = {"id": "1", "type": "mcp_tool_call", "tool": "t", "result": result, "status": "completed"}
    [call] = read_output("codex", lines({"type": "item.completed", "item": item})).calls
    assert (call.ok, call.result) == (False, "no")


def test_separators_of_lines_within_a_string_end_no_line() -> None:
    said = "one\u2028two\u0085three\x0bfour\x1cfive"
    line = '{"type":"text","part":{"text":"one\u2028two\u0085three\\u000bfour\\u001cfive"}}'
    assert read_output("opencode", line).text == said


def test_what_no_database_takes_does_not_come_through() -> None:
    session = read_output("opencode", '{"type":"text","part":{"text":"a\\u0000b\\ud800c"}}')
    assert session.text == "ab\ufffdc"


@pytest.mark.parametrize("cli", CLIS)
def test_depth_size_and_noise_do_no_harm(cli: Cli) -> None:
    deep = '{"type":' + "[" * 100_000 + "]" * 100_000 + "}"
    noise = "\n".join(["Loading...", "", "{", "[1]", "null", '{"type":1' + "0" * 5000 + "}", deep, "\x00\xff", "{}"])
    assert read_output(cli, noise) == Reply(by_program=True)
    good = output(cli, "ok")
    assert read_output(cli, f"{noise}\n{good}\r\n{noise}") == read_output(cli, good)


_KEYS = st.sampled_from(
    [
        "type",
        "subtype",
        "message",
        "content",
        "item",
        "part",
        "state",
        "status",
        "tool",
        "tool_name",
        "name",
        "id",
        "callID",
        "tool_id",
        "tool_use_id",
        "input",
        "usage",
        "arguments",
        "parameters",
        "result",
        "error",
        "output",
        "tokens",
        "stats",
        "mcp_servers",
        "permission_denials",
        "delta",
        "role",
        "text",
        "is_error",
    ]
)
_WORDS = st.sampled_from(
    [
        "system",
        "init",
        "assistant",
        "user",
        "result",
        "tool_use",
        "tool_result",
        "text",
        "item.completed",
        "item.started",
        "mcp_tool_call",
        "turn.failed",
        "agent_message",
        "turn.completed",
        "message",
        "error",
        "step_finish",
        "completed",
        "success",
    ]
)
_NODES = st.recursive(
    _WORDS | json_values(), lambda inner: st.dictionaries(_KEYS, inner, max_size=5) | st.lists(inner, max_size=3)
)


@given(st.sampled_from(CLIS), st.lists(st.dictionaries(_KEYS, _NODES, max_size=6), max_size=5))
def test_lines_of_any_shape_are_read_without_an_error(cli: Cli, objects: list[dict[str, Any]]) -> None:
    session = read_output(cli, lines(*objects))
    assert "\x00" not in session.text
    assert all(call.name for call in session.calls)
    assert all(len(error) <= 500 for error in session.errors)
    assert min(session.usage.input_tokens, session.usage.output_tokens) >= 0
    parse_calls(session, CANDIDATES)


@given(st.sampled_from(CLIS), st.text(max_size=200))
def test_text_of_any_kind_is_read_without_an_error(cli: Cli, text: str) -> None:
    assert read_output(cli, text) == Reply(by_program=True)

"""The loop of a turn: what comes next after any course of replies and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.core.turns.limits import CompletedCall, LoopLimits, is_loop
from switchboard.core.turns.loop import (
    AS_TEXT,
    CUT_OFF,
    EMPTY,
    NOTHING_SAID,
    LoopProgress,
    PlannedCall,
    Run,
    SendRequest,
    TurnEnd,
    apply_reply,
    begin,
    carried_out,
    end_if_at_limit,
    next_step,
)
from switchboard.domain.llm import ChatMessage, Reply, ToolCall, ToolResult, Usage
from switchboard.ports.engine import StopReason

LIMITS = LoopLimits()
SMALL = LoopLimits(requests=5, tool_calls=6, tokens=500, seconds=100.0)


@dataclass(slots=True)
class Course:
    """A turn played to its end: what was asked, what was run, and how it ended."""

    asked: list[SendRequest] = field(default_factory=list)
    run: list[PlannedCall] = field(default_factory=list)
    end: TurnEnd | None = None
    left: LoopProgress | None = None


def play(
    replies: Sequence[Reply], result: Callable[[PlannedCall], str] = lambda call: call.path, limits: LoopLimits = LIMITS
) -> Course:
    course, progress, given_ = Course(), begin("hello"), iter(replies)
    while course.end is None:
        match next_step(progress, limits):
            case SendRequest() as ask:
                course.asked.append(ask)
                progress = apply_reply(progress, next(given_, Reply("done")), limits)
            case Run(calls):
                course.run += calls
                progress = carried_out(progress, [ToolResult(c.made.id or "", result(c)) for c in calls])
            case TurnEnd() as end:
                course.end, course.left = end, progress
    return course


def calls(*names: str, text: str = "", stop: str = "tool_calls") -> Reply:
    """A reply that calls these tools, each with an id of its own."""
    made = tuple(ToolCall(name, {"a": name}, id=f"id{i}") for i, name in enumerate(names))
    return Reply(text, made, Usage(10, 1), stop_reason=stop)


def test_a_text_is_the_end() -> None:
    course = play([Reply(" Hello. ", stop_reason="end")])
    assert course.end == TurnEnd("Hello.", "end")
    assert course.asked == [SendRequest(1, (ChatMessage("user", "hello"),))]


def test_calls_run_and_their_results_go_back_together() -> None:
    course = play([calls("read", "list"), Reply("Two files.")])
    assert [call.path for call in course.run] == ["tool:1:id0", "tool:1:id1"]
    assert [result.text for result in course.asked[1].messages[-1].results] == ["tool:1:id0", "tool:1:id1"]
    assert course.end == TurnEnd("Two files.", "end")


def test_calls_without_ids_and_with_the_same_one_have_paths_of_their_own() -> None:
    course = play([Reply(calls=(ToolCall("a"), ToolCall("b"), ToolCall("c", id="x"), ToolCall("d", id="x")))])
    assert [call.path for call in course.run] == ["tool:1:call_1_1", "tool:1:call_1_2", "tool:1:x", "tool:1:x#2"]


@pytest.mark.parametrize("ids", [("x", "x", "x#2"), ("x#2", "x", "x"), ("x", "x", "x#2", "x#2", "x")])
def test_no_id_that_a_model_writes_takes_the_path_of_another_call(ids: Sequence[str]) -> None:
    course = play([Reply(calls=tuple(ToolCall("a", id=one) for one in ids))])
    assert len({call.path for call in course.run}) == len(ids)


def test_calls_that_were_cut_off_never_run() -> None:
    course = play([calls("write", stop="length"), Reply("Shorter.")])
    assert course.run == []
    assert course.asked[1].messages[-1] == ChatMessage("user", CUT_OFF)
    assert course.end == TurnEnd("Shorter.", "end")


@pytest.mark.parametrize("text", ["", "I write it now."])
def test_a_call_that_was_begun_and_cut_off_is_told_even_behind_text(text: str) -> None:
    course = play([Reply(text, stop_reason="length", unmade="cut_off"), Reply("Shorter.")])
    assert course.asked[1].messages[1:] == (ChatMessage("assistant", text or "…"), ChatMessage("user", CUT_OFF))
    assert course.end == TurnEnd("Shorter.", "end")


def test_calls_as_text_go_back_once_and_are_then_the_answer() -> None:
    written = Reply("I write.", stop_reason="end", unmade="as_text")
    course = play([written, written, Reply("never")])
    assert course.asked[1].messages[1:] == (ChatMessage("assistant", "I write."), ChatMessage("user", AS_TEXT))
    assert course.end == TurnEnd("I write.", "end"), "what else it says is the answer"
    bare = Reply(stop_reason="end", unmade="as_text")
    assert play([bare, bare, Reply("never")]).end == TurnEnd(EMPTY, "error"), "calls are not shown to a person"
    course = play([written, calls("a"), written, Reply("Done.")])
    assert course.end == TurnEnd("Done.", "end"), "after calls that were made, it may happen again"
    course = play([calls("a"), bare], limits=replace(LIMITS, requests=2))
    assert course.end is not None
    assert course.end.text.startswith("I have stopped here"), "at a limit, it is no answer"


def test_an_empty_answer_after_calls_that_worked_says_what_was_done() -> None:
    reply = Reply(
        calls=(ToolCall("write_file", {"path": "a.txt", "text": "x\n" * 200}, id="1"), ToolCall("look", id="2"))
    )
    progress = apply_reply(begin("hello"), reply, LIMITS)
    progress = carried_out(progress, [ToolResult("1", "written"), ToolResult("2", "no", ok=False)])
    ended = next_step(apply_reply(apply_reply(progress, Reply(), LIMITS), Reply(), LIMITS), LIMITS)
    assert isinstance(ended, TurnEnd)
    assert ended.stop_reason == "error"
    assert "ask again" not in ended.text
    lines = ended.text.splitlines()
    assert lines[1].startswith("- write file (path: a.txt, text: x x x")
    assert lines[2:] == ["- look (this failed)"]
    failed_only = carried_out(apply_reply(begin("hello"), calls("a"), LIMITS), [ToolResult("id0", "no", ok=False)])
    assert next_step(apply_reply(apply_reply(failed_only, Reply(), LIMITS), Reply(), LIMITS), LIMITS) == TurnEnd(
        EMPTY, "error"
    )


def test_a_text_that_was_cut_off_says_so() -> None:
    assert play([Reply("Once upon", stop_reason="length")]).end == TurnEnd("Once upon", "length")


def test_an_empty_reply_is_asked_for_once_more() -> None:
    course = play([Reply(), Reply("Here.")])
    assert course.asked[1].messages[1:] == (ChatMessage("assistant", "…"), ChatMessage("user", NOTHING_SAID))
    assert course.end == TurnEnd("Here.", "end")
    assert play([Reply(), Reply(" \n")]).end == TurnEnd(EMPTY, "error")


def test_at_a_limit_there_is_one_last_request_without_tools() -> None:
    course = play([calls(f"t{n}") for n in range(9)], limits=replace(LIMITS, requests=4))
    assert [ask.tools for ask in course.asked] == [True, True, True, False]
    assert course.end is not None
    assert course.end.stop_reason == "limit:requests"
    assert course.end.text.startswith("I have stopped here")


def test_the_last_request_may_fail() -> None:
    limits = replace(LIMITS, requests=1)
    ended = end_if_at_limit(begin("hello"), limits)
    assert ended is not None
    assert isinstance(end := next_step(ended, limits), TurnEnd)
    assert end.stop_reason == "limit:requests"
    assert end_if_at_limit(begin("hello"), LIMITS) is None


def test_calls_beyond_the_limit_are_answered_but_not_run() -> None:
    course = play([calls("a", "b", "c")], limits=replace(LIMITS, tool_calls=2))
    assert [call.made.name for call in course.run] == ["a", "b"]
    assert [result.ok for result in course.asked[1].messages[-1].results] == [True, True, False]
    assert not course.asked[1].tools
    assert course.end == TurnEnd("done", "limit:tool_calls")


def test_tokens_and_time_and_money_are_limits() -> None:
    reply = calls("a")
    cases: tuple[tuple[LoopLimits, float, int, StopReason], ...] = (
        (replace(LIMITS, tokens=11), 0.0, 0, "limit:tokens"),
        (LIMITS, 600.0, 0, "limit:time"),
        (replace(LIMITS, micros=5), 0.0, 5, "limit:money"),
    )
    for limits, seconds, micros, reason in cases:
        progress = apply_reply(begin("hello"), reply, limits, seconds=seconds, micros=micros)
        progress = carried_out(progress, [ToolResult("id0", "x")])
        assert next_step(progress, limits) == SendRequest(2, progress.messages, tools=False)
        assert next_step(apply_reply(progress, Reply("So far."), limits), limits) == TurnEnd("So far.", reason)


def test_the_same_call_with_the_same_result_three_times_is_a_loop() -> None:
    course = play([calls("poll")] * 9, result=lambda _: "busy")
    assert len(course.run) == 3
    assert course.end is not None
    assert course.end.stop_reason == "limit:repeats"


def test_a_poll_whose_results_change_is_no_loop() -> None:
    course = play([calls("poll")] * 9 + [Reply("Ready.")])
    assert len(course.run) == 9
    assert course.end == TurnEnd("Ready.", "end")


def test_two_calls_in_turns_are_a_loop() -> None:
    course = play([calls("a"), calls("b")] * 9, result=lambda call: call.made.name)
    assert len(course.run) == 4
    a, b, c = (CompletedCall(name, "{}", "x") for name in "abc")
    assert is_loop([c, a, b, a, b], 3)
    assert not is_loop([a, b, a], 3)
    assert not is_loop([a, b, a, c], 3)
    assert not is_loop([a, a], 3)
    assert not is_loop([], 3)


REPLIES = st.builds(
    Reply,
    st.sampled_from(["", " ", "text"]),
    st.lists(
        st.builds(
            ToolCall,
            st.sampled_from(["read", "write"]),
            st.dictionaries(st.text(max_size=2), st.integers(0, 2), max_size=1),
            id=st.sampled_from([None, "", "x", "y"]),
        ),
        max_size=4,
    ).map(tuple),
    st.builds(Usage, st.integers(0, 100), st.integers(0, 100)),
    stop_reason=st.sampled_from(["end", "tool_calls", "length", None]),
    unmade=st.sampled_from(["", "", "cut_off", "as_text"]),
)


@given(st.lists(REPLIES, max_size=12), st.sampled_from(["same", "different"]))
def test_whatever_a_model_says_a_turn_ends_within_its_limits_in_good_order(replies: list[Reply], results: str) -> None:
    def result(call: PlannedCall) -> str:
        return "" if results == "same" else call.path

    course = play(replies, result, SMALL)
    assert course.end is not None
    assert course.end.text
    assert len(course.asked) <= SMALL.requests
    assert len(course.run) <= SMALL.tool_calls
    paths = [call.path for call in course.run]
    assert len(set(paths)) == len(paths)
    assert [ask.n for ask in course.asked] == list(range(1, len(course.asked) + 1))
    for before, after in pairwise(course.asked):
        assert after.messages[: len(before.messages)] == before.messages
        assert before.tools, "nothing follows the request without tools"
    for ask in course.asked:
        _in_good_order(ask.messages)
    cut_off = {id(call) for reply in replies if reply.stop_reason == "length" for call in reply.calls}
    assert not cut_off & {id(call.made) for call in course.run}
    assert play(replies, result, SMALL) == course


def _in_good_order(messages: Sequence[ChatMessage]) -> None:
    """In turns, from the person's to the person's; every call has its result in the next message, and no other."""
    assert [m.role for m in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"]
    for before, after in pairwise(messages):
        assert [call.id for call in before.calls] == [result.call_id for result in after.results] or not before.calls
        assert bool(after.results) == bool(before.calls)
        assert all(m.text or m.calls or m.results for m in (before, after))

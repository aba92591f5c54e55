"""`domain/llm.py`: a reply told piece by piece, and what a report says of its attempts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.domain.llm import (
    ChatMessage,
    FailureKind,
    ModelAttempt,
    ModelDelta,
    Outcome,
    Reply,
    Report,
    Request,
    ToolCall,
    ToolResult,
    Usage,
    fold,
)
from switchboard.llm.answers import read_answer
from switchboard.llm.json_form import for_grammars

CALL = ToolCall("weather", {"at": "home"}, id="c1")


@given(st.lists(st.text()), st.integers(0, 3))
def test_a_reply_is_what_its_deltas_fold_to(pieces: list[str], calls: int) -> None:
    end = Reply(usage=Usage(7, 3, cache_read=5), model="m", stop_reason="end", blocks=({"type": "text"},), origin="o")
    told = [*(ModelDelta(piece) for piece in pieces), *[ModelDelta(call=CALL)] * calls, ModelDelta(end=end)]
    reply = fold(told)
    assert (reply.text, reply.calls) == ("".join(pieces), (CALL,) * calls)
    assert (reply.usage, reply.model, reply.stop_reason, reply.blocks, reply.origin) == (
        *(end.usage, "m", "end"),
        *(end.blocks, "o"),
    )


@pytest.mark.parametrize("ids", [("call_1_1", None), (None, "call_1_0", None), ("a", "a", "call_1_1"), ("a", "b")])
def test_each_call_of_an_answer_has_an_id_of_its_own(ids: tuple[str | None, ...]) -> None:
    made = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
    body = {"choices": [{"finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": made}}]}
    reply = read_answer("openai", json.dumps(body), Request((ChatMessage("user", "hello"),)))
    found = [call.id for call in reply.calls]
    assert len(set(found)) == len(ids)
    assert [one for one, said in zip(found, ids, strict=True) if said is not None and ids.count(said) == 1] == [
        one for one in ids if one is not None and ids.count(one) == 1
    ]


def test_a_reply_that_broke_off_has_no_end() -> None:
    assert fold([ModelDelta("It is "), ModelDelta("rain")]) == Reply("It is rain")


def test_what_was_told_before_a_reset_is_void() -> None:
    told = [
        ModelDelta("It is "),
        ModelDelta(call=CALL),
        ModelDelta(reset=True),
        ModelDelta("Sun"),
        ModelDelta(end=Reply(stop_reason="end")),
    ]
    assert fold(told) == Reply("Sun", stop_reason="end")


def test_a_reply_is_the_next_message_and_all_messages_are_one_text() -> None:
    said = Reply("Let me see.", (CALL,), blocks=({"type": "text"},), origin="o").message
    assert (said.role, said.text, said.calls, said.origin) == ("assistant", "Let me see.", (CALL,), "o")
    request = Request((ChatMessage("user", "Rain?"), said, ChatMessage("user", results=(ToolResult("c1", "yes"),))))
    assert request.said == "Rain?\n\nLet me see.\n\nweather({'at': 'home'})\n\nyes"


def test_the_attempt_that_counts_is_the_last_that_answered() -> None:
    down, unfit, shut = ModelAttempt("a", "unavailable"), ModelAttempt("b", "unfit"), ModelAttempt("c", "cooldown")
    assert Report(Reply(), (down, unfit, shut)).last is unfit
    assert Report(Reply(), (down, unfit, shut)).tried == (down, shut)
    assert Report(None, (down, shut)).last is shut
    assert (Report(Reply(), ()).last, Report(None, ()).asked) == (None, False)


@pytest.mark.parametrize(
    ("outcomes", "kind"),
    [
        (["unavailable", "defect"], "unavailable"),
        (["rate_limited", "context_too_long"], "rate_limited"),
        (["auth", "cooldown", "defect"], "auth"),
        (["cooldown", "defect"], "unavailable"),
        (["defect", "busy"], "unavailable"),
        (["defect", "context_too_long"], "context_too_long"),
        (["budget", "garbage"], "garbage"),
        ([], "unavailable"),
    ],
)
def test_a_request_fails_as_the_model_that_is_away_whatever_others_said(
    outcomes: list[Outcome], kind: FailureKind
) -> None:
    failure = Report(None, tuple(ModelAttempt(f"m{n}", outcome) for n, outcome in enumerate(outcomes))).failure
    assert failure is not None
    assert failure.kind == kind


def test_a_grammar_schema_has_no_lengths_whatever_its_arguments_are_called() -> None:
    text = {"type": "string", "maxLength": 262_144, "pattern": "x", "format": "uri", "description": "d"}
    kept = {"type": "string", "description": "d"}
    schema = {
        "type": "object",
        "properties": {
            "format": text,
            "many": {"type": "array", "items": text},
            "one": {"anyOf": [text, {"type": "null"}]},
        },
        "$defs": {"maxLength": text},
        "required": ["format"],
        "additionalProperties": False,
    }
    assert for_grammars(schema) == {
        "type": "object",
        "properties": {
            "format": kept,
            "many": {"type": "array", "items": kept},
            "one": {"anyOf": [kept, {"type": "null"}]},
        },
        "$defs": {"maxLength": kept},
        "required": ["format"],
        "additionalProperties": False,
    }

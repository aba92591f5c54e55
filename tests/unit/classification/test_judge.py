"""`core/classification/judge.py`: which calls are ours, whom they name, what counts, and what the record changes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from switchboard.core.classification.judge import SERVER, infer, is_ours, parse_calls, reconcile, resolve
from switchboard.core.classification.prompt import ROUTE_TOOL
from switchboard.core.replies import ARGUMENT_KEYS, is_call_of, names_of
from switchboard.domain.classification import Candidate, Classification, FailedCall, RecordedCall, RoutedPart
from switchboard.domain.llm import Reply, ToolCall

CANDIDATES = (Candidate("health"), Candidate("finance"), Candidate("home team"))
NAME = "mcp__switchboard__route_to_butler"


def call(
    butler: object = "health",
    *,
    segment: str | None = None,
    result: object = None,
    ok: bool | None = True,
    name: str = NAME,
) -> ToolCall:
    arguments = {"butler": butler} | ({} if segment is None else {"segment": segment})
    return ToolCall(name, arguments, {"status": "accepted"} if result is None else result, ok)


def session(*calls: ToolCall, text: str = "", **more: Any) -> Reply:
    return Reply(text=text, calls=calls, stop_reason="end_turn", **more)


def judge(*calls: ToolCall, text: str = "") -> Classification:
    return parse_calls(session(*calls, text=text), CANDIDATES)


@pytest.mark.parametrize(
    "name",
    [
        "route_to_butler",
        "mcp__switchboard__route_to_butler",
        "mcp_switchboard_route_to_butler",
        "switchboard_route_to_butler",
        "switchboard__route_to_butler",
        "switchboard.route_to_butler",
        "switchboard/route_to_butler",
        "switchboard:route_to_butler",
        "mcp.switchboard.route_to_butler",
        "mcp__switchboard.route_to_butler",
    ],
)
def test_our_tool_under_every_name_that_clients_give_it(name: str) -> None:
    assert is_ours(ToolCall(name))
    assert is_ours(ToolCall(name, server="switchboard"))
    assert not is_ours(ToolCall(name, server="evil"))


@pytest.mark.parametrize(
    "name",
    [
        "evil__route_to_butler",
        "mcp__other__route_to_butler",
        "mcp_other_route_to_butler",
        "other_route_to_butler",
        "mcp__evil_switchboard__route_to_butler",
        "mcp__switchboard_evil__route_to_butler",
        "evil.switchboard.route_to_butler",
        "xroute_to_butler",
        "_route_to_butler",
        "route_to_butler2",
        "route_to_butlers",
        "Route_To_Butler",
        "ROUTE_TO_BUTLER",
        " route_to_butler",
        "route_to_butler\n",
        "mcp__switchboard__route_to_butler__route_to_butler",
        "switchboard",
        "",
    ],
)
def test_a_name_that_only_looks_like_ours_is_not(name: str) -> None:
    assert not is_ours(ToolCall(name))
    classification = judge(call(name=name))
    assert (classification.routed, classification.acked) == ((), ())


@given(st.text(max_size=30).filter(bool))
def test_nothing_before_or_behind_one_of_our_names_leaves_it_ours(text: str) -> None:
    for name in ("route_to_butler", NAME):
        assert is_ours(ToolCall(text + name)) is (text + name in names_of(ROUTE_TOOL, SERVER))
        assert not is_ours(ToolCall(name + text))


def test_another_name_of_our_server_and_its_spelling_with_underlines() -> None:
    assert is_call_of(ToolCall("mcp__my_board__route_to_butler"), ROUTE_TOOL, "my-board")
    assert is_call_of(ToolCall("my-board_route_to_butler"), ROUTE_TOOL, "my-board")
    assert not is_call_of(ToolCall(NAME), ROUTE_TOOL, "my-board")


def test_codex_keeps_the_server_beside_the_tool() -> None:
    for server in ("switchboard", "mcp__switchboard"):
        assert is_ours(ToolCall("route_to_butler", server=server))
    for server in ("", "other", "Switchboard", "switchboard2", "mcp__other"):
        assert not is_ours(ToolCall("route_to_butler", server=server))


BUTLERS = (Candidate("System1/health"), Candidate("finance"), Candidate("Home"))
TWINS = (Candidate("System1/health"), Candidate("west/health"), Candidate("Bank"), Candidate("BANK"))


@pytest.mark.parametrize(
    ("name", "candidates", "found"),
    [
        ("finance", BUTLERS, "finance"),
        ("FINANCE", BUTLERS, "finance"),
        (' "finance"\n', BUTLERS, "finance"),
        ("`home`", BUTLERS, "Home"),
        ("health", BUTLERS, "System1/health"),
        ("Health", BUTLERS, "System1/health"),
        ("system1/HEALTH", BUTLERS, "System1/health"),
        ("System1/finance", BUTLERS, "finance"),
        ("west/health", TWINS, "west/health"),
        ("Bank", TWINS, "Bank"),
        ("BANK", TWINS, "BANK"),
        ("health", TWINS, "ambiguous"),
        ("bank", TWINS, "ambiguous"),
        ("east/health", TWINS, "unknown"),
        ("east/health", BUTLERS, "unknown"),
        ("Team/home", BUTLERS, "Home"),
        ("healt", BUTLERS, "unknown"),
        ("health finance", BUTLERS, "unknown"),
        ("System1/", BUTLERS, "unknown"),
        ("/", BUTLERS, "unknown"),
        ("''", BUTLERS, "unknown"),
        ("finance", (), "unknown"),
    ],
)
def test_which_candidate_a_name_means(name: str, candidates: tuple[Candidate, ...], found: str) -> None:
    meant = resolve(name, candidates)
    assert (meant.kind if isinstance(meant, FailedCall) else meant) == found


@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, unique=True), st.text(max_size=8))
def test_a_name_means_a_candidate_or_nobody(names: list[str], asked: str) -> None:
    candidates = [Candidate(name) for name in names]
    meant = resolve(asked, candidates)
    assert isinstance(meant, FailedCall) or meant in names
    assert all(resolve(name, candidates) == name for name in names)


@pytest.mark.parametrize("key", ARGUMENT_KEYS)
@pytest.mark.parametrize("form", [dict, json.dumps])
def test_arguments_that_a_small_model_wrapped_once_more(key: str, form: Any) -> None:
    wrapped = ToolCall(NAME, {key: form({"butler": "health", "reason": "pain"})}, {"status": "ok"}, True)
    assert judge(wrapped) == Classification((RoutedPart("health", reason="pain"),), ("health",))


@pytest.mark.parametrize(
    "result",
    [
        {"status": "ok"},
        {"status": "accepted"},
        '{"status": "accepted"}',
        [{"type": "text", "text": '{"status": "ok"}'}],
        {"structuredContent": {"status": "ok"}},
        {"structured_content": {"status": "ok"}, "content": []},
        {"content": [{"type": "text", "text": '{"status": "ok"}'}], "isError": False},
        {"result": {"status": "accepted"}},
    ],
)
def test_a_good_result_in_any_form_is_acked(result: object) -> None:
    assert judge(call(result=result)) == Classification((RoutedPart("health"),), ("health",))


@pytest.mark.parametrize(
    ("result", "ok", "kind", "why"),
    [
        ({"status": "ok"}, False, "not_ok", "status ok"),
        ({"status": "ok"}, None, "no_result", "the call has no result"),
        ({"status": "error"}, True, "not_ok", "status error"),
        ({"status": "OK"}, True, "not_ok", "status OK"),
        ({"status": ["ok"]}, True, "not_ok", '{"status": ["ok"]}'),
        ("accepted", True, "not_ok", "accepted"),
        ("permission denied", False, "not_ok", "permission denied"),
        ([{"type": "text", "text": "no"}], False, "not_ok", "no"),
        ("", True, "not_ok", "the result has no status"),
        (7, True, "not_ok", "the result has no status"),
    ],
)
def test_everything_else_has_failed(result: object, ok: bool | None, kind: Any, why: str) -> None:
    classification = judge(call(result=result, ok=ok))
    assert classification == Classification(
        (RoutedPart("health"),), (), (FailedCall("health", kind, why),), f"health: {why}"
    )


def test_several_butlers_each_get_their_segment() -> None:
    classification = judge(call("health", segment="my head"), call("finance", segment=" the bill "))
    assert classification.routed == (RoutedPart("health", "my head"), RoutedPart("finance", "the bill"))
    assert (classification.acked, classification.error) == (("health", "finance"), None)


def test_one_that_failed_beside_one_that_took_it_is_told() -> None:
    classification = judge(call("health"), call("finance", result={"status": "busy"}))
    assert classification.acked == ("health",)
    assert classification.failed == (FailedCall("finance", "not_ok", "status busy"),)
    assert classification.error is None


@pytest.mark.parametrize(
    ("first", "second", "segment"),
    [("a", "a", "a"), ("a", "b", None), ("a", None, None), (None, "b", None), (None, None, None)],
)
def test_a_butler_named_twice_counts_once_and_loses_no_text(
    first: str | None, second: str | None, segment: str | None
) -> None:
    classification = judge(call("health", segment=first), call("HEALTH", segment=second))
    assert (classification.routed, classification.acked) == ((RoutedPart("health", segment),), ("health",))


@pytest.mark.parametrize("order", [1, -1])
def test_of_a_failure_and_a_success_for_one_butler_the_success_counts(order: int) -> None:
    calls = [call(ok=False), call()][::order]
    assert judge(*calls) == Classification((RoutedPart("health"),), ("health",))


def test_an_unknown_name_is_an_error_and_says_who_there_is() -> None:
    classification = judge(call("doctor"))
    assert (classification.routed, classification.acked) == ((), ())
    assert classification.error == "there is no candidate 'doctor'; there are: finance, health, home team"
    assert [(one.butler, one.kind) for one in classification.failed] == [("doctor", "unknown")]


def test_the_claim_of_a_result_makes_no_candidate_of_a_stranger() -> None:
    assert judge(call("root", result={"status": "ok", "butler": "health"})).acked == ()


@pytest.mark.parametrize(
    ("wrong", "right", "forgiven"),
    [(None, None, True), ("a", "a", True), ("a", None, True), ("a", "b", False), (None, "b", False)],
)
def test_a_wrong_name_is_put_right_by_a_later_call_for_the_same_text(
    wrong: str | None, right: str | None, forgiven: bool
) -> None:
    classification = judge(call("healt", segment=wrong, ok=False), call("health", segment=right))
    assert classification.acked == ("health",)
    assert (classification.error is None) is forgiven
    assert (classification.failed == ()) is forgiven


def test_a_wrong_name_after_a_good_call_is_not_forgiven() -> None:
    classification = judge(call("health"), call("healt", ok=False))
    assert (classification.acked, classification.failed[0].kind) == (("health",), "unknown")
    assert classification.error is not None


@pytest.mark.parametrize("butler", [None, "", "  ", 7, ["health"], {"name": "health"}])
def test_a_call_that_names_nobody(butler: object) -> None:
    assert judge(call(butler)).error == "a call names no butler"


@pytest.mark.parametrize(
    ("text", "butler"),
    [
        ("Routed to health", "health"),
        ("Routed to health.", "health"),
        ("I routed it to the **health** butler.", "health"),
        ("Routing this message to: `Finance`", "finance"),
        ("I am forwarding this to the home team, they can help.", "home team"),
        ("Handed over to health", "health"),
        ("I did not know at first. Routed to health.", "health"),
        ("Routed to\nhealth", "health"),
        ("Routed to health. To refinance the flat is another matter.", "health"),
        ("Routed to health and finance.", None),
        ("Routed to health, not finance.", None),
        ("Routed to healthcare", None),
        ("Routed to health-insurance", None),
        ("Routed to System1/health", None),
        ("Routed to the doctor", None),
        ("This is about health.", None),
        ("I could not route it to health.", None),
        ("This was not routed to health.", None),
        ("I won\u2019t be routing it to health.", None),
        ("If you agree, it will be routed to health.", None),
        ("Should I route this to health?", None),
        ("Rerouted to health", None),
        ("", None),
        ("Routed to health" + " " * 20_000, None),
    ],
)
def test_what_a_text_without_a_call_says(text: str, butler: str | None) -> None:
    assert infer(text, CANDIDATES) == butler
    expected = (RoutedPart(butler, reason="inferred from the text"),) if butler else ()
    classification = judge(text=text)
    assert (classification.routed, classification.acked, classification.inferred) == (expected, (), butler is not None)
    assert (classification.error is None) is (butler is not None)


@pytest.mark.parametrize(
    ("text", "butler"),
    [
        ("Routed to System1/health", "System1/health"),
        ("Routed to west/health", "west/health"),
        ("Routed to health", None),
        ("Routed to Bank", None),
        ("Routed to System1/health, where health is looked after", None),
    ],
)
def test_a_name_that_two_share_names_neither(text: str, butler: str | None) -> None:
    assert infer(text, TWINS) == butler


def test_a_call_of_ours_leaves_nothing_to_infer() -> None:
    classification = judge(call("nobody", ok=False), text="Routed to health")
    assert (classification.routed, classification.inferred) == ((), False)


def test_a_call_of_anothers_tool_is_none_of_ours() -> None:
    classification = judge(call("finance", name="mcp__other__route_to_butler"), text="Routed to health")
    assert ([route.butler for route in classification.routed], classification.inferred) == (["health"], True)


@pytest.mark.parametrize(
    ("ended", "errors", "error"),
    [
        ("end_turn", (), "the session ended (end_turn) without a call of route_to_butler"),
        (None, (), "the session broke off"),
        (None, ("a warning", "HTTP 500"), "the session broke off: HTTP 500"),
    ],
)
def test_why_there_is_no_call(ended: str | None, errors: tuple[str, ...], error: str) -> None:
    assert parse_calls(Reply(stop_reason=ended, errors=errors), CANDIDATES) == Classification(error=error)


_CALLS = st.lists(
    st.builds(
        ToolCall,
        st.sampled_from([NAME, "route_to_butler", "evil__route_to_butler"]),
        st.fixed_dictionaries(
            {"butler": st.sampled_from(["health", "Finance", "home team", "root", "", 7])},
            optional={"segment": st.sampled_from(["a", "b", ""])},
        ),
        st.sampled_from([{"status": "ok"}, {"status": "busy"}, "accepted", None]),
        st.sampled_from([True, False, None]),
    ),
    max_size=5,
)
_RECORD = st.lists(
    st.builds(RecordedCall, st.sampled_from(["health", "finance"]), st.booleans(), st.none() | st.just("a")), max_size=4
)
_SESSIONS = st.builds(session).flatmap(
    lambda empty: _CALLS.map(lambda calls: replace(empty, calls=tuple(calls), text="Routed to health"))
)


def _holds_together(classification: Classification) -> None:
    names = [route.butler for route in classification.routed]
    failed = {one.butler for one in classification.failed}
    assert set(names) <= {one.name for one in CANDIDATES}
    assert len(names) == len(set(names))
    assert len(set(classification.acked)) == len(classification.acked)
    assert set(classification.acked) <= set(names)
    assert not failed & set(classification.acked)
    assert classification.inferred or set(names) <= failed | set(classification.acked)
    assert classification.error is not None or bool(names)


@given(_SESSIONS)
def test_a_classification_always_holds_together(heard: Reply) -> None:
    classification = parse_calls(heard, CANDIDATES)
    _holds_together(classification)
    good = [one for one in heard.calls if one.ok and one.result == {"status": "ok"} and is_ours(one)]
    assert set(classification.acked) == {str(one.arguments["butler"]).lower() for one in good} & {
        one.name for one in CANDIDATES
    }


@given(_SESSIONS, _RECORD)
def test_after_the_record_acked_is_exactly_what_the_server_took(heard: Reply, recorded: list[RecordedCall]) -> None:
    classification = reconcile(parse_calls(heard, CANDIDATES), recorded)
    _holds_together(classification)
    assert set(classification.acked) == {one.butler for one in recorded if one.ok}
    assert not classification.inferred or classification.acked == ()


@given(_SESSIONS, _RECORD)
def test_reconciling_twice_changes_nothing_more(heard: Reply, recorded: list[RecordedCall]) -> None:
    once = reconcile(parse_calls(heard, CANDIDATES), recorded)
    again = reconcile(once, recorded)
    assert (set(again.routed), again.acked, set(again.failed)) == (set(once.routed), once.acked, set(once.failed))
    assert (again.error is None) is (once.error is None)


def test_what_the_transcript_claims_and_the_server_never_saw_has_failed() -> None:
    classification = reconcile(judge(call("health"), call("finance")), [RecordedCall("finance", True)])
    assert classification.acked == ("finance",)
    assert [(one.butler, one.kind) for one in classification.failed] == [("health", "not_recorded")]
    assert classification.error is None
    assert reconcile(judge(call("health")), []).error is not None


def test_what_the_server_took_counts_although_the_transcript_broke_off() -> None:
    broken = parse_calls(Reply(calls=(call("healt", ok=False),)), CANDIDATES)
    classification = reconcile(broken, [RecordedCall("health", True)])
    assert classification == Classification((RoutedPart("health"),), ("health",))


def test_the_segment_that_the_server_was_given_is_the_one() -> None:
    claimed = judge(
        structs.replace(call(segment="claimed"), arguments={"butler": "health", "segment": "x", "reason": "r"})
    )
    recorded = [RecordedCall("health", False, "refused"), RecordedCall("health", True, "taken")]
    assert reconcile(claimed, recorded).routed == (RoutedPart("health", "taken", "r"),)


def test_a_refusal_by_the_server_wins_over_a_claimed_success() -> None:
    classification = reconcile(judge(call()), [RecordedCall("health", False, None, "stale")])
    assert classification == Classification(
        (RoutedPart("health"),), (), (FailedCall("health", "not_ok", "stale"),), "health: stale"
    )


def test_a_failure_told_by_both_is_told_once_in_the_words_of_the_server() -> None:
    classification = reconcile(judge(call(ok=False)), [RecordedCall("health", False, None, "stale")])
    assert classification.failed == (FailedCall("health", "not_ok", "stale"),)


def test_an_inferred_classification_stands_until_the_server_took_something() -> None:
    inferred = judge(text="Routed to health")
    assert reconcile(inferred, []) == inferred
    assert reconcile(inferred, [RecordedCall("finance", True)]) == Classification(
        (RoutedPart("finance"),), ("finance",)
    )

"""What the journal has of a plan, read as the machine takes it up again; and what a planned turn begins with."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.machine import StepEnd
from switchboard.core.planning.places import paths_in
from switchboard.core.planning.records import ended_of, recorded_of, step_of
from switchboard.core.planning.routed import RoutedPlan, read_routed
from switchboard.core.planning.start import Roles, Start, cast, read_start
from switchboard.core.turns.asking import ASK_USER
from switchboard.core.turns.frozen import Frozen, FrozenTool
from switchboard.core.turns.limits import LoopLimits, TurnUsage, find_reached_limit, may_generate
from switchboard.domain.planning import Pipeline, PipelineStep
from switchboard.ports.engine import OnRecord
from switchboard.ports.history import Entry, EntryCall
from switchboard.tools.urls import written_urls

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RECORDS = {
    "plan:start": OnRecord("done", {}),
    "plan:route": OnRecord("done", {}, 100),
    "s1": OnRecord("done", {"text": "page"}),
    "s2": OnRecord("failed", {"why": "status 404"}, 7),
    "s3": OnRecord("started", None, 1_500),
    "s4/request:1": OnRecord("done", {"reply": {}}, 40),
    "s4/approval:1:x": OnRecord("started"),
    "s5": OnRecord("done", {"review": {"verdict": "complete", "steps": []}}, 30),
    "approval:s6": OnRecord("done", {"value": {"decision": "approved"}}),
    "approval:s7": OnRecord("done", {"value": {"decision": "refused"}}),
    "approval:s8": OnRecord("done", {"expired": True}),
}


def test_a_plan_is_told_from_its_records() -> None:
    found = recorded_of(RECORDS, "deadline")
    assert {one.end.id: one.end for one in found.ends} == {
        "s1": StepEnd("s1", "done", size=4),
        "s2": StepEnd("s2", "failed", tokens=7, why="status 404", calls=()),
        "s5": StepEnd("s5", "done", tokens=30),
    }
    assert [one.end.id for one in found.ends if one.review is not None] == ["s5"]
    assert (found.begun, found.approved, found.halted) == (frozenset({"s3", "s4"}), frozenset({"s6"}), "deadline")
    assert found.lost == 100 + 1_500 + 40, "what was planned, and what steps have used that have not ended"


@pytest.mark.parametrize(
    ("records", "calls"),
    [
        ({"s1": OnRecord("done", {"text": "x"})}, None),
        ({"s1": OnRecord("done", {"text": "x", "calls": []})}, ()),
        (
            {"s1": OnRecord("done", {"text": "x", "calls": [{"name": "look", "arguments": "{}", "result": "y"}, 7]})},
            (EntryCall("", "look", "{}", ""), EntryCall("", "", "", "")),
        ),
        ({"s1": OnRecord("failed", {"why": "x"}), "s1/request:1": OnRecord("done", {})}, ()),
        ({"s1": OnRecord("failed", {"why": "x"}), "s1/tool:1:a": OnRecord("done", {})}, None),
    ],
)
def test_what_a_specialist_has_called_is_known_or_not(
    records: dict[str, OnRecord], calls: tuple[EntryCall, ...] | None
) -> None:
    assert ended_of("s1", records, 0).end.calls == calls


def test_what_has_not_ended_has_no_end() -> None:
    with pytest.raises(ValueError, match="s3 has not ended"):
        ended_of("s3", RECORDS, 0)


@pytest.mark.parametrize(("path", "step"), [("s3", "s3"), ("s3/tool:1:x", "s3"), ("plan:lead", None), ("ask:s3", None)])
def test_a_record_belongs_to_a_step_or_to_none(path: str, step: str | None) -> None:
    assert step_of(path) == step


@pytest.mark.parametrize(
    ("named", "roles"),
    [
        ({}, ("one", "one", "one")),
        ({"main": "s"}, ("s", "s", "s")),
        ({"router": "m"}, ("m", "m", "m")),
        ({"specialist": "l"}, ("l", "l", "l")),
        ({"main": "s", "specialist": "l"}, ("s", "l", "l")),
        ({"router": "m", "specialist": "l"}, ("m", "m", "l")),
        ({"main": "s", "router": "m", "specialist": "l"}, ("s", "m", "l")),
    ],
)
def test_a_missing_role_is_played_by_the_next_larger_one(named: dict[str, str], roles: tuple[str, str, str]) -> None:
    assert cast(named, "one") == Roles(*roles)


def test_what_a_turn_begins_with_is_read_back_as_it_was() -> None:
    look = FrozenTool("look", "looks", {"type": "object"}, "idempotent")
    said = Entry("user", "Which one?", created_at=NOW)
    frozen = Frozen(NOW, "UTC", "", "", ("m",), tools=(look, FrozenTool(ASK_USER, "", {})), history=(said,))
    start = Start(frozen, "The blue one", Roles("a", "b", "c"), {"a": 4096}, PlanLimits(), 3, 20_000, NOW, own=("x",))
    record = start.record()
    assert isinstance(record, dict)
    assert read_start(record) == start
    assert read_start(dict(reversed(record.items()))) == start, "releases may write its fields in another order"
    assert [tool.name for tool in start.menu.tools] == ["look"], "to ask the person is a decision, and no tool"
    assert start.asked == "Earlier in the conversation:\nperson: Which one?\n\nNow:\nThe blue one"


def test_a_decision_is_read_back_and_a_template_gets_what_planning_cost() -> None:
    routed = RoutedPlan(
        "pipeline", "template", Pipeline((PipelineStep("s1", "tool", "look"),), 1, 4_000), notes=("why",)
    )
    again = read_routed({**routed.record(), "usage": []})
    assert again == routed
    budgets = [
        one.pipeline and one.pipeline.token_budget
        for one in (again.with_more(900, 20_000), again.with_more(900, 4_500))
    ]
    assert budgets == [4_900, 4_500]


def test_a_request_may_generate_half_the_tokens_left_and_the_last_one_all() -> None:
    limits = LoopLimits(generated=4_000)
    assert may_generate(LoopLimits(), TurnUsage(), 4_096, last=False) == 4_096
    assert may_generate(limits, TurnUsage(generated=1_000), 4_096, last=False) == 1_500
    assert may_generate(limits, TurnUsage(generated=1_000), 4_096, last=True) == 3_000
    assert may_generate(limits, TurnUsage(generated=9_000), 4_096, last=True) == 1
    assert (
        find_reached_limit(limits, TurnUsage(generated=3_600), ()),
        find_reached_limit(limits, TurnUsage(generated=3_601), ()),
    ) == (
        None,
        "limit:tokens",
    )


def test_addresses_and_paths_are_taken_as_people_write_them() -> None:
    text = "See (https://a.example/x), https://en.example/A_(b)! and https://a.example/x; not ftp://c.example/y."
    assert written_urls(text) == ("https://a.example/x", "https://en.example/A_(b)")
    assert paths_in("Put notes/todo.md into plan.txt. See https://a.example/z.html") == ("notes/todo.md", "plan.txt")

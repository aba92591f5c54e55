"""Words of options become rules, and what the API says of rules becomes lines that people can read and trust."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from switchboard.cli.messages.explain import tree_of
from switchboard.cli.rules.checks import changed_rule, print_outcomes
from switchboard.cli.rules.options import pairs, reason_for
from switchboard.cli.rules.views import (
    blast_lines,
    change_lines,
    filters_of,
    finding_lines,
    looking_order,
    print_edit,
    receivers_of,
    rule_line,
)
from switchboard.core.routing.explain import in_order
from switchboard.core.routing.rulefile import rule_json
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import Rule, SystemId, Target, TeamId
from tests.routing import rule as a_rule

NOW = datetime(2026, 2, 1, tzinfo=UTC)
_KEYS = ("sender", "thread", "endpoint")


def rule(**more: Any) -> dict[str, Any]:
    """A rule as the API shows it."""
    made = replace(a_rule("System1/memo", number=1, channel="email"), name="mail", created_at=NOW)
    return rule_json(made) | more


def receivers(*butlers: str, dead: str = "") -> dict[str, Any]:
    return {"butlers": list(butlers), "dead_letters": [{"team": dead, "category": "no_route"}] if dead else []}


def blast(looked_at: int, changed: int, *, complete: bool = True, shown: int | None = None) -> dict[str, Any]:
    example = {"before": receivers(dead="root"), "after": receivers("System1/memo", "System1/diary")}
    examples = [example | {"request_id": str(UUID(int=n))} for n in range(changed if shown is None else shown)]
    return {"looked_at": looked_at, "changed": changed, "complete": complete, "examples": examples}


# Words --------------------------------------------------------------------------------------------------------------


def test_filters_are_key_and_value() -> None:
    assert pairs(["sender=a=b", "thread="]) == {"sender": "a=b", "thread": ""}
    assert pairs(["a=1", "b=3", "a=2"]) == {"a": ["1", "2"], "b": "3"}, "a key given twice: any of the values"
    assert rule_line(rule(copy=True)).plain.endswith("System1/memo  copy")
    assert filters_of(rule(filters={"a": ["1", "2"], "b": "3"})) == "a=1 a=2 b=3"


@pytest.mark.parametrize("words", [["sender"], ["=x"], [""]])
def test_words_that_are_no_filters(words: list[str]) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        pairs(words, "--facts")
    assert refused.value.param_hint == "--facts"


def test_a_reason_is_asked_for_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reason_for("because") == "because"
    assert reason_for(None, dry_run=True) == "dry run"
    monkeypatch.setattr(sys, "stdin", io.StringIO("never read\n"))
    for nothing in (None, "", "  "):
        with pytest.raises(typer.BadParameter, match="a reason is required"):
            reason_for(nothing)


def test_a_rule_with_fields_set() -> None:
    changed = changed_rule(
        rule(filters={"sender": "a", "thread": "t"}),
        [
            "priority=5",
            "active=false",
            "filters.sender=b",
            "filters.sender=c",
            "filters.thread=",
            "to=System1/x, finance",
            "name=n",
        ],
    )
    assert changed == {
        "rule_id": str(UUID(int=1)),
        "priority": 5,
        "active": False,
        "filters": {"sender": ["b", "c"]},
        "targets": [{"system_id": "System1/x"}, {"team_id": "finance"}],
        "name": "n",
    }


@pytest.mark.parametrize("word", ["priority", "priority=high", "active=no", "prio=5", "filters.=x", "team_id=x"])
def test_fields_that_cannot_be_set(word: str) -> None:
    with pytest.raises(InvalidInput):
        changed_rule(rule(), [word])


def test_nothing_set_is_nothing_to_try() -> None:
    with pytest.raises(InvalidInput, match="--set priority=5"):
        changed_rule(rule(), [])


# The order of looking -----------------------------------------------------------------------------------------------

_RULES = st.lists(
    st.builds(
        Rule,
        rule_id=st.uuids(),
        team_id=st.just(TeamId("root")),
        name=st.just("x"),
        channel=st.sampled_from(["*", "email"]),
        filters=st.dictionaries(st.sampled_from(_KEYS), st.just("v")),
        targets=st.just((Target(SystemId("System1/memo")),)),
        created_at=st.integers(0, 3_000_000).map(lambda n: NOW + timedelta(microseconds=n * 500_000)),
        priority=st.integers(-2, 2),
    ),
    max_size=8,
)


@given(_RULES)
def test_rules_are_listed_as_they_are_looked_at(rules: list[Rule]) -> None:
    shown = sorted((rule_json(one) for one in rules), key=looking_order)
    assert [one["rule_id"] for one in shown] == [str(one.rule_id) for one in in_order(rules)]


# Lines --------------------------------------------------------------------------------------------------------------


def _lines(lines: Any) -> list[str]:
    return [line.plain for line in lines]


def test_a_rule_in_one_line() -> None:
    line = rule_line(rule(filters={"sender": "a"}, priority=3, active=False)).plain
    assert line == "root  mail  email sender=a → System1/memo  priority 3  off"
    assert rule_line(rule(name="a\x1b[2Jb")).plain == "root  a[2Jb  email → System1/memo"


def test_changes_say_what_was_and_what_is() -> None:
    before = rule(filters={"sender": "a"}, priority=1)
    after = rule(priority=2, active=False, updated_by="somebody else", version=9)
    assert _lines(change_lines([{"before": before, "after": after}])) == [
        f"~ root  mail  {UUID(int=1)}",
        "    filters  sender=a → none",
        "    priority  1 → 2",
        "    active  true → false",
    ]
    assert _lines(change_lines([{"before": None, "after": rule()}])) == ["+ root  mail  email → System1/memo"]
    assert _lines(change_lines([{"before": rule(), "after": None}])) == ["- root  mail  email → System1/memo"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (blast(1204, 17, shown=0), "17 of 1,204 messages of the last day would now be routed differently"),
        (blast(20_000, 1500, complete=False, shown=0),
         "1,500 of the newest 20,000 messages of the last day would now be routed differently"),
        (blast(5, 0), "none of 5 messages of the last day would now be routed differently"),
        (blast(1, 0), "none of 1 message of the last day would now be routed differently"),
        (blast(0, 0), "there are no messages of the last day to compare with"),
    ],
)  # fmt: skip
def test_the_blast_radius_in_one_line(found: dict[str, Any], said: str) -> None:
    assert _lines(blast_lines(found)) == [said]


def test_examples_of_the_blast_and_how_many_are_not_shown() -> None:
    lines = _lines(blast_lines(blast(30, 12, shown=2), period="", dry_run=True))
    assert lines[0] == "12 of 30 messages would be routed differently"
    assert lines[1] == f"  {UUID(int=0)}  dead letter of root (no_route) → System1/memo, System1/diary"
    assert lines[3:] == ["  … and 10 more"]
    assert _lines(blast_lines(None)) == ["the effect on stored messages could not be computed"]


def test_nobody_is_a_receiver_too() -> None:
    assert receivers_of(receivers()) == "nobody"


def test_findings_come_with_the_worst_first() -> None:
    finding: dict[str, Any] = {
        "team_id": "root",
        "rule_id": None,
        "rule_name": None,
        "code": "unreachable",
        "message": "no way in",
    }
    findings: list[dict[str, Any]] = [
        finding | {"severity": "note"},
        finding | {"severity": "error", "rule_name": "mail", "meant": ["System1/a", "way"]},
        finding | {"severity": "warning"},
    ]
    assert _lines(finding_lines(findings)) == [
        "error: root  mail  no way in (correct would be System1/a)",
        "warning: root  no way in",
        "note: root  no way in",
    ]


def test_an_edit_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    changes = [{"before": None, "after": rule()}]
    answer = {"version": 4, "changed": 300, "warnings": [], "blast": blast(2, 1)}
    print_edit(answer, changes, dry_run=False)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "version 4 is in force; 300 rules changed:"
    assert "  … and 299 more" in said
    print_edit(answer | {"changed": 1}, changes, dry_run=True)
    assert capsys.readouterr().out.startswith("dry run: nothing is written; it would change 1 rule:\n+ root  mail")
    print_edit(answer | {"changed": 0}, [], dry_run=False)
    assert capsys.readouterr().out == "nothing to change; version 4 stays in force\n"


def test_a_failed_case_says_what_was_expected_and_what_decided(capsys: pytest.CaptureFixture[str]) -> None:
    trail = [
        {"team_id": "root", "reason": "rule", "rule_name": "mail"},
        {"team_id": "finance", "reason": "no_route", "rule_name": None},
    ]
    failed = {"name": "bills", "passed": False, "expected": receivers("System1/a"), "got": receivers(dead="finance")}
    fine = failed | {"name": "fine", "passed": True, "trail": []}
    print_outcomes({"passed": 1, "failed": 1, "results": [fine, failed | {"trail": trail}]})
    assert capsys.readouterr().out.splitlines() == [
        "✗ bills",
        "    expected  System1/a",
        "    got       dead letter of finance (no_route)",
        "    team root: rule 'mail'",
        "    team finance: no route",
        "1 of 2 cases failed",
    ]


# Explain ------------------------------------------------------------------------------------------------------------


def _shown(step: dict[str, Any]) -> str:
    return _told([{"n": 1, "version": 1, "facts": None, "trail": [_step(**step)]}], [])


def _explained(dead_letter: dict[str, Any]) -> str:
    return _told([], [dead_letter])


def _told(
    decisions: list[dict[str, Any]], dead_letters: list[dict[str, Any]], deliveries: Sequence[dict[str, Any]] = ()
) -> str:
    message = dict.fromkeys(("request_id", "channel", "endpoint", "sender", "thread", "text", "state"), "x")
    found = {"message": message | {"received_at": NOW.isoformat()}, "decisions": decisions}
    console = Console(width=150, file=io.StringIO())
    console.print(tree_of(found | {"deliveries": deliveries, "replies": [], "dead_letters": dead_letters}))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _step(**more: Any) -> dict[str, Any]:
    step: dict[str, Any] = {
        "team_id": "root",
        "reason": "rule",
        "rule_name": None,
        "detail": "",
        "targets": [],
        "considered": [],
    }
    return step | {"left_out": 0, "nearest": [], "beaten": []} | more


def _look(name: str, failed: int) -> dict[str, Any]:
    fired = {"fired": not failed, "failed": failed, "name": name}
    return fired | {"failed_filter": "sender" if failed else None, "expected": "a", "actual": None}


def test_an_attempt_shows_what_it_used_of_models_and_why_it_stopped() -> None:
    attempt: dict[str, Any] = dict.fromkeys(("error_class", "error", "worker", "stop_reason", "usage"))
    attempt |= {"engine": "agent", "outcome": "answered", "epoch": 1, "finished_at": NOW.isoformat()}
    used = {"model": "large", "tokens_in": 812, "tokens_out": 24, "tokens_cache_read": 0, "tokens_cache_write": 0}
    used["cost_usd"] = 0.0031
    asked = attempt | {
        "stop_reason": "limit:tokens",
        "usage": [used, used | {"model": "own", "tokens_cache_read": 512, "cost_usd": None}],
    }
    delivery = {"system_id": "System1/a", "state": "answered", "error_class": None, "seq": 1, "lane": "turn:x"}
    shown = _told([], [], [{"delivery": delivery, "attempts": [attempt, asked | {"epoch": 2}], "steps": []}])
    plain, stopped = (line for line in shown.splitlines() if "attempt agent" in line)
    assert "answered  stopped: limit:tokens  large (812+24 tokens, $0.0031)" in stopped
    assert "own (812+24 tokens, cache 512 read, 0 written)" in stopped
    assert "tokens" not in plain


def test_a_call_that_a_model_wrote_as_text_is_marked() -> None:
    delivery = {"system_id": "System1/a", "state": "answered", "error_class": None, "seq": 1, "lane": "turn:x"}
    step: dict[str, Any] = {
        "path": "tool:1:a",
        "tool": "write_file",
        "effect": "effectful",
        "state": "done",
        "epoch": 1,
    }
    step |= {"tokens_in": 0, "tokens_out": 0, "cost_usd": None, "as_text": False}
    steps = [step, step | {"path": "tool:2:b", "as_text": True}]
    lines = _told([], [], [{"delivery": delivery, "attempts": [], "steps": steps}]).splitlines()
    native, written = (line for line in lines if "write_file" in line)
    assert "read from text" in written
    assert "read from text" not in native


def test_the_reason_of_an_attempt_does_not_repeat_its_outcome() -> None:
    attempt: dict[str, Any] = dict.fromkeys(("worker", "stop_reason", "usage"))
    attempt |= {"engine": "command", "outcome": "refused", "epoch": 1, "finished_at": NOW.isoformat()}
    attempt |= {"error_class": "refused", "error": "not my business"}
    delivery = {"system_id": "System1/a", "state": "dead", "error_class": "refused", "seq": 1, "lane": "turn:x"}
    shown = _told([], [], [{"delivery": delivery, "attempts": [attempt], "steps": []}])
    assert "attempt command  refused  not my business" in shown


def test_many_rules_are_cut_and_the_one_that_fired_is_not() -> None:
    shown = _shown({"considered": [*(_look(f"miss {n}", 2) for n in range(40)), _look("hit", 0)], "left_out": 900})
    assert "✗ miss 11  sender should be 'a', the message has none (and 1 more)" in shown
    assert "miss 12" not in shown
    assert "✗ … and 928 more that do not match" in shown
    assert shown.index("928") < shown.index("✓ hit")


def test_rules_of_other_channels_are_one_line() -> None:
    elsewhere = [_look(f"mail {n}", 1) | {"failed_filter": "channel"} for n in range(9)]
    shown = _shown({"considered": [elsewhere[0], _look("near", 1), *elsewhere[1:], _look("hit", 0)]})
    assert "✗ 9 rules of other channels" in shown
    assert "mail" not in shown
    assert shown.index("✗ near") < shown.index("✗ 9 rules") < shown.index("✓ hit")
    assert "✗ 1 rule of other channels" in _shown({"considered": elsewhere[:1]})


def test_a_closed_dead_letter_shows_its_handler_and_resolution() -> None:
    closed = {"team_id": "root", "category": "no_route", "status": "handled", "reason": "no rule matches"}
    closed |= {"handled_by_system_id": "System4/root", "handled_at": NOW.isoformat(), "resolution": "spam"}
    said = _explained({"dead_letter": closed | {"rerouted_n": None}, "notices": []})
    assert "closed by System4/root" in said
    assert "“spam”" in said
    assert "rerouted (decision 2) by System4/root" in _explained(
        {"dead_letter": closed | {"rerouted_n": 2}, "notices": []}
    )


def test_the_nearest_and_the_beaten() -> None:
    shown = _shown({"nearest": [_look("almost", 1), _look("far", 3)]})
    assert "≈ nearest: almost, but for sender" in shown
    assert "≈ nearest: far, but for 3 filters" in shown
    said = {
        "priority": "its priority is lower",
        "more_specific": "it is less specific",
        "named_channel": "it is for every channel (*)",
        "older": "it is newer",
        "id": "its id is higher",
        "catch_all_last": "it is a catch-all",
    }
    for by, why in said.items():
        shown = _shown({"considered": [_look("hit", 0)], "beaten": [{"name": "later", "by": by}]})
        assert f"· later  matches too, but {why}" in shown

"""A rule as it is written by people and agents: what is understood, changed, and refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from switchboard.core.routing.draft import Edit, draft_of, new_rule, parse_draft, parse_facts, parse_patch, with_draft
from switchboard.core.routing.rulefile import filters_json
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import Rule, RuleDraft, SystemId, Target, TeamId

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MEMO = Target(system_id=SystemId("System1/memo"))
FORM: dict[str, Any] = {"name": "all", "channel": "telegram", "targets": [{"system_id": "System1/memo"}]}
RULE = Rule(
    "old name",
    "email",
    {"thread": "t"},
    (Target(team_id=TeamId("below")),),
    7,
    rule_id=UUID(int=1),
    team_id=TeamId("root"),
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    created_by="file",
    version=3,
    source="sop:x",
)


def test_a_draft_needs_three_parts() -> None:
    assert parse_draft(FORM) == RuleDraft("all", "telegram", {}, (MEMO,))
    whole = FORM | {"filters": {"thread": " 5 "}, "priority": -1, "active": False, "targets": [{"team_id": "below"}]}
    below = (Target(team_id=TeamId("below")),)
    assert parse_draft(whole) == RuleDraft("all", "telegram", {"thread": "5"}, below, -1, active=False)


def test_a_filter_may_have_several_values() -> None:
    written = {"sender": ["b", 7, " b ", "a"], "thread": ["t"], "endpoint": "e"}
    made = parse_draft(FORM | {"filters": written})
    assert made.filters == {"sender": ("7", "a", "b"), "thread": "t", "endpoint": "e"}
    assert filters_json(made.filters) == {"endpoint": "e", "sender": ["7", "a", "b"], "thread": "t"}
    assert parse_facts({"channel": "email", "email_to": ["b@x", "a@x"]}) == {"channel": "email", "email_to": "a@x\nb@x"}


REFUSED: dict[str, tuple[object, str | None, str]] = {
    "null": (None, None, "the rule must be an object"),
    "no channel": ({"name": "a", "targets": []}, "channel", "channel is missing"),
    "misspelt": (FORM | {"prio": 1}, "prio", "prio is unknown; did you mean priority?"),
    "an endless key": (FORM | {"k" * 10_000: 1}, "k" * 64, "is unknown"),
    "priority in quotes": (
        FORM | {"priority": "1"},
        "priority",
        "must be an integer; higher priorities are evaluated first",
    ),
    "active in words": (FORM | {"active": "no"}, "active", "must be true or false"),
    "a target that is a text": (FORM | {"targets": ["System1/memo"]}, "targets[0]", 'an object: {"system_id"'),
    "a target of another key": (
        FORM | {"targets": [{"system": "System1/memo"}]},
        "targets[0].system",
        "did you mean system_id?",
    ),
    "targets without a list": (FORM | {"targets": {"team_id": "below"}}, "targets", "must be a list"),
    "an endless filter key": (FORM | {"filters": {"k" * 10_000: "1"}}, "filters." + "k" * 64, "of 1 to 512 characters"),
    "a filter key with a line break": (FORM | {"filters": {"a\nb": "1"}}, "filters.a\nb", "must be a string: one line"),
    "a filter of no value": (FORM | {"filters": {"thread": []}}, "filters.thread", "must have 1 to 1000 values, not 0"),
    "a list in a list": (FORM | {"filters": {"thread": ["a", ["b"]]}}, "filters.thread[1]", "must be a string"),
    "a filter of null": (FORM | {"filters": {"thread": None}}, "filters.thread", "must be a string; put it in quotes"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_names_its_place(case: tuple[object, str | None, str]) -> None:
    value, field, hint = case
    with pytest.raises(InvalidInput) as caught:
        parse_draft(value)
    assert (caught.value.code, caught.value.field) == ("invalid_rule", field)
    assert hint in str(caught.value)


PATCHES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "name": ({"name": " new "}, {"name": "new"}),
    "channel": ({"channel": "*"}, {"channel": "*"}),
    "filters are given whole": ({"filters": {"sender": 5}}, {"filters": {"sender": "5"}}),
    "targets are given whole": ({"targets": FORM["targets"]}, {"targets": (MEMO,)}),
    "priority": ({"priority": 0}, {"priority": 0}),
    "disabled": ({"active": False}, {"active": False}),
    "two at once": ({"name": "n", "filters": {}}, {"name": "n", "filters": {}}),
    "the same again": ({"name": "old name"}, {}),
}


@pytest.mark.parametrize("case", PATCHES.values(), ids=PATCHES.keys())
def test_a_patch_changes_what_it_names_and_nothing_else(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    patch, expected = case
    assert replace(RULE, **parse_patch(patch)) == replace(RULE, **expected)


@pytest.mark.parametrize(
    ("patch", "field", "hint"),
    [
        ({}, None, "the rule must change something: name at least one of active, channel, copy, filters"),
        ({"rule_id": "x"}, "rule_id", "is unknown"),
        ({"team_id": "other"}, "team_id", "is unknown"),
        ({"source": ""}, "source", "is unknown"),
        ({"name": None}, "name", "must be a string"),
        ([], None, "must be an object"),
    ],
)
def test_a_patch_that_is_refused(patch: object, field: str | None, hint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_patch(patch)
    assert (caught.value.code, caught.value.field) == ("invalid_rule", field)
    assert hint in str(caught.value)


def test_a_new_rule_bears_its_author_and_time() -> None:
    edit = Edit("ann", NOW, lambda: UUID(int=9))
    rule = new_rule(parse_draft(FORM), TeamId("root"), edit, "sop:y")
    assert draft_of(rule) == parse_draft(FORM)
    assert (rule.rule_id, rule.team_id, rule.source, rule.version) == (UUID(int=9), "root", "sop:y", 0)
    assert (rule.created_by, rule.created_at, rule.updated_by, rule.updated_at) == ("ann", NOW, "ann", NOW)


def test_a_rule_written_anew_is_the_same_rule() -> None:
    rule = with_draft(RULE, parse_draft(FORM))
    assert draft_of(rule) == parse_draft(FORM)
    assert with_draft(rule, draft_of(RULE)) == RULE

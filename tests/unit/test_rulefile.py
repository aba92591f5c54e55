"""Rules as JSON: round trips, imports that change only what differs, and what is said about a file that is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from switchboard.core.routing.draft import Edit, draft_of
from switchboard.core.routing.rulefile import (
    FORMAT,
    FileRule,
    RuleFile,
    changed_fields,
    changes_for,
    difference,
    parse_rule_file,
    render_rule_file,
    rule_file,
    rule_from_json,
    rule_json,
    stamp_changes,
)
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import Rule, RuleChange, SystemId, Target, TeamId
from tests.unit.test_routing_teamfile import altered

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 6, 1, 12, 30, 0, 250, tzinfo=UTC)
ROOT, BELOW, OTHER = TeamId("root"), TeamId("below"), TeamId("other")
MEMO = Target(system_id=SystemId("System1/memo"))


def edit() -> Edit:
    numbers: Iterator[int] = iter(range(1000, 2000))
    return Edit("control (System3/root)", NOW, lambda: UUID(int=next(numbers)))


GOOD = Rule(
    rule_id=UUID(int=1),
    team_id=ROOT,
    name="good",
    channel="telegram",
    filters={"thread": "t", "chat_type": "group"},
    targets=(MEMO, Target(team_id=BELOW)),
    created_at=NEW_YEAR,
    priority=-3,
    active=False,
    created_by="file",
    updated_by="ann",
    updated_at=NOW,
    version=17,
    source="sop:First Run",
)

TEXTS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)
TIMES = st.datetimes(timezones=st.just(UTC))
RULES = st.builds(
    Rule,
    rule_id=st.builds(lambda number: UUID(int=number), st.integers(1, 99)),
    team_id=st.sampled_from((ROOT, BELOW)),
    name=TEXTS | st.sampled_from("ab"),
    channel=TEXTS,
    filters=st.dictionaries(TEXTS, TEXTS, max_size=3),
    targets=st.lists(
        TEXTS.map(lambda name: Target(system_id=SystemId(name))) | TEXTS.map(lambda name: Target(team_id=TeamId(name))),
        max_size=3,
    ).map(tuple),
    created_at=TIMES,
    priority=st.integers(-(2**31), 2**31),
    active=st.booleans(),
    created_by=TEXTS | st.just(""),
    updated_by=TEXTS | st.just(""),
    updated_at=TIMES | st.none(),
    version=st.integers(0, 99),
    source=st.just("") | TEXTS.map("sop:".__add__),
)
SETS = st.lists(RULES, max_size=6, unique_by=lambda rule: rule.rule_id)


def over_the_wire(form: Any) -> Any:
    return json.loads(json.dumps(form))


# One rule


def test_the_form_of_a_rule() -> None:
    assert rule_json(GOOD) == {
        "rule_id": "00000000-0000-0000-0000-000000000001",
        "team_id": "root",
        "name": "good",
        "channel": "telegram",
        "filters": {"chat_type": "group", "thread": "t"},
        "targets": [{"system_id": "System1/memo"}, {"team_id": "below"}],
        "priority": -3,
        "active": False,
        "copy": False,
        "reply_to_automatic": False,
        "version": 17,
        "source": "sop:First Run",
        "created_by": "file",
        "updated_by": "ann",
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-06-01T12:30:00.000250Z",
    }


@given(rule=RULES)
def test_a_rule_comes_back_exactly(rule: Rule) -> None:
    assert rule_from_json(over_the_wire(rule_json(rule))) == rule


@pytest.mark.parametrize("later", ["copy", "reply_to_automatic", "source", "updated_at"])
def test_what_an_earlier_release_did_not_write_has_its_default(later: str) -> None:
    """The history keeps forms of rules as they were stored."""
    form = {key: value for key, value in rule_json(GOOD).items() if key != later}
    default = next(one.default for one in fields(Rule) if one.name == later)
    assert rule_from_json(form) == replace(GOOD, **{later: default})


# A file of them


@given(rules=SETS, version=st.integers(0, 2**40))
def test_a_file_comes_back_exactly(rules: list[Rule], version: int) -> None:
    file = rule_file(version, [ROOT, OTHER], rules)
    assert set(file.teams) == {ROOT, OTHER}, "a team without rules is in it, a team that was not asked for is not"
    assert parse_rule_file(over_the_wire(render_rule_file(file))) == file


@settings(max_examples=200)
@given(rules=SETS)
def test_an_export_changes_nothing_when_it_is_imported(rules: list[Rule]) -> None:
    document = over_the_wire(render_rule_file(rule_file(1, [ROOT, BELOW], rules)))
    assert changes_for(parse_rule_file(document), rules, edit()) == []


@settings(max_examples=200)
@given(rules=SETS)
def test_a_file_without_ids_changes_nothing_when_it_is_imported_again(rules: list[Rule]) -> None:
    by_hand = RuleFile(
        {
            team_id: tuple(FileRule(draft_of(one)) for one in rules if one.team_id == team_id)
            for team_id in (ROOT, BELOW)
        }
    )
    made = changes_for(by_hand, [], edit())
    stored = [one.after for one in made if one.after is not None]
    assert len(stored) == len(rules)
    assert changes_for(by_hand, stored, edit()) == []
    assert changes_for(by_hand, reversed(stored), edit()) == []


def applied(rules: list[Rule], changes: list[RuleChange]) -> dict[UUID, Rule]:
    after = {rule.rule_id: rule for rule in rules}
    for change in changes:
        assert (change.before and after.pop(change.before.rule_id)) == change.before
        if change.after is not None:
            after[change.after.rule_id] = change.after
    return after


def without_traces(rules: list[Rule]) -> set[str]:
    """All that is said, but for who touched it last."""
    forms = [rule_json(replace(rule, updated_at=None, updated_by="", version=0)) for rule in rules]
    return {json.dumps(form, sort_keys=True) for form in forms}


def names_one_team(before: list[Rule], after: list[Rule]) -> list[Rule]:
    """The same ids, each in the team that it has in `before`."""
    homes = {rule.rule_id: rule.team_id for rule in before}
    return [replace(rule, team_id=homes.get(rule.rule_id, rule.team_id)) for rule in after]


@pytest.mark.slow
@settings(max_examples=200)
@given(before=SETS, after=SETS)
def test_an_import_makes_the_rules_the_files_and_touches_no_other_team(before: list[Rule], after: list[Rule]) -> None:
    after = names_one_team(before, after)
    elsewhere = [replace(GOOD, rule_id=UUID(int=500), team_id=OTHER)]
    changes = changes_for(rule_file(1, [ROOT, BELOW], after), before + elsewhere, edit())
    assert without_traces([*applied(before + elsewhere, changes).values()]) == without_traces(after + elsewhere)
    for change in changes:
        touched = change.after and (change.after.updated_by, change.after.updated_at)
        assert not (change.before and touched) or touched == (edit().author, NOW)
        assert changed_fields(change), "nothing is written that says the same"


@pytest.mark.slow
@settings(max_examples=200)
@given(before=SETS, after=SETS)
def test_the_difference_leads_from_one_to_the_other(before: list[Rule], after: list[Rule]) -> None:
    after = names_one_team(before, after)
    changes = difference(before, after)
    assert without_traces([*applied(before, changes).values()]) == without_traces(after)
    assert all(changed_fields(change) for change in changes)
    assert difference(after, after) == []
    assert [one.after and one.after.updated_by for one in stamp_changes(changes, edit())] == [
        one.after and edit().author for one in changes
    ]


def test_who_touched_a_rule_last_is_no_difference() -> None:
    touched = replace(GOOD, version=18, updated_by="bob", updated_at=NEW_YEAR)
    assert difference([GOOD], [touched]) == []
    assert changes_for(rule_file(18, [ROOT], [touched]), [GOOD], edit()) == []


def test_changed_fields_are_named_with_before_and_after() -> None:
    after = replace(GOOD, active=True, targets=(MEMO,), version=18, updated_by="bob")
    assert changed_fields(RuleChange(GOOD, after)) == {
        "active": (False, True),
        "targets": ([{"system_id": "System1/memo"}, {"team_id": "below"}], [{"system_id": "System1/memo"}]),
    }
    new, gone = changed_fields(RuleChange(None, GOOD)), changed_fields(RuleChange(GOOD, None))
    assert new["name"] == (None, "good")
    assert gone["name"] == ("good", None)


# A file written by hand

BY_HAND: dict[str, Any] = {
    "format": FORMAT,
    "teams": {
        "root": [
            {"name": "all", "channel": "telegram", "targets": [{"system_id": "System1/memo"}]},
            {"name": "mine", "channel": "email", "filters": {"thread": 5}, "targets": [{"team_id": "below"}]},
        ]
    },
}
ALL, MINE = ("teams", "root", 0), ("teams", "root", 1)


def test_new_rules_get_what_a_file_written_by_hand_leaves_out() -> None:
    first, second = changes_for(parse_rule_file(BY_HAND), [], edit())
    assert first == RuleChange(
        None,
        Rule(
            rule_id=UUID(int=1000),
            team_id=ROOT,
            name="all",
            channel="telegram",
            filters={},
            targets=(MEMO,),
            created_at=NOW,
            created_by="control (System3/root)",
            updated_by="control (System3/root)",
            updated_at=NOW,
        ),
    )
    assert (second.rule.rule_id, second.rule.filters) == (UUID(int=1001), {"thread": "5"})


def test_a_rule_without_an_id_is_known_by_its_name_and_keeps_the_rest() -> None:
    known = replace(GOOD, name="all")
    gone = replace(GOOD, rule_id=UUID(int=2), name="old")
    changed, new, removed = changes_for(parse_rule_file(BY_HAND), [gone, known], edit())
    assert changed.before == known
    assert changed.after == replace(
        known,
        filters={},
        targets=(MEMO,),
        priority=0,
        active=True,
        updated_by="control (System3/root)",
        updated_at=NOW,
    )
    assert new.before is None
    assert removed == RuleChange(gone, None)


def test_of_two_rules_of_one_name_the_one_that_says_the_same_is_meant() -> None:
    file = parse_rule_file(BY_HAND)
    (stored, _) = (one.rule for one in changes_for(file, [], edit()))
    older = replace(stored, rule_id=UUID(int=1), priority=9)
    changes = changes_for(file, [older, stored], edit())
    assert [(one.before, one.rule.name) for one in changes] == [(None, "mine"), (older, "all")]


def test_a_new_rule_is_what_the_file_says_of_it_to_the_last_date() -> None:
    touched = replace(GOOD, updated_by="bob", updated_at=NEW_YEAR)
    (change,) = changes_for(rule_file(3, [ROOT], [touched]), [], edit())
    assert change.rule == replace(touched, version=0)


def test_a_rule_does_not_change_its_team() -> None:
    moved = rule_file(1, [BELOW], [replace(GOOD, team_id=BELOW)])
    with pytest.raises(InvalidInput, match="is a rule of team root; a rule stays in its team") as caught:
        changes_for(moved, [GOOD], edit())
    assert (caught.value.code, caught.value.field) == ("invalid_rule_file", "teams.below[0].rule_id")


changed = partial(altered, BY_HAND)


ID = "0199a1b2-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    "time",
    [
        "2026-01-31T09:30:00Z",
        "2026-01-31 11:30+02:00",
        datetime(2026, 1, 31, 11, 30, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_times_are_understood_in_any_zone(time: object) -> None:
    rule = parse_rule_file(changed((*ALL, "created_at"), time)).teams[ROOT][0]
    assert rule.created_at == datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    assert rule.created_at.tzinfo is UTC


REFUSED: dict[str, tuple[object, str | None, str]] = {
    "a list": ([], None, "the rule file must be an object"),
    "no format": ({"teams": {}}, "format", "format must be 'switchboard.rules.v1'"),
    "another format": (changed(("format",), "v2"), "format", "must be 'switchboard.rules.v1'"),
    "no teams": ({"format": FORMAT}, "teams", "teams is missing"),
    "misspelt": (changed(("team",), {}), "team", "team is unknown; did you mean teams?"),
    "teams are a list": (changed(("teams",), []), "teams", "the name of a team, and a list of its rules"),
    "a version in words": (changed(("version",), "latest"), "version", "optional in a handwritten file"),
    "a team without a name": (changed(("teams", " "), []), "teams. ", "must be a string: one line"),
    "a team twice": (changed(("teams", "root "), []), "teams", "two names differ only in whitespace"),
    "rules of a team are an object": (changed(("teams", "root"), {}), "teams.root", "must be a list"),
    "a rule is a text": (changed(ALL, "all"), "teams.root[0]", "must be an object"),
    "misspelt key of a rule": (changed((*MINE, "chanel"), "x"), "teams.root[1].chanel", "did you mean channel?"),
    "no name": (changed(ALL, {"channel": "*", "targets": []}), "teams.root[0].name", "is missing"),
    "a filter without quotes": (changed((*ALL, "filters"), {"thread": True}), "teams.root[0].filters.thread", "quotes"),
    "too many filters": (
        changed((*ALL, "filters"), dict.fromkeys(map(str, range(65)), "x")),
        "teams.root[0].filters",
        "at most 64 keys, not 65",
    ),
    "no UUID": (changed((*ALL, "rule_id"), "7"), "teams.root[0].rule_id", "omit it for a new rule"),
    "a UUID that is a number": (changed((*ALL, "rule_id"), 7), "teams.root[0].rule_id", "must be the UUID"),
    "a source that is none of ours": (changed((*ALL, "source"), "me"), "teams.root[0].source", '"sop:NAME"'),
    "a time without a zone": (changed((*ALL, "created_at"), "2026-01-31T09:30"), "teams.root[0].created_at", "zone"),
    "no time": (changed((*ALL, "updated_at"), "yesterday"), "teams.root[0].updated_at", "2026-01-31T09:30:00Z"),
    "a time before all time": (
        changed((*ALL, "updated_at"), "0001-01-01T00:00:00+05:00"),
        "teams.root[0].updated_at",
        "2026-01-31T09:30:00Z",
    ),
    "an author of two lines": (changed((*ALL, "created_by"), "a\nb"), "teams.root[0].created_by", "one line"),
    "one id twice": (
        changed(("teams",), {name: [BY_HAND["teams"]["root"][0] | {"rule_id": ID}] for name in ("root", "below")}),
        "teams.below[0].rule_id",
        "is the same as teams.root[0].rule_id",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_names_its_place(case: tuple[object, str | None, str]) -> None:
    document, field, hint = case
    with pytest.raises(InvalidInput) as caught:
        parse_rule_file(document)
    assert (caught.value.code, caught.value.field) == ("invalid_rule_file", field)
    assert hint in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(ID),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def understood_or_refused(document: object) -> RuleFile | InvalidInput:
    try:
        return parse_rule_file(document)
    except InvalidInput as error:
        return error


@given(path=st.sampled_from([(), ("format",), ("version",), ("teams",), ("teams", "root"), ALL]), value=JSON)
def test_any_json_is_either_understood_or_refused(path: tuple[str | int, ...], value: object) -> None:
    outcome = understood_or_refused(changed(path, value) if path else value)
    if isinstance(outcome, InvalidInput):
        assert outcome.code == "invalid_rule_file"
    else:
        assert parse_rule_file(render_rule_file(outcome)) == outcome


@given(key=st.sampled_from(["rule_id", "source", "created_by", "created_at", "filters", "targets", "x"]), value=JSON)
def test_any_part_of_a_rule_is_either_understood_or_refused(key: str, value: object) -> None:
    outcome = understood_or_refused(changed((*ALL, key), value))
    if isinstance(outcome, InvalidInput):
        assert (outcome.field or "").startswith(f"teams.root[0].{key}")
    else:
        assert parse_rule_file(over_the_wire(render_rule_file(outcome))) == outcome

"""Procedures that bring their own rules: loaded twice, changed, unloaded, and never beyond their own."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.core.routing.check import check_rule
from switchboard.core.routing.draft import Edit, draft_of
from switchboard.core.routing.sop import Sop, parse_sop, sop_changes, unload_changes
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import Member, Rule, RuleChange, RuleDraft, Target, TeamId
from tests.routing import ROOT, member, team_of, to
from tests.unit.test_routing_teamfile import altered

NOW, LATER = datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)
BELOW = TeamId("onboarding")


def butler(name: str, *capabilities: str, active: bool = True) -> Member:
    return replace(member(f"System1/{name}", active=active), capabilities=capabilities)


TRANSLATORS = butler("zoe", "translator", "clerk"), butler("interviewer", "translator")
TEAMS = {
    ROOT: team_of(replace(member("System4/root"), capabilities=("translator",))),
    BELOW: team_of(*TRANSLATORS, butler("away", "translator", active=False), team_id=BELOW),
}


def edit(now: datetime = NOW) -> Edit:
    numbers: Iterator[int] = iter(range(1000 if now == NOW else 2000, 3000))
    return Edit("ann", now, lambda: UUID(int=next(numbers)))


DOCUMENT: dict[str, Any] = {
    "name": "First Run",
    "description": "How new users are met",
    "steps": ["greet", "ask"],
    "routing_requirements": [
        {"team": "root", "target": "onboarding", "channel": "telegram", "filters": {"chat_type": "private"}},
        {"team": "onboarding", "agent": "interviewer", "channel": "telegram"},
        {"team": "onboarding", "role": "translator", "channel": "email", "name": "mails", "priority": 10},
        {"team": "root", "target": "System4/root", "channel": "cli", "filters": {"session_id": 7}},
        {"team": "onboarding", "agent": "System1/zoe", "channel": "cli"},
    ],
}
FIRST = ("routing_requirements", 0)


changed = partial(altered, DOCUMENT)


def test_who_is_meant_is_found_in_three_ways() -> None:
    sop = parse_sop(DOCUMENT, TEAMS)
    assert (sop.name, sop.source) == ("First Run", "sop:First Run")
    assert sop.drafts == (
        (
            ROOT,
            RuleDraft("First Run: onboarding", "telegram", {"chat_type": "private"}, (Target(team_id=BELOW),)),
        ),
        (BELOW, RuleDraft("First Run: interviewer", "telegram", {}, (to("System1/interviewer"),))),
        (BELOW, RuleDraft("mails", "email", {}, (to("System1/interviewer"), to("System1/zoe")), 10)),
        (ROOT, RuleDraft("First Run: System4/root", "cli", {"session_id": "7"}, (to("System4/root"),))),
        (BELOW, RuleDraft("First Run: System1/zoe", "cli", {}, (to("System1/zoe"),))),
    )
    made = sop_changes(sop, [], edit())
    assert [check_rule(change.rule, TEAMS) for change in made] == [[]] * 5


@pytest.mark.parametrize("document", [{"name": "none"}, {"name": "none", "routing_requirements": []}])
def test_a_procedure_may_need_no_rules(document: dict[str, Any]) -> None:
    assert parse_sop(document, TEAMS) == Sop("none", ())


def test_an_unknown_team_is_left_to_the_check_of_the_rule() -> None:
    document = changed((*FIRST,), {"team": "onbording", "role": "clerk", "channel": "cli"})
    (change, *_) = sop_changes(parse_sop(document, TEAMS), [], edit())
    (problem,) = check_rule(change.rule, TEAMS)
    assert (problem.code, problem.meant) == ("unknown_team", ("onboarding",))


REFUSED: dict[str, tuple[object, str | None, str]] = {
    "a list": ([], None, "the SOP must be an object"),
    "no name": ({"routing_requirements": []}, "name", "name is missing"),
    "misspelt requirements": (
        {"name": "a", "routing_requirement": []},
        "routing_requirement",
        "did you mean routing_requirements?",
    ),
    "requirements in an object": (changed(FIRST[:1], {}), "routing_requirements", "must be a list"),
    "misspelt key": (changed((*FIRST, "chanel"), "x"), "routing_requirements[0].chanel", "did you mean channel?"),
    "no team": (changed(FIRST, {"agent": "a", "channel": "*"}), "routing_requirements[0].team", "is missing"),
    "no channel": (changed(FIRST, {"agent": "a", "team": "root"}), "routing_requirements[0].channel", "is missing"),
    "nobody": (
        changed(FIRST, {"team": "root", "channel": "*"}),
        "routing_requirements[0]",
        "exactly one of agent, role or target",
    ),
    "two at once": (changed((*FIRST, "agent"), "interviewer"), "routing_requirements[0]", "exactly one"),
    "nobody has this role": (
        changed(FIRST, {"team": "onboarding", "role": "cook", "channel": "*"}),
        "routing_requirements[0].role",
        "the roles there are clerk or translator",
    ),
    "a team without roles": (
        changed(FIRST, {"team": "root", "role": "translator", "channel": "*"}),
        "routing_requirements[0].role",
        "its butlers have no capabilities",
    ),
    "one name twice": (
        changed((*FIRST, "name"), "First Run: System4/root"),
        "routing_requirements[3].name",
        "is the name of routing_requirements[0] as well",
    ),
    "a filter of null": (
        changed((*FIRST, "filters"), {"thread": None}),
        "routing_requirements[0].filters.thread",
        "put it in quotes",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_names_its_place(case: tuple[object, str | None, str]) -> None:
    document, field, hint = case
    with pytest.raises(InvalidInput) as caught:
        parse_sop(document, TEAMS)
    assert (caught.value.code, caught.value.field) == ("invalid_sop", field)
    assert hint in str(caught.value)


# Loading and unloading


def applied(rules: list[Rule], changes: list[RuleChange]) -> list[Rule]:
    after = {rule.rule_id: rule for rule in rules} | {one.rule.rule_id: one.rule for one in changes}
    return list(after.values())


def test_a_loaded_procedure_follows_its_file() -> None:
    loaded = applied([], sop_changes(parse_sop(DOCUMENT, TEAMS), [], edit()))
    requirements = copy.deepcopy(DOCUMENT["routing_requirements"][1:])
    requirements[0]["priority"] = 5
    again = parse_sop(DOCUMENT | {"routing_requirements": requirements}, TEAMS)
    updated, disabled = sop_changes(again, loaded, edit(LATER))
    assert updated.after == replace(loaded[1], priority=5, updated_at=LATER)
    assert disabled.after == replace(loaded[0], active=False, updated_at=LATER)
    (back, priority) = sop_changes(parse_sop(DOCUMENT, TEAMS), applied(loaded, [updated, disabled]), edit(LATER))
    assert back.after == replace(loaded[0], updated_at=LATER), "the same rule again, not another one"
    assert priority.rule.priority == 0


DRAFTS = st.builds(
    RuleDraft,
    name=st.sampled_from("abc"),
    channel=st.sampled_from(("telegram", "email")),
    targets=st.sampled_from(((to("System1/zoe"),), (to("System1/interviewer"),))),
    filters=st.dictionaries(st.just("sender"), st.sampled_from("ab")),
    priority=st.integers(0, 1),
)
SOPS = st.builds(
    Sop,
    st.sampled_from(("x", "y")),
    st.lists(
        st.tuples(st.sampled_from((ROOT, BELOW)), DRAFTS), max_size=4, unique_by=lambda one: (one[0], one[1].name)
    ).map(tuple),
)
RULES = st.lists(
    st.builds(
        Rule,
        rule_id=st.builds(lambda number: UUID(int=number), st.integers(1, 99)),
        team_id=st.sampled_from((ROOT, BELOW)),
        name=st.sampled_from("abcd"),
        channel=st.sampled_from(("telegram", "email")),
        filters=st.dictionaries(st.just("sender"), st.sampled_from("ab")),
        targets=st.just((to("System1/zoe"),)),
        created_at=st.just(NOW),
        active=st.booleans(),
        source=st.sampled_from(("", "sop:x", "sop:y", "sop:xx")),
    ),
    max_size=8,
    unique_by=lambda rule: rule.rule_id,
)


@settings(max_examples=300)
@given(sop=SOPS, rules=RULES)
def test_loading_makes_exactly_its_own_rules_those_of_the_file(sop: Sop, rules: list[Rule]) -> None:
    changes = sop_changes(sop, rules, edit(LATER))
    after = applied(rules, changes)
    own = [rule for rule in after if rule.source == sop.source and rule.active]
    assert sorted((rule.team_id, repr(draft_of(rule))) for rule in own) == sorted(
        (team_id, repr(draft)) for team_id, draft in sop.drafts
    )
    assert [rule for rule in after if rule.source != sop.source] == [r for r in rules if r.source != sop.source]
    assert len({rule.rule_id for rule in after}) == len(after)
    assert all(one.before is None or one.before.source == sop.source for one in changes)
    assert all((one.rule.updated_by, one.rule.updated_at) == ("ann", LATER) for one in changes)
    assert sop_changes(sop, after, edit(LATER)) == [], "the second time nothing changes"


@settings(max_examples=200)
@given(name=st.sampled_from(("x", "y", "z")), rules=RULES)
def test_unloading_disables_exactly_its_own_rules(name: str, rules: list[Rule]) -> None:
    changes = unload_changes(name, rules, edit(LATER))
    own = [rule for rule in rules if rule.source == f"sop:{name}" and rule.active]
    assert [one.before for one in changes] == own
    assert [one.after for one in changes] == [
        replace(rule, active=False, updated_by="ann", updated_at=LATER) for rule in own
    ]
    assert unload_changes(name, applied(rules, changes), edit(LATER)) == []

"""The index and `decide` against an oracle that knows only what rules mean: scan every rule, sort, take the first.

A hundred thousand pairs of a made-up rule set and a message, and a property beside them that finds small examples.
`ROUTING_EXAMPLES=1000000 pytest tests/unit/test_routing_oracle.py` looks longer.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchboard.core.routing.decide import decide
from switchboard.core.routing.explain import Survey
from switchboard.core.routing.index import RoutingIndex
from switchboard.domain.routing import Decision, FilterValue, Member, Rule, SystemId, Target, Team, TeamId
from tests.routing import NEW_YEAR, ROOT, team_of
from tests.width import wide
from tests.worlds import CHANNELS, KEYS, LISTS, NUMBERS, TARGETS, TEAMS, VALUES, specificity, world

EXAMPLES = int(os.environ.get("ROUTING_EXAMPLES", wide(100_000, 20_000)))
PARTS = 10
MESSAGES = 5


@dataclass
class Expected:
    """What the oracle says: receivers, dead letters (team, category, handler), and the rule that fired per team."""

    chosen: set[tuple[str, str]] = field(default_factory=set)
    unrouted: list[tuple[str, str, str | None]] = field(default_factory=list)
    fired: dict[str, UUID | None] = field(default_factory=dict)
    copies: set[UUID] = field(default_factory=set)


class Oracle:
    """Slow on purpose: no index, no packing, every level looks at every rule."""

    def __init__(self, teams: Sequence[Team], rules: Sequence[Rule], facts: Mapping[str, str]) -> None:
        self.teams = {team.team_id: team for team in teams}
        self.rules = rules
        self.facts = facts
        self.expected = Expected()

    def matches(self, rule: Rule) -> bool:
        if not rule.active or self.retired(rule) or (rule.channel != "*" and rule.channel != self.facts["channel"]):
            return False
        return all(self.meets(key, wanted) for key, wanted in rule.filters.items())

    def meets(self, key: str, wanted: FilterValue) -> bool:
        found = self.facts[key].splitlines() if key in self.facts else []
        return any(value in found for value in ([wanted] if isinstance(wanted, str) else wanted))

    def retired(self, rule: Rule) -> bool:
        off = {m.system_id for m in self.teams[rule.team_id].members if m.number == 1 and not m.active}
        return bool(rule.targets) and {target.system_id for target in rule.targets} <= off

    def first(self, team_id: TeamId) -> Rule | None:
        own = [rule for rule in self.rules if rule.team_id == team_id and self.matches(rule) and not rule.copy]
        own.sort(key=lambda rule: rule.rule_id)
        own.sort(key=lambda rule: rule.created_at)
        own.sort(key=lambda rule: rule.channel == "*")
        own.sort(key=specificity, reverse=True)
        own.sort(key=lambda rule: rule.priority, reverse=True)
        specific = [rule for rule in own if rule.channel != "*" or rule.filters]
        return next(iter(specific or own), None)

    def handler(self, team_id: TeamId | None) -> str | None:
        if team_id is None:
            return None
        for member in self.teams[team_id].members:
            if member.number == 4 and member.active:
                return member.system_id
        return self.handler(self.teams[team_id].parent_id)

    def dead(self, team_id: TeamId, category: str) -> None:
        self.expected.unrouted.append((team_id, category, self.handler(team_id)))

    def enter(self, team_id: TeamId) -> None:
        rule = self.first(team_id)
        self.expected.fired[team_id] = rule.rule_id if rule else None
        if rule is None:
            self.dead(team_id, "no_route")
        elif not rule.targets:
            self.dead(team_id, "target_unavailable")
        else:
            for target in sorted(set(rule.targets), key=repr):
                self.send(team_id, target)

    def copy(self) -> None:
        """What the rules that copy add, in every team that was entered."""
        for rule in self.rules:
            if rule.copy and rule.team_id in self.expected.fired and self.matches(rule):
                self.expected.copies.add(rule.rule_id)
                butlers = {m.system_id for m in self.teams[rule.team_id].members if m.number == 1 and m.active}
                wanted = {target.system_id for target in rule.targets if target.system_id and not target.team_id}
                self.expected.chosen |= {(system_id, rule.team_id) for system_id in butlers & wanted}

    def send(self, team_id: TeamId, target: Target) -> None:
        members = {member.system_id: member for member in self.teams[team_id].members}
        if target.team_id in self.teams and self.teams[target.team_id].parent_id == team_id:
            self.enter(target.team_id)
        elif target.system_id not in members:
            self.dead(team_id, "target_unavailable")
        elif members[target.system_id].number == 4:
            self.dead(team_id, "dead_letter_rule")
        elif members[target.system_id].number == 1 and members[target.system_id].active:
            self.expected.chosen.add((target.system_id, team_id))
        else:
            self.dead(team_id, "target_unavailable")


@st.composite
def trees(draw: st.DrawFn) -> tuple[Team, ...]:
    count = draw(st.integers(1, len(TEAMS)))
    teams = [Team(TEAMS[0], None, "", draw(members(TEAMS[0])))]
    for at in range(1, count):
        parent = TEAMS[draw(st.integers(0, at - 1))]
        teams.append(Team(TEAMS[at], parent, "", draw(members(TEAMS[at]))))
    return tuple(teams)


@st.composite
def members(draw: st.DrawFn, team_id: TeamId) -> tuple[Member, ...]:
    possible = [(SystemId(f"System{number}/{team_id}"), number) for number in NUMBERS]
    possible.append((SystemId(f"System1/second-{team_id}"), 1))
    chosen = draw(st.lists(st.sampled_from(possible), unique=True, max_size=4))
    return tuple(
        Member(system_id, team_id, number, "memo", active=draw(st.integers(0, 4)) > 0) for system_id, number in chosen
    )


RULES = st.builds(
    Rule,
    rule_id=st.builds(lambda number: UUID(int=number), st.integers(0, 2**128 - 1)),
    team_id=st.sampled_from((*TEAMS, TeamId("root"), TeamId("gone"))),
    name=st.sampled_from(("one", "ön", "")),
    channel=st.sampled_from((*CHANNELS[:2], "telegram", "*")),
    filters=st.dictionaries(st.sampled_from(KEYS), st.sampled_from((*VALUES, *LISTS)), max_size=2),
    targets=st.lists(st.sampled_from(TARGETS), max_size=3).map(tuple),
    created_at=st.integers(0, 1).map(lambda days: NEW_YEAR + timedelta(days=days)),
    priority=st.integers(-1, 1),
    active=st.integers(0, 7).map(bool),
    copy=st.integers(0, 4).map(lambda one: one == 0),
)
FACTS = st.builds(
    lambda channel, rest, to: {**rest, **to, "channel": channel},
    st.sampled_from(CHANNELS),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=4),
    st.fixed_dictionaries({}, optional={"email_to": st.sampled_from(("a\nb", "b\nNone"))}),
)


def fired(decision: Decision) -> dict[str, UUID | None]:
    return {step.team_id: step.rule_id for step in decision.trail if step.reason in ("rule", "catch_all", "no_route")}


def agree(index: RoutingIndex, oracle: Oracle) -> Decision:
    """The decision of the index, which must be what the oracle says."""
    oracle.enter(ROOT)
    oracle.copy()
    decision = decide(index, oracle.facts)
    assert {(one.system_id, one.team_id) for one in decision.chosen} == oracle.expected.chosen
    assert len(decision.chosen) == len(set(decision.chosen)), "nobody is served twice"
    found = [(one.team_id, one.category, one.handler) for one in decision.unrouted]
    assert sorted(found, key=repr) == sorted(oracle.expected.unrouted, key=repr)
    assert fired(decision) == oracle.expected.fired
    copies = [step.rule_id for step in decision.trail if step.reason == "copy"]
    assert sorted(copies, key=str) == sorted(oracle.expected.copies, key=str)
    assert decision.chosen or decision.unrouted, "a decision is never empty"
    assert (decision.version, decision.facts) == (index.version, oracle.facts)
    return decision


def kinds(decision: Decision, oracle: Oracle) -> Counter[str]:
    """What this pair tried: proof that the worlds are not all alike."""
    seen = Counter[str](step.reason for step in decision.trail)
    seen["fan-out"] = len(decision.chosen) > 1
    seen["three levels"] = len(oracle.expected.fired) > 2
    seen["served and dead"] = bool(decision.chosen and decision.unrouted)
    own = [rule for rule in oracle.rules if rule.team_id == ROOT and oracle.matches(rule)]
    order = Counter((rule.priority, specificity(rule), rule.channel == "*", rule.created_at) for rule in own)
    seen["several match"] = len(own) > 1
    seen["any of several values"] = any(isinstance(one, tuple) for rule in own for one in rule.filters.values())
    seen["only the id decides"] = max(order.values(), default=0) > 1
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_tens_of_thousands_of_decisions_equal_the_oracle(part: int) -> None:
    random, seen = Random(part), Counter[str]()
    for _ in range(EXAMPLES // PARTS // MESSAGES):
        one = world(random, messages=MESSAGES)
        index = RoutingIndex(7, one.teams, one.rules)
        same = RoutingIndex(7, one.teams[::-1], random.sample(one.rules, len(one.rules)))
        for facts in one.messages:
            oracle = Oracle(one.teams, one.rules, facts)
            decision = agree(index, oracle)
            assert decision == decide(same, facts), "the order of loading must not matter"
            seen += kinds(decision, oracle)
    assert {kind for kind, count in seen.items() if count > EXAMPLES // PARTS // 200} == {
        *("rule", "catch_all", "no_route", "dead_letter_rule", "target_unavailable"),
        *("fan-out", "three levels", "served and dead"),
        *("copy", "any of several values", "several match", "only the id decides"),
    }


@settings(max_examples=max(300, EXAMPLES // 500))
@given(
    teams=trees(),
    rules=st.lists(RULES, max_size=16, unique_by=lambda rule: rule.rule_id),
    messages=st.lists(FACTS, min_size=1, max_size=3),
    shuffled=st.randoms(use_true_random=False),
)
def test_decide_equals_the_oracle(
    teams: tuple[Team, ...], rules: list[Rule], messages: list[dict[str, str]], shuffled: Random
) -> None:
    other_teams, other_rules = shuffled.sample(teams, len(teams)), shuffled.sample(rules, len(rules))
    index, same = RoutingIndex(7, teams, rules), RoutingIndex(7, other_teams, other_rules)
    for facts in messages:
        decision = agree(index, Oracle(teams, rules, facts))
        assert decision == decide(same, facts), "the order of loading must not matter"


CROWDED = st.builds(
    Rule,
    rule_id=st.builds(lambda number: UUID(int=number), st.integers(0, 99)),
    team_id=st.just(TeamId("root")),
    name=st.just("crowded"),
    channel=st.sampled_from(("telegram", "*")),
    filters=st.dictionaries(st.sampled_from(KEYS[:2]), st.sampled_from(("a", ("a", "b"))), max_size=2),
    targets=st.just((Target(system_id=SystemId("System1/root")),)),
    created_at=st.integers(0, 1).map(lambda days: NEW_YEAR + timedelta(days=days)),
    priority=st.integers(-2, 2),
)


@settings(max_examples=max(300, EXAMPLES // 300))
@given(rules=st.lists(CROWDED, max_size=12, unique_by=lambda rule: rule.rule_id))
def test_of_many_rules_that_all_match_the_first_fires(rules: list[Rule]) -> None:
    team = team_of("System1/root")
    facts = {"channel": "telegram", "sender": "a", "thread": "a"}
    first = Oracle((team,), rules, facts).first(team.team_id)
    assert fired(decide(RoutingIndex(1, (team,), rules), facts)) == {"root": first.rule_id if first else None}


@settings(max_examples=max(200, EXAMPLES // 500))
@given(rules=st.lists(RULES, max_size=12, unique_by=lambda rule: rule.rule_id), facts=FACTS)
def test_explain_names_the_rule_that_decide_fires(rules: list[Rule], facts: dict[str, str]) -> None:
    team = team_of()
    own = [rule for rule in rules if rule.team_id == team.team_id]
    survey = Survey(facts)
    survey.add(own)
    looked_at = survey.considered
    last = looked_at[-1] if looked_at else None
    assert fired(decide(RoutingIndex(1, (team,), rules), facts))["root"] == (
        last.rule.rule_id if last is not None and last.fired else None
    )
    assert all(not one.fired and one.actual != one.expected for one in looked_at[:-1])

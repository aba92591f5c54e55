"""Why a rule fired, which one nearly did, and what put the winner before the others."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.core.routing.decide import decide
from switchboard.core.routing.explain import Beaten, Considered, FailedFilter, Survey, TieBreak, tie_break
from switchboard.core.routing.index import RoutingIndex, rank
from switchboard.domain.routing import Rule, SystemId, Target
from tests.routing import NEW_YEAR, ROOT, rule, team_of
from tests.worlds import specificity

BUTLER = SystemId("System1/a")
TEAM = team_of(BUTLER)
GOOD = rule(BUTLER, number=5, channel="telegram", sender="a")
FACTS = {"channel": "telegram", "sender": "a", "thread": "t"}


def survey(rules: list[Rule], facts: dict[str, str], *, shown: int = 200, piece: int = 3) -> Survey:
    found = Survey(facts, shown)
    for at in range(0, len(rules), piece):
        found.add(rules[at : at + piece])
    return found


def considered(rules: list[Rule], facts: dict[str, str]) -> list[Considered]:
    return survey(rules, facts).considered


def beaten(rules: list[Rule], facts: dict[str, str]) -> list[Beaten]:
    return survey(rules, facts).beaten


def nearest(rules: list[Rule], facts: dict[str, str]) -> list[Considered]:
    return survey(rules, facts).nearest


def test_every_filter_that_failed_is_named_channel_first() -> None:
    rule = replace(GOOD, channel="email", filters={"thread": "x", "sender": "a", "chat_type": "group"})
    (look,) = considered([rule], FACTS)
    assert look.failures == (
        FailedFilter("channel", "email", "telegram"),
        FailedFilter("chat_type", "group", None),
        FailedFilter("thread", "x", "t"),
    )
    assert (look.failed, look.fired) == (3, False)
    assert (look.failed_filter, look.expected, look.actual) == ("channel", "email", "telegram")


def test_the_rule_that_fired_is_the_last_one_looked_at() -> None:
    miss, later = replace(GOOD, priority=9, filters={"sender": "b"}), replace(GOOD, rule_id=UUID(int=6))
    looks = considered([later, GOOD, miss, replace(GOOD, priority=10, active=False)], FACTS)
    assert [(look.rule, look.fired) for look in looks] == [(miss, False), (GOOD, True)]
    assert (looks[-1].failed_filter, looks[-1].expected, looks[-1].actual) == (None, None, None)


TIES: dict[TieBreak, tuple[Rule, Rule]] = {
    "catch_all_last": (replace(GOOD, priority=-5), replace(GOOD, channel="*", filters={}, priority=5)),
    "priority": (replace(GOOD, filters={}, priority=1), GOOD),
    "more_specific": (replace(GOOD, channel="*", filters={"sender": "a", "thread": "t"}), GOOD),
    "named_channel": (GOOD, replace(GOOD, channel="*", created_at=NEW_YEAR - timedelta(days=1))),
    "older": (GOOD, replace(GOOD, created_at=NEW_YEAR + timedelta(microseconds=1), rule_id=UUID(int=1))),
    "id": (GOOD, replace(GOOD, rule_id=UUID(int=6))),
}


@pytest.mark.parametrize("by", TIES)
def test_what_puts_one_rule_before_another(by: TieBreak) -> None:
    first, later = TIES[by]
    later = replace(later, name="later", rule_id=later.rule_id if by in ("older", "id") else UUID(int=7))
    assert considered([later, first], FACTS)[0].rule == first
    assert beaten([later, first], FACTS) == [Beaten(later, by)]


def test_nothing_is_beaten_where_nothing_or_one_matches() -> None:
    assert beaten([], FACTS) == []
    assert beaten([GOOD, replace(GOOD, filters={"sender": "b"}), replace(GOOD, active=False)], FACTS) == []


def test_the_nearest_misses_first() -> None:
    one = replace(GOOD, name="one filter", filters={"sender": "b"})
    better = replace(one, name="one filter, higher", priority=3)
    two = replace(GOOD, name="two", filters={"sender": "b", "thread": "x"}, priority=99)
    three = replace(two, name="three", channel="email")
    off = replace(one, name="inactive", active=False)
    other = replace(GOOD, name="other channel", channel="email", priority=100)
    rules = [other, three, two, off, one, better]
    assert [look.rule.name for look in nearest(rules, FACTS)] == ["one filter, higher", "one filter", "two"]
    assert nearest([GOOD], FACTS) == [], "what matches has not missed"


RULES = st.builds(
    Rule,
    rule_id=st.builds(lambda number: UUID(int=number), st.integers(0, 99)),
    team_id=st.just(ROOT),
    name=st.just("any"),
    channel=st.sampled_from(("telegram", "email", "*")),
    filters=st.dictionaries(st.sampled_from(("sender", "thread")), st.sampled_from("ab"), max_size=2),
    targets=st.just((Target(system_id=BUTLER),)),
    created_at=st.integers(0, 1).map(lambda days: NEW_YEAR + timedelta(days=days)),
    priority=st.integers(0, 1),
    active=st.sampled_from((True, True, True, False)),
)
SETS = st.lists(RULES, max_size=8, unique_by=lambda one: one.rule_id)
MESSAGES = st.fixed_dictionaries(
    {"channel": st.sampled_from(("telegram", "email", "cli"))},
    optional={"sender": st.sampled_from("abc"), "thread": st.sampled_from("abc")},
)


def fired(rules: list[Rule], facts: dict[str, str]) -> UUID | None:
    return decide(RoutingIndex(1, (TEAM,), rules), facts).trail[0].rule_id


@settings(max_examples=300)
@given(rules=SETS, facts=MESSAGES)
def test_taking_the_winner_away_lets_the_beaten_fire_one_after_the_other(
    rules: list[Rule], facts: dict[str, str]
) -> None:
    order = []
    left = list(rules)
    while (winner := fired(left, facts)) is not None:
        order.append(winner)
        left = [one for one in left if one.rule_id != winner]
    assert [one.rule.rule_id for one in beaten(rules, facts)] == order[1:]
    looks = considered(rules, facts)
    assert [look.rule.rule_id for look in looks if look.fired] == order[:1]
    assert len(looks) <= sum(rule.active for rule in rules)


@settings(max_examples=300)
@given(rules=SETS, facts=MESSAGES)
def test_the_nearest_are_of_its_channel_then_by_failed_filters_then_rank(
    rules: list[Rule], facts: dict[str, str]
) -> None:
    def failed(rule: Rule) -> int:
        wrong = sum(facts.get(key) != value for key, value in rule.filters.items())
        return wrong + (rule.channel not in ("*", facts["channel"]))

    misses = [rule for rule in rules if rule.active and failed(rule)]
    misses.sort(key=lambda r: (r.channel not in ("*", facts["channel"]), failed(r), r.catch_all, rank(r)))
    found = nearest(rules, facts)
    assert [look.rule for look in found] == misses[:3]
    assert [look.failed for look in found] == [failed(rule) for rule in misses[:3]]


@settings(max_examples=300)
@given(rules=SETS, facts=MESSAGES, shown=st.integers(1, 5), piece=st.integers(1, 8))
def test_of_many_rules_the_first_and_the_fired_are_shown_others_counted(
    rules: list[Rule], facts: dict[str, str], shown: int, piece: int
) -> None:
    order = sorted((rule for rule in rules if rule.active), key=lambda rule: (rule.catch_all, rank(rule)))
    winner = fired(rules, facts)
    looked_at = order
    if winner is not None:
        looked_at = order[: [rule.rule_id for rule in order].index(winner) + 1]
    part = survey(rules, facts, shown=shown, piece=piece)
    if len(looked_at) <= shown:
        expected = looked_at
    else:
        expected = looked_at[:shown] if winner is None else [*looked_at[: shown - 1], looked_at[-1]]
    assert [look.rule for look in part.considered] == expected
    assert part.left_out == len(looked_at) - len(expected)
    assert (part.nearest, part.beaten) == (nearest(rules, facts), beaten(rules, facts))


@given(rules=st.lists(RULES, min_size=2, max_size=2, unique_by=lambda one: one.rule_id))
def test_a_tie_break_is_what_really_differs(rules: list[Rule]) -> None:
    first, later = sorted(rules, key=lambda rule: (rule.catch_all, rank(rule)))
    differs = {
        "catch_all_last": later.catch_all and not first.catch_all,
        "priority": first.priority > later.priority,
        "more_specific": specificity(first) > specificity(later),
        "named_channel": first.channel != "*" == later.channel,
        "older": first.created_at < later.created_at,
        "id": first.rule_id < later.rule_id,
    }
    assert tie_break(first, later) == next(name for name, holds in differs.items() if holds)

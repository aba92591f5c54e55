"""A house of teams, its rules, and a table of messages: where each one goes and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from switchboard.core.routing.decide import decide
from switchboard.core.routing.index import RoutingIndex, rank
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.routing import (
    Decision,
    Rule,
    RuleChange,
    RuleSet,
    SystemId,
    Team,
    TeamId,
)
from tests.routing import NEW_YEAR, empty_team, member, rule, team_of, to


def newer(one: Rule) -> Rule:
    """As if it had been made a day later."""
    return replace(one, created_at=one.created_at + timedelta(days=1))


TEAMS = (
    team_of("System1/butler", member("System1/asleep", active=False), "System3/root", "System4/root"),
    team_of("System1/interviewer", "System4/onboarding", team_id="onboarding"),
    team_of("System1/digger", team_id="deep", parent="onboarding"),
    team_of("System1/cook", member("System4/kitchen", active=False), team_id="kitchen"),
)
RULES = (
    rule("onboarding", number=1, channel="telegram", priority=10, telegram_user_id="5488423581"),
    rule("System1/interviewer", number=2, team="onboarding", channel="telegram", telegram_chat_id="5488423581"),
    rule("System1/butler", "kitchen", number=3, channel="email", email_domain="shop.example"),
    rule("System1/cook", number=4, team="kitchen", channel="email", email_sender="cook@shop.example"),
    rule("System4/root", number=5, channel="email", email_sender="spam@evil.example"),
    rule("System1/asleep", "System1/butler", number=6, channel="cli", session_id="asleep"),
    rule("onboarding", number=7, channel="cli", session_id="deep"),
    rule("deep", number=8, team="onboarding", channel="cli"),
    rule("System1/digger", number=9, team="deep"),
    rule("System3/root", number=10, channel="cli", session_id="control"),
    rule("System1/digger", number=11, channel="cli", session_id="else"),
    rule("deep", number=12, channel="cli", session_id="under"),
    replace(rule("System1/butler", number=13, channel="cli", session_id="off"), active=False),
)
INDEX = RoutingIndex.of(RuleSet(3, TEAMS, RULES))


@dataclass(frozen=True)
class Case:
    """A message's facts, the butlers it must reach, its dead letters as `team category handler`, its trail."""

    name: str
    facts: dict[str, str]
    butlers: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    trail: tuple[str, ...] = ()


CASES = (
    Case(
        "the example of the seed: user to sub-team, chat to interviewer",
        {"channel": "telegram", "telegram_user_id": "5488423581", "telegram_chat_id": "5488423581"},
        ("System1/interviewer",),
        trail=("root rule 1", "onboarding rule 2"),
    ),
    Case(
        "the same without rule B: onboarding's own dead letter, and its System4 is told",
        {"channel": "telegram", "telegram_user_id": "5488423581", "telegram_chat_id": "7"},
        dead=("onboarding no_route System4/onboarding",),
        trail=("root rule 1", "onboarding no_route"),
    ),
    Case(
        "nothing matches in the root",
        {"channel": "telegram", "telegram_user_id": "1"},
        dead=("root no_route System4/root",),
        trail=("root no_route",),
    ),
    Case(
        "fan-out to a butler and a sub-team",
        {"channel": "email", "email_domain": "shop.example", "email_sender": "cook@shop.example"},
        ("System1/butler", "System1/cook"),
        trail=("root rule 3", "kitchen rule 4"),
    ),
    Case(
        "a branch that dead-letters does not stop the other; an inactive System4 passes it to the one above",
        {"channel": "email", "email_domain": "shop.example", "email_sender": "boss@shop.example"},
        ("System1/butler",),
        ("kitchen no_route System4/root",),
        ("root rule 3", "kitchen no_route"),
    ),
    Case(
        "an explicit dead-letter rule",
        {"channel": "email", "email_domain": "evil.example", "email_sender": "spam@evil.example"},
        dead=("root dead_letter_rule System4/root",),
        trail=("root rule 5", "root dead_letter_rule 5"),
    ),
    Case(
        "an inactive target is said to be unavailable, the other one is served",
        {"channel": "cli", "session_id": "asleep"},
        ("System1/butler",),
        ("root target_unavailable System4/root",),
        ("root rule 6", "root target_unavailable 6"),
    ),
    Case(
        "three levels, a catch-all at the end",
        {"channel": "cli", "session_id": "deep"},
        ("System1/digger",),
        trail=("root rule 7", "onboarding rule 8", "deep catch_all 9"),
    ),
    Case(
        "a System3 takes no messages",
        {"channel": "cli", "session_id": "control"},
        dead=("root target_unavailable System4/root",),
        trail=("root rule 10", "root target_unavailable 10"),
    ),
    Case(
        "a butler of another team cannot be named",
        {"channel": "cli", "session_id": "else"},
        dead=("root target_unavailable System4/root",),
        trail=("root rule 11", "root target_unavailable 11"),
    ),
    Case(
        "nor a team two levels down",
        {"channel": "cli", "session_id": "under"},
        dead=("root target_unavailable System4/root",),
        trail=("root rule 12", "root target_unavailable 12"),
    ),
    Case(
        "an inactive rule does not fire",
        {"channel": "cli", "session_id": "off"},
        dead=("root no_route System4/root",),
        trail=("root no_route",),
    ),
    Case("no facts at all", {}, dead=("root no_route System4/root",), trail=("root no_route",)),
)


def trail(decision: Decision) -> tuple[str, ...]:
    numbers = (step.rule_id.int if step.rule_id else "" for step in decision.trail)
    steps = zip(decision.trail, numbers, strict=True)
    return tuple(f"{step.team_id} {step.reason} {number}".strip() for step, number in steps)


def butlers(decision: Decision) -> tuple[str, ...]:
    return tuple(one.system_id for one in decision.chosen)


def dead(decision: Decision) -> tuple[str, ...]:
    return tuple(f"{one.team_id} {one.category} {one.handler}" for one in decision.unrouted)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_where_a_message_goes(case: Case) -> None:
    decision = decide(INDEX, case.facts)
    assert (butlers(decision), dead(decision), trail(decision)) == (case.butlers, case.dead, case.trail)
    assert decision.version == 3


def test_a_decision_names_team_and_rule_and_targets() -> None:
    decision = decide(INDEX, CASES[0].facts)
    assert decision.chosen[0].team_id == "onboarding"
    assert decision.trail[0].rule_name == "rule 1"
    assert decision.trail[0].targets == (to("onboarding"),)


# What order means. Each pair: the rule that must fire, then the one that must not.
ORDER = {
    "priority before more filters": (
        rule("System1/butler", number=2, priority=1, sender="a"),
        rule("System1/butler", number=1, channel="cli", sender="a", thread="t"),
    ),
    "a negative priority comes after none": (
        newer(rule("System1/butler", number=2, channel="cli", sender="a")),
        rule("System1/butler", number=1, channel="cli", priority=-1, sender="a"),
    ),
    "more filters before a named channel": (
        newer(rule("System1/butler", number=2, sender="a", thread="t")),
        rule("System1/butler", number=1, channel="cli", sender="a"),
    ),
    "a named channel before the star": (
        newer(rule("System1/butler", number=2, channel="cli", sender="a")),
        rule("System1/butler", number=1, sender="a"),
    ),
    "older before newer": (
        rule("System1/butler", number=2, channel="cli", thread="t"),
        newer(rule("System1/butler", number=1, channel="cli", sender="a")),
    ),
    "then the smaller id": (
        rule("System1/butler", number=1, channel="cli", thread="t"),
        rule("System1/butler", number=2, channel="cli", sender="a"),
    ),
    "a named channel without filters before every catch-all": (
        rule("System1/butler", number=2, channel="cli", priority=-5),
        rule("System1/butler", number=1, priority=5),
    ),
}


@pytest.mark.parametrize("pair", ORDER.values(), ids=ORDER.keys())
def test_order_of_rules(pair: tuple[Rule, Rule]) -> None:
    facts = {"channel": "cli", "sender": "a", "thread": "t"}
    for rules in (pair, pair[::-1]):
        decision = decide(RoutingIndex(1, TEAMS, rules), facts)
        assert decision.trail[0].rule_id == pair[0].rule_id


def test_of_several_catch_alls_the_first_in_order_fires() -> None:
    low, high = rule("System4/root", number=1), rule("System1/butler", number=2, priority=1)
    assert trail(decide(RoutingIndex(1, TEAMS, (low, high)), {"channel": "cli"})) == ("root catch_all 2",)


def test_rank_counts_microseconds_and_times_before_1970() -> None:
    base = rule("System1/butler", number=1, channel="cli")
    times = [
        datetime(1, 1, 1, tzinfo=UTC),
        NEW_YEAR,
        NEW_YEAR + timedelta(microseconds=1),
        datetime.max.replace(tzinfo=UTC),
    ]
    ranks = [rank(replace(base, created_at=time)) for time in times]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(times)


# Pins


def test_a_pin_goes_before_all_rules() -> None:
    decision = decide(INDEX, CASES[0].facts, SystemId("System1/digger"))
    assert butlers(decision) == ("System1/digger",)
    assert decision.chosen[0].team_id == "deep"
    assert trail(decision) == ("root pin",)


@pytest.mark.parametrize(
    "pinned", ["System1/asleep", "System4/root", "System3/root", "System1/nobody", "", "System1/lost"]
)
def test_a_pin_that_cannot_be_reached_leaves_it_to_the_rules(pinned: str) -> None:
    lost = team_of("System1/lost", team_id="lost", parent="nowhere")
    decision = decide(RoutingIndex(1, (*TEAMS, lost), RULES), CASES[0].facts, SystemId(pinned))
    assert butlers(decision) == ("System1/interviewer",)
    assert trail(decision)[0] == "root pin_unreachable"


# Where to begin


def test_a_decision_may_begin_below_the_root() -> None:
    decision = decide(INDEX, CASES[0].facts, start=TeamId("onboarding"))
    assert (butlers(decision), trail(decision)) == (("System1/interviewer",), ("onboarding rule 2",))
    assert dead(decide(INDEX, {"channel": "cli"}, start=TeamId("kitchen"))) == ("kitchen no_route System4/root",)


def test_a_pin_goes_before_the_rules_of_any_team() -> None:
    decision = decide(INDEX, CASES[0].facts, SystemId("System1/digger"), TeamId("onboarding"))
    assert (butlers(decision), trail(decision)) == (("System1/digger",), ("onboarding pin",))
    decision = decide(INDEX, CASES[0].facts, SystemId("System1/asleep"), TeamId("onboarding"))
    assert trail(decision) == ("onboarding pin_unreachable", "onboarding rule 2")


def test_a_team_out_of_reach_is_a_dead_letter_for_the_roots_system4() -> None:
    decision = decide(INDEX, CASES[0].facts, start=TeamId("gone"))
    assert (butlers(decision), dead(decision)) == ((), ("gone no_route System4/root",))
    assert decision.trail[0].detail == decision.unrouted[0].reason == "there is no path from the root to gone"


def test_a_decision_keeps_the_facts_it_was_made_of() -> None:
    for pinned in (None, SystemId("System1/digger"), SystemId("System1/asleep")):
        assert decide(INDEX, CASES[0].facts, pinned).facts == CASES[0].facts


# The known defects of the seed's own router (seeds-facts 2.2), each in the order given there


def test_defect_1_the_first_match_fires_and_defaults_hide_no_dead_letter() -> None:
    default = rule("System4/root", number=99)
    index = RoutingIndex(1, TEAMS, (*RULES, default))
    assert butlers(decide(index, CASES[0].facts)) == ("System1/interviewer",)
    assert not decide(index, CASES[0].facts).unrouted
    assert dead(decide(index, {"channel": "telegram"})) == ("root dead_letter_rule System4/root",)
    assert dead(decide(index, CASES[1].facts)) == ("onboarding no_route System4/onboarding",)


def test_defect_2_nobody_is_served_twice() -> None:
    twice = rule("System1/butler", "System1/butler", "kitchen", "kitchen", number=1, channel="cli", sender="a")
    also = replace(rule("System1/butler", number=2), filters={"channel": "cli"})
    inner = rule("System1/cook", "System1/cook", number=3, team="kitchen", channel="cli")
    decision = decide(RoutingIndex(1, TEAMS, (twice, also, inner)), {"channel": "cli", "sender": "a"})
    assert butlers(decision) == ("System1/butler", "System1/cook")
    assert trail(decision) == ("root rule 1", "kitchen rule 3")


def test_defect_4_an_unknown_target_is_never_silence() -> None:
    gone = rule("System1/typo", "no-such-team", number=1, channel="cli")
    decision = decide(RoutingIndex(1, TEAMS, (gone,)), {"channel": "cli"})
    assert dead(decision) == ("root target_unavailable System4/root",) * 2
    assert "System1/typo is not in team root" in decision.unrouted[0].reason
    assert "no-such-team is not a sub-team of root" in decision.unrouted[1].reason


def test_defect_5_a_sub_teams_dead_letter_is_not_the_parents_success() -> None:
    decision = decide(INDEX, CASES[1].facts)
    assert not decision.chosen
    assert [one.team_id for one in decision.unrouted] == ["onboarding"]


def test_defect_6_an_absent_key_never_equals_the_word_none() -> None:
    index = RoutingIndex(1, TEAMS, (rule("System1/butler", number=1, channel="cli", thread="None"),))
    assert trail(decide(index, {"channel": "cli"})) == ("root no_route",)
    assert trail(decide(index, {"channel": "cli", "thread": "None"})) == ("root rule 1",)
    two = RoutingIndex(1, TEAMS, (rule("System1/butler", number=1, channel="cli", thread="None", sender="a"),))
    assert trail(decide(two, {"channel": "cli", "sender": "a"})) == ("root no_route",)


def test_defect_7_only_the_way_down_is_open() -> None:
    up = (
        rule("kitchen", number=1, channel="cli"),
        rule(
            "System1/butler", "root", "kitchen", "onboarding", "System4/root", number=2, team="kitchen", channel="cli"
        ),
    )
    decision = decide(RoutingIndex(1, TEAMS, up), {"channel": "cli"})
    assert not decision.chosen
    assert dead(decision) == ("kitchen target_unavailable System4/root",) * 5


def test_defect_7_a_rule_without_targets_is_a_dead_letter_not_nothing() -> None:
    decision = decide(RoutingIndex(1, TEAMS, (rule(number=1, channel="cli"),)), {"channel": "cli"})
    assert dead(decision) == ("root target_unavailable System4/root",)


def test_defect_9_a_cycle_of_teams_is_out_of_reach_and_ends() -> None:
    around = (team_of("System1/a", team_id="a", parent="b"), team_of("System1/b", team_id="b", parent="a"))
    rules = (
        rule("a", number=1, channel="cli"),
        rule("b", number=2, team="a", channel="cli"),
        rule("a", number=3, team="b", channel="cli"),
    )
    index = RoutingIndex(1, (*TEAMS, *around), rules)
    assert dead(decide(index, {"channel": "cli"})) == ("root target_unavailable System4/root",)
    assert (index.loaded, index.ignored) == (1, 2)


def test_defect_9_depth_is_not_bound_by_the_stack() -> None:
    depth = 5000
    teams = [team_of("System1/0", team_id="0", parent=None)] + [
        team_of(f"System1/{n}", team_id=str(n), parent=str(n - 1)) for n in range(1, depth)
    ]
    rules = [rule(str(n + 1), number=n, team=str(n)) for n in range(depth - 1)]
    rules.append(rule(f"System1/{depth - 1}", number=depth, team=str(depth - 1)))
    decision = decide(RoutingIndex(1, teams, rules), {"channel": "cli"})
    assert butlers(decision) == (f"System1/{depth - 1}",)
    assert len(decision.trail) == depth


def test_a_team_without_any_system4_above_has_no_handler() -> None:
    assert decide(RoutingIndex(1, (team_of(),), ()), {"channel": "cli"}).unrouted[0].handler is None


def test_a_system1_without_an_engine_is_not_a_butler() -> None:
    mute = team_of(member("System1/butler", engine=""))
    decision = decide(RoutingIndex(1, (mute,), (rule("System1/butler", number=1, channel="cli"),)), {"channel": "cli"})
    assert dead(decision) == ("root target_unavailable None",)


def test_values_are_compared_apart_however_they_are_joined() -> None:
    filters = {"sender": "a\x1fb", "thread": "c"}
    index = RoutingIndex(1, TEAMS, (replace(rule("System1/butler", number=1, channel="cli"), filters=filters),))
    assert trail(decide(index, {"channel": "cli", "sender": "a", "thread": "b\x1fc"})) == ("root no_route",)
    assert trail(decide(index, {"channel": "cli", **filters})) == ("root rule 1",)


@pytest.mark.parametrize("teams", [(), (empty_team("a", "b"),), (empty_team("a", None), empty_team("b", None))])
def test_one_root_is_needed(teams: tuple[Team, ...]) -> None:
    with pytest.raises(ConfigurationError, match="exactly one team must have no parent"):
        RoutingIndex(1, teams, ())


def test_counts_say_what_was_loaded_and_what_can_never_fire() -> None:
    stray = rule("System1/butler", number=50, team="nowhere", channel="cli")
    index = RoutingIndex(1, TEAMS, (*RULES, stray))
    assert (index.loaded, index.ignored) == (12, 1)


class Counting(Mapping[str, str]):
    """Facts that count how often they are looked at."""

    def __init__(self, facts: dict[str, str]) -> None:
        self.facts = facts
        self.looks = 0

    def __getitem__(self, key: str) -> str:
        self.looks += 1
        return self.facts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.facts)

    def __len__(self) -> int:
        return len(self.facts)


def test_defect_10_work_grows_with_the_shapes_of_rules_not_their_number() -> None:
    def looks(count: int) -> int:
        rules = (
            replace(rule("System1/butler", number=n, channel="cli"), filters={("sender", "thread")[n % 2]: f"v{n}"})
            for n in range(count)
        )
        facts = Counting({"channel": "cli", "sender": "v8", "thread": "t"})
        assert trail(decide(RoutingIndex(1, TEAMS, rules), facts)) == ("root rule 8",)
        return facts.looks

    assert looks(10) == looks(10_000) <= 3


def test_a_better_rule_found_spares_the_other_shapes() -> None:
    best = rule("System1/butler", number=1, channel="cli", priority=9, session_id="s")
    rest = (replace(rule("System1/butler", number=n, channel="cli"), filters={f"key{n}": "v"}) for n in range(2, 50))
    facts = Counting({"channel": "cli", "session_id": "s"})
    assert trail(decide(RoutingIndex(1, TEAMS, (*rest, best)), facts)) == ("root rule 1",)
    assert facts.looks == 2


# Copies


def copying(*targets: str, **given: Any) -> Rule:
    return replace(rule(*targets, **given), copy=True)


def copied(facts: dict[str, str], *copies: Rule, pinned: str | None = None) -> Decision:
    """The decision with these rules beside the others, which they must not change."""
    index = RoutingIndex(3, TEAMS, (*RULES, *copies))
    decision = decide(index, facts, None if pinned is None else SystemId(pinned))
    without = decide(INDEX, facts, None if pinned is None else SystemId(pinned))
    assert decision.chosen[: len(without.chosen)] == without.chosen
    assert [step for step in decision.trail if step.reason != "copy"] == list(without.trail)
    assert decision.unrouted == without.unrouted
    return decision


def names(decision: Decision) -> list[str]:
    return [one.system_id for one in decision.chosen]


def test_every_copy_that_matches_is_delivered_beside_what_was_decided() -> None:
    facts = {"channel": "cli", "session_id": "deep"}
    archive = copying("System1/butler", number=50)
    special = copying("System1/butler", "System1/asleep", number=51, channel="cli", session_id="deep")
    below = copying("System1/digger", number=52, channel="cli", team="deep")
    elsewhere = copying("System1/cook", number=53, team="kitchen")
    decision = copied(facts, archive, special, below, elsewhere)
    assert names(decision) == ["System1/digger", "System1/butler"], "each once"
    copies = [(step.team_id, step.rule_name, step.detail) for step in decision.trail if step.reason == "copy"]
    assert copies == [
        ("root", "rule 51", "System1/asleep is not active"),
        ("root", "rule 50", ""),
        ("deep", "rule 52", ""),
    ]


def test_a_message_is_not_routed_by_copies_alone() -> None:
    facts = {"channel": "cli", "session_id": "nobody's"}
    decision = copied(facts, copying("System1/butler", number=50))
    assert (names(decision), [one.category for one in decision.unrouted]) == (["System1/butler"], ["no_route"])


def test_what_is_pinned_and_what_a_copy_does_not_match_is_not_copied() -> None:
    facts = {"channel": "cli", "session_id": "deep"}
    assert names(copied(facts, copying("System1/butler", number=50), pinned="System1/cook")) == ["System1/cook"]
    assert names(copied(facts, copying("System1/butler", number=50, channel="email"))) == ["System1/digger"]


def test_a_rule_that_begins_to_copy_decides_no_longer() -> None:
    index = RoutingIndex(3, TEAMS, RULES)
    before = RULES[6]
    index.apply(4, [RuleChange(before, replace(before, copy=True, targets=(to("System1/butler"),)))])
    decision = decide(index, {"channel": "cli", "session_id": "deep"})
    assert (names(decision), [one.category for one in decision.unrouted]) == (["System1/butler"], ["no_route"])

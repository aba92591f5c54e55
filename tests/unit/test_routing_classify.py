"""Where a model must be asked: the walk is stepped by hand, and every answer leads somewhere."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from msgspec.structs import replace

from switchboard.core.routing.backtest import Case as Stored
from switchboard.core.routing.backtest import Receivers, compare, receivers
from switchboard.core.routing.decide import Deciding, decide, decide_now, deciding, simulate
from switchboard.core.routing.index import RoutingIndex
from switchboard.core.routing.lint import lint
from switchboard.core.routing.teamfile import parse_team_file
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import (
    Classified,
    Decision,
    Route,
    Rule,
    RuleChange,
    SystemId,
    Target,
    TeamId,
    Undecided,
)
from tests.routing import ROOT, member, rule, team_of, to
from tests.worlds import world

EAST, DEEP, EMPTY = TeamId("east"), TeamId("deep"), TeamId("empty")
A, B, HANDLER = SystemId("System1/a"), SystemId("System1/b"), SystemId("System4/root")
FACTS = {"channel": "cli", "sender": "s"}


TEAMS = (
    team_of(A, B, HANDLER, classify=True),
    team_of("System1/e", team_id=EAST, classify=True),
    team_of("System1/d", team_id=DEEP, parent=EAST),
    team_of(member("System1/off", active=False), team_id=EMPTY, classify=True),
)


def index(*rules: Rule, classifying: bool = True) -> RoutingIndex:
    return RoutingIndex(7, TEAMS, rules, classifying=classifying)


def routes(*targets: str, **segments: str) -> Classified:
    whole = tuple(Route(to(name)) for name in targets)
    return Classified((*whole, *(Route(to(f"System1/{name}"), part) for name, part in segments.items())))


def answered(by: RoutingIndex, *answers: Classified, asked: tuple[Undecided, ...] = ()) -> Decision:
    """Step the walk: it must ask exactly `asked`, in this order, and then end."""
    walk = deciding(by, FACTS)
    seen = []
    try:
        question = next(walk)
        for answer in answers:
            seen.append(question)
            question = walk.send(answer)
    except StopIteration as end:
        decision: Decision = end.value
    else:
        raise AssertionError(f"more was asked: {question}")
    assert not asked or tuple(seen) == asked
    return decision


def steps(decision: Decision) -> list[str]:
    return [f"{step.team_id} {step.reason}" for step in decision.trail]


def lost(decision: Decision) -> list[tuple[str, str]]:
    return [(branch.team_id, branch.category) for branch in decision.unrouted]


def test_candidates_are_butlers_and_sub_teams_with_a_way_to_a_butler() -> None:
    made = index()
    assert made.candidates(ROOT) == (to(A), to(B), to("east"))
    assert made.candidates(EAST) == (to("System1/e"), to("deep"))
    assert made.candidates(DEEP) == (), "it does not want a model to be asked"
    assert [made.classifies(team.team_id) for team in TEAMS] == [True, True, False, False]
    assert made.classifying
    assert not index(classifying=False).classifying


def test_an_unreachable_butler_is_no_candidate_until_it_is_back() -> None:
    made = index()
    made.avoid([A, SystemId("System1/e"), SystemId("System1/d")])
    assert made.candidates(ROOT) == (to(B),)
    assert not made.classifies(EAST)
    made.avoid([SystemId("System1/e")])
    assert made.candidates(ROOT) == (to(A), to(B), to("east"))
    assert made.candidates(EAST) == (to("deep"),)


def test_a_rule_that_fires_asks_nobody() -> None:
    by = index(rule(A, channel="cli"), rule(B))
    assert decide_now(by, FACTS) == decide(by, FACTS) == simulate(by, FACTS)
    assert [chosen.system_id for chosen in decide(by, FACTS).chosen] == [A]


def test_without_models_the_catch_all_decides() -> None:
    by = index(rule(B), classifying=False)
    decision = decide_now(by, FACTS)
    assert decision is not None
    assert steps(decision) == ["root catch_all"]


def test_what_a_model_chooses_is_chosen_and_the_catch_all_is_not_asked() -> None:
    by = index(rule(B))
    assert decide_now(by, FACTS) is None
    decision = answered(by, routes(A), asked=(Undecided(ROOT),))
    assert [(one.system_id, one.team_id, one.segment) for one in decision.chosen] == [(A, ROOT, None)]
    assert (steps(decision), decision.unrouted, decision.version) == (["root classified"], (), 7)


def test_several_butlers_get_their_parts_and_a_blank_part_is_the_whole() -> None:
    decision = answered(index(), routes(a="one", b=" "))
    assert [(one.system_id, one.segment) for one in decision.chosen] == [(A, "one"), (B, None)]


def test_who_is_named_twice_is_chosen_once_with_the_whole_if_parts_differ() -> None:
    twice = Classified((Route(to(A), "x"), Route(to(A), "y"), Route(to(B), "z"), Route(to(B), "z")))
    assert [(one.system_id, one.segment) for one in answered(index(), twice).chosen] == [(A, None), (B, "z")]


def test_a_sub_team_that_a_model_names_is_entered_and_asked_in_turn() -> None:
    part = Classified((Route(to("east"), "for the east"), Route(to(A))))
    asked = (Undecided(ROOT), Undecided(EAST, "for the east"))
    decision = answered(index(), part, routes("System1/e"), asked=asked)
    assert [(one.system_id, one.segment) for one in decision.chosen] == [(A, None), ("System1/e", "for the east")]
    assert steps(decision) == ["root classified", "east classified"]


def test_a_part_follows_its_message_down_the_rules_and_a_smaller_one_wins() -> None:
    rules = rule("System1/d", team=DEEP)
    down = Classified((Route(to("east"), "outer"),))
    kept = answered(index(rules), down, routes("deep"))
    assert [(one.system_id, one.segment) for one in kept.chosen] == [("System1/d", "outer")]
    smaller = answered(index(rules), down, routes(e="inner"))
    assert [(one.system_id, one.segment) for one in smaller.chosen] == [("System1/e", "inner")]


def test_a_part_nobody_takes_is_lost_as_such_and_each_teams_part_is_told() -> None:
    down = Classified((Route(to("east"), "outer"), Route(to(A), "for a")))
    failed = answered(index(), down, Classified(failed="no"))
    assert [(one.team_id, one.segment) for one in failed.unrouted] == [(EAST, "outer")]
    assert failed.parts == {EAST: "outer"}
    below = answered(index(), down, Classified((Route(to("deep"), "inner"),)), Classified(failed="no"))
    assert [(one.team_id, one.segment) for one in below.unrouted] == [(DEEP, "inner")]
    assert below.parts == {EAST: "outer", DEEP: "inner"}
    whole = answered(index(), routes("east"), Classified(failed="no"))
    assert ([one.segment for one in whole.unrouted], whole.parts) == ([None], {})


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Classified(failed="HTTP 500"), "HTTP 500"),
        (Classified(failed=""), "the model failed"),
        (Classified(), "chose no candidate"),
        (routes("System1/d"), "System1/d, which is not reachable from this team"),
        (routes(A, "deep"), "deep, which is not reachable from this team"),
        (routes("empty"), "empty, which is not reachable from this team"),
        (routes(HANDLER), "System4/root, which"),
        (Classified((Route(Target()),)), "nobody, which"),
        (Classified((Route(Target(A, EAST)),)), "System1/a, which"),
    ],
)
def test_an_answer_that_cannot_be_followed_goes_the_ladder_down(answer: Classified, why: str) -> None:
    by_default = answered(index(rule(B)), answer)
    assert steps(by_default) == ["root classification_failed", "root catch_all"]
    assert why in by_default.trail[0].detail
    assert [one.system_id for one in by_default.chosen] == [B]
    dead = answered(index(), answer)
    assert (steps(dead), lost(dead)) == (["root classification_failed"], [("root", "classification_failed")])
    assert why in dead.unrouted[0].reason
    assert dead.unrouted[0].handler == HANDLER
    assert dead.chosen == ()


def test_a_branch_that_fails_does_not_stop_the_others() -> None:
    decision = answered(index(), routes(A, "east"), Classified(failed="no"))
    assert ([one.system_id for one in decision.chosen], lost(decision)) == ([A], [("east", "classification_failed")])


def test_a_rule_may_lead_to_a_team_where_a_model_is_asked() -> None:
    by = index(rule(A, "east", channel="cli"))
    assert decide_now(by, FACTS) is None
    decision = answered(by, routes("System1/e"), asked=(Undecided(EAST),))
    assert [one.system_id for one in decision.chosen] == [A, "System1/e"]


def test_a_pinned_message_asks_nobody() -> None:
    decision = decide_now(index(), FACTS, A)
    assert decision is not None
    assert steps(decision) == ["root pin"]
    assert decide_now(index(), FACTS, SystemId("System1/gone")) is None


def test_with_nobody_to_ask_the_ladder_decides_and_a_simulation_says_so() -> None:
    assert lost(decide(index(), FACTS)) == [("root", "classification_failed")]
    assert steps(decide(index(rule(B)), FACTS)) == ["root classification_failed", "root catch_all"]
    ahead = simulate(index(rule(B)), FACTS)
    assert (steps(ahead), ahead.chosen, ahead.unrouted) == (["root undecided"], (), ())
    assert ahead.trail[0].targets == index().candidates(ROOT)
    assert receivers(ahead) == Receivers(models=(ROOT,))


def test_a_backtest_tells_when_a_rule_takes_a_message_from_the_model() -> None:
    new = rule(A, channel="cli")
    before = index()
    after = before.copy([ROOT])
    after.apply(8, [RuleChange(None, new)])
    [difference] = compare(before, after, [Stored(UUID(int=1), FACTS)])
    assert (difference.before.models, difference.after.butlers) == ((ROOT,), (A,))
    to_east = replace(new, targets=(to("east"),))
    other = before.copy([ROOT])
    other.apply(8, [RuleChange(None, to_east)])
    [moved] = compare(before, other, [Stored(UUID(int=1), FACTS)])
    assert (moved.before.models, moved.after.models) == ((ROOT,), (EAST,))


def test_a_team_file_says_whether_a_model_may_be_asked() -> None:
    file = {"team": {"name": "root"}, "classify": True}
    assert parse_team_file(file).team.classify
    assert not parse_team_file({"team": {"name": "root"}}).team.classify
    with pytest.raises(InvalidInput, match="classify"):
        parse_team_file({**file, "classify": "yes"})


def test_a_classifying_team_dead_letters_nothing_and_reaches_its_sub_teams() -> None:
    codes = {(one.team_id, one.code) for one in lint(TEAMS, [rule("System1/d", team=DEEP)])}
    assert not codes & {(ROOT, "dead_letters_everything"), (EAST, "unreachable"), (DEEP, "unreachable")}
    plain = [replace(team, classify=False) for team in TEAMS]
    assert (EAST, "unreachable") in {(one.team_id, one.code) for one in lint(plain, [])}


def test_what_is_decided_at_once_is_what_the_walk_comes_to() -> None:
    """Most messages are decided without the walk; to the letter as it would decide them."""
    random, compared = Random(5), 0
    for _ in range(400):
        one = world(random, messages=20)
        walked = RoutingIndex(1, one.teams, one.rules)
        for facts in one.messages:
            decided = decide(walked, facts)
            assert decided == walk_to_the_end(deciding(walked, facts))
            assert decided == decide_now(walked, facts)
            compared += decided.trail[0].reason == "rule" and len(decided.trail) == 1
    assert compared > 100, "many of them at once"


def walk_to_the_end(walk: Deciding) -> Decision:
    try:
        next(walk)
    except StopIteration as end:
        decision: Decision = end.value
        return decision
    raise AssertionError("no team asks a model here")

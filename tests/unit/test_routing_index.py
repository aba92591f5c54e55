"""The index follows changes as if it had been rebuilt, in copies too, and depends on no order, seed or process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from msgspec.structs import replace

from switchboard.core.routing.backtest import Case, compare
from switchboard.core.routing.decide import decide
from switchboard.core.routing.explain import Survey
from switchboard.core.routing.index import RoutingIndex
from switchboard.domain.routing import Decision, FilterValue, Rule, RuleChange, SystemId, Target, TeamId
from tests import routing
from tests.routing import NEW_YEAR, ROOT, team_of
from tests.worlds import GONE, World, a_rule, digest, world

HOME = Path(__file__).parents[2]
CHILD = TeamId("child")
BUTLER = Target(system_id=SystemId("System1/root"))
TEAMS = (
    team_of("System1/root"),
    team_of("System1/child", team_id=CHILD),
)
MESSAGE = {"channel": "cli", "sender": "a", "thread": "t"}


def rule(
    number: int, channel: str = "cli", *, team_id: TeamId = ROOT, priority: int = 0, **filters: FilterValue
) -> Rule:
    """To the butler of its team."""
    to = f"System1/{team_id}"
    return routing.rule(to, team=team_id, channel=channel, priority=priority, number=number, **filters)


def add(*rules: Rule) -> list[RuleChange]:
    return [RuleChange(None, rule) for rule in rules]


def remove(*rules: Rule) -> list[RuleChange]:
    return [RuleChange(rule, None) for rule in rules]


def winner(index: RoutingIndex, facts: dict[str, str] = MESSAGE) -> int | None:
    """The number of the rule that fires in the root."""
    rule_id = decide(index, facts).trail[0].rule_id
    return None if rule_id is None else rule_id.int


# Several values


def test_a_rule_of_several_values_is_one_rule_under_several_keys() -> None:
    either = rule(1, sender=("a", "b"), thread=("t", "u"))
    index = RoutingIndex(1, TEAMS, [either, rule(2, sender="b")])
    assert index.loaded == 2
    met = [{"channel": "cli", "sender": sender, "thread": thread} for sender in "ab" for thread in "tu"]
    assert {winner(index, facts) for facts in met} == {1}
    assert winner(index, {"channel": "cli", "sender": "b", "thread": "v"}) == 2
    with pytest.raises(ValueError, match="not in version 1"):
        index.apply(2, remove(rule(1, sender=("a", "b", "c"), thread="t")))
    index.apply(2, [RuleChange(either, rule(1, sender=("a", "c")))])
    assert [winner(index, {"channel": "cli", "sender": sender}) for sender in "abc"] == [1, 2, 1]
    index.apply(3, [RuleChange(rule(1, sender=("a", "c")), rule(1, sender="a"))])
    assert [winner(index, {"channel": "cli", "sender": sender}) for sender in "abc"] == [1, 2, None]
    index.apply(4, [RuleChange(rule(1, sender="a"), rule(1, sender=("a", "c")))])
    index.apply(5, remove(rule(1, sender=("a", "c"))))
    assert (index.loaded, winner(index, {"channel": "cli", "sender": "c"})) == (1, None)


def test_facts_with_many_values_cost_no_more_than_the_rules() -> None:
    """There are 10**12 combinations: nobody could try each."""
    names = ["email_parent_domain", "email_tag", "email_to"]
    facts = {"channel": "email", **{name: "\n".join(f"{name}{n}" for n in range(10_000)) for name in names}}
    last, unmet = ({name: f"{name}{n}" for name in names} for n in (9_999, 10_000))
    rules = [replace(rule(n, "email"), filters=filters) for n, filters in enumerate((unmet, last, last, {}), 1)]
    index = RoutingIndex(1, TEAMS, [*rules, replace(rules[1], rule_id=UUID(int=5), copy=True)])
    assert winner(index, facts) == 2
    assert [one.rule_id.int for one in decide(index, facts).trail[1:] if one.rule_id] == [5]
    index.apply(2, remove(rules[1]))
    assert winner(index, facts) == 3


MAIL = {"channel": "email", "sender": "s", "email_to": "me@x\nann@x\nben@x"}


def test_a_filter_may_name_any_of_the_values_of_a_fact() -> None:
    rules = [
        rule(1, "email", email_to="nobody@x"),
        rule(2, "*", email_to="ben@x"),
        rule(3, "email", email_to="ann@x"),
        rule(4, "email", email_to="ben@x", sender="other"),
        rule(5, "email", priority=-1, email_to="me@x", sender="s"),
    ]
    index = RoutingIndex(1, TEAMS, rules)
    assert winner(index, MAIL) == 3
    assert winner(index, MAIL | {"email_to": "me@x"}) == 5
    assert winner(index, MAIL | {"email_to": "me@x\nann@x\nben@x\nnobody@x"}) == 1
    assert winner(index, {"channel": "email", "sender": "s"}) is None
    index.apply(2, remove(rules[2]))
    assert winner(index, MAIL) == 2
    survey = Survey(MAIL)
    survey.add(rules)
    assert [one.rule.rule_id.int for one in survey.considered if one.fired] == [3]
    assert [one.rule.rule_id.int for one in survey.beaten] == [2, 5]
    then, now = RoutingIndex(1, TEAMS, ()), RoutingIndex(2, TEAMS, [rules[2]])
    assert len(compare(then, now, [Case(UUID(int=9), MAIL)], add(rules[2]))) == 1


# A long life of random changes


@dataclass
class Life:
    """A world whose rules change at random; what is in force is kept beside the index that is told of each change."""

    random: Random
    world: World
    rules: dict[UUID, Rule]

    @classmethod
    def of(cls, seed: int) -> Life:
        random = Random(seed)
        one = world(random, messages=12)
        return cls(random, one, {rule.rule_id: rule for rule in one.rules})

    def changes(self, teams: Sequence[TeamId] = ()) -> list[RuleChange]:
        """One to four; the same rule may change twice among them. Only of these teams, if any are given."""
        made = (self._change(teams) for _ in range(self.random.randint(1, 4)))
        return [change for change in made if change is not None]

    def _change(self, teams: Sequence[TeamId]) -> RuleChange | None:
        old = [rule for rule in self.rules.values() if not teams or rule.team_id in teams]
        before = self.random.choice(old) if old and self.random.random() < 0.75 else None
        rule_id = before.rule_id if before else UUID(int=self.random.randrange(10**6))
        fresh = a_rule(self.random, self.world.teams, rule_id)
        if teams or before:
            fresh = replace(fresh, team_id=before.team_id if before else self.random.choice(teams))
        after = self._after(before, fresh)
        if before is None and rule_id in self.rules:
            return None
        self.rules.pop(rule_id, None)
        if after is not None:
            self.rules[rule_id] = after
        return RuleChange(before, after)

    def _after(self, before: Rule | None, fresh: Rule) -> Rule | None:
        if before is None:
            return fresh
        fresh = replace(fresh, created_at=before.created_at)
        return self.random.choice(
            (
                None,
                fresh,
                replace(before, active=not before.active),
                replace(before, priority=fresh.priority),
            )
        )

    def decisions(self, index: RoutingIndex) -> list[Decision]:
        """Of all messages, from every team that can be reached."""
        starts = [team.team_id for team in self.world.teams if index.reaches(team.team_id)]
        return [decide(index, facts, start=start) for facts in self.world.messages for start in starts]

    def built_anew(self, version: int, rules: Iterable[Rule]) -> RoutingIndex:
        shuffled = list(rules)
        self.random.shuffle(shuffled)
        return RoutingIndex(version, self.world.teams, shuffled)


def same(life: Life, index: RoutingIndex, rules: Iterable[Rule]) -> bool:
    """Whether the index is as one made of these rules."""
    fresh = life.built_anew(index.version, rules)
    counts = (index.loaded, index.ignored) == (fresh.loaded, fresh.ignored)
    return counts and life.decisions(index) == life.decisions(fresh)


@pytest.mark.parametrize("seed", range(60))
def test_an_index_that_followed_changes_is_as_one_built_anew(seed: int) -> None:
    life = Life.of(seed)
    index = life.built_anew(0, life.rules.values())
    for version in range(1, 60):
        index.apply(version, life.changes())
        assert index.version == version
        assert same(life, index, life.rules.values())
    index.apply(60, remove(*life.rules.values()))
    assert (index.loaded, index.ignored) == (0, 0)
    assert same(life, index, ())


@pytest.mark.parametrize("seed", range(60))
def test_a_copy_and_its_original_change_apart(seed: int) -> None:
    life = Life.of(seed)
    original, teams = life.built_anew(0, life.rules.values()), [team.team_id for team in life.world.teams]
    for _ in range(6):
        before = list(life.rules.values())
        own = life.random.sample(teams, life.random.randint(1, len(teams)))
        twin = original.copy(own)
        assert life.decisions(twin) == life.decisions(original)
        for version in range(1, 6):
            twin.apply(version, life.changes(own))
            assert same(life, twin, life.rules.values())
        assert same(life, original, before), "a copy does not touch its original"
        proposed, life.rules = list(life.rules.values()), {rule.rule_id: rule for rule in before}
        original.apply(original.version, life.changes(own))
        assert same(life, original, life.rules.values())
        assert same(life, twin, proposed), "nor the other way round"


def test_a_copy_of_no_team_changes_nothing_and_follows_its_original() -> None:
    original = RoutingIndex(1, TEAMS, [rule(1, sender="a")])
    view = original.copy(())
    with pytest.raises(ValueError, match="the rules of team root are shared"):
        view.apply(2, add(rule(2)))
    original.apply(2, [*add(rule(3, priority=1)), RuleChange(rule(1, sender="a"), replace(rule(1), name="new"))])
    assert winner(view) == winner(original) == 3
    assert (view.version, original.version) == (1, 2)


def test_a_copy_refuses_rules_of_teams_it_shares_whatever_else_is_changed() -> None:
    original = RoutingIndex(1, TEAMS, [rule(1)])
    twin = original.copy([CHILD, TeamId("no such team")]).copy([CHILD])
    with pytest.raises(ValueError, match="root are shared"):
        twin.apply(2, [*add(rule(2, team_id=CHILD)), *remove(rule(1))])
    assert (winner(twin), twin.loaded, twin.version) == (1, 1, 1)
    twin.apply(2, add(rule(2, team_id=CHILD), rule(3, team_id=GONE)))
    assert (twin.loaded, twin.ignored, original.loaded, original.ignored) == (2, 1, 1, 0)


@pytest.mark.parametrize("seed", range(20))
def test_an_index_loaded_piece_by_piece_is_as_one_built_at_once(seed: int) -> None:
    life = Life.of(seed)
    index = RoutingIndex(1, life.world.teams, ())
    for piece in (life.world.rules[start::3] for start in range(3)):
        index.load(iter(piece))
    assert same(life, index, life.world.rules)


# One change


def test_when_the_winner_goes_the_next_best_of_the_same_values_takes_over() -> None:
    rules = [rule(number, sender="a", priority=number % 3) for number in range(9)]
    index = RoutingIndex(1, TEAMS, rules)
    order: list[int | None] = []
    for _ in rules:
        first = winner(index)
        order.append(first)
        index.apply(index.version + 1, remove(*(one for one in rules if one.rule_id.int == first)))
    assert order == [2, 5, 8, 1, 4, 7, 0, 3, 6]
    assert (winner(index), index.loaded) == (None, 0)


def test_a_shape_that_got_a_better_rule_is_looked_at_first() -> None:
    index = RoutingIndex(1, TEAMS, [rule(1, sender="a", priority=5), rule(2, thread="x"), rule(3, "*", thread="x")])
    index.apply(2, add(rule(4, thread="t", priority=9)))
    assert winner(index) == 4
    index.apply(3, add(rule(5, "*", thread="t", priority=10)))
    assert winner(index) == 5
    assert winner(index, {"channel": "email", "thread": "t"}) == 5
    index.apply(4, remove(rule(5, "*", thread="t", priority=10), rule(4, thread="t", priority=9)))
    assert winner(index) == 1


def test_a_channel_whose_last_rule_went_is_left_to_the_star() -> None:
    index = RoutingIndex(1, TEAMS, [rule(1), rule(2, "*", sender="a")])
    assert (winner(index), winner(index, {"channel": "cli"})) == (2, 1)
    index.apply(2, [*remove(rule(1)), *add(rule(3, "*", thread="t", priority=1))])
    assert (winner(index), winner(index, {"channel": "cli"})) == (3, None)


def test_of_many_rules_that_fire_few_are_kept_unpacked() -> None:
    rules = [rule(n, chat=str(n)) for n in range(200)]
    index = RoutingIndex(1, TEAMS, rules)
    for _ in range(2):
        assert [winner(index, {"channel": "cli", "chat": str(n)}) for n in range(200)] == list(range(200))
    assert all(len(node.fired) <= 64 for node in index._nodes.values())


def test_rules_are_disabled_enabled_and_renamed() -> None:
    one, other = rule(1, priority=1), rule(2)
    off = replace(one, active=False)
    index = RoutingIndex(1, TEAMS, [one, other])
    index.apply(2, [RuleChange(one, off)])
    assert (winner(index), index.loaded) == (2, 1)
    index.apply(3, [RuleChange(off, replace(off, name="still off"))])
    assert (winner(index), index.loaded) == (2, 1)
    index.apply(4, [RuleChange(off, replace(one, name="new", targets=(Target(team_id=CHILD),)))])
    decision = decide(index, MESSAGE)
    assert (decision.trail[0].rule_name, decision.trail[1].team_id) == ("new", CHILD)
    assert (index.loaded, decision.version) == (2, 4)


def test_catch_alls_come_and_go_in_their_order() -> None:
    low, high = rule(1, "*"), rule(2, "*", priority=1)
    index = RoutingIndex(1, TEAMS, [low])
    index.apply(2, add(high))
    assert winner(index) == 2
    index.apply(3, remove(high))
    assert winner(index) == 1
    index.apply(4, remove(low))
    assert winner(index) is None


def test_a_rule_of_a_team_out_of_reach_is_only_counted() -> None:
    far = rule(1, team_id=GONE)
    index = RoutingIndex(1, TEAMS, [])
    index.apply(2, add(far))
    assert (index.loaded, index.ignored) == (0, 1)
    index.apply(3, [RuleChange(far, replace(far, active=False))])
    assert (index.loaded, index.ignored) == (0, 0)
    with pytest.raises(ValueError, match="more skipped rules are removed than version 3 has"):
        index.apply(4, remove(far))


def test_no_change_is_a_new_version_all_the_same() -> None:
    index = RoutingIndex(1, TEAMS, [rule(1)])
    index.apply(9, ())
    assert decide(index, MESSAGE).version == 9


HERE = rule(1, sender="a", priority=1)
BEHIND = rule(2, sender="a")
DEFAULT = rule(3, "*")
WRONG = {
    "removed, but never here": (remove(rule(9)), "not in version 1"),
    "another priority than it has": (remove(replace(HERE, priority=2)), "not in version 1"),
    "another channel than it has": (remove(replace(HERE, channel="email")), "not in version 1"),
    "other values than it has": (remove(replace(HERE, filters={"sender": "b"})), "not in version 1"),
    "other filters than it has": (remove(replace(HERE, filters={"thread": "a"})), "not in version 1"),
    "another age than it has": (
        remove(replace(BEHIND, created_at=NEW_YEAR + timedelta(1))),
        "not in version 1",
    ),
    "another id behind the winner": (remove(replace(BEHIND, rule_id=UUID(int=7))), "not in version 1"),
    "a catch-all that is not here": (remove(rule(9, "*")), "not in version 1"),
    "removed twice": (remove(BEHIND, BEHIND), "not in version 1"),
    "added, but here": (add(HERE), "already in version 1"),
    "added behind the winner, but here": (add(BEHIND), "already in version 1"),
    "a catch-all that is here": (add(DEFAULT), "already in version 1"),
    "added twice": (add(rule(9), rule(9)), "already in version 1"),
    "kept and changed again": ([RuleChange(HERE, BEHIND)], "already in version 1"),
}


@pytest.mark.parametrize(("changes", "why"), WRONG.values(), ids=WRONG.keys())
def test_a_change_that_does_not_fit_leaves_everything_as_it_was(changes: list[RuleChange], why: str) -> None:
    index = RoutingIndex(1, TEAMS, [HERE, BEHIND, DEFAULT])
    good = [*add(rule(50, priority=5)), *remove(DEFAULT, HERE), *add(DEFAULT, HERE)]
    for attempt in (changes, [*good, *changes]):
        with pytest.raises(ValueError, match=why):
            index.apply(2, attempt)
        assert (index.version, index.loaded, index.ignored) == (1, 3, 0)
        found: list[int | None] = []
        twin = index.copy([ROOT])
        for one in (HERE, BEHIND, DEFAULT):
            found.append(winner(twin))
            twin.apply(1, remove(one))
        assert (found, winner(twin)) == ([1, 2, 3], None)
    index.apply(2, good)
    assert (winner(index), index.loaded) == (50, 4)


def test_one_rule_may_change_several_times_at_once() -> None:
    moved, back = replace(HERE, filters={"thread": "t"}), replace(HERE, name="back")
    index = RoutingIndex(1, TEAMS, [HERE])
    index.apply(4, [RuleChange(HERE, moved), RuleChange(moved, None), RuleChange(None, back)])
    assert (decide(index, MESSAGE).trail[0].rule_name, index.loaded) == ("back", 1)


def test_the_work_of_a_change_does_not_grow_with_the_number_of_rules() -> None:
    def steps(count: int) -> int:
        rules = [replace(rule(n), filters={("sender", "thread")[n % 2]: f"v{n}"}) for n in range(count)]
        index = RoutingIndex(1, TEAMS, rules)
        changes = [
            RuleChange(rules[5], replace(rules[5], priority=3)),
            *add(rule(count, sender="x")),
            *remove(rules[7]),
        ]
        calls: list[str] = []
        gc.disable()  # what other tests left behind must not be finalized, and counted, here
        sys.setprofile(lambda _frame, event, _argument: calls.append(event))
        try:
            index.apply(2, changes)
        finally:
            sys.setprofile(None)
            gc.enable()
        return len(calls)

    assert steps(10) == steps(5_000) > 10


# Order, seeds, processes


def test_decisions_depend_on_no_order_hash_seed_or_process() -> None:
    here = digest(300, shuffle=0)
    program = "import sys; from tests.worlds import digest; print(digest(300, shuffle=int(sys.argv[1])))"
    for seed in ("0", "1", "4242"):
        told = subprocess.run(
            [sys.executable, "-c", program, seed],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=HOME,
            check=True,
            capture_output=True,
            text=True,
        )
        assert told.stdout.strip() == here
    assert digest(299, shuffle=0) != here


def test_key_sets_are_what_a_decision_may_have_to_look_up() -> None:
    rules = [*(rule(n, "email", sender="x") for n in (1, 2)), rule(3, "*", sender="x", thread="x"), rule(4, "*")]
    index = RoutingIndex(1, [team_of()], rules)
    assert index.key_sets(ROOT) == {("email", frozenset({"sender"})), ("*", frozenset({"sender", "thread"}))}
    index.apply(2, [RuleChange(rules[2], None)])
    assert index.key_sets(ROOT) == {("email", frozenset({"sender"}))}
    assert index.key_sets(TeamId("nowhere")) == frozenset()

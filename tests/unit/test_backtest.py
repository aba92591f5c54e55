"""What a change of rules would change: `compare` against deciding every message twice."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.core.routing.backtest import (
    BacktestTally,
    Blast,
    Case,
    DeadEnd,
    Difference,
    Receivers,
    compare,
    receivers,
)
from switchboard.core.routing.decide import decide
from switchboard.core.routing.index import RoutingIndex
from switchboard.core.routing.rulefile import difference
from switchboard.domain.routing import (
    Chosen,
    Decision,
    Rule,
    SystemId,
    TeamId,
    Unrouted,
)
from tests.routing import NEW_YEAR, ROOT, rule, team_of, to

BELOW = TeamId("below")
A, B, C, FOUR = (SystemId(name) for name in ("System1/a", "System1/b", "System1/c", "System4/root"))
TEAMS = (team_of(A, B, FOUR), team_of(C, team_id=BELOW))
TARGETS = tuple(map(to, (A, B, FOUR, "System1/gone", BELOW)))


def case(number: int, channel: str = "telegram", pinned: SystemId | None = None) -> Case:
    return Case(UUID(int=number), {"channel": channel, "sender": str(number)}, pinned)


def index(*rules: Rule) -> RoutingIndex:
    return RoutingIndex(1, TEAMS, rules)


TO_A, TO_B = rule(A, number=1, channel="telegram"), rule(B, number=2, channel="telegram", priority=1)


def test_what_goes_elsewhere_is_named_with_before_and_after() -> None:
    assert compare(index(TO_A), index(TO_A, TO_B), [case(7), case(8, "email")]) == [
        Difference(UUID(int=7), Receivers((A,)), Receivers((B,)))
    ]


def test_another_rule_with_the_same_receivers_is_no_difference() -> None:
    both, turned = rule(A, B, number=1, channel="telegram"), rule(B, A, number=2, channel="telegram", priority=9)
    assert compare(index(both), index(both, turned), [case(1)]) == []
    lost, other = (rule(f"System1/{name}", number=3, channel="telegram") for name in ("missing", "x"))
    assert compare(index(lost), index(other), [case(1)]) == [], "dead for the same reason"


def test_a_pinned_message_goes_where_it_went() -> None:
    assert compare(index(TO_A), index(TO_A, TO_B), [case(1, pinned=C), case(2, pinned=SystemId("gone"))]) == [
        Difference(UUID(int=2), Receivers((A,)), Receivers((B,)))
    ]


def test_receivers_have_no_order_and_nobody_twice() -> None:
    ends = DeadEnd(ROOT, "no_route"), DeadEnd(BELOW, "no_route")
    assert Receivers.of([B, A, B], [*ends, *ends]) == Receivers.of([A, B], reversed(ends))
    assert Receivers.of([A]) != Receivers.of([A], [DeadEnd(ROOT, "no_route")])
    decision = Decision(
        1,
        (Chosen(B, ROOT), Chosen(A, ROOT)),
        (
            Unrouted(ROOT, "target_unavailable", "one is away", FOUR),
            Unrouted(ROOT, "target_unavailable", "so is another", FOUR),
        ),
        (),
    )
    assert receivers(decision) == Receivers((A, B), (DeadEnd(ROOT, "target_unavailable"),))


def test_all_are_counted_and_the_first_few_shown() -> None:
    tally = BacktestTally(index(TO_A), index(TO_A, TO_B))
    assert tally.blast() == Blast(0, 0, (), complete=True)
    tally.add([case(1, "email"), case(2)])
    tally.add([])
    tally.add([case(number) for number in range(3, 7)])
    tally.add([case(number) for number in range(7, 19)])
    blast = tally.blast(complete=False)
    assert (blast.looked_at, blast.changed, blast.complete) == (18, 17, False)
    assert [one.request_id.int for one in blast.examples] == [*range(2, 12)]


RULES = st.builds(
    Rule,
    rule_id=st.builds(lambda number: UUID(int=number), st.integers(0, 99)),
    team_id=st.sampled_from((ROOT, BELOW)),
    name=st.just("any"),
    channel=st.sampled_from(("telegram", "email", "*")),
    filters=st.dictionaries(st.sampled_from(("sender", "thread")), st.sampled_from("ab"), max_size=2),
    targets=st.lists(st.sampled_from(TARGETS), min_size=1, max_size=3).map(tuple),
    created_at=st.integers(0, 1).map(lambda days: NEW_YEAR + timedelta(days=days)),
    priority=st.integers(0, 1),
    active=st.sampled_from((True, True, False)),
)
SETS = st.lists(RULES, max_size=6, unique_by=lambda one: one.rule_id)
CASES = st.lists(
    st.builds(
        Case,
        st.builds(lambda number: UUID(int=number), st.integers(0, 99)),
        st.fixed_dictionaries(
            {"channel": st.sampled_from(("telegram", "email", "cli"))},
            optional={"sender": st.sampled_from("ab"), "thread": st.sampled_from("ab")},
        ),
        st.none() | st.sampled_from((A, C, FOUR)),
    ),
    max_size=6,
)


def names_and_ends(decision: Decision) -> tuple[set[str], set[tuple[str, str]]]:
    """Who gets it, said without `Receivers`."""
    return (
        {one.system_id for one in decision.chosen},
        {(one.team_id, one.category) for one in decision.unrouted},
    )


@settings(max_examples=300)
@given(before=SETS, after=SETS, cases=CASES, cut=st.integers(0, 6))
def test_compare_equals_deciding_twice(before: list[Rule], after: list[Rule], cases: list[Case], cut: int) -> None:
    homes = {one.rule_id: one.team_id for one in before}
    after = [replace(one, team_id=homes.get(one.rule_id, one.team_id)) for one in after]
    then, now = index(*before), index(*after)
    expected = [
        one.request_id
        for one in cases
        if names_and_ends(decide(then, one.facts, one.pinned)) != names_and_ends(decide(now, one.facts, one.pinned))
    ]
    differences = compare(then, now, cases)
    assert [one.request_id for one in differences] == expected
    assert all(one.before != one.after for one in differences)
    assert compare(then, now, cases, difference(before, after)) == differences, "nothing that may differ is left out"
    tally = BacktestTally(then, now, difference(before, after))
    tally.add(cases[:cut])
    tally.add(cases[cut:])
    assert tally.blast() == Blast(len(cases), len(expected), tuple(differences), complete=True)

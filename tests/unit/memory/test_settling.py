"""Which facts hold: a table of stories, and any beside a naive reading of the rules, in any order of arrival."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import combinations, permutations
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.core.memory.predicates import SaidBy, find_predicate
from switchboard.core.memory.settling import (
    FactStanding,
    FactTopic,
    SettledFacts,
    StatedFact,
    exclude_each_other,
    same_value,
    settle_facts,
    takes_place_of,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
INSTANTS = [START + timedelta(hours=12 * n) for n in range(-100, 100)]
"""Half a day apart, and far beyond all times of these stories."""


def day(number: int) -> datetime:
    return START + timedelta(days=number)


def said(
    number: int,
    value: str,
    on: int,
    *,
    predicate: str = "lives_at",
    author: str = "ann",
    by: SaidBy = "subject",
    denied: bool = False,
    period: tuple[int | None, int | None] = (None, None),
) -> StatedFact:
    begin, end = (None if one is None else day(one) for one in period)
    topic = FactTopic("ann", predicate, "shared")
    return StatedFact(UUID(int=number), topic, value, author, day(on), by, denied, begin, end)


def outcome(facts: Iterable[StatedFact]) -> tuple[dict[int, int], dict[int, int], set[tuple[int, int]]]:
    """What is superseded by what, what confirms what, and what contradicts what, by number."""
    settled = settle_facts(facts)
    superseded = {one.int: of.superseded_by.int for one, of in settled.standings.items() if of.superseded_by}
    confirming = {one.int: of.confirms.int for one, of in settled.standings.items() if of.confirms}
    return superseded, confirming, {(one.int, other.int) for one, other in settled.contradictions}


BEN: SaidBy = "other"
STORIES = {
    "she moves": ([said(1, "Berlin", 1), said(2, "Munich", 2)], {1: 2}, {}, set()),
    "she moves twice": ([said(1, "Berlin", 1), said(2, "Munich", 2), said(3, "Rome", 3)], {1: 2, 2: 3}, {}, set()),
    "she moves and moves back": (
        [said(1, "Berlin", 1), said(2, "Munich", 2), said(3, "Berlin", 3)],
        {1: 2, 2: 3},
        {},
        set(),
    ),
    "she says it twice": ([said(1, "Berlin", 1), said(2, " BERLIN. ", 5)], {}, {2: 1}, set()),
    "two say the same": ([said(1, "Berlin", 1), said(2, "Berlin", 2, author="ben", by=BEN)], {}, {}, set()),
    "somebody else says otherwise": (
        [said(1, "Berlin", 1), said(2, "Munich", 2, author="ben", by=BEN)],
        {},
        {},
        {(1, 2)},
    ),
    "she corrects somebody else": (
        [said(1, "Munich", 1, author="ben", by=BEN), said(2, "Berlin", 2)],
        {1: 2},
        {},
        set(),
    ),
    "an owner corrects her": (
        [said(1, "Munich", 1), said(2, "Berlin", 2, author="eve", by="owner")],
        {1: 2},
        {},
        set(),
    ),
    "a guardian may not": (
        [said(1, "Munich", 1), said(2, "Berlin", 2, author="eve", by="guardian")],
        {},
        {},
        {(1, 2)},
    ),
    "both in one message": ([said(1, "Berlin", 1), said(2, "Munich", 1)], {}, {}, {(1, 2)}),
    "what he still says is his": (
        [said(1, "Rome", 1, author="ben", by=BEN), said(2, "Rome", 2), said(3, "Oslo", 3, author="ben", by=BEN)],
        {1: 3},
        {},
        {(2, 3)},
    ),
    "she tells of earlier times": ([said(1, "Berlin", 5), said(2, "Paris", 6, period=(None, 2))], {}, {}, set()),
    "she is away for some days": ([said(1, "Berlin", 1), said(2, "Rome", 2, period=(3, 5))], {}, {}, {(1, 2)}),
    "one period after another": (
        [said(1, "Paris", 9, period=(1, 3)), said(2, "Rome", 10, period=(3, 5))],
        {},
        {},
        set(),
    ),
    "she corrects a period": (
        [said(1, "Paris", 8, period=(1, 3)), said(2, "Rome", 9, period=(1, 3))],
        {1: 2},
        {},
        set(),
    ),
    "since a day before it was said": (
        [said(1, "Berlin", 3), said(2, "Munich", 5, period=(2, None))],
        {1: 2},
        {},
        set(),
    ),
    "many things are liked": (
        [said(1, "tea", 1, predicate="likes"), said(2, "coffee", 2, predicate="likes")],
        {},
        {},
        set(),
    ),
    "liked and not liked": (
        [said(1, "olives", 1, predicate="likes"), said(2, "Olives", 2, predicate="likes", denied=True)],
        {},
        {},
        {(1, 2)},
    ),
    "two places where she does not live": (
        [said(1, "Berlin", 1, denied=True), said(2, "Rome", 2, denied=True), said(3, "Oslo", 3)],
        {},
        {},
        set(),
    ),
    "what is unknown has many values": (
        [said(1, "red", 1, predicate="colour"), said(2, "blue", 2, predicate="colour")],
        {},
        {},
        set(),
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_story_ends_the_same_in_any_order_of_arrival(story: str) -> None:
    facts, *expected = STORIES[story]
    for order in permutations(facts):
        assert list(outcome(order)) == expected


def test_other_spaces_subjects_and_predicates_are_other_topics() -> None:
    first = said(1, "Berlin", 1)
    for number, topic in enumerate(
        [
            FactTopic("ann", "lives_at", "private:ann"),
            FactTopic("ben", "lives_at", "shared"),
            FactTopic("ann", "employer", "shared"),
        ]
    ):
        other = replace(said(number + 2, "Rome", 2), topic=topic)
        assert outcome([first, other]) == ({}, {}, set())
        assert not takes_place_of(other, first)
        assert not exclude_each_other(other, first)


def test_what_has_many_values_is_never_superseded() -> None:
    tea, coffee = said(1, "tea", 1, predicate="likes"), said(2, "coffee", 2, predicate="likes")
    assert not takes_place_of(coffee, tea)
    assert not exclude_each_other(coffee, tea)


# Any stories ----------------------------------------------------------------------------------------------------------

DAYS = st.integers(0, 4)
FACTS = st.lists(
    st.builds(
        said,
        number=st.integers(0, 30),
        value=st.sampled_from(["Rome", "rome ", "Oslo", "Bern"]),
        on=DAYS,
        predicate=st.sampled_from(["lives_at", "lives_at", "likes"]),
        author=st.sampled_from(["ann", "ben"]),
        by=st.sampled_from(["subject", "other", "owner", "guardian"]),
        denied=st.sampled_from([False, False, True]),
        period=st.tuples(st.none() | DAYS, st.none() | DAYS) | st.just((None, None)),
    ),
    max_size=7,
    unique_by=lambda one: one.fact_id,
)


def claimed(fact: StatedFact) -> list[datetime]:
    """The instants of which it was said."""
    dated = fact.valid_from is not None or (fact.valid_to is not None and fact.valid_to <= fact.said_at)
    return [one for one in possible(fact) if dated or one >= fact.said_at]


def possible(fact: StatedFact) -> list[datetime]:
    """The instants at which it may have been so: from the first of its period to before the last."""
    begin, end = fact.valid_from or INSTANTS[0], fact.valid_to or INSTANTS[-1] + timedelta(1)
    return [one for one in INSTANTS if begin <= one < end]


def takes_place(newer: StatedFact, older: StatedFact) -> bool:
    """It begins while the other one holds, and holds for all that is left of it."""
    claim, left = claimed(newer), possible(older)
    return bool(claim) and claim[0] in left and {one for one in left if one >= claim[0]} <= set(claim)


def compete(one: StatedFact, other: StatedFact) -> bool:
    """Whether only one of them can be so at a time."""
    single = find_predicate(one.topic.predicate).single and one.topic == other.topic
    return single and not one.denied and not other.denied and same_value(one.value) != same_value(other.value)


def deny(one: StatedFact, other: StatedFact) -> bool:
    same = one.topic == other.topic and same_value(one.value) == same_value(other.value)
    return same and one.denied != other.denied


def alike(one: StatedFact) -> StatedFact:
    """What all that confirm a statement have in common with it."""
    return replace(one, fact_id=UUID(int=0), value=same_value(one.value), said_at=START, said_by="other")


def entitled(newer: StatedFact, older: StatedFact) -> bool:
    return newer.said_at > older.said_at and (newer.author == older.author or newer.said_by in {"subject", "owner"})


def naive(facts: list[StatedFact]) -> SettledFacts:
    """Each sentence of the rules, over all pairs."""
    first_said = sorted(facts, key=lambda one: (one.said_at, one.fact_id))

    def superseder(of: StatedFact) -> StatedFact | None:
        found = (one for one in first_said if compete(one, of) and entitled(one, of) and takes_place(one, of))
        return next(found, None)

    def head(of: StatedFact) -> StatedFact:
        return next(one for one in first_said if alike(one) == alike(of) and superseder(one) == superseder(of))

    def standing(of: StatedFact) -> FactStanding:
        by = superseder(of)
        confirms = None if head(of) == of else head(of).fact_id
        return FactStanding(confirms, None if by is None else head(by).fact_id)

    active = sorted(one.fact_id for one in facts if head(one) == one and superseder(one) is None)
    by_id = {one.fact_id: one for one in facts}
    rivals = ((by_id[one], by_id[other]) for one, other in combinations(active, 2))
    pairs = {
        (one.fact_id, other.fact_id)
        for one, other in rivals
        if (compete(one, other) or deny(one, other)) and set(claimed(one)) & set(claimed(other))
    }
    return SettledFacts({one.fact_id: standing(one) for one in facts}, frozenset(pairs))


@given(FACTS)
def test_standings_are_those_of_a_naive_reading_of_the_rules(facts: list[StatedFact]) -> None:
    assert settle_facts(facts) == naive(facts)


class Shelf:
    """Statements that arrive one by one, as a store keeps them: with each, only its topic is settled anew."""

    def __init__(self) -> None:
        self.facts: dict[UUID, StatedFact] = {}
        self.standings: dict[UUID, FactStanding] = {}
        self.contradictions: set[tuple[UUID, UUID]] = set()

    def put(self, fact: StatedFact) -> None:
        self.facts[fact.fact_id] = fact
        self.settle(fact.topic)

    def take(self, fact: StatedFact) -> None:
        del self.facts[fact.fact_id], self.standings[fact.fact_id]
        self.contradictions = {pair for pair in self.contradictions if fact.fact_id not in pair}
        self.settle(fact.topic)

    def settle(self, topic: FactTopic) -> None:
        of_topic = [one for one in self.facts.values() if one.topic == topic]
        settled, ids = settle_facts(of_topic), {one.fact_id for one in of_topic}
        self.standings.update(settled.standings)
        self.contradictions = {pair for pair in self.contradictions if not ids & set(pair)} | settled.contradictions

    @property
    def settled(self) -> SettledFacts:
        return SettledFacts(self.standings, frozenset(self.contradictions))


@given(FACTS.flatmap(lambda facts: st.tuples(st.just(facts), st.permutations(facts))), st.data())
def test_any_order_of_arrival_gives_the_same_facts(
    orders: tuple[list[StatedFact], list[StatedFact]], data: st.DataObject
) -> None:
    facts, arriving = orders
    shelf = Shelf()
    for fact in (*arriving, *arriving[:2]):  # some arrive twice
        shelf.put(fact)
    assert shelf.settled == settle_facts(facts)
    if facts:
        undone = data.draw(st.sampled_from(facts))
        shelf.take(undone)
        assert shelf.settled == settle_facts(one for one in facts if one != undone)

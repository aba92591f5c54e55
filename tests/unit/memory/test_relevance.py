"""The order of candidates: relevance first, then a little of importance and of how lately it was said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.core.memory.relevance import RankedFact, RecallCandidate, rank_candidates

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SHARES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
TIMES = st.sampled_from([NOW + timedelta(days=days) for days in (-400, -90, -1, 0, 3)])
CANDIDATES = st.lists(
    st.builds(
        RecallCandidate,
        fact_id=st.integers(0, 50).map(lambda number: UUID(int=number)),
        cosine=st.none() | st.sampled_from([-0.1, 0.2, 0.5, 0.9]),
        words=SHARES,
        said_at=TIMES,
        importance=SHARES,
        valid_from=st.none() | TIMES,
    ),
    max_size=8,
    unique_by=lambda one: one.fact_id,
)


def candidate(number: int, cosine: float | None = None, words: float = 0.0, *, days: float = 0) -> RecallCandidate:
    return RecallCandidate(UUID(int=number), cosine, words, NOW - timedelta(days=days))


def ids(ranked: list[RankedFact]) -> list[int]:
    return [one.candidate.fact_id.int for one in ranked]


def naive_score(one: RecallCandidate, all_of_them: list[RecallCandidate]) -> float:
    """The formula of decisions 0203 and 0205, word by word."""
    cosines = sorted(other.cosine for other in all_of_them if other.cosine is not None)
    relevance = one.words
    if cosines:
        scaled = 0.0
        if one.cosine is not None:
            scaled = 1.0 if cosines[0] == cosines[-1] else (one.cosine - cosines[0]) / (cosines[-1] - cosines[0])
        relevance = 0.3 * scaled + 0.7 * one.words
    age = max(0, (NOW - one.said_at) / timedelta(days=1))
    return relevance * (1 + 0.1 * (one.importance - 0.5) + 0.05 * 2 ** (-age / 90))


@given(CANDIDATES)
def test_the_order_is_that_of_the_formula_whatever_comes_first(given_: list[RecallCandidate]) -> None:
    ranked = rank_candidates(given_, NOW)
    assert sorted(ids(ranked)) == sorted(one.fact_id.int for one in given_)
    assert [one.score for one in ranked] == pytest.approx([naive_score(one.candidate, given_) for one in ranked])
    assert all(first.score >= second.score for first, second in pairwise(ranked))
    assert rank_candidates(reversed(given_), NOW) == ranked


@given(CANDIDATES)
def test_importance_and_recency_move_a_fact_by_a_tenth_at_most(given_: list[RecallCandidate]) -> None:
    assert all(0.95 * one.relevance <= one.score <= 1.1 * one.relevance for one in rank_candidates(given_, NOW))


def test_words_decide_among_facts_that_are_equally_near() -> None:
    assert ids(rank_candidates([candidate(1, 0.5, 0.2), candidate(2, 0.5, 0.9)], NOW)) == [2, 1]


def test_without_vectors_words_alone_decide() -> None:
    ranked = rank_candidates([candidate(1, words=0.3), candidate(2, words=1.0)], NOW)
    assert [one.relevance for one in ranked] == [1.0, 0.3]


def test_a_fact_without_a_vector_is_found_by_its_words() -> None:
    assert ids(rank_candidates([candidate(1, 0.1), candidate(2, None, 0.2), candidate(3, 0.9)], NOW)) == [3, 2, 1]


def test_after_90_days_half_of_the_recency_is_left() -> None:
    now, then = (rank_candidates([candidate(1, words=1.0, days=days)], NOW)[0].score for days in (0, 90))
    assert [now, then] == pytest.approx([1.05, 1.025])


def test_equal_facts_are_ordered_by_validity_then_by_id() -> None:
    plain, other = candidate(2, words=1.0), candidate(1, words=1.0)
    later = replace(candidate(3, words=1.0), valid_from=NOW)
    earlier = replace(candidate(4, words=1.0), valid_from=NOW - timedelta(days=1))
    assert ids(rank_candidates([plain, earlier, other, later], NOW)) == [3, 4, 1, 2]

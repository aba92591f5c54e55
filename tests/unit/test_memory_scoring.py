"""What a search over the questions of memory is worth: the figures of a few rankings whose answers are plain."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_set.scoring import (
    SoughtMessages,
    compare_pairs,
    score_context,
    score_ranking,
    separate_scores,
)

ONE, BOTH = SoughtMessages(frozenset("ab")), SoughtMessages(frozenset("ab"), needed=2)
UPDATED = SoughtMessages(frozenset("a"), stale=frozenset("s"))
VALUES = st.lists(st.tuples(st.sampled_from((0.0, 1.0)), st.sampled_from((0.0, 1.0))), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("ranking", "sought", "recall", "share", "rank", "stale"),
    [
        ("axy", ONE, 1, 0.5, 1, None),
        ("xab", ONE, 1, 0.5, 2, None),
        ("xab", BOTH, 0, 0.5, 2, None),
        ("bax", BOTH, 1, 1, 1, None),
        ("xya", ONE, 0, 0, 3, None),
        ("xyz", ONE, 0, 0, float("inf"), None),
        ("as", UPDATED, 1, 1, 1, 0),
        ("sa", UPDATED, 1, 1, 2, 1),
        ("xys", UPDATED, 0, 0, float("inf"), 1),
        ("xyz", UPDATED, 0, 0, float("inf"), 0),
    ],
)
def test_two_messages_of_a_ranking_are_shown_and_scored(
    ranking: str, sought: SoughtMessages, recall: float, share: float, rank: float, stale: float | None
) -> None:
    score = score_ranking([*ranking], sought, 2, ["x" * 10, "x" * 30])
    assert (score.recall, score.share, score.stale, score.tokens) == (recall, share, stale, 10)
    assert score.reciprocal_rank == 1 / rank


def test_a_context_has_no_order() -> None:
    score = score_context([*"sxa"], UPDATED, ["four"] * 3)
    assert (score.recall, score.reciprocal_rank, score.stale, score.tokens) == (1, None, None, 3)


@given(VALUES)
def test_pairs_are_compared_pair_by_pair(pairs: Sequence[tuple[float, float]]) -> None:
    ours, theirs = [one for one, _ in pairs], [one for _, one in pairs]
    found = compare_pairs(ours, theirs)
    assert -1 <= found.low <= found.mean <= found.high <= 1
    constant = compare_pairs([one + 0.5 for one in ours], ours)
    assert (constant.low, constant.mean, constant.high) == (0.5, 0.5, 0.5)


def test_an_interval_is_as_wide_as_theory_says() -> None:
    """Half of 400 differences are 1: the standard error is 0.025."""
    found = compare_pairs([0.0, 1.0] * 200, [0.0] * 400)
    assert found.mean == 0.5
    assert found.low == pytest.approx(0.5 - 1.96 * 0.025, abs=0.005)
    assert found.high == pytest.approx(0.5 + 1.96 * 0.025, abs=0.005)


@pytest.mark.parametrize(
    ("answerable", "others", "area"),
    [([2, 3], [0, 1], 1), ([0, 1], [2, 3], 0), ([1, 1], [1], 0.5), ([0, 2], [1], 0.5)],
)
def test_scores_separate_as_often_as_they_are_higher(
    answerable: Sequence[float], others: Sequence[float], area: float
) -> None:
    assert separate_scores(answerable, others) == area

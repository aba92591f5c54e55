"""Backoff, shares and rates: pure arithmetic that everything waiting depends on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from switchboard.core.policy.rates import RateLimiter
from switchboard.core.policy.retry import backoff
from switchboard.core.policy.shares import NO_CREDIT, WEIGHTS, shares
from switchboard.core.policy.tiers import LATE, LIVE_FOR, tier_of
from switchboard.core.policy.tiers import TIERS as ASKED
from switchboard.domain.envelope import PolicyTier
from tests.lab import envelope

TIERS = range(len(WEIGHTS))
ALL = sum(WEIGHTS)


def test_the_wait_doubles_from_the_base_up_to_the_cap() -> None:
    waits = [backoff(n, base=1.0, cap=10.0, jitter=0.0) for n in range(1, 7)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


@given(
    attempt=st.integers(1, 10_000),
    base=st.floats(0.001, 100),
    cap=st.floats(0.001, 10_000),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_every_wait_lies_in_the_upper_half_of_what_its_attempt_allows(
    attempt: int, base: float, cap: float, jitter: float
) -> None:
    full = min(cap, base * 2.0 ** min(attempt - 1, 30))
    assert full / 2 <= backoff(attempt, base=base, cap=cap, jitter=jitter) <= full <= cap


@given(st.floats(0, 1, exclude_max=True))
def test_the_wait_never_shrinks_from_one_attempt_to_the_next(jitter: float) -> None:
    waits = [backoff(n, jitter=jitter) for n in range(1, 40)]
    assert all(before <= after for before, after in pairwise(waits))


def test_without_tuning_nobody_waits_longer_than_five_minutes() -> None:
    assert max(backoff(n, jitter=0.999) for n in range(1, 100)) <= 300


def _deal(portions: list[int]) -> list[tuple[int, ...]]:
    credit, dealt = NO_CREDIT, []
    for places in portions:
        given_out, credit = shares(credit, places)
        assert sum(given_out) == places
        dealt.append(given_out)
    return dealt


@given(st.lists(st.integers(0, 40), max_size=30))
def test_over_any_round_of_places_each_tier_gets_its_weight(portions: list[int]) -> None:
    # However the places were portioned out before: what comes next, one by one, is a window that begins anywhere.
    credit = NO_CREDIT
    for places in portions:
        _, credit = shares(credit, places)
    window = [0] * len(WEIGHTS)
    for _ in range(ALL):
        one, credit = shares(credit, 1)
        window = [w + o for w, o in zip(window, one, strict=True)]
    assert tuple(window) == WEIGHTS


@given(st.lists(st.integers(0, 7), min_size=1, max_size=60))
def test_how_places_are_portioned_out_changes_nothing(portions: list[int]) -> None:
    parts = _deal(portions)
    [whole] = _deal([sum(portions)])
    assert tuple(sum(part[tier] for part in parts) for tier in TIERS) == whole


@given(st.integers(1, 400))
def test_no_tier_ever_starves(places: int) -> None:
    [dealt] = _deal([places])
    for tier in TIERS:
        assert abs(dealt[tier] - places * WEIGHTS[tier] / ALL) < 1 + WEIGHTS[0] / ALL * len(WEIGHTS)
        assert dealt[tier] >= places // ALL * WEIGHTS[tier]


def test_the_highest_tier_comes_first() -> None:
    assert _deal([1]) == [(1, 0, 0, 0, 0)]


# Rates ------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 50), st.lists(st.floats(0, 30), max_size=200))
@example(1, [0.0, 30.0, 0.0])
def test_nobody_exceeds_twice_their_rate_in_a_minute_and_waiting_helps(per_minute: int, pauses: list[float]) -> None:
    rates, done, now = RateLimiter(per_minute), list[float](), 0.0
    for pause in pauses:
        now += pause
        wait = rates.take("anna", now)
        if wait:
            assert 0 < wait <= 60 + 1e-9  # seconds as floats
            now += wait
            assert rates.take("anna", now) == 0
        done.append(now)
        assert sum(now - 60 < one for one in done) <= 2 * per_minute
        assert rates.take(f"somebody else {len(done)}", now) == 0


def test_all_of_a_minute_may_come_at_once_and_then_one_at_a_time() -> None:
    rates = RateLimiter(60)
    assert [rates.take("anna", 0.0) for _ in range(61)] == [0.0] * 60 + [1.0]
    assert rates.take("anna", 1.0) == 0.0
    assert rates.take("anna", 1.0) == 1.0
    assert [RateLimiter(0).take("anna", 0.0) for _ in range(100)] == [0.0] * 100


NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("age", "is_late"),
    [
        (None, False),
        (timedelta(hours=-1), False),
        (LIVE_FOR, False),
        (LIVE_FOR + timedelta(microseconds=1), True),
        (timedelta(days=300), True),
    ],
)
@pytest.mark.parametrize("asked", ASKED)
def test_what_was_sent_long_before_it_came_is_late_unless_it_is_urgent(
    asked: PolicyTier, age: timedelta | None, is_late: bool
) -> None:
    sent: dict[str, Any] = {} if age is None else {"sent_at": (NOW - age).isoformat()}
    tier = tier_of(envelope(tier=asked, of_event=sent), NOW)
    assert tier == (LATE if is_late and asked != "high_priority" else ASKED[asked])

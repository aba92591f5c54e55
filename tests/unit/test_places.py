"""Places of a worker: every pool has its own, every tier its share, and none is given out twice."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.policy.shares import WEIGHTS
from switchboard.lanes.places import Places, Quota, used_up

TIERS = range(len(WEIGHTS))
backlogs = st.dictionaries(st.sampled_from(["work", "route", "other"]), st.tuples(*[st.integers(0, 40)] * len(WEIGHTS)))
sizes = st.dictionaries(st.sampled_from(["work", "route"]), st.integers(0, 30), min_size=1)


@given(sizes, st.lists(backlogs, min_size=1, max_size=6))
def test_a_worker_takes_what_there_is_and_no_more_than_it_has_places_for(
    size: dict[str, int], rounds: list[dict[str, tuple[int, ...]]]
) -> None:
    places = Places(size)
    for backlog in rounds:
        waiting = Counter({(pool, tier): n for pool, tiers in backlog.items() for tier, n in enumerate(tiers)})
        quota = places.deal()
        assert {pool: sum(tiers) for pool, tiers in quota.items()} == {pool: n for pool, n in size.items() if n}
        taken = _claim(quota, waiting)
        assert used_up(quota, taken) == any(n and sum(backlog.get(pool, ())) >= n for pool, n in size.items())
        for pool, _ in taken:
            places.take(pool)
        assert sum(map(sum, places.deal().values())) == sum(size.values()) - len(taken)
        for pool, _ in taken:
            places.give_back(pool)


def _claim(quota: Quota, waiting: Counter[tuple[str, int]]) -> list[tuple[str, int]]:
    """What the database gives; see `claim_in_turn`."""
    return [
        one
        for pool, tiers in quota.items()
        for one in [(pool, t) for t in TIERS for _ in range(waiting[pool, t])][: sum(tiers)]
    ]


@given(st.integers(1, 60))
def test_while_all_tiers_have_work_each_gets_its_weight(size: int) -> None:
    places, dealt = Places({"work": size}), Counter[int]()
    for _ in range(sum(WEIGHTS)):
        for tier, n in enumerate(places.deal()["work"]):
            dealt[tier] += n
    assert [dealt[tier] for tier in TIERS] == [size * weight for weight in WEIGHTS]

"""The routing benchmark measures what it says."""

from __future__ import annotations

import pytest

from switchboard.app.bench import route
from switchboard.core.routing.decide import decide
from switchboard.core.routing.index import RoutingIndex
from switchboard.domain.routing import TeamId


def test_rows_of_one_size_in_a_process_of_its_own() -> None:
    rows = route.measure([10], rounds=50)
    assert [row.case for row in rows] == ["hit", "miss", "three levels", "linear scan"]
    assert {row.rules for row in rows} == {10}
    for row in rows:
        assert 0 < row.p50_us <= row.p99_us
        assert row.rounds == 50
        assert row.per_second > 0
        assert row.load_s > 0


def test_its_messages_hit_miss_and_go_three_levels_down() -> None:
    size = 120
    index = RoutingIndex(1, route.TEAMS, route.rules(size))
    assert (index.loaded, index.ignored) == (size, 0)
    teams = {
        "hit": {len(decide(index, route.message(person)).trail) for person in range(size // 10, size - size // 5)},
        "three levels": {len(decide(index, route.message(person)).trail) for person in range(size // 10)},
    }
    assert teams == {"hit": {1}, "three levels": {3}}
    missed = decide(index, route.message(size))
    assert [one.category for one in missed.unrouted] == ["no_route"]


def test_the_baseline_finds_what_the_index_finds() -> None:
    scan, index = route.linear_scan(60), RoutingIndex(1, route.TEAMS, route.rules(60))
    for person in range(70):
        facts = route.message(person)
        assert (scan(facts) is None) == (index.rule(TeamId("root"), facts) is None)


def test_too_few_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="ten rules"):
        route.measure([9])

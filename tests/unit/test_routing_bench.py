"""The routing benchmark measures what it says."""

from __future__ import annotations

import sys

import pytest

from switchboard.bench import route
from switchboard.bench.peers import PEERS, PeerName, loader
from switchboard.core.routing.decide import decide
from switchboard.core.routing.index import RoutingIndex, rank
from switchboard.domain.routing import TeamId

CASES = [
    *("hit", "miss", "three levels", "linear scan"),
    *("rule-engine", "zen-engine"),
    *("create a rule", "update a rule", "disable a rule"),
]


def test_rows_of_one_size_in_processes_of_their_own() -> None:
    rows = route.measure([10], rounds=50)
    assert [row.case for row in rows] == CASES
    assert {row.rules for row in rows} == {10}
    for row in rows:
        if row.case not in PEERS:
            assert not row.note
        if row.note:
            assert row == route.Row(10, row.case, note="not installed: needs the extra `bench`")
        else:
            assert row.rounds == 50
            assert 0 < (row.p50_us or 0) <= (row.p99_us or 0)
            assert (row.per_second or 0) > 0
            assert (row.load_s or 0) > 0


@pytest.mark.parametrize("name", PEERS)
def test_an_engine_that_is_not_there_or_not_worth_the_wait_says_so(
    name: PeerName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, PEERS[name].module, None)
    assert [row.note for row in route.measure_peer(10, 5, name)] == ["not installed: needs the extra `bench`"]
    [row] = route.measure_peer(PEERS[name].most + 1, 5, name)
    assert (row.rounds, row.p50_us) == (0, None)
    assert row.note.startswith("not measured: ")


@pytest.mark.parametrize("name", PEERS)
def test_an_engine_finds_what_the_index_finds(name: PeerName) -> None:
    pytest.importorskip(PEERS[name].module, reason="it comes with the extra `bench`")
    index = RoutingIndex(1, route.TEAMS, route.rules(60))
    root = sorted((rule for rule in route.rules(60) if rule.team_id == TeamId("root")), key=rank)
    first = loader(name)(root)
    for person in range(70):
        fired = index.rule(TeamId("root"), route.message(person))
        assert first(route.message(person)) == (fired[1] if fired else None)


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

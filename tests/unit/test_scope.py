"""Whose rules a System3 may edit, and whose dead letters a System4 may handle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.core.routing.scope import editable, handled_by, subtree
from switchboard.domain.routing import SystemId, TeamId
from tests.routing import empty_team, member, team_of

TEAMS = (
    team_of("System3/root", "System4/root"),
    team_of(*(f"System{number}/house" for number in (2, 3, 4, 5)), "System1/butler", team_id="house"),
    team_of(member("System3/kitchen", active=False), team_id="kitchen", parent="house"),
    team_of(member("System4/cellar", active=False), team_id="cellar", parent="kitchen"),
    # Only its name says that it is a System3.
    team_of(replace(member("System3/garden"), number=1), team_id="garden"),
    team_of("System4/shed", team_id="shed", parent="garden"),
)
MEMBERS = {one.system_id: one for team in TEAMS for one in team.members}
ALL = {"root", "house", "kitchen", "cellar", "garden", "shed"}


@pytest.mark.parametrize(
    ("team_id", "expected"),
    [
        ("root", ALL),
        ("house", {"house", "kitchen", "cellar"}),
        ("cellar", {"cellar"}),
        ("nowhere", set()),
    ],
)
def test_a_team_and_all_below_it(team_id: str, expected: set[str]) -> None:
    assert subtree(TEAMS, TeamId(team_id)) == expected


def test_a_cycle_does_not_hold_us() -> None:
    assert subtree((empty_team("a", "b"), empty_team("b", "a"), empty_team("c", "c")), TeamId("a")) == {"a", "b"}


@pytest.mark.parametrize(
    ("system_id", "expected"),
    [
        ("System3/root", ALL),
        ("System3/house", {"house", "kitchen", "cellar"}),
        ("System3/kitchen", set()),
        ("System3/garden", set()),
        ("System3/gone", set()),
        ("System1/butler", set()),
        ("System2/house", set()),
        ("System4/house", set()),
        ("System5/house", set()),
        (None, set()),
    ],
)
def test_who_may_edit_which_rules(system_id: str | None, expected: set[str]) -> None:
    caller = None if system_id is None else SystemId(system_id)
    assert editable(TEAMS, MEMBERS, caller) == expected


@pytest.mark.parametrize(
    ("system_id", "expected"),
    [
        # Of the dead letters of a team without a (live) System4 the next one above is told.
        ("System4/root", {"root", "garden"}),
        ("System4/house", {"house", "kitchen", "cellar"}),
        ("System4/shed", {"shed"}),
        ("System4/cellar", set()),
        ("System3/house", {"house", "kitchen", "cellar"}),
        ("System3/kitchen", set()),
        ("System1/butler", set()),
        ("System4/gone", set()),
        (None, set()),
    ],
)
def test_who_may_handle_which_dead_letters(system_id: str | None, expected: set[str]) -> None:
    caller = None if system_id is None else SystemId(system_id)
    assert handled_by(TEAMS, MEMBERS, caller) == expected


NAMES = "abcdef"


@given(parents=st.lists(st.sampled_from(NAMES), min_size=1, max_size=6), start=st.sampled_from(NAMES))
def test_a_team_is_in_the_subtree_iff_its_way_up_meets_the_start(parents: list[str], start: str) -> None:
    known = dict(zip(NAMES, parents, strict=False))
    teams = [empty_team(name, parent) for name, parent in known.items()]

    def way_up(name: str) -> set[str]:
        way: set[str] = set()
        while name in known and name not in way:
            way.add(name)
            name = known[name]
        return way

    assert subtree(teams, TeamId(start)) == {name for name in known if start in way_up(name)}

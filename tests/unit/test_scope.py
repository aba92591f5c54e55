"""Whose rules a System3 may edit, and whose dead letters a System4 may handle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.routing.scope import editable, handled_by, subtree
from switchboard.domain.routing import Member, SystemId, SystemNumber, TeamId
from tests.unit.test_routing_check import team


def member(system_id: str, team_id: str, number: SystemNumber, *, active: bool = True) -> Member:
    return Member(SystemId(system_id), TeamId(team_id), number, "memo", active=active)


TEAMS = (
    team("root", None, member("System3/root", "root", 3), member("System4/root", "root", 4)),
    team(
        "house",
        "root",
        *(member(f"System{number}/house", "house", number) for number in (2, 3, 4, 5)),
        member("System1/butler", "house", 1),
    ),
    team("kitchen", "house", member("System3/kitchen", "kitchen", 3, active=False)),
    team("cellar", "kitchen", member("System4/cellar", "cellar", 4, active=False)),
    # Only its name says that it is a System3.
    team("garden", "root", member("System3/garden", "garden", 1)),
    team("shed", "garden", member("System4/shed", "shed", 4)),
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
    assert subtree((team("a", "b"), team("b", "a"), team("c", "c")), TeamId("a")) == {"a", "b"}


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
    teams = [team(name, parent) for name, parent in known.items()]

    def way_up(name: str) -> set[str]:
        way: set[str] = set()
        while name in known and name not in way:
            way.add(name)
            name = known[name]
        return way

    assert subtree(teams, TeamId(start)) == {name for name in known if start in way_up(name)}

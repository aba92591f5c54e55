"""Which teams a system may touch: whose rules it may read or edit, and whose dead letters it may handle.

Called by `app/rules/service.py` and `app/dead_letters/service.py` before anything is shown or changed. In: the tree and
the caller's system, from its token and never from an argument; out: a set of teams, which may be empty. Next:
`store/rules/versions.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from switchboard.domain.routing import Member, SystemId, SystemNumber, Team, TeamId

Members = Mapping[SystemId, Member]


def subtree(teams: Iterable[Team], team_id: TeamId) -> frozenset[TeamId]:
    """The team and all teams below it, even in a tree with a cycle; empty for an unknown team."""
    children: dict[TeamId | None, list[TeamId]] = {}
    known: set[TeamId] = set()
    for team in teams:
        known.add(team.team_id)
        children.setdefault(team.parent_id, []).append(team.team_id)
    found: set[TeamId] = set()
    waiting = [team_id] if team_id in known else []
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting.extend(children.get(one, ()))
    return frozenset(found)


def editable(teams: Iterable[Team], members: Members, system_id: SystemId | None) -> frozenset[TeamId]:
    """The teams whose rules this system may edit: an active System3's own team and those below; none for all others."""
    team_id = _team_as(3, members, system_id)
    return frozenset() if team_id is None else subtree(teams, team_id)


def readable(teams: Iterable[Team], members: Members, system_id: SystemId) -> frozenset[TeamId]:
    """The teams whose rules this system may read: its own and those below; none unless it is an active member."""
    member = members.get(system_id)
    return subtree(teams, member.team_id) if member is not None and member.active else frozenset()


def handled_by(teams: Iterable[Team], members: Members, system_id: SystemId | None) -> frozenset[TeamId]:
    """The teams whose dead letters this system may see and handle; none unless it is an active System4 or System3.

    For a System3, those whose rules it may edit; for a System4, its own team and those below with no other System4 in
    between, because it is notified of their dead letters too.
    """
    team_id = _team_as(4, members, system_id)
    if team_id is None:
        return editable(teams, members, system_id)
    return subtree((team for team in teams if team.team_id == team_id or not _has_system4(team)), team_id)


def _has_system4(team: Team) -> bool:
    return any(member.number == 4 and member.active for member in team.members)


def _team_as(number: SystemNumber, members: Members, system_id: SystemId | None) -> TeamId | None:
    """The team in which the system has this role; None if it does not. Membership counts, not the name."""
    member = members.get(system_id) if system_id is not None else None
    return member.team_id if member is not None and member.number == number and member.active else None

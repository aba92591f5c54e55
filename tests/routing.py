"""Values of routing: members, teams and rules, with what most tests take for granted as defaults.

Called by the tests of routing, and by `tests/lab.py`, which passes them on to the tests of the engine. Names enter, the
frozen values of `domain/routing.py` leave; no I/O.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any, Final, get_args
from uuid import UUID, uuid4

from msgspec.structs import replace

from switchboard.domain.routing import FilterValue, Member, Rule, SystemId, SystemNumber, Target, Team, TeamId

ROOT: Final = TeamId("root")
NEW_YEAR: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When rules with a number were created."""
_NUMBERS: Final[dict[str, SystemNumber]] = {f"System{number}": number for number in get_args(SystemNumber)}
_counted = itertools.count(1)


def member(system_id: str, engine: str = "echo", team: str = ROOT, *, active: bool = True, **options: Any) -> Member:
    """A member whose number is in its id: `System4/root`."""
    number = _NUMBERS[system_id.partition("/")[0]]
    return Member(SystemId(system_id), TeamId(team), number, engine, options, active=active)


def butler(name: str, engine: str = "echo", team: str = ROOT, **options: Any) -> Member:
    """A System1 of a team."""
    return member(f"System1/{name}", engine, team, **options)


def team_of(
    *members: Member | str, team_id: str = ROOT, parent: str | None = ROOT, purpose: str = "", classify: bool = False
) -> Team:
    """A team of these members, or of members with these ids, which become its own. The root has no parent."""
    own = (member(one) if isinstance(one, str) else one for one in members)
    above = None if parent is None or team_id == ROOT else TeamId(parent)
    its_id = TeamId(team_id)
    return Team(its_id, above, purpose, tuple(replace(one, team_id=its_id) for one in own), classify)


def empty_team(team_id: str, parent: str | None = ROOT) -> Team:
    """A team without members."""
    return team_of(team_id=team_id, parent=parent)


def to(name: str) -> Target:
    """A target by its name: a system has a slash in it, a team has none."""
    return Target(system_id=SystemId(name)) if "/" in name else Target(team_id=TeamId(name))


def rule(
    *targets: Target | str,
    team: str = ROOT,
    channel: str = "*",
    priority: int = 0,
    number: int | None = None,
    **filters: FilterValue,
) -> Rule:
    """A rule as a file would give it: a new one, or, with a number, always the same."""
    return Rule(
        f"rule {next(_counted) if number is None else number}",
        channel,
        filters,
        tuple(to(one) if isinstance(one, str) else one for one in targets),
        priority,
        rule_id=uuid4() if number is None else UUID(int=number),
        team_id=TeamId(team),
        created_at=datetime.now(UTC) if number is None else NEW_YEAR,
    )

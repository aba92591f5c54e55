"""Looks up the named receiver of a message to be passed on: does it exist, and in which team?

Called by `app/dead_letters/reroute.py` and `app/classification/corrections.py`. A target enters; the team that it is,
or is in, leaves, or an InvalidInput that suggests similar names. Next: `core/routing/index.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from switchboard.core.routing.index import RoutingIndex
from switchboard.core.text.words import near, or_list
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import Target, TeamId
from switchboard.journey.rulebook import Rules


def team_of_receiver(rules: Rules, to: Target) -> TeamId:
    """The team that this receiver is, or is in. Raises InvalidInput if no message can reach it."""
    team_id = _team_of(rules.index, to)
    if team_id is None:
        named = to.system_id or f"team {to.team_id}"
        meant = _suggest_receivers(to, rules)
        hint = f"did you mean {or_list(meant)}?" if meant else "name an active System1 or a team"
        raise InvalidInput(f"{named} does not exist or cannot be reached; {hint}", code="unknown_target", field="to")
    return team_id


def _team_of(index: RoutingIndex, to: Target) -> TeamId | None:
    if to.team_id is not None:
        return to.team_id if index.reaches(to.team_id) else None
    chosen = None if to.system_id is None else index.butler(to.system_id)
    return None if chosen is None else chosen.team_id


def _suggest_receivers(to: Target, rules: Rules) -> Sequence[str]:
    """The receivers that a wrong name may mean: `diary` is System1/diary."""
    butlers = [str(one.system_id) for one in rules.members.values() if one.number == 1 and one.active]
    named = to.system_id or to.team_id or ""
    same = [name for name in butlers if name.rpartition("/")[2] == named]
    return same or near(named, [*butlers, *(str(team.team_id) for team in rules.teams)])

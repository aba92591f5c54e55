"""A butler hands its message on, to a butler or a team below its own team, and to nobody else.

`turn.py` tells engines the possible recipients (`below`), and obtains the further decision (`decide_next_receiver`).
In: the rules in force and the name chosen by the butler; out: names, and a `Decision` with its trail. Next:
`core/routing/decide.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace as changed

from switchboard.core.routing.decide import decide
from switchboard.core.routing.scope import subtree
from switchboard.domain.remote_agents import RemoteAgent, self_description
from switchboard.domain.routing import Decision, Member, SystemId, Target, TeamId, TrailStep
from switchboard.journey.rulebook import Rules

MOST: Final = 24
"""As many names as a small model can choose among. The rules of a team know of those below it."""


def below(rules: Rules, remote_agents: Mapping[SystemId, RemoteAgent], team_id: TeamId) -> Mapping[str, str]:
    """The recipients to whom a butler of this team may hand on a message, at most `MOST`, with descriptions.

    First the teams directly below, then the butlers of all teams below. Unavailable butlers are omitted, and so are
    teams without any available butler.
    """
    under = subtree(rules.teams, team_id) - {team_id}

    def there(member: Member) -> bool:
        remote_agent = remote_agents.get(member.system_id)
        return rules.index.butler(member.system_id) is not None and not (remote_agent and remote_agent.away)

    butlers = [one for team in rules.teams if team.team_id in under for one in team.members if there(one)]
    manned = {one.team_id for one in butlers}
    found: dict[str, str] = {
        team.team_id: team.purpose
        for team in rules.teams
        if team.parent_id == team_id and not manned.isdisjoint(subtree(rules.teams, team.team_id))
    }
    for one in butlers[: MOST - len(found)]:
        found[one.system_id] = self_description(one, remote_agents.get(one.system_id))[0]
    return dict(list(found.items())[:MOST])


def decide_next_receiver(rules: Rules, by: Member, to: str, reason: str, facts: Mapping[str, str]) -> Decision | None:
    """Who receives the message next, by the rules of the team if one is named; None if the name is not below."""
    under, index = subtree(rules.teams, by.team_id) - {by.team_id}, rules.index
    detail = f"by {by.system_id}: {reason}" if reason else f"by {by.system_id}"
    if to in under and index.reaches(TeamId(to)):
        step = TrailStep(by.team_id, "handed_on", targets=(Target(team_id=TeamId(to)),), detail=detail)
        found = decide(index, facts, start=TeamId(to))
        return changed(found, trail=(step, *found.trail))
    chosen = index.butler(SystemId(to))
    if chosen is None or chosen.team_id not in under:
        return None
    step = TrailStep(by.team_id, "handed_on", targets=(Target(system_id=chosen.system_id),), detail=detail)
    return Decision(index.version, (chosen,), (), (step,), facts)

"""The candidates of a model: the live butlers and the sub-teams of a team, with their present descriptions.

`classify.py` describes the candidates of its rule book; `submit.py`, in a program that keeps none, reads `Live`.
Next: `ask.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.policy.liveness import LivenessPolicy
from switchboard.core.routing.index import RoutingIndex
from switchboard.core.routing.scope import subtree
from switchboard.domain.classification import Candidate
from switchboard.domain.remote_agents import RemoteAgent, self_description
from switchboard.domain.routing import SystemId, Target, Team, TeamId
from switchboard.store.database import Database
from switchboard.store.rules import teams as store
from switchboard.store.rules.remote_agents import list_remote_agents

Remotes = Mapping[SystemId, RemoteAgent]


def candidate_of(target: Target, teams: Sequence[Team], remote_agents: Remotes) -> Candidate:
    """How a model sees a target."""
    if target.team_id is not None:
        team = next(team for team in teams if team.team_id == target.team_id)
        return Candidate(team.team_id, team.purpose)
    member = next(one for team in teams for one in team.members if one.system_id == target.system_id)
    return Candidate(member.system_id, *self_description(member, remote_agents.get(member.system_id)))


class Live(Struct, frozen=True):
    """The candidates of one version. At `start`, the model decides, whatever the rules say; below it, the rules do."""

    start: TeamId
    teams: Sequence[Team]
    remote_agents: Remotes
    index: RoutingIndex

    def targets(self, team_id: TeamId) -> tuple[Target, ...]:
        """The candidates as targets."""
        return self.index.candidates(team_id)

    def candidates(self, team_id: TeamId) -> tuple[Candidate, ...]:
        """The candidates as a model sees them, in the same order."""
        return tuple(candidate_of(target, self.teams, self.remote_agents) for target in self.targets(team_id))

    def below(self, team_id: TeamId) -> frozenset[TeamId]:
        """A team and all below it."""
        return subtree(self.teams, team_id)


async def read_live(database: Database, start: TeamId | None, through: Sequence[TeamId] = ()) -> Live:
    """The present candidates of `start` (the root if no such team exists), and the rules from `through` down.

    `database` reads in snapshots ("repeatable read").
    """
    known = await store.load_with_rules_of(database, ())
    below = frozenset[TeamId]().union(*(subtree(known.teams, team_id) for team_id in through))
    rule_set = await store.load_with_rules_of(database, below) if below else known
    remote_agents = {one.system_id: one for one in await list_remote_agents(database, LivenessPolicy())}
    parents = {team.team_id: team.parent_id for team in rule_set.teams}
    first = start if start in parents else next(team_id for team_id, parent in parents.items() if parent is None)
    teams = tuple(replace(team, classify=team.classify or team.team_id == first) for team in rule_set.teams)
    index = RoutingIndex(rule_set.version, teams, rule_set.rules, classifying=True)
    index.avoid([one.system_id for one in remote_agents.values() if one.away])
    return Live(first, teams, remote_agents, index)

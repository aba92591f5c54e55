"""Teams, members, rules and their versions.

`journey/rulebook.py` loads the whole rule set; `app/seed.py` fills it from files. Next: `store/tokens.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from switchboard.domain.routing import Member, Rule, RuleSet, SystemId, Target, Team, TeamId
from switchboard.store.database import Database, Row, query


async def rule_set_version(database: Database) -> int:
    """The version in force; 0 before anything was seeded."""
    return int(await database.value(query("teams.version")))


async def load_rule_set(database: Database) -> RuleSet:
    """Teams, members and rules as one consistent version."""
    async with database.connection() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        version = int(await connection.fetchval(query("teams.version")))
        members = [_member(r) for r in await connection.fetch(query("teams.members"))]
        teams = [_team(r, members) for r in await connection.fetch(query("teams.teams"))]
        rules = [_rule(r) for r in await connection.fetch(query("teams.rules"))]
    return RuleSet(version, tuple(teams), tuple(rules))


def _member(row: Row) -> Member:
    return Member(
        system_id=SystemId(row["system_id"]),
        team_id=TeamId(row["team_id"]),
        number=row["number"],
        engine=row["engine"],
        options=row["options"],
        description=row["description"],
        capabilities=tuple(row["capabilities"]),
        active=row["active"],
    )


def _team(row: Row, members: Sequence[Member]) -> Team:
    team_id = TeamId(row["team_id"])
    parent = None if row["parent_id"] is None else TeamId(row["parent_id"])
    return Team(team_id, parent, row["purpose"], tuple(m for m in members if m.team_id == team_id))


def _rule(row: Row) -> Rule:
    return Rule(
        rule_id=row["rule_id"],
        team_id=TeamId(row["team_id"]),
        name=row["name"],
        channel=row["channel"],
        filters=row["filters"],
        targets=tuple(_target(t) for t in row["targets"]),
        created_at=row["created_at"],
        priority=row["priority"],
        active=row["active"],
        created_by=row["created_by"],
        updated_by=row["updated_by"],
    )


def _target(value: dict[str, Any]) -> Target:
    system, team = value.get("system_id"), value.get("team_id")
    return Target(None if system is None else SystemId(system), None if team is None else TeamId(team))


def target_json(target: Target) -> dict[str, str]:
    """A target as files and tables write it: `{"system_id": …}` or `{"team_id": …}`."""
    return {name: value for name, value in asdict(target).items() if value is not None}


async def seed(database: Database, teams: Sequence[Team], rules: Sequence[Rule], *, author: str, reason: str) -> bool:
    """Enter teams that are not known yet with their rules, and bring all members up to what `teams` says.

    A known team keeps the rules it has: a file seeds a team once. Parents must come before children. Returns whether
    anything changed; if so there is a new version.
    """
    async with database.connection() as connection, connection.transaction():
        await connection.execute(query("teams.one_at_a_time"))
        known = {r["team_id"] for r in await connection.fetch(query("teams.teams"))}
        fresh = [t for t in teams if t.team_id not in known]
        for team in fresh:
            await connection.execute(query("teams.add_team"), team.team_id, team.parent_id, team.purpose)
        changed = bool(fresh)
        for member in (m for team in teams for m in team.members):
            tag = await connection.execute(query("teams.put_member"), *_member_values(member))
            changed = changed or tag != "INSERT 0 0"
        new = {t.team_id for t in fresh}
        for rule in (r for r in rules if r.team_id in new):
            await connection.execute(query("teams.add_rule"), *_rule_values(rule))
        if changed:
            await connection.execute(query("teams.new_version"), author, reason)
        return changed


def _member_values(member: Member) -> list[Any]:
    m = member
    return [m.system_id, m.team_id, m.number, m.engine, dict(m.options), m.description, list(m.capabilities), m.active]


def _rule_values(rule: Rule) -> list[Any]:
    return [
        rule.rule_id,
        rule.team_id,
        rule.name,
        rule.channel,
        dict(rule.filters),
        [target_json(t) for t in rule.targets],
        rule.priority,
        rule.active,
        rule.created_by,
        rule.updated_by,
        rule.created_at,
    ]

"""Teams and members, and the whole rule set as one version.

`journey/rulebook.py` reads it all; `app/seed.py` fills it from files. Next: `store/rules.py`, which writes rules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from switchboard.domain.routing import Member, Rule, RuleChange, RuleSet, SystemId, Team, TeamId
from switchboard.store.database import Database, Row, query
from switchboard.store.rules import Authorship, Session, enter, new_version, read_rule

_CHUNK: Final = 2000


@dataclass(frozen=True, slots=True)
class StoredRules:
    """One version: its teams, and its rules in pieces as they come out of the database. To be read once."""

    version: int
    teams: tuple[Team, ...]
    rules: AsyncIterator[list[Rule]]


async def rule_set_version(database: Database) -> int:
    """The version in force; 0 before anything was seeded."""
    return int(await database.value(query("teams.version")))


async def team_ids(database: Database) -> frozenset[TeamId]:
    """The teams there are."""
    return frozenset(TeamId(row["team_id"]) for row in await database.rows(query("teams.teams")))


@asynccontextmanager
async def open_rules(database: Database) -> AsyncIterator[StoredRules]:
    """Teams, members and rules as one consistent version. A million rules never are in memory at once."""
    async with database.connection() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        version = int(await connection.fetchval(query("teams.version")))
        yield StoredRules(version, await _teams(connection), _rules(connection))


async def load_rule_set(database: Database) -> RuleSet:
    """The whole version as one value, for where there is room for it."""
    async with open_rules(database) as stored:
        rules = [rule async for some in stored.rules for rule in some]
        return RuleSet(stored.version, stored.teams, tuple(sorted(rules, key=lambda rule: rule.rule_id)))


async def _teams(connection: Session) -> tuple[Team, ...]:
    members = [_member(row) for row in await connection.fetch(query("teams.members"))]
    return tuple(_team(row, members) for row in await connection.fetch(query("teams.teams")))


async def _rules(connection: Session) -> AsyncIterator[list[Rule]]:
    cursor = await connection.cursor(query("teams.rules"))
    while rows := await cursor.fetch(_CHUNK):
        yield [read_rule(row) for row in rows]


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
        if changed:
            version = int(await connection.fetchval(query("teams.version"))) + 1
            new = {t.team_id for t in fresh}
            await new_version(connection, version, Authorship(author, reason), teams=True)
            await enter(connection, version, [RuleChange(None, rule) for rule in rules if rule.team_id in new])
        return changed


def _member_values(member: Member) -> list[Any]:
    m = member
    return [m.system_id, m.team_id, m.number, m.engine, dict(m.options), m.description, list(m.capabilities), m.active]

"""Teams and members, and the whole rule set as one version.

`journey/rulebook.py` reads it all; `app/rules/seed.py` fills it from files. Next: `store/rules/versions.py`, which
writes rules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.domain.routing import Member, Owner, Rule, RuleChange, RuleSet, SystemId, Team, TeamId
from switchboard.ports.channel import Implies
from switchboard.store.database import Database, Row, decode_json, part_as, query, rows_as
from switchboard.store.rules.versions import Authorship, RuleConnection, enter, in_pieces, new_version, rules_in


class StoredRules(Struct, frozen=True):
    """One version: its teams, and a stream of its rules in pieces, to be read once."""

    version: int
    teams: tuple[Team, ...]
    rules: AsyncIterator[list[Rule]]


async def rule_set_version(database: Database) -> int:
    """The version in force; 0 before the first seeding."""
    return int(await database.value(query("teams.version")))


async def team_ids(database: Database) -> frozenset[TeamId]:
    """The existing teams."""
    return frozenset(TeamId(row["team_id"]) for row in await database.rows(query("teams.teams")))


@asynccontextmanager
async def open_rules(database: Database) -> AsyncIterator[StoredRules]:
    """Teams, members and rules as one consistent version, never with all rules in memory at once."""
    async with database.snapshot() as connection:
        version = int(await connection.fetchval(query("teams.version")))
        yield StoredRules(version, await _teams(connection), in_pieces(connection, "teams.rules"))


class TeamsOnce:
    """The teams as they are when the first of several looks at them, such as the checks of doctor."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._found: tuple[Team, ...] | None = None

    async def read(self) -> tuple[Team, ...]:
        """All, with their members and without their rules."""
        if self._found is None:
            async with open_rules(self._database) as stored:
                self._found = stored.teams
        return self._found


async def load_with_rules_of(database: Database, team_ids: Collection[TeamId]) -> RuleSet:
    """All teams and members, and the rules of some teams, as one consistent version."""
    async with database.snapshot() as connection:
        version = int(await connection.fetchval(query("teams.version")))
        rules = await rules_in(connection, team_ids)
        return RuleSet(version, await _teams(connection), tuple(rules))


class Overview(Struct, frozen=True):
    """The teams of one version; for each its first rules in evaluation order, and their number."""

    version: int
    teams: tuple[Team, ...]
    first: Mapping[TeamId, Sequence[Rule]]
    counts: Mapping[TeamId, int]


class TeamFilter(Struct, frozen=True):
    """Selects one team, or the first `limit` with ids after `after`."""

    team_id: TeamId | None = None
    after: str = ""
    limit: int | None = None


async def overview(database: Database, most: int, implies: Implies, wanted: TeamFilter) -> Overview:
    """The selected teams by id, each with a limited number of rules; disabled rules come last.

    `implies`: further facts that filter keys determine.
    """
    async with database.snapshot() as connection:
        version = int(await connection.fetchval(query("teams.version")))
        teams = _page(await _teams(connection), wanted)
        ids = [team.team_id for team in teams]
        counts = {row["team_id"]: row["rules"] for row in await connection.fetch(query("teams.rule_counts"), ids)}
        first: dict[TeamId, list[Rule]] = {}
        async for some in in_pieces(connection, "teams.first_rules", most, ids, implies):
            for rule in some:
                first.setdefault(rule.team_id, []).append(rule)
    return Overview(version, teams, first, counts)


def _page(teams: Sequence[Team], wanted: TeamFilter) -> tuple[Team, ...]:
    found = [team for team in teams if wanted.team_id in (None, team.team_id) and team.team_id > wanted.after]
    return tuple(sorted(found, key=lambda team: team.team_id)[: wanted.limit])


async def _teams(connection: RuleConnection) -> tuple[Team, ...]:
    owners: dict[str, set[Owner]] = {}
    for row in await connection.fetch(query("teams.owners")):
        owners.setdefault(row["system_id"], set()).add(part_as(Owner, row))
    linked: dict[str, set[Owner]] = {}
    for row in await connection.fetch(query("teams.owning_handles")):
        linked.setdefault(row["system_id"], set()).add(part_as(Owner, row))
    members = [
        replace(
            one,
            owners=frozenset(owners.get(one.system_id, ())),
            linked=frozenset(linked.get(one.system_id, ())),
        )
        for one in [member_of(row) for row in await connection.fetch(query("teams.members"))]
    ]
    return tuple(_team(row, members) for row in await connection.fetch(query("teams.teams")))


def member_of(row: Row) -> Member:
    """A member from its row and its entry in a team file, without those who became owners by a code."""
    capabilities = tuple(row["capabilities"])
    nobody: frozenset[Owner] = frozenset()
    options = decode_json(row["options"])
    values = {**row, "options": options, "capabilities": capabilities, "owners": nobody, "linked": nobody}
    return part_as(Member, values)


def _team(row: Row, members: Sequence[Member]) -> Team:
    team_id = TeamId(row["team_id"])
    parent = None if row["parent_id"] is None else TeamId(row["parent_id"])
    own = tuple(member for member in members if member.team_id == team_id)
    return Team(team_id, parent, row["purpose"], own, row["classify"])


async def seed(
    database: Database,
    teams: Sequence[Team],
    rules: Sequence[Rule],
    *,
    author: str,
    reason: str,
    begun: bool = False,
) -> bool:
    """Register unknown teams with their rules; update all members, and `classify`, to `teams`.

    A known team keeps the rules it has: a file seeds a team once. Parents must come before children. Returns whether
    anything changed; if so there is a new version, or it belongs to the one that this transaction has `begun`.
    """
    async with database.connection() as connection, connection.transaction():
        await connection.execute(query("teams.one_at_a_time"))
        known = {r["team_id"] for r in await connection.fetch(query("teams.teams"))}
        fresh = [t for t in teams if t.team_id not in known]
        for team in fresh:
            values = team.team_id, team.parent_id, team.purpose, team.classify
            await connection.execute(query("teams.add_team"), *values)
        changed = await _bring_up(connection, teams) or bool(fresh)
        if changed:
            version = int(await connection.fetchval(query("teams.version")))
            if not begun:
                version += 1
                await new_version(connection, version, Authorship(author, reason), teams=True)
            new = {t.team_id for t in fresh}
            await enter(connection, version, [RuleChange(None, rule) for rule in rules if rule.team_id in new])
        return changed


class Ownership(Struct, frozen=True):
    """A contact that owns a butler by a code."""

    contact_id: UUID
    system_id: SystemId
    since: datetime


async def make_room(database: Database, placeholder: Team, author: str, by: Authorship) -> list[Ownership] | None:
    """Remove the only team if it is the `placeholder` of a new installation, and nobody has changed its rules.

    In the first version it was entered by `author`. Returns who owned its members by a code; then there is a new
    version, without teams, to which those that take its place are added. None: it was not removed.
    """
    async with database.connection() as connection, connection.transaction():
        await connection.execute(query("teams.one_at_a_time"))
        [*found] = await _teams(connection)
        if [(one.team_id, _who(one)) for one in found] != [(placeholder.team_id, _who(placeholder))]:
            return None
        rules = await rules_in(connection, [placeholder.team_id])
        if [(rule.version, rule.created_by) for rule in rules] != [(1, author)]:
            return None
        version = int(await connection.fetchval(query("teams.version"))) + 1
        await new_version(connection, version, by, teams=True)
        await enter(connection, version, [RuleChange(rule, None) for rule in rules])
        owned = rows_as(Ownership, await connection.fetch(query("teams.ownership"), placeholder.team_id))
        await connection.execute(query("teams.remove_members"), placeholder.team_id)
        await connection.execute(query("teams.remove_team"), placeholder.team_id)
        return owned


async def keep_ownership(database: Database, owned: Sequence[Ownership]) -> list[Ownership]:
    """Enter these owners of members that exist again; returns the others."""
    entered = query("teams.keep_ownership")
    return [one for one in owned if not await database.change_rows(entered, one.contact_id, one.system_id, one.since)]


def _who(team: Team) -> set[tuple[str, str]]:
    return {(member.system_id, member.engine) for member in team.members}


async def _bring_up(connection: RuleConnection, teams: Sequence[Team]) -> bool:
    """Update known teams and their members to `teams`; returns whether anything changed."""
    tags: set[str] = set()
    for team in teams:
        tags.add(await connection.execute(query("teams.put_classify"), team.team_id, team.classify))
        for member in team.members:
            tags.add(await connection.execute(query("teams.put_member"), *_member_values(member)))
    return not tags <= {"UPDATE 0", "INSERT 0 0"}


def _member_values(member: Member) -> list[object]:
    m = member
    return [m.system_id, m.team_id, m.number, m.engine, dict(m.options), m.description, list(m.capabilities), m.active]

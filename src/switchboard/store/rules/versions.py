"""Rules and their history: every write makes a version, and the rules of any version can be reconstructed.

Called by `app/rules/service.py`, which has checked who may write what, by `app/messages/explain.py`, and by
`journey/rulebook.py`, which follows the versions. In: changes as values; out: a new version number, or the rules at
some version. Next: `store/rules/replay.py` for the messages on which rules are tried.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeAlias
from uuid import UUID

import asyncpg
from msgspec import Struct, convert
from msgspec.structs import replace

from switchboard.core.routing.rulefile import rule_from_json, rule_json
from switchboard.domain.errors import Conflict, NotFound
from switchboard.domain.message import RequestId
from switchboard.domain.routing import Rule, RuleChange, RuleSetVersion, TeamId
from switchboard.domain.shown import SopRules
from switchboard.store.database import Database, Row, decode_json, part_as, query, row_as, rows_as, to_json

RuleConnection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[Row]"

_CHUNK: Final = 10_000
"""Changes written by one statement: an import of any size stays below the time that a statement may take."""
_PIECE: Final = 500
"""Rules that are read at once: some milliseconds of work, after which waiting requests get their turn."""
_TOLD_AT_ONCE: Final = 500
"""A follower that is behind by more gets the changes in pieces: applying so many at once would hold up messages."""


class Authorship(Struct, frozen=True):
    """The author of a version, such as `control (System3/root)`, and the reason, both for the history."""

    author: str
    reason: str


class MovedOn(Conflict):
    """The rule set is no longer at the version that the caller has seen."""

    def __init__(self, version: int, seen: int) -> None:
        super().__init__(f"the rules have moved on to version {version}; you saw {seen}, look at them again")


class Many(Struct, frozen=True):
    """Too many changes to return at once, of rules of these teams; read them with `open_changes`."""

    changes: int
    teams: frozenset[TeamId]


class Since(Struct, frozen=True):
    """The changes after a known version, in the order in which they were made.

    `teams_changed`: teams or members may have changed too, so that everything must be reloaded; then `changes` is
    empty, as it is if there are `many`.
    """

    version: int
    teams_changed: bool
    changes: tuple[RuleChange, ...]
    many: Many | None = None


async def write(
    database: Database, changes: Sequence[RuleChange], *, by: Authorship, expected_version: int | None = None
) -> tuple[int, list[RuleChange]]:
    """Make all of these changes, or none, as one new version; returns it, and the changes as written.

    The written rules get the new version; everything else is kept as given. Without changes, the present version stays.
    Raises Conflict if a rule differs from its `before` (versions are compared), or if a new one already exists; MovedOn
    if the rule set is no longer at `expected_version`.
    """
    async with database.connection() as connection, connection.transaction():
        await connection.execute(query("teams.one_at_a_time"))
        version = int(await connection.fetchval(query("teams.version")))
        if expected_version is not None and expected_version != version:
            raise MovedOn(version, expected_version)
        if not changes:
            return version, []
        await _compare(connection, changes)
        await new_version(connection, version + 1, by, teams=False)
        return version + 1, await enter(connection, version + 1, changes)


async def _compare_ids(connection: RuleConnection, fresh: Sequence[Rule]) -> None:
    taken = await connection.fetchrow(query("rules.taken"), [r.rule_id for r in fresh], [r.team_id for r in fresh])
    if taken is not None:
        raise Conflict(f"{taken['rule_id']} is the id of a rule of team {taken['team_id']}; a new one needs its own")


async def _compare(connection: RuleConnection, changes: Sequence[RuleChange]) -> None:
    await _compare_ids(connection, [change.rule for change in changes if change.before is None])
    ids = [change.rule.rule_id for change in changes]
    seen = [None if change.before is None else change.before.version for change in changes]
    row = await connection.fetchrow(query("rules.moved_on"), ids, seen)
    if row is None:
        return
    name = next(change.rule.name for change in changes if change.rule.rule_id == row["rule_id"])
    raise Conflict(_moved_on(row, name))


def _moved_on(row: Row, name: str) -> str:
    """What another author did to the rule meanwhile."""
    by = f"by {row['author']} in version {row['changed']}" if row["author"] is not None else "by nobody"
    if row["seen"] is None:
        return f"there is a rule {row['rule_id']} already, written {by}; a new rule needs a different id"
    if row["stored"] is None:
        return f"rule {name!r} is not there any more: it was removed {by}"
    return f"rule {name!r} was changed {by}; look at it again"


async def new_version(connection: RuleConnection, version: int, by: Authorship, *, teams: bool) -> None:
    """Create a version; `teams` if teams or members may have changed. The caller holds the lock."""
    await connection.execute(query("rules.new_version"), version, by.author, by.reason, teams)


async def enter(connection: RuleConnection, version: int, changes: Sequence[RuleChange]) -> list[RuleChange]:
    """Write rules and history of a version created in this transaction; returns what was written."""
    written: list[RuleChange] = []
    for at in range(0, len(changes), _CHUNK):
        part = [_stamp_version(change, version) for change in changes[at : at + _CHUNK]]
        await connection.execute(query("rules.put"), version, *_columns(part))
        if removed := [change.rule.rule_id for change in part if change.after is None]:
            await connection.execute(query("rules.remove"), removed)
        written += part
    return written


def _stamp_version(change: RuleChange, version: int) -> RuleChange:
    before, after = change.before, change.after
    if after is None:
        return change
    if before is not None and (before.rule_id, before.team_id) != (after.rule_id, after.team_id):
        raise ValueError(f"rule {before.rule_id} cannot become another one, or that of another team")
    return RuleChange(before, replace(after, version=version, updated_at=after.updated_at or after.created_at))


def _columns(changes: Sequence[RuleChange]) -> list[list[object]]:
    return [
        [change.rule.team_id for change in changes],
        [change.rule.rule_id for change in changes],
        [None if change.before is None else to_json(rule_json(change.before)) for change in changes],
        [None if change.after is None else to_json(rule_json(change.after)) for change in changes],
    ]


async def list_rules(
    database: Database,
    team_id: TeamId | None = None,
    *,
    source: str | None = None,
    after: UUID | None = None,
    limit: int | None = None,
) -> tuple[int, list[Rule]]:
    """The version in force and its rules by id: all, or those of a team or source; `after` is the last one seen."""
    name, filters = _query_of_list(team_id, source)
    async with database.snapshot() as connection:
        version = int(await connection.fetchval(query("teams.version")))
        rules = [rule async for some in in_pieces(connection, name, after, limit, *filters) for rule in some]
    return version, rules


async def rules_of(database: Database, team_ids: Iterable[TeamId]) -> tuple[int, list[Rule]]:
    """The version in force and all rules of these teams, team by team, in one snapshot."""
    async with database.snapshot() as connection:
        version = int(await connection.fetchval(query("teams.version")))
        return version, await rules_in(connection, team_ids)


async def rules_in(connection: RuleConnection, team_ids: Iterable[TeamId]) -> list[Rule]:
    """All rules of these teams, team by team."""
    found: list[Rule] = []
    for team_id in sorted(team_ids):
        async for some in in_pieces(connection, "rules.of_team", None, None, team_id):
            found += some
    return found


async def in_pieces(connection: RuleConnection, name: str, *args: object) -> AsyncIterator[list[Rule]]:
    """The rules that a query finds, in pieces, so that requests are not delayed. Needs a transaction."""
    async for rows in _pieces(connection, name, *args):
        yield [read_rule(row) for row in rows]


async def _pieces(connection: RuleConnection, name: str, *args: object) -> AsyncIterator[Sequence[Row]]:
    cursor = await connection.cursor(query(name), *args)
    while rows := await cursor.fetch(_PIECE):
        yield rows


def _query_of_list(team_id: TeamId | None, source: str | None) -> tuple[str, list[str | None]]:
    """The query and its parameters; each filter has its own index."""
    if source is not None:
        return "rules.of_source", [source, team_id]
    return ("rules.all", []) if team_id is None else ("rules.of_team", [team_id])


async def list_sops(database: Database, *, after: str = "", limit: int | None = None) -> list[SopRules]:
    """SOPs that were ever loaded and have rules, by name; `after` is the last one of the previous page."""
    return rows_as(SopRules, await database.rows(query("rules.sops"), after, limit))


async def get_rule(database: Database, rule_id: UUID) -> Rule | None:
    """One rule as it is in force."""
    row = await database.row(query("rules.get"), rule_id)
    return None if row is None else read_rule(row)


async def allow_automatic(database: Database, request_id: RequestId) -> bool:
    """Whether one of the rules that routed this message permits replies to automatic mail."""
    return bool(await database.value(query("rules.allow_automatic"), request_id))


async def history(database: Database, rule_id: UUID) -> list[tuple[RuleSetVersion, RuleChange]]:
    """All changes of a rule, newest first; empty for a rule that never existed."""
    rows = await database.rows(query("rules.history"), rule_id)
    return [(part_as(RuleSetVersion, row), _change(row)) for row in rows]


async def versions(database: Database, before: int | None, limit: int) -> list[RuleSetVersion]:
    """A page of the history, newest first; `before` is the last version of the page before."""
    return rows_as(RuleSetVersion, await database.rows(query("rules.versions"), before, limit))


async def get_version(database: Database, version: int) -> RuleSetVersion | None:
    """One entry of the history."""
    return row_as(RuleSetVersion, await database.row(query("rules.version"), version))


async def changes_of(database: Database, version: int, limit: int | None = None) -> list[RuleChange]:
    """The changes of one version, or its first ones, by team and rule; empty for a version that does not exist."""
    return [_change(row) for row in await database.rows(query("rules.changes_of"), version, limit)]


async def changes_between(database: Database, first: int, last: int) -> list[RuleChange]:
    """The net changes between two versions: one change per rule, from its state at the first to the last.

    A rule created and deleted in between is omitted. `first` may be the later version, which gives the reverse. Raises
    NotFound for a version that does not exist.
    """
    for version in (first, last):
        await _must_be(database, version)
    changes: list[RuleChange] = []
    async with database.snapshot() as connection:
        async for rows in _pieces(connection, "rules.changes_between", min(first, last), max(first, last)):
            changes += map(_change, rows)
    return changes if first <= last else [RuleChange(change.after, change.before) for change in changes]


async def rules_at(database: Database, version: int, team_ids: Sequence[TeamId] | None = None) -> list[Rule]:
    """The rules of a version by id, inactive ones too: all, or those of some teams; NotFound as below."""
    async with open_rules_at(database, version, team_ids) as pieces:
        rules = [rule async for some in pieces for rule in some]
    # They came as two runs in order, so that this is little more than a merge.
    return sorted(rules, key=lambda rule: rule.rule_id.bytes)


@asynccontextmanager
async def open_rules_at(
    database: Database, version: int, team_ids: Sequence[TeamId] | None
) -> AsyncIterator[AsyncIterator[list[Rule]]]:
    """The same as a stream of pieces, to be read once. Raises NotFound for a version that never existed."""
    await _must_be(database, version)
    teams = None if team_ids is None else list(team_ids)
    async with database.snapshot() as connection:
        yield _rules_at(connection, version, teams)


async def _rules_at(connection: RuleConnection, version: int, teams: list[TeamId] | None) -> AsyncIterator[list[Rule]]:
    """Rules not written since are unchanged; for the others, their first later change contains the state."""
    async for some in in_pieces(connection, "rules.unchanged_since", version, teams):
        yield some
    async for rows in _pieces(connection, "rules.changed_since", version, teams):
        yield [rule_from_json(row["before"]) for row in rows if row["before"] is not None]


async def _must_be(database: Database, version: int) -> None:
    if version != 0 and await get_version(database, version) is None:  # before the first one there were no rules
        raise NotFound(f"there is no version {version} of the rules")


async def changes_since(database: Database, version: int) -> Since:
    """What a follower at `version` must do to be up to date; see `Since`."""
    # Versions are committed in sequence, so all earlier ones are visible with each.
    latest = int(await database.value(query("teams.version")))
    if latest == version:
        return Since(latest, False, ())
    if latest < version or await database.value(query("rules.teams_since"), version, latest):
        return Since(latest, True, ())
    rows = await database.rows(query("rules.changes_since"), version, latest, _TOLD_AT_ONCE + 1)
    if len(rows) <= _TOLD_AT_ONCE:
        return Since(latest, False, tuple(_change(row) for row in rows))
    row = await database.row(query("rules.extent_since"), version, latest)
    many = None if row is None else Many(row["changes"], frozenset(map(TeamId, row["teams"])))
    return Since(latest, False, (), many)


@asynccontextmanager
async def open_changes(database: Database, version: int, latest: int) -> AsyncIterator[AsyncIterator[list[RuleChange]]]:
    """The changes after `version` up to `latest`, in order, as a stream of pieces to be read once."""
    async with database.connection() as connection, connection.transaction(readonly=True):
        yield _changes(connection, version, latest)


async def _changes(connection: RuleConnection, version: int, latest: int) -> AsyncIterator[list[RuleChange]]:
    async for rows in _pieces(connection, "rules.changes_since", version, latest, None):
        yield [_change(row) for row in rows]


def read_rule(row: Row) -> Rule:
    """A row of the table `rule`."""
    return convert({**row, "filters": decode_json(row["filters"]), "targets": decode_json(row["targets"])}, Rule)


def _change(row: Row) -> RuleChange:
    before, after = row["before"], row["after"]
    return RuleChange(
        None if before is None else rule_from_json(before), None if after is None else rule_from_json(after)
    )

"""Teams from files: read, parsed, checked, and written to an empty or existing database.

Called at every start: `read_seed` by `app/checked.py` before anything is written, then `seed_teams` by `app/wiring.py`.
In: a directory of `*.json` in the form of `core/routing/teamfile.py`; out: rows in the database, or a
ConfigurationError with file, line or path, and what would be correct. Next: `store/rules/teams.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from switchboard.app.ownership import read_ours, require_ours
from switchboard.app.settings import ENGINES
from switchboard.app.settings_file import FILE_NAME, source_of
from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.routing.check import Teams, check_rule, check_teams
from switchboard.core.routing.draft import Edit, draft_of, gist, new_rule
from switchboard.core.routing.teamfile import DEFAULT_TEAM, TeamFile, parse_team_file
from switchboard.domain.errors import ConfigurationError, InvalidInput
from switchboard.domain.routing import Member, Rule, SystemId, Team, TeamId
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.people import audit
from switchboard.store.rules.teams import Ownership, keep_ownership, make_room, rule_set_version, team_ids
from switchboard.store.rules.teams import seed as enter_teams
from switchboard.store.rules.versions import Authorship, list_rules
from switchboard.transport.plug_ins import plug_ins

log = structlog.get_logger(__name__)

_PATHS: Final = ("cwd", "prompt_file", "workspace")
"""Options of members that are paths."""
_BUILT_IN: Final = "default"
"""The author of the built-in team."""


class SeedFile(Struct, frozen=True):
    """A team file and its path."""

    file: Path
    content: TeamFile


class Seed(Struct, frozen=True):
    """Teams of files and settings, checked, every parent before its children; `origin` says where each is defined."""

    sources: Sequence[SeedFile]
    teams: Sequence[Team]
    rules: Sequence[Rule]
    origin: str

    @property
    def files(self) -> Mapping[SystemId, Path]:
        """Where each member is defined."""
        return {member.system_id: one.file for one in self.sources for member in one.content.team.members}


def read_seed(
    teams_dir: Path | None, channels: Channels = CHANNELS, *, written: Sequence[Mapping[str, object]] = ()
) -> Seed | None:
    """The teams of `teams_dir` and those `written` in the settings; None without any.

    `channels` are those that rules may name. Raises ConfigurationError with every problem found.
    """
    if teams_dir is None and not written:
        return None
    now = datetime.now(UTC)
    sources = [*(read_teams(teams_dir) if teams_dir else ()), *_teams_in_settings(written)]
    rules = [rule for source in sources for rule in _rules_of(source.content, f"file:{source.file.name}", now)]
    _check_teams(sources, rules, channels)
    return Seed(sources, parents_first([source.content.team for source in sources]), rules, str(teams_dir or FILE_NAME))


async def seed_teams(database: Database, seed: Seed | None) -> bool:
    """Write the teams; without any, the default team once. Returns whether there is a new version.

    A known team gets its members from the file and keeps its rules. The default team makes room for the first files;
    who owned its butlers by a code owns those of the same names.
    """
    if seed is not None:
        reason = f"seeded from {seed.origin}"
        async with database.transaction() as one:
            owned = await make_room(one, DEFAULT_TEAM.team, _BUILT_IN, Authorship("file", f"first run: {reason}"))
            made_room = owned is not None
            if made_room:
                log.info("the built-in team made room for the team files", files=seed.origin)
            changed = await enter_teams(one, seed.teams, seed.rules, author="file", reason=reason, begun=made_room)
            await _keep_owners(one, owned or ())
        await _warn_of_other_rules(database, seed.sources)
        return changed
    if await rule_set_version(database) == 0:
        rules = _rules_of(DEFAULT_TEAM, _BUILT_IN, datetime.now(UTC))
        return await enter_teams(database, [DEFAULT_TEAM.team], rules, author=_BUILT_IN, reason="a new installation")
    return False


async def _keep_owners(database: Database, owned: Sequence[Ownership]) -> None:
    """Those whose butler is gone own nothing any more, which should not pass unseen."""
    for one in sorted(await keep_ownership(database, owned), key=lambda one: one.system_id):
        detail = {"contact_id": str(one.contact_id), "owner_of": one.system_id}
        await audit.append(database, _BUILT_IN, "owner_removed", detail)
        log.warning(
            "a person who owned a butler by a code owns it no more, since the team files have no such butler",
            contact=str(one.contact_id),
            butler=one.system_id,
            remedy="switchboard pairing code ACCOUNT --owner BUTLER",
        )


def read_teams(teams_dir: Path) -> list[SeedFile]:
    """The team files of a directory by name. Raises ConfigurationError for the first invalid one."""
    try:
        files = sorted(teams_dir.glob("*.json"))
        if not teams_dir.is_dir():
            raise ConfigurationError(
                f"{_teams_dir(teams_dir)} is not a directory; name a directory with team files (*.json)"
            )
        require_ours(teams_dir)
    except OSError as error:
        raise ConfigurationError(f"{_teams_dir(teams_dir)} cannot be read: {error.strerror}") from error
    if not files:
        raise ConfigurationError(f"{_teams_dir(teams_dir)} contains no team files; each team is one file NAME.json")
    return [SeedFile(file, _read_team_file(file)) for file in files]


def _teams_dir(teams_dir: Path) -> str:
    """The setting, with the place where it stands if that is known."""
    return f"{source_of('teams_dir')}teams_dir: {teams_dir}"


def _read_team_file(file: Path) -> TeamFile:
    try:
        document = json.loads(read_ours(file), object_pairs_hook=_refuse_doubled_keys)
        return _at_home(parse_team_file(document, file.stem), file.absolute().parent)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{file}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    except InvalidInput as error:
        raise ConfigurationError(f"{file}: {error.message}", field=error.field) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from error


async def _warn_of_other_rules(database: Database, sources: Sequence[SeedFile]) -> None:
    """Rules are seeded once. Warn that later edits of a file have no effect."""
    known = await team_ids(database)
    for source in sources:
        team_id = source.content.team.team_id
        if team_id not in known:
            continue
        _, in_force = await list_rules(database, team_id)
        if set(map(gist, source.content.rules)) != {gist(draft_of(rule)) for rule in in_force}:
            log.warning(
                "the rules in the file differ from those in force; a file only seeds the rules of a new team",
                team=team_id,
                file=str(source.file),
                remedy="change the rules in force: `switchboard rules update`, or `rules export`, edit, `rules import`",
            )


def _teams_in_settings(teams: Sequence[Mapping[str, object]]) -> list[SeedFile]:
    """Teams of `switchboard.toml`; programs of their butlers run where Switchboard was started."""
    file = Path(FILE_NAME).absolute()
    try:
        return [SeedFile(file, _at_home(parse_team_file(team), file.parent)) for team in teams]
    except InvalidInput as error:
        raise ConfigurationError(f"{file}: teams: {error.message}", field=error.field) from error


def _at_home(content: TeamFile, directory: Path) -> TeamFile:
    """Paths in a team file are relative to its directory, where programs run by default."""
    members = tuple(replace(one, options=_absolute_options(one.options, directory)) for one in content.team.members)
    return replace(content, team=replace(content.team, members=members))


def _absolute_options(options: Mapping[str, object], directory: Path) -> Mapping[str, object]:
    given = {"cwd": "", **options} if "command" in options else options
    return {**given, **{name: str(directory / str(given[name])) for name in _PATHS if name in given}}


def _refuse_doubled_keys(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """A JSON object with unique keys: of two equal ones, the first would be silently ignored."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"the key {twice!r} occurs twice in one object; remove one", field=twice)
    return found


def _rules_of(content: TeamFile, author: str, now: datetime) -> list[Rule]:
    edit = Edit(author, now, new_uuid7)
    return [new_rule(draft, content.team.team_id, edit) for draft in content.rules]


def _check_teams(sources: Sequence[SeedFile], rules: Sequence[Rule], channels: Channels) -> None:
    """All problems of tree and rules at once: to fix files, the whole list is needed."""
    teams = {source.content.team.team_id: source.content.team for source in sources}
    files = {source.content.team.team_id: source.file for source in sources}
    found = [f"{_file_to_blame(p.field, files)}: {p.message}" for p in check_teams([s.content.team for s in sources])]
    for source in sources:
        own = [rule for rule in rules if rule.team_id == source.content.team.team_id]
        engines = filter(None, map(_no_engine, source.content.team.members))
        found += [f"{source.file}: {told}" for told in (*_rule_problems(own, teams, channels), *engines)]
    if found:
        raise ConfigurationError("\n".join(found))


def _rule_problems(rules: Sequence[Rule], teams: Teams, channels: Channels) -> Iterator[str]:
    for at, rule in enumerate(rules):
        for problem in check_rule(rule, teams, channels):
            if problem.code == "inactive_target":  # a retired butler does not stop the start; lint reports it
                continue
            yield f"routing_rules[{at}].{problem.field} ({rule.name}): {problem.message}"


def _no_engine(member: Member) -> str | None:
    """An engine that is not installed would turn every message of its butler into a dead letter."""
    installed = sorted(plug_ins(ENGINES).names)
    if member.engine in installed:
        return None
    return f"{member.system_id}: there is no engine {member.engine!r}; installed are {', '.join(installed)}"


def _file_to_blame(field: str, files: Mapping[TeamId, Path]) -> str:
    """The file that defines the team in a problem's path (`teams.<team_id>…`), otherwise the directory."""
    named = [team_id for team_id in files if field == f"teams.{team_id}" or field.startswith(f"teams.{team_id}.")]
    return str(files[max(named, key=len)]) if named else str(next(iter(files.values())).parent)


def parents_first(teams: Sequence[Team]) -> list[Team]:
    """The teams of a tree, every parent before its children, otherwise in the same order."""
    placed: dict[TeamId, Team] = {}
    left = list(teams)
    while left:
        ready = [team for team in left if team.parent_id is None or team.parent_id in placed]
        if not ready:
            raise ConfigurationError(f"the parents of {', '.join(team.team_id for team in left)} are not known")
        placed.update({team.team_id: team for team in ready})
        left = [team for team in left if team.team_id not in placed]
    return list(placed.values())

"""Checks of teams: their files, their rules, who hears of dead letters, who owns a butler.

Called by `app/ops/checks.py`. In: settings, the stored teams; out: findings. Next: `core/routing/check.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from switchboard.app.channels import known_channels
from switchboard.app.rules.seed import Seed, read_seed
from switchboard.app.settings import ENGINES, Settings
from switchboard.core.channels.registry import Channels
from switchboard.core.routing.check import Teams, check_rule, check_teams
from switchboard.core.routing.lint import LintCode, lint_handlers
from switchboard.core.text.words import offer
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.routing import Rule, Team
from switchboard.ports.checks import MOST, CheckResult, count_of, error, ok, warning
from switchboard.store.database import Database
from switchboard.store.people import people
from switchboard.store.rules import teams
from switchboard.transport.plug_ins import plug_ins

_UNHEARD: Final[Mapping[LintCode, tuple[str, str]]] = {
    "no_handler": (
        "the team has no member that is told of messages that cannot be delivered",
        "add a member System4/… to the team file",
    ),
    "silent_handler": (
        "nobody is told of messages that cannot be delivered, only a list is kept: switchboard dlq list",
        "to be told, name a chat in `notify` or a webhook in `dead_letters.tell`, see docs/operations.md",
    ),
}


def check_team_files(settings: Settings) -> list[CheckResult]:
    """The team files, read as at a start, which would refuse to continue."""
    seed = seed_of(settings)
    if isinstance(seed, str):
        problems = seed.splitlines()[:MOST]
        return [error("team files", one, "correct it: `switchboard up` does not start") for one in problems]
    return [] if seed is None else [ok("team files", f"{count_of(len(seed.teams), 'team')} in {seed.origin}")]


def seed_of(settings: Settings) -> Seed | str | None:
    """The teams of files and settings, or what is wrong with them."""
    try:
        return read_seed(settings.teams_dir, known_channels(settings), written=settings.teams)
    except ConfigurationError as failure:
        return failure.message


async def check_stored_teams(database: Database, settings: Settings) -> list[CheckResult]:
    channels, rules = known_channels(settings), 0
    async with teams.open_rules(database) as stored:
        by_id = {team.team_id: team for team in stored.teams}
        problems = [f"{p.field}: {p.message}" for p in check_teams(stored.teams)]
        async for some in stored.rules:
            rules += len(some)
            problems += _rule_problems(some, by_id, channels)
    problems += _engines_missing(member.engine for team in stored.teams for member in team.members)
    remedy = "fix the team files (teams_dir) or the rule named"
    if problems:
        return [error("teams", problem, remedy) for problem in problems[:MOST]]
    counted = f"{count_of(len(stored.teams), 'team')}, {count_of(rules, 'rule')}"
    good = ok("teams", f"{counted}; version {stored.version} of the rules")
    owners = [*_named_owners(stored.teams)]
    named = any(owner.startswith("person:") for _, owner in owners)
    persons = (await people.load(database)).persons if named else ()
    return [good, *_find_unheard(stored.teams, settings), *_find_wrong_owners(owners, channels, persons)]


def _find_unheard(found: Iterable[Team], settings: Settings) -> Iterator[CheckResult]:
    """Teams whose dead letters may not reach any person."""
    unheard = list(lint_handlers(found, told=settings.dead_letters.tell is not None or bool(settings.notify)))
    for code, (what, remedy) in _UNHEARD.items():
        if named := [one.team_id for one in unheard if one.code == code]:
            yield warning("notices", f"{', '.join(named[:MOST])}: {what}", remedy)


def _named_owners(found: Iterable[Team]) -> Iterator[tuple[str, str]]:
    """The butlers that have owners, and each of these as in the team file."""
    for member in (member for team in found for member in team.members if member.active):
        named = member.options.get("owners")
        for owner in named if isinstance(named, list) else ():
            yield member.system_id, str(owner)


def _find_wrong_owners(
    owners: Iterable[tuple[str, str]], channels: Channels, persons: Collection[str]
) -> Iterator[CheckResult]:
    """Owners who can never be the sender of a message."""
    for system_id, owner in owners:
        if why := _why_nobody(owner, channels, persons):
            remedy = "correct `owners` in the team file: until then that person gets no tools"
            yield warning("owners", f"{system_id}: {owner!r} is nobody: {why}", remedy)


def _why_nobody(named: str, channels: Channels, persons: Collection[str]) -> str | None:
    channel, _, sender = named.partition(":")
    if not sender:
        return "write a channel and a sender, such as telegram:5488, or a person, such as person:ann"
    if channel == "person":
        return None if sender in persons else f"there is no person {sender!r}{offer(sender, persons)}"
    return None if channel in channels else f"there is no channel {channel!r}{offer(channel, list(channels))}"


def _rule_problems(rules: Iterable[Rule], teams: Teams, channels: Channels) -> Iterator[str]:
    for rule in rules:
        for problem in check_rule(rule, teams, channels):
            yield f"rule {rule.name!r} of {rule.team_id}: {problem.message}"


def _engines_missing(used: Iterator[str]) -> list[str]:
    installed = {entry.name for entry in plug_ins(ENGINES)}
    return [
        f"the engine {name!r} is not installed; there are {', '.join(sorted(installed))}"
        for name in sorted({*used} - installed)
    ]

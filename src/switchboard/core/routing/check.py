"""What is wrong with a rule or with the tree of teams, and how to fix it.

Called wherever a rule is written (`app/rules/proposals.py`, `app/rules/seed.py`), when an installation is examined
(`app/rules/checks.py`), and for made-up facts (`routetests.py`, `app/rules/replays.py`). In: a rule and the teams; out:
a list of problems, empty if all is valid. Nothing is raised: the caller refuses, or shows, all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Final, Literal

from msgspec import Struct

from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.routing.draft import MAX_VALUES, shorten_name
from switchboard.core.routing.facts import values_of
from switchboard.core.text.words import near, or_list
from switchboard.domain.routing import Member, Rule, SystemId, Target, Team, TeamId
from switchboard.ports.channel import PERSON_KEYS, SEVERAL, Form, Values

ProblemCode = Literal[
    "unknown_channel",
    "unknown_filter_key",
    "unmatchable_value",
    "too_many_values",
    "priority_out_of_range",
    "unknown_team",
    "no_target",
    "target_empty",
    "target_ambiguous",
    "duplicate_target",
    "unknown_target",
    "inactive_target",
    "target_not_in_team",
    "target_not_a_butler",
    "target_not_for_copies",
    "no_root",
    "several_roots",
    "unknown_parent",
    "cycle",
    "duplicate_team",
    "duplicate_system",
    "system_twice",
    "system_misnamed",
    "member_of_another_team",
]

MAX_PRIORITY: Final = 2**31 - 1
"""The largest priority, and with a minus sign the smallest: the range of the database's integer."""

Teams = Mapping[TeamId, Team]


class Problem(Struct, frozen=True):
    """`field` is a path such as `targets[0].system_id`; `message` a sentence; `meant` the probable intention."""

    code: ProblemCode
    field: str
    message: str
    meant: tuple[str, ...] = ()


def check_rule(rule: Rule, teams: Teams, channels: Channels = CHANNELS) -> list[Problem]:
    """Everything that is wrong with a rule in this tree; the same for inactive rules.

    It looks only at the rule's own team, so a million rules can be checked at load.
    """
    problems = [*check_match(rule, channels), *check_targets(rule.team_id, rule.targets, teams)]
    team = teams.get(rule.team_id)
    return [*problems, *_check_copy(rule, team)] if rule.copy and team is not None else problems


def _check_copy(rule: Rule, team: Team) -> Iterator[Problem]:
    """A copy is resolved immediately and never becomes a dead letter, so it cannot target a team."""
    for at, target in enumerate(rule.targets):
        if target.team_id is not None or (target.system_id or "").startswith("System4/"):
            name = target.team_id or target.system_id
            butlers = [one for one in _reachable(team, {}) if one.startswith("System1/")]
            message = f"a copy goes to butlers of its team, not to {name}"
            yield Problem("target_not_for_copies", f"targets[{at}]", message, tuple(butlers))


def check_match(rule: Rule, channels: Channels) -> list[Problem]:
    """What is wrong with a rule's channel, filters and priority, independent of the tree."""
    problems = [*_check_channel(rule, channels), *_check_filters(rule, channels)]
    if abs(rule.priority) > MAX_PRIORITY:
        message = f"priority {rule.priority} is not between -{MAX_PRIORITY} and {MAX_PRIORITY}"
        problems.append(Problem("priority_out_of_range", "priority", message))
    return problems


def check_targets(team_id: TeamId, targets: Sequence[Target], teams: Teams) -> list[Problem]:
    """What is wrong with these targets in a rule of this team; the same for all its rules that have them."""
    team = teams.get(team_id)
    if team is None:
        return [_unknown_name_problem("unknown_team", "team_id", "team", team_id, teams)]
    return list(_check_targets(targets, team, teams))


def _unknown_name_problem(code: ProblemCode, field: str, what: str, name: str, names: Iterable[str]) -> Problem:
    """The problem of an unknown name, with similar names."""
    known = frozenset(names)
    # `diary` means System1/diary, which is not a similar word.
    meant = tuple(sorted(one for one in known if one.rpartition("/")[2] == name)) or _near(name, known)
    hint = f"; did you mean {or_list(meant)}?" if meant else ""
    return Problem(code, field, f"there is no {what} {name!r}{hint}", meant)


@lru_cache(maxsize=1024)
def _near(name: str, names: frozenset[str]) -> tuple[str, ...]:
    """Cached `near`, which takes a millisecond: a mistake in one rule is often in thousands."""
    return near(name, names)


def _check_channel(rule: Rule, channels: Channels) -> Iterator[Problem]:
    if rule.channel != "*" and rule.channel not in channels:
        yield _unknown_name_problem("unknown_channel", "channel", "channel", rule.channel, {"*", *channels})


def _check_filters(rule: Rule, channels: Channels) -> Iterator[Problem]:
    if (combined := prod(len(values_of(wanted)) for wanted in rule.filters.values())) > MAX_VALUES:
        message = f"the lists of values have {combined} combinations; at most {MAX_VALUES} are allowed"
        yield Problem("too_many_values", "filters", message)
    for key, wanted in sorted(rule.filters.items()):
        if key not in (keys := channels.keys_of(rule.channel)):
            yield _unknown_key(rule.channel, key, keys, f"filters.{key}")
            continue
        for value in values_of(wanted):
            yield from _check_value(rule.channel, key, value, keys[key], f"filters.{key}")


def check_facts(given: Mapping[str, str], channels: Channels = CHANNELS) -> list[Problem]:
    """Everything that is wrong with the given facts of a message; fields are their keys.

    A misspelt fact, or one that no message can have, would otherwise silently never match.
    """
    name = given.get("channel", "")
    if not name:
        return [Problem("unknown_channel", "channel", f"facts need a channel: {or_list(channels)}", tuple(channels))]
    if name not in channels:
        return [_unknown_name_problem("unknown_channel", "channel", "channel", name, channels)]
    return [problem for key, value in given.items() for problem in _check_fact(channels, name, key, value)]


def _check_fact(channels: Channels, name: str, key: str, value: str) -> Iterator[Problem]:
    keys, each = channels.keys_of(name), value.split(SEVERAL)
    if key not in keys:
        yield _unknown_key(name, key, keys, shorten_name(key))
        return
    if len(each) > 1 and key not in channels.several:
        yield Problem("unmatchable_value", key, f"a message has one {key}")
    for one in each:
        yield from _check_value(name, key, one, keys[key], key)


def _unknown_key(channel: str, key: str, keys: Collection[str], field: str) -> Problem:
    message = f"messages of channel {channel!r} have no {shorten_name(key)!r}; they have {', '.join(sorted(keys))}"
    if key in PERSON_KEYS:
        message += "; nobody vouches for who writes there"
    return Problem("unknown_filter_key", field, message, _near(key, frozenset(keys)))


def _check_value(channel: str, key: str, value: str, values: Values, field: str) -> Iterator[Problem]:
    if (why := _never_equal(channel, key, value, values)) is not None:
        yield Problem("unmatchable_value", field, f"{key} can never be {value!r}: {why}")


def _never_equal(channel: str, key: str, value: str, values: Values) -> str | None:
    """Why no fact with this key in this channel ever equals the value; None if one may."""
    if not value or value != value.strip():
        return "a fact is never empty and has no surrounding whitespace"
    if key == "channel" and channel not in ("*", value):
        return f"the rule is for channel {channel!r}"
    if isinstance(values, frozenset) and value not in values:
        return f"it is {or_list(values)}"
    if values == "lower" and value != value.lower():
        return f"it is always in lower case, so write {value.lower()!r}"
    return values.mismatch(value) if isinstance(values, Form) else None


def _check_targets(targets: Sequence[Target], team: Team, teams: Teams) -> Iterator[Problem]:
    if not targets:
        yield Problem("no_target", "targets", "a rule needs at least one target", _reachable(team, teams))
    counts = Counter(targets)
    for target in (target for target, count in counts.items() if count > 1):
        name = target.system_id or target.team_id
        yield Problem("duplicate_target", "targets", f"{name} is listed {counts[target]} times; once is enough")
    for position, target in enumerate(targets):
        yield from _check_target(f"targets[{position}]", target, team, teams)


def _check_target(field: str, target: Target, team: Team, teams: Teams) -> Iterator[Problem]:
    if target.system_id is not None and target.team_id is not None:
        message = f"{target.system_id} and {target.team_id} are two targets; make them two entries"
        yield Problem("target_ambiguous", field, message)
    elif target.system_id is not None:
        yield from _check_system(f"{field}.system_id", target.system_id, team, teams)
    elif target.team_id is not None:
        yield from _check_sub_team(f"{field}.team_id", target.team_id, team, teams)
    else:
        yield Problem("target_empty", field, "a target needs a system_id or a team_id", _reachable(team, teams))


def _check_system(field: str, system_id: SystemId, team: Team, teams: Teams) -> Iterator[Problem]:
    member = next((member for member in team.members if member.system_id == system_id), None)
    if member is None:
        yield _not_a_member(field, system_id, team, teams)
    elif member.number not in (1, 4):
        message = f"{system_id} receives no messages; a target is a System1, a sub-team, or the team's own System4"
        yield Problem("target_not_a_butler", field, message, _reachable(team, teams))
    elif not member.active:
        yield Problem("inactive_target", field, f"{system_id} is not active", _reachable(team, teams))


def _not_a_member(field: str, system_id: SystemId, team: Team, teams: Teams) -> Problem:
    at_home = next((one for one in teams.values() if any(system_id == m.system_id for m in one.members)), None)
    if at_home is None:
        return _unknown_name_problem("unknown_target", field, "system", system_id, _reachable(team, teams))
    message = (
        f"{system_id} is in team {at_home.team_id}; the targets of a rule of {team.team_id} must be its own members"
    )
    return Problem("target_not_in_team", field, message, _reachable(team, teams))


def _check_sub_team(field: str, team_id: TeamId, team: Team, teams: Teams) -> Iterator[Problem]:
    child = teams.get(team_id)
    if child is None:
        yield _unknown_name_problem("unknown_target", field, "team", team_id, _reachable(team, teams))
    elif child.parent_id != team.team_id:
        message = f"{team_id} is not a direct sub-team of {team.team_id}; messages only move down, level by level"
        yield Problem("target_not_in_team", field, message, _reachable(team, teams))


def _reachable(team: Team, teams: Teams) -> tuple[str, ...]:
    """The targets that a rule of this team may name, sorted, for messages that list them."""
    systems = [str(member.system_id) for member in team.members if member.active and member.number in (1, 4)]
    return tuple(sorted(systems + [str(one.team_id) for one in teams.values() if one.parent_id == team.team_id]))


def check_teams(teams: Iterable[Team]) -> list[Problem]:
    """Everything that is wrong with the tree itself. Fields are `teams.<team_id>…`."""
    teams = tuple(teams)
    problems = [*_check_roots(teams), *_check_parents(teams), *_check_cycles(teams), *_check_unique(teams)]
    for team in teams:
        for member in team.members:
            problems.extend(_check_member(member, team))
        problems.extend(_check_single(team))
    return problems


def _check_roots(teams: tuple[Team, ...]) -> Iterator[Problem]:
    roots = [team.team_id for team in teams if team.parent_id is None]
    if not roots:
        yield Problem("no_root", "teams", "one team must have no parent: the root, where every message enters")
    elif len(set(roots)) > 1:
        message = f"only one team may have no parent, but {', '.join(roots)} have none"
        yield Problem("several_roots", "teams", message, tuple(roots))


def _check_parents(teams: tuple[Team, ...]) -> Iterator[Problem]:
    known = {team.team_id for team in teams}
    for team in teams:
        if team.parent_id is not None and team.parent_id not in known:
            field = f"teams.{team.team_id}.parent"
            yield _unknown_name_problem("unknown_parent", field, "team", team.parent_id, known - {team.team_id})


def _check_cycles(teams: tuple[Team, ...]) -> Iterator[Problem]:
    """Each cycle once, as its path."""
    parents = {team.team_id: team.parent_id for team in teams}
    done: set[TeamId] = set()
    for start in parents:
        way: dict[TeamId, None] = {}
        at: TeamId | None = start
        while at is not None and at in parents and at not in done and at not in way:
            way[at] = None
            at = parents[at]
        if at is not None and at in way:
            names = list(way)
            around = [*names[names.index(at) :], at]
            yield Problem("cycle", f"teams.{at}.parent", f"the parents form a cycle: {' → '.join(around)}")
        done.update(way)


def _check_unique(teams: tuple[Team, ...]) -> Iterator[Problem]:
    for team_id, count in Counter(team.team_id for team in teams).items():
        if count > 1:
            yield Problem("duplicate_team", f"teams.{team_id}", f"{count} teams are called {team_id}")
    for system_id, count in Counter(member.system_id for team in teams for member in team.members).items():
        if count > 1:
            yield Problem("duplicate_system", f"systems.{system_id}", f"{count} systems are called {system_id}")


def _check_member(member: Member, team: Team) -> Iterator[Problem]:
    field = f"teams.{team.team_id}.systems.{member.system_id}"
    if member.team_id != team.team_id:
        message = f"{member.system_id} claims to be in team {member.team_id}"
        yield Problem("member_of_another_team", field, message, (team.team_id,))
    right = f"System{member.number}/{team.team_id if member.number != 1 else member.name or 'NAME'}"
    if member.system_id != right:
        message = f"{member.system_id} must be called {right}: Systems 2 to 5 have their team's name"
        yield Problem("system_misnamed", field, message, (right,))


def _check_single(team: Team) -> Iterator[Problem]:
    counts = Counter(member.number for member in team.members if member.number != 1)
    for number, count in sorted(counts.items()):
        if count > 1:
            message = f"team {team.team_id} has {count} System{number}s; at most one is allowed"
            yield Problem("system_twice", f"teams.{team.team_id}.systems", message)

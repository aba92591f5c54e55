"""Probable mistakes in valid rules: rules that never fire, teams that no message reaches.

Called by `app/rules/records.py` for `switchboard rules lint` and after every edit. In: the tree and the rules; out:
findings, the worst first; nothing is raised and nothing refused.

A rule requires certain facts and no more: its filters, and its channel unless that is `*`. A message with just these
facts is the one that the fewest rules match. So a rule can never fire if an earlier rule requires a subset of its
facts; that is looked up by hash, key set by key set. Several rules that together leave nothing for another one (one for
each chat type, say) are not detected.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, Literal
from uuid import UUID

from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.routing.check import Problem, ProblemCode, check_match, check_targets
from switchboard.core.routing.explain import in_order, why_first
from switchboard.core.routing.facts import with_derived
from switchboard.core.routing.index import retired
from switchboard.domain.routing import Rule, RuleChange, SystemId, Target, Team, TeamId
from switchboard.ports.channel import Implies

Severity = Literal["error", "warning", "note"]
LintCode = (
    ProblemCode
    | Literal[
        "shadowed",
        "duplicate",
        "unmatchable",
        "unreachable",
        "target_without_live_member",
        "dead_letters_everything",
        "hiding_catch_all",
        "same_name",
        "skipped",
        "pattern_like",
        "unknown_fact",
    ]
)

Teams = Mapping[TeamId, Team]
_Keys = tuple[str, ...]
_Values = tuple[str | None, ...]
_Asking = tuple[Rule, _Keys, Mapping[str, str]]
"""A rule, the keys it requires, and the value of each and of what follows from it."""

_NEVER: Final = frozenset(
    {
        *("shadowed", "duplicate", "unmatchable", "unmatchable_value", "unknown_filter_key", "unknown_channel"),
        *("unknown_fact", "skipped"),
    }
)
"""Findings in rules that no message makes fire."""
_PATTERN: Final = re.compile(r"[*?]|^\^|\$$|\\[a-zA-Z.]|^/.*/$")
_NO_WAY: Final = "no rule of it leads here"
_WORST_FIRST: Final[tuple[Severity, ...]] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding. `rule_id` is None if it is about a whole team; `meant`: the probable intention.

    `field` is the path in the rule, such as `targets[0].system_id`; `by` the rule that shadows it.
    """

    code: LintCode
    severity: Severity
    team_id: TeamId
    rule_id: UUID | None
    rule_name: str | None
    message: str
    meant: tuple[str, ...] = ()
    field: str | None = None
    by: UUID | None = None


def lint(
    teams: Iterable[Team],
    rules: Iterable[Rule],
    *,
    live: Collection[SystemId] | None = None,
    channels: Channels = CHANNELS,
) -> list[Finding]:
    """All findings in the rule set: errors first, then warnings and notes, each by team and rank.

    `live` are the butlers that are currently running; None skips that check. `channels`: what rules may name.
    """
    tree = _Tree(teams)
    every = _by_team(rules)
    problems = _Problems(tree.teams, channels)
    findings, hidden = _in_rules(every, problems)
    firing = _firing(every, (*findings, *hidden))
    reached = _reached(tree, firing)
    findings += (*hidden, *_unreachable(tree, every, reached))
    for team_id in reached:
        findings += _in_team(tree.teams[team_id], firing.get(team_id, ()), tree)
    if live is not None:
        findings += _without_live_member(tree, firing, live)
    return _worst_first(findings)


def lint_change(
    teams: Iterable[Team],
    rules: Iterable[Rule],
    changes: Collection[RuleChange],
    *,
    live: Collection[SystemId] | None = None,
    channels: Channels = CHANNELS,
) -> list[Finding]:
    """The findings caused by these changes: in the changed rules, in those they shadow, in whole teams.

    `rules` are at least all rules of the teams concerned, after the changes. Whether such a team is reached itself is
    not checked: that needs all rules. The teams directly below are, if the changes removed a path to them.
    """
    tree = _Tree(teams)
    every = _by_team(rules)
    changed = {change.rule.rule_id for change in changes}
    concerned = {team_id: every.get(team_id, []) for team_id in sorted({change.rule.team_id for change in changes})}
    problems = _Problems(tree.teams, channels)
    findings, hidden = _in_rules(concerned, problems)
    firing = _firing(concerned, (*findings, *hidden))
    findings += hidden
    newly = [one for one in findings if _concerns(one, changed)]
    findings += _cut_off(tree, concerned, firing, [*_taken_away(changes), *_silenced(concerned, newly)])
    for team_id in concerned.keys() & tree.teams.keys():
        findings += _in_team(tree.teams[team_id], firing[team_id], tree)
    if live is not None:
        findings += _without_live_member(tree, firing, live)
    return _worst_first(one for one in findings if _concerns(one, changed))


def _in_rules(every: Mapping[TeamId, Sequence[Rule]], problems: _Problems) -> tuple[list[Finding], list[Finding]]:
    """What is wrong with single rules, and which can never fire."""
    wrong = [one for own in every.values() for rule in own if rule.active for one in problems.of(rule)]
    skipped = {one.rule_id for one in wrong if one.code == "skipped"}
    looked_at = ([rule for rule in own if rule.rule_id not in skipped] for own in every.values())
    return wrong, [one for own in looked_at for one in _never_firing(own, problems.channels)]


def _taken_away(changes: Iterable[RuleChange]) -> Iterator[Rule]:
    """Rules that led somewhere before these changes."""
    return (change.before for change in changes if change.before is not None and change.before.active)


def _silenced(every: Mapping[TeamId, Iterable[Rule]], findings: Iterable[Finding]) -> Iterator[Rule]:
    """Active rules that can no longer fire, by these findings."""
    never = {one.rule_id for one in findings if one.code in _NEVER}
    return (rule for own in every.values() for rule in own if rule.active and rule.rule_id in never)


def _concerns(finding: Finding, changed: Collection[UUID]) -> bool:
    """Whether it is about one of these rules, or about a whole team."""
    return finding.rule_id is None or finding.rule_id in changed or finding.by in changed


def _cut_off(
    tree: _Tree, every: Mapping[TeamId, Sequence[Rule]], firing: Mapping[TeamId, Iterable[Rule]], ways: Iterable[Rule]
) -> Iterator[Finding]:
    """The teams to which these rules led, or would, and to which no rule that can fire leads now."""
    lead_to = _led_to(rule for own in firing.values() for rule in own)
    for above, team_id in sorted(_led_to(ways) - lead_to):
        if team_id in tree.teams and tree.teams[team_id].parent_id == above:
            yield _out_of_reach(tree.teams[team_id], every, _NO_WAY)


def _led_to(rules: Iterable[Rule]) -> set[tuple[TeamId, TeamId]]:
    return {(rule.team_id, one.team_id) for rule in rules for one in rule.targets if one.team_id is not None}


def _by_team(rules: Iterable[Rule]) -> dict[TeamId, list[Rule]]:
    every: dict[TeamId, list[Rule]] = {}
    for rule in rules:
        every.setdefault(rule.team_id, []).append(rule)
    return every


def _worst_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda one: (_WORST_FIRST.index(one.severity), one.team_id))


def _about(rule: Rule, code: LintCode, severity: Severity, message: str) -> Finding:
    return Finding(code, severity, rule.team_id, rule.rule_id, rule.name, message)


class _Problems:
    """The problems by `check_rule` in many rules, many of which have the same targets."""

    def __init__(self, tree: Teams, channels: Channels) -> None:
        self._tree = tree
        self.channels = channels
        self._of_targets: dict[tuple[TeamId, tuple[Target, ...]], list[Problem]] = {}

    def of(self, rule: Rule) -> Iterator[Finding]:
        """Errors: such a rule would be refused if written now. Of butlers that are switched off no more than a word."""
        if self._skips(rule):
            yield _about(rule, "skipped", "note", "skipped: its butlers are switched off; delete the rule if for good")
            return
        key = rule.team_id, rule.targets
        if key not in self._of_targets:
            self._of_targets[key] = check_targets(*key, self._tree)
        for problem in (*check_match(rule, self.channels), *self._of_targets[key]):
            severity: Severity = "warning" if problem.code == "inactive_target" else "error"
            finding = _about(rule, problem.code, severity, problem.message)
            yield replace(finding, meant=problem.meant, field=problem.field)

        yield from (_pattern_like(rule, key) for key, value in rule.filters.items() if _PATTERN.search(value))

    def _skips(self, rule: Rule) -> bool:
        team = self._tree.get(rule.team_id)
        return team is not None and retired(rule.targets, {member.system_id: member for member in team.members})


def _pattern_like(rule: Rule, key: str) -> Finding:
    message = f"{key} {rule.filters[key]!r} looks like a pattern, but values are compared as they are"
    return replace(_about(rule, "pattern_like", "warning", message), field=f"filters.{key}")


def _firing(every: Mapping[TeamId, Sequence[Rule]], findings: Iterable[Finding]) -> dict[TeamId, list[Rule]]:
    """The rules that some message makes fire, by all that was found."""
    never = {one.rule_id for one in findings if one.code in _NEVER}
    return {
        team_id: [rule for rule in own if rule.active and rule.rule_id not in never] for team_id, own in every.items()
    }


def _never_firing(rules: Iterable[Rule], channels: Channels) -> Iterator[Finding]:
    """The active rules of one team that no message makes fire."""
    possible: list[_Asking] = []
    known: dict[tuple[frozenset[str], str | None], tuple[str, ...]] = {}
    unknown: dict[tuple[frozenset[str], str | None], str | None] = {}
    for rule in in_order(rules, channels.implies):
        if rule.channel not in ("*", rule.filters.get("channel", rule.channel)):
            continue  # a contradiction in itself: `check_match` has said so
        named = rule.filters.get("channel") if rule.channel == "*" else rule.channel
        kind = frozenset(rule.filters), named
        if kind not in known:
            known[kind] = _channels_with(*kind, channels)
            unknown[kind] = _unknown(kind[0], known[kind], channels)
        if why := unknown[kind]:
            yield _about(rule, "unknown_fact", "warning", f"can never fire: {why}")
        elif why := _contradiction(rule, known[kind], channels):
            yield _about(rule, "unmatchable", "warning", f"can never fire: {why}")
        elif len(known[kind]) == 1:
            # Keys that only one channel has imply that channel, like its name.
            asked = {**rule.filters, "channel": known[kind][0]}
            possible.append((rule, tuple(sorted(asked)), with_derived(asked, channels[known[kind][0]])))
        elif known[kind]:
            possible.append((rule, tuple(sorted(rule.filters)), _following(rule.filters, known[kind], channels)))
        elif rule.channel == "*":  # for a rule of a named channel `check_match` has said what is wrong
            yield _about(rule, "unmatchable", "warning", f"can never fire: {_why_not(rule, channels)}")
    yield from _shadowed(possible, channels.implies)


def _following(filters: Mapping[str, str], possible: Iterable[str], channels: Channels) -> Mapping[str, str]:
    """The filters, and what follows from them in each of these channels."""
    everywhere = [with_derived(filters, channels[name]).items() for name in possible]
    return dict(frozenset(everywhere[0]).intersection(*everywhere[1:]))


def _contradiction(rule: Rule, possible: Iterable[str], channels: Channels) -> str | None:
    """Which filter excludes another, as the domain of a sender does another domain."""
    why = None
    for name in possible:
        implied = channels[name].implied(rule.filters)
        wrong = next((key for key, value in implied.items() if value and rule.filters.get(key, value) != value), None)
        if wrong is None:
            return None
        why = f"its other filters imply {wrong} {implied[wrong]!r}, not {rule.filters[wrong]!r}"
    return why


def _unknown(keys: Collection[str], possible: Iterable[str], channels: Channels) -> str | None:
    """What to do about a fact that all these channels could have, but do not have in this installation."""
    reasons = [next((why for key, why in channels[name].unknown.items() if key in keys), None) for name in possible]
    return reasons[0] if reasons and all(reasons) else None


def _channels_with(keys: frozenset[str], named: str | None, channels: Channels) -> tuple[str, ...]:
    """The channels whose messages may have all these keys."""
    possible = (channel for channel in channels if named in (None, channel))
    return tuple(channel for channel in possible if keys <= channels.keys_of(channel).keys())


def _why_not(rule: Rule, channels: Collection[str]) -> str:
    named = rule.filters.get("channel")
    if named is not None and named not in channels:
        return f"there is no channel {named!r}"
    keys = ", ".join(sorted(key for key in rule.filters if key != "channel"))
    return f"no message of {named or 'any channel'} has all of {keys}"


def _shadowed(possible: Sequence[_Asking], implies: Implies) -> Iterator[Finding]:
    """The rules of a team, in evaluation order, that require everything that an earlier one requires."""
    shapes = {keys for _, keys, _ in possible}
    parts: dict[_Keys, tuple[_Keys, ...]] = {}
    before: dict[_Keys, dict[_Values, Rule]] = {keys: {} for keys in shapes}
    twins: dict[tuple[object, ...], Rule] = {}
    for rule, keys, asked in possible:
        required = tuple(sorted(asked))
        if required not in parts:
            parts[required] = _parts(required, shapes)
        by = next((by for part in parts[required] if (by := before[part].get(tuple(map(asked.get, part))))), None)
        if by is None:
            # A shadowed rule need not be kept: whatever it would shadow, the earlier rule shadows too.
            before[keys][tuple(map(asked.get, keys))] = rule
        twin = twins.setdefault((rule.channel, frozenset(rule.filters.items()), frozenset(rule.targets)), rule)
        if by is not None:
            yield _duplicate(rule, twin) if twin is not rule else _hidden_by(rule, by, implies)


def _parts(keys: _Keys, shapes: Collection[_Keys]) -> tuple[_Keys, ...]:
    """The known key sets that are subsets of these, smallest first; by the faster of two methods."""
    if 2 ** len(keys) < len(shapes):
        every = (part for size in range(len(keys) + 1) for part in combinations(keys, size))
        return tuple(part for part in every if part in shapes)
    whole = frozenset(keys)
    return tuple(sorted((part for part in shapes if whole.issuperset(part)), key=lambda part: (len(part), part)))


def _duplicate(rule: Rule, twin: Rule) -> Finding:
    message = f"can never fire: {twin.name!r} is the same rule and comes first; remove one of them"
    return replace(_about(rule, "duplicate", "warning", message), by=twin.rule_id)


def _hidden_by(rule: Rule, by: Rule, implies: Implies) -> Finding:
    why = why_first(by, rule, implies)
    message = f"can never fire: {by.name!r} matches all the same messages, and comes first because {why}"
    return replace(_about(rule, "shadowed", "warning", message), by=by.rule_id)


def _reached(tree: _Tree, firing: Mapping[TeamId, Iterable[Rule]]) -> list[TeamId]:
    """The teams that some message reaches, from the root down the targets of rules and of models."""
    reached = list(tree.roots)
    known = set(reached)
    for team_id in reached:
        targets = {target.team_id for rule in firing.get(team_id, ()) for target in rule.targets}
        if tree.teams[team_id].classify:
            targets |= {target.team_id for target in tree.choice(tree.teams[team_id])}
        for below in sorted(one for one in targets if one is not None and one not in known):
            if below in tree.teams and tree.teams[below].parent_id == team_id:
                known.add(below)
                reached.append(below)
    return reached


def _unreachable(tree: _Tree, every: Mapping[TeamId, Sequence[Rule]], reached: Collection[TeamId]) -> Iterator[Finding]:
    known = frozenset(reached)
    for team_id, team in tree.teams.items():
        if team_id not in known:
            above = "no rule leads to it either" if team.parent_id not in known else _NO_WAY
            yield _out_of_reach(team, every, above)


def _out_of_reach(team: Team, every: Mapping[TeamId, Sequence[Rule]], above: str) -> Finding:
    active = sum(rule.active for rule in every.get(team.team_id, ()))
    message = f"no message reaches team {team.team_id}: its parent is {team.parent_id}, and {above}"
    message += f"; it has {active} active rules" if active else ""
    return Finding("unreachable", "warning", team.team_id, None, None, message)


def _in_team(team: Team, firing: Sequence[Rule], tree: _Tree) -> Iterator[Finding]:
    """Findings about the rules that fire in one team, taken together."""
    asks = team.classify and tree.choice(team)
    if not asks and (why := _takes_nothing(team, firing)):
        yield _dead_letters(team, why, tree)
    yield from _namesakes(firing)
    if asks or any(rule.catch_all for rule in firing):
        yield from _hiding(team, firing, tree.choice(team))


def _takes_nothing(team: Team, firing: Sequence[Rule]) -> str | None:
    """Why the rules of this team bring no message to a butler; None if some do."""
    if not firing:
        return "it has no rule that can fire"
    own = next((member.system_id for member in team.members if member.number == 4), None)
    only = {target.system_id for rule in firing for target in rule.targets} == {own}
    return f"all its rules lead to {own}" if only and own is not None else None


def _namesakes(firing: Sequence[Rule]) -> Iterator[Finding]:
    """A reader cannot tell them apart in a trail."""
    named: dict[str, Rule] = {}
    for rule in firing:
        first = named.setdefault(rule.name, rule)
        if first is not rule:
            finding = _about(rule, "same_name", "note", f"another rule of team {rule.team_id} also has this name")
            yield replace(finding, by=first.rule_id)


def _hiding(team: Team, firing: Sequence[Rule], choice: frozenset[Target]) -> Iterator[Finding]:
    """The defaults for one channel, where a model or a catch-all would be asked otherwise."""
    for rule in firing:
        if rule.channel != "*" and not rule.filters and choice.difference(rule.targets):
            message = (
                f"matches every {rule.channel} message that no earlier rule matches, so neither a model nor a "
                f"catch-all of team {team.team_id} gets them; write a default for channel '*' instead"
            )
            yield _about(rule, "hiding_catch_all", "note", message)


def _dead_letters(team: Team, why: str, tree: _Tree) -> Finding:
    message = f"every message that reaches team {team.team_id} becomes a dead letter: {why}"
    meant = tuple(sorted(str(target.system_id or target.team_id) for target in tree.choice(team)))
    return Finding("dead_letters_everything", "warning", team.team_id, None, None, message, meant)


def _without_live_member(
    tree: _Tree, firing: Mapping[TeamId, Iterable[Rule]], live: Collection[SystemId]
) -> Iterator[Finding]:
    """Valid targets that are not running: a butler, or a team with no running butler in it or below."""
    waiting = tree.asleep(frozenset(live))
    for rule in (rule for own in firing.values() for rule in own):
        for position, target in enumerate(rule.targets):
            if target in waiting:
                who = target.system_id or f"a butler in team {target.team_id} or below"
                message = f"no worker currently runs {who}; messages wait until one does"
                finding = _about(rule, "target_without_live_member", "warning", message)
                yield replace(finding, field=f"targets[{position}]")


class _Tree:
    """The teams by name, and the targets of each that can answer a message."""

    def __init__(self, teams: Iterable[Team]) -> None:
        self.teams: Teams = {team.team_id: team for team in teams}
        self._below: dict[TeamId | None, list[TeamId]] = {}
        for team in self.teams.values():
            self._below.setdefault(team.parent_id, []).append(team.team_id)

    @property
    def roots(self) -> list[TeamId]:
        """Where messages enter; exactly one in a sound tree."""
        return self._below.get(None, [])

    def choice(self, team: Team) -> frozenset[Target]:
        """The active butlers of a team, and its sub-teams."""
        below = (Target(team_id=team_id) for team_id in self._below.get(team.team_id, ()))
        return frozenset((*map(_target, _butlers(team)), *below))

    def asleep(self, live: frozenset[SystemId]) -> frozenset[Target]:
        """The butlers that are not live, and the teams with no live butler in them or below."""
        awake: set[TeamId] = set()
        for team in self.teams.values():
            above: Team | None = None if live.isdisjoint(_butlers(team)) else team
            while above is not None and above.team_id not in awake:
                awake.add(above.team_id)
                above = None if above.parent_id is None else self.teams.get(above.parent_id)
        butlers = (one for team in self.teams.values() for one in _butlers(team) if one not in live)
        return frozenset((*map(_target, butlers), *(Target(team_id=one) for one in self.teams.keys() - awake)))


def _butlers(team: Team) -> Iterator[SystemId]:
    return (one.system_id for one in team.members if one.number == 1 and one.active)


def _target(system_id: SystemId) -> Target:
    return Target(system_id=system_id)

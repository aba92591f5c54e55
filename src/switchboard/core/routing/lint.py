"""Probable mistakes in valid rules: rules that never fire, teams that no message reaches.

Called by `app/rules/records.py` for `switchboard rules lint` and after every edit. In: the tree and the rules; out:
findings, the worst first; nothing is raised and nothing refused.

A rule requires certain facts and no more: its filters, and its channel unless that is `*`. Of the messages that match
it, one with exactly these facts is matched by the fewest other rules. So a rule can never fire if an earlier rule
requires a subset of its facts; that is looked up by hash, key set by key set, for each combination of the values of its
filters. Several rules that only together leave nothing for another one (one for each chat type, say) are not detected,
unless the latter lists those values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from typing import Final, Literal, NamedTuple
from uuid import UUID

from switchboard.core.channels.email import is_nobody
from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.routing.check import Problem, ProblemCode, check_match, check_targets
from switchboard.core.routing.explain import in_order, why_first
from switchboard.core.routing.facts import alternatives, has, implied_facts, values_of, with_derived
from switchboard.core.routing.index import has_only_inactive_butlers
from switchboard.core.text.words import near, or_list
from switchboard.domain.people import PersonNames
from switchboard.domain.routing import Move, Rule, RuleChange, SystemId, Target, Team, TeamId
from switchboard.ports.channel import SEVERAL, Implies

Severity = Literal["error", "warning", "note"]
LintCode = (
    ProblemCode
    | Literal[
        "shadowed",
        "duplicate",
        "unmatchable",
        "partly_unmatchable",
        "unreachable",
        "target_without_live_member",
        "dead_letters_everything",
        "hiding_catch_all",
        "same_name",
        "skipped",
        "pattern_like",
        "unknown_fact",
        "no_handler",
        "silent_handler",
        "moved",
        "names_nobody",
        "unanswered",
    ]
)

Teams = Mapping[TeamId, Team]
_Keys = tuple[str, ...]
_Values = tuple[str, ...]

_NEVER: Final = frozenset(
    {
        *("shadowed", "duplicate", "unmatchable", "unmatchable_value", "unknown_filter_key", "unknown_channel"),
        *("unknown_fact", "skipped"),
    }
)
"""Findings in rules that no message can make fire."""
_PATTERN: Final = re.compile(r"[*?]|^\^|\$$|\\[a-zA-Z.]|^/.*/$")
_FILES_ONLY: Final = "memo"
"""The engine that only stores notices."""
_ANSWERS: Final = "reply_to_automatic"
_NO_WAY: Final = "no rule of it leads here"
_WORST_FIRST: Final[tuple[Severity, ...]] = ("error", "warning", "note")


class _Asking(NamedTuple):
    """The keys that a rule requires, and the values of these and of the facts that follow from them."""

    keys: _Keys
    asked: Mapping[str, str]


class _Never(NamedTuple):
    """Why no message meets a rule."""

    code: LintCode
    why: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with a rule or, if `rule_id` is null, with a team.

    `meant` is the probable intention, `field` the path in the rule, `by` the rule that shadows it.
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
    told: bool = True,
) -> list[Finding]:
    """All findings in the rule set: errors first, then warnings and notes, each by team and rank.

    `live` are the butlers that are currently running; None skips that check. `channels`: what rules may name. `told`:
    see `lint_handlers`.
    """
    tree = _Tree(teams)
    every = _by_team(rules)
    problems = _Problems(tree.teams, channels)
    findings, hidden = _in_rules(every, problems)
    may_fire = _firing(every, (*findings, *hidden))
    firing = _deciding(may_fire)
    reached = _reachable_teams(tree, firing)
    findings += (*hidden, *_unreachable(tree, every, reached), *lint_handlers(tree.teams.values(), told=told))
    for team_id in reached:
        findings += _in_team(tree.teams[team_id], firing.get(team_id, ()), tree)
    if live is not None:
        findings += _without_live_member(tree, may_fire, live)
    return _worst_first(findings)


def lint_handlers(teams: Iterable[Team], *, told: bool) -> Iterator[Finding]:
    """Teams whose dead letters may not reach any person. `told`: there is a webhook (`dead_letters.tell`)."""
    for team in teams:
        handler = next((member for member in team.members if member.number == 4 and member.active), None)
        if handler is None and team.parent_id is None:
            message = f"team {team.team_id} has no System4: nobody is notified of its dead letters"
            yield Finding("no_handler", "warning", team.team_id, None, None, message)
        if handler is not None and handler.engine == _FILES_ONLY and not told:
            who = f"{handler.system_id} ({handler.engine})"
            message = f"{who} only files dead letters and notifies nobody: set dead_letters.tell"
            yield Finding("silent_handler", "note", team.team_id, None, None, message)


def _pairs(rule: Rule) -> Iterator[tuple[str, str]]:
    """Each value of each of its filters."""
    return ((key, value) for key, wanted in rule.filters.items() for value in values_of(wanted))


def lint_moves(rules: Iterable[Rule], moves: Sequence[Move]) -> Iterator[Finding]:
    """Rules that name a conversation by an id that its messages no longer have or never had."""
    by_fact = {(f"{move.channel}_chat_id", move.first): move for move in moves}
    by_thread = {move.now: move for move in moves}
    for rule in rules:
        for key, value in _pairs(rule):
            if move := by_fact.get((key, value)):
                yield _moved_finding(rule, key, value, f"its messages have {move.now} now", move.now)
            elif key == "thread" and (move := by_thread.get(value)) and rule.channel in {"*", move.channel}:
                yield _moved_finding(rule, key, value, f"its thread is still {move.first}", move.first)


def _moved_finding(rule: Rule, key: str, value: str, why: str, meant: str) -> Finding:
    found = _about(rule, "moved", "warning", f"the conversation of {key} {value!r} has moved: {why}")
    return replace(found, meant=(meant,), field=f"filters.{key}")


def lint_change(
    teams: Iterable[Team],
    rules: Iterable[Rule],
    changes: Collection[RuleChange],
    *,
    live: Collection[SystemId] | None = None,
    channels: Channels = CHANNELS,
) -> list[Finding]:
    """The findings caused by these changes: in the changed rules, in those they shadow, in whole teams.

    `rules` are at least all rules of the teams concerned, after the changes. Whether these teams can be reached is not
    checked, as that needs all rules. The teams directly below are checked if the changes removed a path to them.
    """
    tree = _Tree(teams)
    every = _by_team(rules)
    changed = {change.rule.rule_id for change in changes}
    concerned = {team_id: every.get(team_id, []) for team_id in sorted({change.rule.team_id for change in changes})}
    problems = _Problems(tree.teams, channels)
    findings, hidden = _in_rules(concerned, problems)
    may_fire = _firing(concerned, (*findings, *hidden))
    firing = _deciding(may_fire)
    findings += hidden
    newly = [one for one in findings if _concerns(one, changed)]
    findings += _cut_off(tree, concerned, firing, [*_taken_away(changes), *_silenced_rules(concerned, newly)])
    for team_id in concerned.keys() & tree.teams.keys():
        findings += _in_team(tree.teams[team_id], firing[team_id], tree)
    if live is not None:
        findings += _without_live_member(tree, may_fire, live)
    return _worst_first(one for one in findings if _concerns(one, changed))


def _in_rules(every: Mapping[TeamId, Sequence[Rule]], problems: _Problems) -> tuple[list[Finding], list[Finding]]:
    """What is wrong with single rules, and which can never fire."""
    active = (rule for own in every.values() for rule in own if rule.active)
    wrong = [*chain.from_iterable(map(problems.of, active))]
    skipped = {one.rule_id for one in wrong if one.code == "skipped"}
    never: list[Finding] = []
    for own in every.values():
        never += _never_firing((rule for rule in own if rule.rule_id not in skipped), problems.channels)
    return wrong, never


def _taken_away(changes: Iterable[RuleChange]) -> Iterator[Rule]:
    """Rules that led somewhere before these changes."""
    return (change.before for change in changes if change.before is not None and change.before.active)


def _silenced_rules(every: Mapping[TeamId, Iterable[Rule]], findings: Iterable[Finding]) -> Iterator[Rule]:
    """Active rules that can no longer fire, by these findings."""
    never = {one.rule_id for one in findings if one.code in _NEVER}
    return (rule for own in every.values() for rule in own if rule.active and rule.rule_id in never)


def _concerns(finding: Finding, changed: Collection[UUID]) -> bool:
    """Whether a finding is about one of these rules, or about a whole team."""
    return finding.rule_id is None or finding.rule_id in changed or finding.by in changed


def _cut_off(
    tree: _Tree, every: Mapping[TeamId, Sequence[Rule]], firing: Mapping[TeamId, Iterable[Rule]], ways: Iterable[Rule]
) -> Iterator[Finding]:
    """The teams to which these rules led or would lead, and to which no rule that can fire leads now."""
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


def lint_people(rules: Iterable[Rule], names: PersonNames) -> Iterator[Finding]:
    """Values of `person` and `groups` that no message has: nobody is called so, or nothing proves that they write."""
    for rule in rules:
        for key, value in _pairs(rule):
            if rule.active and key in names.proven and value not in names.proven[key]:
                yield _nobody_finding(rule, key, value, names.existing[key])


def _nobody_finding(rule: Rule, key: str, value: str, names: Collection[str]) -> Finding:
    meant = () if value in names else near(value, names)
    hint = f"; did you mean {or_list(meant)}?" if meant else ""
    why = "has no handle that proves who writes" if value in names else f"is nobody{hint}"
    found = _about(rule, "names_nobody", "warning", f"can never match: {key} {value!r} {why}")
    return replace(found, meant=meant, field=f"filters.{key}")


class _Problems:
    """The problems that `check_rule` finds in many rules, many of which have the same targets."""

    def __init__(self, tree: Teams, channels: Channels) -> None:
        self._tree = tree
        self.channels = channels
        self._of_targets: dict[tuple[TeamId, tuple[Target, ...]], list[Problem]] = {}

    def of(self, rule: Rule) -> Iterator[Finding]:
        """Errors: the rule would be refused if written now. Butlers that are switched off are only a note."""
        if self._skips(rule):
            yield _about(
                rule, "skipped", "note", "skipped: its butlers are switched off; delete the rule if this is permanent"
            )
            return
        key = rule.team_id, rule.targets
        if key not in self._of_targets:
            self._of_targets[key] = check_targets(*key, self._tree)
        for problem in (*check_match(rule, self.channels), *self._of_targets[key]):
            severity: Severity = "warning" if problem.code == "inactive_target" else "error"
            finding = _about(rule, problem.code, severity, problem.message)
            yield replace(finding, meant=problem.meant, field=problem.field)

        yield from (_pattern_like(rule, name, value) for name, value in _pairs(rule) if _PATTERN.search(value))
        nobody = next((value for key, value in _pairs(rule) if key == "email_sender" and is_nobody(value)), None)
        if nobody is not None and not self._answers_machines(rule):
            yield _unanswered_finding(rule, nobody)

    def _answers_machines(self, rule: Rule) -> bool:
        """Whether automatic mail gets an answer, as far as this rule alone tells; copies get none anyway."""
        if rule.reply_to_automatic or rule.copy:
            return True
        team = self._tree.get(rule.team_id)
        members = {one.system_id: one for one in (team.members if team is not None else ())}
        return not all(
            one.system_id in members and members[one.system_id].options.get(_ANSWERS) is not True
            for one in rule.targets
        )

    def _skips(self, rule: Rule) -> bool:
        team = self._tree.get(rule.team_id)
        return team is not None and has_only_inactive_butlers(
            rule.targets, {member.system_id: member for member in team.members}
        )


def _pattern_like(rule: Rule, key: str, value: str) -> Finding:
    message = f"{key} {value!r} looks like a pattern, but values are compared as they are"
    return replace(_about(rule, "pattern_like", "warning", message), field=f"filters.{key}")


def _unanswered_finding(rule: Rule, sender: str) -> Finding:
    message = (
        f"mail from {sender} is automatic and gets no answer; if a form sends it and names a person in Reply-To, "
        f"set {_ANSWERS}, and the person is answered"
    )
    return replace(_about(rule, "unanswered", "note", message), field="filters.email_sender")


def _firing(every: Mapping[TeamId, Sequence[Rule]], findings: Iterable[Finding]) -> dict[TeamId, list[Rule]]:
    """The rules that some message can make fire, according to the findings."""
    never = {one.rule_id for one in findings if one.code in _NEVER}
    return {
        team_id: [rule for rule in own if rule.active and rule.rule_id not in never] for team_id, own in every.items()
    }


def _deciding(every: Mapping[TeamId, Iterable[Rule]]) -> dict[TeamId, list[Rule]]:
    """The same without rules that only copy."""
    return {team_id: [rule for rule in own if not rule.copy] for team_id, own in every.items()}


def _never_firing(rules: Iterable[Rule], channels: Channels) -> Iterator[Finding]:
    """The active rules of one team that no message can make fire, and values that no message meets."""
    possible: list[tuple[Rule, list[_Asking]]] = []
    kinds = _Kinds(channels)
    for rule in in_order(rules, channels.implies):
        ways = [kinds.look(rule.channel, filters) for filters in alternatives(rule.filters)]
        asking = [one for one in ways if isinstance(one, _Asking)]
        never = next((one for one in ways if isinstance(one, _Never)), None)
        if asking and not rule.copy:  # copies hide nothing, and nothing hides them
            possible.append((rule, asking))
        if never is not None and asking:
            yield _about(rule, "partly_unmatchable", "warning", f"some of its values never match: {never.why}")
        elif never is not None:
            yield _about(rule, never.code, "warning", f"can never fire: {never.why}")
    yield from _find_shadowed_rules(possible, channels.implies)


class _Kinds:
    """The messages that can match a rule's filters; computed once per set of keys, of which there are few."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._known: dict[tuple[frozenset[str], str | None], tuple[tuple[str, ...], str | None]] = {}

    def look(self, channel: str, filters: Mapping[str, str]) -> _Asking | _Never | None:
        """What a rule requires of a message, or why no message meets it; None: `check_match` has reported why."""
        if channel not in ("*", filters.get("channel", channel)):
            return None
        known, unknown = self._with(frozenset(filters), filters.get("channel") if channel == "*" else channel)
        if unknown is not None:
            return _Never("unknown_fact", unknown)
        if why := _contradiction(filters, known, self._channels):
            return _Never("unmatchable", why)
        if not known:
            return _Never("unmatchable", _why_not(filters, self._channels)) if channel == "*" else None
        if len(known) > 1:
            return _Asking(tuple(sorted(filters)), _following(filters, known, self._channels))
        # Keys that only one channel has imply that channel, just as its name does.
        asked = {**filters, "channel": known[0]}
        return _Asking(tuple(sorted(asked)), with_derived(asked, self._channels[known[0]]))

    def _with(self, keys: frozenset[str], named: str | None) -> tuple[tuple[str, ...], str | None]:
        """The channels whose messages may have all these keys, and why none has them in this installation."""
        if (keys, named) not in self._known:
            known = _channels_with(keys, named, self._channels)
            self._known[keys, named] = known, _hint_for_missing_fact(keys, known, self._channels)
        return self._known[keys, named]


def _following(filters: Mapping[str, str], possible: Iterable[str], channels: Channels) -> Mapping[str, str]:
    """The filters, and what follows from them in each of these channels."""
    everywhere = [with_derived(filters, channels[name]).items() for name in possible]
    return dict(frozenset(everywhere[0]).intersection(*everywhere[1:]))


def _contradiction(filters: Mapping[str, str], possible: Iterable[str], channels: Channels) -> str | None:
    """Which filter excludes another, as a sender's domain excludes another domain."""
    why = None
    for name in possible:
        known = {key: value for key, value in implied_facts(filters, channels[name]).items() if value is not None}
        wrong = next((key for key in known if key in filters and not has(known, key, filters[key])), None)
        if wrong is None:
            return None
        meant = known[wrong].partition(SEVERAL)[0]
        why = f"its other filters imply {wrong} {meant!r}, not {filters[wrong]!r}"
    return why


def _hint_for_missing_fact(keys: Collection[str], possible: Iterable[str], channels: Channels) -> str | None:
    """What to do about a fact that all these channels could have, but do not have in this installation."""
    reasons = [next((why for key, why in channels[name].unknown.items() if key in keys), None) for name in possible]
    return reasons[0] if reasons and all(reasons) else None


def _channels_with(keys: frozenset[str], named: str | None, channels: Channels) -> tuple[str, ...]:
    """The channels whose messages may have all these keys."""
    possible = (channel for channel in channels if named in (None, channel))
    return tuple(channel for channel in possible if keys <= channels.keys_of(channel).keys())


def _why_not(filters: Mapping[str, str], channels: Collection[str]) -> str:
    named = filters.get("channel")
    if named is not None and named not in channels:
        return f"there is no channel {named!r}"
    keys = ", ".join(sorted(key for key in filters if key != "channel"))
    return f"no message of {named or 'any channel'} has all of {keys}"


def _find_shadowed_rules(possible: Sequence[tuple[Rule, Sequence[_Asking]]], implies: Implies) -> Iterator[Finding]:
    """The rules of a team, in evaluation order, that require everything that earlier ones require."""
    before: dict[_Keys, dict[_Values, Rule]] = {way.keys: {} for _, ways in possible for way in ways}
    parts: dict[_Keys, tuple[_Keys, ...]] = {}
    twins: dict[tuple[object, ...], Rule] = {}

    def hidden(asked: Mapping[str, str]) -> Rule | None:
        required = tuple(sorted(asked))
        if required not in parts:
            parts[required] = _parts(required, before.keys())
        ways = ((part, values) for part in parts[required] for values in _each(asked, part))
        return next((by for part, values in ways if (by := before[part].get(values))), None)

    for rule, ways in possible:
        hiding = [hidden(way.asked) for way in ways]
        for way, by in zip(ways, hiding, strict=True):
            if by is None:
                # A hidden rule need not be kept: whatever it would hide, the earlier rule hides too.
                before[way.keys][tuple(way.asked[key] for key in way.keys)] = rule
        twin = twins.setdefault((rule.channel, frozenset(rule.filters.items()), frozenset(rule.targets)), rule)
        earlier = {by.rule_id: by for by in hiding if by is not None}
        if None not in hiding:
            yield _duplicate(rule, twin) if twin is not rule else _hidden_by(rule, [*earlier.values()], implies)


def _each(asked: Mapping[str, str], keys: _Keys) -> Iterator[_Values]:
    """The values of these keys; every combination if a derived fact has several values."""
    return product(*(asked[key].split(SEVERAL) for key in keys))


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


def _hidden_by(rule: Rule, earlier: Sequence[Rule], implies: Implies) -> Finding:
    by, *others = earlier
    if others:
        why = f"{' and '.join(repr(one.name) for one in earlier)} together match all the same messages, and come first"
    else:
        why = f"{by.name!r} matches all the same messages, and comes first because {why_first(by, rule, implies)}"
    return replace(_about(rule, "shadowed", "warning", f"can never fire: {why}"), by=by.rule_id)


def _teams_from(tree: _Tree, team_id: TeamId, rules: Iterable[Rule]) -> set[TeamId]:
    """Where its rules, and a model, may send a message of this team."""
    targets = [target for rule in rules for target in rule.targets]
    if tree.teams[team_id].classify:
        targets += tree.choice(tree.teams[team_id])
    return {target.team_id for target in targets if target.team_id is not None}


def _reachable_teams(tree: _Tree, firing: Mapping[TeamId, Iterable[Rule]]) -> list[TeamId]:
    """The teams that some message reaches from the root, by targets of rules or choices of models."""
    reached = list(tree.roots)
    known = set(reached)
    for team_id in reached:
        targets = _teams_from(tree, team_id, firing.get(team_id, ()))
        for below in sorted(targets - known):
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
    """Why the rules of this team lead no message to a butler; None if some do."""
    if not firing:
        return "it has no rule that can fire"
    own = next((member.system_id for member in team.members if member.number == 4), None)
    only = {target.system_id for rule in firing for target in rule.targets} == {own}
    return f"all its rules lead to {own}" if only and own is not None else None


def _namesakes(firing: Sequence[Rule]) -> Iterator[Finding]:
    """Rules with the same name, which cannot be distinguished in a trail."""
    named: dict[str, Rule] = {}
    for rule in firing:
        first = named.setdefault(rule.name, rule)
        if first is not rule:
            finding = _about(rule, "same_name", "note", f"another rule of team {rule.team_id} also has this name")
            yield replace(finding, by=first.rule_id)


def _hiding(team: Team, firing: Sequence[Rule], choice: frozenset[Target]) -> Iterator[Finding]:
    """Defaults for one channel that prevent a model or a catch-all from being asked."""
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
        """The teams where messages enter; exactly one in a valid tree."""
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

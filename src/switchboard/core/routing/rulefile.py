"""Rules as JSON: the form of one rule, the file of many, and what turns the rules in force into those of a file.

Called by `store/rules.py` (the form in the history), `app/proposals.py` (import, restore) and `app/rule_records.py`
(export, diff). Decoded JSON or YAML enters, rules and `RuleChange`s leave, and the other way. Next:
`core/routing/check.py`, then `store/rules.py`.

    {"format": "switchboard.rules.v1", "version": 17, "teams": {"root": [
        {"rule_id": "0199…", "name": "all", "channel": "telegram", "filters": {"chat_type": "private"},
         "targets": [{"system_id": "System1/memo"}], "priority": 0, "active": true, "source": "",
         "created_by": "control (System3/root)", "created_at": "2026-01-01T00:00:00+00:00",
         "updated_by": "control (System3/root)", "updated_at": "2026-01-01T00:00:00+00:00"}]}}

Written by hand, a rule needs `name`, `channel` and `targets` only, and the file no `version`. A file speaks for the
teams that it names, with all their rules; about other teams it says nothing. Where none of its rules is there yet, its
import makes them the same to the letter; who touched a rule last is no difference that would be written.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from switchboard.core.routing.draft import DRAFT_KEYS, Edit, Reader, draft_of, shown, with_draft
from switchboard.domain.routing import Rule, RuleChange, RuleDraft, SystemId, Target, TeamId

FORMAT: Final = "switchboard.rules.v1"

_MADE_KEYS: Final = ("rule_id", "source", "created_by", "created_at", "updated_by", "updated_at")
"""The parts of a rule that the switchboard gives it; a file written by hand leaves them out."""
_CONTENT: Final = (*DRAFT_KEYS, "source", "created_by", "created_at")
"""What a rule says, and what its rank depends on. Who touched it last is not among it."""
_content = attrgetter(*_CONTENT)
_READER: Final = Reader("invalid_rule_file", "the rule file")


def rule_json(rule: Rule) -> dict[str, Any]:
    """The one JSON form of a rule, with everything that is known of it; JSON types only, keys of filters sorted."""
    return {
        "rule_id": str(rule.rule_id),
        "team_id": rule.team_id,
        "name": rule.name,
        "channel": rule.channel,
        "filters": dict(sorted(rule.filters.items())),
        "targets": [target_json(target) for target in rule.targets],
        "priority": rule.priority,
        "active": rule.active,
        "version": rule.version,
        "source": rule.source,
        "created_by": rule.created_by,
        "updated_by": rule.updated_by,
        "created_at": rule.created_at.isoformat(),
        "updated_at": None if rule.updated_at is None else rule.updated_at.isoformat(),
    }


def rule_from_json(form: Mapping[str, Any]) -> Rule:
    """The rule whose `rule_json` this is. For forms that we stored: anything else raises KeyError and the like."""
    updated_at = form["updated_at"]
    return Rule(
        rule_id=UUID(form["rule_id"]),
        team_id=TeamId(form["team_id"]),
        name=form["name"],
        channel=form["channel"],
        filters=form["filters"],
        targets=tuple(target_from_json(target) for target in form["targets"]),
        created_at=datetime.fromisoformat(form["created_at"]),
        priority=form["priority"],
        active=form["active"],
        created_by=form["created_by"],
        updated_by=form["updated_by"],
        updated_at=None if updated_at is None else datetime.fromisoformat(updated_at),
        version=form["version"],
        source=form["source"],
    )


def target_json(target: Target) -> dict[str, str]:
    """`{"system_id": …}` or `{"team_id": …}`."""
    both = {"system_id": target.system_id, "team_id": target.team_id}
    return {key: str(name) for key, name in both.items() if name is not None}


def target_from_json(form: Mapping[str, str]) -> Target:
    """The target whose `target_json` this is."""
    system_id, team_id = form.get("system_id"), form.get("team_id")
    return Target(
        None if system_id is None else SystemId(system_id),
        None if team_id is None else TeamId(team_id),
    )


@dataclass(frozen=True, slots=True)
class FileRule:
    """A rule in a file. What a file written by hand leaves out is None."""

    draft: RuleDraft
    rule_id: UUID | None = None
    source: str | None = None
    created_by: str | None = None
    created_at: datetime | None = None
    updated_by: str | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RuleFile:
    """All rules of the teams it names. `version`: the rule set it was exported from, None if written by hand."""

    teams: Mapping[TeamId, tuple[FileRule, ...]]
    version: int | None = None


def rule_file(version: int | None, team_ids: Iterable[TeamId], rules: Iterable[Rule]) -> RuleFile:
    """The file of these teams, sorted by name; rules of other teams are left out, a team without rules is in it."""
    by_team: dict[TeamId, list[FileRule]] = {team_id: [] for team_id in sorted(team_ids)}
    for rule in rules:
        if rule.team_id in by_team:
            by_team[rule.team_id].append(_file_rule(rule))
    return RuleFile({team_id: tuple(ones) for team_id, ones in by_team.items()}, version)


def _file_rule(rule: Rule) -> FileRule:
    return FileRule(
        draft_of(rule),
        rule.rule_id,
        rule.source,
        rule.created_by,
        rule.created_at,
        rule.updated_by,
        rule.updated_at,
    )


def render_rule_file(file: RuleFile) -> dict[str, Any]:
    """The document of a file, JSON types only. `parse_rule_file` of it is the same file again."""
    head: dict[str, Any] = {"format": FORMAT}
    if file.version is not None:
        head["version"] = file.version
    return head | {"teams": {team_id: [_rendered(rule) for rule in rules] for team_id, rules in file.teams.items()}}


def _rendered(rule: FileRule) -> dict[str, Any]:
    draft = rule.draft
    form: dict[str, Any] = {
        "rule_id": None if rule.rule_id is None else str(rule.rule_id),
        "name": draft.name,
        "channel": draft.channel,
        "filters": dict(sorted(draft.filters.items())),
        "targets": [target_json(target) for target in draft.targets],
        "priority": draft.priority,
        "active": draft.active,
        "source": rule.source,
        "created_by": rule.created_by,
        "created_at": None if rule.created_at is None else rule.created_at.isoformat(),
        "updated_by": rule.updated_by,
        "updated_at": None if rule.updated_at is None else rule.updated_at.isoformat(),
    }
    return {key: value for key, value in form.items() if value is not None}


def parse_rule_file(document: object) -> RuleFile:
    """The file in decoded JSON or YAML.

    Raises InvalidInput (code `invalid_rule_file`) at the first thing that cannot be understood; `field` is its path,
    such as `teams.root[3].channel`. Whether a rule makes sense in the tree is for `check_rule` to say.
    """
    file = _READER.fields(document, "", ("format", "version", "teams"))
    if file.get("format") != FORMAT:
        raise _READER.refuse("format", f"must be {FORMAT!r}; no other form is known")
    teams = _READER.needed(file, "teams", "")
    if not isinstance(teams, Mapping):
        raise _READER.refuse("teams", "must be an object: the name of a team, and a list of its rules")
    parsed = RuleFile({_team_id(name): _team_rules(rules, name) for name, rules in teams.items()}, _version(file))
    if len(parsed.teams) < len(teams):
        raise _READER.refuse("teams", "must name every team once; two names differ only by blanks")
    _refuse_twins(parsed)
    return parsed


def _version(file: Mapping[str, object]) -> int | None:
    version = file.get("version")
    return None if version is None else _READER.whole_number(version, "version", "a file written by hand needs none")


def _team_id(name: object) -> TeamId:
    return TeamId(_READER.text(name, f"teams.{shown(name)}"))


def _team_rules(value: object, team: object) -> tuple[FileRule, ...]:
    path = f"teams.{shown(team)}"
    return tuple(_parsed(one, f"{path}[{at}]") for at, one in enumerate(_READER.items(value, path)))


def _parsed(value: object, path: str) -> FileRule:
    rule = _READER.fields(value, path, (*DRAFT_KEYS, *_MADE_KEYS))
    return FileRule(
        draft=_READER.draft_in(rule, path),
        rule_id=_uuid(rule.get("rule_id"), f"{path}.rule_id"),
        source=_source(rule.get("source"), f"{path}.source"),
        created_by=_name(rule.get("created_by"), f"{path}.created_by"),
        created_at=_moment(rule.get("created_at"), f"{path}.created_at"),
        updated_by=_name(rule.get("updated_by"), f"{path}.updated_by"),
        updated_at=_moment(rule.get("updated_at"), f"{path}.updated_at"),
    )


def _uuid(value: object, path: str) -> UUID | None:
    if value is None:
        return None
    try:
        return UUID(value if isinstance(value, str) else "")
    except ValueError:
        raise _READER.refuse(path, "must be the UUID of a rule; leave it out for a new rule") from None


def _name(value: object, path: str) -> str | None:
    # Whoever wrote the rules of a start-up file is not always known: an empty name is one of ours.
    return None if value is None else "" if value == "" else _READER.text(value, path)


def _source(value: object, path: str) -> str | None:
    source = _name(value, path)
    if source and not source.startswith("sop:"):
        raise _READER.refuse(path, 'must be "sop:NAME", or be left out')
    return source


def _moment(value: object, path: str) -> datetime | None:
    """An RFC 3339 time. YAML makes a time of it unasked; without a zone nobody knows which one was meant."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(moment, datetime) and moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise _READER.refuse(path, "must be a time with its zone, such as 2026-01-31T09:30:00Z")


def _refuse_twins(file: RuleFile) -> None:
    """The same id twice would make one of the two vanish."""
    seen: dict[UUID, str] = {}
    for place, one in _places(file):
        here = f"{_path(place)}.rule_id"
        if one.rule_id is not None and seen.setdefault(one.rule_id, here) != here:
            raise _READER.refuse(here, f"is the same as {seen[one.rule_id]}; leave it out to make a new rule")


def changes_for(file: RuleFile, in_force: Iterable[Rule], edit: Edit) -> list[RuleChange]:
    """What makes the rules of the file's teams exactly those in the file; empty for an export of what is in force.

    `in_force`: the rules of these teams, or of all. A rule without an id is the one of the same content or, failing
    that, of the same name in its team. Raises InvalidInput when an id is that of a rule of another team.
    """
    present = {rule.rule_id: rule for rule in in_force}
    meant = _meant(file, present.values())
    changes: list[RuleChange] = []
    kept: set[UUID] = set()
    for place, one in _places(file):
        before = meant.get(place) if one.rule_id is None else present.get(one.rule_id)
        if before is not None and before.team_id != place[0]:
            message = f"is a rule of team {before.team_id}; a rule stays in its team, so leave the id out"
            raise _READER.refuse(f"{_path(place)}.rule_id", message)
        if before is None:
            changes.append(RuleChange(None, _new(one, place[0], edit)))
            continue
        kept.add(before.rule_id)
        after = _changed(before, one)
        if _content(before) != _content(after):
            changes.append(RuleChange(before, edit.stamp(after)))
    gone = (rule for rule in present.values() if rule.team_id in file.teams and rule.rule_id not in kept)
    return [*changes, *(RuleChange(rule, None) for rule in gone)]


_Place = tuple[TeamId, int]


def _places(file: RuleFile) -> Iterator[tuple[_Place, FileRule]]:
    for team_id, rules in file.teams.items():
        for at, one in enumerate(rules):
            yield (team_id, at), one


def _path(place: _Place) -> str:
    return f"teams.{shown(place[0])}[{place[1]}]"


def _meant(file: RuleFile, in_force: Iterable[Rule]) -> dict[_Place, Rule]:
    """Which rule in force a rule without an id is: the same content goes before the same name; each is meant once."""
    named = {one.rule_id for _, one in _places(file)}
    free = {rule.rule_id: rule for rule in in_force if rule.rule_id not in named}
    found: dict[_Place, Rule] = {}
    for likeness in (_all_of, _name_of):
        alike: dict[Hashable, list[Rule]] = {}
        for rule in reversed(free.values()):
            alike.setdefault((rule.team_id, likeness(draft_of(rule))), []).append(rule)
        for place, one in _places(file):
            waiting = alike.get((place[0], likeness(one.draft)))
            if one.rule_id is None and place not in found and waiting:
                found[place] = free.pop(waiting.pop().rule_id)
    return found


def _name_of(draft: RuleDraft) -> Hashable:
    return draft.name


def _all_of(draft: RuleDraft) -> Hashable:
    filters = frozenset(draft.filters.items())
    return draft.name, draft.channel, filters, draft.targets, draft.priority, draft.active


def _new(one: FileRule, team_id: TeamId, edit: Edit) -> Rule:
    """As much as the file knows, the rest by this edit: the age and the id of a rule decide which fires first."""
    return Rule(
        rule_id=one.rule_id or edit.new_id(),
        team_id=team_id,
        name=one.draft.name,
        channel=one.draft.channel,
        filters=one.draft.filters,
        targets=one.draft.targets,
        created_at=one.created_at or edit.now,
        priority=one.draft.priority,
        active=one.draft.active,
        created_by=edit.author if one.created_by is None else one.created_by,
        updated_by=edit.author if one.updated_by is None else one.updated_by,
        updated_at=one.updated_at or edit.now,
        source=one.source or "",
    )


def _changed(before: Rule, one: FileRule) -> Rule:
    """The rule in force with what the file says of it; what the file leaves out stays."""
    return replace(
        with_draft(before, one.draft),
        created_at=one.created_at or before.created_at,
        created_by=before.created_by if one.created_by is None else one.created_by,
        source=before.source if one.source is None else one.source,
    )


def difference(before: Iterable[Rule], after: Iterable[Rule]) -> list[RuleChange]:
    """What leads from one set of rules to another: changed and new ones in the order of `after`, then those removed.

    Rules that say the same are left out, whoever touched them last.
    """
    earlier = {(rule.team_id, rule.rule_id): rule for rule in before}
    changes = [RuleChange(earlier.pop((rule.team_id, rule.rule_id), None), rule) for rule in after]
    differing = (one for one in changes if one.before is None or _content(one.before) != _content(one.rule))
    return [*differing, *(RuleChange(rule, None) for rule in earlier.values())]


def restored(changes: Iterable[RuleChange], edit: Edit) -> list[RuleChange]:
    """The changes as done by this edit: what is written anew bears its author and time."""
    return [RuleChange(one.before, None if one.after is None else edit.stamp(one.after)) for one in changes]


def changed_fields(change: RuleChange) -> dict[str, tuple[Any, Any]]:
    """Field -> its JSON form before and after, where they differ; None on the side where there is no rule."""
    before = {} if change.before is None else rule_json(change.before)
    after = {} if change.after is None else rule_json(change.after)
    both = {key: (before.get(key), after.get(key)) for key in _CONTENT}
    return {key: (then, now) for key, (then, now) in both.items() if then != now}

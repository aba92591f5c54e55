"""Rules as JSON: the form of one rule, files of many, and the changes that turn the rules in force into a file's.

Called by `store/rules/versions.py` (the form in the history), `app/rules/proposals.py` (import, restore) and
`app/rules/records.py` (export, diff). Converts decoded JSON or YAML to rules and `RuleChange`s, and vice versa.
Next: `core/routing/check.py`, then `store/rules/versions.py`.

    {"format": "switchboard.rules.v1", "version": 17, "teams": {"root": [
        {"rule_id": "0199…", "name": "all", "channel": "telegram", "filters": {"chat_type": "private"},
         "targets": [{"system_id": "System1/memo"}], "priority": 0, "active": true, "copy": false,
         "reply_to_automatic": false, "source": "",
         "created_by": "control (System3/root)", "created_at": "2026-01-01T00:00:00Z",
         "updated_by": "control (System3/root)", "updated_at": "2026-01-01T00:00:00Z"}]}}

Written by hand, a rule needs only `name`, `channel` and `targets`, and the file no `version`. A file lists all rules of
the teams that it names, and leaves other teams alone. If none of its rules exists yet, an import reproduces them
exactly, metadata included; if rules differ only in who edited them last, nothing is written.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Annotated, Any, Final
from uuid import UUID

from msgspec import Struct, convert, to_builtins
from msgspec.structs import fields, replace

from switchboard.core.published import JsonShape
from switchboard.core.routing.draft import (
    DRAFT_KEYS,
    DocumentReader,
    Edit,
    draft_of,
    gist,
    shorten_name,
    with_draft,
    written_parts,
)
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.routing import Filters, Rule, RuleChange, RuleDraft, Target, TeamId

FORMAT: Final = "switchboard.rules.v1"

_MADE_KEYS: Final = ("rule_id", "source", "created_by", "created_at", "updated_by", "updated_at")
"""The parts of a rule that Switchboard sets; a file written by hand leaves them out."""
_CONTENT: Final = (*DRAFT_KEYS, "source", "created_by", "created_at")
"""A rule's contents, and what its rank depends on, but not who last edited it."""
_content = attrgetter(*_CONTENT)
_READER: Final = DocumentReader("invalid_rule_file", "the rule file")


def rule_json(rule: Rule) -> JsonObject:
    """The JSON form of a rule, complete; JSON types only, keys of filters sorted."""
    return _ids_first(_written_json(rule))


def _json_fields() -> dict[str, Any]:
    types = {one.name: one.type for one in fields(Rule)}
    return _ids_first(types | {"targets": Sequence[Mapping[str, str]]})


RuleJson = Annotated[JsonMapping, JsonShape("Rule", "A rule in force.", _json_fields)]
"""A rule as `rule_json` writes it."""


def _ids_first(form: dict[str, Any]) -> dict[str, Any]:
    return {"rule_id": form.pop("rule_id"), "team_id": form.pop("team_id"), **form}


def _written_json(rule: RuleDraft) -> JsonObject:
    targets = [target_json(target) for target in rule.targets]
    return {**to_builtins(rule), "filters": filters_json(rule.filters), "targets": targets}


def rule_from_json(form: JsonMapping) -> Rule:
    """The rule with this `rule_json`, also of an earlier release. Raises ValidationError for anything else."""
    return convert(form, Rule)


def filters_json(filters: Filters) -> JsonObject:
    """The filters as JSON, sorted by key; several values as a list."""
    return {key: one if isinstance(one, str) else list(one) for key, one in sorted(filters.items())}


def target_json(target: Target) -> dict[str, str]:
    """`{"system_id": …}` or `{"team_id": …}`."""
    both = {"system_id": target.system_id, "team_id": target.team_id}
    return {key: str(name) for key, name in both.items() if name is not None}


class FileRule(Struct, frozen=True):
    """A rule in a file. Parts left out of a handwritten file are None."""

    draft: RuleDraft
    rule_id: UUID | None = None
    source: str | None = None
    created_by: str | None = None
    created_at: datetime | None = None
    updated_by: str | None = None
    updated_at: datetime | None = None


class RuleFile(Struct, frozen=True):
    """All rules of the teams it names. `version`: the rule set it was exported from, None if written by hand."""

    teams: Mapping[TeamId, tuple[FileRule, ...]]
    version: int | None = None


def rule_file(version: int | None, team_ids: Iterable[TeamId], rules: Iterable[Rule]) -> RuleFile:
    """The file of these teams, sorted by name, including teams without rules; rules of other teams are left out."""
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


def render_rule_file(file: RuleFile) -> JsonObject:
    """The document of a file, JSON types only. `parse_rule_file` turns it into the same file again."""
    head: JsonObject = {"format": FORMAT}
    if file.version is not None:
        head["version"] = file.version
    return head | {"teams": {team_id: [_render_rule(rule) for rule in rules] for team_id, rules in file.teams.items()}}


def _render_rule(rule: FileRule) -> JsonObject:
    made = to_builtins(rule)
    del made["draft"]
    form = {"rule_id": made["rule_id"], **_written_json(rule.draft), **made}
    return {key: value for key, value in form.items() if value is not None}


def parse_rule_file(document: object) -> RuleFile:
    """The file in decoded JSON or YAML.

    Raises InvalidInput (code `invalid_rule_file`) at the first invalid value; `field` is its path, such as
    `teams.root[3].channel`. `check_rule` says whether a rule makes sense in the tree.
    """
    file = _READER.fields(document, "", ("format", "version", "teams"))
    if file.get("format") != FORMAT:
        raise _READER.refuse("format", f"must be {FORMAT!r}; no other format is supported")
    teams = _READER.require_value(file, "teams", "")
    if not isinstance(teams, Mapping):
        raise _READER.refuse("teams", "must be an object: the name of a team, and a list of its rules")
    parsed = RuleFile({_team_id(name): _team_rules(rules, name) for name, rules in teams.items()}, _version(file))
    if len(parsed.teams) < len(teams):
        raise _READER.refuse("teams", "must name every team once; two names differ only in whitespace")
    _refuse_twins(parsed)
    return parsed


def _version(file: Mapping[str, object]) -> int | None:
    version = file.get("version")
    return None if version is None else _READER.whole_number(version, "version", "optional in a handwritten file")


def _team_id(name: object) -> TeamId:
    return TeamId(_READER.text(name, f"teams.{shorten_name(name)}"))


def _team_rules(value: object, team: object) -> tuple[FileRule, ...]:
    path = f"teams.{shorten_name(team)}"
    return tuple(_parse_rule(one, f"{path}[{at}]") for at, one in enumerate(_READER.items(value, path)))


def _parse_rule(value: object, path: str) -> FileRule:
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
        raise _READER.refuse(path, "must be the UUID of a rule; omit it for a new rule") from None


def _name(value: object, path: str) -> str | None:
    # The author of rules from a start-up file is not always known, so our own exports may have an empty name.
    return None if value is None else "" if value == "" else _READER.text(value, path)


def _source(value: object, path: str) -> str | None:
    source = _name(value, path)
    if source and not source.startswith("sop:"):
        raise _READER.refuse(path, 'must be "sop:NAME", or omitted')
    return source


def _moment(value: object, path: str) -> datetime | None:
    """An RFC 3339 time, which YAML may have converted already; without a zone it would be ambiguous."""
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
    """Refuse the same id twice: one of the two rules would be lost."""
    seen: dict[UUID, str] = {}
    for place, one in _places(file):
        here = f"{_path(place)}.rule_id"
        if one.rule_id is not None and seen.setdefault(one.rule_id, here) != here:
            raise _READER.refuse(here, f"is the same as {seen[one.rule_id]}; omit it to create a new rule")


def changes_for(file: RuleFile, in_force: Iterable[Rule], edit: Edit) -> list[RuleChange]:
    """The changes that make the rules of the file's teams exactly those in the file; none for an up-to-date export.

    `in_force`: the rules of these teams, or of all. A rule without an id is matched to one with the same content or,
    failing that, the same name in its team. Raises InvalidInput if an id belongs to a rule of another team.
    """
    present = {rule.rule_id: rule for rule in in_force}
    meant = _match_rules(file, present.values())
    changes: list[RuleChange] = []
    kept: set[UUID] = set()
    for place, one in _places(file):
        before = meant.get(place) if one.rule_id is None else present.get(one.rule_id)
        _refuse_another_team(place, before)
        if before is None:
            changes.append(RuleChange(None, _new(one, place[0], edit)))
            continue
        kept.add(before.rule_id)
        after = _merge_rule(before, one)
        if _content(before) != _content(after):
            changes.append(RuleChange(before, edit.stamp(after)))
    gone = (rule for rule in present.values() if rule.team_id in file.teams and rule.rule_id not in kept)
    return [*changes, *(RuleChange(rule, None) for rule in gone)]


def _refuse_another_team(place: _Place, before: Rule | None) -> None:
    if before is not None and before.team_id != place[0]:
        message = f"is a rule of team {before.team_id}; a rule stays in its team, so omit the id"
        raise _READER.refuse(f"{_path(place)}.rule_id", message)


_Place = tuple[TeamId, int]


def _places(file: RuleFile) -> Iterator[tuple[_Place, FileRule]]:
    for team_id, rules in file.teams.items():
        for at, one in enumerate(rules):
            yield (team_id, at), one


def _path(place: _Place) -> str:
    return f"teams.{shorten_name(place[0])}[{place[1]}]"


def _match_rules(file: RuleFile, in_force: Iterable[Rule]) -> dict[_Place, Rule]:
    """The rule in force that a rule without an id is matched to: by content, then by name; each at most once."""
    named = {one.rule_id for _, one in _places(file)}
    free = {rule.rule_id: rule for rule in in_force if rule.rule_id not in named}
    found: dict[_Place, Rule] = {}
    for likeness in (gist, _name_of):
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


def _new(one: FileRule, team_id: TeamId, edit: Edit) -> Rule:
    """A new rule: what the file says, and the rest from this edit. A rule's age and id decide which fires first."""
    return Rule(
        rule_id=one.rule_id or edit.new_id(),
        team_id=team_id,
        **written_parts(one.draft),
        created_at=one.created_at or edit.now,
        created_by=edit.author if one.created_by is None else one.created_by,
        updated_by=edit.author if one.updated_by is None else one.updated_by,
        updated_at=one.updated_at or edit.now,
        source=one.source or "",
    )


def _merge_rule(before: Rule, one: FileRule) -> Rule:
    """The rule in force with the file's contents; what the file leaves out stays."""
    return replace(
        with_draft(before, one.draft),
        created_at=one.created_at or before.created_at,
        created_by=before.created_by if one.created_by is None else one.created_by,
        source=before.source if one.source is None else one.source,
    )


def difference(before: Iterable[Rule], after: Iterable[Rule]) -> list[RuleChange]:
    """The changes from one set of rules to another: changed and new ones in the order of `after`, then removed ones.

    Rules with equal contents are left out, even if edited by different people.
    """
    earlier = {(rule.team_id, rule.rule_id): rule for rule in before}
    changes = [RuleChange(earlier.pop((rule.team_id, rule.rule_id), None), rule) for rule in after]
    differing = (one for one in changes if one.before is None or _content(one.before) != _content(one.rule))
    return [*differing, *(RuleChange(rule, None) for rule in earlier.values())]


def stamp_changes(changes: Iterable[RuleChange], edit: Edit) -> list[RuleChange]:
    """The changes with the author and time of this edit on every rule that is written."""
    return [RuleChange(one.before, None if one.after is None else edit.stamp(one.after)) for one in changes]


def changed_fields(change: RuleChange) -> dict[str, tuple[Any, Any]]:
    """Field -> its JSON form before and after, where they differ; None on the side where there is no rule."""
    before = {} if change.before is None else rule_json(change.before)
    after = {} if change.after is None else rule_json(change.after)
    both = {key: (before.get(key), after.get(key)) for key in _CONTENT}
    return {key: (then, now) for key, (then, now) in both.items() if then != now}

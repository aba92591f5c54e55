"""Standing operating procedures (SOPs): the rules that a procedure needs while it is loaded.

Called by `app/rules/service.py` when an SOP is loaded or unloaded. In: its decoded JSON or YAML and the tree, then the
rules it registered before; out: `RuleChange`s of exactly its own rules. Next: `core/routing/check.py`,
`store/rules/versions.py`.

    name: First Run
    routing_requirements:
      - {team: root, target: onboarding, channel: telegram, filters: {chat_type: private}}
      - {team: onboarding, agent: interviewer, channel: telegram}
      - {team: onboarding, role: translator, channel: email, name: mails of new users, priority: 10}

The receiver is named in one of three ways: `agent`, a butler of the team; `role`, all butlers of the team with this
capability; `target`, a system or a direct sub-team by its name. The rest of the file is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.routing.draft import DRAFT_KEYS, DocumentReader, Edit, new_rule, shorten_name, with_draft
from switchboard.core.text.words import near, or_list
from switchboard.domain.routing import Member, Rule, RuleChange, RuleDraft, SystemId, Target, Team, TeamId

PREFIX: Final = "sop:"
"""The prefix of the source of an SOP's rules; its name follows."""

_REQUIREMENTS: Final = "routing_requirements"
_WHO: Final = ("agent", "role", "target")
_KEYS: Final = ("name", "team", *(key for key in DRAFT_KEYS if key not in {"name", "active", "targets"}), *_WHO)
_READER: Final = DocumentReader("invalid_sop", "the SOP")

Teams = Mapping[TeamId, Team]


class Sop(Struct, frozen=True):
    """A procedure's name, and the rules it needs, each with its team. No two rules of a team have the same name."""

    name: str
    drafts: tuple[tuple[TeamId, RuleDraft], ...]

    @property
    def source(self) -> str:
        """The source of its rules."""
        return PREFIX + self.name


def parse_sop(document: object, teams: Teams) -> Sop:
    """The name and the rules in one SOP file.

    Raises InvalidInput (code `invalid_sop`) at the first invalid value; `field` is its path, such as
    `routing_requirements[0].agent`. `check_rule` says whether a rule makes sense in the tree.
    """
    if not isinstance(document, Mapping):
        raise _READER.refuse("", "must be an object")
    name = _READER.text(_READER.require_value(document, "name", ""), "name")
    requirements = enumerate(_READER.items(_requirements(document), _REQUIREMENTS))
    drafts = tuple(_requirement(one, f"{_REQUIREMENTS}[{at}]", name, teams) for at, one in requirements)
    _refuse_twins(drafts)
    return Sop(name, drafts)


def _requirements(document: Mapping[str, object]) -> object:
    """An SOP may need no rules; a misspelt key must not be mistaken for that."""
    if _REQUIREMENTS not in document:
        for key in document:
            if near(shorten_name(key), (_REQUIREMENTS,)):
                raise _READER.refuse(shorten_name(key), f"is unknown; did you mean {_REQUIREMENTS}?")
    return document.get(_REQUIREMENTS, [])


def _requirement(value: object, path: str, sop: str, teams: Teams) -> tuple[TeamId, RuleDraft]:
    fields = _READER.fields(value, path, _KEYS)
    team_id = TeamId(_READER.text(_READER.require_value(fields, "team", path), f"{path}.team"))
    who = [key for key in _WHO if key in fields]
    if len(who) != 1:
        raise _READER.refuse(path, f"must name the recipient: exactly one of {or_list(_WHO)}")
    meant = _READER.text(fields[who[0]], f"{path}.{who[0]}")
    targets = _targets(who[0], meant, f"{path}.{who[0]}", teams.get(team_id))
    return team_id, replace(
        _READER.draft_in({"name": f"{sop}: {meant}", **fields, "targets": []}, path), targets=targets
    )


def _targets(how: str, meant: str, path: str, team: Team | None) -> tuple[Target, ...]:
    if how == "role":
        return _with_role(meant, path, team)
    if "/" in meant:
        return (Target(system_id=SystemId(meant)),)
    return (Target(system_id=SystemId(f"System1/{meant}")) if how == "agent" else Target(team_id=TeamId(meant)),)


def _with_role(role: str, path: str, team: Team | None) -> tuple[Target, ...]:
    """Every active butler of the team that has this capability, by name. An unknown team is left to `check_rule`."""
    if team is None:
        return ()
    butlers = [one for one in team.members if one.number == 1 and one.active]
    able = sorted(one.system_id for one in butlers if role in one.capabilities)
    if not able:
        hint = _roles_of(butlers)
        raise _READER.refuse(path, f"{role!r}: no active butler of team {team.team_id} has this capability; {hint}")
    return tuple(Target(system_id=system_id) for system_id in able)


def _roles_of(butlers: Iterable[Member]) -> str:
    roles = {capability for one in butlers for capability in one.capabilities}
    return f"the roles there are {or_list(roles)}" if roles else "its butlers have no capabilities"


def _refuse_twins(drafts: Iterable[tuple[TeamId, RuleDraft]]) -> None:
    """Names must be unique: a rule is recognised by its name when the SOP is loaded again."""
    seen: dict[tuple[TeamId, str], int] = {}
    for at, (team_id, draft) in enumerate(drafts):
        first = seen.setdefault((team_id, draft.name), at)
        if first != at:
            message = f"{draft.name!r} is the name of {_REQUIREMENTS}[{first}] as well; give each its own name"
            raise _READER.refuse(f"{_REQUIREMENTS}[{at}].name", message)


def sop_changes(sop: Sop, rules: Iterable[Rule], edit: Edit) -> list[RuleChange]:
    """The changes that make the SOP's rules those of its file: new, changed and reactivated ones, the rest disabled.

    `rules` are those in force; those of other sources are left alone. Empty if the SOP is already loaded and unchanged.
    """
    waiting: dict[tuple[TeamId, str], list[Rule]] = {}
    for rule in rules:
        if rule.source == sop.source:
            waiting.setdefault((rule.team_id, rule.name), []).append(rule)
    changes: list[RuleChange] = []
    for team_id, draft in sop.drafts:
        known = waiting.get((team_id, draft.name))
        before = known.pop(0) if known else None
        after = new_rule(draft, team_id, edit, sop.source) if before is None else with_draft(before, draft)
        if before is None or after != before:
            changes.append(RuleChange(before, edit.stamp(after)))
    return changes + _disable_rules((rule for left in waiting.values() for rule in left), edit)


def unload_changes(name: str, rules: Iterable[Rule], edit: Edit) -> list[RuleChange]:
    """The changes that disable all rules of the SOP of this name; empty if none of them is active."""
    return _disable_rules((rule for rule in rules if rule.source == PREFIX + name), edit)


def _disable_rules(rules: Iterable[Rule], edit: Edit) -> list[RuleChange]:
    return [RuleChange(rule, edit.stamp(replace(rule, active=False))) for rule in rules if rule.active]

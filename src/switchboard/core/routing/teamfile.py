"""Team files: a team, its systems and its first rules in the JSON form of the seeds.

Called by `app/seed.py` when a team is seeded from a file. A JSON-decoded object enters, a
`TeamFile` leaves; what cannot be understood is refused with its path in the file. Next: `core/routing/check.py`, which
says whether the team and its rules make sense in the tree.

    {"team": {"name": "onboarding", "parent": "root"},
     "purpose": "Get to know new users",
     "systems": [{"name": "interviewer", "type": "operation", "engine": "model"}, {"type": "intelligence"}],
     "routing_rules": [{"name": "all", "channel": "telegram", "targets": [{"system_id": "System1/interviewer"}]}]}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from switchboard.core.channels import near, or_list
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import Member, SystemId, SystemNumber, Target, Team, TeamId

DEFAULT_ENGINE: Final = "memo"
"""The engine of a system whose file names none: it needs no model and no network."""

MAX_TEXT: Final = 512
"""Longest name, id or filter value in characters, as in an envelope."""

_TYPES: Final[Mapping[str, SystemNumber]] = {
    "operation": 1,
    "coordination": 2,
    "control": 3,
    "intelligence": 4,
    "policy": 5,
}
_NUMBERS: Final[Mapping[str, SystemNumber]] = {str(number): number for number in _TYPES.values()}
_SYSTEM_ID = re.compile(r"System([1-5])/([^/]+)")
_TEAM_FILE_KEYS: Final = frozenset({"team", "purpose", "systems", "routing_rules"})
_SEED_KEYS: Final = frozenset({"strategy", "procedures", "allowed_skills", "auto_execute_procedure"})
"""Parts of the seed's form that mean nothing here: accepted, so that its files load, and ignored."""
_SYSTEM_KEYS: Final = frozenset(
    {"name", "type", "agent_id", "description", "capabilities", "engine", "config", "active", "skill_grants"}
)
_RULE_KEYS: Final = frozenset({"name", "channel", "filters", "priority", "active", "targets"})


@dataclass(frozen=True, slots=True)
class RuleDraft:
    """A rule as written; it gets its id, team and times when it is stored."""

    name: str
    channel: str
    targets: tuple[Target, ...]
    filters: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    active: bool = True


@dataclass(frozen=True, slots=True)
class TeamFile:
    """A team with its members, and the rules it starts with."""

    team: Team
    rules: tuple[RuleDraft, ...] = ()


def parse_team_file(document: object) -> TeamFile:
    """The team and rules of one file.

    `document` is the decoded JSON. Raises InvalidInput (code `invalid_team_file`) at the first thing that cannot be
    understood; its `field` is the path, such as `systems[0].type`, and its message says what would be right.
    """
    file = _object(document, "", _TEAM_FILE_KEYS | _SEED_KEYS)
    head = _object(_needed(file, "team", ""), "team", frozenset({"name", "parent"}))
    team_id = TeamId(_text(_needed(head, "name", "team"), "team.name"))
    parent = None if head.get("parent") is None else TeamId(_text(head["parent"], "team.parent"))
    systems = _list(file.get("systems", []), "systems")
    members = tuple(_member(one, f"systems[{at}]", team_id) for at, one in enumerate(systems))
    rules = _list(file.get("routing_rules", []), "routing_rules")
    drafts = tuple(_rule(one, f"routing_rules[{at}]") for at, one in enumerate(rules))
    return TeamFile(Team(team_id, parent, _purpose(file.get("purpose", "")), members), drafts)


def _refuse(path: str, message: str) -> InvalidInput:
    where = path or "the file"
    return InvalidInput(f"{where} {message}", code="invalid_team_file", field=path or None)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _object(value: object, path: str, keys: frozenset[str]) -> Mapping[str, object]:
    """A JSON object that has no other keys than these."""
    if not isinstance(value, Mapping):
        raise _refuse(path, "must be an object")
    for key in value:
        if key not in keys:
            meant = near(str(key), keys) or tuple(keys)
            raise _refuse(_below(path, str(key)), f"is not known here; did you mean {or_list(meant)}?")
    return value


def _needed(value: Mapping[str, object], key: str, path: str) -> object:
    if key not in value:
        raise _refuse(_below(path, key), "is missing")
    return value[key]


def _list(value: object, path: str) -> list[object]:
    if not isinstance(value, list):
        raise _refuse(path, "must be a list")
    return value


def _text(value: object, path: str) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not text or len(text) > MAX_TEXT or not text.isprintable():
        raise _refuse(path, f"must be a text of one line, of 1 to {MAX_TEXT} characters")
    return text


def _free_text(value: object, path: str) -> str:
    if not isinstance(value, str) or "\x00" in value:
        raise _refuse(path, "must be a text (without NUL)")
    return value.strip()


def _truth(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise _refuse(path, "must be true or false")
    return value


def _purpose(value: object) -> str:
    """A text, or the seed's form: an object with name and content."""
    if isinstance(value, str):
        return _free_text(value, "purpose")
    purpose = _object(value, "purpose", frozenset({"name", "content"}))
    words = (_free_text(purpose.get(key, ""), f"purpose.{key}") for key in ("name", "content"))
    return ": ".join(word for word in words if word)


def _member(value: object, path: str, team_id: TeamId) -> Member:
    system = _object(value, path, _SYSTEM_KEYS)
    system_id, number = _system_id(system, path, team_id)
    capabilities = _list(system.get("capabilities", []), f"{path}.capabilities")
    return Member(
        system_id=system_id,
        team_id=team_id,
        number=number,
        engine=_text(system.get("engine", DEFAULT_ENGINE), f"{path}.engine"),
        options=_options(system.get("config", {}), f"{path}.config"),
        description=_free_text(system.get("description", ""), f"{path}.description"),
        capabilities=tuple(_text(one, f"{path}.capabilities[{at}]") for at, one in enumerate(capabilities)),
        active=_truth(system.get("active", True), f"{path}.active"),
    )


def _options(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise _refuse(path, "must be an object: the options of the engine")
    return dict(value)


def _system_id(system: Mapping[str, object], path: str, team_id: TeamId) -> tuple[SystemId, SystemNumber]:
    """`System1/interviewer` from a name in that form, or from a plain name and a type.

    A seed's `agent_id` in that form is the address that its rules use, so it goes before a name that is only a label.
    Systems 2 to 5 need no name: they bear their team's.
    """
    said = _number(system["type"], f"{path}.type") if "type" in system else None
    addresses = [system[key] for key in ("agent_id", "name") if isinstance(system.get(key), str)]
    match = next((found for one in addresses if (found := _SYSTEM_ID.fullmatch(str(one).strip()))), None)
    if match is not None:
        number = _NUMBERS[match[1]]
        if said not in (None, number):
            raise _refuse(f"{path}.type", f"says System{said}, but it is called {match[0]}")
        return SystemId(match[0]), number
    if said is None:
        raise _refuse(f"{path}.type", f"is missing; it is {or_list(_TYPES)}, or the name says it: System1/NAME")
    name = _text(system.get("name", team_id if said != 1 else None), f"{path}.name")
    if "/" in name:
        raise _refuse(f"{path}.name", f"{name!r} must be NAME or System{said}/NAME")
    return SystemId(f"System{said}/{name}"), said


def _number(value: object, path: str) -> SystemNumber:
    word = str(value).strip().lower()
    number = _TYPES.get(word) or _NUMBERS.get(word)
    if number is None:
        raise _refuse(path, f"{value!r} is not known; it is {or_list(_TYPES)}, or a number from 1 to 5")
    return number


def _rule(value: object, path: str) -> RuleDraft:
    rule = _object(value, path, _RULE_KEYS)
    targets = _list(_needed(rule, "targets", path), f"{path}.targets")
    return RuleDraft(
        name=_text(_needed(rule, "name", path), f"{path}.name"),
        channel=_text(_needed(rule, "channel", path), f"{path}.channel"),
        targets=tuple(_target(one, f"{path}.targets[{at}]") for at, one in enumerate(targets)),
        filters=_filters(rule.get("filters", {}), f"{path}.filters"),
        priority=_priority(rule.get("priority", 0), f"{path}.priority"),
        active=_truth(rule.get("active", True), f"{path}.active"),
    )


def _priority(value: object, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _refuse(path, "must be a whole number; higher is looked at first")
    return value


def _filters(value: object, path: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _refuse(path, "must be an object of key and value")
    return {str(key): _filter_value(one, f"{path}.{key}") for key, one in value.items()}


def _filter_value(value: object, path: str) -> str:
    """A text; a whole number is taken as its digits, since ids are often written so. Never null as the word "None"."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64:
        return str(value)
    return _text(value, path)


def _target(value: object, path: str) -> Target:
    target = _object(value, path, frozenset({"system_id", "team_id"}))
    if len(target) != 1:
        raise _refuse(path, 'must have exactly one key: {"system_id": "System1/NAME"} or {"team_id": "NAME"}')
    if "system_id" in target:
        return Target(system_id=SystemId(_text(target["system_id"], f"{path}.system_id")))
    return Target(team_id=TeamId(_text(target["team_id"], f"{path}.team_id")))


_ROOT: Final = TeamId("root")
_MEMO: Final = SystemId("System1/memo")

DEFAULT_TEAM: Final = TeamFile(
    Team(
        _ROOT,
        None,
        "Take every message, and lose none",
        (
            Member(_MEMO, _ROOT, 1, DEFAULT_ENGINE, description="Notes down what it is told"),
            Member(SystemId("System4/root"), _ROOT, 4, DEFAULT_ENGINE, description="Is told of dead letters"),
        ),
    ),
    (RuleDraft("Everything to memo", "*", (Target(system_id=_MEMO),)),),
)
"""What a new installation starts with: one butler that answers, and a System4 for what nobody can take."""

"""Team files: a team, its systems and its first rules in the JSON form of the seed data.

Called by `app/rules/seed.py` when a team is seeded from a file. In: a JSON-decoded object; out: a `TeamFile`; invalid
input is refused with its path in the file. Next: `core/routing/check.py`, which says whether the team and its rules
make sense in the tree.

    {"team": {"name": "onboarding", "parent": "root"},
     "purpose": "Get to know new users", "classify": false,
     "systems": [{"name": "interviewer", "type": "operation", "engine": "model"}, {"type": "intelligence"}],
     "routing_rules": [{"name": "all", "channel": "telegram", "targets": [{"system_id": "System1/interviewer"}]}]}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from switchboard.core.routing.draft import DocumentReader
from switchboard.core.text.words import or_list
from switchboard.domain.routing import Member, RuleDraft, SystemId, SystemNumber, Target, Team, TeamId

_ROOT: Final = TeamId("root")
DEFAULT_ENGINE: Final = "memo"
"""The engine of a system whose file names none: it needs no model and no network."""

_TYPES: Final[Mapping[str, SystemNumber]] = {
    "operation": 1,
    "coordination": 2,
    "control": 3,
    "intelligence": 4,
    "policy": 5,
}
_NUMBERS: Final[Mapping[str, SystemNumber]] = {str(number): number for number in _TYPES.values()}
_SYSTEM_ID = re.compile(r"System([1-5])/([^/]+)")
_TEAM_FILE_KEYS: Final = frozenset({"team", "purpose", "classify", "systems", "routing_rules"})
_SEED_KEYS: Final = frozenset({"strategy", "procedures", "allowed_skills", "auto_execute_procedure"})
"""Parts of the seed format without a meaning here: accepted so that its files load, but ignored."""
_SYSTEM_KEYS: Final = frozenset(
    {"name", "type", "agent_id", "description", "capabilities", "engine", "config", "active", "skill_grants"}
)
_READER: Final = DocumentReader("invalid_team_file", "the file")


class TeamFile(Struct, frozen=True):
    """A team with its members, and the rules it starts with."""

    team: Team
    rules: tuple[RuleDraft, ...] = ()


def parse_team_file(document: object, named: str = "") -> TeamFile:
    """The team and rules of one file.

    `document` is the decoded JSON, `named` the file's name without its suffix. A file that names no team, as in the
    seed, describes the team it is named after (`root_team`), below the root, with the systems that its rules name.
    Raises InvalidInput (code `invalid_team_file`) at the first invalid value; its `field` is the path, such as
    `systems[0].type`, and its message says what is expected.
    """
    file = _READER.fields(document, "", _TEAM_FILE_KEYS | _SEED_KEYS)
    bare = "team" not in file and bool(named)
    team_id, parent = _by_name(named) if bare else _head(file)
    rules = _READER.items(file.get("routing_rules", []), "routing_rules")
    drafts = tuple(_READER.draft(one, f"routing_rules[{at}]") for at, one in enumerate(rules))
    systems = _READER.items(file.get("systems", _systems_in(drafts) if bare else []), "systems")
    members = tuple(_member(one, f"systems[{at}]", team_id) for at, one in enumerate(systems))
    classify = _READER.truth(file.get("classify", False), "classify")
    return TeamFile(Team(team_id, parent, _purpose(file.get("purpose", "")), members, classify), drafts)


def _head(file: Mapping[str, object]) -> tuple[TeamId, TeamId | None]:
    """The team and its parent."""
    head = _READER.fields(_READER.require_value(file, "team", ""), "team", frozenset({"name", "parent"}))
    team_id = TeamId(_READER.text(_READER.require_value(head, "name", "team"), "team.name"))
    return team_id, None if head.get("parent") is None else TeamId(_READER.text(head["parent"], "team.parent"))


def _by_name(named: str) -> tuple[TeamId, TeamId | None]:
    """The same from the name of the file: `root_team`, `onboarding_team`."""
    team_id = TeamId(_READER.text(named.removesuffix("_team"), "team.name"))
    return team_id, None if team_id == _ROOT else _ROOT


def _systems_in(drafts: Iterable[RuleDraft]) -> list[object]:
    """The systems that rules name, in the form in which a file lists them."""
    names = (target.system_id for draft in drafts for target in draft.targets)
    return [{"name": name} for name in dict.fromkeys(names) if name is not None]


def _purpose(value: object) -> str:
    """A text, or in the seed format an object with name and content."""
    if isinstance(value, str):
        return _READER.free_text(value, "purpose")
    purpose = _READER.fields(value, "purpose", frozenset({"name", "content"}))
    words = (_READER.free_text(purpose.get(key, ""), f"purpose.{key}") for key in ("name", "content"))
    return ": ".join(word for word in words if word)


def _member(value: object, path: str, team_id: TeamId) -> Member:
    system = _READER.fields(value, path, _SYSTEM_KEYS)
    system_id, number = _system_id(system, path, team_id)
    capabilities = _READER.items(system.get("capabilities", []), f"{path}.capabilities")
    return Member(
        system_id=system_id,
        team_id=team_id,
        number=number,
        engine=_READER.text(system.get("engine", DEFAULT_ENGINE), f"{path}.engine"),
        options=_options(system.get("config", {}), f"{path}.config"),
        description=_READER.free_text(system.get("description", ""), f"{path}.description"),
        capabilities=tuple(_READER.text(one, f"{path}.capabilities[{at}]") for at, one in enumerate(capabilities)),
        active=_READER.truth(system.get("active", True), f"{path}.active"),
    )


def _options(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise _READER.refuse(path, "must be an object: the options of the engine")
    return dict(value)


def _system_id(system: Mapping[str, object], path: str, team_id: TeamId) -> tuple[SystemId, SystemNumber]:
    """`System1/interviewer` from a name in that form, or from a plain name and a type.

    A seed's `agent_id` in that form is the address that its rules use, so it takes precedence over a name, which is
    only a label. Systems 2 to 5 need no name: they have their team's.
    """
    said = _number(system["type"], f"{path}.type") if "type" in system else None
    addresses = [system[key] for key in ("agent_id", "name") if isinstance(system.get(key), str)]
    match = next((found for one in addresses if (found := _SYSTEM_ID.fullmatch(str(one).strip()))), None)
    if match is not None:
        number = _NUMBERS[match[1]]
        if said not in (None, number):
            raise _READER.refuse(f"{path}.type", f"says System{said}, but it is called {match[0]}")
        return SystemId(match[0]), number
    if said is None:
        raise _READER.refuse(f"{path}.type", f"is missing; it is {or_list(_TYPES)}, or the name says it: System1/NAME")
    name = _READER.text(system.get("name", team_id if said != 1 else None), f"{path}.name")
    if "/" in name:
        raise _READER.refuse(f"{path}.name", f"{name!r} must be NAME or System{said}/NAME")
    return SystemId(f"System{said}/{name}"), said


def _number(value: object, path: str) -> SystemNumber:
    word = str(value).strip().lower()
    number = _TYPES.get(word) or _NUMBERS.get(word)
    if number is None:
        raise _READER.refuse(path, f"{value!r} is not known; it is {or_list(_TYPES)}, or a number from 1 to 5")
    return number


_MEMO: Final = SystemId("System1/memo")

DEFAULT_TEAM: Final = TeamFile(
    Team(
        _ROOT,
        None,
        "Receive every message and lose none",
        (
            Member(_MEMO, _ROOT, 1, DEFAULT_ENGINE, description="Files every message"),
            Member(SystemId("System4/root"), _ROOT, 4, DEFAULT_ENGINE, description="Is notified of dead letters"),
        ),
    ),
    (RuleDraft("Everything to memo", "*", {}, (Target(system_id=_MEMO),)),),
)
"""The teams of a new installation: one butler that answers, and a System4 for undeliverable messages."""

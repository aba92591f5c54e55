"""The actions of tokens, which lie beside their services: each name once, and as `docs/api.md` prints them."""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType

import switchboard.app
import switchboard.server
from switchboard.app.access import Action, AnyRole

DOCS = Path(__file__).parents[2] / "docs" / "api.md"
ORDER: tuple[AnyRole, ...] = ("connector", "agent", "metrics", "approver", "session")


def modules_of(package: ModuleType) -> list[ModuleType]:
    return [import_module(found.name) for found in walk_packages(package.__path__, f"{package.__name__}.")]


def declared() -> set[Action]:
    modules = [*modules_of(switchboard.app), *modules_of(switchboard.server)]
    return {value for module in modules for value in vars(module).values() if isinstance(value, Action)}


def test_every_action_has_a_name_of_its_own() -> None:
    names = [action.name for action in declared()]
    assert sorted(names) == sorted(set(names))


def test_the_manual_prints_who_may_what() -> None:
    """So that a change of rights is seen where it is reviewed."""
    by_role = defaultdict[str, list[str]](list)
    for action in sorted(declared(), key=lambda action: action.name):
        others = [role for role in ORDER if role in action.roles]
        by_role[" or ".join(others) or "operator"].append(f"`{action.name}`")
    table = [f"| {role} | {', '.join(names)} |" for role, names in sorted(by_role.items())]
    assert "\n".join(["| role | actions |", "|---|---|", *table]) in DOCS.read_text()

"""The size of the files that every feature edits.

Called by `__main__.py`. In: modules; out: lines and imports of our own modules. Next: nobody.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from tests.shapes.source import Module

HUBS: Final = (
    "app/settings.py",
    "app/access.py",
    "app/wiring.py",
    "app/ops/doctor.py",
    "app/ops/checks.py",
    "app/ops/maintenance.py",
    "app/ops/periodic.py",
    "app/messages/views.py",
    "cli/main.py",
    "cli/output.py",
    "domain/shown.py",
    "server/app.py",
    "server/services.py",
    "server/contracts/connectors.py",
    "server/http/services.py",
    "server/http/schema_names.py",
)
"""Those that were edited by the most topics in the last 150 and 500 commits, and the lists that took their place."""


class Hub(Struct, frozen=True):
    """How many lines it has, and how many of our modules it imports from."""

    lines: int
    imports: int


def measure_hubs(modules: Iterable[Module]) -> dict[str, Hub]:
    """The hubs that there are, by their path."""
    by_path = {module.path: module for module in modules}
    return {path: measure_hub(by_path[path]) for path in HUBS if path in by_path}


def measure_hub(module: Module) -> Hub:
    """Imports also count where they stand inside a function; several names of one module count once."""
    names = {
        name
        for node in ast.walk(module.tree)
        for name in _imported(node)
        if name == "switchboard" or name.startswith("switchboard.")
    }
    return Hub(len(module.text.splitlines()), len(names))


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []

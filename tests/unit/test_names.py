"""Every type has its name for itself, so that a reader who searches for it finds one."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import switchboard

SOURCE: Final = Path(switchboard.__file__).parent
NAMED_BY_OTHERS: Final = ("server/contracts/", "testing/")
"""Documents of the API, and what plays the servers of others: they are named as it is read there."""


def places_of_types() -> dict[str, list[str]]:
    """Where each public type is defined, by its name."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    return found


def test_no_two_types_share_a_name() -> None:
    doubled = {
        name: ours
        for name, places in places_of_types().items()
        if len(ours := [place for place in places if not place.startswith(NAMED_BY_OTHERS)]) > 1
    }
    assert doubled == {}

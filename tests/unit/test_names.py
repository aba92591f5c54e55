"""What others import from us has its name for itself."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import switchboard

SOURCE: Final = Path(switchboard.__file__).parent
PUBLIC: Final = ("domain/", "ports/")
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


def test_no_other_type_is_called_as_one_of_ports_or_domain() -> None:
    doubled = {
        name: places
        for name, places in places_of_types().items()
        if any(place.startswith(PUBLIC) for place in places)
        and len([place for place in places if not place.startswith(NAMED_BY_OTHERS)]) > 1
    }
    assert doubled == {}

"""Every type has its name for itself, so that a reader who searches for it finds one; names of tests are short."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import switchboard

SOURCE: Final = Path(switchboard.__file__).parent
PUBLIC: Final = ("domain/", "ports/")
LONGEST_TEST_NAME: Final = 70
NAMED_BY_OTHERS: Final = ("server/contracts/", "testing/", "examples/")
"""Documents of the API, and what plays the servers of others: they are named as it is read there. Examples are read
by themselves."""


def places_of_types() -> dict[str, list[str]]:
    """Where each public type is defined, by its name."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    return found


def aliases(path: Path) -> set[str]:
    """Names for other types; what says of a parameter where it comes from (`Annotated`) is no type."""
    found = {
        (target.id, node.value)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id[0].isupper() and not target.id.isupper()
    }
    return {name for name, value in found if not ast.unparse(value).startswith("Annotated[")}


def test_no_alias_is_called_as_a_type_of_ports_or_domain() -> None:
    public = [path for name in PUBLIC for path in (SOURCE / name).rglob("*.py")]
    taken = {name for name, places in places_of_types().items() if any(place.startswith(PUBLIC) for place in places)}
    taken |= {name for path in public for name in aliases(path)}
    others = {
        path for path in SOURCE.rglob("*.py") if not path.relative_to(SOURCE).as_posix().startswith(NAMED_BY_OTHERS)
    }
    assert {path.name: doubled for path in others - {*public} if (doubled := aliases(path) & taken)} == {}


def test_no_two_types_share_a_name() -> None:
    doubled = {
        name: ours
        for name, places in places_of_types().items()
        if len(ours := [place for place in places if not place.startswith(NAMED_BY_OTHERS)]) > 1
    }
    assert doubled == {}


def test_names_of_tests_fit_a_line() -> None:
    names = (
        name
        for path in Path(__file__).parents[1].rglob("*.py")
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert [name for name in names if len(name) > LONGEST_TEST_NAME] == []

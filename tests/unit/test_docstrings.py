"""What the docstrings of modules name is there: who calls a module mentions it, and a page of the manual exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from tests.documents import HOME

SOURCE: Final = HOME / "src" / "switchboard"
MODULES: Final = sorted(SOURCE.rglob("*.py"))
FILES: Final = [str(path) for top in (SOURCE, HOME / "tests") for path in top.rglob("*.py")]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_what_a_module_names_is_there(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    told = ast.get_docstring(ast.parse(text)) or ""
    name = module.parent.name if module.stem == "__init__" else module.stem
    for caller in re.findall(r"Called by `([\w/]+\.py)`", told):
        found = [SOURCE / caller, module.parent / caller]
        callers = "".join(path.read_text(encoding="utf-8") for path in found if path.exists())
        assert re.search(rf"\b{name}\b", callers), f"{caller} does not know {name}"
    for other in re.findall(r"`([\w/]+\.py)`", told):
        assert any(path.endswith(f"/{other}") for path in FILES), f"{other} is not there"
    for number in re.findall(r"docs/decisions/(\d{4})", text):
        assert list((HOME / "docs" / "decisions").glob(f"{number}-*.md")), f"there is no decision {number}"

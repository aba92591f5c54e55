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
def test_a_caller_that_is_named_mentions_the_module(module: Path) -> None:
    told = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    name = module.parent.name if module.stem == "__init__" else module.stem
    for caller in re.findall(r"Called by `([\w/]+\.py)`", told):
        found = [SOURCE / caller, module.parent / caller]
        text = "".join(path.read_text(encoding="utf-8") for path in found if path.exists())
        assert re.search(rf"\b{name}\b", text), f"{caller} does not know {name}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_decisions_that_are_named_are_there(module: Path) -> None:
    for number in re.findall(r"docs/decisions/(\d{4})", module.read_text(encoding="utf-8")):
        assert list((HOME / "docs" / "decisions").glob(f"{number}-*.md")), f"there is no decision {number}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_that_are_named_are_there(module: Path) -> None:
    told = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    for name in re.findall(r"`([\w/]+\.py)`", told):
        assert any(path.endswith(f"/{name}") for path in FILES), f"{name} is not there"

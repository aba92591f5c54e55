"""The modules of the product as syntax trees.

Called by all that counts. In: the directory of the package `switchboard`; out: its modules. The examples are others'
programs, and are left out. Next: `records.py`, `names.py`, `hubs.py`.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, convert

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "switchboard"
WORDS_FILE: Final = Path(__file__).parent / "shapes.toml"
OTHERS: Final = ("examples/",)


class Module(Struct, frozen=True):
    """A file of the source: its path below the package, its text and its tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The directory that it is in, `.` for the topmost."""
        return Path(self.path).parent.as_posix()

    @property
    def dotted(self) -> str:
        """The name by which it is imported."""
        return ".".join(["switchboard", *Path(self.path).with_suffix("").parts]).removesuffix(".__init__")


class Lists(Struct, frozen=True, forbid_unknown_fields=True):
    """What people have written down in `shapes.toml`: reasons, and words."""

    pairs: Mapping[str, str]
    rules: Mapping[str, str]
    irregular_participles: frozenset[str]
    no_participles: frozenset[str]
    verbs_of_methods: frozenset[str]
    copies: frozenset[str]


def module_of(path: str, text: str) -> Module:
    """Raises `SyntaxError`."""
    return Module(path, text, ast.parse(text))


def read_modules(source: Path = SOURCE) -> tuple[Module, ...]:
    """All modules, sorted by path."""
    paths = {path.relative_to(source).as_posix(): path for path in source.rglob("*.py")}
    return tuple(
        module_of(name, path.read_text(encoding="utf-8"))
        for name, path in sorted(paths.items())
        if not name.startswith(OTHERS)
    )


def read_lists() -> Lists:
    """The file of reasons and words. Raises `msgspec.ValidationError` if something in it has another form."""
    read = tomllib.loads(WORDS_FILE.read_text(encoding="utf-8"))
    return convert({name: one.split() if isinstance(one, str) else one for name, one in read.items()}, Lists)

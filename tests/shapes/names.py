"""Names of functions: those of one word that say too little, and participles that stand alone.

Called by `__main__.py`. In: modules, and the lists of words in `shapes.toml`; out: each function with what it is
counted as. What has its name from elsewhere is counted apart: methods that a protocol or a base class names,
properties, validators, nested functions, functions called through their module (`tokens.find`), commands, methods whose
object is their class (`read`, `send`), and copies named as Python names its own (`sorted`). Next: `figures.py`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from tests.shapes.source import Lists, Module

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLACE: Final = re.compile(r"[\w.]+:([a-z_]\w*)")
_BY_DECORATOR: Final = {
    "property": ("property", ".setter", ".getter"),
    "validator": ("validator", "serializer", "computed_field"),
    "command": (".command", ".callback"),
}


class Function(Struct, frozen=True):
    """A function or method; `apart` says why its name is not counted, empty if it is."""

    package: str
    path: str
    line: int
    name: str
    is_method: bool
    apart: str

    @property
    def is_private(self) -> bool:
        """Whether only its own module or class uses it."""
        return self.name.startswith("_")

    @property
    def word(self) -> str:
        """Its name without leading underscores."""
        return self.name.strip("_")

    @property
    def is_one_word(self) -> bool:
        """Whether no second word says what it acts on."""
        return "_" not in self.word

    @property
    def is_public_of_module(self) -> bool:
        """Whether other modules can import it, and it is not a query of the store."""
        return not (self.is_private or self.is_method or self.package.split("/")[0] == "store")


class Uses(Struct, frozen=True):
    """How functions are used elsewhere, as (module, name)."""

    through_module: frozenset[tuple[str, str]]
    by_name: frozenset[tuple[str, str]]
    places: frozenset[str]
    """Names in strings such as `run:up`."""


def is_participle(word: str, lists: Lists) -> bool:
    """Whether it is a past participle by our lists: all that ends with `ed`, and the irregular ones."""
    return (word.endswith("ed") and word not in lists.no_participles) or word in lists.irregular_participles


def find_functions(modules: Iterable[Module], lists: Lists) -> list[Function]:
    """All functions but those with names of Python's own (`__eq__`)."""
    listed = list(modules)
    uses = find_uses(listed)
    methods: defaultdict[str, set[str]] = defaultdict(set)
    protocols: set[str] = set()
    for one in (node for module in listed for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)):
        methods[one.name] |= _methods(one)
        if any("Protocol" in ast.unparse(base) for base in one.bases):
            protocols |= _methods(one)
    found = []
    for module in listed:
        for node, above in _walk(module.tree, module.tree):
            inherited = protocols.union(*(methods.get(base, ()) for base in _bases(above)))
            why = _apart(node, above, inherited, lists) or _apart_by_use(node, above, module, uses)
            found.append(
                Function(module.package, module.path, node.lineno, node.name, isinstance(above, ast.ClassDef), why)
            )
    return [one for one in found if not (one.name.startswith("__") and one.name.endswith("__"))]


def find_uses(modules: Iterable[Module]) -> Uses:
    """What all modules import, and through which name they call it."""
    listed = list(modules)
    known = {module.dotted for module in listed}
    through: set[tuple[str, str]] = set()
    by_name: set[tuple[str, str]] = set()
    places: set[str] = set()
    for module in listed:
        aliases: dict[str, str] = {}
        nodes = list(ast.walk(module.tree))
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    if full in known:
                        aliases[alias.asname or alias.name] = full
                    else:
                        by_name.add((node.module, alias.name))
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
                through.add((aliases[node.value.id], node.attr))
            elif (
                isinstance(node, ast.Constant) and isinstance(node.value, str) and (at := _PLACE.fullmatch(node.value))
            ):
                places.add(at[1])
    return Uses(frozenset(through), frozenset(by_name), frozenset(places))


def _walk(node: ast.AST, above: ast.AST) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ast.AST]]:
    for one in ast.iter_child_nodes(node):
        if isinstance(one, _FUNCTIONS):
            yield one, above
        yield from _walk(one, one if isinstance(one, (*_FUNCTIONS, ast.ClassDef)) else above)


def _apart(node: ast.FunctionDef | ast.AsyncFunctionDef, above: ast.AST, inherited: set[str], lists: Lists) -> str:
    decorators = [ast.unparse(one).partition("(")[0] for one in node.decorator_list]
    word = node.name.strip("_")
    if isinstance(above, _FUNCTIONS):
        return "nested"
    if decorated := [why for why, ends in _BY_DECORATOR.items() if any(one.endswith(ends) for one in decorators)]:
        return decorated[0]
    if isinstance(above, ast.ClassDef):
        if node.name in inherited:
            return "protocol"
        return "verb of one object" if word in lists.verbs_of_methods else ""
    return "copy" if word in lists.copies and node.args.args and isinstance(node, ast.FunctionDef) else ""


def _apart_by_use(node: ast.FunctionDef | ast.AsyncFunctionDef, above: ast.AST, module: Module, uses: Uses) -> str:
    use = (module.dotted, node.name)
    if not isinstance(above, ast.Module) or node.name.startswith("_"):
        return ""
    if node.name in uses.places and module.package.startswith("cli"):
        return "command"
    return "through its module" if use in uses.through_module and use not in uses.by_name else ""


def _bases(above: ast.AST) -> list[str]:
    if not isinstance(above, ast.ClassDef):
        return []
    return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in above.bases]


def _methods(one: ast.ClassDef) -> set[str]:
    return {line.name for line in one.body if isinstance(line, _FUNCTIONS)}

"""Pairs of records that share most of their fields, and the records that are shapes of a rule.

Called by `__main__.py`. In: modules; out: pairs and names, to be compared with `shapes.toml`. Only the fields that a
class declares itself count, so fields that two records inherit from one base are counted once. Next: `names.py`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Final

from msgspec import Struct

from tests.shapes.source import Module

AT_LEAST: Final = 5
OF_THE_SMALLER: Final = 0.6
"""A pair shares at least so many fields by name, and so much of the fields of the smaller one."""
RULE_AT_LEAST: Final = 4
"""A record that shares so many fields with `Rule` is a shape of a rule, whatever its name is."""

REASONS: Final = {
    "wall": "kept apart on purpose: a row, a value of the domain, what is published",
    "input": "a model that explains to its sender what is wrong",
    "accident": "could be one",
}
KINDS_OF_RULES: Final = {"input", "value", "row", "file", "view", "event", "version", "other"}
"""`other`: the name has Rule in it, but it is not a form of a rule."""
_BASES: Final = {"Struct", "BaseModel", "BaseSettings", "NamedTuple", "TypedDict"}


class Record(Struct, frozen=True):
    """A class with fields that are values."""

    name: str
    path: str
    fields: frozenset[str]


class Pair(Struct, frozen=True):
    """Two records, and the fields that both declare."""

    first: Record
    second: Record

    @property
    def name(self) -> str:
        """As it stands in `shapes.toml`."""
        return " ~ ".join(sorted((self.first.name, self.second.name)))

    @property
    def shared(self) -> frozenset[str]:
        """Names of fields."""
        return self.first.fields & self.second.fields


def find_records(modules: Iterable[Module]) -> list[Record]:
    """All records, also private ones, in the order of the modules."""
    classes = [
        (module.path, one) for module in modules for one in ast.walk(module.tree) if isinstance(one, ast.ClassDef)
    ]
    bases: defaultdict[str, set[str]] = defaultdict(set)  # private classes of several modules may share a name
    for _, one in classes:
        bases[one.name] |= {_last_name(base) for base in one.bases}
    return [
        Record(one.name, path, fields_of(one))
        for path, one in classes
        if _is_dataclass(one) or _derives_from_record(one.name, bases)
    ]


def fields_of(one: ast.ClassDef) -> frozenset[str]:
    """The fields that a class declares itself."""
    return frozenset(
        line.target.id
        for line in one.body
        if isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and not ast.unparse(line.annotation).startswith("ClassVar")
    )


def find_pairs(records: Iterable[Record]) -> Iterator[Pair]:
    """Those that are alike."""
    for first, second in combinations(records, 2):
        smaller = min(len(first.fields), len(second.fields))
        if len(first.fields & second.fields) >= max(AT_LEAST, OF_THE_SMALLER * smaller):
            yield Pair(first, second)


def find_rule_shapes(records: Iterable[Record]) -> set[str]:
    """Names of the records that hold a rule, or a part of one."""
    listed = list(records)
    rule = next(one.fields for one in listed if one.name == "Rule")
    return {one.name for one in listed if "Rule" in one.name or len(one.fields & rule) >= RULE_AT_LEAST}


def complaints_about_pairs(pairs: Iterable[Pair], listed: Mapping[str, str]) -> Iterator[str]:
    """What is to be done so that the list is true, in sentences."""
    found = {pair.name: pair for pair in pairs}
    for name, pair in found.items():
        if name not in listed:
            yield (
                f"{name} ({pair.first.path}, {pair.second.path}) share {', '.join(sorted(pair.shared))}: use one of "
                f"the two, or say in [pairs] of shapes.toml why there are two: {_choice(REASONS)}"
            )
        elif listed[name].partition(":")[0] not in REASONS:
            yield f"{name}: its reason must begin with one of {_choice(REASONS)}, not {listed[name]!r}"
    for name in listed.keys() - found.keys():
        yield f"{name} are no longer alike: remove that line of [pairs] in shapes.toml"


def complaints_about_rules(found: set[str], listed: Mapping[str, str]) -> Iterator[str]:
    """The same for the shapes of a rule."""
    for name in sorted(found - listed.keys()):
        yield f"{name} is another shape of a rule: use one that exists, or list it in [rules] of shapes.toml"
    for name in sorted(listed.keys() - found):
        yield f"{name} is no longer a shape of a rule: remove that line of [rules] in shapes.toml"
    for name in sorted(found & listed.keys()):
        if listed[name] not in KINDS_OF_RULES:
            yield f"{name}: [rules] of shapes.toml knows {_choice(KINDS_OF_RULES)}, not {listed[name]!r}"


def _choice(words: Iterable[str]) -> str:
    return " · ".join(sorted(words))


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).partition("[")[0].rpartition(".")[2]


def _is_dataclass(one: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in one.decorator_list)


def _derives_from_record(name: str, bases: Mapping[str, set[str]]) -> bool:
    above, seen = bases.get(name, set()), {name}
    while above:
        if above & _BASES:
            return True
        seen |= above
        above = {one for base in above for one in bases.get(base, ())} - seen
    return False

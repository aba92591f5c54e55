"""What `make shapes` counts, on modules of a few lines."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.shapes.figures import (
    Figures,
    Names,
    complaints_about_hubs,
    complaints_about_names,
    figures_of,
    kinds_of,
    sums_that_rose,
)
from tests.shapes.hubs import Hub, measure_hub
from tests.shapes.names import find_functions
from tests.shapes.records import complaints_about_pairs, find_pairs, find_records, find_rule_shapes
from tests.shapes.source import module_of, read_lists

LISTS = read_lists()


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("def _find(): ...", "private"),
        ("def _find_head(): ...", ""),
        ("def __find(): ...", "private"),
        ("def find(): ...", "public"),
        ("def kept(): ...", "public participles"),
        ("def _settled(): ...", "private participles"),
        ("def _kept_back(): ...", ""),
        ("def feed(): ...", "public"),
        ("async def _kept(): ...", "private participles"),
        ("def quoted(text): ...", ""),
        ("def quoted(): ...", "public participles"),
        ("class A:\n def find(self): ...", ""),
        ("class A:\n def kept(self): ...", "participles"),
        ("class A:\n def _read(self): ...", ""),
        ("class A:\n def __eq__(self, other): ...", ""),
        ("class A:\n @property\n def kept(self): ...", ""),
        ("class A:\n @kept.setter\n def kept(self, to): ...", ""),
        ("class A:\n @field_validator('x')\n def _known(self): ...", ""),
        ("@app.command('list')\ndef _listed(): ...", ""),
        ("class P(Protocol):\n def kept(self): ...", ""),
        ("class P(Protocol):\n def kept(self): ...\nclass A:\n def kept(self): ...", ""),
        ("class B:\n def _kept_up(self): ...\n def opened_by(self): ...\nclass A(B):\n def opened_by(self): ...", ""),
    ],
)
def test_what_a_name_is_counted_as(text: str, kinds: str) -> None:
    found = find_functions([module_of("core/a.py", text)], LISTS)
    assert " ".join(kind for one in found for kind in kinds_of(one, LISTS)) == kinds


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ("from switchboard.core import a\na.find()", "through its module"),
        ("from switchboard.core import a\na.find()\nfrom switchboard.core.a import find", ""),
        ("from switchboard.core.a import find", ""),
        ("x = 1", ""),
    ],
)
def test_a_function_that_is_called_through_its_module_is_counted_apart(other: str, why: str) -> None:
    modules = [module_of("core/a.py", "def find(): ..."), module_of("core/b.py", other)]
    assert [one.apart for one in find_functions(modules, LISTS)] == [why]


def test_store_functions_and_tabled_commands_do_not_count_as_public() -> None:
    modules = [
        module_of("store/a.py", "def find(): ..."),
        module_of("cli/processes/commands.py", "def up(): ..."),
        module_of("cli/main.py", "PLACE = 'run:up'"),
    ]
    assert [kind for one in find_functions(modules, LISTS) for kind in kinds_of(one, LISTS)] == []


def record(name: str, fields: str, bases: str = "Struct") -> str:
    return f"class {name}({bases}):\n" + "".join(f"  {field}: int\n" for field in fields)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (record("A", "abcde") + record("B", "abcdefgh"), ["A ~ B"]),
        (record("B", "abcde") + record("A", "abcdefgh"), ["A ~ B"]),
        (record("A", "abcd") + record("B", "abcd"), []),
        (record("A", "abcdefghi") + record("B", "abcdejklm"), []),
        (record("A", "abcde") + record("B", "abcde", "object"), []),
        (record("A", "abcde") + "@dataclass(frozen=True)\n" + record("B", "abcde", "object"), ["A ~ B"]),
        (record("X", "abcde") + record("A", "f", "X") + record("B", "f", "X"), []),
        (record("X", "abcde") + record("Y", "abcde") + record("A", "f", "X") + record("B", "f", "Y"), ["X ~ Y"]),
    ],
)
def test_which_records_are_alike(text: str, pairs: list[str]) -> None:
    assert [pair.name for pair in find_pairs(find_records([module_of("a.py", text)]))] == pairs


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ({"A ~ B": "wall"}, []),
        ({"A ~ B": "accident: one can hold the other"}, []),
        ({"A ~ B": "because"}, ["must begin with one of accident · input · wall"]),
        ({}, ["share a, b, c, d, e: use one of the two"]),
        ({"A ~ B": "wall", "A ~ C": "wall"}, ["A ~ C are no longer alike: remove that line"]),
    ],
)
def test_every_pair_has_its_reason_and_every_reason_its_pair(listed: Mapping[str, str], told: list[str]) -> None:
    pairs = find_pairs(find_records([module_of("a.py", record("A", "abcde") + record("B", "abcde"))]))
    found = list(complaints_about_pairs(pairs, listed))
    assert len(found) == len(told)
    assert all(part in sentence for part, sentence in zip(told, found, strict=True))


def test_a_shape_of_a_rule_is_known_by_its_name_or_by_its_fields() -> None:
    text = record("Rule", "abcdefgh") + record("RuleList", "x") + record("Change", "abcdx") + record("Other", "abcx")
    assert find_rule_shapes(find_records([module_of("a.py", text)])) == {"Rule", "RuleList", "Change"}


def test_only_what_gets_worse_is_told_and_a_move_is_no_more_in_all() -> None:
    recorded = Figures({"a": Names(2, 1, 1), "b": Names(1)}, {"app/wiring.py": Hub(210, 30)})
    moved = Figures({"a": Names(1, 1, 1), "b": Names(2)}, {"app/wiring.py": Hub(200, 30)})
    more = Figures({"a": Names(2, 1, 2), "c": Names(1)}, {"app/wiring.py": Hub(210, 31)})
    assert [(where, kind) for where, kind, _ in complaints_about_names(moved, recorded)] == [("b", "private")]
    assert sums_that_rose(moved, recorded) == []
    assert [*complaints_about_hubs(moved, recorded)] == []
    assert [(where, kind) for where, kind, _ in complaints_about_names(more, recorded)] == [
        ("a", "participles"),
        ("c", "private"),
    ]
    assert sums_that_rose(more, recorded) == ["participles"]
    assert ["31 imports" in one for one in complaints_about_hubs(more, recorded)] == [True]


def test_lines_of_hubs_are_recorded_in_tens_and_imports_counted_by_module() -> None:
    text = "from switchboard.core.a import b, c\nimport json\ndef f():\n from switchboard.core.d import e\n"
    hub = measure_hub(module_of("app/wiring.py", text))
    assert hub == Hub(4, 2)
    assert figures_of([], {"app/wiring.py": hub}, LISTS).hubs == {"app/wiring.py": Hub(10, 2)}

"""The figures that may not get worse, as they stand in `figures.toml`.

Called by `__main__.py`. In: functions and hubs; out: what got worse, in sentences that say what to do, and the text of
the file. Each package and hub has a line of its own, so that branches that touch different packages do not conflict;
lines of hubs are recorded in full tens, so that a table may get its line. Next: nobody.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, convert

from tests.shapes.hubs import Hub
from tests.shapes.names import Function, is_participle
from tests.shapes.source import Lists

FIGURES_FILE: Final = Path(__file__).parent / "figures.toml"

_HEAD: Final = """# Written by `make shapes UPDATE=1`; what may not get worse. Counted as docs/decisions/0166 says.
# In a conflict take either side, then `make shapes UPDATE=1`.
"""
WHAT_TO_DO: Final = {
    "private": "private functions and methods of one word: name them by a verb and what it acts on (`find_member`), or "
    "by a noun for a pure value (`history_of`)",
    "public": "public functions of one word: say what they act on, or let callers go through the module "
    "(`tokens.find`)",
    "participles": "lone participles: `read_head` or `head_of` instead of `headed`",
}


class Names(Struct, frozen=True):
    """How many functions of a package have a name that says too little."""

    private: int = 0
    public: int = 0
    participles: int = 0


class Figures(Struct, frozen=True, forbid_unknown_fields=True):
    """What is recorded; packages and hubs by their path."""

    names: Mapping[str, Names]
    hubs: Mapping[str, Hub]


def read_figures() -> Figures:
    """Raises `msgspec.ValidationError` if the file has another form."""
    return convert(tomllib.loads(FIGURES_FILE.read_text(encoding="utf-8")), Figures)


def figures_of(functions: Iterable[Function], hubs: Mapping[str, Hub], lists: Lists) -> Figures:
    """What is the case now."""
    by_package: dict[str, list[Function]] = {}
    for one in functions:
        by_package.setdefault(one.package, []).append(one)
    names = {package: _count(ours, lists) for package, ours in sorted(by_package.items())}
    return Figures(
        {package: one for package, one in names.items() if one != Names()},
        {path: Hub(-(-hub.lines // 10) * 10, hub.imports) for path, hub in sorted(hubs.items())},
    )


def kinds_of(function: Function, lists: Lists) -> Iterator[str]:
    """As what its name is counted: the fields of `Names`."""
    if function.apart or not function.is_one_word:
        return
    if function.is_private:
        yield "private"
    if function.is_public_of_module:
        yield "public"
    if is_participle(function.word, lists):
        yield "participles"


def write_figures(figures: Figures) -> str:
    """The text of the file."""
    names = (f'"{package}" = {_inline(one)}\n' for package, one in figures.names.items())
    hubs = (f'"{path}" = {_inline(one)}\n' for path, one in figures.hubs.items())
    return f"{_HEAD}\n[names]\n{''.join(names)}\n[hubs]\n{''.join(hubs)}"


def complaints_about_names(now: Figures, recorded: Figures) -> Iterator[tuple[str, str, str]]:
    """Package, kind and sentence of what got worse."""
    for package, ours in now.names.items():
        before = recorded.names.get(package, Names())
        for kind, advice in WHAT_TO_DO.items():
            count, most = getattr(ours, kind), getattr(before, kind)
            if count > most:
                yield package, kind, f"{package} has {count} instead of {most} {advice}"


def complaints_about_hubs(now: Figures, recorded: Figures) -> Iterator[str]:
    """What grew."""
    for path, hub in now.hubs.items():
        before = recorded.hubs.get(path, Hub(0, 0))
        if hub.lines > before.lines or hub.imports > before.imports:
            yield (
                f"{path} grew to {hub.lines} lines (in tens; recorded {before.lines}) and {hub.imports} imports of "
                f"ours ({before.imports}): put what is new beside its owner, so that a table gets a line at most; "
                "if it must be, write the new figures into figures.toml by hand"
            )


def sums_that_rose(now: Figures, recorded: Figures) -> list[str]:
    """Kinds of names of which there are more in all, so that it is no move between packages."""
    return [kind for kind in WHAT_TO_DO if total_of(now, kind) > total_of(recorded, kind)]


def total_of(figures: Figures, kind: str) -> int:
    """Over all packages."""
    return sum(getattr(one, kind) for one in figures.names.values())


def _count(functions: Iterable[Function], lists: Lists) -> Names:
    kinds = [kind for one in functions for kind in kinds_of(one, lists)]
    return Names(kinds.count("private"), kinds.count("public"), kinds.count("participles"))


def _inline(one: Names | Hub) -> str:
    return "{ " + ", ".join(f"{field} = {getattr(one, field)}" for field in one.__struct_fields__) + " }"

"""`make shapes`: the figures of tests/shapes as a table, with their goals; with `--check` only what got worse.

`make static` calls it with `--check`, `make shapes UPDATE=1` with `--update`. Ends with 1 if something got worse. In:
the source, `shapes.toml` (reasons and words, written by people) and `figures.toml` (written here). Next: `figures.py`.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from tests.shapes import figures as of
from tests.shapes.figures import Figures
from tests.shapes.hubs import measure_hubs
from tests.shapes.names import Function, find_functions, is_participle
from tests.shapes.records import (
    REASONS,
    complaints_about_pairs,
    complaints_about_rules,
    find_pairs,
    find_records,
    find_rule_shapes,
)
from tests.shapes.source import ROOT, Lists, Module, module_of, read_lists, read_modules


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    lists, modules = read_lists(), read_modules()
    functions = find_functions(modules, lists)
    now = of.figures_of(functions, measure_hubs(modules), lists)
    if "--update" in arguments:
        return update(now)
    if "--check" not in arguments:
        print(render_table(modules, functions, lists))
    recorded = of.read_figures()
    worse = list(find_complaints(modules, lists))
    worse += list(explain_names(now, recorded, functions, lists))
    worse += of.complaints_about_hubs(now, recorded)
    for sentence in worse:
        print(f"shapes: {sentence}", file=sys.stderr)
    if worse and not of.sums_that_rose(now, recorded):
        print("shapes: if functions or files only moved: make shapes UPDATE=1", file=sys.stderr)
    if "--check" not in arguments and not worse and now != recorded:
        print("Some of it is better than recorded: make shapes UPDATE=1")
    return bool(worse)


def update(now: Figures) -> int:
    """Record the present figures, unless there are more bad names in all, or a hub grew."""
    if of.FIGURES_FILE.exists():
        recorded = of.read_figures()
        refused = [f"there are more names of the kind `{kind}` in all" for kind in of.sums_that_rose(now, recorded)]
        refused += [one for one in of.complaints_about_hubs(now, recorded) if one.split()[0] in recorded.hubs]
        if refused:
            print("\n".join(f"shapes: not recorded: {one}" for one in refused), file=sys.stderr)
            return 1
    of.FIGURES_FILE.write_text(of.write_figures(now), encoding="utf-8")
    return 0


def find_complaints(modules: Sequence[Module], lists: Lists) -> Iterator[str]:
    """What is not as `shapes.toml` lists it."""
    records = find_records(modules)
    yield from complaints_about_pairs(find_pairs(records), lists.pairs)
    yield from complaints_about_rules(find_rule_shapes(records), lists.rules)


def explain_names(now: Figures, recorded: Figures, functions: Sequence[Function], lists: Lists) -> Iterator[str]:
    """What got worse, with the names that are new since the figures were recorded, as far as git knows them."""
    complaints = list(of.complaints_about_names(now, recorded))
    before = names_when_recorded({package for package, _, _ in complaints}, lists)
    for package, kind, sentence in complaints:
        new = Counter(_names(functions, package, kind, lists)) - before.get((package, kind), Counter())
        yield f"{sentence}; new: {', '.join(sorted(new))}" if new and before else sentence


def names_when_recorded(packages: set[str], lists: Lists) -> dict[tuple[str, str], Counter[str]]:
    """The names of these packages at the commit that wrote the figures; none if it is not there."""
    commit = _git("log", "-1", "--format=%H", "--", of.FIGURES_FILE.relative_to(ROOT).as_posix()).strip()
    found: dict[tuple[str, str], Counter[str]] = {}
    for package in packages if commit else ():
        place = f"src/switchboard/{package}/"
        paths = [one for one in _git("ls-tree", "--name-only", commit, place).split() if one.endswith(".py")]
        old = [module_of(path.removeprefix("src/switchboard/"), _git("show", f"{commit}:{path}")) for path in paths]
        functions = find_functions(old, lists)
        for kind in of.WHAT_TO_DO:
            found[package, kind] = Counter(_names(functions, package, kind, lists))
    return found


def render_table(modules: Sequence[Module], functions: Sequence[Function], lists: Lists) -> str:
    """All figures, with the goals of decision 0166."""
    pairs = list(find_pairs(find_records(modules)))
    reasons = Counter(lists.pairs.get(pair.name, "none").partition(":")[0] for pair in pairs)
    counted = [one for one in functions if not one.apart]
    rows = [
        ("pairs of records of one shape", f"{len(pairs)}", "≤ 55"),
        *((f"  {reason}: {meaning}", f"{reasons[reason]}", "") for reason, meaning in REASONS.items()),
        ("records that are a shape of a rule", f"{len(lists.rules)}", ""),
        ("private functions of one word", _share(counted, lambda one: one.is_private), "≤ 35 %"),
        ("public ones of modules outside store", _share(counted, lambda one: one.is_public_of_module), "≤ 30 %"),
        ("lone participles", _share_of_participles(counted, lists), "≤ 3 %"),
        ("functions whose names are counted", f"{len(counted)}", ""),
        *((f"  apart: {why}", f"{count}", "") for why, count in Counter(o.apart for o in functions if o.apart).items()),
    ]
    goals = {"app/ops/doctor.py": "≤ 150 lines, ≤ 8 imports", "app/wiring.py": "≤ 210 lines"}
    hubs = measure_hubs(modules).items()
    rows += [(path, f"{hub.lines} lines, {hub.imports} imports", goals.get(path, "")) for path, hub in hubs]
    return "\n".join(f"{what:<70} {figure:>24}  {goal}".rstrip() for what, figure, goal in rows) + _packages(
        functions, lists
    )


def _packages(functions: Sequence[Function], lists: Lists) -> str:
    now = of.figures_of(functions, {}, lists)
    rows = (f"{name:<40} {one.private:>8} {one.public:>8} {one.participles:>12}" for name, one in now.names.items())
    return "\n\n" + "\n".join(
        [f"{'names of one word, by package':<40} {'private':>8} {'public':>8} {'participles':>12}", *rows]
    )


def _share(functions: Iterable[Function], is_meant: Callable[[Function], bool]) -> str:
    ours = [one for one in functions if is_meant(one)]
    return _percent(sum(one.is_one_word for one in ours), len(ours))


def _share_of_participles(functions: Sequence[Function], lists: Lists) -> str:
    return _percent(sum(one.is_one_word and is_participle(one.word, lists) for one in functions), len(functions))


def _percent(part: int, whole: int) -> str:
    return f"{part} of {whole}, {100 * part / max(whole, 1):.1f} %"


def _names(functions: Iterable[Function], package: str, kind: str, lists: Lists) -> list[str]:
    return [one.name for one in functions if one.package == package and kind in of.kinds_of(one, lists)]


def _git(*arguments: str) -> str:
    command = ("/usr/bin/env", "git", *arguments)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

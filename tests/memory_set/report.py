"""What memory finds beside what else could be shown to a model: `python -m tests.memory_set.report [--facts] [--json]`.

In: the set beside it, the local model; out: tables for the open half, and for the sealed half its totals and those by
class, as `README.md` wants it. Every system sees what the asker may see, nothing else. No model extracts facts and
none answers: what is measured is whether the evidence is among what a model would be shown. With `--facts` the search
of butlers is one of the systems, over the same messages in a PostgreSQL that is started for it. Next: `systems.py`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final, get_args

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from tests.memory_set.abstaining import SignalFigures, measure_signals
from tests.memory_set.asking import TOP, AskedQuestion, ask_questions, score_ids
from tests.memory_set.reading import MemoryQuestion, MemorySet, QuestionClass, read_memory_set
from tests.memory_set.scoring import DifferenceInterval, SearchScore, compare_pairs
from tests.memory_set.stored import find_in_store
from tests.memory_set.systems import SYSTEMS, RetrievalSystem

_FIGURES: Final = {
    "recall": f"Evidence among what is shown (recall@{TOP} of a search), %",
    "reciprocal_rank": "Mean reciprocal rank of the first evidence, %",
    "stale": "An outdated message above the current one, % of the questions that have one",
    "share": "Share of the evidence that is shown, %",
    "tokens": "Tokens that a question costs, estimated at four characters each",
}


class SystemFigure(Struct, frozen=True):
    """The mean of a system's scores, over so many questions, and ours minus this one; None for ours."""

    mean: float
    questions: int
    ours_minus_this: DifferenceInterval | None


class GroupFigures(Struct, frozen=True):
    """Of some questions of a half: the figures by their names and by systems."""

    half: str
    group: str
    figures: Mapping[str, Mapping[str, SystemFigure]]


class RetrievalReport(Struct, frozen=True):
    """All that is printed. `ours`: the system that the others are compared with."""

    top: int
    ours: str
    groups: Sequence[GroupFigures]
    signals: Sequence[SignalFigures]


_Scored = Mapping[str, SearchScore]


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    known = read_memory_set()
    asked = ask_questions(known)
    systems = {**SYSTEMS, **({"facts": _stored_facts(known)} if "--facts" in arguments else {})}
    scored = [(one.question, _score_systems(one, systems)) for one in asked if one.question.evidence]
    report = RetrievalReport(TOP, list(systems)[-1], list(_measure_groups(scored)), measure_signals(asked))
    if "--json" in arguments:
        print(msgspec.json.encode(report).decode())
    else:
        _print_tables(report)


def _stored_facts(known: MemorySet) -> RetrievalSystem:
    found = asyncio.run(find_in_store(known))
    return lambda asked: score_ids(asked, found[asked.question.id])


def _score_systems(asked: AskedQuestion, systems: Mapping[str, RetrievalSystem]) -> _Scored:
    return {name: system(asked) for name, system in systems.items()}


def _measure_groups(scored: Sequence[tuple[MemoryQuestion, _Scored]]) -> Iterator[GroupFigures]:
    for half in ("open", "sealed"):
        of_half = [one for one in scored if one[0].half == half]
        yield GroupFigures(half, "all", _measure_group([scores for _, scores in of_half]))
        for kind in get_args(QuestionClass):
            if of_class := [scores for question, scores in of_half if question.kind == kind]:
                yield GroupFigures(half, kind, _measure_group(of_class))
        # Of the sealed half nobody looks further than at the classes.
        for language in ("en", "de") if half == "open" else ():
            of_language = [scores for question, scores in of_half if question.language == language]
            yield GroupFigures(half, f"asked in {language}", _measure_group(of_language))


def _measure_group(scored: Sequence[_Scored]) -> Mapping[str, Mapping[str, SystemFigure]]:
    return {
        name: {system: figure for system in scored[0] if (figure := _measure_figure(name, system, scored))}
        for name in _FIGURES
    }


def _measure_figure(name: str, system: str, scored: Sequence[_Scored]) -> SystemFigure | None:
    ours = list(scored[0])[-1]
    pairs = [(getattr(one[ours], name), getattr(one[system], name)) for one in scored]
    pairs = [(our, this) for our, this in pairs if this is not None]
    if not pairs:
        return None
    our, this = zip(*pairs, strict=True)
    return SystemFigure(fmean(this), len(this), None if system == ours else compare_pairs(our, this))


def _print_tables(report: RetrievalReport) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(
        f"In brackets: {report.ours} minus this one, with its 95 % interval (paired bootstrap over questions)."
    )
    for half in ("open", "sealed"):
        for name, title in _FIGURES.items():
            console.print(
                _draw_figure(name, f"{title}: {half} half", [one for one in report.groups if one.half == half])
            )
    console.print(_draw_signals(report.signals))


def _draw_figure(name: str, title: str, groups: Sequence[GroupFigures]) -> Table:
    systems = list(groups[0].figures["recall"])
    table = Table("", *systems, title=title, title_justify="left")
    for group in groups:
        figures = group.figures[name]
        if figures:
            asked = max(one.questions for one in figures.values())
            cells = [_render_figure(figures.get(system), 1 if name == "tokens" else 100) for system in systems]
            table.add_row(f"{group.group} ({asked})", *cells)
    return table


def _render_figure(figure: SystemFigure | None, scale: int) -> str:
    if figure is None:
        return "-"
    difference = figure.ours_minus_this
    mean = f"{scale * figure.mean:.0f}"
    if difference is None:
        return mean
    low, high = scale * difference.low, scale * difference.high
    return f"{mean} ({scale * difference.mean:+.0f}: {low:+.0f} to {high:+.0f})"


def _draw_signals(signals: Sequence[SignalFigures]) -> Table:
    title = "What a floor refuses of the questions without an answer, and loses of the others, %"
    table = Table("half", "floor on", "AUC", "chosen to keep", "refused", "lost", title=title, title_justify="left")
    for one in signals:
        floor = f"{100 * one.kept:.0f} % of the open half"
        figures = [f"{100 * value:.0f}" for value in (one.refused, one.lost)]
        table.add_row(one.half, one.signal, f"{one.auc:.2f}", floor, *figures)
    return table


if __name__ == "__main__":
    main(sys.argv[1:])

"""The rows of the comparison with other gateways: those that are committed, what is worse than they, and their page.

`peers_run.py` calls it with what it measured, and a test with what is committed. In: `docs/comparison.json`, which has
our rows of one run of `make peers`, and what was measured once on the others; out: a table, and a part of
`docs/comparison.md`. Rows of others are texts with their date: nothing is computed from them.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from rich.table import Table

from switchboard import __version__

HOME: Final = Path(__file__).resolve().parents[2]
FILE: Final = HOME / "docs/comparison.json"
PAGE: Final = HOME / "docs/comparison.md"
BEGIN: Final = "<!-- written by make peers -->\n"
END: Final = "<!-- until here -->\n"
EXACT: Final = 1.0
NEVER: Final = math.inf
"""The row only informs."""
_NOISE: Final[Mapping[str, float]] = {"s": 2.0, "ms": 2.0, "CPU s a minute": 3.0, "a second": 1.5, "MB": 1.15}
"""By what factor the best of some runs may be above the largest that is recorded, by unit. CPU time has differed
fivefold between hours of one machine; memory and processes by the number of connections; other counts not at all."""

_SLACK_S: Final = 0.5
"""So much more is no news about a time in seconds, however short it was."""
BUSIER: Final = 2.0
"""With so much more load than when the rows were recorded, times say nothing and are not compared."""
_TIMES: Final = ("s", "ms", "CPU s a minute")

Better = Literal["more", "less"]


class Row(Struct, frozen=True):
    """One thing that was measured. `unit` is empty for counts."""

    part: str
    what: str
    unit: str = ""
    better: Better = "less"
    noise: float | None = None

    @property
    def factor(self) -> float:
        """By which it may be above, or below, what is recorded."""
        return _NOISE.get(self.unit, EXACT) if self.noise is None else self.noise


_KILLED: Final = "10 messages in 10 chats; `kill -9` of everything when all ten requests are with the model; restart"
_AGAIN: Final = "`kill -9` again, 5 messages while all is down, restart"
_COST: Final = "cost"
_MORE: Final = "other situations"

ROWS: Final[Mapping[str, Row]] = {
    "once": Row(_KILLED, "answered once, of 10", better="more"),
    "lost": Row(_KILLED, "lost"),
    "twice": Row(_KILLED, "answered twice"),
    "last_s": Row(_KILLED, "from the restart to the last answer (the model takes 8 s)", "s"),
    "restart_s": Row(_KILLED, "of this until polling", "s"),
    "start_s": Row(_KILLED, "first start until polling", "s"),
    "down": Row(_AGAIN, "answered, of 5", better="more"),
    "down_s": Row(_AGAIN, "from the restart to the last answer", "s"),
    "again": Row(_AGAIN, "of the first ten, answered again"),
    "processes": Row(_COST, "processes", noise=1.25),
    "idle_mb": Row(_COST, "memory (PSS), idle", "MB"),
    "used_mb": Row(_COST, "memory (PSS), after 40 turns", "MB"),
    "statements": Row(_COST, "statements of the database, idle", "a second"),
    "idle_cpu_s": Row(_COST, "CPU, idle", "CPU s a minute"),
    "message_p50_ms": Row(_COST, "a message beyond the model, p50", "ms"),
    "message_p95_ms": Row(_COST, "a message beyond the model, p95", "ms", noise=3.0),
    "asked_p50_ms": Row(_COST, "of this until the model is asked, p50", "ms"),
    "prompt_bytes": Row(_COST, "bytes of the request for one short message", noise=1.02),
    "tools": Row(_COST, "tools offered in it", noise=NEVER),
    "calls": Row(_COST, "requests to the model for each message"),
    "quick": Row(_MORE, "two quick messages during a turn of 6 s: answers to the three", better="more"),
    "quick_in_order": Row(_MORE, "… in order (1: yes)", better="more"),
    "quick_s": Row(_MORE, "… until the last", "s", noise=1.5),
    "parts": Row(_MORE, "an answer of 9,000 characters: messages"),
    "words_complete": Row(_MORE, "… all words once and in order (1: yes)", better="more"),
    "refused": Row(_MORE, "Telegram answers 429, `retry_after` 5: times sent"),
    "refused_calls": Row(_MORE, "… requests to the model"),
    "refused_s": Row(_MORE, "… until it is sent", "s", noise=1.5),
    "failing_s": Row(_MORE, "the model answers HTTP 500 three times, then well: until the answer", "s"),
    "other_11_s": Row(_MORE, "… another chat that writes 11 s after the first failure: until its answer", "s"),
    "other_16_s": Row(_MORE, "… another one that writes after 16 s", "s"),
    "broken": Row(_MORE, "a tool call with broken JSON: answers", better="more"),
    "broken_calls": Row(_MORE, "… requests to the model"),
    "broken_s": Row(_MORE, "… until the answer", "s"),
}


class Measured(Struct, frozen=True):
    """Our rows of one run of `make peers`: the figure of each of its `runs`. `load`: the smallest and the largest."""

    version: str
    date: str
    machine: str
    load: tuple[float, float]
    rows: Mapping[str, tuple[float, ...]]

    @property
    def runs(self) -> int:
        """How often everything was measured."""
        return max(map(len, self.rows.values()), default=0)


class Others(Struct, frozen=True):
    """What was measured on others: when, by product the version, and for each row a text by product."""

    date: str
    versions: Mapping[str, str]
    rows: Mapping[str, tuple[str, ...]]


class Comparison(Struct, frozen=True):
    """The committed file."""

    ours: Measured
    others: Others


def read_comparison() -> Comparison:
    """What is committed."""
    return msgspec.json.decode(FILE.read_bytes(), type=Comparison)


def measured_now(runs: Sequence[Mapping[str, float]], loads: Sequence[float]) -> Measured:
    """The rows of these runs, with when and where."""
    rows = {name: tuple(round(float(run[name]), 3) for run in runs) for name in ROWS}
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    load = (round(min(loads), 1), round(max(loads), 1))
    return Measured(__version__, datetime.now(UTC).date().isoformat(), machine, load, rows)


def worse(now: Measured, before: Measured) -> list[str]:
    """Rows that became worse by more than their noise. One that was never recorded is none.

    The worst of the runs counts where the row has no noise, and the best where it has.
    """
    timed = not busier(now, before)
    return [
        f"{row.what}: {_span(now.rows[name], row.unit)}, recorded {_span(before.rows[name], row.unit)}"
        for name, row in ROWS.items()
        if before.rows.get(name) and (timed or row.unit not in _TIMES)
        if _is_worse(row, now.rows[name], before.rows[name])
    ]


def busier(now: Measured, before: Measured) -> bool:
    """Whether the machine had so much more to do than then that times are not compared."""
    return now.load[1] > before.load[1] + BUSIER


def _is_worse(row: Row, now: Sequence[float], before: Sequence[float]) -> bool:
    if row.better == "more":
        return min(now) < min(before) / row.factor
    found = max(now) if row.factor == EXACT else min(now)
    return found > max(before) * row.factor + (_SLACK_S if row.unit == "s" else 0.0)


def record(now: Measured) -> None:
    """Write our rows into the file, and the page from it."""
    comparison = replace(read_comparison(), ours=now)
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(comparison), indent=1) + b"\n")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + written(comparison) + END + rest.partition(END)[2], encoding="utf-8")


def written(comparison: Comparison) -> str:
    """The part of the page that is written from the file, in Markdown."""
    ours, others = comparison.ours, comparison.others
    names = [f"{name} {version}" for name, version in others.versions.items()]
    lines = [
        f"Switchboard {ours.version}: {ours.date}, `make peers` with {_runs(ours)}, load {ours.load[0]:g} to "
        f"{ours.load[1]:g}, {ours.machine}. The others: {others.date}.",
    ]
    for part, rows in groupby(ROWS.items(), lambda one: one[1].part):
        lines += ["", f"{part[0].upper()}{part[1:]}:", ""]
        heads = ("what", f"Switchboard, {ours.date}", *(f"{name}, {others.date}" for name in names))
        lines += [_line(heads), _line(["---"] * len(heads))]
        lines += [_line((row.what, _span(ours.rows[name], row.unit), *_of(others, name))) for name, row in rows]
    return "\n".join(("", *lines, "", ""))


def _runs(ours: Measured) -> str:
    return "1 run" if ours.runs == 1 else f"{ours.runs} runs"


def _of(others: Others, name: str) -> Iterator[str]:
    """The cells of a row; what was not measured is a dash."""
    yield from others.rows.get(name, ("-",) * len(others.versions))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _span(values: Sequence[float], unit: str) -> str:
    """The median, with the smallest and the largest in brackets if they differ."""
    if not values:
        return "-"
    low, middle, high = (_figure(one) for one in (min(values), median(values), max(values)))
    text = middle if low == high else f"{middle} ({low} to {high})"
    return f"{text} {unit}".strip()


def _figure(value: float) -> str:
    if value >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def table(now: Measured, before: Measured) -> Table:
    """Both, for a terminal."""
    title = f"runs: {now.runs}, load {now.load[0]:g} to {now.load[1]:g}, {now.machine}"
    found = Table("what", "now", f"recorded {before.date}, load {before.load[0]:g} to {before.load[1]:g}", title=title)
    part = ""
    for name, row in ROWS.items():
        if row.part != part:
            found.add_section()
            found.add_row(row.part)
        part = row.part
        found.add_row(f"  {row.what}", _span(now.rows[name], row.unit), _span(before.rows.get(name, ()), row.unit))
    return found

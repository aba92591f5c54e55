"""Which quoted history a reader is spared. Pure.

What is stored is never folded: a block of quoted lines becomes a mark only in a text made for a reader. Called when a
turn or a classification begins. In: the passages of a message and what this reader has on record; out: what is shown.
Next: `showing.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Final

from msgspec import Struct

from switchboard.core.passages.signs import bare, sign_at
from switchboard.domain.envelope import Passage, PassageKind

_Run = tuple[str, ...]

_FOLDING: Final = frozenset({"email"})
_WORD: Final = re.compile(r"\w+")
_RUN: Final = 5
"""Words that are compared together: programs rewrap lines, so lines cannot be compared."""
_REPEATED: Final = 0.95
"""The share of its runs that a block must have in common with the record."""
_MOST_OF_SIGN: Final = 20
"""Lines in which the sign above a block ends."""
_MOST_TEXTS: Final = 20
_MOST_RECORD: Final = 262_144
"""Characters of the record that are compared."""


class Shown(Struct, frozen=True):
    """A passage as a reader sees it. `folded`: how many lines it stands for, if it is only a mark."""

    kind: PassageKind
    text: str
    author: str | None = None
    sent_at: datetime | None = None
    folded: int = 0


def folds(channel: str) -> bool:
    """Whether messages of a channel may have history that is folded."""
    return channel in _FOLDING


def answers_something(passages: Sequence[Passage]) -> bool:
    """Whether the reader of a mail found that it repeats the one that it answers."""
    return any(one.refers_to for one in passages)


def folded(passages: Sequence[Passage], answers: bool, record: Sequence[str] = ()) -> tuple[Shown, ...]:
    """The passages for a reader; `answers`: whether the message answers another one.

    Quoted blocks at its very end, below words that may be the sender's, become marks if the reader of the mail found
    that they are the history of a reply (`refers_to`), or if they repeat what is on `record`. Nothing is folded in a
    message with something forwarded.
    """
    kept = len(passages) - (_count_history(passages, record) if answers and _may_fold(passages) else 0)
    shown = (Shown(one.kind, one.text, one.author, one.sent_at) for one in passages[:kept])
    lines = sum(len(one.text.splitlines()) for one in passages[kept:])
    return (*shown, *((_mark_folded(lines),) if lines else ()))


def _may_fold(passages: Sequence[Passage]) -> bool:
    kinds = {one.kind for one in passages}
    return "forwarded" not in kinds and bool(kinds & {"own", "between"})


def _count_history(passages: Sequence[Passage], record: Sequence[str]) -> int:
    """How many passages at the end are history."""
    found, recorded = 0, _known_runs(record)
    for one in reversed(passages):
        if one.kind != "quoted" or not (one.refers_to is not None or _repeats_record(one.text, recorded)):
            break
        found += 1
    return found


def _mark_folded(lines: int) -> Shown:
    return Shown("quoted", f"[{lines} more line{'' if lines == 1 else 's'} quoted]", folded=lines)


def _repeats_record(block: str, recorded: Callable[[int], Collection[_Run]]) -> bool:
    """Whether a block says nothing but what is on record, besides who wrote it when."""
    words = _split_words(_below_sign(block))
    size = min(_RUN, len(words))
    runs = _runs_of(words, size)
    if not runs:
        return False
    known = recorded(size)
    return sum(run in known for run in runs) >= _REPEATED * len(runs)


def _below_sign(block: str) -> str:
    lines = block.splitlines()
    sign = sign_at([bare(line) for line in lines[:_MOST_OF_SIGN]], 0)
    return "\n".join(lines[sign.lines :]) if sign is not None else block


def _known_runs(record: Sequence[str]) -> Callable[[int], Collection[_Run]]:
    """All runs of a size that the record has, which are found once for all passages."""

    @cache
    def known(size: int) -> Collection[_Run]:
        return {run for text in _latest_texts(record) for run in _runs_of(_split_words(text), size)}

    return known


def _latest_texts(record: Sequence[str]) -> Iterable[str]:
    left = _MOST_RECORD
    for text in reversed(record[-_MOST_TEXTS:]):
        if left <= 0:
            return
        yield text[:left]
        left -= len(text)


def _split_words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _runs_of(words: Sequence[str], size: int) -> list[_Run]:
    return [tuple(words[at : at + size]) for at in range(len(words) - size + 1)] if size else []

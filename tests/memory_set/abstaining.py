"""Whether a search can tell that nobody said what is asked for: what a floor under its best score would refuse.

Called by `report.py`. In: `AskedQuestion`s, those without evidence included; out: figures of both halves, with floors
that are chosen on the open half alone. Next: `scoring.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Final

import numpy as np
from msgspec import Struct

from switchboard.core.memory.relevance import USUAL_WEIGHTS
from tests.memory_set.asking import AskedQuestion
from tests.memory_set.scoring import separate_scores
from tests.memory_set.searching import RatedTexts

_KEPT: Final = (0.95, 0.9)
"""Shares of the answerable questions of the open half that floors are to keep."""


class SignalFigures(Struct, frozen=True):
    """Of a half: how well a score separates, and what a floor refuses of the unanswerable, and loses of the others."""

    half: str
    signal: str
    auc: float
    kept: float
    floor: float
    refused: float
    lost: float


def _best_sum(rated: RatedTexts) -> float:
    """As relevance, but with cosines as they are: scaled ones are 1 for whatever is nearest."""
    share = USUAL_WEIGHTS.vectors
    return max(share * cosine + (1 - share) * words for cosine, words in zip(rated.cosines, rated.words, strict=True))


_SIGNALS: Final[Mapping[str, Callable[[RatedTexts], float]]] = {
    "words": lambda rated: max(rated.words),
    "cosine": lambda rated: max(rated.cosines),
    "both": _best_sum,
}


def measure_signals(asked: Sequence[AskedQuestion]) -> list[SignalFigures]:
    """For each score and each floor, of the open half and of the sealed one."""
    return [
        _measure_half(half, name, kept, asked) for name in _SIGNALS for kept in _KEPT for half in ("open", "sealed")
    ]


def _measure_half(half: str, name: str, kept: float, asked: Sequence[AskedQuestion]) -> SignalFigures:
    floor = float(np.quantile(_best_scores("open", name, asked, answerable=True), 1 - kept))
    answerable = _best_scores(half, name, asked, answerable=True)
    others = _best_scores(half, name, asked, answerable=False)
    refused, lost = (fmean(one < floor for one in scores) for scores in (others, answerable))
    return SignalFigures(half, name, separate_scores(answerable, others), kept, floor, refused, lost)


def _best_scores(half: str, name: str, asked: Sequence[AskedQuestion], *, answerable: bool) -> list[float]:
    of_half = [one for one in asked if one.question.half == half]
    return [_SIGNALS[name](one.rated) for one in of_half if bool(one.question.evidence) is answerable]

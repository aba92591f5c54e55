"""What an answer of a search is worth, and how sure a difference between two searches is. Pure.

Called by the commands beside it. In: the messages that a search shows, and those that answer the question; out:
figures. Next: `report.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

_DRAWS: Final = 10_000
_SEED: Final = 45
_CHARACTERS_PER_TOKEN: Final = 4


class SoughtMessages(Struct, frozen=True):
    """The messages that answer a question, how many of them are needed, and those that are outdated."""

    evidence: frozenset[str]
    needed: int = 1
    stale: frozenset[str] = frozenset()


class SearchScore(Struct, frozen=True):
    """Of one question. `recall`: 1 if enough evidence is among what is shown; `share`: how much of it.

    `reciprocal_rank`: of the first evidence; `stale`: 1 if an outdated message is above it, None if there is none. What
    has no order has neither. `tokens`: estimated, of what is shown.
    """

    recall: float
    share: float
    tokens: float
    reciprocal_rank: float | None = None
    stale: float | None = None


class DifferenceInterval(Struct, frozen=True):
    """The mean of paired differences, and its bounds at 95 %."""

    mean: float
    low: float
    high: float


def score_ranking(ranking: Sequence[str], sought: SoughtMessages, top: int, shown: Sequence[str]) -> SearchScore:
    """Of a search: ids of messages, the best first, of which so many are shown; `shown` are the texts of these."""
    context, rank = score_context(ranking[:top], sought, shown), _first_place(ranking, sought.evidence)
    outdated = _first_place(ranking, sought.stale) < rank
    return replace(context, reciprocal_rank=1 / (1 + rank), stale=float(outdated) if sought.stale else None)


def score_context(messages: Sequence[str], sought: SoughtMessages, shown: Sequence[str]) -> SearchScore:
    """Of messages that are shown in the order in which they were said."""
    found = len(sought.evidence & {*messages})
    return SearchScore(
        recall=float(found >= sought.needed),
        share=found / len(sought.evidence),
        tokens=sum(map(len, shown)) / _CHARACTERS_PER_TOKEN,
    )


def _first_place(ranking: Sequence[str], wanted: frozenset[str]) -> float:
    return next((float(place) for place, one in enumerate(ranking) if one in wanted), float("inf"))


def compare_pairs(ours: Sequence[float], theirs: Sequence[float]) -> DifferenceInterval:
    """Of two searches that were asked the same questions: by drawing questions again and again (bootstrap)."""
    differences = np.array(ours) - np.array(theirs)
    drawn = np.random.default_rng(_SEED).integers(len(differences), size=(_DRAWS, len(differences)))
    low, high = np.percentile(differences[drawn].mean(axis=1), (2.5, 97.5))
    return DifferenceInterval(float(differences.mean()), float(low), float(high))


def separate_scores(answerable: Sequence[float], others: Sequence[float]) -> float:
    """How often a question with an answer scores higher than one without (AUC); 0.5 tells nothing."""
    return fmean(0.5 if one == other else float(one > other) for one in answerable for other in others)

"""In which order facts are shown that may answer a question. Pure.

Relevance counts most by far: what is important or was said lately moves a fact up by a few percent and hides nothing.
In: candidates, each with its cosine and the relevance of its words; out: the same with scores, the best first. Next:
`bm25.py`, and `nearest.py` for the cosines where the database does not compute them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

CANDIDATES: Final = 100
"""So many of the nearest vectors, and as many with the best words, are candidates."""
_EVER: Final = datetime.min.replace(tzinfo=UTC)
_DAY_S: Final = 86_400


class RankWeights(Struct, frozen=True):
    """How much counts what. `vectors`: the share of meaning, the rest is that of words; the others are added to 1."""

    vectors: float = 0.3
    importance: float = 0.1
    recency: float = 0.05
    half_life_days: float = 90


USUAL_WEIGHTS: Final = RankWeights()


class RecallCandidate(Struct, frozen=True):
    """A fact that may answer. `cosine` to the question: None if there is no vector; `words`: from 0 to 1.

    `said_at`: when a person last said so; `importance`: from 0 to 1.
    """

    fact_id: UUID
    cosine: float | None
    words: float
    said_at: datetime
    importance: float = 0.5
    valid_from: datetime | None = None


class RankedFact(Struct, frozen=True):
    """A candidate, and by what it was put in its place."""

    candidate: RecallCandidate
    relevance: float
    score: float


def rank_candidates(
    candidates: Iterable[RecallCandidate], now: datetime, weights: RankWeights = USUAL_WEIGHTS
) -> list[RankedFact]:
    """The best first; of equal ones that which holds since later, then by id.

    Cosines are scaled between the lowest and the highest of the candidates. If none has a vector, words alone decide.
    """
    given = list(candidates)
    cosines = [one.cosine for one in given if one.cosine is not None]
    ends = (min(cosines), max(cosines)) if cosines else None
    ranked = [_rank_one(one, _relevance_of(one, ends, weights.vectors), now, weights) for one in given]
    ranked.sort(key=lambda one: one.candidate.fact_id)
    ranked.sort(key=lambda one: (one.score, one.candidate.valid_from or _EVER), reverse=True)
    return ranked


def _relevance_of(candidate: RecallCandidate, ends: tuple[float, float] | None, share: float) -> float:
    if ends is None:
        return candidate.words
    return share * _scale_cosine(candidate.cosine, *ends) + (1 - share) * candidate.words


def _scale_cosine(cosine: float | None, lowest: float, highest: float) -> float:
    """From 0 to 1; without a vector 0, and 1 if all are equally near."""
    if cosine is None:
        return 0.0
    return (cosine - lowest) / (highest - lowest) if highest > lowest else 1.0


def _rank_one(candidate: RecallCandidate, relevance: float, now: datetime, weights: RankWeights) -> RankedFact:
    days = max(0.0, (now - candidate.said_at).total_seconds() / _DAY_S)
    recency = 0.5 ** (days / weights.half_life_days)
    factor = 1 + weights.importance * (candidate.importance - 0.5) + weights.recency * recency
    return RankedFact(candidate, relevance, relevance * factor)

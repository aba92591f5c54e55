"""What each weight of vectors finds: `python -m tests.memory_set.weights [--all | --public PATH]`.

On the open half of the questions; with `--all` the messages of all spaces are searched, which no reader may, as a
larger memory would be; with `--public` those of `public.py` that have an answer. In: the questions, the local model;
out: recall@5 and the mean reciprocal rank, in percent, by weight and class, each with the 95 % interval of its
difference from the weight in use. Next: `switchboard.core.memory.relevance`, which has that.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Final

from msgspec import Struct

from switchboard.core.memory.relevance import USUAL_WEIGHTS, RankWeights
from tests.memory_set.asking import ask_questions, score_places
from tests.memory_set.public import ask_public, score_turns
from tests.memory_set.reading import read_memory_set
from tests.memory_set.scoring import SearchScore, compare_pairs
from tests.memory_set.searching import RatedTexts, rank_by_both

WEIGHTS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class WeighedQuestion(Struct, frozen=True):
    """A question of a class, how well each text answers it, and what an order of their places is worth."""

    kind: str
    rated: RatedTexts
    score: Callable[[Sequence[int]], SearchScore]


class WeighedScores(Struct, frozen=True):
    """Of a weight: the recall and the reciprocal rank of each question, in their order."""

    recall: Sequence[float]
    reciprocal_rank: Sequence[float]


def main(arguments: Sequence[str]) -> None:
    """Print a line for each weight."""
    public = "--public" in arguments
    questions = list(_public_questions(arguments[-1]) if public else _own_questions(everything="--all" in arguments))
    print(f"{len(questions)} questions; recall@5, MRR, and the 95 % intervals of their differences from those of")
    print(f"{USUAL_WEIGHTS.vectors}; then recall@5 by class")
    usual = _weigh(USUAL_WEIGHTS.vectors, questions)
    for weight in WEIGHTS:
        print(_render_weight(weight, questions, usual))


def _own_questions(*, everything: bool) -> Iterator[WeighedQuestion]:
    for one in ask_questions(read_memory_set(), everything=everything):
        if one.question.half == "open" and one.question.evidence:
            yield WeighedQuestion(one.question.kind, one.rated, partial(score_places, one))


def _public_questions(path: str) -> Iterator[WeighedQuestion]:
    for one in ask_public(Path(path).read_bytes()):
        if one.answerable:
            yield WeighedQuestion(one.category, one.rated, partial(score_turns, one))


def _weigh(weight: float, questions: Sequence[WeighedQuestion]) -> WeighedScores:
    """The scores of one weight, importance and recency left out."""
    weights = RankWeights(weight, importance=0, recency=0)
    scores = [one.score(rank_by_both(one.rated, weights)) for one in questions]
    return WeighedScores([one.recall for one in scores], [one.reciprocal_rank or 0.0 for one in scores])


def _render_weight(weight: float, questions: Sequence[WeighedQuestion], usual: WeighedScores) -> str:
    scores, of_class = _weigh(weight, questions), defaultdict[str, list[float]](list)
    for one, hit in zip(questions, scores.recall, strict=True):
        of_class[one.kind].append(hit)
    classes = ", ".join(f"{name} {100 * fmean(hits):.0f}" for name, hits in of_class.items())
    recall = _render_figure(scores.recall, usual.recall)
    return f"{weight:.1f}: {recall}  {_render_figure(scores.reciprocal_rank, usual.reciprocal_rank)} | {classes}"


def _render_figure(values: Sequence[float], usual: Sequence[float]) -> str:
    difference = compare_pairs(values, usual)
    return f"{100 * fmean(values):.1f} ({100 * difference.low:+.1f} to {100 * difference.high:+.1f})"


if __name__ == "__main__":
    main(sys.argv[1:])

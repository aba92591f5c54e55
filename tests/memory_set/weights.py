"""What each weight of vectors finds, on the open half of the questions: `python -m tests.memory_set.weights [--all]`.

With `--all` the messages of all spaces are searched, which no reader may, as a larger memory would be. In: the set
beside it, the local model; out: recall@5 and the mean reciprocal rank, in percent, by weight and class, each with the
95 % interval of its difference from the weight in use. Next: `switchboard.core.memory.relevance`, which has that.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from msgspec import Struct

from switchboard.core.memory.relevance import USUAL_WEIGHTS, RankWeights
from tests.memory_set.asking import AskedQuestion, ask_questions, score_places
from tests.memory_set.reading import read_memory_set
from tests.memory_set.scoring import SearchScore, compare_pairs
from tests.memory_set.searching import rank_by_both

WEIGHTS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class WeighedScores(Struct, frozen=True):
    """Of a weight: the recall and the reciprocal rank of each question, in their order."""

    recall: Sequence[float]
    reciprocal_rank: Sequence[float]


def main(arguments: Sequence[str]) -> None:
    """Print a line for each weight."""
    questions = ask_questions(read_memory_set(), everything="--all" in arguments)
    asked = [one for one in questions if one.question.half == "open" and one.question.evidence]
    print(f"{len(asked)} questions of the open half; recall@5 and MRR (95 % interval of the difference from")
    print(f"{USUAL_WEIGHTS.vectors}), then recall@5 by class")
    usual = _weigh(USUAL_WEIGHTS.vectors, asked)
    for weight in WEIGHTS:
        print(_render_weight(weight, asked, usual))


def _weigh(weight: float, asked: Sequence[AskedQuestion]) -> WeighedScores:
    """The scores of one weight, importance and recency left out."""
    scores = [_score_weight(weight, one) for one in asked]
    return WeighedScores([one.recall for one in scores], [one.reciprocal_rank or 0.0 for one in scores])


def _score_weight(weight: float, asked: AskedQuestion) -> SearchScore:
    return score_places(asked, rank_by_both(asked.rated, RankWeights(weight, importance=0, recency=0)))


def _render_weight(weight: float, asked: Sequence[AskedQuestion], usual: WeighedScores) -> str:
    scores, of_class = _weigh(weight, asked), defaultdict[str, list[float]](list)
    for one, hit in zip(asked, scores.recall, strict=True):
        of_class[one.question.kind].append(hit)
    classes = ", ".join(f"{name} {100 * fmean(hits):.0f}" for name, hits in of_class.items())
    recall = _render_figure(scores.recall, usual.recall)
    return f"{weight:.1f}: {recall}  {_render_figure(scores.reciprocal_rank, usual.reciprocal_rank)} | {classes}"


def _render_figure(values: Sequence[float], usual: Sequence[float]) -> str:
    difference = compare_pairs(values, usual)
    return f"{100 * fmean(values):.1f} ({100 * difference.low:+.1f} to {100 * difference.high:+.1f})"


if __name__ == "__main__":
    main(sys.argv[1:])

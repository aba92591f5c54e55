"""What each weight of vectors finds, on the open half of the questions: `python -m tests.memory_set.weights [--all]`.

With `--all` the messages of all spaces are searched, which no reader may, as a larger memory would be. In: the set
beside it, the local model; out: recall@5 and the mean reciprocal rank, in percent, by weight and class. Next:
`switchboard.core.memory.relevance`, which has the weight that was chosen.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.core.memory.bm25 import count_terms, rate_texts
from switchboard.core.memory.nearest import find_nearest
from switchboard.core.memory.relevance import CANDIDATES, RankWeights, RecallCandidate, rank_candidates
from switchboard.core.memory.terms import read_terms
from switchboard.llm.local_embedder import open_local_embedder
from switchboard.ports.embedder import Vector
from tests.memory_set.reading import DialogueMessage, MemoryQuestion, MemorySet, read_memory_set

WEIGHTS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LANGUAGES: Final = ("de", "en")
TOP: Final = 5


class AskedQuestion(Struct, frozen=True):
    """A question, what could be found, and the candidates; a candidate's id is the place of its message."""

    question: MemoryQuestion
    messages: Sequence[DialogueMessage]
    candidates: Sequence[RecallCandidate]


def main(arguments: Sequence[str]) -> None:
    """Print a line for each weight."""
    asked = ask_questions(read_memory_set(), everything="--all" in arguments)
    print(f"{len(asked)} questions of the open half; recall@{TOP} and MRR, then recall@{TOP} by class")
    for weight in WEIGHTS:
        print(render_weight(weight, asked))


def ask_questions(known: MemorySet, *, everything: bool) -> list[AskedQuestion]:
    """All candidates of all open questions that have an answer."""
    questions = [one for one in known.questions if one.half == "open" and one.evidence]
    texts = sorted({*(one.text for one in known.messages), *(one.text for one in questions)})
    vectors = asyncio.run(_embed_texts(texts))
    asked = list[AskedQuestion]()
    for question in questions:
        at = question.asker.at
        visible = known.visible_to(question.asker)
        messages = [one for one in known.messages if one.at < at] if everything else visible
        asked.append(AskedQuestion(question, messages, _find_candidates(question, messages, vectors)))
    return asked


async def _embed_texts(texts: Sequence[str]) -> Mapping[str, Vector]:
    embedder = await open_local_embedder()
    return dict(zip(texts, await embedder.embed_passages(texts), strict=True))


def _find_candidates(
    question: MemoryQuestion, messages: Sequence[DialogueMessage], vectors: Mapping[str, Vector]
) -> list[RecallCandidate]:
    """The nearest by vectors, and as many by words."""
    query, terms = read_terms(question.text, LANGUAGES), [read_terms(one.text, LANGUAGES) for one in messages]
    words = rate_texts(query, terms, count_terms(terms))
    by_words = sorted(range(len(words)), key=lambda place: -words[place])[:CANDIDATES]
    cosines = dict(find_nearest(vectors[question.text], [vectors[one.text] for one in messages], len(messages)))
    places = sorted({*list(cosines)[:CANDIDATES], *by_words})
    return [RecallCandidate(UUID(int=one), cosines[one], words[one], messages[one].at) for one in places]


def render_weight(weight: float, asked: Sequence[AskedQuestion]) -> str:
    """The figures of one weight, importance and recency left out."""
    hits, ranks = defaultdict[str, list[float]](list), list[float]()
    for one in asked:
        found = _find_messages(one, RankWeights(weight, importance=0, recency=0))
        evidence = one.question.evidence
        needed = len(evidence) if one.question.kind == "multi-session" else 1
        hits[one.question.kind].append(float(len({*evidence} & {*found[:TOP]}) >= needed))
        ranks.append(max((1 / (1 + found.index(message)) for message in evidence if message in found), default=0.0))
    recall = fmean(hit for of_class in hits.values() for hit in of_class)
    classes = ", ".join(f"{name} {100 * fmean(of_class):.0f}" for name, of_class in hits.items())
    return f"{weight:.1f}: {100 * recall:.1f} {100 * fmean(ranks):.1f} | {classes}"


def _find_messages(asked: AskedQuestion, weights: RankWeights) -> list[str]:
    """The ids of messages, the best first; the butler's lines count as neither right nor wrong."""
    ranked = rank_candidates(asked.candidates, asked.question.asker.at, weights)
    messages = (asked.messages[one.candidate.fact_id.int] for one in ranked)
    return [one.id for one in messages if one.author is not None]


if __name__ == "__main__":
    main(sys.argv[1:])

"""Texts found by words, by vectors, and by both, as `switchboard.core.memory` does it, without a database.

Called by the commands beside it. In: a question and texts; out: the places of the texts, the best first. Next:
`scoring.py`, which says what an order is worth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.memory.bm25 import count_terms, rate_texts
from switchboard.core.memory.nearest import find_nearest
from switchboard.core.memory.relevance import CANDIDATES, USUAL_WEIGHTS, RankWeights, RecallCandidate, rank_candidates
from switchboard.core.memory.terms import TextTerms, read_terms
from switchboard.llm.local_embedder import open_local_embedder
from switchboard.ports.embedder import Vector

LANGUAGES: Final = ("de", "en")


class ReadTexts(Struct, frozen=True):
    """What is known of each text before a question is asked: the terms of its words, and its vector."""

    terms: Mapping[str, TextTerms]
    vectors: Mapping[str, Vector]


class RatedTexts(Struct, frozen=True):
    """How well each text answers a question asked at a time: by its words, from 0 to 1, and the cosine of vectors."""

    asked_at: datetime
    said_at: Sequence[datetime]
    words: Sequence[float]
    cosines: Sequence[float]


def read_texts(texts: Iterable[str], languages: Sequence[str] = LANGUAGES) -> ReadTexts:
    """Questions and what is searched, each text once."""
    known = sorted(set(texts))
    terms = {text: read_terms(text, languages) for text in known}
    return ReadTexts(terms, asyncio.run(_embed_texts(known)))


async def _embed_texts(texts: Sequence[str]) -> Mapping[str, Vector]:
    embedder = await open_local_embedder()
    return dict(zip(texts, await embedder.embed_passages(texts), strict=True))


def rate_for_question(
    question: str, asked_at: datetime, said: Sequence[tuple[datetime, str]], read: ReadTexts
) -> RatedTexts:
    """Each text that was said, in its order; how rare a word is depends on these texts alone."""
    terms = [read.terms[text] for _, text in said]
    words = rate_texts(read.terms[question], terms, count_terms(terms))
    cosines = dict(find_nearest(read.vectors[question], [read.vectors[text] for _, text in said], len(said)))
    return RatedTexts(asked_at, [at for at, _ in said], words, [cosines[place] for place in range(len(said))])


def rate_by_sentence(
    rated: RatedTexts, question: str, sentences: Sequence[Sequence[str]], read: ReadTexts
) -> RatedTexts:
    """The same texts, each with the cosine of that of its sentences which is nearest to the question."""
    owners = [place for place, parts in enumerate(sentences) for _ in parts]
    vectors = [read.vectors[part] for parts in sentences for part in parts]
    cosines = [-1.0] * len(sentences)
    for found, cosine in find_nearest(read.vectors[question], vectors, len(vectors)):
        cosines[owners[found]] = max(cosines[owners[found]], cosine)
    return replace(rated, cosines=cosines)


def rank_by_words(rated: RatedTexts) -> list[int]:
    """Places of the texts that have anything in common with the question."""
    places = [place for place, words in enumerate(rated.words) if words > 0]
    return sorted(places, key=lambda place: -rated.words[place])


def rank_by_vectors(rated: RatedTexts) -> list[int]:
    """Places of all texts, the nearest first."""
    return sorted(range(len(rated.cosines)), key=lambda place: -rated.cosines[place])


def rank_by_both(rated: RatedTexts, weights: RankWeights = USUAL_WEIGHTS) -> list[int]:
    """Places of the candidates: of the nearest by vectors, and as many by words."""
    places = sorted({*rank_by_vectors(rated)[:CANDIDATES], *rank_by_words(rated)[:CANDIDATES]})
    candidates = [
        RecallCandidate(UUID(int=place), rated.cosines[place], rated.words[place], rated.said_at[place])
        for place in places
    ]
    return [one.candidate.fact_id.int for one in rank_candidates(candidates, rated.asked_at, weights)]

"""Searching facts: those that may answer a question, of all that its reader may be told, the best first.

`StoredFacts`, tools and services of operators call `FactSearch.search_facts`. Indexes of words find candidates; each of
them goes through `visible` before anything of it is read. Statistics are of the reader's facts alone, so that a hidden
one changes neither what is found nor its order. In: a reader and a question; out: facts with their relevance. Next:
`core/memory/relevance.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.core.memory.bm25 import TermStatistics, rate_texts
from switchboard.core.memory.leaving import may_embed
from switchboard.core.memory.relevance import CANDIDATES, RecallCandidate, rank_candidates
from switchboard.core.memory.terms import TextTerms, read_terms
from switchboard.core.memory.wanted import find_unknown, likeness_to, terms_of_question, want_forms
from switchboard.core.text.storable import storable_text
from switchboard.ports.embedder import Embedder, Vector
from switchboard.ports.facts import Fact, Reader
from switchboard.store.database import Database, decode_json, part_as, query
from switchboard.store.memory.fact_terms import languages_of, terms_of_fact
from switchboard.store.memory.fact_vectors import CompleteModel, embed_in_time, find_cosines, find_model
from switchboard.store.memory.readers import handle_columns, reader_columns
from switchboard.store.memory.standing import hold_at, settle

_MOST_QUERY: Final = 1000
"""Characters of a question that are read."""
_MOST_SIMILAR: Final = 20
"""Forms that may be meant by a word that no fact has."""


class FoundFact(Struct, frozen=True):
    """A fact that may answer. `relevance` and `words`: from 0 to 1; `cosine` to the question: None without vectors."""

    fact: Fact
    relevance: float
    score: float
    words: float
    cosine: float | None = None


class _Candidate(Struct, frozen=True):
    """A fact that holds, and how important it is."""

    fact: Fact
    importance: float


class _Meaning(Struct, frozen=True):
    """The vector of a question, and the model that made it."""

    model: CompleteModel
    vector: Vector


class _Counted(Struct, frozen=True):
    """What a reader may see: which spaces, and their statistics as far as a question asks."""

    spaces: Sequence[int]
    statistics: TermStatistics


class FactSearch(Struct, frozen=True):
    """Search in one database, by words, and by meaning with an embedder whose model is complete."""

    database: Database
    embedder: Embedder | None = None
    patience_s: float = 0.2
    """How long the vector of a question is waited for; without it, words alone decide."""

    async def search_facts(
        self, reader: Reader, query: str, limit: int, now: datetime, as_of: datetime | None = None
    ) -> list[FoundFact]:
        """At most so many facts that the reader may be told, the best first. Raises `Unavailable`.

        `as_of`: only what held at that time.
        """
        asked = storable_text(query[:_MOST_QUERY])
        meaning = asyncio.create_task(self._find_meaning(asked))
        try:
            languages = await languages_of(self.database)
            question = terms_of_question(read_terms(asked, languages))
            counted = await _count_terms(self.database, reader, question)
            by_words = await _find_by_words(self.database, question, counted)
            cosines = await self._find_cosines(await meaning, counted, by_words)
        finally:
            meaning.cancel()
        candidates = await _read_candidates(self.database, reader, {*by_words, *cosines}, now, as_of)
        return _rank_facts(candidates, cosines, question, counted.statistics, languages, now)[:limit]

    async def _find_meaning(self, asked: str) -> _Meaning | None:
        """The vector of a question; None: words alone decide."""
        embedder = self.embedder
        if embedder is None or not may_embed(embedder.model, asked):
            return None
        model = await find_model(self.database, embedder.model)
        vector = None if model is None else await embed_in_time(embedder, asked, self.patience_s)
        return None if model is None or vector is None else _Meaning(model, vector)

    async def _find_cosines(
        self, meaning: _Meaning | None, counted: _Counted, more: Collection[UUID]
    ) -> Mapping[UUID, float]:
        if meaning is None:
            return {}
        texts = counted.statistics.texts
        return await find_cosines(self.database, meaning.model, counted.spaces, texts, meaning.vector, more)

    async def find_safety(self, reader: Reader, limit: int, now: datetime) -> list[Fact]:
        """The latest facts by which somebody may come to harm if they are not known. Raises `Unavailable`."""
        rows = await self.database.rows(
            query("facts.of_safety"), *reader_columns(reader), *handle_columns(reader), limit
        )
        found = await _read_candidates(self.database, reader, [row["fact_id"] for row in rows], now)
        return [one.fact for one in sorted(found, key=lambda one: one.fact.fact_id, reverse=True)]


async def _count_terms(database: Database, reader: Reader, question: TextTerms) -> _Counted:
    forms, trigrams = _each_of(question.words), _each_of(question.trigrams)
    [row] = await database.rows(
        query("facts.statistics"), *reader_columns(reader), *handle_columns(reader), forms, trigrams
    )
    counts = (decode_json(row[name]) or {} for name in ("forms", "trigrams"))
    return _Counted(row["spaces"], TermStatistics(row["texts"], row["words"], *counts))


def _each_of(words: Sequence[frozenset[str]]) -> list[str]:
    return sorted(frozenset[str]().union(*words))


async def _find_by_words(database: Database, question: TextTerms, counted: _Counted) -> list[UUID]:
    """The facts with the best words, roughly: they are rated in full afterwards."""
    similar = await _find_similar(database, question, counted)
    usual = counted.statistics.words / max(1, counted.statistics.texts)
    found = list[UUID]()
    for wanted in want_forms(question, counted.statistics, similar):
        each = [(f"{space}:{one.form}", one.word, one.rarity) for one in wanted for space in counted.spaces]
        forms, words, rarities = (list(column) for column in zip(*each, strict=True)) if each else ([], [], [])
        rows = await database.rows(query("facts.by_words"), forms, words, rarities, max(1.0, usual), CANDIDATES)
        found = [row["fact_id"] for row in rows]
        if len(found) >= CANDIDATES:
            break
    return found


async def _find_similar(database: Database, question: TextTerms, counted: _Counted) -> Mapping[int, Mapping[str, int]]:
    """For the places of words that no fact has the forms that may be meant."""
    found = dict[int, Mapping[str, int]]()
    for place in find_unknown(question, counted.statistics):
        trigrams = question.trigrams[place]
        like = likeness_to(trigrams)
        given = (counted.spaces, sorted(trigrams), like.fewest, like.most, like.begins, _MOST_SIMILAR)
        rows = await database.rows(query("facts.similar_forms"), *given)
        found[place] = {row["term"]: row["facts"] for row in rows}
    return found


async def _read_candidates(
    database: Database, reader: Reader, fact_ids: Collection[UUID], now: datetime, as_of: datetime | None = None
) -> list[_Candidate]:
    """Those of the facts that the reader may be told and that hold; of what is said again, what it confirms."""
    settled = await settle(database, reader, fact_ids, as_of)
    confirmed = {one.confirms for one in settled.values() if one.confirms and one.superseded_by is None}
    if more := confirmed - settled.keys():
        settled = {**settled, **await settle(database, reader, more, as_of)}
    active = [one.fact_id for one in settled.values() if one.active]
    given = (*reader_columns(reader), active, *handle_columns(reader))
    rows = await database.rows(query("facts.among"), *given)
    importance = {row["fact_id"]: row["importance"] for row in rows}
    holding = hold_at([part_as(Fact, row) for row in rows], settled, as_of or now)
    return [_Candidate(one, importance[one.fact_id]) for one in holding]


def _rank_facts(
    candidates: Sequence[_Candidate],
    cosines: Mapping[UUID, float],
    question: TextTerms,
    statistics: TermStatistics,
    languages: Collection[str],
    now: datetime,
) -> list[FoundFact]:
    facts = {one.fact.fact_id: one.fact for one in candidates}
    texts = [terms_of_fact(one.fact.subject, one.fact.text, languages) for one in candidates]
    rated = zip(candidates, rate_texts(question, texts, statistics), strict=True)
    ranked = rank_candidates(
        (
            RecallCandidate(
                one.fact.fact_id,
                cosines.get(one.fact.fact_id),
                words,
                one.fact.said_at or now,
                one.importance,
                one.fact.valid_from,
            )
            for one, words in rated
        ),
        now,
    )
    return [
        FoundFact(facts[one.candidate.fact_id], one.relevance, one.score, one.candidate.words, one.candidate.cosine)
        for one in ranked
    ]

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
from msgspec.structs import asdict, replace

from switchboard.core.memory.bm25 import TermStatistics, rate_texts
from switchboard.core.memory.leaving import may_embed
from switchboard.core.memory.relevance import CANDIDATES, RankedFact, RecallCandidate, rank_candidates
from switchboard.core.memory.terms import TextTerms, read_terms
from switchboard.core.memory.wanted import find_unknown, likeness_to, terms_of_question, want_forms
from switchboard.core.text.storable import storable_text
from switchboard.ports.embedder import Embedder, Vector
from switchboard.ports.facts import Fact, Reader
from switchboard.store.database import Database, decode_json, query, rows_as, to_json
from switchboard.store.memory.fact_terms import languages_of, terms_of_fact
from switchboard.store.memory.fact_vectors import CompleteModel, embed_in_time, find_cosines, find_model
from switchboard.store.memory.readers import handle_columns, reader_columns
from switchboard.store.memory.standing import SettledFact, hold_at, settle

_MOST_QUERY: Final = 1000
"""Characters of a question that are read."""
_SETTLED: Final = 2
_SETTLED_AT_LEAST: Final = 20
"""Whether facts hold is looked up for twice as many as are wanted, and 20 more; for all if too few of these do."""
_MOST_SIMILAR: Final = 20
"""Forms that may be meant by a word that no fact has."""


class FoundFact(Struct, frozen=True):
    """A fact that may answer. `relevance` and `words`: from 0 to 1; `cosine` to the question: None without vectors."""

    fact: Fact
    relevance: float
    score: float
    words: float
    cosine: float | None = None


class LatestFacts(Struct, frozen=True):
    """The latest facts, the newest first: those by which somebody may come to harm if they are not known, and all."""

    of_safety: tuple[Fact, ...]
    all: tuple[Fact, ...]


class _Candidate(Struct, frozen=True):
    """A fact that may answer, and how well its words and its meaning do."""

    fact: Fact
    words: float
    cosine: float | None = None


class _Asked(Struct, frozen=True):
    """For whom and when is searched, and how much."""

    database: Database
    reader: Reader
    now: datetime
    as_of: datetime | None
    limit: int


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
    patience_s: float = 2.0
    """How long the vector of a question is waited for; without it, words alone decide."""
    own_only: bool = False
    """Whether what others have said is left out, however well it answers."""

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
            by_words = await _find_by_words(self.database, question, counted, reader if self.own_only else None)
            cosines = await self._find_cosines(await meaning, counted, by_words)
        finally:
            meaning.cancel()
        read = await _read_facts(self.database, reader, {*by_words, *cosines})
        facts = [one for one in read if one.own or not self.own_only]
        texts = [terms_of_fact(one.subject, one.text, languages) for one in facts]
        rated = zip(facts, rate_texts(question, texts, counted.statistics), strict=True)
        candidates = {one.fact_id: _Candidate(one, words, cosines.get(one.fact_id)) for one, words in rated}
        return await _settle_best(_Asked(self.database, reader, now, as_of, limit), candidates)

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

    async def find_latest(self, reader: Reader, limit: int, now: datetime) -> LatestFacts:
        """At most so many of each kind that hold. Raises `Unavailable`."""
        given = (*reader_columns(reader), *handle_columns(reader), limit)
        rows = await self.database.rows(query("facts.latest"), *given)
        of_safety, latest = (
            sorted((row["fact_id"] for row in rows if row["safety"] is safety), reverse=True)[:limit]
            for safety in (True, False)
        )
        facts = await _read_facts(self.database, reader, {*of_safety, *latest})
        settled = await settle(self.database, reader, [one.fact_id for one in facts])
        known = {one.fact_id: one for one in hold_at(facts, settled, now)}
        return LatestFacts(
            tuple(known[one] for one in of_safety if one in known), tuple(known[one] for one in latest if one in known)
        )


async def _count_terms(database: Database, reader: Reader, question: TextTerms) -> _Counted:
    forms, trigrams = _each_of(question.words), _each_of(question.trigrams)
    [row] = await database.rows(
        query("facts.statistics"), *reader_columns(reader), *handle_columns(reader), forms, trigrams
    )
    counts = (decode_json(row[name]) or {} for name in ("forms", "trigrams"))
    return _Counted(row["spaces"], TermStatistics(row["texts"], row["words"], *counts))


def _each_of(words: Sequence[frozenset[str]]) -> list[str]:
    return sorted(frozenset[str]().union(*words))


async def _find_by_words(database: Database, question: TextTerms, counted: _Counted, own: Reader | None) -> list[UUID]:
    """The facts with the best words, roughly: they are rated in full afterwards.

    `own`: whose they must be; they are looked for among all only if so many others have such words, too.
    """
    similar = await _find_similar(database, question, counted)
    usual = counted.statistics.words / max(1, counted.statistics.texts)
    found = list[UUID]()
    for wanted in want_forms(question, counted.statistics, similar):
        each = [(f"{space}:{one.form}", one.word, one.rarity) for one in wanted for space in counted.spaces]
        forms, words, rarities = (list(column) for column in zip(*each, strict=True)) if each else ([], [], [])
        given = forms, words, rarities, max(1.0, usual), CANDIDATES
        rows = await database.rows(query("facts.by_words"), *given)
        if own is not None and len(rows) >= CANDIDATES:
            rows = await database.rows(query("facts.own_by_words"), *given, *reader_columns(own), *handle_columns(own))
        found = [row["fact_id"] for row in rows]
        if len(found) >= CANDIDATES:
            break
    return found


async def _find_similar(database: Database, question: TextTerms, counted: _Counted) -> Mapping[int, Mapping[str, int]]:
    """For the places of words that no fact has the forms that may be meant."""
    unknown = find_unknown(question, counted.statistics)
    if not unknown:
        return {}
    asked = [{"word": one, **asdict(likeness_to(question.trigrams[one]))} for one in unknown]
    rows = await database.rows(query("facts.similar_forms"), counted.spaces, to_json(asked), _MOST_SIMILAR)
    found: dict[int, dict[str, int]] = {one: {} for one in unknown}
    for row in rows:
        found[row["word"]][row["term"]] = row["facts"]
    return found


async def _read_facts(database: Database, reader: Reader, fact_ids: Collection[UUID]) -> list[Fact]:
    """Those of the facts that the reader may be told."""
    given = (*reader_columns(reader), list(fact_ids), *handle_columns(reader))
    return rows_as(Fact, await database.rows(query("facts.among"), *given))


async def _settle_best(asked: _Asked, candidates: Mapping[UUID, _Candidate]) -> list[FoundFact]:
    """The best that hold. What a fact that is said again confirms takes its place."""
    ranked = [one.candidate.fact_id for one in _rank_all(candidates, asked.now)]
    found, window = list[FoundFact](), _SETTLED_AT_LEAST + _SETTLED * asked.limit
    while True:
        known, settled = await _settle_some(asked, candidates, ranked[:window])
        found = _rank_holding(asked, known, settled)
        if len(found) >= asked.limit or window >= len(ranked):
            return found[: asked.limit]
        window = len(ranked)


async def _settle_some(
    asked: _Asked, candidates: Mapping[UUID, _Candidate], fact_ids: Sequence[UUID]
) -> tuple[Mapping[UUID, _Candidate], Mapping[UUID, SettledFact]]:
    """The candidates with those that some of them confirm, and the standing of these and of `fact_ids`."""
    settled = await settle(asked.database, asked.reader, fact_ids, asked.as_of)
    confirming = {one.confirms: one.fact_id for one in settled.values() if one.confirms and not one.superseded_by}
    if not confirming:
        return candidates, settled
    heads = await _read_facts(asked.database, asked.reader, confirming.keys() - candidates.keys())
    again = {one.fact_id: replace(candidates[confirming[one.fact_id]], fact=one) for one in heads}
    more = await settle(asked.database, asked.reader, confirming.keys() - settled.keys(), asked.as_of)
    return {**again, **candidates}, {**settled, **more}


def _rank_holding(
    asked: _Asked, candidates: Mapping[UUID, _Candidate], settled: Mapping[UUID, SettledFact]
) -> list[FoundFact]:
    """Those that are settled and hold. All are ranked, as the cosines of all are the scale."""
    holding = hold_at([one.fact for one in candidates.values()], settled, asked.as_of or asked.now)
    facts = {one.fact_id: one for one in holding}
    current = {key: replace(one, fact=facts.get(key, one.fact)) for key, one in candidates.items()}
    return [
        FoundFact(facts[one.candidate.fact_id], one.relevance, one.score, one.candidate.words, one.candidate.cosine)
        for one in _rank_all(current, asked.now)
        if one.candidate.fact_id in facts
    ]


def _rank_all(candidates: Mapping[UUID, _Candidate], now: datetime) -> list[RankedFact]:
    return rank_candidates(
        (
            RecallCandidate(
                *(key, one.cosine, one.words, one.fact.said_at or one.fact.created_at),
                *(one.fact.importance, one.fact.valid_from),
            )
            for key, one in candidates.items()
        ),
        now,
    )

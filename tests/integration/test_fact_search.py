"""What is found is what rating all that the reader may be told finds, by words and vectors; nothing else counts."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from msgspec.structs import replace
from pydantic import SecretStr

from switchboard.app.memory.indexing import FactIndexer
from switchboard.app.ops.backup import back_up, restore
from switchboard.app.settings import Settings
from switchboard.core.memory.bm25 import count_terms, rate_texts
from switchboard.core.memory.relevance import RecallCandidate, rank_candidates
from switchboard.core.memory.terms import TextTerms, read_terms
from switchboard.core.memory.vectors import cosine_of, pack_vector
from switchboard.core.memory.wanted import find_unknown, likeness_to, terms_of_question
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.ports.embedder import EmbeddingModel, Vector
from switchboard.ports.facts import Fact, Reader
from switchboard.store.database import Database, query, rows_as
from switchboard.store.memory import fact_terms, fact_vectors, facts
from switchboard.store.memory.facts import NewFact
from switchboard.store.memory.readers import handle_columns, reader_columns
from switchboard.store.memory.search import FactSearch
from switchboard.store.memory.standing import hold_at, settle

NOTES: Final = SystemId("System1/notes")
NOW: Final = datetime(2027, 3, 1, 12, tzinfo=UTC)
LANGUAGES: Final = ("de", "en")
ANN: Final = Reader(NOTES, Conversation("telegram/bot/ann"), "telegram/bot/ann", private=True)
BOB: Final = replace(ANN, conversation=Conversation("telegram/bot/bob"), person="telegram/bot/bob")
GROUP: Final = Reader(NOTES, Conversation("telegram/bot/group"), "telegram/bot/ann")
WORDS: Final = (
    *("noor", "hazelnut", "boiler", "plumber", "Haselnüsse", "Klempner", "passport", "AB-1234", "dentist", "Leeds"),
    *("allergic", "repaired", "expires", "garden", "not", "seven", "Tuesday", "bicycle", "Wohnung", "Müller"),
)
QUESTIONS: Final = (
    "What is Noor allergic to?",
    "Wann kommt der Klempner in die Wohnung?",
    "hazlenut plumbre",
    "Which of them expires: the passport, the boiler, or AB1234?",
    "nothing of this kind exists",
    "",
)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.connect(database_url, size=2)
    yield opened
    await opened.close()


def make_facts(dice: random.Random, count: int) -> Iterator[NewFact]:
    for n in range(count):
        text = f"{' '.join(dice.choices(WORDS, k=dice.randint(1, 9)))} {n % 7}"
        said_at, importance = NOW - timedelta(days=dice.randint(0, 400)), dice.choice((0.2, 0.5, 0.9))
        subject = dice.choice(("self", "Noor"))
        yield NewFact("", subject, True, text, (), said_at=said_at, importance=importance)


async def learn(database: Database, by: Reader, new: NewFact) -> None:
    await facts.learn(database, by, replace(new, author=by.person, private=by.private))


async def told(database: Database, by: Reader) -> list[Fact]:
    given = *reader_columns(by), 10_000, *handle_columns(by)
    return rows_as(Fact, await database.rows(query("facts.visible"), *given))


class Letters:
    """An embedder for which texts are alike that have the same letters. `away`: it answers no question."""

    def __init__(self, revision: str, dimensions: int = 26) -> None:
        self.model = EmbeddingModel("letters", revision, dimensions, 100, frozenset(), local=True)
        self.waits: asyncio.Event | None = None

    async def embed_query(self, text: str) -> Vector:
        if self.waits is not None:
            await self.waits.wait()
        return self.vector_of(text)

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        return [self.vector_of(text) for text in texts]

    def vector_of(self, text: str) -> Vector:
        counts = Counter((ord(sign) * len(self.model.revision)) % self.model.dimensions for sign in text.lower())
        return pack_vector([1.0 + counts[n] for n in range(self.model.dimensions)])


async def search(
    database: Database, by: Reader, question: str, limit: int = 1000, embedder: Letters | None = None
) -> list[tuple[UUID, float]]:
    found = await FactSearch(database, embedder).search_facts(by, question, limit, NOW)
    return [(one.fact.fact_id, round(one.score, 3 if embedder else 9)) for one in found]


async def rate_all(
    database: Database, by: Reader, asked: str, embedder: Letters | None = None
) -> list[tuple[UUID, float]]:
    """What is found by reading everything that the reader may be told."""
    question, visible = terms_of_question(read_terms(asked, LANGUAGES)), await told(database, by)
    terms = [fact_terms.terms_of_fact(one.subject, one.text, LANGUAGES) for one in visible]
    statistics = count_terms(terms)
    wanted = {form for forms in find_meant(question, terms).values() for form in forms}
    rated = zip(visible, terms, rate_texts(question, terms, statistics), strict=True)
    settled = await settle(database, by, [one.fact_id for one in visible])
    said = {one.fact_id: one.said_at or NOW for one in hold_at(visible, settled, NOW)}
    candidates = [
        RecallCandidate(
            *(one.fact_id, likeness(embedder, one, asked), words, said.get(one.fact_id, NOW)), one.importance
        )
        for one, text, words in rated
        if embedder or any(word & wanted for word in text.words)
    ]
    ranked = [one for one in rank_candidates(candidates, NOW) if one.candidate.fact_id in said]
    return [(one.candidate.fact_id, round(one.score, 3 if embedder else 9)) for one in ranked]


def likeness(embedder: Letters | None, fact: Fact, asked: str) -> float | None:
    if embedder is None:
        return None
    text = fact_terms.searched_text(fact.subject, fact.text)
    return cosine_of(embedder.vector_of(text), embedder.vector_of(asked))


def find_meant(question: TextTerms, terms: Sequence[TextTerms]) -> dict[int, set[str]]:
    """The forms that each word of a question is found by."""
    known = {form for text in terms for word in text.words for form in word}
    meant = {place: {*word} for place, word in enumerate(question.words)}
    for place in find_unknown(question, count_terms(terms)):
        like = likeness_to(question.trigrams[place])
        shared = {form: question.trigrams[place] & trigrams_of(form) for form in known}
        meant[place] = {
            form
            for form, same in shared.items()
            if len(same) >= like.fewest and (len(same) >= like.most or like.begins in same)
        }
    return meant


def trigrams_of(form: str) -> frozenset[str]:
    spaced = f" {form} "
    return frozenset(spaced[at : at + 3] for at in range(len(form)))


async def test_what_is_found_is_what_rating_everything_finds(database: Database) -> None:
    dice = random.Random(45)
    for by in (ANN, GROUP, BOB):
        for new in make_facts(dice, 60):
            await learn(database, by, new)
    for one in dice.sample(await told(database, BOB), 10):
        assert await facts.share_as_operator(database, one.fact_id)
    for one in dice.sample(await told(database, ANN), 6):
        await facts.undo(database, one.fact_id)
    for one in dice.sample(await told(database, ANN), 6):
        await facts.forget(database, one.fact_id)
    for by in (ANN, GROUP, BOB):
        for question in QUESTIONS:
            expected = await rate_all(database, by, question)
            assert await search(database, by, question) == expected, (by.person, question)
            assert bool(expected) == (question not in QUESTIONS[-2:])


async def test_what_is_hidden_changes_nothing(database: Database) -> None:
    dice = random.Random(46)
    for new in make_facts(dice, 40):
        await learn(database, ANN, new)
    before = [await search(database, ANN, question) for question in QUESTIONS]
    for new in make_facts(dice, 80):
        await learn(database, BOB, new)
        await learn(database, GROUP, new)
    assert [await search(database, ANN, question) for question in QUESTIONS] == before


async def test_facts_are_read_anew_when_the_languages_change(database: Database) -> None:
    await learn(database, ANN, NewFact("", "self", True, "Il pleut continuellement", ()))
    [(_, by_likeness)] = await search(database, ANN, "continuelle")
    assert await fact_terms.change_languages(database, ("fr",))
    assert not await fact_terms.change_languages(database, ("fr",))
    assert await fact_terms.read_unread(database, 10) == 1
    assert await fact_terms.read_unread(database, 10) == 0
    [(_, by_stem)] = await search(database, ANN, "continuelle")
    assert by_stem > by_likeness


async def test_nothing_of_forgotten_facts_stays(database: Database) -> None:
    for new in make_facts(random.Random(47), 30):
        await learn(database, ANN, new)
    for one in await told(database, ANN):
        await facts.forget(database, one.fact_id)
    left = {name: await database.value(sql) for name, sql in LEFT.items()}
    assert left == dict.fromkeys(LEFT, 0)


@pytest.mark.parametrize("pgvector", [True, False])
async def test_with_vectors_it_is_the_same_wherever_they_are(database: Database, *, pgvector: bool) -> None:
    if not pgvector:
        await database.run(WITHOUT_PGVECTOR)
    letters, dice = Letters("1"), random.Random(48)
    assert await index_all(database, letters) == 0
    for by in (ANN, BOB):
        for new in make_facts(dice, 90):
            await learn(database, by, new)
    assert await index_all(database, letters) > 150
    for one in dice.sample(await told(database, BOB), 10):
        assert await facts.share_as_operator(database, one.fact_id)
    for one in dice.sample(await told(database, ANN), 6):
        await facts.undo(database, one.fact_id)
    for one in dice.sample(await told(database, ANN), 6):
        await facts.forget(database, one.fact_id)
    standing = await fact_vectors.vector_standing(database)
    assert (standing.pgvector, standing.unread, standing.unembedded) == (pgvector, 0, 0)
    for question in QUESTIONS:
        expected = await rate_all(database, BOB, question, letters)
        assert same(await search(database, BOB, question, embedder=letters), expected)
    for shown in await facts.list_facts(database, None, None, None, 1000):
        await facts.forget(database, shown.fact_id)
    assert await database.value("select count(*) from fact_vector") == 0
    if pgvector:
        assert await database.value("select count(*) from fact_halfvec") == 0


def same(found: Sequence[tuple[UUID, float]], expected: Sequence[tuple[UUID, float]]) -> bool:
    """Half precision may exchange neighbours."""
    scores = dict(expected)
    return {one for one, _ in found} == scores.keys() and all(abs(score - scores[one]) < 0.01 for one, score in found)


async def index_all(database: Database, embedder: Letters) -> int:
    indexer, done = FactIndexer(database, LANGUAGES, embedder), 0
    await indexer.prepare()
    while some := await indexer.index_some():
        done += some
    return done


WITHOUT_PGVECTOR: Final = """
create or replace function prepare_pgvector() returns boolean language sql as 'select false'"""


async def test_lists_are_never_of_two_models(database: Database) -> None:
    """While facts get vectors of another model, who has the old one searches by it, until the new one is whole."""
    old, new = Letters("1"), Letters("333", 40)
    for one in make_facts(random.Random(49), 90):
        await learn(database, ANN, one)
    await index_all(database, old)
    by_old = await search(database, ANN, QUESTIONS[0], embedder=old)
    by_words = await search(database, ANN, QUESTIONS[0])
    model_id = await fact_vectors.enter_model(database, new.model)
    kinds = set()
    while await fact_vectors.embed_some(database, new, model_id, 7):
        found = (
            await search(database, ANN, QUESTIONS[0], embedder=old),
            await search(database, ANN, QUESTIONS[0], embedder=new),
        )
        kinds.add(tuple("old" if one == by_old else "words" if len(one) == len(by_words) else "new" for one in found))
    assert kinds == {("old", "words"), ("words", "new")}
    assert await search(database, ANN, QUESTIONS[0], embedder=new) != by_old


async def test_vectors_are_made_again_after_a_restore(database_url: str, database: Database, tmp_path: Path) -> None:
    letters, settings = Letters("1"), Settings(database_url=SecretStr(database_url))
    for one in make_facts(random.Random(50), 20):
        await learn(database, ANN, one)
    await index_all(database, letters)
    before = await search(database, ANN, QUESTIONS[0], embedder=letters)
    await back_up(settings, tmp_path / "backup", lambda _: None)
    await database.close()
    await restore(settings, tmp_path / "backup", lambda _: None, force=True)
    restored = await Database.connect(database_url, size=2)
    try:
        assert await search(restored, ANN, QUESTIONS[0], embedder=letters) != before
        assert await index_all(restored, letters) == len(before)
        assert await search(restored, ANN, QUESTIONS[0], embedder=letters) == before
    finally:
        await restored.close()


async def test_an_embedder_that_is_slow_delays_nothing(database: Database) -> None:
    letters = Letters("1")
    await learn(database, ANN, NewFact("", "self", True, "The boiler was repaired", ()))
    await index_all(database, letters)
    letters.waits = asyncio.Event()
    [found] = await FactSearch(database, letters, 0.01).search_facts(ANN, "boiler", 10, NOW)
    assert found.cosine is None
    letters.waits.set()
    [found] = await FactSearch(database, letters).search_facts(ANN, "boiler", 10, NOW)
    assert found.cosine is not None


LEFT: Final = {
    "fact_terms": "select count(*) from fact_terms",
    "fact_term_count": "select count(*) from fact_term_count",
    "fact_space": "select count(*) from fact_space",
    "fact_unread": "select count(*) from fact_unread",
}


async def test_ones_own_is_found_however_much_others_have_shared(database: Database) -> None:
    await learn(database, ANN, NewFact("", "self", True, "the boiler, which is very old, is in the cellar", ()))
    for n in range(130):
        await learn(database, BOB, NewFact("", "self", True, f"boiler {n}", ()))
    for one in await facts.list_facts(database, NOTES, BOB.person, None, 200):
        assert await facts.share_as_operator(database, one.fact_id)
    all_of_them = await FactSearch(database).search_facts(ANN, "boiler", 100, NOW)
    assert not any(one.fact.own for one in all_of_them)
    own = await FactSearch(database, own_only=True).search_facts(ANN, "boiler", 10, NOW)
    assert [one.fact.text for one in own] == ["the boiler, which is very old, is in the cellar"]

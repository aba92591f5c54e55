"""Vectors of facts, by which they are found whatever their words: kept in pgvector, or as bytes where it is not.

`app/memory/indexing.py` fills them, `search.py` compares them with that of a question. Only vectors of one model are
compared, and only once it has one of each fact that it may be given. Next: `sql/functions/fact_vectors.sql`.
"""

from __future__ import annotations

import asyncio
import sys
from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.core.memory.leaving import may_embed
from switchboard.core.memory.predicates import find_predicate
from switchboard.core.memory.relevance import CANDIDATES
from switchboard.core.memory.vectors import pack_vector
from switchboard.ports.embedder import Embedder, EmbeddingFailed, EmbeddingModel, Vector
from switchboard.store.database import Database, query, row_as, rows_as
from switchboard.store.memory.fact_terms import UnreadFact, searched_text

EXACT: Final = 20_000
"""Up to so many facts of a reader all are compared; of more, those that an index finds, if there is one."""

_ONE_CORE: Final = "set max_parallel_maintenance_workers = 0; set maintenance_work_mem = '256MB'"


class CompleteModel(Struct, frozen=True):
    """A model by which may be searched. `pgvector`: whether the database compares its vectors."""

    model_id: int
    pgvector: bool


class VectorStanding(Struct, frozen=True):
    """How many facts wait for their words, and for a vector; how many models there are; what compares vectors."""

    unread: int
    unembedded: int
    models: int
    pgvector: bool


class SampledVector(Struct, frozen=True):
    """A text, and the vector that is kept of it."""

    text: str
    vector: Vector


async def enter_model(database: Database, model: EmbeddingModel) -> int:
    """The number of a model; all facts wait for a vector of one that is new."""
    return int(await database.value(query("facts.enter_model"), *_columns_of(model)))


async def is_entered(database: Database, model_id: int) -> bool:
    """Whether there is a model of this number: another one that is complete takes its place."""
    return bool(await database.value(query("facts.is_entered"), model_id))


async def find_model(database: Database, model: EmbeddingModel) -> CompleteModel | None:
    """A model, if all facts have vectors of it."""
    return row_as(CompleteModel, await database.row(query("facts.find_model"), *_columns_of(model)))


async def vector_standing(database: Database) -> VectorStanding:
    """For operators."""
    [standing] = rows_as(VectorStanding, await database.rows(query("facts.vector_standing")))
    return standing


async def sample_vectors(database: Database, model: EmbeddingModel, most: int) -> Sequence[SampledVector]:
    """The oldest vectors of a model, with what they were made of; none of what it may not be given any more."""
    rows = await database.rows(query("facts.sampled_vectors"), *_columns_of(model), most)
    return [
        SampledVector(
            searched_text(row["subject"], row["text"]),
            pack_vector(row["numbers"]) if row["vector"] is None else Vector(row["vector"]),
        )
        for row in rows
        if may_embed(model, row["text"], find_predicate(row["predicate"]))
    ]


def _columns_of(model: EmbeddingModel) -> tuple[str, str, int]:
    return model.name, model.revision, model.dimensions


async def embed_some(database: Database, embedder: Embedder, model_id: int, limit: int) -> int:
    """Give at most so many facts a vector; returns how many waited for it. Raises `EmbeddingFailed`, `Unavailable`.

    What may not be given to the model, or what it fails at alone, stays without one, and is found by its words.
    """
    waiting = rows_as(UnreadFact, await database.rows(query("facts.unembedded"), model_id, limit))
    if not waiting:
        await database.run(query("facts.complete_model"), model_id)
        return 0
    given = [one for one in waiting if may_embed(embedder.model, one.text, find_predicate(one.predicate))]
    vectors = await _embed_each(embedder, [searched_text(one.subject, one.text) for one in given])
    by_id = {one.fact_id: vector for one, vector in zip(given, vectors, strict=True)}
    await put_vectors(database, model_id, [one.fact_id for one in waiting], [by_id.get(one.fact_id) for one in waiting])
    return len(waiting)


async def put_vectors(
    database: Database, model_id: int, fact_ids: Sequence[UUID], vectors: Sequence[Vector | None]
) -> None:
    """Keep the vectors of facts, which wait no more; nor do those without one."""
    texts = [None if one is None else _as_text(one) for one in vectors]
    await database.run(query("facts.put_vectors"), model_id, fact_ids, vectors, texts)


async def make_index(database: Database, model_id: int) -> bool:
    """Make the index of a model's vectors, if it is due; this takes minutes for a million. Whether one was."""
    statement = await database.value(query("facts.due_vector_index"), model_id, EXACT)
    if statement is None:
        return False
    connection = await database.dedicated_connection()
    try:
        await connection.execute(_ONE_CORE)
        await connection.execute(statement)
    finally:
        await connection.close()
    return True


async def _embed_each(embedder: Embedder, texts: Sequence[str]) -> Sequence[Vector | None]:
    """All at once; one by one if one of them is refused."""
    if not texts:
        return ()
    try:
        return await embedder.embed_passages(texts)
    except EmbeddingFailed as failure:
        if failure.away:
            raise
    return [await _embed_alone(embedder, text) for text in texts]


async def _embed_alone(embedder: Embedder, text: str) -> Vector | None:
    try:
        [vector] = await embedder.embed_passages([text])
    except EmbeddingFailed as failure:
        if failure.away:
            raise
        return None
    return vector


async def embed_in_time(embedder: Embedder, text: str, patience_s: float) -> Vector | None:
    """The vector of a question; None if there is none in so many seconds.

    A model that is opened by its first question goes on with that: the next one finds it open.
    """
    asking = asyncio.create_task(embedder.embed_query(text))
    asking.add_done_callback(_forget_asking)
    await asyncio.wait([asking], timeout=patience_s)
    return asking.result() if asking.done() and asking.exception() is None else None


def _forget_asking(asking: asyncio.Task[Vector]) -> None:
    """A failure is no news: whoever opens the model has told of it."""
    if not asking.cancelled():
        asking.exception()


async def find_cosines(
    database: Database,
    found: CompleteModel,
    spaces: Sequence[int],
    texts: int,
    question: Vector,
    more: Collection[UUID],
) -> Mapping[UUID, float]:
    """Cosines to a question: of the nearest facts of these spaces, which have so many texts, and of `more`.

    Empty if neither the database nor this process can compare so many.
    """
    if found.pgvector:
        given = found.model_id, spaces, _numbers_of(question), list(more), CANDIDATES, texts <= EXACT
        rows = await database.rows(query("facts.nearest"), *given)
        return {row["fact_id"]: row["cosine"] for row in rows}
    if texts > EXACT:
        return {}
    rows = await database.rows(query("facts.vectors"), found.model_id, spaces)
    kept = {row["fact_id"]: Vector(row["vector"]) for row in rows}
    return await asyncio.to_thread(_compare_here, question, kept, more)


def _compare_here(question: Vector, kept: Mapping[UUID, Vector], more: Collection[UUID]) -> Mapping[UUID, float]:
    try:
        from switchboard.core.memory.nearest import find_nearest
    except ImportError:  # numpy comes with the extra `memory`
        return {}
    fact_ids = sorted(kept)
    places = find_nearest(question, [kept[one] for one in fact_ids], len(fact_ids))
    cosines = {fact_ids[place]: cosine for place, cosine in places}
    nearest = {fact_ids[place] for place, _ in places[:CANDIDATES]}
    return {fact_id: cosines[fact_id] for fact_id in nearest | (cosines.keys() & set(more))}


def _numbers_of(vector: Vector) -> array[float]:
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _as_text(vector: Vector) -> str:
    """As pgvector reads it; half precision has no more than four digits."""
    return f"[{','.join(f'{one:.6f}' for one in _numbers_of(vector))}]"

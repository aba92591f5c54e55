"""Measures how fast memory is searched, and whether the index of vectors finds what comparing all of them would.

Called by `switchboard bench memory`. In: how many facts; out: a row for each reader. The database is a separate one;
facts are kept as turns keep them, with vectors of the local model for some hundred texts, and noise for the others: to
embed all would take a quarter of an hour. Next: `store/memory/search.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from statistics import fmean
from time import perf_counter, process_time
from typing import Final

import numpy as np
from msgspec import Struct

from switchboard.bench import lab
from switchboard.core.memory.settling import SELF
from switchboard.core.people.handle import Handle
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.llm.local_embedder import open_local_embedder
from switchboard.ports.embedder import Embedder, Vector
from switchboard.ports.facts import Reader
from switchboard.store.database import Database, query
from switchboard.store.memory import fact_vectors, facts
from switchboard.store.memory.facts import NewFact
from switchboard.store.memory.readers import handle_columns, reader_columns
from switchboard.store.memory.search import FactSearch
from switchboard.store.migrate import migrate
from switchboard.store.people import people

SIZES: Final = (1_000, 10_000, 100_000)
_SHARES: Final = {"thousandth": 0.001, "hundredth": 0.01, "fifth": 0.2, "quarter": 0.25}
"""Of the facts, by their only reader."""
_REST: Final = "rest"
FOUND: Final = 20
_BUTLER: Final = SystemId("System1/home")
_NOW: Final = datetime(2027, 1, 1, tzinfo=UTC)
_NOISE: Final = 0.4
"""Length of the noise beside a vector of length one."""
_BATCH: Final = 500
_NAMES: Final = ("Noor", "Lena", "Farid", "Inge", "Tobias", "Frau Müller", "the neighbour", "Dr. Weber", "Sam", "Yusuf")
_THINGS: Final = (
    *("is allergic to hazelnuts", "repaired the boiler", "hat den Schlüssel für den Keller", "plays the violin"),
    *("goes to the school in Park Street", "trinkt keinen Kaffee", "works at the harbour", "needs new winter tyres"),
    *("wants to learn Portuguese", "has the passport AB-4471", "mag keine Rosinen", "drives the blue van"),
    *("lives at Lindenweg 12", "is afraid of dogs", "hat im Mai Geburtstag", "takes the train at seven"),
    *("collects old maps", "reads to the children", "kommt jeden Donnerstag", "knows a good plumber"),
    *("sold the red bicycle", "sings in a choir", "sucht eine Wohnung in Leeds", "bakes bread on Sundays"),
    *("broke a tooth", "waters the plants in summer", "hat einen Garten", "runs ten kilometres"),
    *("left the keys with the caretaker", "prefers tea with milk", "zahlt die Miete am Ersten", "speaks Turkish"),
)
_MONTHS: Final = ("January", "Februar", "March", "April", "May", "June", "Juli", "August", "September", "Oktober")
_WHEN: Final = tuple(f"{month} {year}" for year, month in product(range(1950, 2027), _MONTHS))
_QUESTIONS: Final = (
    "What is Noor allergic to?",
    "Wer kann die Heizung reparieren?",
    "Who has the key to the cellar?",
    "passport AB4471",
    "Where does Frau Müller live?",
    "Who plays an instrument?",
    "Wer fährt den blauen Wagen?",
    "does Sam drink cofee",
    "Which day does the neighbour come?",
    "What should I bake for Inge's birthday?",
    "Who looks after the flowers in July?",
    "Wann ist die Miete fällig?",
)


class MemoryTimes(Struct, frozen=True):
    """Of one reader, in milliseconds. `recall`: the share of the nearest facts that searching by index finds.

    `missing`: how many facts too few any search has found.
    """

    facts: int
    seen: int
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    """Of one search, in this process and in PostgreSQL."""
    recall: float
    missing: int


async def measure_memory(size: int, rounds: int) -> list[MemoryTimes]:
    """A row for each reader. Raises ConfigurationError if the local model is not installed."""
    embedder = await open_local_embedder()
    with lab.home() as place:
        async with lab.database(place, 4) as database:
            await migrate(database)
            await _fill_database(database, embedder, size)
            search = FactSearch(database, embedder)
            rows = [await _measure_reader(search, embedder, name, size, rounds) for name in _SHARES]
            await _link_all(database)
            return [*rows, await _measure_reader(search, embedder, _REST, size, rounds)]


# Filling ------------------------------------------------------------------------------------------------------------


async def _fill_database(database: Database, embedder: Embedder, size: int) -> None:
    """Each share is private to a reader, and the rest to one more."""
    counts = {name: max(FOUND, round(size * share)) for name, share in _SHARES.items()}
    model_id = await fact_vectors.enter_model(database, embedder.model)
    texts = (f"{' '.join(of)} in {when}" for when, *of in product(_WHEN, _NAMES, _THINGS))
    for name, count in {**counts, _REST: size - sum(counts.values())}.items():
        await _learn_facts(database, _reader_of(name), islice(texts, count))
    bases = sorted(map(" ".join, product(_NAMES, _THINGS)))
    vectors = dict(zip(bases, await embedder.embed_passages(bases), strict=True))
    dice = np.random.default_rng(45)
    while waiting := await database.rows(query("facts.unembedded"), model_id, _BATCH):
        made = [_add_noise(vectors[row["text"].rpartition(" in ")[0]], dice) for row in waiting]
        await fact_vectors.put_vectors(database, model_id, [row["fact_id"] for row in waiting], made)
    await fact_vectors.make_index(database, model_id)
    await database.run("vacuum analyze")


async def _learn_facts(database: Database, reader: Reader, texts: Iterator[str]) -> None:
    while some := list(islice(texts, _BATCH)):
        new = [NewFact(reader.person, SELF, True, text, (), said_at=_NOW - timedelta(days=90)) for text in some]
        rows = await facts.fact_rows(database, reader.system_id, new)
        await database.value(query("facts.learn"), reader.system_id, reader.conversation, rows)


def _add_noise(vector: Vector, dice: np.random.Generator) -> Vector:
    numbers = np.frombuffer(vector, dtype="<f4")
    noisy = numbers + dice.normal(0, _NOISE / len(numbers) ** 0.5, len(numbers))
    return Vector((noisy / np.linalg.norm(noisy)).astype("<f4").tobytes())


async def _link_all(database: Database) -> None:
    """All readers are one person from now on, so that each of them sees everything."""
    await people.create(database, "all", "All")
    for name in (*_SHARES, _REST):
        await people.link(database, "all", Handle("telegram", "", name), "bench")


def _reader_of(name: str) -> Reader:
    person = f"telegram/bot/{name}"
    return Reader(_BUTLER, Conversation(person), person, private=True)


# Measuring ----------------------------------------------------------------------------------------------------------


async def _measure_reader(search: FactSearch, embedder: Embedder, name: str, size: int, rounds: int) -> MemoryTimes:
    reader, took, missing = _reader_of(name), list[float](), 0
    spaces = await _spaces_of(search.database, reader)
    cpu = await _measure_cpu(search.database)
    for n in range(rounds):
        began = perf_counter()
        found = await search.search_facts(reader, _QUESTIONS[n % len(_QUESTIONS)], FOUND, _NOW)
        took.append((perf_counter() - began) * 1000)
        missing = max(missing, FOUND - len(found))
    cpu = (await _measure_cpu(search.database) - cpu) / rounds
    recall = fmean([await _measure_recall(search.database, embedder, spaces, one) for one in _QUESTIONS])
    seen = sum(spaces.values())
    return MemoryTimes(size, seen, lab.percentile(took, 50), lab.percentile(took, 99), cpu, recall, missing)


async def _measure_cpu(database: Database) -> float:
    """Milliseconds so far."""
    rows = await database.rows("select pid from pg_stat_activity where application_name = 'switchboard'")
    return process_time() * 1000 + lab.cpu_ms(row["pid"] for row in rows)


async def _spaces_of(database: Database, reader: Reader) -> Mapping[int, int]:
    """The spaces that a reader sees, and how many facts are in each."""
    rows = await database.rows(query("facts.spaces_seen"), *reader_columns(reader), *handle_columns(reader))
    return {row["space_id"]: row["facts"] for row in rows}


async def _measure_recall(database: Database, embedder: Embedder, spaces: Mapping[int, int], question: str) -> float:
    """How many of the nearest are found as a search finds them."""
    model, vector = await fact_vectors.find_model(database, embedder.model), await embedder.embed_query(question)
    if model is None:
        return 0.0
    exact, usual = [
        await fact_vectors.find_cosines(database, model, [*spaces], texts, vector, ())
        for texts in (0, sum(spaces.values()))
    ]
    nearest = sorted(exact, key=lambda one: -exact[one])[:FOUND]
    return fmean(one in usual for one in nearest)

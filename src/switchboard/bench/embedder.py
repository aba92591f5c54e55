"""Measures what makes vectors for memory: how long it takes to start, its memory, the time of questions and passages.

Called by `switchboard bench embedder`. In: how many texts, and a server, if it is not the local model; out: a frozen
value, which the CLI prints. The same texts are read for their words alone, as every search does, in between. Next:
`llm/local_embedder.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from time import perf_counter, process_time
from typing import Final

from msgspec import Struct

from switchboard.bench import lab
from switchboard.core.memory.settings import EmbedderSpec
from switchboard.core.memory.terms import read_terms
from switchboard.core.policy.budget import Cap
from switchboard.llm.local_embedder import open_local_embedder
from switchboard.llm.remote_embedder import RemoteEmbedder
from switchboard.llm.spending import DayBook
from switchboard.llm.web import open_client
from switchboard.ports.embedder import Embedder
from switchboard.transport.signed_post import header_with_key

_LANGUAGES: Final = ("de", "en")
_QUESTIONS: Final = (
    "Which nuts must Noor not eat? ({})",
    "Wann wurde die Heizung zuletzt gewartet? ({})",
    "Who was the plumber who repaired boiler {} last winter?",
)
_PASSAGES: Final = (
    "Noor's school trip number {} goes to the lake on Friday, and she needs boots, a raincoat and lunch without nuts.",
    "Frau Müller aus Wohnung {} hat den Schlüssel für den Keller, wenn im Winter jemand nach der Heizung sehen muss.",
)


class EmbedderTimes(Struct, frozen=True):
    """Of each kind of text: milliseconds of each call, CPU milliseconds of one, and milliseconds to read its words."""

    what: str
    texts: int
    calls_ms: tuple[float, ...]
    cpu_ms: float
    words_ms: float

    @property
    def p50_ms(self) -> float:
        """Of a text."""
        return lab.percentile(self.calls_ms, 50) / self.texts

    @property
    def p99_ms(self) -> float:
        """Of a text."""
        return lab.percentile(self.calls_ms, 99) / self.texts

    @property
    def ratio(self) -> float:
        """Of the median to the reading of words."""
        return self.p50_ms / self.words_ms


class EmbedderResult(Struct, frozen=True):
    """Of one model; `memory_mb`: what the process has grown by, None on systems that do not tell."""

    start_s: float
    start_cpu_s: float
    memory_mb: float | None
    times: tuple[EmbedderTimes, ...]


async def measure_embedder(calls: int, batch: int = 32, spec: EmbedderSpec | None = None) -> EmbedderResult:
    """Open the local model in this process, or the client of a server, and ask it.

    Raises ConfigurationError if it is not installed or has no key, EmbeddingFailed if the server does not answer.
    """
    before, began, cpu = lab.resident_mb(os.getpid()), perf_counter(), process_time()
    embedder = await open_local_embedder() if spec is None else _open_client_of(spec)
    took, took_cpu = perf_counter() - began, process_time() - cpu
    questions = [[_QUESTIONS[n % len(_QUESTIONS)].format(n)] for n in range(calls)]
    passages = [
        [_PASSAGES[m % len(_PASSAGES)].format(n + m) for m in range(batch)] for n in range(max(1, calls // batch))
    ]
    try:
        times = (
            await _measure_texts("a question", embedder, questions),
            await _measure_texts("passages", embedder, passages),
        )
    finally:
        await embedder.aclose()
    return EmbedderResult(took, took_cpu, lab.growth(before, lab.resident_mb(os.getpid())), times)


def _open_client_of(spec: EmbedderSpec) -> RemoteEmbedder:
    """What it costs is in no books of an installation."""
    key = header_with_key(spec.api_key_env, "Authorization", hint=", as the provider gives it")
    return RemoteEmbedder(open_client(), spec, key, DayBook(lambda: datetime.now(UTC).date()), Cap())


async def _measure_texts(what: str, embedder: Embedder, calls: Sequence[Sequence[str]]) -> EmbedderTimes:
    size, took, cpu, reading = len(calls[0]), list[float](), 0.0, 0.0
    for texts in calls:
        began, cpu_before = perf_counter(), process_time()
        await (embedder.embed_query(texts[0]) if size == 1 else embedder.embed_passages(texts))
        took.append((perf_counter() - began) * 1000)
        cpu += process_time() - cpu_before
        began = perf_counter()
        for text in texts:
            read_terms(text, _LANGUAGES)
        reading += perf_counter() - began
    texts_in_all = size * len(calls)
    return EmbedderTimes(what, size, tuple(took), cpu * 1000 / texts_in_all, reading * 1000 / texts_in_all)

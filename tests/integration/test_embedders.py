"""What makes vectors in a process: which one the settings choose, when it is opened, and what is said if it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from switchboard.app.memory.checks import check_embedder
from switchboard.app.memory.embedding import ProcessEmbedder, choose_embedder, embedder_of
from switchboard.app.memory.indexing import FactIndexer
from switchboard.app.settings import Settings
from switchboard.bench.embedder import measure_embedder
from switchboard.core.memory.settings import find_embedder
from switchboard.core.memory.vectors import cosine_of, pack_vector
from switchboard.domain.errors import ConfigurationError
from switchboard.llm import local_embedder
from switchboard.ports.embedder import EmbeddingFailed, EmbeddingModel, Vector
from switchboard.store.memory.facts import NewFact
from switchboard.store.models import usage
from switchboard.store.models.usage import UsagePeriod
from switchboard.testing.scripted_llm import Reply, Rule, Script, ScriptedLlm, Status, When
from tests.integration.test_fact_search import ANN, WITHOUT_PGVECTOR, learn
from tests.lab import lab

MODEL = EmbeddingModel("m", "1", 2, 512, frozenset({"en"}))


def settings_of(url: str = "http://127.0.0.1:9", chosen: str | None = None, **more: Any) -> Settings:
    far = {"name": "far", "base_url": f"{url}/v1", "model": "m", "dimensions": 256, "languages": ["en"], **more}
    return Settings.model_validate({"memory": {"embedder": chosen}, "embedders": [far]})


def without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_embedder, "_NEEDED", ("no_such_package",))


@pytest.mark.parametrize(
    ("chosen", "installed", "found"),
    [
        (None, True, "local"),
        (None, False, "none"),
        ("none", True, "none"),
        ("local", False, "local"),
        ("far", True, "far"),
    ],
)
def test_nothing_is_sent_anywhere_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, found: str, *, installed: bool
) -> None:
    monkeypatch.setattr(local_embedder, "_NEEDED", ("msgspec",) if installed else ("no_such_package",))
    told = choose_embedder(settings_of(chosen=chosen))
    assert (told if isinstance(told, str) else told.name) == found


class Opening:
    """Opens what a test gives it, after so many failures; `opened`: how often it was asked to."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.opened = 0
        self.closed = 0

    async def __call__(self) -> Opening:
        self.opened += 1
        await asyncio.sleep(0)
        if isinstance(one := next(iter(self.failures), None), ConfigurationError):
            raise one
        return self

    @property
    def model(self) -> EmbeddingModel:
        return MODEL

    async def embed_query(self, text: str) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return pack_vector([float(len(text)), 1.0])

    async def embed_passages(self, texts: Any) -> Any:
        return [await self.embed_query(text) for text in texts]

    async def aclose(self) -> None:
        self.closed += 1


async def test_it_is_opened_once_by_the_first_text_and_closed_only_then() -> None:
    opening = Opening()
    embedder = ProcessEmbedder(MODEL, opening)
    assert (embedder.model, opening.opened) == (MODEL, 0)
    await embedder.aclose()
    assert opening.closed == 0
    one, many = await asyncio.gather(embedder.embed_query("a"), embedder.embed_passages(["a", "b"]))
    assert (opening.opened, list(many)) == (1, [one, one])
    await embedder.aclose()
    assert opening.closed == 1


async def test_what_cannot_be_opened_is_told_once_and_not_tried_again() -> None:
    opening = Opening(ConfigurationError("other weights"))
    embedder = ProcessEmbedder(MODEL, opening)
    with capture_logs() as logs:
        for _ in range(3):
            with pytest.raises(EmbeddingFailed, match="other weights") as failed:
                await embedder.embed_query("a")
            assert failed.value.away
    assert (opening.opened, [one["why"] for one in logs]) == (1, ["other weights"])


async def test_an_outage_is_told_once_until_it_is_over() -> None:
    outage = [EmbeddingFailed("away", away=True), EmbeddingFailed("away", away=True)]
    text = EmbeddingFailed("this text")
    opening = Opening(*outage, text)
    embedder = ProcessEmbedder(MODEL, opening)
    with capture_logs() as logs:
        for _ in range(3):
            with pytest.raises(EmbeddingFailed):
                await embedder.embed_query("a")
        assert await embedder.embed_query("a")
        opening.failures.append(EmbeddingFailed("away again", away=True))
        with pytest.raises(EmbeddingFailed):
            await embedder.embed_query("a")
    assert [one["why"] for one in logs] == ["away", "away again"]


async def test_a_server_that_is_named_is_used_and_is_in_the_books(database_url: str) -> None:
    async with lab(database_url) as parts, ScriptedLlm([]) as server, AsyncExitStack() as closing:
        embedder = embedder_of(settings_of(server.url, "far", price=1.0), parts.database, closing)
        assert embedder is not None
        assert (embedder.model.name, embedder.model.dimensions, embedder.model.local) == ("m", 256, False)
        question, [passage] = await embedder.embed_query("the boiler"), await embedder.embed_passages(["the boiler"])
        assert cosine_of(question, passage) == pytest.approx(1, abs=1e-5)
        today = datetime.now(UTC)
        [booked] = await usage.usage(parts.database, "asker", UsagePeriod(today, today), 10)
        assert (booked.key, booked.attempts, booked.failed) == ("memory", 2, 0)
        assert booked.tokens_in > 0


async def test_a_key_that_is_named_and_not_there_is_told(database_url: str) -> None:
    settings = settings_of(chosen="far", api_key_env="NO_SUCH_KEY")
    async with lab(database_url) as parts, AsyncExitStack() as closing:
        embedder = embedder_of(settings, parts.database, closing)
        assert embedder is not None
        with pytest.raises(EmbeddingFailed, match="NO_SUCH_KEY holds no secret"):
            await embedder.embed_query("a")
        [found] = await check_embedder(parts.database, settings)
        assert (found.status, "NO_SUCH_KEY" in found.detail) == ("error", True)


async def test_doctor_says_by_what_memory_is_searched(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def told(settings: Settings) -> tuple[str, str]:
        [found] = await check_embedder(parts.database, settings)
        assert found.name == "memory"
        assert bool(found.remedy) == (found.status != "ok")
        return found.status, f"{found.detail}; {found.remedy}"

    broken = Rule(When(dialect="openai-embeddings"), (Reply(fault=Status(503)),))
    async with lab(database_url) as parts, ScriptedLlm(Script(rules=(broken,))) as server:
        status, said = await told(settings_of(server.url, "far"))
        assert (status, "status 503" in said, "words alone" in said) == ("warning", True, True)
        status, said = await told(settings_of(server.url, "far"))
        assert (status, "but none of health, money or secrets" in said) == ("ok", True)
        status, said = await told(settings_of(server.url, "far", local=True))
        assert (status, "all facts and questions" in said) == ("ok", True)
        without_extra(monkeypatch)
        assert await told(settings_of(chosen="none")) == ("ok", "it is searched by words alone; ")
        status, said = await told(settings_of())
        assert (status, "[memory]'" in said) == ("ok", True)
        status, said = await told(settings_of(chosen="local"))
        assert (status, "no_such_package" in said, "[memory]'" in said) == ("error", True, True)
        with capture_logs() as logs:
            assert embedder_of(settings_of(chosen="local"), parts.database, AsyncExitStack()) is None
        assert "no_such_package" in logs[0]["why"]


class OtherWeights:
    """What once made vectors under the name of another model."""

    def __init__(self, model: EmbeddingModel) -> None:
        self.model = model

    async def embed_query(self, _: str) -> Vector:
        return pack_vector(range(self.model.dimensions))

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        return [await self.embed_query(text) for text in texts]


@pytest.mark.parametrize("pgvector", [True, False])
async def test_doctor_finds_stored_vectors_of_other_weights(database_url: str, *, pgvector: bool) -> None:
    async with lab(database_url) as parts, ScriptedLlm([]) as server, AsyncExitStack() as closing:
        if not pgvector:
            await parts.database.run(WITHOUT_PGVECTOR)
        for n in range(12):
            await learn(parts.database, ANN, NewFact("", "self", True, f"Shelf {n} is full", ()))
        settings = settings_of(server.url, "far")
        far = embedder_of(settings, parts.database, closing)
        assert far is not None
        told = []
        for embedder in (far, OtherWeights(far.model)):
            await parts.database.run("delete from fact_model")
            indexer = FactIndexer(parts.database, ("en",), embedder)
            await indexer.prepare()
            assert await indexer.index_some() >= 12
            told += await check_embedder(parts.database, settings)
            assert len(server.requests[-1].messages) == 10
        assert [one.status for one in told] == ["ok", "error"]
        assert "10 stored vectors are not what m at 127.0.0.1" in told[1].detail


@pytest.mark.skipif(
    local_embedder.missing_package() is not None,
    reason="the local model is not installed: it comes with the extra `memory`",
)
async def test_the_local_model_is_known_before_it_is_loaded(database_url: str) -> None:
    async with lab(database_url) as parts, AsyncExitStack() as closing:
        embedder = embedder_of(Settings(), parts.database, closing)
        assert isinstance(embedder, ProcessEmbedder)
        assert (embedder.model.local, embedder.model.dimensions) == (True, 512)
        assert embedder._opened is None
        [found] = await check_embedder(parts.database, Settings())
        assert (found.status, embedder.model.name in found.detail) == ("ok", True)
        assert embedder._opened is None


async def test_the_benchmark_measures_a_server_of_the_settings() -> None:
    async with ScriptedLlm([]) as server:
        spec = find_embedder(settings_of(server.url).embedders, "far")
        result = await measure_embedder(32, 8, spec)
        assert [len(one.calls_ms) for one in result.times] == [32, 4]
        assert len(server.requests) == 36
    with pytest.raises(ConfigurationError, match="there is no near in the settings; there are: far"):
        find_embedder([spec], "near")

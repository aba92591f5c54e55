"""Vectors from a server: what it is sent, what of its answers is believed, and what becomes of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from typing import Any, Final

import pytest

from switchboard.core.memory.settings import EmbedderSpec
from switchboard.core.memory.vectors import cosine_of
from switchboard.core.policy.budget import Amount, Cap
from switchboard.llm.remote_embedder import RemoteEmbedder
from switchboard.llm.spending import DayBook
from switchboard.llm.web import open_client
from switchboard.ports.embedder import EmbeddingFailed
from switchboard.testing.scripted_llm import (
    ContentType,
    Cut,
    Disconnect,
    Empty,
    Fault,
    Garbage,
    Hang,
    Reply,
    Rule,
    Script,
    ScriptedLlm,
    Status,
    When,
)

NO_CAP: Final = Cap()
TEXTS: Final = ("The boiler was repaired in March.", "Ann likes tea.", "The key is under the third flower pot.")


def failing(*faults: Fault | None) -> ScriptedLlm:
    """A server that fails in these ways, one after the other, and then answers."""
    rule = Rule(When(dialect="openai-embeddings"), tuple(Reply(fault=fault) for fault in faults))
    return ScriptedLlm(Script(rules=(rule,) if faults else ()))


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def asking(
    server: ScriptedLlm, cap: Cap = NO_CAP, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[tuple[RemoteEmbedder, DayBook]]:
    given = {"name": "far", "base_url": f"{server.url}/v1", "model": "m", "dimensions": 256, "languages": ("en",)}
    book = DayBook(lambda: date(2026, 1, 1))
    key = {"Authorization": "Bearer canary-key"}
    spec = EmbedderSpec(**{**given, **settings})
    embedder = RemoteEmbedder(open_client(), spec, key, book, cap, pauses=(0.0, 0.0), clock=clock or Clock())
    try:
        yield embedder, book
    finally:
        await embedder.aclose()


async def test_questions_are_near_what_they_ask_for_and_are_paid_for() -> None:
    async with failing() as server, asking(server, price=0.5, query_prefix="query: ") as (embedder, book):
        passages = await embedder.embed_passages(TEXTS)
        question = await embedder.embed_query("Who repaired the boiler?")
        near = [cosine_of(question, one) for one in passages]
        assert near.index(max(near)) == 0
        sent = [[one.text for one in request.messages] for request in server.requests]
        assert sent == [list(TEXTS), ["query: Who repaired the boiler?"]]
        assert server.requests[0].body["encoding_format"] == "float"
        assert "dimensions" not in server.requests[0].body
        assert "canary-key" not in str(server.requests)
        tokens = book.account.spent.tokens
        assert 0 < tokens // 2 - 2 <= book.account.spent.micros <= tokens // 2 + 2
        assert book.account.reserved == Amount()


async def test_many_passages_are_sent_in_batches_and_come_in_their_order() -> None:
    texts = [f"Room {number} is {'very ' * (number % 7)}large" for number in range(70)]
    async with failing() as server, asking(server, dimensions=64, shorten=True) as (embedder, _):
        vectors = await embedder.embed_passages(texts)
        assert [len(request.messages) for request in server.requests] == [32, 32, 6]
        assert {request.body["dimensions"] for request in server.requests} == {64}
        alone = [(await embedder.embed_passages([text]))[0] for text in (texts[0], texts[40], texts[69])]
        assert [vectors[0], vectors[40], vectors[69]] == alone
        assert await embedder.embed_passages([]) == []
        assert await embedder.embed_query("")


async def test_of_a_long_text_only_the_beginning_is_sent() -> None:
    async with failing() as server, asking(server, max_tokens=16) as (embedder, _):
        await embedder.embed_query("one two three four five six seven " * 100 + "\x00\ud800")
        [said] = server.requests[0].messages
        assert said.text.startswith("one two three four")
        assert len(said.text) < 100


def answer(*vectors: str, more: str = "") -> Garbage:
    data = ", ".join(f'{{"embedding": [{one}]{more}}}' for one in vectors)
    return Garbage(f'{{"data": [{data}]}}')


GOOD: Final = ", ".join(["0.5"] * 256)
REFUSED: Final[dict[str, tuple[Fault, str, bool]]] = {
    "too few dimensions": (answer("1, 0"), "2 dimensions, not of the 256 in the settings", True),
    "no direction": (answer(", ".join(["0"] * 256)), "without a direction", False),
    "NaN": (answer(GOOD.replace("0.5", "NaN", 1)), "holds no vectors", True),
    "null": (answer(GOOD.replace("0.5", "null", 1)), "without a direction", False),
    "infinity": (answer(GOOD.replace("0.5", "1e999", 1)), "holds no vectors", True),
    "as large as can be": (answer(GOOD.replace("0.5", "1e308")), "without a direction", False),
    "base64": (Garbage('{"data": [{"embedding": "AAAA"}]}'), "holds no vectors", True),
    "none": (answer(), "0 vectors came for 1 texts", True),
    "one too many": (answer(GOOD, GOOD), "2 vectors came for 1 texts", True),
    "another place": (answer(GOOD, more=', "index": 1'), "some are counted twice", True),
    "nothing": (Empty(), "holds no vectors", True),
    "a page": (ContentType(), "holds no vectors", True),
    "another document": (Garbage('{"choices": []}'), "holds no vectors", True),
    "a huge body": (Garbage('{"data": [' + " " * 4_200_000), "larger than 4194304 bytes", True),
    "half of it": (Cut(), "", True),
    "a reset": (Disconnect(), "", True),
    "a refused key": (Status(401), "it refuses our key", True),
    "no such model": (Status(404), "status 404", True),
    "a refused text": (Status(400), "status 400", False),
    "busy": (Status(429, retry_after=40), "status 429", True),
    "broken": (Status(500), "status 500", True),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_no_vector_is_a_failure_that_says_whether_it_was_the_text(case: str) -> None:
    fault, reason, away = REFUSED[case]
    async with failing(fault) as server, asking(server) as (embedder, book):
        with pytest.raises(EmbeddingFailed) as failed:
            await embedder.embed_query("Who repaired the boiler?")
        assert failed.value.reason.startswith("far at 127.0.0.1:")
        assert reason in failed.value.reason
        assert "canary-key" not in failed.value.reason
        assert failed.value.away is away
        assert book.account.reserved == Amount()


async def test_after_an_outage_nobody_waits_for_it_until_it_is_asked_again() -> None:
    clock = Clock()
    away = failing(Status(503), Status(429, retry_after=90))
    async with away as server, asking(server, clock=clock) as (embedder, _):
        for pause in (29.0, 89.0):
            with pytest.raises(EmbeddingFailed, match="status"):
                await embedder.embed_query("a")
            clock.now += pause
            with pytest.raises(EmbeddingFailed, match="asked again in 1 s") as failed:
                await embedder.embed_passages(["a"])
            assert failed.value.away
            clock.now += 1.0
        assert await embedder.embed_query("a")
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("faults", "asked"), [([Status(503)], 2), ([Disconnect(), Status(429, retry_after=0)], 3), ([Status(503)] * 3, 3)]
)
async def test_passages_are_sent_again_after_what_passes(faults: list[Fault], asked: int) -> None:
    async with failing(*faults) as server, asking(server) as (embedder, _):
        if len(faults) < asked:
            assert len(await embedder.embed_passages(TEXTS)) == 3
        else:
            with pytest.raises(EmbeddingFailed, match="status 503"):
                await embedder.embed_passages(TEXTS)
        assert len(server.requests) == asked


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    async with failing(Hang()) as server, asking(server, timeout=0.2) as (embedder, _):
        with pytest.raises(EmbeddingFailed, match=r"no answer within 0\.2 s") as failed:
            await embedder.embed_query("a")
        assert failed.value.away
        await server.settled()


async def test_nobody_answers_at_a_closed_port() -> None:
    async with failing() as server, server.closed(), asking(server) as (embedder, _):
        with pytest.raises(EmbeddingFailed, match="connection refused") as failed:
            await embedder.embed_query("a")
    assert failed.value.away


async def test_health_money_and_secrets_never_leave_and_stay_findable_at_home() -> None:
    private = ("Which medicine does Noor take?", "Ann owes Ben something", "my password is hunter2")
    async with failing() as server:
        async with asking(server) as (embedder, book):
            for text in private:
                for ask in (embedder.embed_query(text), embedder.embed_passages([*TEXTS, text])):
                    with pytest.raises(EmbeddingFailed, match="sent to no server of others") as failed:
                        await ask
                    assert not failed.value.away
            assert (server.requests, book.account.spent) == ((), Amount())
        async with asking(server, local=True) as (embedder, _):
            assert len(await embedder.embed_passages(private)) == 3


async def test_the_budget_of_the_day_holds_for_vectors_too() -> None:
    async with failing() as server, asking(server, Cap(tokens=10)) as (embedder, book):
        await embedder.embed_query("Who repaired the boiler?")
        assert book.account.spent.tokens > 10
        with pytest.raises(EmbeddingFailed, match="the budget of the day is used up") as failed:
            await embedder.embed_query("Who?")
        assert failed.value.away
        assert len(server.requests) == 1


async def test_two_at_once_do_not_disturb_each_other() -> None:
    async with failing() as server, asking(server) as (embedder, _):
        passages, question = await asyncio.gather(embedder.embed_passages(TEXTS), embedder.embed_query(TEXTS[1]))
        assert cosine_of(passages[1], question) == pytest.approx(1, abs=1e-5)
        assert len(server.requests) == 2

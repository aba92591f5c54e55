"""Embeddings of the scripted LLM, as the SDK of OpenAI asks for them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI

from switchboard.testing.scripted_llm import Reply, Rule, Script, ScriptedLlm, Status, When


def sdk(server: ScriptedLlm) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-very-secret", max_retries=0, timeout=30)


def cosine(one: list[float], other: list[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


async def test_texts_that_share_letters_are_near_and_no_reply_is_used_up() -> None:
    texts = ["Noor is allergic to hazelnuts", "Noor ist allergisch auf Haselnüsse", "The boiler was repaired"]
    async with ScriptedLlm([Reply("kept for a chat")]) as server, sdk(server) as client:
        in_base64 = (await client.embeddings.create(model="m", input=texts)).data
        as_numbers = (await client.embeddings.create(model="m", input=texts[0], encoding_format="float")).data
        short = (await client.embeddings.create(model="m", input=texts[0], dimensions=64)).data
        assert server.left == 1
    first, second, third = (one.embedding for one in in_base64)
    assert cosine(first, second) > 0.2 > cosine(first, third)
    assert cosine(first, first) == pytest.approx(1, abs=1e-5)
    assert as_numbers[0].embedding == pytest.approx(first, abs=1e-6)
    assert (len(first), len(short[0].embedding)) == (256, 64)
    assert [one.text for one in server.requests[0].messages] == texts


@pytest.mark.parametrize("given", ["", [], ["a", ""], ["a"] * 2049, "a" * 40_000])
async def test_what_the_real_server_refuses_is_refused(given: Any) -> None:
    async with ScriptedLlm([]) as server, sdk(server) as client:
        with pytest.raises(APIStatusError) as refused:
            await client.embeddings.create(model="m", input=given)
    assert (refused.value.status_code, len(server.requests)) == (400, 0)


async def test_a_rule_makes_them_fail() -> None:
    script = Script(rules=(Rule(When(dialect="openai-embeddings"), (Reply(fault=Status(429, retry_after=1)),)),))
    async with ScriptedLlm(script) as server, sdk(server) as client:
        with pytest.raises(APIStatusError) as refused:
            await client.embeddings.create(model="m", input="a")
        assert (refused.value.status_code, refused.value.response.headers["retry-after"]) == (429, "1")
        assert (await client.embeddings.create(model="m", input="a")).data

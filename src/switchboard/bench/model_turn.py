"""Measures what a turn costs beyond its model, beside the bare SDK with the same request, against a scripted model.

Called by `switchboard bench model-turn`, and by a test that asserts everything but the times. A message without tools,
one whose turn calls a tool, the bare SDK, one whose reply is streamed, and the stream of the bare SDK take turns in a
changing order, so that other load of the machine, and the caches left by the previous one, affect all of them equally.
Measured from before the POST of the message to its reply, read over the API, so this includes acceptance, decision,
journal and commit.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random
from secrets import token_urlsafe
from time import perf_counter
from typing import Final

import aiohttp
from msgspec import Struct

from switchboard.bench import lab
from switchboard.bench.classify import BareAsk, last_request, sdk
from switchboard.domain.json_values import JsonObject
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.testing.scripted_llm import Reply, Request, ScriptedLlm, Slow

_TEAM: Final = {
    "team": {"name": "root"},
    "systems": [
        {
            "name": "System1/clerk",
            "engine": "model",
            "config": {"models": ["scripted"], "prompt": "Be brief.", "grants": {"others": ["list_files"]}},
        },
        {"name": "System1/teller", "engine": "model", "config": {"models": ["timed"], "prompt": "Tell."}},
    ],
    "routing_rules": [
        {"name": "all", "channel": "*", "targets": [{"system_id": "System1/clerk"}]},
        {
            "name": "tales",
            "channel": "*",
            "filters": {"sender": "reader"},
            "targets": [{"system_id": "System1/teller"}],
            "priority": 1,
        },
    ],
}
_WITH_A_TOOL: Final = "Which files are there?"
_SCRIPT: Final = {
    "rules": [
        {"when": {"results": True}, "replies": [{"text": "None."}], "again": True},
        {
            "when": {"prompt": _WITH_A_TOOL},
            "replies": [{"calls": [{"name": "list_files", "arguments": {}}]}],
            "again": True,
        },
    ],
    "otherwise": {"text": "Good morning."},
}
_WARMING: Final = 5


class ModelTurnResult(Struct, frozen=True):
    """Milliseconds of each message, and of each request of the bare SDK.

    `delta_ms` and `bare_delta_ms`: from the start of the model's answer until the client has its first text, over our
    stream and from the bare SDK.
    """

    plain_ms: tuple[float, ...]
    with_a_tool_ms: tuple[float, ...]
    bare_ms: tuple[float, ...]
    delta_ms: tuple[float, ...]
    bare_delta_ms: tuple[float, ...]


async def measure(messages: int) -> ModelTurnResult:
    """Measure this many messages of each kind, on a separate database."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(lab.home(_TEAM))
        await stack.enter_async_context(embedded_postgres(directory / "data" / "postgres"))
        llm = await stack.enter_async_context(lab.scripted_model(directory, _SCRIPT))
        timed = _Timed()
        teller, shuffle = await stack.enter_async_context(ScriptedLlm(timed.answer)), Random(0)
        models = [
            {"name": name, "kind": "openai", "model": "scripted-1", "base_url": f"{url}/v1"}
            for name, url in (("scripted", llm), ("timed", teller.url))
        ]
        more = {"SWITCHBOARD_MODELS": json.dumps(models)}
        up = await stack.enter_async_context(lab.switchboard(directory, "up", more=more))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        ask = await stack.enter_async_context(sdk("openai", llm))
        tell = await stack.enter_async_context(sdk("openai", teller.url))
        acts: tuple[Callable[[], Awaitable[float]], ...] = (
            lambda: _time_reply(http, up, "Good morning!"),
            lambda: _time_reply(http, up, _WITH_A_TOOL),
            lambda: _bare(ask, http, llm),
            lambda: _first_delta(http, up, timed),
            lambda: _bare_delta(tell, teller, timed),
        )
        for _ in range(_WARMING):
            for act in acts:
                await act()
        took: list[list[float]] = [[] for _ in acts]
        for _ in range(messages):
            for place in shuffle.sample(range(len(acts)), len(acts)):
                took[place].append(await acts[place]())
    return ModelTurnResult(*map(tuple, took))


class _Timed:
    """A model in this process, so that it has the same clock as its readers. 20 ms pass before each piece."""

    began = 0.0

    def answer(self, _: Request) -> Reply:
        self.began = perf_counter()
        return Reply(text="There was a king who had three daughters.", fault=Slow(0.02))

    def since_ms(self) -> float:
        return (perf_counter() - self.began) * 1000


async def _first_delta(http: aiohttp.ClientSession, up: lab.ReadyProcess, timed: _Timed) -> float:
    """Milliseconds until the first text of a reply arrives in its stream."""
    message = lab.message(token_urlsafe(8), token_urlsafe(8))
    message["sender"]["identity"] = "reader"
    url, headers = f"{up.url}/v1/messages/{await _post_message(http, up, message)}/stream", up.headers
    took: float | None = None
    async with asyncio.timeout(60), http.get(url, headers=headers) as response:
        response.raise_for_status()
        async for line in response.content:
            if line == b"event: delta\n" and took is None:
                took = timed.since_ms()
    if took is None:
        raise ValueError("a reply had no delta")
    return took


async def _bare(ask: BareAsk, http: aiohttp.ClientSession, llm: str) -> float:
    """Milliseconds of the last request, repeated with the SDK."""
    body = await last_request(http, llm)
    began = perf_counter()
    async for _ in await ask(body):
        pass
    return (perf_counter() - began) * 1000


async def _bare_delta(tell: BareAsk, teller: ScriptedLlm, timed: _Timed) -> float:
    """Milliseconds until the first text of a reply, with the SDK."""
    took: float | None = None
    async for chunk in await tell(teller.requests[-1].body):
        if took is None and chunk.choices and chunk.choices[0].delta.content:
            took = timed.since_ms()
    if took is None:
        raise ValueError("the model said nothing")
    return took


async def _post_message(http: aiohttp.ClientSession, up: lab.ReadyProcess, message: JsonObject) -> str:
    async with http.post(f"{up.url}/v1/ingest", json=message, headers=up.headers) as response:
        response.raise_for_status()
        return str((await response.json())["request_id"])


async def _time_reply(http: aiohttp.ClientSession, up: lab.ReadyProcess, text: str) -> float:
    """Milliseconds from a message, in a new conversation, to its reply."""
    message = lab.message(token_urlsafe(8), token_urlsafe(8))
    message["payload"]["normalized_text"] = text
    began = perf_counter()
    request_id = await _post_message(http, up, message)
    url = f"{up.url}/v1/messages/{request_id}/replies?wait_s=30"
    async with asyncio.timeout(60), http.get(url, headers=up.headers) as response:
        response.raise_for_status()
        replies = (await response.json())["replies"]
    took = (perf_counter() - began) * 1000
    if len(replies) != 1:
        raise ValueError(f"message {request_id} has no reply")
    return took

"""What a turn with a model costs beyond the model: beside the bare SDK with the same request, against a scripted model.

Called by `switchboard bench model-turn`, and by a test that asserts everything but the times. A message without tools,
one whose turn calls a tool, and the bare SDK take turns, so that what else happens on the machine happens to all three.
Measured from before the POST of the message to its reply, read over the API: so acceptance, decision, journal and
commit are in it.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from secrets import token_urlsafe
from time import perf_counter
from typing import Final

import aiohttp

from switchboard.bench import lab
from switchboard.bench.classify import last_request, sdk
from switchboard.embedded.supervisor import embedded_postgres

_TEAM: Final = {
    "team": {"name": "root"},
    "systems": [
        {
            "name": "System1/clerk",
            "engine": "model",
            "config": {"prompt": "Be brief.", "grants": {"others": ["list_files"]}},
        },
    ],
    "routing_rules": [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/clerk"}]}],
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


@dataclass(frozen=True, slots=True)
class Result:
    """Milliseconds of each message, and of each request of the bare SDK."""

    plain_ms: tuple[float, ...]
    with_a_tool_ms: tuple[float, ...]
    bare_ms: tuple[float, ...]


async def measure(messages: int) -> Result:
    """So many messages of both kinds, on a database of their own."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(lab.home())
        (directory / "teams" / "root.json").write_text(json.dumps(_TEAM), encoding="utf-8")
        script = directory / "script.json"
        script.write_text(json.dumps(_SCRIPT), encoding="utf-8")
        await stack.enter_async_context(embedded_postgres(directory / "data" / "postgres"))
        scripted = ("-m", "switchboard.testing.scripted_llm", "--script", str(script))
        _, line, _ = await stack.enter_async_context(lab.program(os.environ, *scripted))
        llm = json.loads(line)["url"]
        model = {"name": "scripted", "kind": "openai", "model": "scripted-1", "base_url": f"{llm}/v1"}
        more = {"SWITCHBOARD_MODELS": json.dumps([model])}
        up = await stack.enter_async_context(lab.switchboard(directory, "up", more=more))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        ask = await stack.enter_async_context(sdk("openai", llm))
        plain, with_a_tool, bare = [], [], []
        for number in range(-_WARMING, messages):
            took = await _answered(http, up, "Good morning!"), await _answered(http, up, _WITH_A_TOOL)
            body = await last_request(http, llm)
            began = perf_counter()
            await ask(body)
            if number >= 0:
                bare.append((perf_counter() - began) * 1000)
                plain.append(took[0])
                with_a_tool.append(took[1])
    return Result(tuple(plain), tuple(with_a_tool), tuple(bare))


async def _answered(http: aiohttp.ClientSession, up: lab.Running, text: str) -> float:
    """Milliseconds from a message, in a conversation of its own, to its reply."""
    headers = {"authorization": f"Bearer {up.token}"}
    message = lab.message(token_urlsafe(8), token_urlsafe(8))
    message["payload"]["normalized_text"] = text
    began = perf_counter()
    async with http.post(f"{up.url}/v1/ingest", json=message, headers=headers) as response:
        response.raise_for_status()
        request_id = (await response.json())["request_id"]
    url = f"{up.url}/v1/messages/{request_id}/replies?wait_s=30"
    async with asyncio.timeout(60), http.get(url, headers=headers) as response:
        response.raise_for_status()
        replies = (await response.json())["replies"]
    took = (perf_counter() - began) * 1000
    if len(replies) != 1:
        raise ValueError(f"message {request_id} has no reply")
    return took

"""The SDKs of the providers as one: each asks in its way, and what it heard is told alike."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import pytest
from anthropic import AsyncAnthropic
from google import genai
from google.genai import types
from google.genai.client import AsyncClient as AsyncGemini
from openai import AsyncOpenAI

from switchboard.testing.scripted_llm import (
    Call,
)

SCHEMA: Final = {"type": "object", "properties": {"butler": {"type": "string"}}, "required": ["butler"]}
_NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
NAMES: Final = ("mcp__switchboard__route_to_butler", "weather")
ROUTE: Final = Call("route_to_butler", {"butler": "health", "prompt": "Kopfweh, äh: »au«"})


@dataclass(frozen=True, slots=True)
class Got:
    """What an SDK made of the answer. `tokens` are input and output, cached ones included."""

    text: str
    calls: tuple[tuple[str, object], ...]
    ended: str | None
    tokens: tuple[int, int]
    thinking: str = ""


Ask = Callable[[str, str], Awaitable[Got]]
"""From the URL of the server and a prompt, with both tools offered."""


def openai_at(url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-very-secret", max_retries=0, timeout=30)


def anthropic_at(url: str) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=url, api_key="sk-very-secret", max_retries=0, timeout=30)


@asynccontextmanager
async def gemini_at(url: str) -> AsyncIterator[AsyncGemini]:
    """Over httpx2: with aiohttp, where that is installed, it retries automatically."""
    async with httpx2.AsyncClient(timeout=30) as http:
        # Else it would read the certificates of the system twice, 50 ms, though nothing here is https.
        unread = {"verify": _NO_TLS, "ssl": _NO_TLS}
        options = types.HttpOptions(base_url=url, httpx_async_client=http, client_args=unread, async_client_args=unread)
        async with genai.Client(api_key="sk-very-secret", http_options=options).aio as client:
            yield client


CHAT_TOOLS: Final[list[Any]] = [
    {"type": "function", "function": {"name": name, "description": f"do {name}", "parameters": SCHEMA}}
    for name in NAMES
]
RESPONSES_TOOLS: Final[list[Any]] = [{"type": "function", "name": name, "parameters": SCHEMA} for name in NAMES]
ANTHROPIC_TOOLS: Final[list[Any]] = [{"name": name, "input_schema": SCHEMA} for name in NAMES]
GEMINI_TOOLS: Final = types.Tool(
    function_declarations=[types.FunctionDeclaration(name=name, parameters_json_schema=SCHEMA) for name in NAMES]
)
MESSAGES: Final[Callable[[str], list[Any]]] = lambda prompt: [{"role": "user", "content": prompt}]  # noqa: E731


async def chat(url: str, prompt: str) -> Got:
    async with openai_at(url) as client:
        return of_chat(await client.chat.completions.create(model="m", messages=MESSAGES(prompt), tools=CHAT_TOOLS))


async def chat_streamed(url: str, prompt: str) -> Got:
    async with (
        openai_at(url) as client,
        client.chat.completions.stream(
            model="m", messages=MESSAGES(prompt), tools=CHAT_TOOLS, stream_options={"include_usage": True}
        ) as stream,
    ):
        async for _ in stream:
            pass
        return of_chat(await stream.get_final_completion())


def of_chat(done: Any) -> Got:
    [choice] = done.choices
    calls = tuple((c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls or ())
    thinking = getattr(choice.message, "reasoning_content", "")
    usage = done.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    tokens = (usage.prompt_tokens, usage.completion_tokens)
    return Got(choice.message.content or "", calls, choice.finish_reason, tokens, thinking)


async def responses(url: str, prompt: str) -> Got:
    async with openai_at(url) as client:
        return of_response(await client.responses.create(model="m", input=prompt, tools=RESPONSES_TOOLS))


async def responses_streamed(url: str, prompt: str) -> Got:
    async with (
        openai_at(url) as client,
        client.responses.stream(model="m", input=prompt, tools=RESPONSES_TOOLS) as stream,
    ):
        async for _ in stream:
            pass
        return of_response(await stream.get_final_response())


def of_response(done: Any) -> Got:
    calls = tuple((i.name, json.loads(i.arguments)) for i in done.output if i.type == "function_call")
    thinking = "".join(part.text for i in done.output if i.type == "reasoning" for part in i.summary)
    tokens = (done.usage.input_tokens, done.usage.output_tokens)
    return Got(done.output_text, calls, done.status, tokens, thinking)


async def messages(url: str, prompt: str) -> Got:
    async with anthropic_at(url) as client:
        return of_message(
            await client.messages.create(model="m", max_tokens=500, messages=MESSAGES(prompt), tools=ANTHROPIC_TOOLS)
        )


async def messages_streamed(url: str, prompt: str) -> Got:
    async with (
        anthropic_at(url) as client,
        client.messages.stream(model="m", max_tokens=500, messages=MESSAGES(prompt), tools=ANTHROPIC_TOOLS) as stream,
    ):
        async for _ in stream:
            pass
        return of_message(await stream.get_final_message())


def of_message(done: Any) -> Got:
    text = "".join(block.text for block in done.content if block.type == "text")
    calls = tuple((block.name, block.input) for block in done.content if block.type == "tool_use")
    thinking = "".join(block.thinking for block in done.content if block.type == "thinking")
    tokens = (done.usage.input_tokens + done.usage.cache_read_input_tokens, done.usage.output_tokens)
    return Got(text, calls, done.stop_reason, tokens, thinking)


async def gemini(url: str, prompt: str) -> Got:
    async with gemini_at(url) as client:
        return of_gemini([await client.models.generate_content(model="m", contents=prompt, config=gemini_config())])


async def gemini_streamed(url: str, prompt: str) -> Got:
    async with gemini_at(url) as client:
        stream = await client.models.generate_content_stream(model="m", contents=prompt, config=gemini_config())
        return of_gemini([part async for part in stream])


def gemini_config(**more: Any) -> types.GenerateContentConfig:
    off = types.AutomaticFunctionCallingConfig(disable=True)
    return types.GenerateContentConfig(tools=[GEMINI_TOOLS], automatic_function_calling=off, **more)


def of_gemini(answers: list[types.GenerateContentResponse]) -> Got:
    candidates = [candidate for one in answers for candidate in one.candidates or ()]
    parts = [part for c in candidates if c.content for part in c.content.parts or ()]
    calls = tuple((p.function_call.name or "", p.function_call.args) for p in parts if p.function_call)
    usage = answers[-1].usage_metadata
    assert usage is not None
    return Got(
        "".join(part.text or "" for part in parts if not part.thought),
        calls,
        candidates[-1].finish_reason and candidates[-1].finish_reason.value,
        (usage.prompt_token_count or 0, usage.candidates_token_count or 0),
        "".join(part.text or "" for part in parts if part.thought),
    )


WHOLE: Final[tuple[Ask, ...]] = (chat, responses, messages, gemini)
STREAMED: Final[tuple[Ask, ...]] = (chat_streamed, responses_streamed, messages_streamed, gemini_streamed)


every_way = pytest.mark.parametrize("ask", [*WHOLE, *STREAMED], ids=lambda ask: ask.__name__)

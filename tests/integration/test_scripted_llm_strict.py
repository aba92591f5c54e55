"""The strict provider against the official SDKs: what it takes, what it rejects, and in which words.

Also the server that loses the head of a request in silence, the answer that ends at any byte, and a local server.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anthropic
import httpx2
import openai
import pytest

from switchboard.testing.scripted_llm import Call, Cut, Reply, ScriptedLlm, WithoutIds
from tests.sdks import (
    ANTHROPIC_TOOLS,
    CHAT_TOOLS,
    RESPONSES_TOOLS,
    STREAMED,
    Ask,
    anthropic_at,
    chat,
    chat_streamed,
    openai_at,
)
from tests.waiting import eventually

Body = dict[str, Any]
WEATHER: Final = (Call("weather", {"butler": "a"}), Call("weather", {"butler": "b"}))
THOUGHT: Final = Reply(text="Let me see.", thinking="Two places.", calls=WEATHER)
STREAMED_APIS: Final = STREAMED[:3]


async def _send_messages(url: str, body: Body) -> Body:
    async with anthropic_at(url) as client:
        said = await client.messages.create(model="m", max_tokens=500, tools=ANTHROPIC_TOOLS, **body)
    return said.to_dict()


async def _send_chat(url: str, body: Body) -> Body:
    async with openai_at(url) as client:
        said = await client.chat.completions.create(model="m", tools=CHAT_TOOLS, **body)
    return said.to_dict()


async def _send_responses(url: str, body: Body) -> Body:
    async with openai_at(url) as client:
        more: Any = {"include": ["reasoning.encrypted_content"], "store": False}
        said: Any = await client.responses.create(model="m", tools=RESPONSES_TOOLS, **more, **body)
    return dict(said.to_dict())


def _after_messages(said: Body) -> Body:
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "sun"}
        for block in said["content"]
        if block["type"] == "tool_use"
    ]
    asked = {"role": "user", "content": "Rain?"}
    return {
        "messages": [asked, {"role": "assistant", "content": said["content"]}, {"role": "user", "content": results}]
    }


def _after_chat(said: Body) -> Body:
    message = {name: said["choices"][0]["message"][name] for name in ("role", "content", "tool_calls")}
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "sun"} for call in message["tool_calls"]]
    return {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "Rain?"}, message, *results]}


def _after_responses(said: Body) -> Body:
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "sun"}
        for item in said["output"]
        if item["type"] == "function_call"
    ]
    return {"input": [{"role": "user", "content": "Rain?"}, *said["output"], *results]}


FORMS: Final[dict[str, tuple[Any, Callable[[Body], Body], Body]]] = {
    "messages": (_send_messages, _after_messages, {"messages": [{"role": "user", "content": "Rain?"}]}),
    "chat": (_send_chat, _after_chat, {"messages": [{"role": "user", "content": "Rain?"}]}),
    "responses": (_send_responses, _after_responses, {"input": "Rain?"}),
}


@asynccontextmanager
async def second(form: str) -> AsyncIterator[tuple[Callable[[Body], Any], Body]]:
    """A strict provider that has been asked once, and the body of the second request, as it wants it."""
    send, after, first = FORMS[form]
    async with ScriptedLlm([THOUGHT, Reply(text="Sun.")], strict=True) as llm:
        body = after(await send(llm.url, first))
        yield lambda one: send(llm.url, one), body


@pytest.mark.parametrize("form", FORMS)
async def test_what_comes_back_unchanged_is_taken(form: str) -> None:
    async with second(form) as (send, body):
        assert "Sun." in str(await send(body))


def _drop(*path: Any) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        place: Any = body
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]

    return change


def _set(value: Any, *path: Any) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        place: Any = body
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


def _insert(value: Any, at: int, *path: Any) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        place: Any = body
        for step in path:
            place = place[step]
        place.insert(at, value)

    return change


STRAY: Final = {"type": "tool_result", "tool_use_id": "toolu_9_9", "content": "?"}
USER: Final = {"role": "user", "content": "And?"}
TEXT: Final = {"type": "text", "text": "Here."}
REJECTED: Final = [
    ("messages", _set("7.abc", "messages", 1, "content", 0, "signature"), "Invalid `signature` in `thinking` block"),
    ("messages", _set("Three.", "messages", 1, "content", 0, "thinking"), "Invalid `signature` in `thinking` block"),
    ("messages", _drop("messages", 1, "content", 0), "Expected `thinking` or `redacted_thinking`, but found `text`"),
    ("messages", _drop("messages", 2, "content", 1), "`tool_use` ids were found without `tool_result` blocks"),
    ("messages", _insert(TEXT, 0, "messages", 2, "content"), "without `tool_result` blocks immediately after"),
    ("messages", _insert(STRAY, 2, "messages", 2, "content"), "unexpected `tool_use_id` found in `tool_result` blocks"),
    ("messages", _insert(USER, 1, "messages"), 'found multiple "user" roles in a row'),
    ("messages", _drop("messages", 0), 'first message must use the "user" role'),
    ("messages", _drop("messages", 2), "does not support assistant message prefill"),
    ("messages", _set([], "messages", 0, "content"), "messages.0: all messages must have non-empty content"),
    ("messages", _set(" ", "messages", 1, "content", 1, "text"), "text content blocks must contain non-whitespace"),
    ("messages", _set("{", "messages", 1, "content", 2, "input"), "Input should be a valid dictionary"),
    ("chat", _drop("messages", 4), "did not have response messages: call_1_2"),
    ("chat", _insert({"role": "tool", "tool_call_id": "x", "content": "?"}, 5, "messages"), "must be a response to"),
    ("chat", _insert({"role": "user", "content": "And?"}, 3, "messages"), "did not have response messages: call_1_1"),
    ("chat", _insert(USER, 1, "messages"), "conversation roles must alternate"),
    ("chat", _drop("messages", 1), "conversation roles must alternate"),
    ("chat", _insert({"role": "system", "content": "s"}, 1, "messages"), "System message must be at the beginning."),
    ("chat", _set("Two places.", "messages", 2, "reasoning_content"), "'reasoning_content' was unexpected"),
    ("responses", _set("7.abc", "input", 1, "encrypted_content"), "could not be verified"),
    ("responses", _drop("input", 1, "encrypted_content"), "Items are not persisted when `store` is set to false"),
    ("responses", _drop("input", 1), "without its required 'reasoning' item: 'rs_1'"),
    ("responses", _insert(USER, 2, "input"), "without its required following item"),
    ("responses", _drop("input", 6), "No tool output found for function call call_1_2."),
    ("responses", _drop("input", 3), "No tool call found for function call output with call_id call_1_1."),
    ("responses", _insert(USER, 5, "input"), "No tool output found for function call call_1_1."),
]


@pytest.mark.parametrize(("form", "change", "said"), REJECTED, ids=[f"{form}-{said}" for form, _, said in REJECTED])
async def test_what_was_altered_is_rejected(form: str, change: Callable[[Body], None], said: str) -> None:
    async with second(form) as (send, body):
        changed = copy.deepcopy(body)
        change(changed)
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as caught:
            await send(changed)
        assert said in str(caught.value)


async def test_at_most_four_places_of_a_request_are_cached() -> None:
    marked = {**TEXT, "cache_control": {"type": "ephemeral"}}
    async with ScriptedLlm([Reply(text="Sun.")], strict=True) as llm:
        await _send_messages(llm.url, {"messages": [{"role": "user", "content": [marked] * 4}]})
        with pytest.raises(anthropic.BadRequestError, match=r"A maximum of 4 blocks with cache_control .* Found 5"):
            await _send_messages(llm.url, {"messages": [{"role": "user", "content": [marked] * 5}]})


async def test_calls_in_a_conversation_need_their_tools() -> None:
    called = {"type": "tool_use", "id": "a", "name": "x", "input": {}}
    body: Any = _after_messages({"content": [called]})
    async with ScriptedLlm([Reply(text="Sun.")], strict=True) as llm, anthropic_at(llm.url) as client:
        with pytest.raises(anthropic.BadRequestError, match="must define tools"):
            await client.messages.create(model="m", max_tokens=500, **body)


async def test_the_head_of_a_long_request_is_lost_in_silence() -> None:
    async with ScriptedLlm(lambda asked: Reply(text=asked.prompt[:5]), context=100) as llm:
        assert (await chat(llm.url, "short")).text == "short"
        assert (await chat(llm.url, "HEAD " + "x" * 400)).text == "xxxxx"
        assert llm.requests[1].body["messages"][0]["content"].startswith("HEAD")


@pytest.mark.parametrize("ask", STREAMED_APIS, ids=lambda ask: ask.__name__)
async def test_a_stream_can_end_at_any_byte(ask: Ask) -> None:
    async with ScriptedLlm([Reply(text="one", fault=Cut(after=n)) for n in (0, 1, 99)]) as llm:
        for _ in range(3):
            with pytest.raises((httpx2.TransportError, openai.APIConnectionError, anthropic.APIConnectionError)):
                await ask(llm.url, "go")
        assert [one.ending for one in llm.exchanges] == ["cut"] * 3


async def test_an_end_may_look_like_a_good_one() -> None:
    async with (
        ScriptedLlm([Reply(text="one two", fault=Cut(after=10, quiet=True))]) as llm,
        httpx2.AsyncClient() as http,
    ):
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "go"}]}
        said = await http.post(f"{llm.url}/v1/chat/completions", json=body)
        assert (said.status_code, len(said.content)) == (200, 10)


async def test_calls_of_local_servers_may_have_no_id() -> None:
    async with ScriptedLlm([Reply(calls=WEATHER, fault=WithoutIds())] * 2) as llm:
        said = await _send_chat(llm.url, {"messages": [{"role": "user", "content": "go"}]})
        assert ["id" in call for call in said["choices"][0]["message"]["tool_calls"]] == [False, False]
        assert (await chat_streamed(llm.url, "go")).calls


# A choosy local server ------------------------------------------------------------------------------------------------


def _form(schema: Body, **more: Any) -> Body:
    said = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return said | {"response_format": form} | more


PLAIN: Final[Body] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
TOOLS: Final = [{"type": "function", "function": {"name": "x", "parameters": PLAIN}}]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (_form(PLAIN | {"$schema": "x"}), "Unrecognized schema: $schema"),
        (_form({"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}), "schema: pattern"),
        (_form({"type": "array", "items": {"anyOf": [PLAIN, {"$ref": "#/x"}]}}), "no rule of it is known"),
        (_form({"type": ["string", "null"]}), "several types"),
        (_form({"type": "object", "properties": {}}), "without properties"),
        (_form(PLAIN, tools=TOOLS), "grammar constraints with tools"),
        (_form(PLAIN, response_format={"type": "json_object"}), "must be 'json_schema'"),
        ({"model": "m", "messages": [{"role": "user", "content": "x" * 16_400}]}, "(4100 > 4096 tokens)"),
        ({"model": "m", "messages": [{"role": "user", "content": one} for one in "ab"]}, "must alternate"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
async def test_what_a_local_server_rejects(body: Body, said: str) -> None:
    async with ScriptedLlm([Reply(text="{}")] * 2, strict="local") as llm, httpx2.AsyncClient() as http:
        refused = await http.post(f"{llm.url}/v1/chat/completions", json=body)
        assert refused.status_code == 400
        assert said in refused.json()["error"]["message"]
        taken = await http.post(f"{llm.url}/v1/chat/completions", json=_form(PLAIN))
        assert (taken.status_code, "usage" in taken.json()) == (200, False)


@pytest.mark.parametrize(("more", "said"), [({"max_tokens": 2}, "aaaaaaaa"), ({}, "a" * 120)])
async def test_a_local_server_ends_an_answer_at_its_limits(more: Body, said: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 400}], **more}
    async with ScriptedLlm([Reply(text="a" * 500)], strict="local", context=130) as llm, httpx2.AsyncClient() as http:
        [choice] = (await http.post(f"{llm.url}/v1/chat/completions", json=body)).json()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", said)


async def test_a_local_server_answers_in_turn_and_goes_on_when_its_client_leaves() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
    async with (
        ScriptedLlm([Reply(text="1", gate="first"), Reply(text="2")], strict="local") as llm,
        httpx2.AsyncClient() as http,
    ):
        first = asyncio.create_task(http.post(f"{llm.url}/v1/chat/completions", json=body))
        await llm.waiting("first")
        first.cancel()
        second = asyncio.create_task(http.post(f"{llm.url}/v1/chat/completions", json=body))

        async def both() -> bool:
            return len(llm.requests) == 2

        await eventually(both)
        assert llm.exchanges[1].ending is None, "the slot is taken, though nobody waits for the first answer"
        llm.release("first")
        assert (await second).json()["choices"][0]["message"]["content"] == "2"
        await llm.settled()
        assert llm.most_at_once == 2


async def test_a_local_server_ends_with_its_test_whatever_waits() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
    async with httpx2.AsyncClient() as http, ScriptedLlm([Reply(gate="never")], strict="local") as llm:
        asked = asyncio.create_task(http.post(f"{llm.url}/v1/chat/completions", json=body))
        await llm.waiting("never")
    with pytest.raises(httpx2.TransportError):
        await asked

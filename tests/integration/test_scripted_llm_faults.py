"""The scripted LLM when it misbehaves: wrong calls, errors, lost connections, garbage, and time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import anthropic
import httpx2
import openai
import pytest
from google.genai import errors
from openai import AsyncOpenAI

from switchboard.domain.errors import ConfigurationError
from switchboard.testing.scripted_llm import (
    Call,
    ContentType,
    Cut,
    Disconnect,
    Empty,
    Fault,
    Garbage,
    Hang,
    HugeText,
    Reply,
    ScriptedLlm,
    Slow,
    Status,
    TwoTools,
    UnknownTool,
    WrongTool,
)
from tests.sdks import (
    MESSAGES,
    NAMES,
    ROUTE,
    STREAMED,
    Ask,
    anthropic_at,
    chat,
    chat_streamed,
    every_way,
    messages,
    openai_at,
    responses,
    responses_streamed,
)

# The SDKs, as one -----------------------------------------------------------------------------------------------------

every_stream = pytest.mark.parametrize("ask", STREAMED, ids=lambda ask: ask.__name__)


# Faults of the model --------------------------------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize(
    ("fault", "names"),
    [
        (WrongTool(), ["weather"]),
        (UnknownTool(), ["no_such_tool"]),
        (UnknownTool("route_to_butlers"), ["route_to_butlers"]),
        (TwoTools(), [NAMES[0], NAMES[0]]),
    ],
)
async def test_the_model_calls_what_it_should_not(ask: Ask, fault: Fault, names: list[str]) -> None:
    async with ScriptedLlm([Reply(calls=(ROUTE,), fault=fault)]) as llm:
        got = await ask(llm.url, "go")
    assert [name for name, _ in got.calls] == names
    assert {json.dumps(arguments) for _, arguments in got.calls} == {json.dumps(ROUTE.arguments)}


async def test_two_calls_of_the_same_tool_have_two_ids() -> None:
    async with ScriptedLlm([Reply(calls=(ROUTE,), fault=TwoTools())]) as llm, anthropic_at(llm.url) as client:
        done = await client.messages.create(model="m", max_tokens=9, messages=MESSAGES("go"))
    assert len({block.id for block in done.content if block.type == "tool_use"}) == 2


@every_way
async def test_the_model_does_not_stop(ask: Ask) -> None:
    async with ScriptedLlm([Reply(text="la ", fault=HugeText(200_000))]) as llm:
        text = (await ask(llm.url, "go")).text
    assert len(text) == 200_000
    assert text.startswith("la la la ")


@pytest.mark.parametrize("ask", [chat, chat_streamed, responses, responses_streamed], ids=lambda ask: ask.__name__)
async def test_arguments_may_be_broken(ask: Ask) -> None:
    async with ScriptedLlm([Reply(calls=(Call("weather", '{"city": "Ulm'),))]) as llm:
        with pytest.raises(json.JSONDecodeError):
            await ask(llm.url, "go")


async def test_broken_arguments_stand_where_an_object_belongs() -> None:
    async with ScriptedLlm([Reply(calls=(Call("weather", '{"city": "Ulm'),))]) as llm:
        assert (await messages(llm.url, "go")).calls == (("weather", '{"city": "Ulm'),)


# Faults of the provider and of the wire -------------------------------------------------------------------------------


def _family(ask: Ask) -> Any:
    return {"messages": anthropic, "gemini": None}.get(ask.__name__.removesuffix("_streamed"), openai)


@every_way
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, "AuthenticationError"),
        (429, "RateLimitError"),
        (500, "InternalServerError"),
        (529, "InternalServerError"),
    ],
)
async def test_an_error_status_is_the_error_of_the_sdk(ask: Ask, status: int, error: str) -> None:
    async with ScriptedLlm([Reply(fault=Status(status, retry_after=1.5, message="too much"))]) as llm:
        if sdk := _family(ask):
            with pytest.raises(getattr(sdk, error), match="too much") as caught:
                await ask(llm.url, "go")
            assert caught.value.status_code == status
            assert caught.value.response.headers["retry-after"] == "1.5"
            assert caught.value.request_id == "req_1"
        else:
            with pytest.raises(errors.ClientError if status < 500 else errors.ServerError) as refused:
                await ask(llm.url, "go")
            assert (refused.value.code, refused.value.message) == (status, "too much")
        assert [exchange.ending for exchange in llm.exchanges] == ["failed"]


async def test_an_sdk_that_tries_again_gets_the_next_reply() -> None:
    script = [Reply(fault=Status(429, retry_after=0)), Reply(fault=Disconnect()), Reply(text="at last")]
    async with ScriptedLlm(script) as llm, AsyncOpenAI(base_url=f"{llm.url}/v1", api_key="x", max_retries=2) as client:
        done = await client.chat.completions.create(model="m", messages=MESSAGES("go"))
        assert done.choices[0].message.content == "at last"
        assert [exchange.ending for exchange in llm.exchanges] == ["failed", "cut", "answered"]


MIDDLE: Final[Mapping[str, tuple[type[Exception], str]]] = {
    "chat_streamed": (openai.APIError, "no more"),
    "responses_streamed": (RuntimeError, "response.completed"),
    "messages_streamed": (anthropic.APIStatusError, "overloaded_error"),
    "gemini_streamed": (errors.ServerError, "no more"),
}


@every_stream
async def test_a_stream_may_fail_in_its_middle(ask: Ask) -> None:
    error, match = MIDDLE[ask.__name__]
    async with ScriptedLlm(
        [Reply(text="one two three four", fault=Status(529, message="no more", at="middle"))]
    ) as llm:
        with pytest.raises(error, match=match):
            await ask(llm.url, "go")
        assert [exchange.ending for exchange in llm.exchanges] == ["failed"]


async def test_a_response_that_fails_in_its_middle_says_why() -> None:
    fault = Status(429, message="no more", at="middle")
    async with ScriptedLlm([Reply(text="one two three", fault=fault)]) as llm, openai_at(llm.url) as client:
        stream = await client.responses.create(model="m", input="go", stream=True)
        seen = [event async for event in stream]
    assert [event.sequence_number for event in seen] == sorted({event.sequence_number for event in seen})
    assert seen[-1].type == "response.failed"
    assert seen[-1].response.error is not None
    assert (seen[-1].response.error.code, seen[-1].response.error.message) == ("rate_limit_exceeded", "no more")
    assert "response.output_text.delta" in {event.type for event in seen}


def _lost(ask: Ask) -> type[Exception] | tuple[type[Exception], ...]:
    sdk = _family(ask)
    return (sdk.APIConnectionError, httpx2.TransportError) if sdk else httpx2.TransportError


@every_way
@pytest.mark.parametrize("fault", [Disconnect(), Cut()], ids=["disconnect", "cut"])
async def test_a_lost_connection_is_an_error_of_the_connection(ask: Ask, fault: Fault) -> None:
    async with ScriptedLlm(lambda _: Reply(text="one two three four", fault=fault)) as llm:
        with pytest.raises(_lost(ask)):
            await ask(llm.url, "go")
        await llm.settled()
        assert {exchange.ending for exchange in llm.exchanges} == {"cut"}


async def test_half_of_a_stream_arrives_before_it_is_cut() -> None:
    async with ScriptedLlm([Reply(text="one two three four", fault=Cut())]) as llm, openai_at(llm.url) as client:
        stream = await client.chat.completions.create(model="m", messages=MESSAGES("go"), stream=True)
        heard: list[str] = []

        async def listen() -> None:
            async for chunk in stream:
                heard.append(chunk.choices[0].delta.content or "")

        with pytest.raises((openai.APIConnectionError, httpx2.RemoteProtocolError)):
            await listen()
    assert heard == ["", "one ", "two ", "three "]


@every_way
async def test_a_closed_server_refuses_and_opens_again_at_the_same_url(ask: Ask) -> None:
    async with ScriptedLlm([Reply(text="here")]) as llm:
        async with llm.closed():
            with pytest.raises(_lost(ask)) as caught:
                await ask(llm.url, "go")
            causes = [caught.value, caught.value.__cause__]
            assert any(isinstance(cause, httpx2.ConnectError) for cause in causes)
        assert (await ask(llm.url, "go")).text == "here"


async def test_a_port_that_is_taken_is_named() -> None:
    async with ScriptedLlm([]) as llm:
        port = int(llm.url.rpartition(":")[2])
        with pytest.raises(ConfigurationError, match=f"{port}.*in use"):
            await ScriptedLlm([], port=port).__aenter__()


async def test_leaving_while_it_is_closed_is_no_error() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with ScriptedLlm([]) as llm, llm.closed():
            raise KeyError("mine")


NONSENSE: Final = (json.JSONDecodeError, errors.UnknownApiResponseError)


@every_way
async def test_garbage_is_no_json(ask: Ask) -> None:
    async with ScriptedLlm([Reply(text="never", fault=Garbage())]) as llm:
        with pytest.raises(NONSENSE):
            await ask(llm.url, "go")


@every_way
@pytest.mark.parametrize("fault", [Empty(), ContentType()], ids=["empty", "page"])
async def test_an_answer_that_is_none_never_becomes_text(ask: Ask, fault: Fault) -> None:
    async with ScriptedLlm([Reply(text="never", fault=fault)]) as llm:
        with pytest.raises((*NONSENSE, AssertionError, AttributeError, RuntimeError, IndexError)):
            await ask(llm.url, "go")
        assert [exchange.ending for exchange in llm.exchanges] == ["failed"]


@pytest.mark.parametrize(
    ("fault", "media_type", "body"),
    [
        (Empty(), "application/json", ""),
        (ContentType(), "text/html", "<html><body>It works!</body></html>"),
        (ContentType("text/plain", "hm"), "text/plain", "hm"),
        (Garbage("{"), "application/json", "{"),
    ],
)
async def test_what_is_wrong_with_an_answer_is_exactly_that(fault: Fault, media_type: str, body: str) -> None:
    async with ScriptedLlm([Reply(fault=fault)]) as llm, httpx2.AsyncClient() as client:
        answer = await client.post(f"{llm.url}/v1/responses", json={"model": "m", "input": "go"})
    assert (answer.status_code, answer.headers["content-type"], answer.text) == (200, media_type, body)


# Time -----------------------------------------------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("reply", [Reply(text="there", gate="g"), Reply(text="there", fault=Hang("g"))])
async def test_a_reply_waits_until_it_is_released(ask: Ask, reply: Reply) -> None:
    async with ScriptedLlm([reply]) as llm:
        asking = asyncio.ensure_future(ask(llm.url, "go"))
        await llm.waiting("g")
        assert not asking.done()
        assert [exchange.ending for exchange in llm.exchanges] == [None]
        llm.release("g")
        assert (await asking).text == "there"


@every_way
@pytest.mark.parametrize("where", ["start", "middle"])
async def test_a_client_that_gives_up_is_noticed(ask: Ask, where: Any) -> None:
    async with ScriptedLlm([Reply(text="never all of it", fault=Hang("g", where))]) as llm:
        asking = asyncio.ensure_future(ask(llm.url, "go"))
        await llm.waiting("g")
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await llm.settled()
        assert [exchange.ending for exchange in llm.exchanges] == ["left"]


async def test_a_stream_that_hangs_in_its_middle_has_said_the_first_half() -> None:
    script = [Reply(text="one two three four", fault=Hang("g", "middle"))]
    async with ScriptedLlm(script) as llm, openai_at(llm.url) as client:
        stream = await client.chat.completions.create(model="m", messages=MESSAGES("go"), stream=True)
        heard = [(await anext(stream)).choices[0].delta.content for _ in range(3)]
        await llm.waiting("g")
        assert heard == ["", "one ", "two "]
        llm.release("g")
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "three four"


@every_way
async def test_a_slow_reply_pauses_before_each_part(ask: Ask) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async with ScriptedLlm([Reply(text="one two three", fault=Slow(0.25))], sleep=sleep) as llm:
        assert (await ask(llm.url, "go")).text == "one two three"
    assert set(pauses) == {0.25}
    assert len(pauses) >= (3 if ask in STREAMED else 1)


async def test_leaving_ends_what_hangs() -> None:
    async with ScriptedLlm([Reply(fault=Hang())]) as llm:
        asking = asyncio.ensure_future(chat(llm.url, "go"))
        await llm.waiting("hang")
    with pytest.raises(openai.APIConnectionError):
        await asking
    assert [exchange.ending for exchange in llm.exchanges] == ["left"]

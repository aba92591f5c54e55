"""Streamed answers: they fold to what the same provider sends whole, and one that breaks off is a failure.

At every byte and in a thousand random scripts the bytes of the scripted providers come without a network, cut into
chunks at random; over HTTP it is samples.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast, get_args

import httpx2
import msgspec
import pytest

from switchboard.domain.json_values import JsonObject
from switchboard.domain.llm import ChatMessage, ModelDelta, ModelFailure, OfferedTool, Request, Usage, fold
from switchboard.domain.llm import Reply as Said
from switchboard.llm.api import ApiSession
from switchboard.llm.events import EventReader
from switchboard.llm.port import ApiKind
from switchboard.llm.spec import API_KINDS, ModelSpec
from switchboard.llm.streams import FOLDS
from switchboard.testing.scripted_llm import (
    Call,
    CallsAsText,
    ContentType,
    Cut,
    Habit,
    Habits,
    Hang,
    Reply,
    Status,
    TextForm,
)
from switchboard.testing.scripted_llm import Request as Asked
from switchboard.testing.scripted_llm import Usage as Told
from switchboard.testing.scripted_llm.answer import answer
from switchboard.testing.scripted_llm.anthropic import Anthropic
from switchboard.testing.scripted_llm.dialect import Speaker
from switchboard.testing.scripted_llm.habits import sent_as, type_of
from switchboard.testing.scripted_llm.openai_chat import OpenAiChat
from switchboard.testing.scripted_llm.openai_responses import OpenAiResponses
from switchboard.testing.scripted_llm.spoil import spoil
from tests.asking import session

WEATHER: Final = OfferedTool(
    "weather", "tells the weather", {"type": "object", "properties": {"at": {"type": "string"}}}
)
QUESTION: Final = Request((ChatMessage("user", "Rain?"),), "You know the weather.", (WEATHER,), whole=False)
SPEAKERS: Final[dict[str, Speaker]] = {
    "openai": OpenAiChat(),
    "openai-responses": OpenAiResponses(),
    "anthropic": Anthropic(),
}
SPECS: Final = [*(ModelSpec("m", kind, "m") for kind in API_KINDS), ModelSpec("m", "openai", "m", profile="local")]
WORDS: Final = (
    "rain ",
    "sun",
    "\n\n",
    "\r\n",
    "data: ",
    "[DONE]",
    "<think>",
    "</think>",
    "{",
    '"',
    "ü",
    "☔",
    "😀",
    " ",
    "`",
    "```\n",
    "<|im_end|>",
    "<tool_call>",
    '{"name": "weather", "arguments": {"at": "a"}}',
)
FORMS: Final[tuple[TextForm, ...]] = get_args(TextForm)
HABITS: Final[tuple[Habit, ...]] = (
    *("no_done", "keep_alive", "no_blank_line", "json_type", "no_type", "name_repeated", "name_again"),
    *("name_in_pieces", "name_padded", "name_prefixed", "no_index", "one_index"),
)
ROUND: Final = Reply(
    "It is ü ☔.\n", (Call("weather", {"at": "a"}), Call("weather", {"at": "b"})), "Hm.", Told(50, 9, 20)
)

every_kind = pytest.mark.parametrize("kind", API_KINDS)
every_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.profile or spec.kind)


@dataclass
class Provider:
    """Answers with the bytes of a scripted provider, in chunks, at most `most` of them."""

    spec: ModelSpec
    reply: Reply
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    most: int | None = None
    size: int = 0

    async def ask(self, told: list[ModelDelta] | None = None, question: Request = QUESTION) -> Said:
        one = ApiSession(self.spec, cast(ApiKind, self.spec.kind), self.opened)
        return await one.run(question, None if told is None else told.append)

    @asynccontextmanager
    async def opened(self, body: dict[str, Any]) -> AsyncIterator[httpx2.Response]:
        speaker = SPEAKERS[self.spec.kind]
        asked = Asked(1, speaker.name, "/", {}, speaker.read(body, "/"), body)
        said = answer(spoil(self.reply, asked), asked)
        if not asked.streamed or "whole" in said.habits:
            yield httpx2.Response(200, content=msgspec.json.encode(speaker.whole(said)))
            return
        stream = b"".join(sent_as(list(speaker.stream(said)), said.habits))
        self.size = len(stream)
        media_type = type_of("text/event-stream", said.habits)
        headers = {"content-type": media_type} if media_type else {}
        yield httpx2.Response(200, headers=headers, content=self._chunks(stream[: self.most]))

    async def _chunks(self, stream: bytes) -> AsyncIterator[bytes]:
        while stream:
            at = self.chance.randint(1, 999)
            yield stream[:at]
            stream = stream[at:]


def scripts(seed: int) -> Iterator[Reply]:
    """Replies without end: text of the words above, thinking, calls, good arguments and bad, figures, ends."""
    chance = random.Random(seed)

    def text(most: int) -> str:
        return "".join(chance.choices(WORDS, k=chance.randint(0, most)))

    def call() -> Call:
        good: JsonObject = {"at": text(9), "deep": [{"x": text(3)}, chance.random()]}
        arguments: list[JsonObject | str] = [good, good, {}, "", '{"at": "a', "no json"]
        return Call("weather", chance.choice(arguments), exact=True)

    while True:
        read, written = chance.randint(0, 9), chance.randint(0, 9)
        calls = tuple(call() for _ in range(chance.choice([0, 0, 1, 2, 5])))
        finish = chance.choice([None, None, None, "length", "stop"])
        usage = Told(chance.randint(20, 99), chance.randint(1, 99), read, written)
        # Without ids and indexes, only whole arguments show where a call ends.
        habits = [one for one in HABITS if one != "no_index" or all(isinstance(call.arguments, dict) for call in calls)]
        fault = chance.choice([None, CallsAsText(chance.choice(FORMS)), Habits(tuple(chance.sample(habits, 4)))])
        yield Reply(text(30), calls, text(8), usage, cast(Any, finish), fault=fault)


@every_spec
async def test_deltas_fold_to_the_whole_reply_for_a_thousand_scripts(spec: ModelSpec) -> None:
    """Whatever the habits of the server, and whatever the model leaves in the text."""
    for number, script in zip(range(250), scripts(7), strict=False):
        told: list[ModelDelta] = []
        provider = Provider(spec, script, random.Random(number))
        streamed = await provider.ask(told)
        assert fold(told) == streamed, script
        assert streamed == await provider.ask(), script


async def or_failure(asked: Awaitable[Said]) -> Said | ModelFailure:
    try:
        return await asked
    except ModelFailure as failure:
        return failure


@every_spec
async def test_a_stream_cut_at_any_byte_is_a_failure_and_never_an_answer(spec: ModelSpec) -> None:
    reply = Reply("It is.", (Call("weather", {"at": "a"}),), "Hm.")
    question = replace(QUESTION, tools=())
    whole = Provider(spec, reply)
    said = await whole.ask([], question)
    ended = 0
    for most in range(whole.size):
        told: list[ModelDelta] = []
        provider = Provider(spec, reply, random.Random(most), most)
        cut = await or_failure(provider.ask(told, question))
        if isinstance(cut, Said):
            ended = ended or most
            assert (cut.text, cut.calls, cut.stop_reason) == (said.text, said.calls, "tool_calls"), most
            continue
        assert not ended, most
        assert cut.kind in {"unavailable", "garbage"}, most
        assert cut.retryable
        assert not [delta for delta in told if delta.end or delta.call], "a call is told when it is certain"
    # OpenAI's chat and Anthropic say why an answer has ended before they say that it has.
    assert whole.size - ended < {"openai": 400, "anthropic": 100}.get(spec.kind, 3)


@every_kind
@pytest.mark.parametrize("quiet", [True, False])
async def test_what_breaks_off_over_http_is_a_failure(kind: ApiKind, *, quiet: bool) -> None:
    whole = Provider(ModelSpec("m", kind, "m"), ROUND)
    await whole.ask([])
    sizes = range(0, whole.size - 500, 500)
    replies = [msgspec.structs.replace(ROUND, fault=Cut(after, quiet)) for after in sizes]
    async with session(kind, *replies) as (one, llm):
        for _ in sizes:
            with pytest.raises(ModelFailure) as caught:
                await one.run(QUESTION, lambda _: None)
            assert caught.value.kind in {"unavailable", "garbage"}
    assert llm.left == 0


@every_kind
async def test_a_streamed_answer_is_told_as_it_comes_with_its_usage(kind: ApiKind) -> None:
    told: list[ModelDelta] = []
    usage = Told(50, 9, 20, 0 if kind == "openai" else 8)
    async with session(kind, msgspec.structs.replace(ROUND, usage=usage)) as (one, llm):
        reply = await one.run(QUESTION, told.append)
    assert llm.requests[0].streamed
    assert [delta.text for delta in told[:4]] == ["It ", "is ", "ü ", "☔.\n"]
    assert [delta.call and delta.call.arguments for delta in told[4:-1]] == [{"at": "a"}, {"at": "b"}]
    assert (told[-1].end, fold(told)) == (replace(reply, text="", calls=()), reply)
    assert reply.usage == Usage(50, 9, None, 20, usage.written_tokens)
    assert reply.stop_reason == "tool_calls"


@every_kind
@pytest.mark.parametrize(
    ("status", "failure"), [(429, "rate_limited"), (529, "unavailable"), (500, "unavailable")], ids=str
)
async def test_an_error_within_the_stream_is_a_failure(kind: ApiKind, status: int, failure: str) -> None:
    fault = Status(status, at="middle")
    async with session(kind, msgspec.structs.replace(ROUND, fault=fault)) as (one, _):
        with pytest.raises(ModelFailure) as caught:
            await one.run(QUESTION, lambda _: None)
    assert caught.value.kind == failure
    assert caught.value.reply.usage.input_tokens, "what was answered until then is paid for"


@every_kind
async def test_a_stream_that_falls_silent_is_not_waited_for(kind: ApiKind) -> None:
    told: list[ModelDelta] = []
    async with session(kind, msgspec.structs.replace(ROUND, fault=Hang(at="middle"))) as (one, llm):
        with pytest.raises(ModelFailure, match=r"said nothing for 0\.2 s") as caught:
            await one.run(replace(QUESTION, idle=0.2), told.append)
        await llm.settled()
    assert caught.value.kind == "timeout"
    assert told


async def broken() -> AsyncIterator[bytes]:
    yield b""
    raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")


async def pings() -> AsyncIterator[bytes]:
    while True:
        yield b": ping\n\n"
        await asyncio.sleep(0.01)


async def half() -> AsyncIterator[bytes]:
    yield b'data: {"choices": [], "usage": {"prompt_tok\n\n'


async def error() -> AsyncIterator[bytes]:
    yield b'data: {"error": {"message": "usage could not be counted"}}\n\n'


@pytest.mark.parametrize("rest", [broken, pings, half, error])
async def test_what_comes_behind_the_end_of_an_answer_does_not_take_it_away(
    rest: Callable[[], AsyncIterator[bytes]],
) -> None:
    @asynccontextmanager
    async def opened(_: dict[str, Any]) -> AsyncIterator[httpx2.Response]:
        yield httpx2.Response(200, content=stream())

    async def stream() -> AsyncIterator[bytes]:
        yield b'data: {"choices": [{"delta": {"content": "Sun."}, "finish_reason": "stop"}]}\n\n'
        async for chunk in rest():
            yield chunk

    async with asyncio.timeout(5):
        reply = await ApiSession(SPECS[0], "openai", opened).run(QUESTION, lambda _: None)
    assert (reply.text, reply.stop_reason) == ("Sun.", "end")


async def test_before_the_first_event_a_model_may_think() -> None:
    async with session("openai", msgspec.structs.replace(ROUND, fault=Hang(at="start"))) as (one, _):
        with pytest.raises(ModelFailure, match=r"no answer within 0\.4 s"):
            await one.run(replace(QUESTION, idle=0.01, deadline=0.4), lambda _: None)


@pytest.mark.parametrize(
    "habits",
    [
        *((habit,) for habit in get_args(Habit)),
        ("no_done", "no_blank_line", "keep_alive", "no_type", "name_repeated", "name_again", "one_index"),
    ],
    ids=" ".join,
)
async def test_no_habit_of_a_server_changes_what_it_says(habits: tuple[Habit, ...]) -> None:
    calls = ROUND.calls[:1] if "function_call" in habits else ROUND.calls
    script = msgspec.structs.replace(ROUND, calls=calls)
    odd = msgspec.structs.replace(script, fault=Habits(habits))
    async with session("openai", script, odd, odd) as (one, _):
        usual, streamed, whole = (
            await one.run(QUESTION),
            await one.run(QUESTION, lambda _: None),
            await one.run(QUESTION),
        )
    for reply in (streamed, whole):
        assert (reply.text, reply.stop_reason, reply.thought) == (usual.text, "tool_calls", True)
        assert [(call.name, call.arguments) for call in reply.calls] == [(c.name, c.arguments) for c in usual.calls]


@pytest.mark.parametrize(
    ("names", "called"), [(("look", "list"), ["look", "list"]), (("look", "looklist"), ["looklist"])]
)
async def test_names_without_arguments_are_joined_unless_both_are_offered(
    names: tuple[str, ...], called: list[str]
) -> None:
    fault = ContentType("text/event-stream", chunks(piece("", "look"), piece("", "list")))
    question = replace(QUESTION, tools=tuple(OfferedTool(name, "", {}) for name in names))
    async with session("openai", Reply(fault=fault)) as (one, _):
        assert [call.name for call in (await one.run(question, lambda _: None)).calls] == called


async def test_a_server_that_does_not_stream_is_heard_as_well() -> None:
    told: list[ModelDelta] = []
    body = '{"choices": [{"message": {"content": "Sun."}, "finish_reason": "stop"}]}'
    async with session("openai", Reply(fault=ContentType("application/json", body))) as (one, _):
        reply = await one.run(QUESTION, told.append)
    assert (reply.text, fold(told)) == ("Sun.", reply)


# Calls as local servers stream them ----------------------------------------------------------------------------------


def chunks(*deltas: dict[str, Any]) -> str:
    events: list[JsonObject] = [{"choices": [{"delta": delta}]} for delta in deltas]
    events += [{"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}]
    return "".join(f"data: {msgspec.json.encode(event).decode()}\r\n\r\n" for event in events) + "data: [DONE]\n\n"


def piece(arguments: object, name: str | None = None, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"tool_calls": [{**more, "function": function}]}


@pytest.mark.parametrize(
    "deltas",
    [
        (piece('{"at":', "weather", index=0), piece('"a"}', index=0), piece('{"at":"b"}', "weather", index=1)),
        (piece('{"at":"a"}', "weather", index=0, id="x"), piece('{"at":"b"}', "weather", index=0, id="y")),
        (piece('{"at":"a"}', "weather", id="x"), piece('{"at":"b"}', "weather", id="y")),
        (piece('{"at":"a"}', "weather"), piece('{"at":"b"}', "weather")),
        (piece({"at": "a"}, "weather", id="x", index=0), piece({"at": "b"}, "weather", id="x", index=1)),
        (
            piece("", "weather", index=0, id="x"),
            piece('{"at":"a"}', index=0, id="x"),
            piece('{"at":"b"}', "weather", index=1),
        ),
        (
            piece('{"at":', "weather", index=0, id="x"),
            piece('{"at":', "weather", index=0, id="y"),
            piece('"a"}', "weather", index=0, id="x"),
            piece('"b"}', "weather", index=0, id="y"),
        ),
        (piece('{"at":', "weather"), piece('"a"}'), piece("", "weather"), piece('{"at":"b"}', "weather")),
        (piece('{"at":"a\\"}', "weather"), piece('"}', "weather"), piece('{"at":"b"}', "weather")),
    ],
    ids=[
        *("index only", "the same index", "id only", "nothing", "objects, the same id", "id again"),
        *("interleaved", "the name again", "a bracket in a string"),
    ],
)
async def test_calls_are_told_apart_and_have_ids_that_stay(deltas: tuple[dict[str, Any], ...]) -> None:
    fault = ContentType("text/event-stream", chunks(*deltas))
    async with session("openai", Reply(fault=fault), Reply(fault=fault)) as (one, _):
        reply, again = await one.run(QUESTION, lambda _: None), await one.run(QUESTION, lambda _: None)
    assert {call.name for call in reply.calls} == {"weather"}
    assert sorted(str(call.arguments.get("at")).strip('"}') for call in reply.calls) == ["a", "b"]
    assert len({call.id for call in reply.calls}) == 2
    assert reply.calls == again.calls


@pytest.mark.parametrize(
    ("deltas", "called"),
    [
        (
            (piece("", "weather", index=0), piece('{"at":"a"}', index=0), piece('{"at": "a"}', "weather", index=0)),
            [("weather", {"at": "a"})],
        ),
        (
            (piece('{"at":', "weather", id="x"), piece('"a"}', id="x"), piece({"at": "a"}, "weather", id="x")),
            [("weather", {"at": "a"})],
        ),
        (
            (
                piece('{"at":"a"}', "weather", index=0, id="x"),
                piece('{"at":"a"}', "weather", index=0, id="y"),
            ),
            [("weather", {"at": "a"})] * 2,
        ),
        ((piece('{"at":"a"}', "weather"), piece('{"at":"a"}', "weather")), [("weather", {"at": "a"})] * 2),
        (
            (
                piece("", "weather", index=0, id="x"),
                piece('{"at":', index=0, id="y"),
                piece('"a"}', index=0, id="z"),
            ),
            [("weather", {"at": "a"})],
        ),
        (
            (piece("{}", "weather", index=0, id="x"), piece('{"b":1}', "look", index=0, id="x")),
            [("weather", {}), ("look", {"b": 1})],
        ),
    ],
    ids=["again whole", "again whole by id", "two of two ids", "two", "an id for each piece", "one id for all"],
)
async def test_repeated_and_changing_ids_make_the_calls_that_were_meant(
    deltas: tuple[dict[str, Any], ...], called: list[tuple[str, JsonObject]]
) -> None:
    question = replace(QUESTION, tools=(WEATHER, OfferedTool("look", "", {})))
    async with session("openai", Reply(fault=ContentType("text/event-stream", chunks(*deltas)))) as (one, _):
        reply = await one.run(question, lambda _: None)
    assert [(call.name, call.arguments) for call in reply.calls] == called
    assert len({call.id for call in reply.calls}) == len(called)


@pytest.mark.parametrize("index", [None, 0, 1], ids=["no index", "one index", "an index for each"])
@pytest.mark.parametrize("arguments", ["{", "{}"])
def test_many_pieces_of_calls_are_folded_in_time_that_grows_with_them(index: int | None, arguments: str) -> None:
    began = time.process_time()
    call_fold = FOLDS["openai"](["weather"])
    for n in range(20_000):
        place = {} if index is None else {"index": n * index}
        call_fold.feed(json.dumps({"choices": [{"delta": piece(arguments, "weather", **place)}]}))
    assert call_fold.document
    assert time.process_time() - began < 20.0


# The parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_events_are_read_whatever_the_chunks(end: str) -> None:
    lines = (": a comment", "event: x", "data: one", "data:two", "", "", "id: 7", "data: {}", "", "data: lost")
    stream = end.join(lines).encode()
    for size in range(1, 20):
        reader = EventReader()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [data for chunk in pieces for data in reader.feed(chunk)] == ["one\ntwo", "{}"]
        assert list(reader.end()) == ["lost"]


def test_a_long_line_in_many_pieces_is_read_in_time_that_grows_with_it() -> None:
    stream = b"data: " + b"x" * 2_000_000 + b"\n\n"
    began, reader = time.process_time(), EventReader()
    read = [data for at in range(0, len(stream), 100) for data in reader.feed(stream[at : at + 100])]
    assert [len(data) for data in read] == [2_000_000]
    assert time.process_time() - began < 5.0


async def test_thinking_without_a_beginning_is_taken_back() -> None:
    told: list[ModelDelta] = []
    thinking = msgspec.structs.replace(SPECS[-1], thinks=True)
    reply = await Provider(thinking, Reply("It may rain.</think>\nSun.")).ask(told)
    assert (reply.text, fold(told)) == ("Sun.", reply)
    assert [delta.reset for delta in told].count(True) == 1

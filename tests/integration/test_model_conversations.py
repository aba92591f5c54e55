"""Several turns with tools against strict providers: what goes back, what stays behind, and that prefixes stay."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import pytest

from switchboard.core.text.tokens import asked_tokens
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.llm import (
    ChatMessage,
    Image,
    ModelDelta,
    ModelFailure,
    OfferedTool,
    Request,
    ToolCall,
    ToolResult,
    fold,
)
from switchboard.domain.llm import Reply as Said
from switchboard.llm.bodies import in_turn
from switchboard.llm.port import ApiKind, ModelSession
from switchboard.llm.spec import API_KINDS
from switchboard.testing.scripted_llm import Call, Reply, Status, WithoutIds
from tests.asking import session

WEATHER: Final = OfferedTool(
    "weather", "tells the weather", {"type": "object", "properties": {"at": {"type": "string"}}}
)
FIRST: Final = Request((ChatMessage("user", "Rain at a, b or c?"),), "You know the weather.", (WEATHER,), whole=False)
TWO: Final = (Call("weather", {"at": "a"}), Call("weather", {"at": "b"}))
TURN: Final = (
    Reply("Let me see.", TWO, "Two places first."),
    Reply(calls=(Call("weather", {"at": "c"}),), thinking="And c."),
    Reply("Sun everywhere."),
)
PROFILES: Final[list[tuple[ApiKind, dict[str, Any]]]] = [
    *((kind, {}) for kind in API_KINDS),
    ("openai", {"profile": "local"}),
]
PICTURE: Final = Image("image/png", b"\x89PNG")

every_kind = pytest.mark.parametrize("kind", API_KINDS)
every_profile = pytest.mark.parametrize(("kind", "more"), PROFILES, ids=str)
either_way = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


async def ask(one: ModelSession, request: Request, *, streamed: bool = False) -> Said:
    """Ask, streamed or not; deltas fold to the reply."""
    told: list[ModelDelta] = []
    reply = await one.run(request, told.append if streamed else None)
    assert not streamed or fold(told) == reply
    return reply


def after(request: Request, reply: Said, **more: Any) -> Request:
    """The next request of the turn: every call has its result."""
    results = tuple(ToolResult(call.id or "", f"sun at {call.arguments.get('at')}") for call in reply.calls)
    return replace(request, messages=(*request.messages, reply.message, ChatMessage("user", results=results)), **more)


async def turn(one: ModelSession, *, streamed: bool = False) -> Said:
    """Ask until nothing more is called."""
    request = FIRST
    reply = await ask(one, request, streamed=streamed)
    while reply.calls:
        request = after(request, reply)
        reply = await ask(one, request, streamed=streamed)
    return reply


def unmarked(value: Any) -> Any:
    """Without the marks that say how far a provider may keep what it has read."""
    if isinstance(value, dict):
        return {name: unmarked(inner) for name, inner in value.items() if name != "cache_control"}
    return [unmarked(one) for one in value] if isinstance(value, list) else value


def history(body: JsonMapping) -> str:
    """The messages of a body as they are on the wire."""
    return json.dumps(unmarked(body.get("messages", body.get("input"))))[:-1]


def rest(body: JsonMapping) -> str:
    """All the others."""
    return json.dumps({name: value for name, value in body.items() if name not in {"messages", "input"}})


@every_profile
@either_way
async def test_a_turn_with_tools_and_its_bytes(kind: ApiKind, more: dict[str, Any], *, streamed: bool) -> None:
    async with session(kind, *TURN, strict=True, **more) as (one, llm):
        reply = await turn(one, streamed=streamed)
    assert (reply.text, llm.strays, llm.left) == ("Sun everywhere.", (), 0)
    assert [result.text for result in llm.requests[1].results] == ["sun at a", "sun at b"]
    bodies = [request.body for request in llm.requests]
    for earlier, later in pairwise(bodies):
        assert history(later).startswith(history(earlier))
        assert rest(later) == rest(earlier)
    assert "Two places" not in reply.text
    assert ("Two places" in history(bodies[-1])) == (kind != "openai"), "local servers get no thinking back"


@every_kind
@either_way
async def test_reasoning_goes_back_to_its_own_model_and_to_no_other(kind: ApiKind, *, streamed: bool) -> None:
    for other in API_KINDS:
        async with (
            session(kind, TURN[0], TURN[2], strict=True) as (one, llm),
            session(other, TURN[2], strict=True) as (foreign, elsewhere),
        ):
            request = after(FIRST, await ask(one, FIRST, streamed=streamed))
            await ask(foreign, request, streamed=streamed)
            await ask(one, request, streamed=streamed)
        assert (llm.strays, elsewhere.strays) == ((), ())
        assert "Two places" not in history(elsewhere.requests[0].body)
        assert ("Two places" in history(llm.requests[1].body)) == (kind != "openai")


@every_profile
async def test_malformed_arguments_are_kept_and_marked(kind: ApiKind, more: dict[str, Any]) -> None:
    broken = '{"at": "a'
    async with session(kind, Reply(calls=(Call("weather", broken),), thinking="Hm."), TURN[2], strict=True, **more) as (
        one,
        llm,
    ):
        reply = await ask(one, FIRST, streamed=True)
        [call] = reply.calls
        assert (call.malformed, call.arguments, call.name) == (broken, {}, "weather")
        assert (await ask(one, after(FIRST, reply))).text == "Sun everywhere."
    assert llm.strays == ()
    [sent] = [call for said in llm.requests[1].messages for call in said.calls]
    plain = kind != "anthropic" and not more
    assert sent.arguments == (broken if plain else json.dumps({"malformed": broken}) if more else {"malformed": broken})


@either_way
async def test_calls_without_an_id_get_one_that_stays(*, streamed: bool) -> None:
    reply = Reply(calls=TWO, fault=WithoutIds())
    async with session("openai", reply, reply, TURN[2], strict=True, profile="local") as (one, llm):
        first, again = await ask(one, FIRST, streamed=streamed), await ask(one, FIRST)
        assert [call.id for call in first.calls] == ["call_1_0", "call_1_1"]
        assert first.calls == again.calls
        await ask(one, after(FIRST, first))
    assert llm.strays == ()


@every_profile
@either_way
async def test_calls_that_were_cut_off_are_not_returned(kind: ApiKind, more: dict[str, Any], *, streamed: bool) -> None:
    cut = Reply("Let me", TWO, "Hm.", finish="length")
    async with session(kind, cut, TURN[2], cut, strict=True, **more) as (one, llm):
        reply = await ask(one, FIRST, streamed=streamed)
        assert (reply.text, reply.calls, reply.stop_reason) == ("Let me", (), "length")
        await ask(one, replace(FIRST, messages=(*FIRST.messages, reply.message, ChatMessage("user", "Go on."))))
        with pytest.raises(ModelFailure, match="cut off at its limit"):
            await ask(one, replace(FIRST, whole=True), streamed=streamed)
    assert llm.strays == ()


@every_profile
async def test_a_last_request_that_may_call_nothing(kind: ApiKind, more: dict[str, Any]) -> None:
    async with session(kind, TURN[0], replace_calls(TURN[2]), strict=True, **more) as (one, llm):
        reply = await ask(one, FIRST)
        last = await ask(one, after(FIRST, reply, no_calls=True), streamed=True)
    assert (last.text, last.calls, llm.strays) == ("Sun everywhere.", (), ())
    asked = llm.requests[1].conversation
    assert asked.tools == () if more else (len(asked.tools), asked.tool_choice) == (1, "none")


@every_profile
async def test_calls_of_tools_that_are_gone_stay_in_the_conversation(kind: ApiKind, more: dict[str, Any]) -> None:
    async with session(kind, TURN[0], TURN[2], strict=True, **more) as (one, llm):
        reply = await ask(one, after(FIRST, await ask(one, FIRST), tools=()))
    assert (reply.text, llm.strays) == ("Sun everywhere.", ())
    assert llm.requests[1].tools == (("weather",) if kind == "anthropic" else ())


def replace_calls(reply: Reply) -> Reply:
    """Of a model that calls all the same."""
    return Reply(reply.text, (Call("weather", {"at": "z"}, exact=True),))


async def test_anthropic_may_keep_the_prompt_and_the_conversation() -> None:
    marked = {"cache_control": {"type": "ephemeral"}}
    async with session("anthropic", *TURN, TURN[2], TURN[2], strict=True) as (one, llm):
        await turn(one)
        await ask(one, replace(FIRST, system=""))
        await ask(one, replace(FIRST, tools=()))
    first, second, _, bare, alone = [request.body for request in llm.requests]
    assert first["system"] == [{"type": "text", "text": "You know the weather.", **marked}]
    assert first["messages"][-1]["content"][-1] == {"type": "text", "text": "Rain at a, b or c?", **marked}
    assert (
        json.dumps(first["messages"]).count("cache_control")
        == json.dumps(second["messages"]).count("cache_control")
        == 1
    )
    assert second["messages"][-1]["content"][-1].items() >= marked.items()
    assert "cache_control" not in json.dumps(first["tools"])
    assert bare["tools"][-1]["cache_control"] == marked["cache_control"]
    assert "cache_control" not in json.dumps(alone["messages"]), "nothing follows on a single question"


async def test_a_model_without_encrypted_reasoning_is_asked_without_it() -> None:
    refusal = Reply(fault=Status(400, message="Encrypted content is not supported with this model."))
    async with session("openai-responses", refusal, TURN[2], TURN[2]) as (one, llm):
        assert (await ask(one, FIRST)).text == "Sun everywhere."
        await ask(one, FIRST)
    assert ["include" in request.body for request in llm.requests] == [True, False, False]


@every_profile
async def test_an_empty_line_before_a_call_does_not_go_back(kind: ApiKind, more: dict[str, Any]) -> None:
    async with session(kind, Reply("\n\n", TWO, "Hm."), TURN[2], strict=True, **more) as (one, llm):
        await ask(one, after(FIRST, await ask(one, FIRST)))
    assert llm.strays == ()


@every_profile
async def test_reasoning_that_led_to_nothing_does_not_go_back(kind: ApiKind, more: dict[str, Any]) -> None:
    async with session(kind, Reply(thinking="Hm."), TURN[2], strict=True, **more) as (one, llm):
        reply = await ask(one, FIRST)
        await ask(one, replace(FIRST, messages=(*FIRST.messages, reply.message, ChatMessage("user", "Well?"))))
    assert (reply.text, llm.strays) == ("", ())


# What is said in turn ------------------------------------------------------------------------------------------------


def roles(messages: Sequence[ChatMessage]) -> list[str]:
    return [message.role for message in in_turn(messages)]


@every_profile
async def test_whatever_the_history_the_roles_alternate(kind: ApiKind, more: dict[str, Any]) -> None:
    said = [
        ChatMessage("assistant", "Good morning."),
        ChatMessage("user", "Rain?"),
        ChatMessage("assistant", " "),
        ChatMessage("user", "Hello?"),
        ChatMessage("assistant", "Sun."),
        ChatMessage("assistant", "And wind."),
        ChatMessage("user", "Thanks."),
    ]
    assert roles(said) == ["user", "assistant", "user", "assistant", "user"]
    assert [message.text for message in in_turn(said)][2:4] == ["Rain?\n\nHello?", "Sun.\n\nAnd wind."]
    async with session(kind, TURN[2], strict=True, **more) as (one, llm):
        await ask(one, replace(FIRST, messages=tuple(said)))
    assert llm.strays == ()


async def test_ids_of_other_servers_are_taken_by_anthropic() -> None:
    call = ToolCall("weather", {"at": "a"}, id="functions.weather:0")
    async with session("anthropic", TURN[2], strict=True) as (one, llm):
        await ask(one, after(FIRST, Said(calls=(call,))))
    assert llm.requests[0].results[0].call_id == "functions_weather_0"


# Images --------------------------------------------------------------------------------------------------------------


@every_kind
async def test_images_are_for_models_that_see(kind: ApiKind) -> None:
    big, odd = Image("image/png", b"\x00" * (5 * 1024 * 1024 + 1)), Image("image/tiff", b"\x89PNG")
    request = replace(FIRST, messages=(ChatMessage("user", "Look.", images=(big, odd, *[PICTURE] * 5)),))
    async with session(kind, TURN[2], strict=True, vision=True) as (one, llm):
        await ask(one, request)
    async with session(kind, TURN[2], strict=True) as (one, blind):
        await ask(one, request)
    sent = json.dumps(llm.requests[0].body)
    assert sent.count(base64.b64encode(PICTURE.data).decode()) == 4
    assert "3 of 7 attached images cannot be shown" in sent
    assert base64.b64encode(PICTURE.data).decode() not in json.dumps(blind.requests[0].body)
    assert "7 of 7 attached images cannot be shown" in blind.requests[0].prompt
    assert asked_tokens(request) > 7 * 1000


# Calls as JSON -------------------------------------------------------------------------------------------------------

FORMED: Final = (
    Reply('{"calls": [{"name": "weather", "arguments": {"at": "a"}}, {"name": "weather", "arguments": {"at": "b"}}]}'),
    Reply('```json\n{"calls": [{"name": "weather", "arguments": {"at": "c"}}]}\n```'),
    Reply('{"text": "Sun \\u00fcber\\nall: \\ud83c\\udf1e"}'),
)
SUN: Final = "Sun über\nall: \U0001f31e"


@either_way
@pytest.mark.parametrize("schemas", [True, False, None], ids=["taken", "not sent", "refused"])
async def test_a_turn_whose_calls_are_json(*, streamed: bool, schemas: bool | None) -> None:
    refusal = Reply(fault=Status(400, message="failed to parse grammar"))
    given, more = (*((refusal,) if schemas is None else ()), *FORMED), {"schemas": schemas is not False}
    async with session("openai", *given, strict=True, profile="local", calls="schema", **more) as (one, llm):
        reply = await turn(one, streamed=streamed)
    assert (reply.text, reply.stop_reason, llm.strays, llm.left) == (SUN, "end", (), 0)
    sent = [request.body for request in llm.requests]
    assert ["response_format" in one for one in sent] == (
        [True, False, False, False] if schemas is None else [schemas] * 3
    )
    for earlier, later in pairwise(sent):
        assert "tools" not in later
        assert history(later).startswith(history(earlier))
    assert "[result of weather]\nsun at a" in sent[-1]["messages"][3]["content"]


@either_way
async def test_a_model_that_calls_nothing_in_the_form_is_read_as_any_other(*, streamed: bool) -> None:
    local: dict[str, Any] = {"profile": "local", "calls": "schema"}
    odd = (Reply('{"name": "weather", "arguments": {"at": "a"}}'), Reply("Just sun."), TURN[0])
    async with session("openai", *odd, **local) as (one, _):
        assert [call.arguments for call in (await ask(one, FIRST, streamed=streamed)).calls] == [{"at": "a"}]
        assert (await ask(one, FIRST, streamed=streamed)).text == "Just sun."
        assert len((await ask(one, FIRST, streamed=streamed)).calls) == len(TWO)


@either_way
async def test_an_answer_in_the_form_that_was_cut_off(*, streamed: bool) -> None:
    cut = (Reply('{"text": "Sun ov', finish="length"), Reply('{"calls": [{"name": "wea', finish="length"))
    async with session("openai", *cut, Reply('{"calls": [{}]}'), calls="schema") as (one, _):
        text, call = await ask(one, FIRST, streamed=streamed), await ask(one, FIRST, streamed=streamed)
        with pytest.raises(ModelFailure, match="cannot be read"):
            await ask(one, FIRST, streamed=streamed)
    assert (text.text, text.stop_reason, text.unmade) == ("Sun ov", "length", "")
    assert (call.text, call.calls, call.unmade) == ("", (), "cut_off")

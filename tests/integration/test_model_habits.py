"""What `models test` and `init` find out about models beside that they work: no schemas, thinking before the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from switchboard.app.models.model_tests import (
    ModelTestPlace,
    Tried,
    parallel_requests,
    try_model,
    try_setup,
    try_use,
)
from switchboard.app.settings import Settings
from switchboard.domain.llm import Usage
from switchboard.llm.pace import reading_speed, timeout_for
from switchboard.llm.parallel import measured_slots
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm, Slow, Status
from switchboard.testing.scripted_llm.endpoints import LocalServer
from tests.integration.test_model_context import brain

NOWHERE = ModelTestPlace("", None, "no server")
PLAN = Reply(json.dumps({"action": "tool", "target": "look_up_number", "args": {"person": "Ada"}, "confidence": 1}))
REFUSED = Status(400, message="JSON schema conversion failed:\nUnrecognized schema")


def caller(planned: Reply, *, schemas: bool = True) -> Any:
    """A model that calls the tool, finds its word, and plans so; its server may refuse schemas."""

    def answer(asked: Request) -> Reply:
        if not schemas and "response_format" in asked.body:
            return Reply(fault=REFUSED)
        if asked.system.startswith("You plan"):
            return planned
        return Reply(calls=(Call("look_up_number", {"person": "Ada"}),)) if asked.tools else brain(asked)

    return answer


def settings(url: str, kind: str, **more: Any) -> Settings:
    model = {"name": "m", "kind": kind, "model": "m", "base_url": url if kind == "anthropic" else f"{url}/v1", **more}
    return Settings.model_validate({"models": [model]})


async def tried(script: Any, kind: str = "openai", **more: Any) -> tuple[Tried, ScriptedLlm]:
    async with ScriptedLlm(script) as llm:
        given = settings(llm.url, kind, **more)
        return await try_use(given, given.models[0], NOWHERE, in_turns=True), llm


LOCAL = {"profile": "local"}


@pytest.mark.parametrize(
    ("planned", "schemas", "thinks"),
    [
        (PLAN, True, False),
        (PLAN, False, False),
        (Reply(PLAN.text, thinking="Ada, then."), True, True),
        (Reply(PLAN.text, thinking="Ada, then."), False, True),
        (Reply(f"<think>Ada, then.</think>{PLAN.text}"), True, True),
        (Reply("Well, " * 400, finish="length"), True, True),
    ],
)
async def test_what_a_local_model_is_like(planned: Reply, schemas: bool, thinks: bool) -> None:
    found, llm = await tried(caller(planned, schemas=schemas), **LOCAL)
    assert (found.ok, found.detail, found.schemas, found.thinks) == (True, "calls tools", schemas, thinks)
    assert (found.calls, found.timeout) == ("native", None)
    wanted = [*([] if schemas else ["schemas = false"]), *(["thinks = true"] if thinks else [])]
    assert found.remedy.startswith(f"set {' and '.join(wanted)} in its [[models]]" if wanted else "")
    assert bool(found.remedy) == bool(wanted)
    planning = [asked for asked in llm.requests if asked.system.startswith("You plan")]
    assert ["response_format" in asked.body for asked in planning] == ([True] if schemas else [True, False])
    assert {asked.body["max_tokens"] for asked in planning} == {800}


@pytest.mark.parametrize("kind", ["openai", "openai-responses", "anthropic"])
async def test_what_a_hosted_model_is_like(kind: str) -> None:
    planned = Reply(calls=(Call("route_decision", json.loads(PLAN.text)),), thinking="Ada, then.")
    found, _ = await tried(caller(planned), kind)
    assert (found.schemas, found.thinks) == (True, True)
    quiet, llm = await tried(caller(Reply(calls=planned.calls)), kind)
    assert (quiet.schemas, quiet.thinks, quiet.remedy) == (True, False, "")
    assert quiet.tokens_in > 0
    assert llm.requests[-1].body["tool_choice"] != "auto"


async def test_what_the_settings_say_is_not_advised_and_what_they_say_wrongly_is() -> None:
    thinking = Reply(PLAN.text, thinking="Ada, then.")
    found, _ = await tried(caller(thinking, schemas=False), **LOCAL, schemas=False, thinks=True)
    assert (found.schemas, found.thinks, found.remedy) == (False, True, "")
    found, _ = await tried(caller(PLAN), **LOCAL, schemas=False, thinks=True)
    assert found.remedy.startswith("set schemas = true in"), "once without thinking proves nothing"


async def test_an_answer_cut_by_its_limit_is_no_sign_of_thinking() -> None:
    found, _ = await tried(caller(Reply("Well, " * 90, finish="length")), **LOCAL, max_tokens=100)
    assert (found.ok, found.thinks) == (True, False)


@pytest.mark.parametrize("planned", [Reply(fault=Status(503)), Reply(fault=Status(400, message="no"))])
async def test_where_there_is_no_plan_nothing_is_known(planned: Reply) -> None:
    found, _ = await tried(caller(planned), **LOCAL)
    assert (found.ok, found.schemas, found.thinks, found.remedy) == (True, None, None, "")
    failed, llm = await tried([Reply("It is 7.")], **LOCAL)
    assert (failed.ok, failed.schemas, failed.thinks, len(llm.requests)) == (False, None, None, 2)


async def test_a_model_without_schemas_can_classify() -> None:
    async with ScriptedLlm(caller(PLAN, schemas=False)) as llm:
        refused, without = (settings(llm.url, "openai", **LOCAL, **more) for more in ({}, {"schemas": False}))
        failed = await try_model(refused, refused.models[0], NOWHERE)
        chosen = await try_model(without, without.models[0], NOWHERE)
    assert (failed.ok, failed.remedy.endswith("set schemas = false in its [[models]]")) == (False, True)
    assert (chosen.ok, chosen.detail) == (True, "chose System1/weather")


# How it calls, and how fast it is ------------------------------------------------------------------------------------

CALLED = '{"calls": [{"name": "look_up_number", "arguments": {"person": "Ada"}}]}'
AS_TEXT = '{"name": "look_up_number", "arguments": {"person": "Ada"}}'


def writer(native: str, formed: str, pause_s: float = 0.0) -> Any:
    """A model that writes this instead of calling a tool, and that where it is asked for JSON."""

    def answer(asked: Request) -> Reply:
        if asked.tools or asked.system.startswith("You answer questions about secret"):
            return Reply(native if asked.tools else formed)
        if "code word" in asked.prompt:
            return structs.replace(brain(asked), fault=Slow(pause_s)) if pause_s else brain(asked)
        return PLAN

    return answer


@pytest.mark.parametrize("profile", [None, "local"])
@pytest.mark.parametrize(
    ("native", "formed", "ok", "calls"),
    [
        ("Her number is {{Ada}}.", CALLED, False, "schema"),
        (AS_TEXT, CALLED, None, "schema"),
        (AS_TEXT, '{"text": "It is 7."}', None, "native"),
        ("It is 7.", '{"text": "It is 7."}', False, None),
    ],
)
async def test_a_model_that_writes_its_calls_is_asked_for_json(
    native: str, formed: str, ok: bool | None, calls: str | None, profile: str | None
) -> None:
    found, _ = await tried(writer(native, formed), profile=profile)
    carried_out = native == AS_TEXT and profile == "local"
    assert found.ok == (carried_out if ok is None else ok)
    wanted = calls if carried_out or calls == "schema" else None
    assert found.calls == wanted
    assert ('calls = "schema" in its [[models]]' in found.remedy) == (wanted == "schema")
    if wanted == "schema":
        set_so, _ = await tried(writer(native, formed), profile=profile, calls="schema")
        assert (set_so.ok, set_so.calls, "calls" in set_so.remedy) == (True, "schema", False)


@pytest.mark.parametrize(
    ("native", "formed", "ok", "detail", "remedy"),
    [
        (True, CALLED, True, "calls tools; natively, too", ""),
        (False, CALLED, True, "calls tools", ""),
        (True, '{"text": "It is 7."}', False, "", 'set calls = "native" in its [[models]]'),
    ],
)
async def test_a_model_that_is_asked_for_json_is_asked_natively_too(
    native: bool, formed: str, ok: bool, detail: str, remedy: str
) -> None:
    """A server may have learned to call tools since `calls` was set."""
    as_text = writer("Her number is {{Ada}}.", formed)

    def answer(asked: Request) -> Reply:
        made = Reply(calls=(Call("look_up_number", {"person": "Ada"}),))
        return made if native and asked.tools else as_text(asked)

    found, _ = await tried(answer, calls="schema")
    assert (found.ok, found.calls) == (ok, "schema" if ok else "native")
    assert detail in found.detail
    assert ("calls" in found.remedy, remedy in found.remedy) == (bool(remedy), True)


async def test_a_new_installation_takes_the_model_as_it_is() -> None:
    async with ScriptedLlm(writer("Hm.", CALLED)) as llm:
        given = settings(llm.url, "openai", **LOCAL)
        found = await try_setup(given, given.models[0], NOWHERE)
    assert (found.ok, found.detail, found.calls, found.schemas, found.remedy) == (
        True,
        "calls tools",
        "schema",
        True,
        "",
    )


@pytest.mark.parametrize(("pause_s", "timeout"), [(0.0, False), (1.5, True)])
async def test_a_slow_model_gets_the_time_that_it_needs(pause_s: float, timeout: bool) -> None:
    found, _ = await tried(writer(AS_TEXT, CALLED, pause_s), **LOCAL, context=5_000, timeout=11.0)
    assert found.ok
    assert found.tokens_per_second is not None
    assert (found.timeout is not None) == timeout
    assert (f"timeout = {found.timeout} in its [[models]]" in found.remedy) == timeout


@pytest.mark.parametrize(
    ("usage", "seconds", "speed"),
    [
        (Usage(1_000, 10), 10.0, 100.0),
        (Usage(1_000, 10, cache_read=500), 10.0, 50.0),
        (Usage(1_000, 10, cache_read=900), 10.0, None),
        (Usage(1_000, 2_000), 10.0, None),
        (Usage(1_000, 10, estimated=True), 10.0, None),
        (Usage(1_000, 10), 0.0, None),
    ],
)
def test_how_fast_a_model_reads(usage: Usage, seconds: float, speed: float | None) -> None:
    assert reading_speed(usage, seconds) == speed


def test_a_timeout_is_three_times_what_the_whole_context_needs() -> None:
    assert [timeout_for(8_192, speed) for speed in (100.0, 30.0, 3.0)] == [250, 820, 3_600]


@pytest.mark.parametrize(("alone", "together", "slots"), [(1.0, 1.1, 2), (1.0, 2.0, 1), (1.0, 1.6, 1), (0.1, 0.1, 1)])
def test_two_requests_that_take_as_long_as_one_run_at_once(alone: float, together: float, slots: int) -> None:
    assert measured_slots(alone, together) == slots


async def test_a_server_says_how_many_requests_it_runs_or_it_is_tried() -> None:
    wanted: dict[LocalServer | None, tuple[int, bool]] = {"llama.cpp": (1, True), None: (1, False)}
    for server, slots in wanted.items():
        async with ScriptedLlm(lambda _: Reply("One."), server=server) as llm:
            given = settings(llm.url, "openai", **LOCAL)
            assert await parallel_requests(given, given.models[0], NOWHERE) == slots

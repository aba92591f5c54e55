"""What `models test` and `init` find out about models beside that they work: no schemas, thinking before the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from switchboard.app.classification.model_tests import ModelTestPlace, Tried, try_model, try_use
from switchboard.app.settings import Settings
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm, Status
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


async def test_a_short_answer_is_no_sign_of_thinking_where_no_longer_one_is_allowed() -> None:
    found, _ = await tried(caller(Reply("Well, " * 90, finish="length")), **LOCAL, max_tokens=100)
    assert (found.ok, found.thinks) == (True, False)


@pytest.mark.parametrize("planned", [Reply(fault=Status(503)), Reply(fault=Status(400, message="no"))])
async def test_where_there_is_no_plan_nothing_is_known(planned: Reply) -> None:
    found, _ = await tried(caller(planned), **LOCAL)
    assert (found.ok, found.schemas, found.thinks, found.remedy) == (True, None, None, "")
    failed, llm = await tried([Reply("It is 7.")], **LOCAL)
    assert (failed.ok, failed.schemas, failed.thinks, len(llm.requests)) == (False, None, None, 1)


async def test_a_model_without_schemas_can_classify() -> None:
    async with ScriptedLlm(caller(PLAN, schemas=False)) as llm:
        refused, without = (settings(llm.url, "openai", **LOCAL, **more) for more in ({}, {"schemas": False}))
        failed = await try_model(refused, refused.models[0], NOWHERE)
        chosen = await try_model(without, without.models[0], NOWHERE)
    assert (failed.ok, failed.remedy.endswith("set schemas = false in its [[models]]")) == (False, True)
    assert (chosen.ok, chosen.detail) == (True, "chose System1/weather")

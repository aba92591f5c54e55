"""`plans try`, over HTTP and the command line: what a butler would plan, where that is from, and nothing of it done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from switchboard.llm.spec import ModelSpec
from switchboard.testing.scripted_llm import Reply, Request, ScriptedLlm, Status, Usage
from tests.commands import Cli
from tests.integration.test_planner import form
from tests.routing import butler, team_of
from tests.servers import Opened, open_server
from tests.unit.planning.answers import SEED, plan, tool, write
from tests.unit.planning.menus import ARXIV, CRATE

TEXT = f"Write a report about {ARXIV} and {CRATE}"
WRONG = form(plan(tool("rm_rf", {}), write("Both", 1)))


def brain(asked: Request) -> Reply:
    """The same router says what the message is about."""
    prompt, used = asked.prompt, Usage(900, 100)
    if "ask me" in prompt:
        return Reply(form({"action": "ask_user", "args": {"question": "Which of \x1b[31mboth?"}, "confidence": 0.3}))
    if "badly" in prompt:
        return Reply(WRONG, usage=used)
    if "nobody" in prompt:
        return Reply(fault=Status(503))
    return Reply(form(SEED), usage=used)


@dataclass(frozen=True)
class House:
    """A server with one butler that plans, and its router."""

    server: Opened
    llm: ScriptedLlm

    async def tried(self, text: str, status: int = 200, **more: Any) -> Any:
        answer = await self.server.http.post("/v1/plans/try", json={"text": text, **more})
        assert answer.status_code == status, answer.text
        return answer.json() if status == 200 else answer.json()["error"]


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    team = team_of(butler("clerk", "trio"), butler("memo", "memo"))
    async with ScriptedLlm(brain, strict="local") as llm:
        models = (ModelSpec("router", "openai", "m", f"{llm.url}/v1", profile="local", price_out=1_000.0),)
        async with open_server(database_url, tmp_path, tree=((team,), ()), more={"models": models}) as server:
            yield House(server, llm)


async def test_a_plan_is_shown_and_nothing_of_it_is_done(house: House) -> None:
    found = await house.tried(TEXT)
    assert (found["butler"], found["models"], found["source"], found["tries"]) == (
        "System1/clerk",
        ["router"],
        "exact",
        1,
    )
    assert [(one["id"], one["target"], one["needs"]) for one in found["steps"]] == [
        ("s1", "web_fetch", []),
        ("s2", "web_fetch", []),
        ("s3", "synthesize", ["s1", "s2"]),
    ]
    assert (found["tokens_in"], found["tokens_out"], found["cost_usd"]) == (900, 100, 0.1)
    assert (len(house.llm.requests), found["failure"], found["faults"]) == (1, "", [])
    assert await house.server.lab.database.value("select count(*) from step") == 0
    booked = (await house.server.http.get("/v1/models/usage", params={"by": "butler"})).json()["rows"]
    assert [(one["key"], one["attempts"]) for one in booked] == [("System1/clerk", 1)]


async def test_what_is_not_taken_is_told_with_the_template_in_its_place(house: House) -> None:
    found = await house.tried(f"{TEXT}, badly")
    assert (found["source"], found["tries"], found["confidence"]) == ("template", 2, None)
    assert any("there is no tool 'rm_rf'" in fault for fault in found["faults"])
    found = await house.tried(f"{TEXT}, nobody is there")
    assert (found["source"], found["tries"], "503" in found["failure"]) == ("template", 0, True)
    assert [one["target"] for one in found["steps"]] == ["web_fetch", "web_fetch", "synthesize"]


async def test_who_is_to_plan(house: House) -> None:
    assert (await house.tried(TEXT, butler="System1/clerk"))["butler"] == "System1/clerk"
    error = await house.tried(TEXT, 404, butler="System1/memo")
    assert "those that have: System1/clerk" in error["message"]
    assert (await house.tried("", 422))["code"] == "invalid_input"
    assert len(house.llm.requests) == 1


async def test_a_server_without_the_key_of_the_router_says_so(database_url: str, tmp_path: Path) -> None:
    team = team_of(butler("clerk", "trio"))
    models = (ModelSpec("router", "openai", "m", api_key_env="NO_SUCH_KEY"),)
    async with open_server(database_url, tmp_path, tree=((team,), ()), more={"models": models}) as server:
        found = (await server.http.post("/v1/plans/try", json={"text": TEXT})).json()
    assert found["failure"].startswith(
        "router, as this server has it: the environment variable NO_SUCH_KEY holds no secret"
    )
    assert found["source"] == "template"


async def test_without_a_butler_that_plans(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path) as server:
        refused = await server.http.post("/v1/plans/try", json={"text": TEXT})
        assert refused.status_code == 422
        assert "give one the engine trio" in refused.json()["error"]["message"]


async def test_the_command_prints_the_plan_its_graph_and_where_it_is_from(
    house: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(cli: Cli) -> None:
        said = cli.says("plans", "try", TEXT)
        for part in ("System1/clerk: pipeline", "the router's answer as it is", "900+100 tokens", ARXIV, "s1, s2"):
            assert part in said
        assert "s1 ∥ s2 → s3" in said
        assert len(cli.json("plans", "try", TEXT, "--butler", "clerk")["steps"]) == 3
        said = cli.says("plans", "try", f"{TEXT}, badly")
        assert "a template at the second try" in said
        assert "not taken: s1: there is no tool 'rm_rf'" in said
        said = cli.says("plans", "try", "ask me")
        assert "ask_user Which of" in said
        assert "unsure: 0.30" in said
        assert "\x1b" not in said
        assert "the router has not answered" in cli.says("plans", "try", "nobody")

    await asyncio.to_thread(work, Cli(capsys, monkeypatch, house.server.environment))

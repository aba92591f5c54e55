"""The context of a model: what the settings say, what servers say, and what they do not say."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.app.models.model_tests import ModelTestPlace, try_model
from switchboard.app.settings import Settings
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.readers import directory_of, reader_of
from switchboard.domain.json_values import JsonMapping
from switchboard.llm.context import Contexts, context_of, of_ollama_shown
from switchboard.llm.spec import ModelSpec
from switchboard.llm.web import open_client
from switchboard.ports.engine import Answer
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.testing.engines import MemoryJournal, a_turn
from switchboard.testing.scripted_llm import Call, Reply, Request, Script, ScriptedLlm, Status
from switchboard.testing.scripted_llm.endpoints import LocalServer
from tests.asking import spec
from tests.turning import OWNER, Noting, a_model_engine

SERVERS: Final[tuple[LocalServer, ...]] = ("ollama", "lm-studio", "llama.cpp", "vllm")
SCRIPT: Final = Script(models=("scripted-1",))


@pytest.mark.parametrize("server", SERVERS)
async def test_a_local_server_is_asked_once(server: LocalServer) -> None:
    now = [0.0]
    async with ScriptedLlm(SCRIPT, context=4096, server=server) as llm, open_client() as http:
        contexts, model = Contexts(http, lambda: now[0]), spec("openai", llm.url, profile="local")
        assert await contexts.of(model) == 4096
        async with llm.closed():
            assert await contexts.of(model) == 4096
            now[0] = 601.0
            assert await contexts.of(model) == 8192, "remembered for ten minutes"


async def test_nobody_is_asked_but_local_servers() -> None:
    async with ScriptedLlm(SCRIPT) as llm, open_client() as http:
        contexts = Contexts(http)
        assert await contexts.of(spec("openai", llm.url, profile="local", context=5000)) == 5000
        assert await contexts.of(spec("openai", llm.url)) == 8192
        assert await contexts.of(ModelSpec("m", "anthropic", "m")) == 128_000
        assert llm.strays == ()
        assert await contexts.of(spec("openai", llm.url, profile="local")) == 8192, "it does not say"


@pytest.mark.parametrize(
    ("told", "tokens"),
    [
        ({"parameters": "num_ctx 16384"}, 16384),
        ({"parameters": 'stop "num_ctx 5"\n  num_ctx\t4096'}, 4096),
        ({"parameters": 'stop "x"', "model_info": {"qwen3.context_length": 40960}}, None),
        ({}, None),
    ],
)
def test_what_a_model_could_read_is_not_what_ollama_gives_it(told: Any, tokens: int | None) -> None:
    assert of_ollama_shown(told, "m") == tokens
    assert context_of(ModelSpec("m", "openai", "m", "http://h"), tokens) == (tokens or 8192)


def brain(asked: Request) -> Reply:
    """Routes the question of the test, and knows the code word only if it has reached it."""
    if "code word" not in asked.prompt:
        return Reply('{"thought": "Rain.", "calls": [{"butler": "System1/weather"}]}')
    word = re.search(r"The code word is ([A-Z0-9-]+)", asked.system)
    return Reply(word[1] if word else "I do not know.")


@pytest.mark.parametrize(
    ("context", "ok"), [(None, True), (8000, True), (16_384, False)], ids=["as told", "as it is", "too large"]
)
async def test_a_server_that_cuts_the_head_in_silence_is_found_out(context: int | None, ok: bool) -> None:
    async with ScriptedLlm(brain, context=8192) as llm:
        model = {"name": "m", "kind": "openai", "model": "m", "base_url": f"{llm.url}/v1", "profile": "local"}
        settings = Settings.model_validate({"models": [model | ({} if context is None else {"context": context})]})
        tried = await try_model(settings, settings.models[0], ModelTestPlace("", None, "no server"))
    assert (tried.ok, tried.outcome) == ((True, "answered") if ok else (False, "context_cut"))
    assert ok or ("16,384 tokens" in tried.detail and "OLLAMA_CONTEXT_LENGTH" in tried.remedy)
    assert len(llm.requests) == (2 if ok else 3), "a short request shows that the model can do it"


async def test_a_model_that_never_finds_the_word_proves_nothing() -> None:
    async with ScriptedLlm(
        lambda asked: brain(asked) if "weather" in asked.system + asked.prompt else Reply("Hm?")
    ) as llm:
        model = {"name": "m", "kind": "openai", "model": "m", "base_url": f"{llm.url}/v1", "profile": "local"}
        settings = Settings.model_validate({"models": [model]})
        assert (await try_model(settings, settings.models[0], ModelTestPlace("", None, "no server"))).ok
    assert len(llm.requests) == 3


async def test_a_server_that_is_too_slow_for_so_much_is_not_blamed() -> None:
    def slow(asked: Request) -> Reply:
        return Reply(gate="never") if "code word" in asked.prompt else brain(asked)

    async with ScriptedLlm(slow) as llm:
        model = {"name": "m", "kind": "openai", "model": "m", "base_url": f"{llm.url}/v1", "profile": "local"}
        settings = Settings.model_validate({"models": [model | {"timeout": 1.0}]})
        tried = await try_model(settings, settings.models[0], ModelTestPlace("", None, "no server"))
    assert tried.ok


# Turns ----------------------------------------------------------------------------------------------------------------


def reader(seen: list[str], calls: int) -> Callable[[Request], Reply]:
    """Reads one long page after the other, and notes how what has reached it begins and ends."""

    def read(asked: Request) -> Reply:
        seen.append(f"{asked.system[:12]} … {asked.prompt.split()[-1]}")
        done = sum(1 for said in asked.messages if said.role == "tool")
        return Reply(calls=(Call("page", {"n": done}),)) if done < calls else Reply("Read.")

    return read


async def page(arguments: JsonMapping, _: ToolScope) -> ToolOutcome:
    return ToolOutcome(f"page {arguments['n']} " + "and so on " * 800)


async def test_a_turn_keeps_its_head_at_a_server_that_cuts_it_in_silence(tmp_path: Path) -> None:
    seen: list[str] = []
    async with (
        ScriptedLlm(reader(seen, 9), context=8192, server="ollama") as llm,
        a_model_engine(
            llm,
            [Noting("page", act=page)],
            specs=[spec("openai", llm.url, "small", profile="local")],
            workspaces=tmp_path,
        ) as (engine, _),
    ):
        result = await engine.run(a_turn({"owners": OWNER}, "read"), MemoryJournal())
    assert isinstance(result, Answer)
    assert result.text == "Read."
    assert seen == ["You are tool … read"] * 10


async def test_a_model_with_a_smaller_context_takes_over_and_loses_nothing(tmp_path: Path) -> None:
    """The first fits into 100,000 tokens and fails after some pages; the second has 8,192, and is asked by that."""
    first, second = list[str](), list[str]()

    def fails(asked: Request) -> Reply:
        return Reply(fault=Status(500)) if len(first) == 5 else reader(first, 9)(asked)

    async with (
        ScriptedLlm(fails) as large,
        ScriptedLlm(reader(second, 9), context=8192, server="ollama") as small,
        a_model_engine(
            large,
            [Noting("page", act=page)],
            specs=[
                spec("openai", large.url, "large", context=100_000, max_tokens=4096),
                spec("openai", small.url, "small", profile="local"),
            ],
            workspaces=tmp_path,
        ) as (engine, _),
    ):
        turn = a_turn({"owners": OWNER}, "read")
        result = await engine.run(turn, MemoryJournal())
        told = [said.text for said in small.requests[0].messages if said.role == "tool"]
    assert isinstance(result, Answer)
    assert second == ["You are tool … read"] * 5
    assert len(first) == 5
    assert told[0].startswith(f"[moved to the file tool-results/{turn.request_id}/2-1.txt")
    assert told[-1].startswith("page 4 ")
    readers = directory_of(reader_of(turn, {}, CHANNELS["api"]), turn.request_id)
    kept = tmp_path / ".results" / "tool" / readers / "tool-results" / str(turn.request_id) / "2-1.txt"
    assert kept.read_text().startswith("page 0 ")

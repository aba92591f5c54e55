"""The context of a model: what the settings say, what servers say, and what they do not say."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from switchboard.app.classification.model_tests import Place, try_model
from switchboard.app.settings import Settings
from switchboard.llm.context import Contexts, context_of, of_ollama_shown
from switchboard.llm.spec import ModelSpec
from switchboard.llm.web import open_client
from switchboard.testing.scripted_llm import Reply, Request, Script, ScriptedLlm
from switchboard.testing.scripted_llm.endpoints import LocalServer
from tests.asking import spec

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
        tried = await try_model(settings, settings.models[0], Place("", None, "no server"))
    assert (tried.ok, tried.outcome) == ((True, "answered") if ok else (False, "context_cut"))
    assert ok or ("16,384 tokens" in tried.detail and "OLLAMA_CONTEXT_LENGTH" in tried.remedy)
    assert len(llm.requests) == (2 if ok else 3), "a short request shows that the model can do it"


async def test_a_model_that_never_finds_the_word_proves_nothing() -> None:
    async with ScriptedLlm(
        lambda asked: brain(asked) if "weather" in asked.system + asked.prompt else Reply("Hm?")
    ) as llm:
        model = {"name": "m", "kind": "openai", "model": "m", "base_url": f"{llm.url}/v1", "profile": "local"}
        settings = Settings.model_validate({"models": [model]})
        assert (await try_model(settings, settings.models[0], Place("", None, "no server"))).ok
    assert len(llm.requests) == 3


async def test_a_server_that_is_too_slow_for_so_much_is_not_blamed() -> None:
    def slow(asked: Request) -> Reply:
        return Reply(gate="never") if "code word" in asked.prompt else brain(asked)

    async with ScriptedLlm(slow) as llm:
        model = {"name": "m", "kind": "openai", "model": "m", "base_url": f"{llm.url}/v1", "profile": "local"}
        settings = Settings.model_validate({"models": [model | {"timeout": 1.0}]})
        tried = await try_model(settings, settings.models[0], Place("", None, "no server"))
    assert tried.ok

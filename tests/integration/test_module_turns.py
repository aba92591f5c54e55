"""Turns of a butler with modules: what its model is offered, told and allowed, with a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.agents.model.engine import ModelEngine
from switchboard.modules.kernel.opened import OpenModules
from switchboard.ports.engine import Answer, Turn
from switchboard.testing.engines import MemoryJournal, a_turn
from switchboard.testing.scripted_llm import Call, Reply, ScriptedLlm
from switchboard.tools.toolsets import Toolsets
from tests.installed import DIARY, forget, install, installation
from tests.turning import OWNER, a_model_engine

MINE: Final = {"owners": OWNER, "modules": {"diary": {"days": ["Monday"]}}}
SOURCES: Final = {"diary": DIARY, "broken": "raise SystemExit(1)"}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install(tmp_path, monkeypatch, SOURCES)
    yield
    monkeypatch.undo()
    forget(SOURCES)


def wants(name: str, **arguments: object) -> Reply:
    return Reply(calls=(Call(name, arguments),))


@asynccontextmanager
async def an_engine(llm: ScriptedLlm, turn: Turn, **context: Any) -> AsyncIterator[ModelEngine]:
    modules = OpenModules(installation(turn.member))
    async with a_model_engine(llm, [], toolset=Toolsets(modules), **context) as (engine, _):
        yield engine
    await modules.aclose()


def results_in(llm: ScriptedLlm) -> list[str]:
    """What the model was told of its calls, as far as the last request has them."""
    return [str(message["content"]) for message in llm.requests[-1].body["messages"] if message["role"] == "tool"]


def offered_in(llm: ScriptedLlm) -> list[list[str]]:
    """The names of the tools of each request."""
    return [[tool["function"]["name"] for tool in one.body.get("tools", ())] for one in llm.requests]


async def test_a_model_calls_tools_of_a_module_and_asks_for_more() -> None:
    turn = a_turn(MINE, "what is on Monday?")
    script = [
        wants("diary_read", day="Monday"),
        wants("diary_read", day="Friday"),
        wants("module_tools", module="diary"),
        wants("diary_add", day="Monday", what="tax"),
        Reply(text="Planned."),
    ]
    journal = MemoryJournal()
    async with ScriptedLlm(script) as llm, an_engine(llm, turn) as engine:
        result = await engine.run(turn, journal)
        told, offered = results_in(llm), offered_in(llm)
    assert isinstance(result, Answer)
    assert (result.text, result.warning) == ("Planned.", "")
    assert told[:2] == ["Ann: nothing on Monday", "that day is not for you"]
    assert told[2].startswith("from now on you can call:\n- diary_add: Plan something.")
    assert offered[0] == offered[2] == ["diary_read", "module_tools"]
    assert offered[3] == ["diary_read", "diary_add", "module_tools"]


async def test_a_butler_is_told_of_a_module_that_is_absent() -> None:
    turn = a_turn(MINE | {"modules": ["broken", "diary"]}, "what is on Monday?")
    async with ScriptedLlm([Reply(text="Nothing.")]) as llm, an_engine(llm, turn) as engine:
        result = await engine.run(turn, MemoryJournal())
        said, offered = str(llm.requests[0].body["messages"]), offered_in(llm)
    assert isinstance(result, Answer)
    assert "Not available at present: broken." in said
    assert offered == [["diary_read", "module_tools"]]
    assert result.warning.startswith(
        "broken: the module broken (broken_module:MANIFEST) cannot be loaded: it wanted to"
    )

"""Which models the butlers that plan may ask, and which mistakes in their options are named."""

from __future__ import annotations

from typing import Any, Final

import pytest

from switchboard.agents.trio.engine import TrioEngine
from switchboard.app.models.model_tests import ModelTestPlace, butlers_at
from switchboard.app.models.process import butlers_of
from switchboard.app.settings import Settings
from switchboard.domain.routing import Member
from switchboard.ports.engine import EngineContext, EngineFailure
from tests.asking import spec
from tests.engines import Book
from tests.routing import butler, team_of
from tests.turning import Asked, NoMemos, Noting

NAMES: Final = ("small", "middle", "large")


def planner(**options: Any) -> Member:
    return butler("clerk", "trio", **options)


def settings(**trio: str) -> Settings:
    models = [{"name": name, "kind": "openai", "model": name, "base_url": "http://127.0.0.1:1/v1"} for name in NAMES]
    return Settings(models=models, trio=trio)


@pytest.mark.parametrize(
    ("trio", "options", "used"),
    [
        ({}, {}, ["small"]),
        ({"specialist": "large"}, {}, ["large"]),
        ({"main": "small", "router": "middle", "specialist": "large"}, {}, ["small", "middle", "large"]),
        ({"main": "small", "specialist": "large"}, {"main": "middle"}, ["middle", "large"]),
    ],
)
def test_models_that_play_a_role_are_used(trio: dict[str, str], options: dict[str, str], used: list[str]) -> None:
    found = butlers_of([planner(**options)], settings(**trio))
    assert [name for name in NAMES if found[name] == ["System1/clerk"]] == used
    assert not [name for name in NAMES if found[name] and name not in used]


async def test_a_model_that_plans_need_not_call_tools_of_itself() -> None:
    team = team_of(planner(), butler("writer", "model", models=["large"]))
    found = await butlers_at(settings(), ModelTestPlace("", None, "there is none"), [team])
    assert found == {"small": [], "middle": [], "large": ["System1/writer"]}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"own": ["loook"]}, "own: there is no tool loook; there are: look"),
        ({"builds": {"tool": "mke", "build": {}, "test": {}}}, "builds: there is no tool mke; there are: look"),
        ({"grants": {"others": ["loook"]}}, "grants: there is no tool loook; there are: look"),
        ({"approve": ["loook"]}, "approve: there is no tool loook; there are: look"),
        ({"rooter": "large"}, "rooter: unknown option; did you mean router?"),
        ({"plan": {"max_round": 2}}, "plan.max_round: unknown option; did you mean max_rounds?"),
        ({"plan": {"fee": 2}}, "plan.fee: unknown option; there are: steps, at_once, max_rounds"),
    ],
)
async def test_what_an_option_names_must_be_there(options: dict[str, Any], told: str) -> None:
    models = Asked([spec("openai", "http://127.0.0.1:1", "m")])
    engine = TrioEngine(EngineContext(NoMemos(), Book(), models=models), [Noting("look")])
    try:
        engine.check(planner(own=["look"]))
        with pytest.raises(EngineFailure) as wrong:
            engine.check(planner(**options))
    finally:
        await models.aclose()
    assert told in str(wrong.value)

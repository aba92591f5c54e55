"""A short chaos run where a model decides, with all that the long one has: `make chaos WHAT=model` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.model_books import reason_of
from tests.chaos.model_run import ModelPlan, run


@pytest.mark.slow
async def test_failing_models_and_dying_workers_lose_double_and_reorder_nothing(place: Path) -> None:
    report = await run(ModelPlan(messages=90, conversations=15, seconds=4, seed=7), place)
    assert report.clean, report
    assert report.accepted == 90
    assert report.delivered > 60
    assert report.failed > 10, "the models have failed often enough to show something"


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("api: unavailable: status 500: x; cli: timeout: claude-code was not done in time, and was killed", "timeout"),
        (
            "api: budget: 900 tokens more; cli: unavailable: Switchboard's MCP server cannot be reached: x",
            "budget used up",
        ),
        ("given up after 4 attempts", "workers died"),
        ("there is no candidate 'ghost'; there are: System1/b0", "no such butler"),
        ("the session ended (stop) without a call of route_to_butler", "no call"),
        ("what nobody has seen", "other (what nobody has seen)"),
    ],
)
def test_a_reason_is_told_in_two_words(reason: str, told: str) -> None:
    assert reason_of(reason) == told

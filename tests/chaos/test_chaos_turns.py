"""A short chaos run of turns, with all that the long one has: `make chaos WHAT=turns` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.turns_run import TurnsPlan, run


@pytest.mark.chaos
async def test_turns_whose_models_and_tools_fail_and_whose_workers_die_all_end(place: Path) -> None:
    report = await run(TurnsPlan(turns=36, seconds=6, every=3, seed=7), place)
    assert report.clean, report
    assert report.accepted == 36
    assert report.kills > 0
    assert sum(report.answered.values()) > 22
    assert report.failed > 14, "enough has gone wrong to show something"

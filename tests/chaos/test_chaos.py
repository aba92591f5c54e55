"""A short chaos run, with everything that the long one has: `make chaos` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import Plan, run


@pytest.mark.slow
async def test_kills_a_crash_and_a_zombie_lose_double_and_reorder_nothing(place: Path) -> None:
    report = await run(Plan(messages=500, conversations=40, kills=4, seed=7), place)
    assert report.clean, report
    assert report.answered == 500

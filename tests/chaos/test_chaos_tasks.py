"""A short chaos run of tasks, with all that the long one has: `make chaos WHAT=tasks` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.tasks_run import TasksPlan, run


@pytest.mark.chaos
async def test_tasks_are_carried_out_once_while_workers_die(place: Path) -> None:
    report = await run(TasksPlan(tasks=60, seconds=9, every=2, seed=7), place)
    assert report.clean, report
    assert report.kills > 2

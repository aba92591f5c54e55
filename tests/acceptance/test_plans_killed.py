"""Workers are killed in the middle of plans, at named points, and stand still: nothing that is done is done again.

The wide form is `make chaos WHAT=plans`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Final

import pytest

from switchboard.lanes.faults import Point
from switchboard.testing.scripted_llm import ScriptedLlm
from tests.chaos.books import read_traces
from tests.chaos.plans_node import RULES, TEAM, brain, message
from tests.chaos.plans_run import EARLY, NODE, judge
from tests.forked import Forked, Forks
from tests.lab import Lab, lab, submission
from tests.waiting import eventually

pytestmark = pytest.mark.slow

PLANS: Final = 2
"""That begin with each life: those before may have come to their end."""
POINTS: Final[tuple[tuple[Point, int, str], ...]] = (
    ("before_journal", 2, "plan:route"),
    ("before_step", 5, "s"),
    ("before_journal", 4, "s"),
    ("between_steps", 6, "s"),
    ("before_complete", 2, ""),
)
"""In planning; before, after and behind steps of several plans at once; at the end of one."""


class Life:
    """A worker process in `directory`."""

    def __init__(self, forks: Forks, url: str, llm: ScriptedLlm, directory: Path) -> None:
        self._forks, self._words, self._directory = forks, (url, llm.url, str(directory)), directory

    def begin(self, crash_at: str = "", mode: str = "last") -> Forked:
        env, errors = os.environ | {"SWITCHBOARD_CRASH_AT": crash_at}, self._directory / "errors"
        return self._forks.start(NODE, *self._words, mode, env=env, errors=errors)

    async def end(self, process: Forked) -> int:
        try:
            return await process.wait(100)
        finally:
            process.kill()


async def fill(parts: Lab, numbers: range, least: int = 5, most: int = 8) -> None:
    texts = [(n, message(n, least, most)) for n in numbers]
    given = [submission(text, channel="api", sender=f"s{n}", event=f"e{n}") for n, text in texts]
    await parts.accept.accept_all(given)


async def test_plans_that_are_killed_at_every_point_go_on_where_they_were(
    database_url: str, forks: Forks, tmp_path: Path
) -> None:
    async with lab(database_url, [TEAM], RULES) as parts, ScriptedLlm(brain) as llm:
        life, kills = Life(forks, database_url, llm, tmp_path), 0
        for number, (point, nth, path) in enumerate(POINTS):
            await fill(parts, range(number * PLANS, (number + 1) * PLANS))
            kills += await life.end(life.begin(f"{point}:{nth}:{path}")) == -signal.SIGKILL
            assert await parts.count(EARLY) == 0
        assert await life.end(life.begin()) == 0, (tmp_path / "errors").read_text()[-3000:]
        report = await judge(parts.database, read_traces([tmp_path / "trace"]), kills)
    assert report.clean, report
    assert (report.plans, report.kills) == (PLANS * len(POINTS), len(POINTS))


async def test_a_worker_that_stood_still_finds_its_steps_taken_and_acts_no_more(
    database_url: str, forks: Forks, tmp_path: Path
) -> None:
    async with lab(database_url, [TEAM], RULES) as parts, ScriptedLlm(brain) as llm:
        life = Life(forks, database_url, llm, tmp_path)
        still = life.begin(mode="brief")
        try:
            await eventually(lambda: _traced(tmp_path, "ready", 1))
            [[_, pid]] = read_traces([tmp_path / "trace"])
            await fill(parts, range(8), 20, 24)
            await eventually(lambda: _stands_still(int(pid)))
            assert await parts.count("select count(*) from step where state = 'started'") > 4
            assert await life.end(life.begin()) == 0, (tmp_path / "errors").read_text()[-3000:]
            taken_over, steps = len(read_traces([tmp_path / "trace"])), await parts.database.rows(STEPS)
            os.kill(int(pid), signal.SIGCONT)
            await eventually(lambda: parts.count("select count(*) from process where role = 'worker'"))
            trace = read_traces([tmp_path / "trace"])
            assert await parts.database.rows(STEPS) == steps, "nothing that it had in flight counts"
            report = await judge(parts.database, trace[:taken_over], 0)
        finally:
            still.kill()
    assert [line for line in trace[taken_over:] if line[0] in {"pay", "ask"}] == [], "it begins no effect"
    assert report.clean, report


STEPS: Final = "select path, state, ended_at, epoch from step order by lane, seq, path"


async def _stands_still(pid: int) -> bool:
    stat = await asyncio.to_thread(Path(f"/proc/{pid}/stat").read_text)
    return stat.rpartition(")")[2].split()[0] == "T"


async def _traced(directory: Path, word: str, least: int) -> bool:
    return sum(line[0] == word for line in read_traces([directory / "trace"])) >= least

"""A worker is killed at every point of a consolidation: the fact is there once, and the model is not asked for long.

The workers are real `switchboard work` processes, so that this also shows that they consolidate by themselves.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import pytest

from switchboard.store.memory import consolidation, facts
from switchboard.testing.scripted_llm import Reply, Request, ScriptedLlm
from tests.acceptance.test_remembering_killed import a_worker
from tests.forked import Forks
from tests.hands import a_hand
from tests.integration.test_compaction import ANSWER, FIG, talk
from tests.lab import Lab, lab
from tests.waiting import eventually

pytestmark = pytest.mark.slow

DUE: Final = "update schedule set next_at = clock_timestamp() where name = 'consolidate'"


def brain(_: Request) -> Reply:
    return Reply(ANSWER)


async def done(parts: Lab) -> bool:
    found = await consolidation.list_runs(parts.database, None, None, 9)
    return bool(found) and found[0].outcome == "kept"


@pytest.mark.parametrize(
    ("point", "asked", "kept"),
    [("before_consolidation_model", 1, 0), ("before_consolidation", 2, 0), ("after_consolidation", 1, 1)],
)
async def test_a_killed_consolidation_is_all_or_nothing_and_made_once(
    point: str, asked: int, kept: int, database_url: str, forks: Forks, tmp_path: Path
) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand, ScriptedLlm(brain) as llm:
        await talk(parts, hand, 10)
        async with a_worker(forks, database_url, tmp_path, llm, point) as worker:
            await worker.wait(60)
        assert worker.returncode == -signal.SIGKILL
        assert len(await facts.list_facts(parts.database, None, None, None, 9)) == kept
        # What five minutes do: until then what was begun is another process's.
        await parts.database.run("update consolidation set ready_at = clock_timestamp()")
        await parts.database.run(DUE)
        async with a_worker(forks, database_url, tmp_path, llm, ""):
            await eventually(lambda: done(parts), within=60)
        assert [one.text for one in await facts.list_facts(parts.database, None, None, None, 9)] == [FIG]
        assert await parts.count("select count(*) from fact_source") == 1
        assert len(llm.requests) == asked

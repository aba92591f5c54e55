"""A worker is killed at every point of a turn that has something remembered: the fact is there once, with the turn.

The workers are real `switchboard work` processes, so that this also shows that a butler is given the tools by default.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from switchboard.store.memory import facts
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm
from tests.forked import Forked, Forks
from tests.hands import assert_balanced, settled
from tests.lab import butler, lab, submission, team_of
from tests.processes import environment
from tests.waiting import eventually

pytestmark = pytest.mark.slow

FACT: Final = "I am allergic to hazelnuts"
TEAM: Final = team_of(butler("clerk", "model"))


def brain(request: Request) -> Reply:
    if "May I" in request.messages[-1].text:
        return Reply(f"No: {FACT in request.messages[-1].text}")
    return Reply("Noted.") if request.results else Reply(calls=(Call("remember", {"quote": FACT}),))


@asynccontextmanager
async def a_worker(forks: Forks, database: str, place: Path, llm: ScriptedLlm, crash_at: str) -> AsyncIterator[Forked]:
    """`switchboard work` with this model; killed at the end, if it still runs."""
    lines = [f'database_url = "{database}"', "[[models]]", 'name = "m"', 'kind = "openai"', 'model = "m"']
    (place / "switchboard.toml").write_text("\n".join([*lines, f'base_url = "{llm.url}/v1"']))
    env = environment(place / "data", CRASH_AT=crash_at)
    process = forks.start("switchboard.cli.main", "work", env=env, errors=place / "errors", cwd=place)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize(
    ("point", "kept"),
    [("before_journal:1:tool:", 0), ("between_steps:1:tool:", 0), ("before_complete:1", 0), ("after_complete:1", 1)],
)
async def test_what_is_remembered_is_there_with_the_turn_and_once(
    point: str, kept: int, database_url: str, forks: Forks, tmp_path: Path
) -> None:
    async with lab(database_url, [TEAM], []) as parts, ScriptedLlm(brain) as llm:
        message = {"channel": "api", "sender": "ann", "pinned": "System1/clerk"}
        await parts.accept.accept(submission(f"Remember that {FACT}.", **message))
        async with a_worker(forks, database_url, tmp_path, llm, point) as worker:
            await worker.wait(60)
        assert worker.returncode == -signal.SIGKILL
        assert len(await facts.list_facts(parts.database, None, None, None, 9)) == kept
        assert await parts.count("select count(*) from entry") == 2 * kept
        await parts.accept.accept(submission("May I eat this?", **message, thread="another"))
        async with a_worker(forks, database_url, tmp_path, llm, ""):
            await eventually(lambda: settled(parts), within=60)
        [fact] = await facts.list_facts(parts.database, None, None, None, 9)
        assert (fact.text, fact.space) == (FACT, "private:api/bot%3Ahouse/ann")
        assert await parts.count("select count(*) from entry") == 4
        await assert_balanced(parts)
        await parts.accept.accept(submission("May I eat that?", **message, thread="third"))
        async with a_worker(forks, database_url, tmp_path, llm, ""):
            await eventually(lambda: settled(parts), within=60)
        assert await parts.count("select count(*) from outbox where text = 'No: True'") >= 1

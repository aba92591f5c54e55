"""Kill the process at every named point, restart it twice: nothing silently lost, no answered turn run again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from switchboard.lanes.faults import Point
from switchboard.store.database import Database
from tests.chaos.books import judge, read_traces
from tests.chaos.node import STEPS

MESSAGES = 12
CONVERSATIONS = 4


async def _run(url: str, trace: Path, crash_at: str | None) -> int:
    """Run the whole journey of all messages in one process; returns its exit code."""
    environment = {k: v for k, v in os.environ.items() if k != "SWITCHBOARD_CRASH_AT"}
    if crash_at:
        environment["SWITCHBOARD_CRASH_AT"] = crash_at
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.chaos.node", url, str(trace), "all", str(MESSAGES), str(CONVERSATIONS)),
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode in (0, -signal.SIGKILL), errors.decode()
    return process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 5])
@pytest.mark.parametrize("point", get_args(Point))
async def test_a_crash_at_this_point_loses_nothing_and_answers_nothing_twice(
    database_url: str, tmp_path: Path, point: Point, nth: int
) -> None:
    traces = [tmp_path / f"trace-{n}" for n in range(3)]
    assert await _run(database_url, traces[0], f"{point}:{nth}") == -signal.SIGKILL
    await _run(database_url, traces[1], f"{point}:{nth}")
    assert await _run(database_url, traces[2], None) == 0

    lines = read_traces(traces)
    database = await Database.connect(database_url)
    try:
        verdict = await judge(database, MESSAGES, lines)
        unsent = await database.value("select count(*) from outbox where state <> 'sent'")
        unsettled = await database.value("select count(*) from delivery where state <> 'answered'")
    finally:
        await database.close()
    assert verdict.clean, verdict
    assert (unsent, unsettled) == (0, 0)
    assert verdict.repeated_steps <= 2 * STEPS * CONVERSATIONS
    assert _acknowledgements_never_change(lines)


def _acknowledgements_never_change(lines: list[list[str]]) -> bool:
    """Whoever was told an id is told the same id again, in every later life of the process."""
    ids = {(line[1], line[2]) for line in lines if line[0] == "ack"}
    return max(Counter(event for event, _ in ids).values()) == 1

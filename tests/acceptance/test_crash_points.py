"""Kill the process at every named point, restart it twice: nothing silently lost, no answered turn run again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Final, get_args

import pytest

from switchboard.lanes.faults import Point
from switchboard.store.books import audit_books
from switchboard.store.database import Database
from tests.chaos.books import DISORDER, judge, read_traces
from tests.chaos.node import STEPS

MESSAGES = 12
CONVERSATIONS = 4
HISTORIES: Final = """
select (select array_agg(e.text order by e.position) from entry e where e.lane = d.lane) as said,
       array_agg(x.text order by d.seq, x.n) as expected,
       (select max(e.position) from entry e where e.lane = d.lane) as last
from delivery d
join message_inbox m using (request_id)
join outbox o using (request_id)
cross join lateral (values (1, m.envelope #>> '{payload,normalized_text}'), (2, o.text)) as x (n, text)
group by d.lane"""
"""Per conversation: what is on record as said, what messages and replies say, and the position of the last entry."""
ROUTE_POINTS: Final[tuple[Point, ...]] = ("before_route", "after_route")
WAIT_POINTS: Final[tuple[Point, ...]] = ("after_expect", "before_park", "after_park", "after_resume", "after_wake")


async def _run(url: str, trace: Path, mode: str, crash_at: str | None) -> int:
    """Run the whole journey of all messages in one process; returns its exit code."""
    environment = {k: v for k, v in os.environ.items() if k != "SWITCHBOARD_CRASH_AT"}
    if crash_at:
        environment["SWITCHBOARD_CRASH_AT"] = crash_at
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.chaos.node", url, str(trace), mode, str(MESSAGES), str(CONVERSATIONS)),
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode in (0, -signal.SIGKILL), errors.decode()
    return process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 5])
@pytest.mark.parametrize("point", [one for one in get_args(Point) if one not in ROUTE_POINTS + WAIT_POINTS])
async def test_a_crash_at_this_point_loses_nothing_and_answers_nothing_twice(
    database_url: str, tmp_path: Path, point: Point, nth: int
) -> None:
    traces = [tmp_path / f"trace-{n}" for n in range(3)]
    assert await _run(database_url, traces[0], "all", f"{point}:{nth}") == -signal.SIGKILL
    await _run(database_url, traces[1], "all", f"{point}:{nth}")
    assert await _run(database_url, traces[2], "all", None) == 0

    lines = read_traces(traces)
    database = await Database.connect(database_url)
    try:
        report = await judge(database, MESSAGES, lines)
        unsent = await database.value("select count(*) from outbox where state <> 'sent'")
        unsettled = await database.value("select count(*) from delivery where state <> 'answered'")
        histories = await database.rows(HISTORIES)
    finally:
        await database.close()
    assert report.clean, report
    assert (unsent, unsettled) == (0, 0)
    assert [row for row in histories if row["said"] != row["expected"] or row["last"] != len(row["said"])] == []
    assert report.repeated_steps <= 2 * STEPS * CONVERSATIONS
    assert _acknowledgements_never_change(lines)


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 5])
@pytest.mark.parametrize(
    "point", [*ROUTE_POINTS, "after_claim", "before_commit", "after_commit", "before_journal", "between_steps"]
)
async def test_a_crash_while_messages_are_classified_decides_each_once_and_in_order(
    database_url: str, tmp_path: Path, point: Point, nth: int
) -> None:
    traces = [tmp_path / f"trace-{n}" for n in range(3)]
    assert await _run(database_url, traces[0], "classify-all", f"{point}:{nth}") == -signal.SIGKILL
    await _run(database_url, traces[1], "classify-all", f"{point}:{nth}")
    assert await _run(database_url, traces[2], "classify-all", None) == 0

    lines = read_traces(traces)
    database = await Database.connect(database_url)
    try:
        books = await audit_books(database)
        disorder = await database.value(DISORDER)
        answered = await database.value("select count(*) from delivery where state = 'answered'")
        decisions = await database.value("select count(*) from decision")
    finally:
        await database.close()
    assert (books.balanced, books.problems) == (True, ())
    assert (answered, decisions, disorder) == (MESSAGES, MESSAGES, 0)
    assert _acknowledgements_never_change(lines)


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", [*WAIT_POINTS, "after_claim", "between_steps", "before_complete", "after_complete"])
async def test_a_crash_while_items_wait_loses_no_decision_and_decides_nothing_twice(
    database_url: str, tmp_path: Path, point: Point, nth: int
) -> None:
    traces = [tmp_path / f"trace-{n}" for n in range(3)]
    assert await _run(database_url, traces[0], "wait-all", f"{point}:{nth}") == -signal.SIGKILL
    await _run(database_url, traces[1], "wait-all", f"{point}:{nth}")
    assert await _run(database_url, traces[2], "wait-all", None) == 0

    database = await Database.connect(database_url)
    try:
        books = await audit_books(database)
        rows = await database.rows("select lane, text from outbox order by lane, seq")
        parked = await database.value("select (select count(*) from parked) + (select sum(parked) from lane)")
    finally:
        await database.close()
    assert (books.balanced, books.problems, parked) == (True, (), 0)
    waited = {n: "decided" if n % 2 else "expired" for n in range(0, MESSAGES, 3)}
    assert sorted(row["text"] for row in rows) == sorted(
        f"{n} {waited[n]}" if n in waited else str(n) for n in range(MESSAGES)
    )
    for lane in {row["lane"] for row in rows}:
        numbers = [int(row["text"]) for row in rows if row["lane"] == lane and row["text"].isdigit()]
        assert numbers == sorted(numbers), "what does not wait keeps its order"
    assert _acknowledgements_never_change(read_traces(traces))


def _acknowledgements_never_change(lines: list[list[str]]) -> bool:
    """A sender that was given an id gets the same id again, in every later life of the process."""
    ids = {(line[1], line[2]) for line in lines if line[0] == "ack"}
    return max(Counter(event for event, _ in ids).values()) == 1

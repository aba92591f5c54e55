"""Kill the process at every named point, restart it twice: nothing silently lost, no answered turn run again."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

import pytest

from switchboard.lanes.faults import Point
from switchboard.store.books import audit_books
from switchboard.store.database import Database
from tests.chaos.books import DISORDER, judge, read_traces
from tests.chaos.node import STEPS
from tests.forked import Forks

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
COMPACTION_POINTS: Final[tuple[Point, ...]] = ("before_summary", "before_compaction", "after_compaction")
CONSOLIDATION_POINTS: Final = ("before_consolidation_model", "before_consolidation", "after_consolidation")
"""Passed by `test_consolidation_killed.py`."""
CONNECTOR_POINTS: Final = tuple(one for one in get_args(Point) if one.startswith("connector_"))
RARE_POINTS: Final = tuple(
    one
    for one in get_args(Point)
    if one.startswith(("backup_", "restore_", "notice_", "migration_", "trial_", "rollback_"))
)
ERASURE_POINTS: Final = ("erasure_begun", "files_ordered", "erased_batch", "erased_kind", "erased_on_disk")
"""Passed by `test_erasing_killed.py`."""
SETUP_POINTS: Final = ("setup_staged", "setup_published", "setup_recorded", "restart_drained")
"""Passed by `integration/web/test_first_run.py`."""
MAIL_POINTS: Final = tuple(one for one in get_args(Point) if one.startswith("mail_"))
"""Passed by `test_mails_killed.py`."""
VOICE_POINTS: Final = ("before_transcript", "after_transcript")
"""Passed by `integration/test_voice.py`."""
ELSEWHERE: Final = (
    *(*ROUTE_POINTS, *WAIT_POINTS, *COMPACTION_POINTS, *CONSOLIDATION_POINTS, *CONNECTOR_POINTS),
    *(*RARE_POINTS, *ERASURE_POINTS, *MAIL_POINTS, *VOICE_POINTS, *SETUP_POINTS),
)


@dataclass(frozen=True, slots=True)
class Lives:
    """One life after the other, each the whole journey of all messages in one process."""

    forks: Forks
    url: str
    traces: Sequence[Path]
    mode: str

    async def crash_twice_and_end(self, crash_at: str) -> list[list[str]]:
        """Killed at this point, in the second life too if it comes there again; then to the end. What they traced."""
        assert await self._run(0, crash_at) == -signal.SIGKILL
        await self._run(1, crash_at)
        assert await self._run(2) == 0
        return read_traces(self.traces)

    async def _run(self, nth: int, crash_at: str = "") -> int:
        words = (self.url, str(self.traces[nth]), self.mode, str(MESSAGES), str(CONVERSATIONS))
        environment = os.environ | {"SWITCHBOARD_CRASH_AT": crash_at}
        errors = self.traces[nth].with_suffix(".errors")
        process = self.forks.start("tests.chaos.node", *words, env=environment, errors=errors)
        try:
            code = await process.wait(60)
        finally:
            process.kill()
        assert code in (0, -signal.SIGKILL), errors.read_text()
        return code


@pytest.fixture
def lives(forks: Forks, database_url: str, tmp_path: Path) -> Callable[[str], Lives]:
    """Lives of a mode of `tests.chaos.node`."""
    traces = [tmp_path / f"trace-{n}" for n in range(3)]
    return lambda mode: Lives(forks, database_url, traces, mode)


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 5])
@pytest.mark.parametrize("point", [one for one in get_args(Point) if one not in ELSEWHERE])
async def test_a_crash_at_this_point_loses_nothing_and_answers_nothing_twice(
    database_url: str, lives: Callable[[str], Lives], point: Point, nth: int
) -> None:
    lines = await lives("all").crash_twice_and_end(f"{point}:{nth}")
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
async def test_a_crash_during_classification_decides_each_message_once_in_order(
    database_url: str, lives: Callable[[str], Lives], point: Point, nth: int
) -> None:
    lines = await lives("classify-all").crash_twice_and_end(f"{point}:{nth}")
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
async def test_a_crash_while_items_wait_loses_no_decision_and_repeats_none(
    database_url: str, lives: Callable[[str], Lives], point: Point, nth: int
) -> None:
    lines = await lives("wait-all").crash_twice_and_end(f"{point}:{nth}")
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
    assert _acknowledgements_never_change(lines)


def _acknowledgements_never_change(lines: list[list[str]]) -> bool:
    """A sender that was given an id gets the same id again, in every later life of the process."""
    ids = {(line[1], line[2]) for line in lines if line[0] == "ack"}
    return max(Counter(event for event, _ in ids).values()) == 1

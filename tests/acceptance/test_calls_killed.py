"""Calls of tools outside turns, while workers and the server are killed: one answer each, and no effect twice."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path
from typing import Final, cast

import pytest

from switchboard.store.books import audit_books
from switchboard.store.database import Database
from tests.acceptance.calling import By, CallHouse, Hold, call_house
from tests.forked import Forks

pytestmark = pytest.mark.slow

TOOLS: Final = ("purse_set", "purse_pay", "purse_give")
"""Idempotent, queryable and effectful."""
Expected = tuple[int, int, int]


async def assert_balanced_answers(database_url: str, calls: int) -> None:
    """There are so many calls, each with one answer, and nothing is open."""
    database = await Database.connect(database_url, size=1)
    try:
        books = await audit_books(database)
        rows = await database.rows(
            "select (select count(*) from outbox o where o.request_id = m.request_id) as replies from message_inbox m"
        )
    finally:
        await database.close()
    assert (books.balanced, books.problems) == (True, ())
    assert [row["replies"] for row in rows] == [1] * calls


@pytest.mark.parametrize(
    ("point", "called", "effects"),
    [
        ("after_claim:1", (1, 1, 1), (1, 1, 1)),
        ("before_step:1:start", (1, 1, 1), (1, 1, 1)),
        ("before_step:1:tool:", (1, 1, 0), (1, 1, 0)),
        ("hold:before", (2, 2, 1), (1, 1, 0)),
        ("hold:after", (2, 2, 1), (1, 1, 1)),
        ("before_journal:1:tool:", (2, 2, 1), (1, 1, 1)),
        ("before_complete:1", (1, 1, 1), (1, 1, 1)),
        ("after_complete:1", (1, 1, 1), (1, 1, 1)),
    ],
)
async def test_a_call_whose_worker_is_killed_ends_once(
    forks: Forks, database_url: str, tmp_path: Path, point: str, called: Expected, effects: Expected
) -> None:
    """`called`, `effects`: how often each tool was called, and took effect."""
    _, _, where = point.partition("hold:")
    async with call_house(forks, database_url, tmp_path) as house:
        await house.serve()
        answers = []
        for n, tool in enumerate(TOOLS, 1):
            calling = asyncio.create_task(house.call(tool, tool))
            if where:
                house.hold(cast(Hold, where))
            worker = house.work("" if where else point)
            if where:
                await house.until_held(n)
                worker.kill()
            assert await worker.wait(60) == -signal.SIGKILL
            if where:
                house.release()
            later = house.work()
            answers.append(await calling)
            later.kill()
            await later.wait()
        house.work()
        assert [await house.call(tool, tool) for tool in TOOLS] == answers, "with the same key, it is the same call"
        await assert_balanced_answers(database_url, len(TOOLS))
        for noted, expected in (("called", called), ("effects", effects)):
            counts = Counter(line.split()[0] for line in house.lines(noted))
            assert tuple(counts[tool] for tool in TOOLS) == expected, noted
        certain = ("done", "done", "done" if is_known(point) else "failed")
        assert tuple(one["state"] for one in answers) == certain
        texts = [f"{tool}: done" for tool in TOOLS]
        assert [one["text"] for one in answers[:2]] == texts[:2]
        assert answers[2]["text"].startswith(texts[2] if is_known(point) else "outcome unknown")


def is_known(point: str) -> bool:
    """Whether it is known, after a kill there, that the call had no effect, or which one it had."""
    return point not in {"before_step:1:tool:", "before_journal:1:tool:", "hold:before", "hold:after"}


@pytest.mark.parametrize("by", ["http", "mcp", "cli"])
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("worker_too", [False, True])
async def test_a_caller_whose_server_is_killed_asks_again_and_has_one_answer(
    forks: Forks, database_url: str, tmp_path: Path, by: By, where: Hold, worker_too: bool
) -> None:
    async with call_house(forks, database_url, tmp_path) as house:
        server, worker = await house.serve(), house.work()
        token = await house.token_for_ann()
        for n, tool in enumerate(TOOLS, 1):
            house.hold(where)
            calling = asyncio.create_task(house.call(tool, tool, by, token))
            await house.until_held(n)
            for process in (server, worker) if worker_too else (server,):
                process.kill()
                await process.wait(60)
            [ended] = await asyncio.gather(calling, return_exceptions=True)
            print(by, repr(ended))
            house.release()
            server, worker = await house.serve(), house.work() if worker_too else worker
            first = await house.call(tool, tool, by, token)
            known = tool != "purse_give" or not worker_too
            assert first["text"].startswith(f"{tool}: done" if known else "outcome unknown")
            assert first["state"] == ("done" if known else "failed")
            assert await house.call(tool, tool, by, token) == first
        await assert_balanced_answers(database_url, len(TOOLS))
        effects = Counter(line.split()[0] for line in house.lines("effects"))
        assert tuple(effects[tool] for tool in TOOLS) == (1, 1, 0 if worker_too and where == "before" else 1)

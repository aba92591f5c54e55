"""Calls of tools outside turns, while workers and the server are killed: one answer each, and no effect twice."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import asyncpg
import httpx2
import pytest

from switchboard.store.books import audit_books
from switchboard.store.database import Database
from tests.acceptance.calling import By, Hold, call_house
from tests.forked import Forks
from tests.waiting import eventually
from tests.width import pairs

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
            await house.end(later)
        assert [await house.call(tool, tool) for tool in TOOLS] == answers, "with the same key, it is the same call"
        await assert_balanced_answers(database_url, len(TOOLS))
        for noted, expected in (("called", called), ("effects", effects)):
            counts = Counter(line.split()[0] for line in house.lines(noted))
            assert tuple(counts[tool] for tool in TOOLS) == expected, noted
        assert_as_expected(answers, known=is_known(point))


async def is_told(calling: asyncio.Task[dict[str, Any]]) -> bool:
    """Whether the caller hears that the server has ended."""
    told = False
    try:
        told = (await calling)["error"]["code"] == "connection"
    except* httpx2.TransportError:
        told = True
    return told


def is_known(point: str) -> bool:
    """Whether it is known, after a kill there, that the call had no effect, or which one it had."""
    return point not in {"before_step:1:tool:", "before_journal:1:tool:", "hold:before", "hold:after"}


def assert_as_expected(answers: Sequence[Mapping[str, Any]], *, known: bool) -> None:
    """Of each tool one; the effectful one could not tell unless it is `known`."""
    assert [one["state"] for one in answers] == ["done", "done", "done" if known else "failed"]
    expected = [f"{tool}: done" for tool in TOOLS[:2]] + [f"{TOOLS[2]}: done" if known else "outcome unknown"]
    assert all(one["text"].startswith(text) for one, text in zip(answers, expected, strict=True)), answers


KILLS: Final[Sequence[tuple[Hold, bool]]] = [("before", False), ("after", False), ("before", True), ("after", True)]
"""Where a tool is held when the server is killed, and whether the worker is killed, too."""
CALLERS: Final[Sequence[By]] = ["http", "mcp", "cli"]


@pytest.mark.parametrize(("by", "kill"), pairs(CALLERS, KILLS))
async def test_a_caller_whose_server_is_killed_asks_again_and_has_one_answer(
    forks: Forks, database_url: str, tmp_path: Path, by: By, kill: tuple[Hold, bool]
) -> None:
    where, worker_too = kill
    async with call_house(forks, database_url, tmp_path) as house:
        server, worker = await house.serve(), house.work()
        token = await house.token_for_ann()
        answers = []
        for n, tool in enumerate(TOOLS, 1):
            house.hold(where)
            calling = asyncio.create_task(house.call(tool, tool, by, token))
            await house.until_held(n)
            for process in (server, worker) if worker_too else (server,):
                await house.end(process)
            assert await is_told(calling)
            house.release()
            server, worker = await house.serve(), house.work() if worker_too else worker
            answers.append(await house.call(tool, tool, by, token))
            assert await house.call(tool, tool, by, token) == answers[-1]
        assert_as_expected(answers, known=not worker_too)
        await assert_balanced_answers(database_url, len(TOOLS))
        effects = Counter(line.split()[0] for line in house.lines("effects"))
        assert tuple(effects[tool] for tool in TOOLS) == (1, 1, 0 if worker_too and where == "before" else 1)


@pytest.mark.parametrize(
    ("asking", "doing"),
    [
        ("after_expect:1", "before_step:1:tool:"),
        ("before_park:1", "before_journal:1:tool:"),
        ("after_park:1", "before_complete:1"),
    ],
)
async def test_a_call_that_people_approve_is_made_once(
    forks: Forks, database_url: str, tmp_path: Path, asking: str, doing: str
) -> None:
    """`asking`: where the first worker dies, before people have decided; `doing`: where the next dies, after it."""
    async with call_house(forks, database_url, tmp_path, approve=TOOLS) as house:
        await house.serve()
        answers = []
        for tool in TOOLS:
            calling = asyncio.create_task(house.call(tool, tool))
            assert await house.work(asking).wait(60) == -signal.SIGKILL
            worker = house.work()
            pending = await calling
            assert (pending["state"], pending["text"]) == ("pending", "")
            await house.end(worker)
            assert await house.call(tool, tool) == pending
            await house.post(f"/v1/approvals/{pending['approval_id']}/approve", {})
            assert await house.work(doing).wait(60) == -signal.SIGKILL
            worker = house.work()
            answers.append(await house.call(tool, tool))
            await house.end(worker)
            assert answers[-1]["call_id"] == pending["call_id"]
        assert_as_expected(answers, known=is_known(doing))
        effects = Counter(line.split()[0] for line in house.lines("effects"))
        assert tuple(effects[tool] for tool in TOOLS) == (1, 1, 0 if doing.startswith("before_step") else 1)
        await assert_balanced_answers(database_url, len(TOOLS))


async def test_a_server_killed_while_it_stores_a_call_stores_all_or_nothing(
    forks: Forks, database_url: str, tmp_path: Path
) -> None:
    """Its transaction waits for a lock that we hold until the server is dead."""
    async with call_house(forks, database_url, tmp_path) as house:
        server, _ = await house.serve(), house.work()
        holder = await asyncpg.connect(database_url, server_settings={"search_path": "switchboard"})

        async def is_waiting() -> bool:
            waiting = "select exists (select from pg_locks where not granted and database = (select oid from"
            return bool(await holder.fetchval(f"{waiting} pg_database where datname = current_database()))"))

        try:
            async with holder.transaction():
                await holder.execute("lock table message_inbox in exclusive mode")
                calling = asyncio.create_task(house.call("purse_give", "1"))
                await eventually(is_waiting)
                await house.end(server)
                assert await is_told(calling)
        finally:
            await holder.close()
        await house.serve()
        answer = await house.call("purse_give", "1")
        assert (answer["state"], await house.call("purse_give", "1")) == ("done", answer)
        assert len(house.lines("effects")) == 1
        await assert_balanced_answers(database_url, 1)

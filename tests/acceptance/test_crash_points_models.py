"""A worker that asks a real model server is killed at every point of the route leg, and once more: nothing is lost.

The workers are real `switchboard work` processes; the model counts what it is asked. One conversation, so that one
message is on its way at a time and every question is accounted for.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from switchboard.lanes.faults import Point
from switchboard.store.messages.inbox import Acceptance
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm
from tests.forked import Forked, Forks
from tests.hands import assert_balanced, settled
from tests.lab import Lab, butler, lab, submission, team_of
from tests.processes import environment
from tests.waiting import eventually

pytestmark = pytest.mark.slow

MESSAGES: Final = 6
TEAM: Final = team_of(butler("even"), butler("odd"), classify=True)


def brain(request: Request) -> Reply:
    """Even numbers to one, odd ones to the other."""
    return Reply(calls=(Call("route_to_butler", {"butler": ("even", "odd")[_number(request) % 2]}),))


def _number(request: Request) -> int:
    [number] = set(re.findall(r"number (\d+)", request.prompt))
    return int(number)


OpenWorker = Callable[..., AbstractAsyncContextManager[Forked]]


@pytest.fixture
def a_worker(forks: Forks, database_url: str, tmp_path: Path) -> OpenWorker:
    """Opens `switchboard work` on the database of the test, killed at the end."""
    return partial(_worker, forks, database_url, tmp_path)


@asynccontextmanager
async def _worker(
    forks: Forks, database: str, place: Path, llm: ScriptedLlm, crash_at: str = ""
) -> AsyncIterator[Forked]:
    """`switchboard work` with this model; killed at the end, if it still runs."""
    lines = [f'database_url = "{database}"', "[classify]", 'models = ["m"]']
    lines += ["[[models]]", 'name = "m"', 'kind = "openai"', 'model = "m"', f'base_url = "{llm.url}/v1"']
    (place / "switchboard.toml").write_text("\n".join(lines))
    env = environment(place / "data", CRASH_AT=crash_at)
    process = forks.start("switchboard.cli.main", "work", env=env, errors=place / "errors", cwd=place)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def fill(parts: Lab) -> None:
    """Numbered messages of one conversation."""
    given = [submission(f"number {n}", channel="api", sender="x", event=str(n)) for n in range(MESSAGES)]
    outcomes = await parts.accept.accept_all(given)
    assert all(isinstance(one, Acceptance) and one.waits for one in outcomes)


async def assert_all_is_well(parts: Lab) -> None:
    """Each is where it belongs, once, answered once, in order; nothing died, and the books balance."""
    rows = await parts.database.rows(
        "select d.system_id, m.envelope #>> '{payload,normalized_text}' as text, d.state, "
        "(select count(*) from outbox o where o.request_id = d.request_id) as replies "
        "from delivery d join message_inbox m using (request_id) order by d.system_id, d.seq"
    )
    came = [(row["system_id"], int(row["text"].split()[1])) for row in rows]
    wanted = [(f"System1/{name}", n) for name, first in (("even", 0), ("odd", 1)) for n in range(first, MESSAGES, 2)]
    assert came == wanted
    assert {(row["state"], row["replies"]) for row in rows} == {("answered", 1)}
    assert await parts.count("select count(*) from dead_letter") == 0
    assert await parts.count("select count(*) from decision") == MESSAGES
    await assert_balanced(parts)


def questions(llm: ScriptedLlm) -> Mapping[int, int]:
    """How often the model was asked of each message."""
    return Counter(_number(request) for request in llm.requests)


@pytest.mark.parametrize(
    ("point", "again"),
    [
        ("before_journal", 1),  # its answer is known to nobody: it must be asked again
        ("between_steps", 0),  # the journal has it, and nobody else
        ("before_route", 0),
        ("after_route", 0),
    ],
)
@pytest.mark.parametrize("nth", [1, 3])
async def test_a_model_is_not_asked_again_for_what_is_in_the_journal(
    database_url: str, a_worker: OpenWorker, point: Point, again: int, nth: int
) -> None:
    async with lab(database_url, [TEAM], [], classifying=True) as parts, ScriptedLlm(brain) as llm:
        await fill(parts)
        for _ in range(2):
            async with a_worker(llm, f"{point}:{nth}") as worker:
                await worker.wait(60)
            assert worker.returncode == -signal.SIGKILL
        async with a_worker(llm):
            await eventually(lambda: settled(parts), within=60)
        await assert_all_is_well(parts)
        asked = questions(llm)
        assert set(asked) == set(range(MESSAGES))
        assert sum(asked.values()) == MESSAGES + 2 * again
        assert await parts.count("select count(*) from routing where state = 'routed'") == MESSAGES


@pytest.mark.parametrize("committed", [True, False])
async def test_a_worker_killed_while_the_decision_is_being_stored(
    database_url: str, a_worker: OpenWorker, committed: bool
) -> None:
    """The transaction hangs at a lane that we hold. Its worker is killed; then it goes through, or is broken off."""
    async with lab(database_url, [TEAM], [], classifying=True) as parts, ScriptedLlm(brain) as llm:
        await fill(parts)
        holder = await asyncpg.connect(database_url, server_settings={"search_path": "switchboard"})
        # A lane that the decision touches: it is there already, and ours for now.
        of_it = "from routing join lane on key = lane limit 1"
        lane = await parts.database.value(f"select lane_key('turn', 'System1/even', conversation) {of_it}")
        made = "insert into lane (key, kind, system_id, conversation, pool, tier)"
        values = f"select $1, 'turn', 'System1/even', conversation, 'work', 3 {of_it}"
        await holder.execute(f"{made} {values}", lane)
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute("select from lane where key = $1 for update", lane)
        async with a_worker(llm) as worker:
            await eventually(lambda: _waits_for_us(parts))
            worker.kill()
            await worker.wait()
        if not committed:
            await parts.database.run(BREAK_OFF)
        await transaction.rollback()
        await holder.close()
        await eventually(lambda: _over(parts))
        assert await parts.count("select count(*) from decision") == int(committed)
        async with a_worker(llm):
            await eventually(lambda: settled(parts), within=60)
        await assert_all_is_well(parts)
        assert questions(llm) == dict.fromkeys(range(MESSAGES), 1)


# In this database: others run on the same server at the same time, and settle, too.
_OF_A_DECISION: Final = "from pg_stat_activity where datname = current_database() and query like '%settle_route%'"
SETTLING: Final = f"select count(*) {_OF_A_DECISION} and state = 'active' and pid <> pg_backend_pid()"
HELD_UP: Final = f"select count(*) {_OF_A_DECISION} and wait_event_type = 'Lock'"
BREAK_OFF: Final = f"select pg_terminate_backend(pid) {_OF_A_DECISION} and wait_event_type = 'Lock'"


async def _waits_for_us(parts: Lab) -> bool:
    return await parts.count(HELD_UP) == 1


async def _over(parts: Lab) -> bool:
    return await parts.count(SETTLING) == 0

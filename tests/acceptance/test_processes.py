"""Two real worker processes: one is killed, or stopped for too long, and the other goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chaos.books import judge, read_traces
from tests.chaos.node import DIRECT_URL
from tests.forked import ForkedCommand
from tests.hands import assert_balanced, settled
from tests.lab import Lab, lab, submission
from tests.pooler import new_pgbouncer, pooler
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Node:
    """A worker process and what it has written down."""

    process: subprocess.Popen[bytes]
    trace: Path

    def lines(self) -> list[list[str]]:
        return read_traces([self.trace])

    def started(self) -> dict[tuple[str, str], float]:
        """When it began each (lane, seq)."""
        return {(t[1], t[2]): float(t[3]) for t in self.lines() if t[0] == "start"}

    def unfinished(self) -> set[tuple[str, str]]:
        """What it has begun and not ended."""
        return set(self.started()) - {(t[1], t[2]) for t in self.lines() if t[0] == "end"}

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


@asynccontextmanager
async def a_node(url: str, trace: Path, *, ttl: float = 4.0, direct_url: str | None = None) -> AsyncIterator[Node]:
    process: subprocess.Popen[bytes] = ForkedCommand(
        ["switchboard", "-m", "tests.chaos.node", url, str(trace), "work", str(ttl)],
        env=os.environ | ({DIRECT_URL: direct_url} if direct_url else {}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Node(process, trace)
    finally:
        if process.returncode is None:
            process.kill()
        await asyncio.to_thread(process.wait)


async def _true(condition: bool) -> bool:
    return condition


async def fill(parts: Lab, conversations: int, each: int, first: int = 0) -> int:
    given = [
        submission(str(n), sender=f"s{who}", event=f"{who}-{n}")
        for n in range(first, first + each)
        for who in range(conversations)
    ]
    for outcome in await parts.accept.accept_all(given):
        assert not isinstance(outcome, Exception), outcome
    return len(given)


async def busiest(one: Node, two: Node) -> tuple[Node, Node]:
    """The one that has more in hand, and the other; each has places enough for all conversations."""
    await eventually(lambda: _true(bool(one.unfinished() or two.unfinished())))
    return (one, two) if len(one.unfinished()) > len(two.unfinished()) else (two, one)


async def workers(parts: Lab) -> set[int]:
    return {
        row["process_id"] for row in await parts.database.rows("select process_id from process where role = 'worker'")
    }


async def test_what_a_killed_worker_was_doing_is_taken_over_at_once(database_url: str, tmp_path: Path) -> None:
    await _taken_over_at_once(database_url, None, tmp_path)


async def test_the_same_through_a_pooler_in_transaction_mode(database_url: str, tmp_path: Path) -> None:
    with pooler(new_pgbouncer(), database_url, tmp_path) as url:
        await _taken_over_at_once(url, database_url, tmp_path)


async def _taken_over_at_once(url: str, direct_url: str | None, tmp_path: Path) -> None:
    async with (
        lab(url, direct_url=direct_url) as parts,
        a_node(url, tmp_path / "one", ttl=600, direct_url=direct_url) as one,
        a_node(url, tmp_path / "two", ttl=600, direct_url=direct_url) as two,
    ):
        await eventually(lambda: _two(parts))
        registered = await workers(parts)
        count = await fill(parts, 20, 30)
        victim, heir = await busiest(one, two)
        victim.signal(signal.SIGKILL)
        await asyncio.to_thread(victim.process.wait)
        interrupted = victim.unfinished()
        assert interrupted, "it was killed in mid-turn"
        # Long before the TTL: its lock told, not its silence. How long it takes is measured by the chaos run.
        await eventually(lambda: _true(interrupted <= set(heir.started())))
        await eventually(lambda: settled(parts), within=60)
        assert len(registered & await workers(parts)) == 1, "the living one was never taken for dead"
        report = await judge(parts.database, count, read_traces([one.trace, two.trace]))
        assert report.clean, report
        await assert_balanced(parts)


async def _two(parts: Lab) -> bool:
    return len(await workers(parts)) == 2


async def test_a_worker_stopped_for_too_long_writes_nothing_when_it_wakes(database_url: str, tmp_path: Path) -> None:
    async with lab(database_url) as parts, a_node(database_url, tmp_path / "one") as zombie, AsyncExitStack() as stack:
        count = await fill(parts, 20, 30)
        await eventually(lambda: _true(bool(zombie.unfinished())))
        zombie.signal(signal.SIGSTOP)
        assert zombie.unfinished()
        [stopped] = await workers(parts)
        await stack.enter_async_context(a_node(database_url, tmp_path / "two", ttl=600))
        # Its lock is still held, so this is the TTL; then all its work is done by the other.
        await eventually(lambda: settled(parts), within=60)
        count += await fill(parts, 20, 5, first=30)
        await eventually(lambda: settled(parts), within=60)
        assert stopped not in await workers(parts)
        stored = await _turns_of(parts, stopped)

        zombie.signal(signal.SIGCONT)
        # It finds out, and comes back under a new name.
        await eventually(lambda: _two(parts))
        assert stopped not in await workers(parts)
        assert await _turns_of(parts, stopped) == stored, "it wrote nothing under its old name"
        count += await fill(parts, 20, 5, first=35)
        await eventually(lambda: settled(parts), within=60)
        assert await _turns_of(parts, stopped) == stored
        assert await parts.count("select count(*) from delivery where state <> 'answered'") == 0
        assert await parts.count("select count(*) from outbox") == count
        assert await parts.count("select count(*) from message_inbox") == count
        await assert_balanced(parts)


async def _turns_of(parts: Lab, worker: int) -> int:
    return await parts.count("select count(*) from attempt where worker = $1", worker)

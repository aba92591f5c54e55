"""The chaos run: many messages, workers killed all the time, the database crashed, one worker stopped and woken again.

    python -m tests.chaos.run [--messages 3000] [--conversations 200] [--workers 3] [--kills 12] [--seed N] [--pooled]

With `--pooled` all of them come through a PgBouncer in transaction mode, which `make pgbouncer` builds.

Prints what it does and ends with one line of counts; exit code 0 only if nothing was lost, doubled or out of order.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from switchboard.domain.errors import SwitchboardError
from switchboard.embedded.postmaster import stop
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.journey.accept import Submission
from switchboard.store.database import Database
from tests.chaos.asked import a_directory, asked_for, exit_code
from tests.chaos.books import Report, judge, read_traces, takeovers
from tests.chaos.node import DIRECT_URL
from tests.forked import ForkedCommand
from tests.lab import Lab, lab, submission
from tests.pooler import BUILT, pooler


@dataclass(frozen=True, slots=True)
class Plan:
    """How much, and how rough."""

    messages: int = 3000
    conversations: int = 200
    workers: int = 3
    kills: int = 12
    seed: int = 1
    pooled: bool = False


@dataclass(slots=True)
class Crew:
    """The worker processes, with their traces."""

    url: str
    direct_url: str | None
    directory: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    traces: list[Path] = field(default_factory=list)
    kills: list[tuple[Path, float]] = field(default_factory=list)
    """Whose trace ends there, and when it was killed."""
    stopped: subprocess.Popen[bytes] | None = None
    """The zombie, while it is stopped: it is to wake up, not to be killed."""

    def hire(self) -> subprocess.Popen[bytes]:
        trace = self.directory / f"trace-{len(self.traces)}"
        self.traces.append(trace)
        log = (self.directory / "workers.log").open("ab")
        process: subprocess.Popen[bytes] = ForkedCommand(
            [sys.executable, "-m", "tests.chaos.node", self.url, str(trace), "work"],
            env=dict(os.environ) | ({DIRECT_URL: self.direct_url} if self.direct_url else {}),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self.processes.append(process)
        return process

    def kill(self, victim: subprocess.Popen[bytes]) -> None:
        victim.kill()
        self.kills.append((self.traces[self.processes.index(victim)], time.time()))
        victim.wait()
        print(f"kill -9 number {len(self.kills)}", flush=True)

    def alive(self) -> list[subprocess.Popen[bytes]]:
        return [p for p in self.processes if p.poll() is None]

    def dismiss(self) -> None:
        for process in self.alive():
            process.kill()
        for process in self.processes:
            process.wait()


async def run(plan: Plan, directory: Path) -> Report:
    """The whole run in `directory`."""
    dice = random.Random(plan.seed)
    data = directory / "database"
    async with AsyncExitStack() as stack:
        url, direct_url = (await stack.enter_async_context(embedded_postgres(data))).url, None
        if plan.pooled:
            url, direct_url = stack.enter_context(pooler(BUILT, url, directory, size=20)), url
        parts = await stack.enter_async_context(lab(url, direct_url=direct_url))
        crew = Crew(url, direct_url, directory)
        for _ in range(plan.workers):
            crew.hire()
        try:
            feeding = asyncio.create_task(_feed(parts, plan, dice))
            await _havoc(plan, dice, crew, data, feeding)
            acknowledged = await feeding
            await _settled(parts.database)
        finally:
            crew.dismiss()
        if waits := takeovers(crew.kills, crew.traces):
            half, most = statistics.median(waits), max(waits)
            print(f"{len(waits)} turns cut off by kills, begun again after {half:.2f} s (median), {most:.2f} s at most")
        return await judge(parts.database, acknowledged, read_traces(crew.traces))


async def _feed(parts: Lab, plan: Plan, dice: random.Random) -> int:
    """Hand in all messages, each until it is acknowledged, as a connector would."""
    numbers: Counter[str] = Counter()
    batch: list[Submission] = []
    acknowledged = 0
    for n in range(plan.messages):
        sender = f"s{dice.randrange(plan.conversations)}"
        batch.append(submission(str(numbers[sender]), sender=sender, event=f"e{n}"))
        numbers[sender] += 1
        if len(batch) == 20 or n == plan.messages - 1:
            acknowledged += await _until_acknowledged(parts, batch)
            batch = []
            await asyncio.sleep(0.08)
    return acknowledged


async def _until_acknowledged(parts: Lab, batch: list[Submission]) -> int:
    while True:
        outcomes = await parts.accept.accept_all(batch)
        if not any(isinstance(outcome, SwitchboardError) for outcome in outcomes):
            return len(outcomes)
        await asyncio.sleep(0.2)


async def _havoc(plan: Plan, dice: random.Random, crew: Crew, data: Path, feeding: asyncio.Task[int]) -> None:
    crash_at, zombie_at = plan.kills // 3, plan.kills // 2
    zombie: asyncio.Task[None] | None = None
    while len(crew.kills) < plan.kills or not feeding.done():
        await asyncio.sleep(0.9 + dice.random() * 0.4)
        while len(crew.alive()) < plan.workers:
            crew.hire()
        victim = dice.choice([p for p in crew.alive() if p is not crew.stopped])
        if len(crew.kills) == zombie_at:
            zombie_at = -1
            zombie = asyncio.create_task(_zombie(crew, victim))
        elif len(crew.kills) == crash_at:
            crash_at = -1
            await crash(data)
        elif len(crew.kills) < plan.kills:
            crew.kill(victim)
    while len(crew.alive()) < plan.workers:
        crew.hire()
    if zombie is not None:
        await zombie


async def _zombie(crew: Crew, victim: subprocess.Popen[bytes]) -> None:
    """Stop a worker for longer than its TTL, then let it go on: whatever it still writes must be refused."""
    crew.stopped = victim
    os.kill(victim.pid, signal.SIGSTOP)
    print("a worker is stopped for 6 s", flush=True)
    await asyncio.sleep(6)
    os.kill(victim.pid, signal.SIGCONT)
    crew.stopped = None
    print("the zombie is awake again", flush=True)


async def crash(data: Path) -> None:
    """Let the database crash, and bring it back."""
    began = time.monotonic()
    await stop(data, immediate=True)
    async with embedded_postgres(data):
        pass  # the next one to enter brings it back; we in `run` are still its users, so it stays
    print(f"PostgreSQL crashed, back after {time.monotonic() - began:.1f} s", flush=True)


async def _settled(database: Database, limit: float = 120) -> None:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        try:
            if not await database.value(
                "select count(*) from lane where state in ('ready', 'running') and pool = 'work'"
            ):
                return
        except SwitchboardError:
            pass
        await asyncio.sleep(0.2)


def main() -> int:
    """Read the command line, run, print the report."""
    plan = asked_for(Plan, __doc__)
    directory = a_directory()
    began = time.monotonic()
    report = asyncio.run(run(plan, directory))
    print(f"{plan.kills} kills, 1 database crash, 1 zombie in {time.monotonic() - began:.0f} s: {report}")
    return exit_code(directory, well=report.clean)


if __name__ == "__main__":
    sys.exit(main())

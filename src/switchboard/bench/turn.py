"""Measures the time from a message to its reply in the outbox, with an engine that does nothing; and jobs per second.

Called by `switchboard bench turn`. The times include database and API: from acceptance to the reply.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

import aiohttp
from msgspec import Struct

from switchboard.app.settings import Settings
from switchboard.app.wiring import open_runtime, open_switchboard
from switchboard.bench import lab
from switchboard.core.envelope.read import parse_envelope
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.journey.accept import Submission

RATE: Final = 200
_LATENCIES: Final = """
select extract(epoch from o.created_at - m.received_at)::float8 * 1000
from outbox o join message_inbox m on m.request_id = o.request_id
where m.envelope #>> '{event,external_event_id}' like $1 order by 1
"""


class TurnBenchResult(Struct, frozen=True):
    """Milliseconds from acceptance to the reply at `RATE` a second; jobs a second from enqueue to done, two workers."""

    p50_ms: float
    p99_ms: float
    jobs_per_s: float
    pgbench_per_s: float
    """The baseline in the same run: durable single-row inserts."""


async def measure(rounds: int = 3, seconds: float = 5.0, jobs: int = 3000) -> TurnBenchResult:
    """Medians over the rounds."""
    p50: list[float] = []
    p99: list[float] = []
    rates: list[float] = []
    baseline: list[float] = []
    with lab.home() as place:
        async with embedded_postgres(place / "data" / "postgres") as server:
            for n in range(rounds):
                baseline.append(await lab.pgbench(server, 2))
                times = await _latencies(place, n, seconds)
                p50.append(lab.percentile(times, 50))
                p99.append(lab.percentile(times, 99))
                rates.append(await _jobs(place, server.url, n, jobs))
    return TurnBenchResult(median(p50), median(p99), median(rates), median(baseline))


async def _latencies(place: Path, n: int, seconds: float) -> list[float]:
    """Post at a steady rate without waiting for answers; milliseconds per message, sorted."""
    async with lab.switchboard(place, "up") as up, aiohttp.ClientSession(up.url, headers=up.headers) as http:
        messages = lab.messages(round(RATE * seconds), 500, f"t{n}")
        async with asyncio.TaskGroup() as posts:
            async for i in lab.steadily(len(messages), RATE):
                posts.create_task(lab.post(http, "/v1/ingest", messages[i]))
        await _wait_until_idle(http)
    async with lab.database(place, 1) as database:
        return [row[0] for row in await database.rows(_LATENCIES, f"t{n}-%")]


async def _wait_until_idle(http: aiohttp.ClientSession) -> None:
    while True:
        async with http.get("/v1/books?now=true") as response:
            if (await response.json())["in_flight"] == 0:
                return
        await asyncio.sleep(0.1)


async def _jobs(place: Path, server_url: str, n: int, count: int) -> float:
    """Jobs per second: 64 callers enqueue one by one while two workers run, from the first call to the last reply."""
    settings = Settings(database_url=server_url, teams_dir=place / "teams")
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(settings))
        parts = await stack.enter_async_context(open_switchboard(runtime))
        for _ in range(2):
            await stack.enter_async_context(lab.switchboard(place, "work"))
        submissions = [submission(message) for message in lab.messages(count, 500, f"j{n}")]
        began = perf_counter()

        async def caller() -> None:
            while submissions:
                await parts.accept.accept(submissions.pop())

        await asyncio.gather(*(caller() for _ in range(64)))
        while await runtime.database.value("select count(*) from lane where state <> 'idle'"):
            await asyncio.sleep(0.01)
        return count / (perf_counter() - began)


def submission(message: dict[str, object]) -> Submission:
    """One of `lab.messages` in the form for the accept leg."""
    raw = json.dumps(message).encode()
    return Submission(parse_envelope(raw, now=datetime.now(UTC)), raw)

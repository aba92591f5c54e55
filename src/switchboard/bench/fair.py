"""Measures how long a quiet sender waits while others flood the workers, compared with the wait without other messages.

Called by `switchboard bench fair`. A butler takes 0.2 s for a turn, so a worker with 64 places does 320 turns a second,
and a flood is more than it can handle in the time. Times are those of the database: from acceptance to the reply.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from itertools import islice
from typing import Final

import aiohttp
from msgspec import Struct

from switchboard.bench import lab
from switchboard.domain.json_values import JsonObject
from switchboard.store.database import Database

TURN_S: Final = 0.2
_PLACES: Final = 64
_MANY: Final = 200
_PER_SECOND: Final = 10
"""Messages of the quiet sender per second."""
_BATCH: Final = 200
_TEAM: Final = {
    "team": {"name": "root"},
    "systems": [
        {"name": "echo", "type": "operation", "engine": "echo", "config": {"steps": 1, "delay": TURN_S}},
    ],
    "routing_rules": [{"name": "everything", "channel": "*", "targets": [{"system_id": "System1/echo"}]}],
}
_WAITS: Final = """
select extract(epoch from o.created_at - m.received_at)::float8 * 1000
from outbox o join message_inbox m on m.request_id = o.request_id
where m.sender = $1 order by 1
"""

Flood = Callable[[str, int], JsonObject]
"""From the mark of a flood and a number to that message of the flood."""


class FairResult(Struct, frozen=True):
    """Milliseconds from acceptance to reply: p50 and p99 of each round, by flood (the first is no flood)."""

    p50_ms: Mapping[str, list[float]]
    p99_ms: Mapping[str, list[float]]

    def ratio(self, flood: str) -> float:
        """p99 under this flood divided by p99 without a flood in the same round; the median over the rounds."""
        alone = next(iter(self.p99_ms.values()))
        return statistics.median([under / without for under, without in zip(self.p99_ms[flood], alone, strict=True)])


def one_sender(mark: str, n: int) -> JsonObject:
    """One sender with many conversations, at the same endpoint as the quiet one."""
    return _message(f"{mark}-{n}", f"noisy-{mark}", f"{mark}-{n % _MANY}", "api:bench")


def many_senders(mark: str, n: int) -> JsonObject:
    """Many senders, who write to another endpoint."""
    return _message(f"{mark}-{n}", f"{mark}-{n % _MANY}", f"{mark}-{n % _MANY}", "api:open")


FLOODS: Final[Mapping[str, Flood | None]] = {
    "nobody else writes": None,
    f"another sender fills {_MANY} conversations": one_sender,
    f"{_MANY} senders flood another endpoint": many_senders,
}


async def measure(rounds: int = 3, seconds: float = 10.0) -> FairResult:
    """Measure each flood in turn, in each round."""
    p50: dict[str, list[float]] = {name: [] for name in FLOODS}
    p99: dict[str, list[float]] = {name: [] for name in FLOODS}
    async with AsyncExitStack() as stack:
        place = stack.enter_context(lab.home(_TEAM))
        up = await stack.enter_async_context(lab.switchboard(place, "up"))
        database = await stack.enter_async_context(lab.database(place, 1))
        http = await stack.enter_async_context(aiohttp.ClientSession(up.url, headers=up.headers))
        await _quietly(http, "warm", 1.0)
        for n in range(rounds):
            for name, flood in FLOODS.items():
                waits = await _waits(
                    http, database, f"{n}-{'none' if flood is None else flood.__name__}", flood, seconds
                )
                p50[name].append(lab.percentile(waits, 50))
                p99[name].append(lab.percentile(waits, 99))
    return FairResult(p50, p99)


async def _waits(
    http: aiohttp.ClientSession, database: Database, mark: str, flood: Flood | None, seconds: float
) -> list[float]:
    if flood is not None:
        count = round(_PLACES / TURN_S * (seconds + 3))
        await _submit(http, (flood(mark, n) for n in range(count)))
    await _quietly(http, mark, seconds)
    await _wait_until_idle(database)
    return [row[0] for row in await database.rows(_WAITS, f"quiet-{mark}")]


async def _quietly(http: aiohttp.ClientSession, mark: str, seconds: float) -> None:
    """Post at a steady rate without waiting for answers, each in a new conversation, so that none waits for another."""
    async with asyncio.TaskGroup() as posts:
        async for n in lab.steadily(round(_PER_SECOND * seconds), _PER_SECOND):
            event = f"quiet-{mark}-{n}"
            posts.create_task(lab.post(http, "/v1/ingest", _message(event, f"quiet-{mark}", event, "api:bench")))


async def _submit(http: aiohttp.ClientSession, messages: Iterable[JsonObject]) -> None:
    left = iter(messages)
    while some := list(islice(left, _BATCH)):
        await lab.post(http, "/v1/ingest/batch", {"envelopes": some})


async def _wait_until_idle(database: Database) -> None:
    while await database.value("select count(*) from lane where state <> 'idle'"):
        await asyncio.sleep(0.1)


def _message(event: str, sender: str, thread: str, endpoint: str) -> JsonObject:
    made = lab.message(event, thread)
    made["source"]["endpoint_identity"] = endpoint
    made["sender"]["identity"] = sender
    return made

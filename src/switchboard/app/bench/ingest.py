"""How fast messages are taken in durably, beside PostgreSQL's own pgbench and a door that stores nothing.

Called by `switchboard bench ingest`. In each round all four are measured one after the other on the same server, and
the ratios are taken within the round.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from switchboard.app.bench import lab
from switchboard.app.embedded import EmbeddedServer, embedded_postgres

CALLERS: Final = 64
_BATCH: Final = 100
_BATCH_CALLERS: Final = 4
_KEYS: Final = 1000
_VERSION: Final = "2026-07-28"
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": _VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True, slots=True)
class Round:
    """Messages (pgbench: rows) per second of one round."""

    pgbench: float
    batch: float
    single: float
    nothing: float
    """Single POSTs to a FastAPI door that stores nothing."""


@dataclass(frozen=True, slots=True)
class Result:
    """Medians over the rounds; ratios are medians of the ratios within each round."""

    rounds: tuple[Round, ...]

    def ratio(self, of: Callable[[Round], float], to: Callable[[Round], float]) -> float:
        """How many times as fast."""
        return lab.median([of(r) / to(r) for r in self.rounds])

    def rate(self, of: Callable[[Round], float]) -> float:
        """Per second."""
        return lab.median([of(r) for r in self.rounds])


async def measure(rounds: int = 3, seconds: float = 3.0) -> Result:
    """Run it on a database of its own; `seconds` for each of the four measurements of a round."""
    with lab.home() as place:
        async with (
            lab.switchboard(place, "serve") as doors,
            embedded_postgres(place / "data" / "postgres") as server,
            lab.program(os.environ, "-m", "switchboard.app.bench.null_door") as (_, line, _),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
        ):
            null_door = f"http://127.0.0.1:{int(line)}/v1/ingest"
            results = [await _round(http, doors, null_door, server, n, seconds) for n in range(rounds)]
    return Result(tuple(results))


async def _round(
    http: aiohttp.ClientSession, doors: lab.Running, null_door: str, server: EmbeddedServer, n: int, seconds: float
) -> Round:
    authorised = {"authorization": f"Bearer {doors.token}", "content-type": "application/json"}
    single = _poster(http, f"{doors.url}/v1/ingest", authorised, _bodies(f"s{n}"))
    nothing = _poster(http, null_door, {"content-type": "application/json"}, _bodies(f"n{n}"))
    return Round(
        pgbench=await lab.pgbench(server, seconds, CALLERS),
        batch=await lab.rate(_batcher(http, doors, n), _BATCH_CALLERS, seconds),
        single=await lab.rate(single, CALLERS, seconds),
        nothing=await lab.rate(nothing, CALLERS, seconds),
    )


def _bodies(mark: str) -> Iterator[bytes]:
    for n in itertools.count():
        for message in lab.messages(_KEYS, _KEYS, f"{mark}-{n}"):
            yield json.dumps(message).encode()


def _poster(
    http: aiohttp.ClientSession, url: str, headers: dict[str, str], bodies: Iterator[bytes]
) -> Callable[[], Awaitable[int]]:
    async def post() -> int:
        async with http.post(url, data=next(bodies), headers=headers) as response:
            await response.read()
            response.raise_for_status()
        return 1

    return post


def _batcher(http: aiohttp.ClientSession, doors: lab.Running, n: int) -> Callable[[], Awaitable[int]]:
    """`ingest_batch` as a connector calls it: JSON-RPC over a connection that stays open."""
    headers = {
        "authorization": f"Bearer {doors.token}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": _VERSION,
        "mcp-method": "tools/call",
        "mcp-name": "ingest_batch",
    }
    numbers = itertools.count()

    async def submit() -> int:
        envelopes = lab.messages(_BATCH, _KEYS, f"b{n}-{next(numbers)}")
        params = {"name": "ingest_batch", "arguments": {"envelopes": envelopes}, "_meta": _META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        async with http.post(f"{doors.url}/mcp", data=body, headers=headers) as response:
            results: list[dict[str, Any]] = (await response.json())["result"]["structuredContent"]["results"]
        return sum("request_id" in result for result in results)

    return submit

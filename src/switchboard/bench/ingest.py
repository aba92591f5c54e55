"""Measures how fast messages are accepted durably, compared with pgbench and with an endpoint that stores nothing.

Called by `switchboard bench ingest`. In each round all are measured one after the other on the same server, and the
ratios are taken within the round. The load comes from one process, as with pgbench.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from statistics import median
from typing import Final

from msgspec import Struct

from switchboard.bench import lab
from switchboard.bench.connection import Connection
from switchboard.embedded.postmaster import EmbeddedServer
from switchboard.embedded.supervisor import embedded_postgres

CALLERS: Final = 64
BATCHES: Final[Mapping[int, int]] = {50: 8, 100: 4, 200: 3}
"""Messages in a batch -> number of concurrent callers: some batches are stored while others are read."""
_KEYS: Final = 1000
_VERSION: Final = "2026-07-28"
_EVENT: Final = "@event@"
_CHAT: Final = "@chat@"
_BATCH: Final = '"@batch@"'
_TAKEN: Final = b'"duplicate":false,"status":"accepted"'
"""Occurs once in the answer for every stored message; where it is repeated as text, its quotes are escaped."""
_MESSAGE: Final = json.dumps(lab.message(_EVENT, _CHAT))
"""Built once and filled in for each message, as pgbench fills in its statement."""
_CALL: Final = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "ingest_batch",
            "arguments": {"envelopes": [json.loads(_BATCH)]},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": _VERSION,
                "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    }
)


class Round(Struct, frozen=True):
    """Messages (pgbench: rows) per second of one round."""

    pgbench: float
    batches: Mapping[int, float]
    """By the number of messages in a batch."""
    single: float
    nothing: float
    """Single POSTs to a FastAPI endpoint that stores nothing."""


class IngestResult(Struct, frozen=True):
    """Medians over the rounds; ratios are medians of the ratios within each round."""

    rounds: tuple[Round, ...]

    def ratio(self, of: Callable[[Round], float], to: Callable[[Round], float]) -> float:
        """How many times as fast `of` is as `to`."""
        return median([of(r) / to(r) for r in self.rounds])

    def rate(self, of: Callable[[Round], float]) -> float:
        """Messages per second."""
        return median([of(r) for r in self.rounds])


async def measure(rounds: int = 5, seconds: float = 2.0) -> IngestResult:
    """Run it on a separate database; `seconds` for each measurement of a round."""
    with lab.home() as place:
        async with (
            lab.switchboard(place, "serve") as running,
            embedded_postgres(place / "data" / "postgres") as server,
            lab.program(os.environ, "-m", "switchboard.bench.null_server") as (_, line, _),
        ):
            null_server = f"http://127.0.0.1:{int(line)}/v1/ingest"
            await _batches(running, "warm", 50, 0.1)  # the MCP library is imported for the first client
            results = [await _round(running, null_server, server, n, seconds) for n in range(rounds)]
    return IngestResult(tuple(results))


async def _round(running: lab.ReadyProcess, null_server: str, server: EmbeddedServer, n: int, seconds: float) -> Round:
    return Round(
        pgbench=await lab.pgbench(server, seconds, CALLERS),
        batches={size: await _batches(running, f"b{n}-{size}", size, seconds) for size in BATCHES},
        single=await _singles(f"{running.url}/v1/ingest", running.token, f"s{n}", seconds),
        nothing=await _singles(null_server, running.token, f"n{n}", seconds),
    )


async def _singles(url: str, token: str, mark: str, seconds: float) -> float:
    bodies = (message.encode() for message in messages(mark))

    def caller(connection: Connection) -> Callable[[], Awaitable[int]]:
        async def post() -> int:
            await connection.post(next(bodies))
            return 1

        return post

    return await _rate(url, single_headers(token), caller, CALLERS, seconds)


async def _batches(running: lab.ReadyProcess, mark: str, size: int, seconds: float) -> float:
    """`ingest_batch` as a connector calls it: JSON-RPC over a connection that stays open."""
    endless = messages(mark)

    def caller(connection: Connection) -> Callable[[], Awaitable[int]]:
        async def submit() -> int:
            some = itertools.islice(endless, size)
            return count_new_messages(await connection.post(batch_of(some)))

        return submit

    return await _rate(f"{running.url}/mcp", batch_headers(running.token), caller, BATCHES[size], seconds)


async def _rate(
    url: str,
    headers: Mapping[str, str],
    caller: Callable[[Connection], Callable[[], Awaitable[int]]],
    callers: int,
    seconds: float,
) -> float:
    """Messages per second of all `callers`, each with its own connection."""
    async with AsyncExitStack() as stack:
        connections = [await Connection.open(url, headers) for _ in range(callers)]
        for connection in connections:
            stack.callback(connection.close)
        return await lab.rate([caller(connection) for connection in connections], seconds)


def single_headers(token: str) -> dict[str, str]:
    """The headers of a POST of one message."""
    return {"content-type": "application/json", "authorization": f"Bearer {token}"}


def batch_headers(token: str) -> dict[str, str]:
    """The headers of a call of `ingest_batch`."""
    return single_headers(token) | {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": _VERSION,
        "mcp-method": "tools/call",
        "mcp-name": "ingest_batch",
    }


def batch_of(some: Iterable[str]) -> bytes:
    """The body of a call of `ingest_batch`."""
    return _CALL.replace(_BATCH, ", ".join(some)).encode()


def count_new_messages(body: bytes) -> int:
    """The number of newly stored messages according to the answer of `ingest_batch`."""
    return body.count(_TAKEN)


def messages(mark: str) -> Iterator[str]:
    """Endless messages in a thousand conversations, each with its own event."""
    for n in itertools.count():
        yield _MESSAGE.replace(_EVENT, f"{mark}-{n}").replace(_CHAT, f"chat-{n % _KEYS}")

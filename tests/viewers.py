"""What people who look at pages cost the messages: `python -m tests.viewers`, with the seconds of a round as argument.

In each round, 500 messages a second are offered without viewers and with twenty. Each has a session, a stream and the
page of all messages, which is fetched again with its bells as `static/app.js` does. Viewers run in a process of their
own; where they share its cores with the server, they take from it what a browser elsewhere would not: what they cost
the server itself is in its CPU.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median
from typing import Final

import httpx2
from msgspec import Struct

from switchboard.bench import lab
from switchboard.bench.connection import Connection
from switchboard.bench.ingest import messages, single_headers
from tests.servers import NO_TLS

VIEWERS: Final = 20
OFFERED: Final = 500
CALLERS: Final = 64
ROUNDS: Final = 3
_WATCH: Final = "--watch"


async def _watch(url: str, token: str) -> None:
    """Be all viewers, until cancelled; a line says that all of them are live, the last how often they fetched."""
    live, fetched = asyncio.Event(), itertools.count()
    waiting = itertools.count(1)

    async def view() -> None:
        async with httpx2.AsyncClient(base_url=url, timeout=60, verify=NO_TLS) as http:
            made = await http.post("/v1/web/links", json={}, headers={"authorization": f"Bearer {token}"})
            await http.post(made.json()["path"], headers={"origin": url})
            async with http.stream("GET", "/ui/events") as stream:
                async for line in stream.aiter_lines():
                    if line == "event: live" and next(waiting) == VIEWERS:
                        live.set()
                    if line in {"event: live", "event: bells"}:
                        await http.get("/ui/messages")
                        next(fetched)

    viewers = [asyncio.create_task(view()) for _ in range(VIEWERS)]
    await live.wait()
    _say("live")
    await asyncio.to_thread(sys.stdin.readline)  # until the pipe is closed
    for one in viewers:
        one.cancel()
    await asyncio.gather(*viewers, return_exceptions=True)
    sys.stderr.write(f"fetched {next(fetched)} pages\n")


@asynccontextmanager
async def _viewers(running: lab.ReadyProcess) -> AsyncIterator[None]:
    async with lab.program(os.environ, "-m", "tests.viewers", _WATCH, running.url, running.token):
        yield


async def _accepted(running: lab.ReadyProcess, mark: str, seconds: float) -> float:
    """Messages per second, of those that are offered; each is sent when its time has come, and not before."""
    bodies = (message.encode() for message in messages(mark))
    now = asyncio.get_running_loop().time
    began, numbers = now(), itertools.count()

    def caller(connection: Connection) -> Callable[[], Awaitable[int]]:
        async def post() -> int:
            await asyncio.sleep(began + next(numbers) / OFFERED - now())
            await connection.post(next(bodies))
            return 1

        return post

    async with AsyncExitStack() as stack:
        connections = [
            await Connection.open(f"{running.url}/v1/ingest", single_headers(running.token)) for _ in range(CALLERS)
        ]
        for connection in connections:
            stack.callback(connection.close)
        return await lab.rate([caller(connection) for connection in connections], seconds)


class Side(Struct, frozen=True):
    """Of one side of a round: messages per second, and milliseconds of the server's CPU per message."""

    rate: float
    cpu_ms: float


async def _side(running: lab.ReadyProcess, mark: str, seconds: float) -> Side:
    before = lab.cpu_ms([running.pid])
    rate = await _accepted(running, mark, seconds)
    return Side(rate, (lab.cpu_ms([running.pid]) - before) / (rate * seconds))


async def measure(seconds: float) -> None:
    """Print both sides of each round, and the ratios."""
    with lab.home() as place:
        async with lab.switchboard(place, "serve") as running:
            await _accepted(running, "warm", 1)
            ratios = []
            for n in range(ROUNDS):
                alone = await _side(running, f"a{n}", seconds)
                async with _viewers(running):
                    watched = await _side(running, f"b{n}", seconds)
                ratios.append((watched.rate / alone.rate, alone.cpu_ms / watched.cpu_ms))
                _say(f"alone {alone.rate:.0f}/s of {alone.cpu_ms:.2f} ms each")
                _say(f"watched {watched.rate:.0f}/s of {watched.cpu_ms:.2f} ms each")
            rates, costs = zip(*ratios, strict=True)
            _say(f"ratio of rates {median(rates):.3f}, of the server's CPU {median(costs):.3f}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_watch(*sys.argv[2:]) if sys.argv[1:2] == [_WATCH] else measure(float((sys.argv[1:] or ["20"])[0])))

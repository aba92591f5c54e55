"""Measures what others notice of a flood: memory, `/health`, chats and lines in the log, while it lasts and after it.

Called by `switchboard bench floods`. A switchboard has one core, and the flood and who asks meanwhile share the other
one, so that they do not take its time; on a machine with one core they share it, and the figures say less. Each flood
finds the same client connected before, but idle, as the baseline. Next: `flood_client.py` and `flood_prober.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Final, Literal

import aiohttp
import msgspec
from msgspec import Struct

from switchboard.bench import lab
from switchboard.bench.flood_client import FLOODS, TEXTS, TOKEN
from switchboard.domain.errors import InvalidInput, SwitchboardError
from switchboard.domain.json_values import JsonMapping

_SETTLED_S: Final = 10.0
"""Seconds after a flood by which its memory should be free."""
_LOOK_S: Final = 0.25
_TEAM: Final[JsonMapping] = {
    "team": {"name": "root"},
    "classify": True,
    "systems": [{"name": "echo", "type": "operation", "engine": "echo", "description": "Whatever reaches the house"}],
    "routing_rules": [{"name": "chats", "channel": "gateway", "targets": [{"system_id": "System1/echo"}]}],
}
_SCRIPT: Final[JsonMapping] = {
    "rules": [
        {
            "when": {"tool": "route_to_butler"},
            "replies": [{"calls": [{"name": "route_to_butler", "arguments": {"butler": "System1/echo"}}]}],
            "again": True,
        },
    ],
    "otherwise": {"text": "System1/echo"},
}


Kind = Literal["health", "chats"]


class Answers(Struct, frozen=True):
    """Milliseconds until `/health` and a chat were answered."""

    health: tuple[float, ...]
    chats: tuple[float, ...]

    def of(self, kind: Kind) -> tuple[float, ...]:
        """Those of one kind."""
        return self.health if kind == "health" else self.chats

    def p50(self, kind: Kind) -> float:
        """The median of one kind."""
        return statistics.median(self.of(kind))

    def p99(self, kind: Kind) -> float:
        """The time that one in a hundred exceeds."""
        return lab.percentile(self.of(kind), 99)


class FloodResult(Struct, frozen=True):
    """One flood; memory in 10^6 bytes beyond that before it, of all processes but the database."""

    name: str
    idle: Answers
    """While the same client was connected and sent nothing."""
    during: Answers
    after: Answers
    most_mb: float
    settled_mb: float
    """Ten seconds after its end."""
    log_lines: int
    tracebacks: int
    sent_mb: float
    opened: int


class FloodPlan(Struct, frozen=True):
    """Seconds of each flood, and how long the house is watched after it; the names of the floods."""

    seconds: float = 10.0
    watch: float = 60.0
    floods: Collection[str] = ()


MOST_MB: Final = 50.0
HEALTH_MS: Final = 250.0
"""The p99 of `/health`."""
SLOWER: Final = 2.0
"""How many times as long chats may take."""
LINES: Final = 60
"""Lines in the log in a minute."""


def is_borne(flood: FloodResult, minutes: float) -> bool:
    """Whether others noticed no more of it than they may."""
    return (
        max(flood.most_mb, flood.settled_mb) <= MOST_MB
        and flood.during.p99("health") <= HEALTH_MS
        and flood.during.p50("chats") <= SLOWER * flood.idle.p50("chats")
        and not flood.tracebacks
        and flood.log_lines <= LINES * max(1.0, minutes)
    )


def names() -> list[str]:
    """The floods there are."""
    return [*FLOODS, TEXTS]


async def measure(plan: FloodPlan, say: Callable[[str], None]) -> list[FloodResult]:
    """Measure each flood, in a house that is new for each. Raises InvalidInput for an unknown flood."""
    if unknown := set(plan.floods).difference(names()):
        raise InvalidInput(f"there is no flood {sorted(unknown)}; there are {names()}", field="floods")
    results = []
    for name in plan.floods or names():
        say(name)
        results.append(await _measure_flood(name, plan))
    return results


async def _measure_flood(name: str, plan: FloodPlan) -> FloodResult:
    async with AsyncExitStack() as stack:
        place = stack.enter_context(lab.home(_TEAM))
        log = place / "log"
        up = await stack.enter_async_context(_house(place, log))
        stack.enter_context(_on_core(0))
        prober = await stack.enter_async_context(_run_module("flood_prober", up, await _token(up, "prober")))
        token = up.token if name == TEXTS else await _token(up, "flood")
        client = await stack.enter_async_context(_run_module("flood_client", up, token, name))
        await _probe_server(prober, 3.0)  # everything is warm from here on
        idle = await _probe_server(prober, plan.seconds)
        before, written = _memory_mb(up.pid), log.stat().st_size
        memory = asyncio.create_task(_most_and_settled(up.pid, plan.seconds))
        await _tell(client, plan.seconds)
        during = await _probe_server(prober, plan.seconds)
        after = await _probe_server(prober, max(plan.watch, 1.0))
        most, settled = await memory
        sent = json.loads(await _line(client))
        lines = _lines(log, written)
    return FloodResult(
        *(name, idle, during, after, most - before, settled - before),
        len(lines),
        sum(b"Traceback" in line for line in lines),
        sent["sent_mb"],
        sent["opened"],
    )


@asynccontextmanager
async def _house(place: Path, log: Path) -> AsyncIterator[lab.ReadyProcess]:
    async with lab.scripted_model(place, _SCRIPT) as llm:
        model = {"name": "scripted", "kind": "openai", "model": "scripted-1", "base_url": f"{llm}/v1"}
        more = {
            "SWITCHBOARD_MODELS": json.dumps([model]),
            "SWITCHBOARD_CLASSIFY__MODELS": json.dumps(["scripted"]),
            "SWITCHBOARD_CLASSIFY__SENDER_PER_MINUTE": "0",
            "SWITCHBOARD_CLASSIFY__SENDER_TOKENS_PER_DAY": "0",
            "SWITCHBOARD_CLASSIFY__NEWCOMER_TOKENS_PER_DAY": "0",
            "SWITCHBOARD_LOG_LEVEL": "info",
        }
        async with AsyncExitStack() as stack:
            file = stack.enter_context(log.open("ab"))
            with _on_core(1):
                up = await stack.enter_async_context(lab.switchboard(place, "up", more=more, log=file.fileno()))
            yield up


async def _token(up: lab.ReadyProcess, name: str) -> str:
    about = {"name": name, "role": "connector", "channel": "gateway", "endpoint": name}
    async with aiohttp.ClientSession(up.url, headers=up.headers) as http:
        return str(json.loads(await lab.post(http, "/v1/tokens", about))["token"])


@asynccontextmanager
async def _run_module(module: str, up: lab.ReadyProcess, token: str, *arguments: str) -> AsyncIterator[Process]:
    command = ("-m", f"switchboard.bench.{module}", up.url, *arguments)
    async with lab.program({**os.environ, TOKEN: token}, *command) as (process, _, _):
        yield process


async def _probe_server(prober: Process, seconds: float) -> Answers:
    await _tell(prober, seconds)
    return msgspec.json.decode(await _line(prober), type=Answers)


async def _tell(process: Process, seconds: float) -> None:
    if process.stdin is None:
        raise TypeError("the process has pipes")
    process.stdin.write(f"{seconds}\n".encode())
    await process.stdin.drain()


async def _line(process: Process) -> bytes:
    line = await process.stdout.readline() if process.stdout is not None else b""
    if not line:
        raise SwitchboardError("a process of the measurement has ended")
    return line


# What the system says ---------------------------------------------------------------------------------------------


@contextmanager
def _on_core(number: int) -> Iterator[None]:
    """Within this block, processes that are started run on this core only, if there are so many and it can be told."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    if number >= len(cores):
        yield
        return
    os.sched_setaffinity(0, {cores[number]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


async def _most_and_settled(pid: int, seconds: float) -> tuple[float, float]:
    """The most memory from now until ten seconds after `seconds`, and that at the end."""
    ends, most = perf_counter() + seconds + _SETTLED_S, 0.0
    while perf_counter() < ends:
        most = max(most, _memory_mb(pid))
        await asyncio.sleep(_LOOK_S)
    return most, _memory_mb(pid)


def _memory_mb(pid: int) -> float:
    """Proportional memory of a process and those it has started, without the database; 0 where it is not told."""
    return sum(map(_own_memory_mb, _tree(pid)))


def _tree(pid: int) -> Iterator[int]:
    try:
        if (Path("/proc") / str(pid) / "comm").read_text(encoding="ascii").startswith("postgres"):
            return
        children = (Path("/proc") / str(pid) / "task" / str(pid) / "children").read_text(encoding="ascii").split()
    except OSError:
        return
    yield pid
    for child in children:
        yield from _tree(int(child))


def _own_memory_mb(pid: int) -> float:
    try:
        lines = (Path("/proc") / str(pid) / "smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("Pss:"))


def _lines(log: Path, begin: int) -> list[bytes]:
    """The lines of the log after its first `begin` bytes."""
    with log.open("rb") as file:
        file.seek(begin)
        return file.read().splitlines()

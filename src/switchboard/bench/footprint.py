"""Measures what a whole small house takes: memory, processes, statements and CPU, idle and after turns.

Called by `switchboard bench footprint`, and by a test that counts the statements. The house is one `switchboard up`
with a Telegram account and a butler with a model, its database included; the platform and the model are servers on this
machine and count for nothing. Linux only. Next: `bench/processes.py`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

from msgspec import Struct

from switchboard.bench import lab
from switchboard.bench.channels import one_by_one
from switchboard.bench.platforms import TELEGRAM, put_account
from switchboard.bench.processes import ProcessUsage, cpu_s, proportional_mb, tree, usage
from switchboard.domain.json_values import JsonMapping
from switchboard.embedded.postmaster import LOG, live_postmaster
from switchboard.testing.bot_api import BotApi

_TEAM: Final[JsonMapping] = {
    "team": {"name": "root"},
    "systems": [
        {"name": "System1/clerk", "engine": "model", "config": {"models": ["scripted"], "prompt": "Be brief."}}
    ],
    "routing_rules": [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/clerk"}]}],
}
_SCRIPT: Final[JsonMapping] = {"rules": [], "otherwise": {"text": "Good morning."}}
_BASELINE: Final = "import fastapi, uvicorn, asyncpg; print(flush=True); input()"
_WITHIN_S: Final = 60.0
_RELOADED_S: Final = 0.5
"""Until all backends have read the changed setting."""


class FootprintWorkload(Struct, frozen=True):
    """Seconds from the start until the idle house is looked at, seconds for which its statements are counted, and the
    turns, one after the other. `inside`: the account is served in the server's process.
    """

    idle_s: float = 60.0
    counted_s: float = 60.0
    turns: int = 40
    inside: bool = False


class FootprintResult(Struct, frozen=True):
    """By kind of process, idle and after the turns; CPU seconds a minute, and statements a second, of the idle house.

    `statements`: how often each was executed in `counted_s`. `baseline_mb`: a Python that only imports.
    """

    idle: Mapping[str, ProcessUsage]
    used: Mapping[str, ProcessUsage]
    baseline_mb: float
    cpu_s_a_minute: float
    statements: Mapping[str, int]
    statements_a_second: float


async def measure(workload: FootprintWorkload) -> FootprintResult:
    """Start a house in a new directory, and look at it."""
    baseline = await _baseline_mb()
    async with AsyncExitStack() as stack:
        place = stack.enter_context(lab.home(_TEAM))
        api = await stack.enter_async_context(BotApi())
        put_account(place, TELEGRAM.account_at(api.url))
        llm = await stack.enter_async_context(lab.scripted_model(place, _SCRIPT))
        model = {"name": "scripted", "kind": "openai", "model": "scripted-1", "base_url": f"{llm}/v1"}
        more = {
            "SWITCHBOARD_CHANNELS_DIR": str(place / "channels.d"),
            "SWITCHBOARD_MODELS": json.dumps([model]),
            "SWITCHBOARD_CONNECTORS": "inside" if workload.inside else "apart",
        }
        house = await stack.enter_async_context(lab.switchboard(place, "up", more=more))
        await asyncio.wait_for(api.until(lambda: api.polling), _WITHIN_S)
        cpu = await _idle_cpu(place, house.pid, workload.idle_s)
        idle = _usage(place, house.pid)
        statements = await count_statements(place, workload.counted_s)
        await one_by_one(TELEGRAM.platform, api, workload.turns)
        used = _usage(place, house.pid)
    a_second = sum(statements.values()) / workload.counted_s
    return FootprintResult(idle, used, baseline, cpu, statements, a_second)


def _roots(place: Path, pid: int) -> tuple[int, ...]:
    postmaster = live_postmaster(place / "data" / "postgres")
    return (pid,) if postmaster is None else (pid, postmaster)


def _usage(place: Path, pid: int) -> Mapping[str, ProcessUsage]:
    return usage(tree(*_roots(place, pid)))


async def _idle_cpu(place: Path, pid: int, idle_s: float) -> float:
    """CPU seconds a minute in the last two thirds of this time, when the start is over."""
    await asyncio.sleep(idle_s / 3)
    before, began = cpu_s(tree(*_roots(place, pid))), perf_counter()
    await asyncio.sleep(idle_s * 2 / 3)
    return (cpu_s(tree(*_roots(place, pid))) - before) * 60 / (perf_counter() - began)


async def count_statements(place: Path, counted_s: float) -> Mapping[str, int]:
    """How often each statement is executed in this time, by the log of the embedded server of a home."""
    log = place / "data" / "postgres" / LOG
    async with _logged_statements(place):
        before = log.stat().st_size
        await asyncio.sleep(counted_s)
        with log.open("rb") as file:
            file.seek(before)
            lines = file.read().decode(errors="replace").splitlines()
    return Counter(text for line in lines if (text := _executed_statement(line)) is not None)


def _executed_statement(line: str) -> str | None:
    """The statement, if the line says that one was executed and not only parsed or bound."""
    _, found, rest = line.partition(" ms  ")
    how, _, text = rest.partition(": ")
    return text if found and (how == "statement" or how.startswith("execute ")) else None


@asynccontextmanager
async def _logged_statements(place: Path) -> AsyncIterator[None]:
    """The server logs every statement with its duration. Meanwhile we have no connection."""
    await _alter(place, "set log_min_duration_statement = 0")
    try:
        yield
    finally:
        await _alter(place, "reset log_min_duration_statement")


async def _alter(place: Path, change: str) -> None:
    async with lab.database(place, 1) as database:
        await database.run(f"alter system {change}")
        await database.run("select pg_reload_conf()")
    await asyncio.sleep(_RELOADED_S)


async def _baseline_mb() -> float:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _BASELINE), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    if process.stdout is not None:
        await process.stdout.readline()
    size = proportional_mb(process.pid)
    await process.communicate(b"\n")
    return size

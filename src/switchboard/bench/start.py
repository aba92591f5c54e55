"""Measures the time until messages are accepted, and until a connector polls, and the memory; for `switchboard up`.

Called by `switchboard bench start`. The database is included in the time but not in the memory, as in the goals.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from msgspec import Struct

from switchboard.bench import lab
from switchboard.bench.channels import polled_s
from switchboard.bench.platforms import TELEGRAM, put_account
from switchboard.testing.bot_api import BotApi


class StartResult(Struct, frozen=True):
    """Seconds and 10^6 bytes; medians over the rounds."""

    cold_s: float
    warm_s: float
    imports_s: float
    """The baseline: a Python that only imports FastAPI, uvicorn and asyncpg."""
    memory_mb: float | None
    polled_s: float
    """From a later start until the connector of a Telegram account polls."""


async def measure(rounds: int = 3) -> StartResult:
    """Start `switchboard up` from nothing and again, `rounds` times, each in a new directory."""
    cold: list[float] = []
    warm: list[float] = []
    imports: list[float] = []
    memory: list[float] = []
    polled: list[float] = []
    for _ in range(rounds):
        imports.append(await _imports())
        with lab.home() as place:
            async with lab.switchboard(place, "up") as first:
                cold.append(first.ready_s)
            async with lab.switchboard(place, "up") as second:
                warm.append(second.ready_s)
                memory.append(lab.resident_mb(second.pid) or 0.0)
            polled.append(await _time_first_poll(place))
    return StartResult(median(cold), median(warm), median(imports), median(memory) or None, median(polled))


async def _time_first_poll(place: Path) -> float:
    """With an account whose token was made by an earlier start."""
    more, took = {"SWITCHBOARD_CHANNELS_DIR": str(place / "channels.d")}, 0.0
    async with BotApi() as api:
        put_account(place, TELEGRAM.account_at(api.url))
        for _ in range(2):
            polling = asyncio.create_task(polled_s(api, perf_counter()))
            async with lab.switchboard(place, "up", more=more):
                took = await polling
            await api.until(lambda: not api.polling)
    return took


async def _imports() -> float:
    began = perf_counter()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import fastapi, uvicorn, asyncpg")
    await process.wait()
    return perf_counter() - began

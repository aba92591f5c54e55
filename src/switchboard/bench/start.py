"""Measures the time until messages are accepted, for a new and for a stopped installation; and the memory.

Called by `switchboard bench start`. The database is included in the time but not in the memory, as in the goals.
"""

from __future__ import annotations

import asyncio
import sys
from statistics import median
from time import perf_counter

from msgspec import Struct

from switchboard.bench import lab


class StartResult(Struct, frozen=True):
    """Seconds and 10^6 bytes; medians over the rounds."""

    cold_s: float
    warm_s: float
    imports_s: float
    """The baseline: a Python that only imports FastAPI, uvicorn and asyncpg."""
    memory_mb: float | None


async def measure(rounds: int = 3) -> StartResult:
    """Start `switchboard up` from nothing and again, `rounds` times, each in a new directory."""
    cold: list[float] = []
    warm: list[float] = []
    imports: list[float] = []
    memory: list[float] = []
    for _ in range(rounds):
        imports.append(await _imports())
        with lab.home() as place:
            async with lab.switchboard(place, "up") as first:
                cold.append(first.ready_s)
            async with lab.switchboard(place, "up") as second:
                warm.append(second.ready_s)
                memory.append(lab.resident_mb(second.pid) or 0.0)
    return StartResult(median(cold), median(warm), median(imports), median(memory) or None)


async def _imports() -> float:
    began = perf_counter()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import fastapi, uvicorn, asyncpg")
    await process.wait()
    return perf_counter() - began

"""Random programs against the walls of memory on a database of their own: `python -m tests.memory_walls --steps 10000`.

It prints what was done and how many canaries were seen where they may be, or how somebody was told what they may not
hear. With `--mutants`, the wall is run without each of its clauses instead, and each must be noticed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from switchboard.embedded.supervisor import embedded_postgres
from switchboard.store.database import Database
from tests.chaos.asked import a_directory, asked_for, exit_code
from tests.integration.test_memory_walls import clauses
from tests.memory_walls.world import Leak, open_world, run_program
from tests.postgres import FAST


@dataclass(frozen=True)
class WallsPlan:
    """How long the program is, which one, and whether the wall is whole."""

    steps: int = 10_000
    seed: int = 0
    mutants: bool = False


async def run(plan: WallsPlan, directory: Path) -> bool:
    """Whether all was as it should be; says so."""
    async with embedded_postgres(directory / "database", settings=FAST) as server:
        if plan.mutants:
            return await find_mutants(server.url, directory, plan)
        began, cpu = time.monotonic(), time.process_time()
        world = await run_program(server.url, directory, plan.seed, plan.steps)
    took = f"{time.monotonic() - began:.0f} s, of them {time.process_time() - cpu:.0f} s of CPU time of this process"
    print(f"{world.done.total()} steps, 0 leaks, in {took}")
    print("steps:", dict(world.done))
    print("canaries where they may be:", dict(world.sightings))
    return True


async def find_mutants(url: str, directory: Path, plan: WallsPlan) -> bool:
    """Whether a program notices the lack of each clause of the wall."""
    sql, mutants = clauses("visible", "facts")
    missed = 0
    for number, (clause, mutant) in enumerate(mutants):
        found = await _find_mutant(url, directory / str(number), plan, mutant)
        missed += found is None
        print(f"without {clause!r} (the {number + 1}th):", found or f"NOT NOTICED in {plan.steps} steps")
    database = await Database.connect(url, size=1)
    await database.run(sql)
    await database.close()
    return not missed


async def _find_mutant(url: str, directory: Path, plan: WallsPlan, mutant: str) -> str | None:
    await _empty(url)
    async with open_world(url, directory, plan.seed) as world:
        await world.database.run(mutant)
        try:
            for name in world.program(plan.steps):
                await world.step(name)
            await world.end()
        except (Leak, KeyError) as found:  # without some clauses the code under test is given what it has not asked for
            return f"{type(found).__name__}: {found}"[:160]
    return None


async def _empty(url: str) -> None:
    database = await Database.connect(url, size=1)
    await database.run("drop schema if exists switchboard cascade")
    await database.close()


def main() -> int:
    """Read the command line, run, print the report."""
    plan = asked_for(WallsPlan, __doc__)
    directory = a_directory()
    well = asyncio.run(run(plan, directory))
    return exit_code(directory, well=well)


if __name__ == "__main__":
    sys.exit(main())

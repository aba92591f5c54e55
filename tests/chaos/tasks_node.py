"""A worker with the module `schedule`: it carries out what is due, and its butler echoes what it has to do.

    main([DATABASE, "", DIRECTORY])  it works until it is killed

The trace says `ready PID` when it begins to work.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.modules.kernel.chores import ChoreRunner, OpenChore
from switchboard.modules.schedule.manifest import MANIFEST
from switchboard.modules.schedule.opened import ACCOUNT, OpenSchedule
from switchboard.modules.schedule.settings import TaskLimits
from switchboard.store.modules.chores import ChoreTable
from switchboard.store.modules.opening import ModuleRooms
from tests.chaos.node import Trace
from tests.hands import at_work
from tests.lab import TRUSTING, lab

LEASE_S: Final = 2.0
TTL_S: Final = 2.0


async def work(url: str, directory: Path) -> None:
    """Until it is killed."""
    async with lab(url, channels=TRUSTING) as parts:
        rooms = ModuleRooms(parts.database)
        assert await rooms.migrate([MANIFEST]) == {}
        settings = Settings(data_dir=directory / "data")
        runtime = Runtime(settings, parts.database, parts.notifier, parts.rule_book, TRUSTING)
        stores = rooms.stores(MANIFEST)
        schedule = OpenSchedule(stores(ACCOUNT), WorkerFrontDoor(runtime), TaskLimits(catch_up=0))
        chores = [OpenChore(MANIFEST.name, one, stores) for one in schedule.chores]
        runner = ChoreRunner(ChoreTable(parts.database, str(os.getpid()), lease_s=LEASE_S), lambda: chores)
        async with at_work(parts.worker(ttl=TTL_S)):
            Trace(directory / "trace").write("ready", os.getpid())
            await runner.run()


def main(arguments: Sequence[str]) -> None:
    """As the command line says."""
    url, _, directory = arguments
    asyncio.run(work(url, Path(directory)))

"""A process that submits what is due, as a module does: its row first, then the front door, then the row again.

    python -m tests.due_node URL DIRECTORY FIRING [KILLED]

FIRING is the firing as JSON; KILLED says whether it dies `before_door` or `after_door`. `SWITCHBOARD_CRASH_AT` kills it
within the accept leg.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.ports.front_door import Firing
from tests.lab import lab

ROWS: Final = "create table if not exists due_row (key text primary key, request_id uuid)"


async def submit(url: str, directory: Path, firing: Firing, killed: str) -> None:
    """Submit it once; if this process is killed, the next call goes on."""
    async with lab(url) as parts:
        runtime = Runtime(Settings(data_dir=directory), parts.database, parts.notifier, parts.rule_book)
        door = WorkerFrontDoor(runtime)
        await parts.database.run(ROWS)
        await parts.database.run("insert into due_row values ($1) on conflict do nothing", firing.key)
        _die(killed == "before_door")
        found = await door.submit(firing)
        _die(killed == "after_door")
        await parts.database.run("update due_row set request_id = $2 where key = $1", firing.key, found.request_id)


def _die(now: bool) -> None:
    if now:
        os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: Sequence[str]) -> None:
    """Run."""
    url, directory, firing, *killed = arguments
    made = msgspec.json.decode(firing, type=Firing)
    asyncio.run(submit(url, Path(directory), made, "".join(killed)))


if __name__ == "__main__":
    main(sys.argv[1:])

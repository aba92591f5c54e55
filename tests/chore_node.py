"""A process that does the chore of a module again and again, to be stopped and killed: `main([URL, PLACE, LABEL])`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

from switchboard.modules.kernel.chores import ChoreRunner, OpenChore
from switchboard.ports.module import Chore
from switchboard.ports.module_store import ModuleStore
from switchboard.store.database import Database
from switchboard.store.modules.chores import ChoreTable
from switchboard.store.modules.opening import ModuleRooms
from switchboard.store.modules.stores import StoreLimits
from tests.modules import a_module

TALLY: Final = {
    "migrations/0001_tally.sql": """
        create table tally (account text, id bigint generated always as identity, label text, run text, n integer);
    """,
    "queries/tally.sql": """
-- name: add
insert into tally (account, label, run, n) values ($1, $2, $3, $4);
""",
}
STEPS: Final = 10
LEASE_S: Final = 0.6


async def work(url: str, place: Path, label: str) -> None:
    """Write ten rows a run, each in a transaction, until the end of the process."""
    database = await Database.connect(url)
    manifest = a_module(place, "tally", TALLY)
    rooms = ModuleRooms(database, StoreLimits(transaction_s=2.0))  # a stop may fall into a transaction
    assert await rooms.migrate([manifest]) == {}

    async def tally(store: ModuleStore) -> None:
        run = uuid4().hex
        for n in range(STEPS):
            await store.run("tally.add", label, run, n)
            await asyncio.sleep(0.02)  # so that most stops and kills fall into a run

    open_chore = OpenChore("tally", Chore("tally", 0.05, tally), rooms.stores(manifest))
    runner = ChoreRunner(ChoreTable(database, label, lease_s=LEASE_S), lambda: [open_chore])
    await runner.run()


def main(arguments: Sequence[str]) -> None:
    """Work until it is killed."""
    url, place, label = arguments
    sys.path.insert(0, place)
    asyncio.run(work(url, Path(place), label))

"""What modules do from time to time, kept as rows that one worker of the fleet takes: `ports/chores.py` over SQL.

`app` makes a `ChoreTable` for the runner in `modules/kernel/chores.py`. Periodic work of Switchboard itself is in
another table (that of `maintenance.py`). Next: `stores.py`, whose stores a lease fences.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from switchboard.core.text.storable import storable_or_none
from switchboard.domain.modules import ShownChore
from switchboard.ports.chores import ChoreKey, ChoreLease, TakenChores
from switchboard.ports.module_store import TakenOver
from switchboard.store.database import Database, Row, part_as, query, rows_as, seconds

LEASE_S: Final = 60.0
_LONGEST_WAIT_S: Final = 30.0
"""Others may plan or release a chore meanwhile."""
_LONGEST_ERROR: Final = 2000


class FailedChore(Struct, frozen=True):
    """A chore whose last run failed, or was cut off; it is tried again at `next_at`."""

    module: str
    account: str
    name: str
    at: datetime
    error: str
    next_at: datetime


class OverdueChore(Struct, frozen=True):
    """A chore that nobody has done since `at`; None: ever."""

    module: str
    account: str
    name: str
    at: datetime | None


class ChoreTable:
    """`ChoreBook` for one worker. `owner` is told to people: where and what it is."""

    def __init__(self, database: Database, owner: str, *, lease_s: float = LEASE_S) -> None:
        self._database = database
        self._owner = owner
        self.lease_s = lease_s

    async def plan(self, key: ChoreKey, every: float) -> None:
        """As in the port."""
        await self._database.run(query("chores.plan"), *_key_of(key), seconds(every))

    async def take(self, keys: Sequence[ChoreKey], most: int) -> TakenChores:
        """As in the port."""
        asked = [[*column] for column in zip(*map(_key_of, keys), strict=True)] or [[], [], []]
        rows = await self._database.rows(query("chores.take"), *asked, self._owner, seconds(self.lease_s), most)
        leases = [ChoreLease(ChoreKey(row["module"], row["account"], row["name"]), row["epoch"]) for row in rows]
        wait = await self._database.value(query("chores.wait"), *asked)
        return TakenChores(leases, _LONGEST_WAIT_S if wait is None else min(max(wait, 0.0), _LONGEST_WAIT_S))

    async def renew(self, lease: ChoreLease) -> bool:
        """As in the port."""
        return await self._change_row("renew", lease, seconds(self.lease_s)) == 1

    async def finish(self, lease: ChoreLease, error: str | None) -> None:
        """As in the port."""
        await self._change_row("finish", lease, storable_or_none(error and error[:_LONGEST_ERROR]))

    async def release(self, lease: ChoreLease) -> None:
        """As in the port."""
        await self._change_row("release", lease)

    async def _change_row(self, how: str, lease: ChoreLease, *args: object) -> int:
        return await self._database.change_rows(query(f"chores.{how}"), *_key_of(lease.key), lease.epoch, *args)


async def failed_chores(database: Database) -> list[FailedChore]:
    """The chores whose last run failed."""
    return rows_as(FailedChore, await database.rows(query("chores.failed")))


async def overdue_chores(database: Database) -> list[OverdueChore]:
    """The chores that nobody has done for three of their intervals, and 5 minutes."""
    return rows_as(OverdueChore, await database.rows(query("chores.overdue")))


async def list_chores(database: Database) -> list[tuple[str, ShownChore]]:
    """All that workers have planned, each with its module."""
    rows = await database.rows(query("chores.list"))
    return [(row["module"], part_as(ShownChore, row)) for row in rows]


async def make_due(database: Database, module: str) -> int:
    """Make the chores of a module due that nobody does now; returns how many there are."""
    return await database.change_rows(query("chores.make_due"), module)


async def require_lease(connection: PoolConnectionProxy[Row], lease: ChoreLease) -> None:
    """Keep the chore for this transaction. Raises `TakenOver` if it is not ours any more."""
    if not await connection.fetchval(query("chores.fence"), *_key_of(lease.key), lease.epoch):
        raise TakenOver(f"another worker does {lease.key.name} of the module {lease.key.module}")


def _key_of(key: ChoreKey) -> tuple[str, str, str]:
    return key.module, key.account, key.name

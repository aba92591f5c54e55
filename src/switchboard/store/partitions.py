"""The partitions by month of the tables that grow.

`app/ops/maintenance.py` creates missing ones, `checks/server.py` lists them; migrations create the first ones. Without
the partition of its month a message is refused. Next: `sql/functions/partitions.sql`.
"""

from __future__ import annotations

from datetime import datetime

import asyncpg
import structlog

from switchboard.store.database import Database, query

log = structlog.get_logger(__name__)


async def make_partitions(database: Database, now: datetime | None = None, lock_timeout: str = "1s") -> int | None:
    """Create missing partitions up to three months after `now` (default: the database's clock); returns how many.

    None: a table was locked for longer than `lock_timeout`. Others queue behind us, so we try again later.
    """
    async with database.connection() as connection:
        try:
            async with connection.transaction():
                await connection.execute("select set_config('lock_timeout', $1, true)", lock_timeout)
                return int(await connection.fetchval(query("partitions.make"), now))
        except asyncpg.LockNotAvailableError as error:
            log.warning("partitions not made yet; trying again at the next run", reason=error.message)
            return None


async def missing_partitions(database: Database, now: datetime | None = None) -> list[str]:
    """The names of the missing partitions for the month of `now` and the month after."""
    return [row["name"] for row in await database.rows(query("partitions.missing"), now)]

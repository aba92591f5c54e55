"""The partitions by month of the tables that grow.

`app/ops/maintenance.py` makes those that are missing, `app/ops/doctor.py` asks which are; migrations make the first
ones. Without the partition of its month a message is refused. Next: `sql/functions/partitions.sql`.
"""

from __future__ import annotations

from datetime import datetime

import asyncpg
import structlog

from switchboard.store.database import Database, query

log = structlog.get_logger(__name__)


async def make_partitions(database: Database, now: datetime | None = None, lock_timeout: str = "1s") -> int | None:
    """Make what is missing up to three months ahead of `now` (default: the database's clock); returns how many.

    None: a table was locked for longer than `lock_timeout`. Everybody else waits behind us, so we try again later.
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
    """The names of the partitions that are missing for the month of `now` and of one month later."""
    return [row["name"] for row in await database.rows(query("partitions.missing"), now)]

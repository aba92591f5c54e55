"""Orders to remove files from the disks of all workers, and which disks have carried them out.

`app/people/files.py` orders, `app/ops/erased_files.py` of every worker carries out. In: patterns below the directory of
workspaces; out: orders, and the disks that are behind. Next: `sql/functions/erased_files.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from switchboard.core.text.storable import storable_or_none
from switchboard.domain.people import PendingDisk
from switchboard.store.database import Database, query, rows_as


class FileOrder(Struct, frozen=True):
    """What is to be removed: files that were last written before the order."""

    pattern: str
    ordered_at: datetime


async def order(database: Database, patterns: Sequence[str]) -> None:
    """Order it of all disks, also of those that are not there now. Ordered again, it is what was written meanwhile."""
    await database.run(query("erased_files.order"), list(patterns))


async def show_disk(database: Database, disk: UUID, host: str) -> None:
    """Say that this disk is there."""
    await database.run(query("erased_files.show_disk"), disk, host)


async def ordered(database: Database, disk: UUID, after: datetime, limit: int) -> list[FileOrder]:
    """What is still to be done on a disk and was ordered after that time, oldest first. No two have the same time."""
    return rows_as(FileOrder, await database.rows(query("erased_files.ordered"), disk, after, limit))


async def carried_out(database: Database, disk: UUID, until: datetime) -> None:
    """Record that everything that was ordered until then is done."""
    await database.run(query("erased_files.carried_out"), disk, until)


async def note_problem(database: Database, disk: UUID, problem: str | None) -> bool:
    """Record why something cannot be done, or that all is; returns whether that is new."""
    return bool(await database.rows(query("erased_files.note_problem"), disk, storable_or_none(problem)))


async def list_pending(database: Database, age: timedelta = timedelta()) -> list[PendingDisk]:
    """The disks that are behind with orders of this age."""
    return rows_as(PendingDisk, await database.rows(query("erased_files.pending"), age))

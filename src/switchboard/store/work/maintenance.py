"""Maintenance tasks that exactly one worker runs when they are due.

`lanes/worker.py` passes the names of tasks, and runs those returned. A task whose worker dies is due again after its
interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from switchboard.core.text.storable import storable_or_none
from switchboard.store.database import Database, query, rows_as, seconds


class FailedTask(Struct, frozen=True):
    """A task whose last run failed."""

    name: str
    at: datetime
    error: str


async def plan(database: Database, tasks: Mapping[str, float]) -> None:
    """Register tasks with their interval in seconds; a changed interval takes effect at the next run."""
    await database.run(query("maintenance.plan"), list(tasks), [seconds(every) for every in tasks.values()])


async def due(database: Database, names: Sequence[str]) -> list[str]:
    """Take the tasks of these names that are due; no other worker gets them until their next time."""
    return [row["name"] for row in await database.rows(query("maintenance.due"), list(names))]


async def done(database: Database, name: str, error: str | None) -> None:
    """Record the end of a run."""
    await database.run(query("maintenance.done"), name, storable_or_none(error))


async def failed(database: Database) -> list[FailedTask]:
    """The tasks whose last run failed."""
    return rows_as(FailedTask, await database.rows(query("maintenance.failed")))

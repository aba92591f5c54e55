"""Chores that exactly one worker does when they are due.

Called by `lanes/worker.py`: names of chores enter, those that this worker shall do now leave. A chore whose worker dies
is due again after its interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from switchboard.store.database import Database, query, seconds, storable_text


async def plan(database: Database, chores: Mapping[str, float]) -> None:
    """Enter chores with their interval in seconds; a changed interval takes effect at the next run."""
    await database.run(query("schedule.plan"), list(chores), [seconds(every) for every in chores.values()])


async def due(database: Database, names: Sequence[str]) -> list[str]:
    """Take the chores of these names that are due; nobody else gets them until their next time."""
    return [row["name"] for row in await database.rows(query("schedule.due"), list(names))]


async def done(database: Database, name: str, error: str | None) -> None:
    """Record the end of a run."""
    await database.run(query("schedule.done"), name, error if error is None else storable_text(error))

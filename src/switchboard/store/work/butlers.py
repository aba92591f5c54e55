"""What butlers have to do, and what they gave up lately. `app/butlers.py` calls it; reads only. Next: `lanes.py`."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.core.uuid7 import first_uuid7
from switchboard.store.database import Database, query, rows_as

MOST_LOOKED_AT: Final = 10_000
"""Lanes that are busy, and messages that were given up: of more, these are counted."""


class ButlerWork(Struct, frozen=True):
    """The conversations of a butler that are worked on or paused, and its messages that wait.

    `parked`: those that wait for a person or an event while others go on.
    """

    system_id: str
    running: int
    waiting: int
    paused: int
    parked: int


class ButlerFailures(Struct, frozen=True):
    """How many messages a butler gave up; the last of them, and why."""

    system_id: str
    failed: int
    request_id: UUID
    why: str


async def list_work(database: Database) -> list[ButlerWork]:
    """Of all butlers that have something to do."""
    return rows_as(ButlerWork, await database.rows(query("butlers.work"), MOST_LOOKED_AT))


async def list_failures(database: Database, since: datetime) -> list[ButlerFailures]:
    """Of all butlers that gave up a message which came since then."""
    return rows_as(ButlerFailures, await database.rows(query("butlers.failures"), first_uuid7(since), MOST_LOOKED_AT))

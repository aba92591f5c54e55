"""What waits for people, and how much came in by the hour. Called by `app/status.py`; reads only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from switchboard.store.database import Database, query, rows_as

MOST_COUNTED: Final = 1000
"""More than that is told as `more than`."""
_MOST_OF_A_DAY: Final = 200_000
_HOURS: Final = 24

NeedKind = Literal["approvals", "questions", "strangers", "dead_letters", "replies"]


@dataclass(frozen=True, slots=True)
class WaitingNeed:
    """Something that waits for a person: how much of it, at most 1,001, and since when."""

    kind: NeedKind
    number: int
    oldest: datetime | None


async def list_needs(database: Database, most: int = MOST_COUNTED) -> list[WaitingNeed]:
    """All kinds, also those of which nothing waits; `most` + 1 of a kind means more than that."""
    return rows_as(WaitingNeed, await database.rows(query("status.needs"), most + 1))


async def count_by_hour(database: Database) -> list[int]:
    """Messages of each of the last 24 hours, the present one last; of a busy day, among the newest 200,000."""
    now = datetime.now(UTC)
    begin = [UUID(int=_milliseconds_of(now - timedelta(hours=ago)) << 80) for ago in range(_HOURS, 0, -1)]
    hours = [0] * _HOURS
    for row in await database.rows(query("status.hours"), begin, _MOST_OF_A_DAY):
        hours[row["hour"] - 1] += row["number"]
    return hours


def _milliseconds_of(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)

"""Dead letters as doors show them: what nobody could take, whole, why, and who was told.

Called by `app/views.py` and `app/explain.py`; reads only. They are written by `bury` in schema.sql. Next:
`store/connectors.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from switchboard.store.database import Database, Row, query


@dataclass(frozen=True, slots=True)
class ShownDeadLetter:
    """A dead letter without its payload. `handler` is the System4 that was told, if the team has one."""

    dead_letter_id: UUID
    request_id: UUID
    conversation: str
    team_id: str
    channel: str
    category: str
    reason: str
    system_id: str | None
    handler: str | None
    status: str
    handled_by_system_id: str | None
    resolution: str | None
    received_at: datetime
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Notice:
    """A dead letter told to the System4 that handles it."""

    dead_letter_id: UUID
    lane: str
    seq: int
    team_id: str
    system_id: str
    state: str
    error_class: str | None
    attempts: int
    created_at: datetime
    settled_at: datetime | None


@dataclass(frozen=True, slots=True)
class Remains:
    """What a dead letter keeps of its message: the envelope without `payload.raw`, and the bytes as they arrived."""

    payload: Mapping[str, Any]
    raw: bytes


def _shown(row: Row) -> ShownDeadLetter:
    return ShownDeadLetter(**{name: row[name] for name in ShownDeadLetter.__slots__})


async def list_dead_letters(
    database: Database,
    *,
    before: UUID | None = None,
    limit: int = 50,
    team_id: str | None = None,
    status: str | None = None,
    category: str | None = None,
) -> list[ShownDeadLetter]:
    """Newest first; `before` is the id of the last one of the page before."""
    rows = await database.rows(query("dead_letters.list"), before, team_id, status, category, limit)
    return [_shown(row) for row in rows]


async def dead_letters_of(database: Database, request_id: UUID) -> list[ShownDeadLetter]:
    """The dead letters of one message."""
    return [_shown(row) for row in await database.rows(query("dead_letters.of_message"), request_id)]


async def get_dead_letter(database: Database, dead_letter_id: UUID) -> tuple[ShownDeadLetter, Remains] | None:
    """One dead letter with what it keeps."""
    row = await database.row(query("dead_letters.get"), dead_letter_id)
    return (_shown(row), Remains(row["payload"], row["raw"])) if row else None


async def notices_of(database: Database, request_id: UUID) -> list[Notice]:
    """Who was told of the dead letters of one message."""
    rows = await database.rows(query("dead_letters.notices"), request_id)
    return [Notice(**{name: row[name] for name in Notice.__slots__}) for row in rows]


async def count_pending(database: Database) -> int:
    """How many nobody has handled yet."""
    return int(await database.value(query("dead_letters.pending")))

"""Finds what an id, or the beginning of one, belongs to.

Called by `app/messages/views.py`. Next: `store/inbox.py`.
"""

from __future__ import annotations

from uuid import UUID

from switchboard.domain.shown import Found
from switchboard.store.database import Database, query, rows_as


async def find(database: Database, first: UUID, last: UUID, limit: int) -> list[Found]:
    """Objects with ids from `first` to `last`, at most `limit` of each kind."""
    return rows_as(Found, await database.rows(query("lookup.ids"), first, last, limit))

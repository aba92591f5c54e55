"""Finds what an id, or the beginning or end of one, belongs to.

Called by `app/messages/views.py`. Next: `store/messages/inbox.py`.
"""

from __future__ import annotations

from uuid import UUID

from switchboard.domain.shown import Found
from switchboard.store.database import Database, query, rows_as


async def find(database: Database, first: UUID, last: UUID, limit: int) -> list[Found]:
    """Objects with ids from `first` to `last`, at most `limit` of each kind."""
    return rows_as(Found, await database.rows(query("lookup.ids"), first, last, limit))


async def find_end(database: Database, digits: str, limit: int) -> list[Found]:
    """Objects whose ids end with these hexadecimal digits, at most `limit`, among the newest 10,000 of each kind."""
    return rows_as(Found, await database.rows(query("lookup.ids_ending"), digits, limit))


async def find_in_memory(database: Database, first: UUID, last: UUID, limit: int) -> list[Found]:
    """Facts, summaries and runs with ids from `first` to `last`, as `find` finds other objects."""
    return rows_as(Found, await database.rows(query("lookup.memory_ids"), first, last, limit))


async def find_end_in_memory(database: Database, digits: str, limit: int) -> list[Found]:
    """The same for those whose ids end with these hexadecimal digits."""
    return rows_as(Found, await database.rows(query("lookup.memory_ids_ending"), digits, limit))


async def find_rules(database: Database, name: str, limit: int) -> list[Found]:
    """The rules of this name, at most `limit`: each team has its own names."""
    return rows_as(Found, await database.rows(query("lookup.rules"), name, limit))

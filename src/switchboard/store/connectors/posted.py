"""Events posted or pushed by platforms, kept until the connector of their account has turned them into messages.

Called by `app/connectors/posted.py`. Next: `store/connectors/accounts.py`, whose lease identifies that connector.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256

from msgspec import Struct

from switchboard.store.connectors.accounts import require_lease
from switchboard.store.database import Database, query
from switchboard.store.messages.inbox import pack_raw, unpack_raw


class PostedEvent(Struct, frozen=True):
    """An event as it was posted or pushed. A later one of the same account has a higher number."""

    posted_id: int
    raw: bytes


async def put(
    database: Database, channel: str, endpoint: str, raw: bytes, *, most: int, mark: str | None = None
) -> int | None:
    """Keep an event; returns its number, or that of the waiting one with the same `mark`.

    None: `most` events of the account are waiting, and nothing was kept.
    """
    packed, known = pack_raw(raw), None if mark is None else sha256(mark.encode()).digest()
    async with database.transaction() as one:
        await one.run(query("posted.lock"), channel, endpoint)
        number: int | None = await one.value(query("posted.put"), channel, endpoint, packed, len(raw), most, known)
    return number


async def next_events(
    database: Database, channel: str, endpoint: str, after: int, *, limit: int, size_bytes: int
) -> Sequence[PostedEvent]:
    """The events after that number, oldest first: at most `limit`, and `size_bytes` unless the first has more."""
    rows = await database.rows(query("posted.next"), channel, endpoint, after, limit, size_bytes)
    return [PostedEvent(row["posted_id"], unpack_raw(row["raw"])) for row in rows]


async def settle(database: Database, channel: str, endpoint: str, lease: int, upto: int) -> None:
    """Forget the events up to that number. Raises Conflict if the lease of the account has ended."""
    async with database.transaction() as one:
        await require_lease(one, channel, endpoint, lease)
        await one.run(query("posted.settle"), channel, endpoint, upto)


async def forget(database: Database, age: timedelta) -> int:
    """Forget events that no connector has fetched for this long; returns how many."""
    return int(await database.value(query("posted.forget"), age))

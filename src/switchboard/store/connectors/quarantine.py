"""Quarantine: events that could not be turned into messages, kept until somebody replays or discards them.

Called by `app/connectors/quarantine.py`. Next: `store/connectors/accounts.py`, whose leases count the events to replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from uuid import UUID

from msgspec import Struct

from switchboard.core.text.storable import storable_text
from switchboard.store.database import Database, query, row_as, rows_as
from switchboard.store.ids import new_uuid7
from switchboard.store.messages.inbox import pack_raw, unpack_raw


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An event in quarantine. `replay`: its connector must submit it again."""

    quarantine_id: UUID
    channel: str
    endpoint: str
    event_id: str
    reason: str
    size_bytes: int
    replay: bool
    at: datetime


@dataclass(frozen=True, slots=True)
class QuarantinedWhole(Quarantined):
    """The same with the bytes as the platform sent them."""

    raw: bytes


class BadEvent(Struct, frozen=True):
    """An event that a connector puts into quarantine."""

    channel: str
    endpoint: str
    event_id: str
    reason: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class Put:
    """Where it is kept; a `duplicate` already existed."""

    quarantine_id: UUID
    duplicate: bool


class QuarantineFilter(Struct, frozen=True):
    """Which events to list; None: all."""

    channel: str | None = None
    endpoint: str | None = None
    replay: bool | None = None


async def put(database: Database, event: BadEvent) -> Put:
    """Keep it, once per endpoint, event id and bytes, with the newest reason.

    On some platforms senders choose the ids, such as a mail's Message-ID, so no event replaces another.
    """
    known_as = f"{event.event_id}\n{sha256(event.raw).hexdigest()}"
    key = (await database.keys()).event(event.channel, event.endpoint, known_as)
    row = await database.row(
        query("quarantine.put"),
        *(new_uuid7(), key, event.channel, event.endpoint, event.event_id, storable_text(event.reason)),
        *(pack_raw(event.raw), len(event.raw)),
    )
    if row is None:
        raise LookupError(f"{event.event_id} is neither new nor known")
    return Put(row["quarantine_id"], row["duplicate"])


async def forget_oldest(database: Database, channel: str, endpoint: str, *, events: int, size_bytes: int) -> list[str]:
    """Keep at most this many events and bytes of an account; returns the platform ids of those removed."""
    rows = await database.rows(query("quarantine.forget_oldest"), channel, endpoint, events, size_bytes)
    return [row["event_id"] for row in rows]


async def list_events(
    database: Database, wanted: QuarantineFilter, *, before: UUID | None, limit: int
) -> list[Quarantined]:
    """Newest first; `before` is the id of the last one of the page before."""
    values = (before, limit, wanted.channel, wanted.endpoint, wanted.replay)
    return rows_as(Quarantined, await database.rows_with_custom_plan(query("quarantine.list"), *values))


async def get_event(database: Database, quarantine_id: UUID) -> QuarantinedWhole | None:
    """One event with its bytes."""
    row = await database.row(query("quarantine.get"), quarantine_id)
    return None if row is None else row_as(QuarantinedWhole, {**row, "raw": unpack_raw(row["raw"])})


async def count(database: Database) -> int:
    """How many events are kept, those to be replayed included."""
    return int(await database.value(query("quarantine.count")))


async def account_of(database: Database, quarantine_id: UUID) -> tuple[str, str] | None:
    """Channel and endpoint of an event."""
    row = await database.row(query("quarantine.account"), quarantine_id)
    return None if row is None else (row["channel"], row["endpoint"])


async def mark_for_replay(database: Database, quarantine_id: UUID) -> bool:
    """Let its connector submit it again. False: it does not exist."""
    return bool(await database.value(query("quarantine.replay"), quarantine_id))


async def discard(database: Database, quarantine_id: UUID) -> str | None:
    """Remove it; returns the platform's id of the event, None if it does not exist."""
    event_id: str | None = await database.value(query("quarantine.discard"), quarantine_id)
    return event_id

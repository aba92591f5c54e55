"""Mails of calendar programs among the stored messages, and what modules have done with them.

`app/calendar_mails.py` calls it. Next: `sql/queries/calendar_mails.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import Struct

from switchboard.core.uuid7 import first_uuid7
from switchboard.domain.routing import TrailStep
from switchboard.store.database import Database, query, rows_as


class StoredCalendarMail(Struct, frozen=True):
    """One of them, by its sender as the channel names it."""

    request_id: UUID
    sender: str
    received_at: datetime


async def list_calendar_mails(
    database: Database, channel: str, since: datetime, most: int
) -> Sequence[StoredCalendarMail]:
    """Those of a channel since a time, the oldest first."""
    rows = await database.rows(query("calendar_mails.arrived"), first_uuid7(since), channel, most)
    return rows_as(StoredCalendarMail, rows)


async def note_calendar_mail(database: Database, request_id: UUID, step: TrailStep) -> None:
    """Add what was done with a mail to the decisions about it; the same thing once."""
    await database.run(query("calendar_mails.note"), request_id, msgspec.json.encode([step]).decode())

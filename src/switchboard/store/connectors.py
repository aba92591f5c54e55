"""Connectors as they report themselves: one row per endpoint, the last heartbeat.

Called by `app/messages/connectors.py` (heartbeat) and `app/messages/views.py` (list). Next: `store/books.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from switchboard.domain.shown import Connector, ConnectorState
from switchboard.store.database import Database, query, rows_as, seconds

INTERVAL_S: Final = 120
"""Seconds between two heartbeats; twice that without one is stale, five times offline."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a connector reports: `connector.heartbeat.v1`."""

    channel: str
    endpoint: str
    instance_id: str
    version: str | None
    state: ConnectorState
    error_message: str | None
    counters: Mapping[str, int]


async def heartbeat(database: Database, beat: Heartbeat) -> None:
    """Keep the newest heartbeat of its endpoint."""
    await database.run(
        query("connectors.heartbeat"),
        *(beat.channel, beat.endpoint, beat.instance_id, beat.version, beat.state, beat.error_message),
        dict(beat.counters),
    )


async def list_connectors(
    database: Database, *, after: tuple[str, str] | None = None, limit: int | None = None
) -> list[Connector]:
    """The endpoints that ever sent a heartbeat; `after`: channel and endpoint of the last one of the page before."""
    values = (seconds(INTERVAL_S), *(after or (None, None)), limit)
    return rows_as(Connector, await database.rows(query("connectors.list"), *values))

"""The reports of connectors: one row per process of an account, with its last heartbeat.

Called by `app/connectors/work.py` (heartbeat) and `app/messages/views.py` (list). Next: `store/books.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from switchboard.domain.errors import TooManyInstances
from switchboard.domain.shown import Connector, ConnectorReport
from switchboard.store.database import Database, query, rows_as, seconds

INTERVAL_S: Final = 120
"""Seconds between two heartbeats; twice that without one is stale, five times offline."""

INSTANCES: Final = 16
"""Processes of one account that may report at a time, beside the one that serves it."""


@dataclass(frozen=True, slots=True)
class Heartbeat(ConnectorReport):
    """What a connector reports: `connector.heartbeat.v1`. `lag_s`: how far it is behind the platform, in seconds."""

    lag_s: float | None = None


async def heartbeat(database: Database, beat: Heartbeat) -> None:
    """Keep the newest heartbeat of its process. Raises TooManyInstances."""
    kept = await database.value(
        query("connectors.heartbeat"),
        *(beat.channel, beat.endpoint, beat.instance_id, beat.version, beat.state, beat.error_message),
        *(dict(beat.counters), None if beat.lag_s is None else seconds(beat.lag_s), seconds(INTERVAL_S), INSTANCES),
    )
    if not kept:
        raise TooManyInstances(INSTANCES, 5.0 * INTERVAL_S)


async def list_connectors(
    database: Database, *, after: tuple[str, str, str] | None = None, limit: int | None = None
) -> list[Connector]:
    """Processes with a heartbeat, by channel, endpoint and instance; `after`: the last of the previous page."""
    values = (seconds(INTERVAL_S), *(after or (None, None, None)), limit)
    return rows_as(Connector, await database.rows(query("connectors.list"), *values))


def by_account(known: Iterable[Connector]) -> list[Connector]:
    """The connector of each account: the process that serves it, otherwise the one last heard from."""
    found = dict[tuple[str, str], Connector]()
    for one in sorted(known, key=lambda one: (one.serving and one.liveness != "offline", one.last_seen_at)):
        found[one.channel, one.endpoint] = one
    return [found[key] for key in sorted(found)]

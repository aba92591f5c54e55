"""The audit trail: what was refused, and what operators did.

Called by `app/access.py`; append only. Operators read it at `GET /v1/audit`, the newest first.
"""

from __future__ import annotations

from uuid import UUID

from switchboard.domain.json_values import JsonMapping
from switchboard.domain.shown import AuditEntry
from switchboard.store.database import Database, query, rows_as
from switchboard.store.ids import new_uuid7


async def append(database: Database, actor: str, action: str, detail: JsonMapping) -> None:
    """Write one entry."""
    await database.run(query("audit.append"), new_uuid7(), actor, action, dict(detail))


async def list_entries(
    database: Database, limit: int = 100, *, action: str | None = None, before: UUID | None = None
) -> list[AuditEntry]:
    """The newest entries first, those of one action if it is named; `before` is the last one of the page before."""
    return rows_as(AuditEntry, await database.rows(query("audit.list"), limit, action, before))

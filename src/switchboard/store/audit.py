"""The audit trail: what was refused, and what operators did.

Called by `app/access.py`; append only. There is no door to it yet: it is read with SQL, the newest first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from switchboard.store.database import Database, query
from switchboard.store.ids import new_uuid7


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """`actor` is the name of a token; `detail` never holds a secret."""

    audit_id: UUID
    at: datetime
    actor: str
    action: str
    detail: Mapping[str, Any]


async def append(database: Database, actor: str, action: str, detail: Mapping[str, Any]) -> None:
    """Write one entry."""
    await database.run(query("audit.append"), new_uuid7(), actor, action, dict(detail))


async def list_entries(database: Database, limit: int = 100) -> list[AuditEntry]:
    """The newest entries first."""
    rows = await database.rows(query("audit.list"), limit)
    return [AuditEntry(**{name: row[name] for name in AuditEntry.__slots__}) for row in rows]

"""The audit trail: refused requests and operators' actions.

Called by `app/access.py`; append only. Operators read it at `GET /v1/audit`, the newest first.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec

from switchboard.core.text.storable import storable_json
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.shown import AuditEntry
from switchboard.store.database import Database, query, rows_as
from switchboard.store.ids import new_uuid7

_ENTRY_BYTES: Final = 8192
_CUT_AT: Final = 500


async def append(database: Database, actor: str, action: str, detail: JsonMapping) -> None:
    """Write one entry. A detail with more than 8 KiB of JSON is truncated, since callers choose much of it."""
    kept = storable_json(detail)
    if len(msgspec.json.encode(kept)) > _ENTRY_BYTES:
        kept = {name: _cut(value) for name, value in kept.items()}
    await database.run(query("audit.append"), new_uuid7(), actor, action, kept)


def _cut(value: object) -> object:
    """The value itself, or the beginning of its JSON."""
    whole = msgspec.json.encode(value).decode()
    return value if len(whole) <= _CUT_AT else f"{whole[:_CUT_AT]}…"


async def list_entries(
    database: Database, limit: int = 100, *, action: str | None = None, before: UUID | None = None
) -> list[AuditEntry]:
    """Newest first, perhaps only one action; `before` is the last entry of the previous page."""
    return rows_as(AuditEntry, await database.rows(query("audit.list"), limit, action, before))

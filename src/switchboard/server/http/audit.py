"""`GET /v1/audit`: what was refused, and what operators did. Next: `store/people/audit.py`."""

from __future__ import annotations

from fastapi import Response

from switchboard.app.access import AUDIT
from switchboard.app.cursors import uuid_cursor
from switchboard.server.contracts.base import Cursor, Limit, Word
from switchboard.server.contracts.rules import AuditList
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation

router = router_of("audit", prefix="/v1/audit", needing=needs(AUDIT))


@router.get("", **operation("list_audit_entries", "List audit entries", AuditList))
async def list_audit(
    parts: Parts, action: Word | None = None, limit: Limit = 100, cursor: Cursor | None = None
) -> Response:
    """Newest first; of one action, such as `refused:rules_edit`."""
    entries = await parts.access.entries(limit, action, uuid_cursor(cursor))
    following = str(entries[-1].audit_id) if len(entries) == limit else None
    return answer({"entries": entries, "next_cursor": following})

"""Audit: who did what, and what was refused. Next: `app/access.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from starlette.responses import Response

from switchboard.app.access import AUDIT
from switchboard.app.cursors import uuid_cursor
from switchboard.domain.shown import AuditEntry
from switchboard.server.web.naming import SENDER_NAMES
from switchboard.server.web.page import WebPage
from switchboard.server.web.visit import Visit

_ROWS: Final = 50


async def show_audit(visit: Visit) -> Response:
    """Newest first; of one action, if the address names one."""
    entries = await visit.services.access.entries(_ROWS, visit.asked("action"), uuid_cursor(visit.asked("cursor")))
    following = str(entries[-1].audit_id) if len(entries) == _ROWS else None
    names = await visit.services.of(SENDER_NAMES).find_contacts(_contacts_in(entries))
    return visit.page("audit.html", entries=entries, following=following, action=visit.asked("action"), names=names)


def _contacts_in(entries: Sequence[AuditEntry]) -> list[UUID]:
    """The strangers that were decided about."""
    return [UUID(found) for one in entries if isinstance(found := one.detail.get("contact_id"), str)]


PAGES: Final = (WebPage("/audit", show_audit, AUDIT, "Audit"),)

"""Sessions: who is signed in on the page, and their ends. Next: `app/web_sessions.py`."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from switchboard.app.cursors import uuid_cursor
from switchboard.app.web_sessions import MOST_SESSIONS, WEB_SESSIONS
from switchboard.domain.errors import SwitchboardError
from switchboard.server.http.web_sessions import WEB_SESSION_SERVICE
from switchboard.server.web.forms import NOTHING_ENTERED, Entered, line_from
from switchboard.server.web.page import Fields, WebForm, WebPage
from switchboard.server.web.visit import Visit

_ROWS: Final = 50
_OUTCOMES: Final = {"ended": "That browser is signed out.", "all": "All other browsers are signed out."}


async def show_sessions(visit: Visit) -> Response:
    """Newest first; this one is marked."""
    return await _show_sessions(visit, NOTHING_ENTERED)


async def _show_sessions(visit: Visit, entered: Entered) -> Response:
    sessions = await visit.services.of(WEB_SESSION_SERVICE).sessions(
        limit=_ROWS, before=uuid_cursor(visit.asked("cursor"))
    )
    return visit.page(
        "sessions.html",
        entered.status,
        sessions=sessions,
        most=MOST_SESSIONS,
        following=str(sessions[-1].session_id) if len(sessions) == _ROWS else None,
        entered=entered,
        outcome=_OUTCOMES.get(visit.asked("done") or ""),
    )


async def end_session(visit: Visit, fields: Fields) -> Response:
    """Sign one browser out."""
    try:
        reason = line_from(fields, "reason", "the reason")
        session_id = visit.path_id("session_id")
        await visit.services.of(WEB_SESSION_SERVICE).end(visit.caller, session_id, reason)
    except SwitchboardError as error:
        return await _show_sessions(visit, Entered(fields, error))
    return visit.go("/sessions?done=ended")


async def end_all_sessions(visit: Visit, fields: Fields) -> Response:
    """Sign all browsers out but this one."""
    try:
        reason = line_from(fields, "reason", "the reason")
        await visit.services.of(WEB_SESSION_SERVICE).end_all(visit.caller, reason, visit.session.session_id)
    except SwitchboardError as error:
        return await _show_sessions(visit, Entered(fields, error))
    return visit.go("/sessions?done=all")


PAGES: Final = (
    WebPage("/sessions", show_sessions, WEB_SESSIONS, "Sessions"),
    WebForm("/sessions/end-all", end_all_sessions, WEB_SESSIONS),
    WebForm("/sessions/{session_id:uuid}/end", end_session, WEB_SESSIONS),
)

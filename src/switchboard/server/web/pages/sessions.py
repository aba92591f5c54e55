"""Sessions: who is signed in on the page, and their ends. Next: `app/web_sessions.py`."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from starlette.responses import Response

from switchboard.app.cursors import uuid_cursor
from switchboard.app.web_sessions import MOST_SESSIONS, WEB_SESSIONS
from switchboard.domain.errors import NotFound
from switchboard.server.http.web_sessions import WEB_SESSION_SERVICE
from switchboard.server.web.forms import NOTHING_ENTERED, Entered, Fields, reason_from
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.visit import Visit

_ROWS: Final = 50
_OUTCOMES: Final = {"ended": "That browser is signed out.", "all": "All other browsers are signed out."}


async def show_sessions(visit: Visit, entered: Entered = NOTHING_ENTERED) -> Response:
    """Newest first; this one is marked."""
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
    session_id, reason = visit.path_id("session_id"), reason_from(fields)
    with suppress(NotFound):  # it has ended by itself, or this came twice
        await visit.services.of(WEB_SESSION_SERVICE).end(visit.caller, session_id, reason)
    return visit.go("/sessions?done=ended")


async def end_all_sessions(visit: Visit, fields: Fields) -> Response:
    """Sign all browsers out but this one."""
    own = visit.session.session_id
    await visit.services.of(WEB_SESSION_SERVICE).end_all(visit.caller, reason_from(fields), own)
    return visit.go("/sessions?done=all")


PAGES: Final = (
    WebPage("/sessions", show_sessions, WEB_SESSIONS, "Sessions"),
    WebForm("/sessions/end-all", end_all_sessions, WEB_SESSIONS, if_refused=show_sessions),
    WebForm("/sessions/{session_id:uuid}/end", end_session, WEB_SESSIONS, if_refused=show_sessions),
)

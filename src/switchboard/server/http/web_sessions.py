"""`/v1/web`: links that sign in on the page, and who is signed in. Operators only. Next: `app/web_sessions.py`."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

import msgspec
from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.cursors import uuid_cursor
from switchboard.app.web_sessions import WEB_SESSIONS, WebSessions
from switchboard.server.contracts.base import Cursor, Limit, Line
from switchboard.server.contracts.web_sessions import (
    EndedWebSession,
    EndedWebSessions,
    MadeWebLink,
    NewWebLink,
    WebSessionPage,
)
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation
from switchboard.server.services import ServiceFactory

WEB_SESSION_SERVICE: Final = ServiceFactory(lambda s: WebSessions(s.runtime.database, s.access))
router = router_of("web", prefix="/v1/web")

Operator = Annotated[Principal, Depends(needs(WEB_SESSIONS))]


@router.post("/links", **operation("create_web_link", "Make a link to sign in with", MadeWebLink, 404, 409, status=201))
async def create_link(caller: Operator, parts: Parts, body: NewWebLink) -> Response:
    """Good for ten minutes, and once: opening it shows who will be signed in, and its button does it."""
    made = await parts.of(WEB_SESSION_SERVICE).make_link(caller, body.name, new=body.new)
    public = parts.runtime.settings.public_url
    return answer(msgspec.structs.asdict(made) | {"url": public and public.rstrip("/") + made.path}, 201)


@router.get("/sessions", **operation("list_web_sessions", "List who is signed in", WebSessionPage))
async def list_sessions(caller: Operator, parts: Parts, limit: Limit = 100, cursor: Cursor | None = None) -> Response:
    """Newest first, without what has ended."""
    del caller  # checked above
    page = await parts.of(WEB_SESSION_SERVICE).sessions(limit=limit, before=uuid_cursor(cursor))
    following = str(page[-1].session_id) if len(page) == limit else None
    return answer({"sessions": page, "next_cursor": following})


@router.delete("/sessions/{session_id}", **operation("end_web_session", "Sign a browser out", EndedWebSession, 404))
async def end_session(caller: Operator, parts: Parts, session_id: UUID, reason: Line | None = None) -> Response:
    """It is signed out at once, in every process."""
    await parts.of(WEB_SESSION_SERVICE).end(caller, session_id, reason)
    return answer({"session_id": session_id, "status": "ended"})


@router.delete("/sessions", **operation("end_all_web_sessions", "Sign all browsers out", EndedWebSessions))
async def end_all_sessions(caller: Operator, parts: Parts, reason: Line) -> Response:
    """They are signed out at once, in every process. Links that were not used yet stay good."""
    return answer({"sessions": await parts.of(WEB_SESSION_SERVICE).end_all(caller, reason)})

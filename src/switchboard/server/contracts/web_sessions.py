"""The shapes of links and sessions of the page. Next: `app/web_sessions.py`."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from switchboard.app.web_sessions import WebSession
from switchboard.server.contracts.base import Body, Line, ResponseBody

__all__ = ["WebSession"]


class NewWebLink(Body):
    """`name`: the token that the link signs in as, by default that of the request.

    `new`: a token of this name is made for a new member of the household, who chats on the page and sees nothing else.
    """

    name: Line | None = None
    new: bool = False


class MadeWebLink(ResponseBody):
    """`path` is below the address of the server. This response is the only one that contains it."""

    path: str
    url: str | None
    """The whole address, if the setting `public_url` says where the server is."""
    name: str
    role: str
    expires_at: datetime


class WebSessionPage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    sessions: list[WebSession]
    next_cursor: str | None


class EndedWebSession(ResponseBody):
    """The browser is signed out."""

    session_id: UUID
    status: Literal["ended"]


class EndedWebSessions(ResponseBody):
    """How many were signed out."""

    sessions: int

"""Conversations: all of them, and both sides of one. Next: `app/messages/conversations.py`."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from switchboard.app.messages.conversations import CONVERSATIONS
from switchboard.domain.errors import NotFound
from switchboard.domain.message import Conversation
from switchboard.server.http.status import CONVERSATION_SERVICE
from switchboard.server.web.naming import name_senders
from switchboard.server.web.page import WebPage
from switchboard.server.web.visit import Visit

_ROWS: Final = 50


async def show_conversations(visit: Visit) -> Response:
    """The last written in first."""
    service = visit.services.of(CONVERSATION_SERVICE)
    found, following = await service.list(limit=_ROWS, cursor=visit.asked("cursor"))
    names = await name_senders(visit, found)
    return visit.page("conversations.html", conversations=found, following=following, names=names)


async def show_conversation(visit: Visit) -> Response:
    """Both sides as a chat, the newest at the end; its name is in the address, as names have slashes."""
    name = visit.asked("name") or ""
    service = visit.services.of(CONVERSATION_SERVICE)
    cursor = visit.asked("cursor")
    entries, following = await service.entries(Conversation(name), limit=_ROWS, cursor=cursor)
    if not entries and cursor is None:
        raise NotFound("nothing was written in this conversation; it may have been erased")
    names = await name_senders(visit, (), conversations=[name])
    return visit.page("conversation.html", name=name, entries=list(reversed(entries)), following=following, names=names)


PAGES: Final = (
    WebPage("/conversations", show_conversations, CONVERSATIONS, "Conversations"),
    WebPage("/conversations/one", show_conversation, CONVERSATIONS),
)

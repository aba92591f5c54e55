"""`/v1/status` and `/v1/conversations`: how it is, and who talks with whom. Operators only.

Next: `app/status.py`, `app/messages/conversations.py`.
"""

from __future__ import annotations

from typing import Final

from fastapi import Response

from switchboard.app.messages.conversations import CONVERSATIONS, ConversationService
from switchboard.app.status import STATUS, StatusService
from switchboard.domain.message import Conversation
from switchboard.server.contracts.base import Cursor, Limit, Word
from switchboard.server.contracts.status import ConversationEntries, ConversationPage, Status
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, operation, page
from switchboard.server.services import ServiceFactory

STATUS_SERVICE: Final = ServiceFactory(lambda s: StatusService(s.runtime))
CONVERSATION_SERVICE: Final = ServiceFactory(lambda s: ConversationService(s.runtime))
router = router_of("status", prefix="/v1")


@router.get("/status", **operation("get_status", "Get the status", Status, needing=STATUS))
async def get_status(parts: Parts) -> Response:
    """In one sentence, with what waits for people."""
    return answer(await parts.of(STATUS_SERVICE).status())


@router.get(
    "/conversations",
    **operation("list_conversations", "List conversations", ConversationPage, needing=CONVERSATIONS),
)
async def list_conversations(parts: Parts, limit: Limit = 50, cursor: Cursor | None = None) -> Response:
    """Each with its last message, of all channels; a page looks through 2,000 messages."""
    found = await parts.of(CONVERSATION_SERVICE).list(limit=limit, cursor=cursor)
    return answer(page("conversations", found))


@router.get(
    "/conversations/entries",
    **operation("list_conversation_entries", "Read a conversation", ConversationEntries, needing=CONVERSATIONS),
)
async def list_entries(parts: Parts, conversation: Word, limit: Limit = 50, cursor: Cursor | None = None) -> Response:
    """What was written in it, and what was answered."""
    service = parts.of(CONVERSATION_SERVICE)
    return answer(page("entries", await service.entries(Conversation(conversation), limit=limit, cursor=cursor)))

"""Conversations for operators: the list of all, and both sides of one.

HTTP, the page and the command line call `ConversationService`. In: a caller who is authorised; out: pages of frozen
values. Next: `store/messages/conversations.py`, `chat.py`, whose entries these are.
"""

from __future__ import annotations

from typing import Final

from switchboard.app.access import OPERATOR, Action
from switchboard.app.cursors import uuid_cursor
from switchboard.app.messages.chat import ChatEntry, read_entries
from switchboard.app.runtime import Runtime
from switchboard.domain.message import Conversation
from switchboard.store.messages import conversations as store
from switchboard.store.messages.conversations import ConversationRow

__all__ = ["CONVERSATIONS", "ConversationRow", "ConversationService"]

CONVERSATIONS: Final = Action("conversations", OPERATOR)
WALK: Final = 2000
"""Messages that a page looks through: there is no index by what was last written in."""


class ConversationService:
    """Lists and shows."""

    def __init__(self, runtime: Runtime) -> None:
        self._database = runtime.database

    async def entries(
        self, conversation: Conversation, *, limit: int, cursor: str | None
    ) -> tuple[list[ChatEntry], str | None]:
        """A page of what was written in it and answered, newest first, and the cursor of the next."""
        return await read_entries(self._database, conversation, limit=limit, cursor=cursor)

    async def list(self, *, limit: int, cursor: str | None) -> tuple[list[ConversationRow], str | None]:
        """A page, the last written in first, and the cursor of the next. Raises InvalidInput.

        A page may be short, or empty, and yet have a next one: that is as far as was looked.
        """
        before = uuid_cursor(cursor)
        found = await store.list_conversations(self._database, before=before, walk=WALK, limit=limit)
        if len(found) == limit:
            return found, str(found[-1].request_id)
        until = await store.walked_until(self._database, before=before, walk=WALK)
        return found, None if until is None else str(until)

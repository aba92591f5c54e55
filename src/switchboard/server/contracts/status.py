"""The shapes of answers about the whole and about conversations. Next: `app/status.py`."""

from __future__ import annotations

from switchboard.app.messages.chat import ChatEntry
from switchboard.app.messages.conversations import ConversationRow
from switchboard.app.status import Status
from switchboard.server.contracts.base import ResponseBody

__all__ = ["Status"]


class ConversationPage(ResponseBody):
    """The last written in first; a page may be short and yet have a next one. On the last, `next_cursor` is null."""

    conversations: list[ConversationRow]
    next_cursor: str | None


class ConversationEntries(ResponseBody):
    """Newest first, each message with its replies. `next_cursor` is null on the last page."""

    entries: list[ChatEntry]
    next_cursor: str | None

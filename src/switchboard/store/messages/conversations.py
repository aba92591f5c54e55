"""Conversations by when something was last written in them. Called by `app/messages/conversations.py`; reads only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from switchboard.domain.ledger import MessagePlace
from switchboard.domain.shown import MessageState
from switchboard.store.database import Database, query, rows_as


@dataclass(frozen=True, slots=True)
class ConversationRow(MessagePlace):
    """A conversation, with the beginning of the last message that was written in it."""

    channel: str
    endpoint: str
    sender: str
    received_at: datetime
    text: str
    state: MessageState


async def list_conversations(
    database: Database, *, before: UUID | None, walk: int, limit: int
) -> list[ConversationRow]:
    """Those whose last message is among `walk` messages before an id, at most `limit`, newest first."""
    return rows_as(ConversationRow, await database.rows(query("conversations.list"), before, walk, limit))


async def walked_until(database: Database, *, before: UUID | None, walk: int) -> UUID | None:
    """The last of these messages; None: there are fewer, so everything was looked at."""
    found: UUID | None = await database.value(query("conversations.walked_until"), before, walk)
    return found

"""Turns that people want to end.

Called by `journey/accept.py` for the command `/stop`, by `app/messages/views.py` for one message, by
`app/messages/chat.py` for a conversation, and by `journey/stopping.py`, which tells the turns. Each function is one
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from switchboard.domain.ledger import Item, LaneKey
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.store.database import Database, query

Stopped = tuple[LaneKey, int]
"""A lane and a seq."""


async def stop_message(database: Database, request_id: UUID) -> list[Stopped]:
    """Mark the running turns of a message to end; returns them."""
    return [(row["lane"], row["seq"]) for row in await database.rows(query("stopping.message"), request_id)]


async def stop_earlier(database: Database, commands: Sequence[UUID]) -> list[Stopped]:
    """For each message, mark running turns for earlier messages of the same sender and conversation; returns them."""
    return [(row["lane"], row["seq"]) for row in await database.rows(query("stopping.earlier"), commands)]


async def stop_conversation(database: Database, conversation: Conversation) -> list[Stopped]:
    """Mark the running turns of a conversation to end; returns them."""
    rows = await database.rows(query("stopping.conversation"), conversation)
    return [(row["lane"], row["seq"]) for row in rows]


async def stopped_by(database: Database, command: UUID) -> list[SystemId]:
    """The butlers whose turns this message was to end."""
    return [SystemId(row["system_id"]) for row in await database.rows(query("stopping.by"), command)]


async def wake(database: Database, stopped: Sequence[Stopped]) -> bool:
    """Wake lanes that wait to retry an item marked to end. False: there are none."""
    return bool(await database.value(query("stopping.wake"), [lane for lane, _ in stopped]))


async def is_wanted(database: Database, item: Item) -> bool:
    """Whether this item must end."""
    return bool(await database.value(query("stopping.wanted"), item.lane, item.seq))

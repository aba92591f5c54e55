"""Which turns a person wants to end.

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
    """The turns of a message that have not ended are to end; which."""
    return [(row["lane"], row["seq"]) for row in await database.rows(query("stopping.message"), request_id)]


async def stop_earlier(database: Database, commands: Sequence[UUID]) -> list[Stopped]:
    """What runs for messages before each, of the same sender in the same conversation, is to end; which."""
    return [(row["lane"], row["seq"]) for row in await database.rows(query("stopping.earlier"), commands)]


async def stop_conversation(database: Database, conversation: Conversation) -> list[Stopped]:
    """What runs in a conversation is to end; which."""
    rows = await database.rows(query("stopping.conversation"), conversation)
    return [(row["lane"], row["seq"]) for row in rows]


async def stopped_by(database: Database, command: UUID) -> list[SystemId]:
    """The butlers whose turns this message was to end."""
    return [SystemId(row["system_id"]) for row in await database.rows(query("stopping.by"), command)]


async def wake(database: Database, stopped: Sequence[Stopped]) -> bool:
    """Let lanes continue that wait for another attempt at what is to end. False: there are none."""
    return bool(await database.value(query("stopping.wake"), [lane for lane, _ in stopped]))


async def is_wanted(database: Database, item: Item) -> bool:
    """Whether this item is to end."""
    return bool(await database.value(query("stopping.wanted"), item.lane, item.seq))

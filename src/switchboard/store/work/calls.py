"""How many calls of tools a caller has open. Called by `app/calls.py`, which submits them."""

from __future__ import annotations

from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.store.database import Database, query


async def count_open(database: Database, system_id: SystemId, conversation: Conversation) -> int:
    """The calls of this conversation of a butler that have not ended, those that wait for people included."""
    return int(await database.value(query("calls.open"), system_id, conversation) or 0)

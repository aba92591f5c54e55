"""Which turns a person wants to end.

Called by `journey/accept.py` for the command `/stop`, by `app/messages/intake.py` for one message, and by
`journey/stopping.py`, which tells the turns. Each function is one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from switchboard.domain.ledger import Item, LaneKey
from switchboard.store.database import Database, query

Stopped = tuple[LaneKey, int]
"""A lane and a seq."""


async def stop_message(database: Database, request_id: UUID) -> list[Stopped]:
    """The turns of a message that have not ended are to end; which."""
    return [(row["lane"], row["seq"]) for row in await database.rows(query("stopping.message"), request_id)]


async def stop_before(database: Database, request_id: UUID) -> list[Stopped]:
    """What runs for earlier messages of the same sender in the same conversation is to end; which."""
    return [(row["lane"], row["seq"]) for row in await database.rows(query("stopping.before"), request_id)]


async def wake(database: Database, stopped: Sequence[Stopped]) -> bool:
    """Let lanes go on that wait for another attempt at what is to end. False: there are none."""
    return bool(await database.value(query("stopping.wake"), [lane for lane, _ in stopped]))


async def is_wanted(database: Database, item: Item) -> bool:
    """Whether this item is to end."""
    return bool(await database.value(query("stopping.wanted"), item.lane, item.seq))

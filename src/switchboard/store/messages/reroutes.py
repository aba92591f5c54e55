"""Messages that a person sends to others than those who have them.

`app/messages/reroutes.py` reroutes; `journey/turn.py` asks whether an item was withdrawn before its turn. Each function
is one transaction. Next: `store/sql/functions/reroute_message.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from msgspec import Struct

from switchboard.core.text.storable import storable_text, to_storable_json
from switchboard.domain.ledger import Item, LaneKey
from switchboard.domain.routing import Decision
from switchboard.store.database import Database, query
from switchboard.store.messages.dead_letters import DeadLetterHandling, branch_columns

Withdrawn = tuple[LaneKey, int]
"""A lane and a seq."""


class MessageReroute(Struct, frozen=True):
    """Where a message goes, in place of whom (None: of all who have it), by whom and why.

    `again`: even if there is an answer already.
    """

    request_id: UUID
    instead_of: str | None
    again: bool
    decision: Decision
    tier: int
    handling: DeadLetterHandling


class RerouteOutcome(Struct, frozen=True):
    """What came of it: decision `n`, if any, and which items of which butlers were withdrawn."""

    state: Literal["rerouted", "undecided", "absent", "answered", "taken"]
    n: int | None = None
    systems: Sequence[str] = ()
    items: Sequence[Withdrawn] = ()


async def reroute_message(database: Database, wanted: MessageReroute) -> RerouteOutcome | None:
    """Make the further decision, and end what those who have the message have not done. None: no such message."""
    row = await database.row(
        query("reroutes.message"),
        wanted.request_id,
        wanted.instead_of,
        wanted.again,
        wanted.handling.by,
        storable_text(wanted.handling.resolution),
        wanted.decision.version,
        to_storable_json(wanted.decision.trail),
        wanted.tier,
        *branch_columns(wanted.decision),
    )
    if row is None:
        return None
    items = [(LaneKey(lane), seq) for lane, seq in zip(row["lanes"] or (), row["seqs"] or (), strict=True)]
    return RerouteOutcome(row["outcome"], row["n"], row["systems"] or (), items)


async def was_withdrawn(database: Database, item: Item) -> bool:
    """Whether a person has sent the message of this item to others before its turn."""
    return bool(await database.value(query("reroutes.withdrawn"), item.lane, item.seq))

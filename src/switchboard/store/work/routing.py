"""Messages waiting to be classified: load one, and settle its decision.

Called by `journey/classify.py` with a claimed item of a `route:` lane; `store/messages/inbox.py` has put it there. Each
function is one transaction. Next: the deliveries it makes are items of `turn:` lanes, see `store/work/lanes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.core.text.storable import storable_or_none, storable_text, to_storable_json
from switchboard.domain.ledger import Item
from switchboard.domain.routing import Decision, SystemId
from switchboard.domain.shown import ShownWaiting
from switchboard.store.database import Database, query, row_as, to_json
from switchboard.store.ids import new_uuid7
from switchboard.store.work.lanes import SettlementOutcome, TakenMessage

_MAX_REASON: Final = 2000


class WaitingMessage(TakenMessage, frozen=True):
    """A message to be decided now. `envelope` is JSON: a message that cannot be parsed is decided anyway."""

    pinned: SystemId | None
    facts: Mapping[str, str]
    envelope: str


class Routed(Struct, frozen=True):
    """The end of an item: its decision. `tier` is the message's; `hand_on`: the worker also wants the next item."""

    item: Item
    decision: Decision
    tier: int
    started_at: datetime
    hand_on: bool = True


async def load_route(database: Database, item: Item) -> WaitingMessage:
    """The message of an item. Raises `LookupError` if it has none."""
    waiting = row_as(WaitingMessage, await database.row(query("routing.load"), item.lane, item.seq))
    if waiting is None:
        raise LookupError(f"{item.lane} #{item.seq} is nowhere")
    return waiting


async def settle_route(database: Database, worker: int, routed: Routed) -> SettlementOutcome:
    """Store the decision with its deliveries and dead letters, and advance to the next item; or, fenced, nothing."""
    item, decision = routed.item, routed.decision
    row = await database.row(
        query("routing.settle"),
        *(worker, item.lane, item.epoch, item.seq, routed.hand_on, routed.started_at),
        *(decision.version, to_storable_json(decision.trail), routed.tier),
        *_delivery_columns(routed),
        *_unrouted_columns(decision),
        _parts(decision),
    )
    return SettlementOutcome(ok=row is not None and row["ok"], next_seq=None if row is None else row["next_seq"])


def _delivery_columns(routed: Routed) -> list[list[object]]:
    chosen = routed.decision.chosen
    return [
        [one.system_id for one in chosen],
        [one.team_id for one in chosen],
        [storable_or_none(one.segment) for one in chosen],
    ]


def _unrouted_columns(decision: Decision) -> list[list[object]]:
    lost = decision.unrouted
    return [
        [new_uuid7() for _ in lost],
        [one.team_id for one in lost],
        [one.category for one in lost],
        [storable_text(one.reason)[:_MAX_REASON] for one in lost],
        [one.handler for one in lost],
        [storable_or_none(one.segment) for one in lost],
    ]


def _parts(decision: Decision) -> str | None:
    """Which part of the text reached which team, as JSON; None if all received the whole."""
    return (
        to_json({team_id: storable_text(text) for team_id, text in decision.parts.items()}) if decision.parts else None
    )


async def any_waiting(database: Database) -> bool:
    """Whether any message is waiting to be classified."""
    return bool(await database.value(query("routing.any_waiting")))


async def waiting_of(database: Database, request_id: UUID) -> ShownWaiting | None:
    """Where this message waits or waited; None if it was decided at once."""
    return row_as(ShownWaiting, await database.row(query("routing.of_message"), request_id))


async def last_butler(database: Database, request_id: UUID) -> str | None:
    """Who was last given a message of the sender of this one, in its conversation before it."""
    found: str | None = await database.value(query("routing.last_butler"), request_id)
    return found

"""Questions to people while a turn waits, and their decisions.

`lanes/journal.py` asks, `journey/approving.py` tells the conversation and takes its commands, operators use
`app/approvals/service.py`. The first decision of an event stands: see `steps.decide`. Each function is one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from switchboard.core.text.storable import storable_json, storable_text
from switchboard.domain.ledger import Item, LaneKey
from switchboard.domain.message import Conversation
from switchboard.domain.shown import ApprovalState, ShownApproval
from switchboard.ports.engine import Ask, Pending, Turn
from switchboard.store.database import Database, part_as, query, row_as, rows_as, seconds
from switchboard.store.ids import new_uuid7
from switchboard.store.work.steps import StepWrite


async def ask(database: Database, worker: int, write: StepWrite, within: float, asked: Ask) -> bool:
    """Register that a step waits for people's decision. Repeating it changes nothing. False: fenced."""
    item, step = write.item, write.step
    return bool(
        await database.value(
            query("approvals.ask"),
            *(worker, item.lane, item.epoch, item.seq, write.request_id, step.path, step.idempotency_key),
            *(seconds(within), asked.kind, asked.tool, asked.effect, asked.risk, storable_json(dict(asked.arguments))),
            *(storable_text(asked.why), asked.digest, asked.readers),
        )
    )


async def list_approvals(
    database: Database, state: ApprovalState | None, below: tuple[datetime, UUID] | None, limit: int
) -> list[ShownApproval]:
    """Newest first; `below`: when the last request of the previous page was made, and its id."""
    rows = await database.rows(query("approvals.list"), state, *(below or (None, None)), limit)
    return rows_as(ShownApproval, rows)


async def get(database: Database, approval_id: UUID) -> ShownApproval | None:
    """One request, whatever its state."""
    return row_as(ShownApproval, await database.row(query("approvals.get"), approval_id))


async def of_message(database: Database, request_id: UUID) -> list[ShownApproval]:
    """The requests made by the turns of a message, in order."""
    return rows_as(ShownApproval, await database.rows(query("approvals.of_message"), request_id))


async def of_readers(database: Database, readers: str, ids: tuple[UUID, UUID], limit: int) -> list[ShownApproval]:
    """The requests that these readers may see in chat, within the given range of ids; undecided ones first."""
    return rows_as(ShownApproval, await database.rows(query("approvals.of_readers"), readers, *ids, limit))


async def asked_in(database: Database, conversation: Conversation, message: str) -> list[ShownApproval]:
    """The questions of one of our messages, by the platform's id of it."""
    return rows_as(
        ShownApproval, await database.rows(query("approvals.asked_in"), conversation, storable_text(message))
    )


async def untold(database: Database, item: Item) -> list[ShownApproval]:
    """The requests that a running item waits for, and of which its conversation has not been told."""
    return rows_as(ShownApproval, await database.rows(query("approvals.untold"), item.lane, item.seq))


class PressedReply(Struct, frozen=True):
    """A reply of Switchboard. `pressed`: the value of the button whose press it answers; None: it answers a message.

    `name`: what the person is called to whom it goes; may be empty.
    """

    outbox_id: UUID
    pressed: str | None
    name: str


class Told(Struct, frozen=True):
    """A request, the reply that tells of it, the lane of that reply, and who may read the request."""

    told_in: UUID
    told_lane: LaneKey
    readers: str
    asked: ShownApproval


async def presses_of(database: Database, replies: Sequence[UUID]) -> list[PressedReply]:
    """What these replies answer."""
    return rows_as(PressedReply, await database.rows(query("approvals.presses_of"), list(replies)))


async def told_with(database: Database, replies: Sequence[UUID], requests: Sequence[UUID]) -> list[Told]:
    """What these replies tell of, and what was told together with these requests."""
    rows = await database.rows(query("approvals.told_with"), list(replies), list(requests))
    return [Told(row["told_in"], row["told_lane"], row["readers"], part_as(ShownApproval, row)) for row in rows]


async def tell(database: Database, worker: int, item: Item, told: Sequence[UUID], text: str, pool: str | None) -> bool:
    """Tell the sender of a running item's message what it waits for. False: fenced, or told before."""
    fence = worker, item.lane, item.epoch, item.seq
    return bool(await database.value(query("approvals.tell"), *fence, list(told), new_uuid7(), text, pool))


class Open(Struct, frozen=True):
    """How many requests wait for people, and for how many seconds the oldest has waited."""

    approvals: int
    oldest_s: float


async def count(database: Database) -> Open:
    """Of the whole installation."""
    return row_as(Open, await database.row(query("approvals.count"))) or Open(0, 0.0)


class StoredApprovals(Struct, frozen=True):
    """`Approvals` in PostgreSQL."""

    database: Database

    async def pending(self, turn: Turn, readers: str, limit: int) -> Sequence[Pending]:
        """As in the port."""
        where = turn.member.system_id, turn.conversation, turn.request_id, readers
        rows = await self.database.rows(query("approvals.pending"), *where, limit)
        found = rows_as(ShownApproval, rows)
        return [Pending(one.approval_id, one.kind, one.tool, one.arguments, one.message) for one in found]

    async def count(self, turn: Turn) -> int:
        """As in the port."""
        found = await self.database.value(query("approvals.count_of"), turn.member.system_id, turn.conversation)
        return int(found)

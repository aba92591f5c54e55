"""One turn as its embedding program sees it: its outcome, and its lane, claimed for it alone.

Called by `turns/agent.py` over the pool of that program. Next: `store/work/lanes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from switchboard.domain.ledger import Item, LaneKey, ReplyFile
from switchboard.domain.message import RequestId
from switchboard.domain.routing import SystemId
from switchboard.ports.engine import ModelUsage
from switchboard.store.database import Database, each_as, query, row_as


class FoundDelivery(Struct, frozen=True):
    """The delivery of a message to a butler, and the error of its latest attempt.

    `delayed`: the next item in its lane, for this message or an earlier one, will be tried again later. `taken_over`:
    another process than the program that asked for the turn has ended it, or the latest attempt of it.
    """

    lane: LaneKey
    state: str
    delayed: bool
    error: str | None
    stop_reason: str | None
    usage: tuple[ModelUsage, ...]
    text: str | None
    files: tuple[ReplyFile, ...]
    taken_over: bool


async def find(database: Database, request_id: RequestId, system_id: SystemId) -> FoundDelivery | None:
    """The latest delivery of a message to this butler."""
    row = await database.row(query("embedded_turns.find"), request_id, system_id)
    if row is None:
        return None
    usage, files = each_as(ModelUsage, row["usage"]), each_as(ReplyFile, row["files"])
    return FoundDelivery(**{**row, "usage": usage, "files": files})


async def ask_anew(database: Database, program: int, before: int, turns: Sequence[RequestId]) -> None:
    """A program that has registered again (`before`: as which process until then) asks for these turns as before."""
    await database.run(query("embedded_turns.ask_anew"), program, before, list(turns))


async def claim_lane(database: Database, worker: int, lane: LaneKey) -> Item | None:
    """The next item of a lane, if the lane is free for this program and the item is due."""
    return row_as(Item, await database.row(query("embedded_turns.claim"), worker, lane))

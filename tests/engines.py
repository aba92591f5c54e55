"""What the tests of the engines share: turns without a database, and a server that a webhook can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from switchboard.domain.ledger import Item, LaneKey
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import Member, SystemId, TeamId
from switchboard.journey.turn import Engine, EngineFailure, Turn, TurnResult
from switchboard.lanes.journal import Journal
from switchboard.store.database import from_json, to_json
from switchboard.store.ids import new_uuid7
from switchboard.store.lanes import Effect, Step, Work
from tests.lab import envelope

ROOT = TeamId("root")
ITEM = Item(LaneKey("turn:System1/tool:api/x/y"), "turn", 2, 1, 1, 1)


# A turn without a database ----------------------------------------------------------------------------------------


class MemoryJournal(Journal):
    """The real journal with its rows in a dictionary, for engines that have no other business with the database."""

    def __init__(self, rows: dict[int, Step], item: Item = ITEM) -> None:
        self._item = item
        self._known = dict(rows)
        self._n = 0
        self._rows = rows

    async def _write(self, step: Step, _: Effect) -> None:
        self._rows[step.n] = replace(step, result=from_json(to_json(step.result)))


def a_turn(options: Mapping[str, Any], *, text: str = "hello", attempt: int = 1, notice: bool = False) -> Turn:
    member = Member(SystemId("System1/tool"), ROOT, 1, "tool", options)
    given = envelope(text, channel="api")
    dead_letter = {"category": "no_route", "reason": "nobody", "dead_letter_id": "x"} if notice else None
    work = Work(
        lane=ITEM.lane,
        seq=1,
        request_id=RequestId(new_uuid7()),
        conversation=Conversation("api/x/y"),
        system_id=member.system_id,
        team_id=ROOT,
        segment=0,
        envelope=given,
        received_at=datetime.now(UTC),
        dead_letter=dead_letter,
    )
    return Turn(work, member, attempt)


async def run(engine: Engine, options: Mapping[str, Any], **more: Any) -> TurnResult:
    return await engine.run(a_turn(options, **more), MemoryJournal({}))


async def failure(engine: Engine, options: Mapping[str, Any], **more: Any) -> EngineFailure:
    with pytest.raises(EngineFailure) as caught:
        await run(engine, options, **more)
    return caught.value

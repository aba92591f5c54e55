"""A worker that makes the calls of a calendar which messages ask for, until all have ended or it is killed.

python -m tests.acceptance.inviting_node DATABASE PLACE DAV_PORT

The text of a message is a tool and its arguments as JSON. Invitations are mailed at the desk of the worker.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.mail_desk import WorkerMailDesk
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.ports.engine import Answer, Journal, Turn, TurnResult
from tests.calendar_house import CalendarHouse, account_at, open_calendar_over, scope_of
from tests.dav_servers import DavServer
from tests.hands import at_work, settled
from tests.lab import TRUSTING, butler, lab, rule, team_of
from tests.waiting import eventually

TREE: Final = ((team_of(butler("secretary", "secretary")),), (rule("System1/secretary"),))


class Secretary:
    """Makes the call in a step, as a turn makes that of a model; what it would do counts as approved."""

    def __init__(self, house: CalendarHouse) -> None:
        self._house = house

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        tool, arguments = json.loads(turn.text)

        async def call(key: UUID) -> object:
            scope = replace(
                scope_of(key=key), turn=turn.request_id, conversation=f"{turn.member.system_id} {turn.conversation}"
            )
            return await self._house.done(tool, await self._house.approve(tool, scope, **arguments), **arguments)

        return Answer(json.dumps(await journal.step("call", call)))


async def work(url: str, place: Path, port: int) -> None:
    """A worker, until all have ended."""
    async with lab(url, *TREE, channels=TRUSTING) as parts:
        runtime = Runtime(Settings(data_dir=place), parts.database, parts.notifier, parts.rule_book, TRUSTING)
        desk = WorkerMailDesk(runtime, WorkerFrontDoor(runtime))
        opened = await open_calendar_over(parts.database, {"home": account_at(port, sends="mail")})
        house = CalendarHouse(replace(opened, desk=desk), DavServer("none", port, "", "", ""))
        async with at_work(parts.worker({"secretary": Secretary(house)}, ttl=1.0)):
            await eventually(lambda: settled(parts), within=60)


def main(arguments: Sequence[str]) -> None:
    """As the command line says."""
    url, place, port = arguments
    asyncio.run(work(url, Path(place), int(port)))

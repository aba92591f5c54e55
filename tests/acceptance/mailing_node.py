"""A worker whose butler has a mail sent for every message; it works until all have ended, or it is killed.

python -m tests.acceptance.mailing_node DATABASE PLACE SENDER RECIPIENT
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.mail_desk import WorkerMailDesk
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.ports.engine import Answer, Journal, Turn, TurnResult
from switchboard.ports.mail_desk import OutgoingMail
from switchboard.ports.tools import ToolScope
from tests.hands import at_work, settled
from tests.lab import TRUSTING, butler, lab, rule, team_of
from tests.waiting import eventually

TREE: Final = ((team_of(butler("writer", "writer")),), (rule("System1/writer"),))


class Writer:
    """Has the text of the message sent in a step, as a tool of a module does."""

    def __init__(self, desk: WorkerMailDesk, place: Path, sender: str, recipient: str) -> None:
        self._desk = desk
        self._place = place
        self._sender, self._recipient = sender, recipient

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        async def send(key: UUID) -> object:
            mail = OutgoingMail(
                key=f"email:{key}",
                sender=self._sender,
                to=(self._recipient,),
                subject=turn.text,
                text=turn.text,
            )
            scope = ToolScope(
                *(self._place, frozenset(), frozenset(), key, turn.request_id),
                conversation=f"{turn.member.system_id} {turn.conversation}",
            )
            return (await self._desk.queue(mail, scope)).message_id

        return Answer(str(await journal.step("send", send)))


async def work(url: str, place: Path, sender: str, recipient: str) -> None:
    """A worker, until all have ended."""
    async with lab(url, *TREE, channels=TRUSTING) as parts:
        runtime = Runtime(Settings(data_dir=place), parts.database, parts.notifier, parts.rule_book, TRUSTING)
        desk = WorkerMailDesk(runtime, WorkerFrontDoor(runtime))
        async with at_work(parts.worker({"writer": Writer(desk, place, sender, recipient)}, ttl=1.0)):
            await eventually(lambda: settled(parts), within=60)


def main(arguments: Sequence[str]) -> None:
    """As the command line says."""
    url, place, sender, recipient = arguments
    asyncio.run(work(url, Path(place), sender, recipient))

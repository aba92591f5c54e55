"""The engine `echo`: answers with the text it got. For trying out an installation, for tests and for benchmarks.

Options: `steps` journaled steps (default 0), each waiting `delay` seconds (default 0).
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from switchboard.journey.turn import Answer, NoReply, Turn, TurnResult
from switchboard.lanes.journal import Journal
from switchboard.store.database import Database


class Echo:
    """Says back what was said."""

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        options = turn.member.options
        delay = float(options.get("delay", 0))

        async def act(key: UUID) -> str:
            await asyncio.sleep(delay)
            return str(key)

        for n in range(int(options.get("steps", 0))):
            await journal.step(f"step {n + 1}", act)
        if turn.work.dead_letter is not None:
            return NoReply()
        return Answer(turn.work.envelope.payload.normalized_text)


def engine(_: Database) -> Echo:
    """Entry point of `switchboard.engines`."""
    return Echo()

"""The engine `echo`: answers with the text it received. For trying out an installation, for tests and for benchmarks.

Options: `steps` journaled steps (default 0), each waiting `delay` seconds (default 0).
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from switchboard.domain.routing import Member
from switchboard.ports.engine import Answer, EngineContext, EngineFailure, Journal, NoReply, Turn, TurnResult


class Echo:
    """Repeats the text of the message."""

    def check(self, member: Member) -> None:
        """Raises `EngineFailure` for an option that is not a number."""
        _steps_and_delay(member)

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn. Raises `EngineFailure`."""
        steps, delay = _steps_and_delay(turn.member)

        async def act(key: UUID) -> str:
            await asyncio.sleep(delay)
            return str(key)

        for n in range(steps):
            await journal.step(f"step {n + 1}", act)
        return Answer(turn.text) if turn.dead_letter is None else NoReply()


def _steps_and_delay(member: Member) -> tuple[int, float]:
    try:
        return int(member.options.get("steps", 0)), float(member.options.get("delay", 0))
    except (TypeError, ValueError) as error:
        message = f"the options of {member.system_id} are wrong: steps and delay are numbers: {error}"
        raise EngineFailure(message, error_class="validation", retryable=False) from error


def engine(_: EngineContext) -> Echo:
    """Entry point of `switchboard.engines`."""
    return Echo()

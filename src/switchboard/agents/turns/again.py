"""How a turn waits before it asks again, when all its models are unavailable.

`talk.py` and `agents/trio` pass `wait_for_models(turn)` with their requests, and the dispatcher calls it between two
rounds, when it holds no slot. A stop and a drain of the worker end the wait at once. Next: `llm/dispatch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from switchboard.agents.turns.requests import generated_tokens
from switchboard.domain.llm import Report
from switchboard.ports.engine import Turn
from switchboard.tasks import wait_at_most


def wait_for_models(turn: Turn, *, reserved: bool = False) -> Callable[[Report, float], Coroutine[Any, Any, bool]]:
    """Waits so many seconds, and returns whether all models are to be asked again.

    `reserved`: the step has reserved tokens for one answer; once some may have been generated, the next try is one of
    its own, with a reservation of its own.
    """

    async def again(report: Report, seconds: float) -> bool:
        if reserved and generated_tokens(report, 1):
            return False
        ends = [one for one in (turn.stop, turn.drain) if one is not None]
        await wait_at_most(seconds, *ends)
        return not any(one.is_set() for one in ends)

    return again


def request_name(turn: Turn, path: str) -> str:
    """What tells a request from all others: its butler, its message, the delivery of it, and its step."""
    return f"{turn.member.system_id} {turn.request_id} {turn.segment} {turn.place} {path}"

"""What a turn may use at most, and what it has used. Pure.

`loop.py` asks after every reply and every result. Next: `loop.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from switchboard.ports.engine import StopReason


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one turn may use. `seconds` of work, not of waiting; `micros` are micro-dollars, None: no limit.

    `repeats`: how many times in a row the same call may have the same result.
    """

    requests: int = 25
    tool_calls: int = 40
    tokens: int = 200_000
    seconds: float = 600.0
    repeats: int = 3
    micros: int | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """What a turn has used so far."""

    requests: int = 0
    tool_calls: int = 0
    tokens: int = 0
    micros: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """A call and its result, to be compared with others."""

    name: str
    arguments: str
    result: str


_PERIODS: Final = (1, 2)


def reached(limits: Limits, used: Used, done: Sequence[Done]) -> StopReason | None:
    """The limit at which a turn is. The last request is kept for the answer."""
    if used.seconds >= limits.seconds:
        return "limit:time"
    if limits.micros is not None and used.micros >= limits.micros:
        return "limit:money"
    if used.tokens >= limits.tokens:
        return "limit:tokens"
    if used.tool_calls >= limits.tool_calls:
        return "limit:tool_calls"
    if is_loop(done, limits.repeats):
        return "limit:repeats"
    return "limit:requests" if used.requests >= limits.requests - 1 else None


def is_loop(done: Sequence[Done], repeats: int) -> bool:
    """Whether the turn goes round in circles: A-A-A or A-B-A-B, for `repeats` 3; results that change are no loop."""
    return any(_repeats(done, period, max(2, repeats + 1 - period)) for period in _PERIODS)


def _repeats(done: Sequence[Done], period: int, times: int) -> bool:
    """Whether the last `period` calls were made `times` times one after the other."""
    length = period * times
    tail = done[-length:]
    return len(tail) == length and all(a == b for a, b in zip(tail, islice(tail, period, None), strict=False))

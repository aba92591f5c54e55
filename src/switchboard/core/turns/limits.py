"""The limits of a turn, and what it has used. Pure.

`loop.py` checks them after every reply and every result. Next: `loop.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

from switchboard.ports.engine import StopReason


class LoopLimits(Struct, frozen=True):
    """The most that one turn may use. `seconds` of work, not of waiting; `micros` are micro-dollars, None: no limit.

    `repeats`: how many times in a row the same call may have the same result. `generated`: tokens that models may
    write in all requests together, None: as many as `tokens`; no request reserves more than is left.
    """

    requests: int = 25
    tool_calls: int = 40
    tokens: int = 200_000
    seconds: float = 600.0
    repeats: int = 3
    micros: int | None = None
    generated: int | None = None


class TurnUsage(Struct, frozen=True):
    """What a turn has used so far."""

    requests: int = 0
    tool_calls: int = 0
    tokens: int = 0
    micros: int = 0
    seconds: float = 0.0
    generated: int = 0


class CompletedCall(Struct, frozen=True):
    """A call and its result, for comparison with others. `ok`: it worked."""

    name: str
    arguments: str
    result: str
    ok: bool = False


_PERIODS: Final = (1, 2)
_LEAST: Final = 400
"""The part of the tokens that may be generated that is kept for the answer."""


def find_reached_limit(limits: LoopLimits, used: TurnUsage, done: Sequence[CompletedCall]) -> StopReason | None:
    """The limit that a turn has reached, if any. The last request is kept for the answer."""
    if used.seconds >= limits.seconds:
        return "limit:time"
    if limits.micros is not None and used.micros >= limits.micros:
        return "limit:money"
    if used.tokens >= limits.tokens or (limits.generated is not None and limits.generated - used.generated < _LEAST):
        return "limit:tokens"
    if used.tool_calls >= limits.tool_calls:
        return "limit:tool_calls"
    if is_loop(done, limits.repeats):
        return "limit:repeats"
    return "limit:requests" if used.requests >= limits.requests - 1 else None


def may_generate(limits: LoopLimits, used: TurnUsage, most: int, *, last: bool) -> int:
    """The tokens that the next request may generate: `most`, or half of what is left if less; if `last`, all of it."""
    if limits.generated is None:
        return most
    left = max(limits.generated - used.generated, 1)
    return min(most, left if last else max(left // 2, 1))


def is_loop(done: Sequence[CompletedCall], repeats: int) -> bool:
    """Whether the turn goes round in circles: A-A-A or A-B-A-B, for `repeats` 3. If results change, it is no loop."""
    return any(_repeats(done, period, max(2, repeats + 1 - period)) for period in _PERIODS)


def _repeats(done: Sequence[CompletedCall], period: int, times: int) -> bool:
    """Whether the last `period` calls were made `times` times in succession."""
    length = period * times
    tail = done[-length:]
    return len(tail) == length and all(a == b for a, b in zip(tail, islice(tail, period, None), strict=False))

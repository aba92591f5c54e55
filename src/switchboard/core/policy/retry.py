"""When to try again.

Called by `journey/turn.py` and `journey/reply.py` with the number of the failed attempt; returns seconds. Pure: the
jitter is passed in.
"""

from __future__ import annotations


def backoff(attempt: int, *, base: float = 1.0, cap: float = 300.0, jitter: float = 0.5) -> float:
    """Seconds to wait after the failed `attempt` (from 1): base, 2 base, 4 base … at most `cap`.

    `jitter` in [0, 1) spreads the wait over its upper half, so that joint failures are not retried together.
    """
    full = min(cap, base * 2.0 ** min(attempt - 1, 30))
    return full / 2 + full / 2 * jitter

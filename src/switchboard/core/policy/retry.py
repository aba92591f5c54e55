"""When to try again.

Called by `journey/turn.py` and `journey/reply.py` with the number of the failed attempt; returns seconds. Pure: the
jitter is passed in.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard.domain.numbers import Count, Limit, Positive


def backoff(attempt: int, *, base: float = 1.0, cap: float = 300.0, jitter: float = 0.5) -> float:
    """Seconds to wait after the failed `attempt` (from 1): base, 2 base, 4 base … at most `cap`.

    `jitter` in [0, 1) spreads the wait over its upper half, so that joint failures are not retried together.
    """
    full = min(cap, base * 2.0 ** min(attempt - 1, 30))
    return full / 2 + full / 2 * jitter


class TurnSettings(Struct, frozen=True):
    """`[turn]` of the settings: attempts of one delivery (lost workers count), seconds for one, backoff in seconds.

    `sender_tokens_per_day`: what models may use for the turns of one sender at one endpoint, 0 for no limit; the owners
    of a butler have none. `reply_files`: how many files a reply has at most, each of at most `reply_file_bytes`.
    """

    attempts: Count = 5
    timeout: Positive = 300.0
    backoff_base: Positive = 1.0
    backoff_cap: Positive = 300.0
    sender_tokens_per_day: Limit = 5_000_000
    reply_files: Count = 10
    reply_file_bytes: Count = 52_428_800


class OutagePolicy(Struct, frozen=True):
    """Waiting times in seconds during an outage that affects all messages. `told`: when to tell the sender."""

    least: float = 5.0
    most: float = 300.0
    told: float = 60.0
    given_up: float = 6 * 3600.0


def outage_pause(policy: OutagePolicy, elapsed: float, retry_after: float | None, *, jitter: float) -> float:
    """Seconds until the next try, `elapsed` after the first: as long as the outage has lasted, within the limits.

    Never beyond the moment for telling the sender; never before the end of a pause that the other side asked for.
    `jitter` in [0, 1) adds up to a tenth.
    """
    pause = min(max(elapsed, policy.least), policy.most)
    if elapsed < policy.told:
        pause = min(pause, max(policy.told - elapsed, policy.least))
    return max(pause, retry_after or 0.0) * (1.0 + jitter / 10)

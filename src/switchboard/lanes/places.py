"""The slots of a worker: how many items of each pool and tier it may claim now, and whose turn it is.

Pure; called by `worker.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from switchboard.core.policy.shares import NO_CREDIT, shares
from switchboard.domain.ledger import Flow

Quota = Mapping[str, tuple[int, ...]]
"""Slots per tier, by pool."""
_REMEMBERED: Final = 100
"""Endpoints of a pool and tier; one that is forgotten continues with any of its senders."""


class Places:
    """Each running item has a slot of its pool; free slots go to the tiers by weight, so that none starves."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._free = Counter(sizes)
        self._credit = dict.fromkeys(sizes, NO_CREDIT)

    def take(self, pool: str) -> None:
        """An item of this pool starts."""
        self._free[pool] -= 1

    def give_back(self, pool: str) -> bool:
        """An item ends. Returns whether the pool was full, so that others may be waiting for the slot."""
        was_full = self._free[pool] <= 0
        self._free[pool] += 1
        return was_full

    def deal(self) -> Quota:
        """The free slots of each pool, distributed to the tiers; pools without any are omitted."""
        dealt = {}
        for pool, free in self._free.items():
            if free > 0:
                dealt[pool], self._credit[pool] = shares(self._credit[pool], free)
        return dealt


class Turns:
    """The last served flow of each endpoint: endpoints take turns, and so do the senders of each."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, int], dict[int, Flow]] = {}

    def take(self, pool: str, tier: int, flow: Flow) -> None:
        """An item of this flow was claimed."""
        served = self._served.setdefault((pool, tier), {})
        served.pop(flow >> 32, None)  # ordered by last turn
        served[flow >> 32] = flow
        if len(served) > _REMEMBERED:
            del served[next(iter(served))]

    def served_flows(self, quota: Quota) -> Iterator[tuple[str, int, Flow]]:
        """Pool, tier and flow for the next claims, the most recent last."""
        for (pool, tier), flows in self._served.items():
            if pool in quota:
                yield from ((pool, tier, flow) for flow in flows.values())


def used_up(quota: Quota, claimed: Iterable[tuple[str, int]]) -> bool:
    """Whether some pool is now full, and may have more work than it had slots for."""
    taken = Counter(pool for pool, _ in claimed)
    return any(taken[pool] == sum(places) for pool, places in quota.items())

"""How free slots are shared among tiers: weighted, and no tier ever starves.

Smooth weighted round robin: each slot goes to the tier with the most credit. `lanes/worker.py` keeps the credit.
"""

from __future__ import annotations

from typing import Final

WEIGHTS: Final = (8, 4, 2, 1, 1)
"""high_priority, interactive, default, passive, and late messages; see `tiers.py`."""

NO_CREDIT: Final = (0,) * len(WEIGHTS)


def shares(credit: tuple[int, ...], places: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Distribute `places`: returns (slots per tier, the new credit). Of 16 slots, each tier gets its weight."""
    left = list(credit)
    dealt = [0] * len(WEIGHTS)
    for _ in range(places):
        left = [c + w for c, w in zip(left, WEIGHTS, strict=True)]
        tier = left.index(max(left))
        left[tier] -= sum(WEIGHTS)
        dealt[tier] += 1
    return tuple(dealt), tuple(left)

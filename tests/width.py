"""How wide a test with many rounds is: as `make random` wants it, or a sample, which `make test` is content with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import cycle, islice, product
from typing import Final, TypeVar

_One = TypeVar("_One")
_Other = TypeVar("_Other")

WIDE: Final = os.environ.get("HYPOTHESIS_PROFILE") in {"asked", "wide"}


def wide(rounds: int, sample: int) -> int:
    """So many rounds: all of them in `make random`, else the sample."""
    return rounds if WIDE else sample


def pairs(some: Sequence[_One], others: Iterable[_Other], first: int = 0) -> list[tuple[_One, _Other]]:
    """Each of some with each of the others in `make random`; else each of the others with one of some, in turn.

    `first`: the place of the one that the first of the others is with, so that in another round they are with another.
    """
    return list(product(some, others)) if WIDE else list(zip(islice(cycle(some), first, None), others, strict=False))

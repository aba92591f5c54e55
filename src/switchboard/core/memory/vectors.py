"""Vectors as plain numbers, without numpy: packed at length one, and compared. Pure.

`llm/remote_embedder.py` packs what a server answers; `doctor` compares what is stored with what the model makes today.
In: numbers; out: a `Vector`, a cosine. Next: `nearest.py`, for many at once.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Sequence
from typing import Final

from switchboard.ports.embedder import Vector

_ALIKE: Final = 0.99
"""The cosine of two vectors of one text by one model is higher: half precision, batches and the threads of a graphics
card make differences below 0.001. Other weights, and often also other quantisations, are lower."""


def pack_vector(numbers: Sequence[float]) -> Vector:
    """The vector in this direction with length one. Raises ValueError without a direction: zeros, NaN, infinity."""
    length = math.hypot(*numbers)
    if not (math.isfinite(length) and length > 0):
        raise ValueError("a vector without a direction")
    return Vector(_little_endian(array("f", (number / length for number in numbers))).tobytes())


def cosine_of(one: Vector, other: Vector) -> float:
    """Raises ValueError for vectors of different models."""
    return math.fsum(a * b for a, b in zip(_numbers_of(one), _numbers_of(other), strict=True))


def count_changed(stored: Sequence[Vector], fresh: Sequence[Vector]) -> int:
    """How many stored vectors are not what the model makes of the same texts today."""
    pairs = zip(stored, fresh, strict=True)
    return sum(len(old) != len(new) or cosine_of(old, new) < _ALIKE for old, new in pairs)


def _numbers_of(vector: Vector) -> array[float]:
    return _little_endian(array("f", vector))


def _little_endian(numbers: array[float]) -> array[float]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers

"""The nearest of many vectors, exactly, where the database cannot compare them. Pure.

It imports numpy, which comes with the extra `memory`, so it is imported late. In: vectors of one model; out: places and
cosines. Next: `relevance.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from switchboard.ports.embedder import Vector


def find_nearest(query: Vector, vectors: Sequence[Vector], most: int) -> list[tuple[int, float]]:
    """The places of at most so many vectors, with their cosines, the nearest first; of equal ones the first.

    Raises ValueError if one has another number of dimensions than the question.
    """
    if any(len(vector) != len(query) for vector in vectors):
        raise ValueError("these are vectors of different models")
    if not vectors:
        return []
    cosines = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1) @ np.frombuffer(
        query, dtype="<f4"
    )
    places = np.argsort(-cosines, kind="stable")[:most]
    return [(int(place), float(cosines[place])) for place in places]

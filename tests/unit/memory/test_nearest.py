"""The nearest vectors, beside a loop over all of them."""

from __future__ import annotations

from array import array
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.ports.embedder import Vector

if find_spec("numpy") is None:
    pytest.skip("numpy is not installed: it comes with the extra `memory`", allow_module_level=True)

from switchboard.core.memory.nearest import find_nearest

FLOATS = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=3, max_size=3)


def vector(floats: list[float]) -> Vector:
    return Vector(array("f", floats).tobytes())


@given(FLOATS, st.lists(FLOATS, max_size=9), st.integers(0, 10))
def test_the_nearest_are_those_of_a_loop_the_first_of_equals(
    asked: list[float], rows: list[list[float]], most: int
) -> None:
    cosines = [(place, sum(a * b for a, b in zip(asked, row, strict=True))) for place, row in enumerate(rows)]
    expected = sorted(cosines, key=lambda one: (-one[1], one[0]))[:most]
    assert find_nearest(vector(asked), [vector(row) for row in rows], most) == expected


def test_vectors_of_another_model_are_refused() -> None:
    with pytest.raises(ValueError, match="different models"):
        find_nearest(vector([1.0, 0.0, 0.0]), [vector([1.0, 0.0, 0.0]), vector([1.0] * 6)], 1)

"""Vectors without numpy: of length one, compared, and found to be those of other weights."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.memory.vectors import cosine_of, count_changed, pack_vector

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40).filter(lambda given: math.hypot(*given) > 1e-3)


@given(NUMBERS)
def test_a_vector_keeps_its_direction_and_has_length_one(numbers: list[float]) -> None:
    vector = pack_vector(numbers)
    assert len(vector) == 4 * len(numbers)
    assert cosine_of(vector, vector) == pytest.approx(1, abs=1e-5)
    assert cosine_of(vector, pack_vector([3 * one for one in numbers])) == pytest.approx(1, abs=1e-5)
    assert cosine_of(vector, pack_vector([-one for one in numbers])) == pytest.approx(-1, abs=1e-5)


@pytest.mark.parametrize("numbers", [[], [0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]])
def test_what_has_no_direction_is_no_vector(numbers: list[float]) -> None:
    with pytest.raises(ValueError, match="without a direction"):
        pack_vector(numbers)


def test_stored_vectors_of_other_weights_are_counted() -> None:
    stored = [pack_vector([1.0, 0.0, 0.0]) for _ in range(4)]
    fresh = [
        pack_vector([1.0, 0.0, 0.0]),
        pack_vector([1.0, 0.01, 0.0]),  # rounded
        pack_vector([1.0, 0.5, 0.0]),
        pack_vector([1.0, 0.0]),
    ]
    assert [count_changed([old], [new]) for old, new in zip(stored, fresh, strict=True)] == [0, 0, 1, 1]
    assert count_changed(stored, fresh) == 2

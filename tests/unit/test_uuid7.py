"""`core/uuid7.py` against RFC 9562, and its impure edge `store/ids.py`."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.uuid7 import MAX_MS, first_uuid7, next_uuid7s, uuid7_ms
from switchboard.store.ids import IdSequence, new_uuid7

LAST = UUID("ffffffff-ffff-7fff-bfff-ffffffffffff")


def next_uuid7(previous: UUID | None, now_ms: int, random_bits: int) -> UUID:
    [following] = next_uuid7s(previous, now_ms, [random_bits])
    return UUID(bytes=following)


def test_the_vector_of_rfc_9562_appendix_a_6() -> None:
    random_bits = 0xCC3 << 62 | 0x18C4DC0C0C07398F
    made = next_uuid7(None, 1645557742000, random_bits)
    assert made == UUID("017F22E2-79B0-7CC3-98C4-DC0C0C07398F")
    assert uuid7_ms(made) == 1645557742000


@given(st.integers(), st.integers(0))
def test_version_and_variant_are_set_whatever_comes_in(now_ms: int, random_bits: int) -> None:
    made = next_uuid7(None, now_ms, random_bits)
    assert (made.version, made.variant) == (7, RFC_4122)
    assert uuid7_ms(made) == min(max(now_ms, 0), MAX_MS)


@given(st.lists(st.tuples(st.integers(-5, 2**45), st.integers(0, 2**74 - 1)), max_size=50))
def test_ids_only_grow_whatever_the_clock_does(readings: list[tuple[int, int]]) -> None:
    previous: UUID | None = None
    for now_ms, random_bits in readings:
        made = next_uuid7(previous, now_ms, random_bits)
        assert previous is None or (made > previous and made.bytes > previous.bytes and str(made) > str(previous))
        assert made.version == 7
        previous = made


@given(st.integers(-5, 2**45), st.integers(-5, 2**45), st.lists(st.integers(0, 2**80), max_size=20))
def test_many_at_once_are_the_same_as_one_after_the_other(first_ms: int, now_ms: int, dice: list[int]) -> None:
    first = next_uuid7(None, first_ms, 0)
    expected, previous = [], first
    for bits in dice:
        previous = next_uuid7(previous, now_ms, bits)
        expected.append(previous.bytes)
    assert next_uuid7s(first, now_ms, dice) == expected


def test_those_that_are_made_together_follow_those_made_alone() -> None:
    ids = IdSequence()
    made = [id_ for count in (1, 3, 0, 1, 2) for id_ in ids.next(count)]
    assert len(made) == 7
    assert made == sorted(set(made))


def test_they_tell_the_time_that_is_given() -> None:
    assert [uuid7_ms(one) for one in IdSequence().next(2, 1700000000.125)] == [1700000000125] * 2


def test_a_sequence_whose_clock_was_wrong_tells_the_right_time_again() -> None:
    """By more than clocks are apart: until then a server would date messages by a month that may have no partition."""
    ids = IdSequence()
    wrong, right = 1900000000.0, 1700000000.0
    assert [uuid7_ms(*ids.next(1, at)) for at in (right, wrong, right)] == [at * 1000 for at in (right, wrong, right)]
    assert [uuid7_ms(one) for one in ids.next(2, right - 20)] == [right * 1000] * 2, "a little: they only grow"


def test_a_clock_that_stands_still_changes_only_the_random_part() -> None:
    first = next_uuid7(None, 1000, 5)
    second = next_uuid7(first, 1000, 0)
    assert uuid7_ms(second) == 1000
    assert second.int - first.int == 1


def test_a_clock_that_moves_on_brings_fresh_bits() -> None:
    assert next_uuid7(next_uuid7(None, 1000, 2**74 - 1), 1001, 3) == next_uuid7(None, 1001, 3)


def test_a_clock_that_runs_backward_keeps_the_later_time() -> None:
    first = next_uuid7(None, 1000, 7)
    second = next_uuid7(first, 10, 0)
    assert second > first
    assert uuid7_ms(second) == 1000


def test_a_carry_goes_from_rand_b_into_rand_a() -> None:
    first = next_uuid7(None, 1000, 2**62 - 1)
    assert next_uuid7(first, 1000, 0) == next_uuid7(None, 1000, 2**62)


def test_an_overflow_carries_into_the_timestamp() -> None:
    first = next_uuid7(None, 1000, 2**74 - 1)
    second = next_uuid7(first, 1000, 0)
    assert uuid7_ms(second) == 1001
    assert second == next_uuid7(None, 1001, 0)


def test_after_the_last_id_there_is_none() -> None:
    assert next_uuid7(None, MAX_MS, 2**74 - 1) == LAST
    with pytest.raises(OverflowError):
        next_uuid7(LAST, 0, 0)


def test_one_thread_gets_ids_in_order() -> None:
    made = [new_uuid7() for _ in range(5000)]
    assert made == sorted(set(made))


def test_threads_never_share_an_id() -> None:
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda _: [new_uuid7() for _ in range(1000)], range(8)))
    made = [one for batch in batches for one in batch]
    assert len(set(made)) == len(made)
    assert all(batch == sorted(batch) for batch in batches)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_after_a_fork_parent_and_child_go_separate_ways() -> None:
    before = new_uuid7()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"".join(new_uuid7().bytes for _ in range(100)))
        os._exit(0)
    parents = {new_uuid7() for _ in range(100)}
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    children = [UUID(bytes=data[at : at + 16]) for at in range(0, len(data), 16)]
    assert len(set(children)) == 100
    assert not parents & set(children)
    # Fresh bits: within the same millisecond a child that counted on would be a small step away from the parent's last.
    assert uuid7_ms(children[0]) > uuid7_ms(before) or abs(children[0].int - before.int) > 2**40


@given(st.integers(0, 250_000_000_000_000), st.integers(0))
def test_no_id_of_a_moment_is_below_its_first_and_none_before_it_above(now_ms: int, random_bits: int) -> None:
    first = first_uuid7(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=now_ms))
    assert first < next_uuid7(None, now_ms, random_bits)
    assert now_ms == 0 or next_uuid7(None, now_ms - 1, random_bits) < first

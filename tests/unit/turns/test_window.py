"""Where a history starts: laws that hold for every length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.turns.window import STRIDE, WINDOW, due, shortened, window_start
from switchboard.ports.history import Entry, EntryCall


@given(last=st.integers(0, 5000), added=st.integers(1, 6))
def test_a_later_history_extends_the_earlier_unless_the_start_moved_by_20(last: int, added: int) -> None:
    before, after = window_start(last), window_start(last + added)
    assert after - before in (0, STRIDE)
    earlier, later = list(range(before + 1, last + 1)), list(range(after + 1, last + added + 1))
    assert len(later) <= WINDOW
    assert later[: len(earlier)] == earlier or after == before + STRIDE


@given(last=st.integers(0, 5000), compacted=st.integers(0, 250))
def test_what_was_compacted_is_hidden_and_no_history_lacks_its_last_entry(last: int, compacted: int) -> None:
    start = window_start(last, min(compacted * STRIDE, last // STRIDE * STRIDE))
    assert min(compacted * STRIDE, last // STRIDE * STRIDE) <= start <= last
    assert start % STRIDE == 0
    assert last - start <= WINDOW


def test_a_history_of_40_is_whole_and_the_next_one_starts_after_the_20th() -> None:
    assert [window_start(last) for last in (0, 1, 40, 41, 60, 61)] == [0, 0, 0, 20, 20, 40]
    assert [due(39, 0), due(40, 0), due(59, 20), due(60, 20)] == [False, True, False, True]


@given(st.text(max_size=3000), st.text(max_size=3000))
def test_of_a_call_both_sides_are_cut_and_neither_is_lost(arguments: str, result: str) -> None:
    entry = Entry("assistant", "x" * 5000, calls=(EntryCall("1", "read_file", arguments, result, ok=False),))
    [call] = shortened(entry).calls
    assert (call.arguments, call.result) == (arguments[:1000], result[:1000])
    assert (call.id, call.name, call.ok, shortened(entry).text) == ("1", "read_file", False, entry.text)

"""How fast parts go out, compared with counting; how far a cursor moves, compared with looking at all events."""

from __future__ import annotations

import itertools
from math import inf, isfinite
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.connectors.kernel.limits import Brake, Limiter, pause_after
from switchboard.connectors.kernel.progress import UnsettledBatches
from switchboard.ports.connector import Capabilities

CHAT = Capabilities(text_limit=10, per_account_s=0.05, per_conversation_s=1.0, per_group=(3, 60.0))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 5)), max_size=60), st.booleans())
def test_no_limit_is_ever_broken(wishes: list[tuple[str, float]], group: bool) -> None:
    limiter, now = Limiter(CHAT), 0.0
    sent: list[tuple[str, float]] = []
    for conversation, pause in wishes:
        now += pause
        now += limiter.wait(conversation, now, group=group)
        assert limiter.wait(conversation, now + 1e-6, group=group) == 0.0
        limiter.sent(conversation, now, group=group)
        sent.append((conversation, now))
    times = [at for _, at in sent]
    assert all(later - earlier >= 0.05 - 1e-6 for earlier, later in itertools.pairwise(times))
    for name in "abc":
        mine = [at for conversation, at in sent if conversation == name]
        assert all(later - earlier >= 1 - 1e-6 for earlier, later in itertools.pairwise(mine))
        if group:
            assert all(later - earlier >= 60 - 1e-6 for earlier, later in zip(mine, mine[3:], strict=False))


def test_what_the_platform_asks_for_is_obeyed_there_and_account_wide() -> None:
    limiter = Limiter(CHAT)
    limiter.later("a", 40.0, 100.0)
    assert (limiter.wait("a", 110.0), limiter.wait("b", 110.0)) == (30.0, 0.0)
    limiter.pause_account(5.0, 110.0)
    assert (limiter.wait("b", 111.0), limiter.paused_s(111.0), limiter.paused_s(116.0)) == (4.0, 4.0, 0.0)


@given(st.lists(st.floats(0, 200), min_size=1, max_size=60))
def test_one_sender_gets_at_most_so_many_replies_in_the_time(pauses: list[float]) -> None:
    brake, now, replies = Brake(10, 600.0), 0.0, list[float]()
    for number, pause in enumerate(pauses):
        now += pause
        wait = brake.wait("a", str(number), now)
        if isfinite(wait):
            now += wait
            brake.note_sent_reply("a", str(number), now)
            replies.append(now)
    assert all(later - earlier >= 600 - 1e-6 for earlier, later in zip(replies, replies[10:], strict=False))
    assert brake.wait("b", "x", now) == 0.0


def test_a_reply_that_is_tried_again_counts_once() -> None:
    brake = Brake(2, 600.0)
    for now in range(5):
        assert brake.wait("a", "1", now) == 0.0
        brake.note_sent_reply("a", "1", now)
    assert brake.wait("a", "2", 5.0) == 0.0


def test_two_programs_answering_each_other_stop_after_one_more_reply() -> None:
    brake, now = Brake(4, 600.0), 0.0
    for reply in "1234":
        assert brake.wait("a", reply, now) == 0.0
        brake.note_sent_reply("a", reply, now)
        now += 1.0
    assert brake.wait("a", "5", now) == 599.0
    assert brake.wait("a", "5", now + 598.0) == 1.0
    now += 599.0
    assert brake.wait("a", "5", now) == 0.0
    brake.note_sent_reply("a", "5", now)
    assert [brake.wait("a", str(reply), now + reply) for reply in range(6, 20)] == [inf] * 14
    brake.note_stopped_reply("7")
    assert brake.wait("a", "7", now + 60.0) == 0.0
    assert brake.wait("a", "8", now + 60.0) == inf
    for reply in "5678":
        assert brake.wait("a", reply, now + 3600.0) == 0.0
        brake.note_sent_reply("a", reply, now + 3600.0)


def test_a_person_who_writes_every_few_minutes_does_not_feel_it() -> None:
    brake = Brake(4, 600.0)
    for reply in range(100):
        assert brake.wait("a", str(reply), reply * 155.0) == 0.0
        brake.note_sent_reply("a", str(reply), reply * 155.0)


@pytest.mark.parametrize(
    ("failures", "asked", "least", "most"), [(1, None, 0.5, 1.0), (30, None, 15.0, 30.0), (30, 0.1, 0.1, 0.12)]
)
def test_the_switchboard_is_asked_again(failures: int, asked: float | None, least: float, most: float) -> None:
    assert least <= pause_after(failures, asked, 0.0) <= pause_after(failures, asked, 0.99) <= most


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_cursor_is_that_of_the_last_batch_before_anything_open(sizes: list[int], order: Random) -> None:
    progress, events = UnsettledBatches(), list[int]()
    numbers = [progress.received(size, f"c{index}") for index, size in enumerate(sizes)]
    for number, size in zip(numbers, sizes, strict=True):
        events += [number] * size
    order.shuffle(events)
    cursor = progress.advance()
    for count, number in enumerate(events):
        progress.settle_event(number)
        cursor = progress.advance() or cursor
        rest = events[count + 1 :]
        done = [index for index, one in enumerate(numbers) if all(some not in rest for some in numbers[: index + 1])]
        assert cursor == (f"c{done[-1]}" if done else None)


def test_a_batch_without_a_cursor_keeps_the_last_and_nothing_settles_twice() -> None:
    progress = UnsettledBatches()
    first, second = progress.received(1, "a"), progress.received(1, None)
    progress.settle_event(second)
    assert progress.advance() is None
    with pytest.raises(ValueError, match="settled already"):
        progress.settle_event(second)
    progress.settle_event(first)
    assert progress.advance() == "a"

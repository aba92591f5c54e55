"""Natural batching: what arrives during a commit shares the next one, and nobody pays for another's mistake."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchboard.domain.errors import Unavailable
from switchboard.lanes.batch import BatchWriter
from tests.waiting import SOON, eventually


class Ledger:
    """Doubles numbers; commits when `gate` is open; refuses negative ones; is away when `down`."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.commits: list[list[int]] = []
        self.down = False

    async def write(self, asks: Sequence[int]) -> list[int]:
        self.commits.append(list(asks))
        await self.gate.wait()
        if self.down:
            raise Unavailable("away")
        if any(ask < 0 for ask in asks):
            raise ValueError(f"{min(asks)} is refused")
        return [ask * 2 for ask in asks]


async def test_one_alone_is_written_at_once() -> None:
    ledger = Ledger()
    assert await BatchWriter(ledger.write).put(1) == 2
    assert ledger.commits == [[1]]


async def test_what_arrives_during_a_commit_shares_the_next_one() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    batch = BatchWriter(ledger.write)
    asks = [asyncio.create_task(batch.put(n)) for n in range(1)]
    await eventually(lambda: _is(ledger.commits == [[0]]))
    asks += [asyncio.create_task(batch.put(n)) for n in range(1, 6)]
    await eventually(lambda: _is(len(batch) == 5))
    ledger.gate.set()
    assert await asyncio.gather(*asks) == [0, 2, 4, 6, 8, 10]
    assert ledger.commits == [[0], [1, 2, 3, 4, 5]]


async def test_no_commit_is_larger_than_the_most() -> None:
    ledger = Ledger()
    assert await BatchWriter(ledger.write, most=3).put_all(range(8)) == [n * 2 for n in range(8)]
    assert ledger.commits == [[0, 1, 2], [3, 4, 5], [6, 7]]


async def test_two_writers_commit_side_by_side() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    batch = BatchWriter(ledger.write, writers=2)
    asks = []
    for n in range(2):
        asks.append(asyncio.create_task(batch.put(n)))
        await eventually(lambda: _is(len(batch) == 0 and len(ledger.commits) == len(asks)))
    asks.append(asyncio.create_task(batch.put(2)))
    await eventually(lambda: _is(len(batch) == 1))
    assert ledger.commits == [[0], [1]]
    ledger.gate.set()
    assert await asyncio.gather(*asks) == [0, 2, 4]


async def test_one_bad_row_costs_nothing_else() -> None:
    ledger = Ledger()
    answers = await BatchWriter(ledger.write).put_all([1, -2, 3])
    assert answers[0] == 2
    assert answers[2] == 6
    assert isinstance(answers[1], ValueError)
    assert ledger.commits == [[1, -2, 3], [1], [-2], [3]]


async def test_an_outage_is_told_to_all_and_the_batch_lives_on() -> None:
    ledger = Ledger()
    ledger.down = True
    batch = BatchWriter(ledger.write)
    answers = await batch.put_all([1, 2])
    assert [type(a) for a in answers] == [Unavailable, Unavailable]
    assert ledger.commits == [[1, 2]], "an outage is no reason to try once for each"
    ledger.down = False
    assert await batch.put(3) == 6


async def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    batch = BatchWriter(ledger.write)
    asks = [asyncio.create_task(batch.put(n)) for n in range(4)]
    await eventually(lambda: _is(len(ledger.commits) == 1))
    asks[0].cancel()
    asks[2].cancel()
    await asyncio.wait([asks[0], asks[2]])
    ledger.gate.set()
    assert [await asks[1], await asks[3]] == [2, 6]
    assert sorted(n for commit in ledger.commits for n in commit) == [0, 1, 2, 3], "what was handed in is written"
    assert await batch.put(5) == 10


async def test_a_write_that_forgets_an_answer_strands_and_misleads_nobody() -> None:
    async def forgetful(asks: Sequence[int]) -> list[int]:
        return [ask * 2 for ask in asks if ask != 1]

    async with asyncio.timeout(SOON):
        answers = await BatchWriter(forgetful).put_all([0, 1, 2])
    assert (answers[0], answers[2]) == (0, 4)
    assert isinstance(answers[1], ValueError)


async def test_a_cancelled_write_cancels_those_who_asked() -> None:
    async def cancelled(_: Sequence[int]) -> list[int]:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await BatchWriter(cancelled).put(1)


class Keyed:
    """Writes words; each commit waits for its own gate. The key of a word is its first letter."""

    def __init__(self, least: int = 1) -> None:
        self.commits: list[tuple[list[str], asyncio.Event]] = []
        self.batch: BatchWriter[str, str] = BatchWriter(
            self.write, most=4, least=least, writers=2, key=lambda word: word[0]
        )
        self.calls: list[asyncio.Task[Sequence[str | BaseException]]] = []

    async def write(self, asks: Sequence[str]) -> list[str]:
        self.commits.append((list(asks), asyncio.Event()))
        await self.commits[-1][1].wait()
        return list(asks)

    async def hand_in(self, *words: str) -> None:
        self.calls.append(asyncio.create_task(self.batch.put_all(words)))
        await _come_round()

    async def finish(self, n: int) -> None:
        self.commits[n][1].set()
        await _come_round()

    @property
    def written(self) -> list[list[str]]:
        return [asks for asks, _ in self.commits]


async def test_what_has_the_same_key_is_never_written_at_the_same_time() -> None:
    keyed = Keyed()
    await keyed.hand_in("a1", "b1")
    await keyed.hand_in("b2")
    await keyed.hand_in("c1")  # it could, but would overtake
    assert keyed.written == [["a1", "b1"]]
    await keyed.finish(0)
    assert keyed.written == [["a1", "b1"], ["b2", "c1"]]
    await keyed.hand_in("d1")
    assert keyed.written[2:] == [["d1"]]
    await keyed.hand_in("d2")
    await keyed.finish(1)
    assert keyed.written[3:] == []
    await keyed.finish(2)
    assert keyed.written[3:] == [["d2"]]
    await keyed.finish(3)
    assert [await call for call in keyed.calls] == [["a1", "b1"], ["b2"], ["c1"], ["d1"], ["d2"]]


async def test_what_joins_a_batch_is_written_with_it_while_it_waits_and_has_room() -> None:
    commits: list[list[str]] = []

    async def write(asks: Sequence[str]) -> list[str]:
        commits.append(list(asks))
        await _come_round()
        return [ask.upper() for ask in asks]

    batch: BatchWriter[str, str] = BatchWriter(write, most=3)
    first = batch.hand_in("a")
    assert batch.join(first, "b")
    await _come_round()
    assert not batch.join(first, "c"), "it is on its way"
    second, third = batch.hand_in("c"), batch.hand_in("d")
    assert batch.join(second, "e")
    assert batch.join(second, "f")
    assert not batch.join(second, "g"), "it is full"
    assert len(batch) == 4
    assert [await group.outcomes for group in (first, second, third)] == [["A", "B"], ["C", "E", "F"], ["D"]]
    assert commits == [["a", "b"], ["c", "e", "f"], ["d"]]
    assert len(batch) == 0
    keyed = Keyed()
    assert not keyed.batch.join(keyed.batch.hand_in("a1"), "a2"), "what has a key waits for its own turn"
    await _come_round()
    await keyed.finish(0)


async def test_few_wait_for_company_beside_a_commit_that_is_under_way() -> None:
    keyed = Keyed(least=3)
    await keyed.hand_in("a1")
    await keyed.hand_in("b1")
    await keyed.hand_in("c1")
    assert keyed.written == [["a1"]]
    await keyed.hand_in("d1")
    assert keyed.written == [["a1"], ["b1", "c1", "d1"]]
    await keyed.hand_in("e1")
    await keyed.finish(1)
    assert keyed.written[2:] == []
    await keyed.finish(0)
    assert keyed.written[2:] == [["e1"]]
    await keyed.finish(2)
    assert [await call for call in keyed.calls] == [["a1"], ["b1"], ["c1"], ["d1"], ["e1"]]


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), max_size=12),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(0, 2**32),
)
def test_however_calls_and_commits_interleave_each_key_keeps_its_order(
    calls: list[list[str]], most: int, least: int, seed: int
) -> None:
    dice = random.Random(seed)
    written: list[tuple[str, int]] = []
    at_work: list[str] = []

    async def write(asks: Sequence[tuple[str, int]]) -> list[int]:
        keys = {key for key, _ in asks}
        assert keys.isdisjoint(at_work)
        at_work.extend(keys)
        for _ in range(dice.randrange(5)):
            await asyncio.sleep(0)
        written.extend(asks)
        for key in keys:
            at_work.remove(key)
        return [n for _, n in asks]

    async def run() -> None:
        batch: BatchWriter[tuple[str, int], int] = BatchWriter(
            write, most=most, least=least, writers=2, key=lambda ask: ask[0]
        )
        count = itertools.count()
        numbered = [[(key, next(count)) for key in call] for call in calls]
        waiting = []
        for call in numbered:
            waiting.append(asyncio.create_task(batch.put_all(call)))
            for _ in range(dice.randrange(1, 4)):
                await asyncio.sleep(0)
        assert await asyncio.gather(*waiting) == [[n for _, n in call] for call in numbered]
        assert len(batch) == 0

    asyncio.run(run())
    assert len(written) == sum(map(len, calls))
    for key in "abcd":
        numbers = [n for of, n in written if of == key]
        assert numbers == sorted(numbers)


async def _come_round() -> None:
    """Until everything that can run has run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def _is(condition: bool) -> bool:
    return condition

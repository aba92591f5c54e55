"""Natural batching: what arrives during a commit shares the next one, and nobody pays for another's mistake."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from switchboard.domain.errors import Unavailable
from switchboard.lanes.batch import Batch
from tests.waiting import eventually


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
    assert await Batch(ledger.write).put(1) == 2
    assert ledger.commits == [[1]]


async def test_what_arrives_during_a_commit_shares_the_next_one() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    batch = Batch(ledger.write)
    asks = [asyncio.create_task(batch.put(n)) for n in range(1)]
    await eventually(lambda: _is(ledger.commits == [[0]]))
    asks += [asyncio.create_task(batch.put(n)) for n in range(1, 6)]
    await eventually(lambda: _is(len(batch) == 5))
    ledger.gate.set()
    assert await asyncio.gather(*asks) == [0, 2, 4, 6, 8, 10]
    assert ledger.commits == [[0], [1, 2, 3, 4, 5]]


async def test_no_commit_is_larger_than_the_most() -> None:
    ledger = Ledger()
    assert await Batch(ledger.write, most=3).put_all(range(8)) == [n * 2 for n in range(8)]
    assert ledger.commits == [[0, 1, 2], [3, 4, 5], [6, 7]]


async def test_two_writers_commit_side_by_side() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    batch = Batch(ledger.write, writers=2)
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
    answers = await Batch(ledger.write).put_all([1, -2, 3])
    assert answers[0] == 2
    assert answers[2] == 6
    assert isinstance(answers[1], ValueError)
    assert ledger.commits == [[1, -2, 3], [1], [-2], [3]]


async def test_an_outage_is_told_to_all_and_the_batch_lives_on() -> None:
    ledger = Ledger()
    ledger.down = True
    batch = Batch(ledger.write)
    answers = await batch.put_all([1, 2])
    assert [type(a) for a in answers] == [Unavailable, Unavailable]
    assert ledger.commits == [[1, 2]], "an outage is no reason to knock at the door once for each"
    ledger.down = False
    assert await batch.put(3) == 6


async def test_whoever_stops_waiting_spoils_nothing_for_the_others() -> None:
    ledger = Ledger()
    ledger.gate.clear()
    batch = Batch(ledger.write)
    asks = [asyncio.create_task(batch.put(n)) for n in range(4)]
    await eventually(lambda: _is(len(ledger.commits) == 1))
    asks[0].cancel()
    asks[2].cancel()
    await asyncio.wait([asks[0], asks[2]])
    ledger.gate.set()
    assert [await asks[1], await asks[3]] == [2, 6]
    assert sorted(n for commit in ledger.commits for n in commit) == [0, 1, 2, 3], "what was handed in is written"
    assert await batch.put(5) == 10


async def test_a_write_that_forgets_an_answer_leaves_nobody_waiting_and_answers_nobody_wrongly() -> None:
    async def forgetful(asks: Sequence[int]) -> list[int]:
        return [ask * 2 for ask in asks if ask != 1]

    async with asyncio.timeout(2):
        answers = await Batch(forgetful).put_all([0, 1, 2])
    assert (answers[0], answers[2]) == (0, 4)
    assert isinstance(answers[1], ValueError)


async def test_a_cancelled_write_cancels_those_who_asked() -> None:
    async def cancelled(_: Sequence[int]) -> list[int]:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Batch(cancelled).put(1)


async def _is(condition: bool) -> bool:
    return condition

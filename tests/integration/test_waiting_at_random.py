"""Waiting, timers, retries, dying workers in one lane, in random order: each item ends once, none overtakes unasked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from msgspec.structs import replace

from switchboard.domain.ledger import Item
from switchboard.lanes.journal import StoredJournal
from switchboard.lanes.waiting import resume
from switchboard.ports.engine import Fenced, Parked
from switchboard.store.work import lanes
from tests.hands import Hand, a_hand, assert_balanced, rescue
from tests.integration.test_waiting import journal_of
from tests.lab import Lab, lab, submission
from tests.waiting import eventually

Held = tuple[Hand, Item]
_STEPS = 120


@dataclass
class World:
    """One lane. `waited`: items that may be overtaken."""

    parts: Lab
    stack: AsyncExitStack
    dice: random.Random
    hand: Hand | None = None
    running: Held | None = None
    lost: list[Held] = field(default_factory=list)
    keys: dict[UUID, int] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    waited: set[int] = field(default_factory=set)
    count: int = 0

    async def send(self) -> None:
        self.count += 1
        await self.parts.accept.accept(submission(str(self.count), sender="s", channel="api"))

    async def defer(self) -> None:
        await self.send()
        self.waited.add(self.count)
        sql = (
            "select defer_item(l.key, l.last_seq, now() + $1::text::interval)"
            " from (select key, last_seq from lane where kind = 'turn' for update) l"
        )
        await self.parts.database.run(sql, self.dice.choice(["-1 s", "1 h"]))

    async def claim(self) -> None:
        if self.hand is None:
            self.hand = await self.stack.enter_async_context(a_hand(self.parts.database))
        for item in await self.hand.claim():
            assert self.running is None, "one at a time"
            assert item.seq not in self.ended
            self.running = self.hand, item

    async def answer(self) -> None:
        if held := self.let_go():
            hand, item = held
            settled = await hand.answer(item, hand_on=self.dice.random() < 0.5)
            assert settled.ok
            self.ended.append(item.seq)
            if settled.next_seq is not None:
                self.running = hand, replace(item, seq=settled.next_seq, attempts=1)

    async def fail(self) -> None:
        if held := self.let_go():
            hand, item = held
            assert await hand.fail(item, delay=self.dice.choice([0.0, 0.0, 3600.0]))

    async def keep(self) -> None:
        if self.running is not None:
            hand, item = self.running
            assert await lanes.keep(self.parts.database, hand.worker, item, 1800.0) is not None

    async def park(self) -> None:
        if self.running is None:
            return
        hand, item = self.running
        self.waited.add(item.seq)
        journal, path = await journal_of(hand, item), self.dice.choice("abcdef")
        key = await journal.expect(path)
        self.keys[key] = item.seq
        if self.dice.random() < 0.2:
            await self.decide_one(key)
        if keys := await open_events(journal, path):
            if self.dice.random() < 0.3:
                await self.decide_one(self.dice.choice(keys))
            assert await hand.steps.park(item, keys)
            self.let_go()

    async def decide(self) -> None:
        if waiting := [key for key, seq in self.keys.items() if seq not in self.ended]:
            await self.decide_one(self.dice.choice(waiting))

    async def decide_one(self, key: UUID) -> None:
        await resume(self.parts.database, self.parts.notifier, key, 1)

    async def die(self) -> None:
        if self.hand is None:
            return
        hand, self.hand = self.hand, None
        if self.dice.random() < 0.5:
            await lanes.release_worker(self.parts.database, hand.worker)
        else:
            await hand.die()
            await eventually(lambda: self._struck_off(hand))
        self.let_go()

    async def _struck_off(self, hand: Hand) -> bool:
        await rescue(self.parts.database)
        return bool(await self.parts.count("select count(*) = 0 from process where process_id = $1", hand.worker))

    async def zombie(self) -> None:
        """A worker that lost an item tries to work on it, to wait in it, to end, to repeat and to park it."""
        if self.lost:
            hand, item = self.dice.choice(self.lost)
            assert not (await hand.answer(item)).ok
            assert not await hand.fail(item)
            assert not await hand.steps.park(item, [])
            assert await lanes.keep(self.parts.database, hand.worker, item, 1800.0) is None
            journal = await journal_of(hand, item)
            with pytest.raises(Fenced):
                await journal.expect("zombie")
            with pytest.raises(Fenced):
                await journal.step("acts", never, effect="effectful")

    async def time(self) -> None:
        """Retries are due, and some of the timers."""
        await self.parts.database.run("update parked set due_at = now() where due_at is not null and random() < 0.5")
        await self.parts.database.run("update lane set ready_at = now(), head_ready_at = now() where state = 'ready'")
        await rescue(self.parts.database)

    def let_go(self) -> Held | None:
        held, self.running = self.running, None
        if held is not None:
            self.lost.append(held)
        return held

    async def finish(self) -> None:
        await self.claim()
        await self.answer()
        if self.running is None:
            await self.decide()
            await self.time()


async def never(_: UUID) -> None:
    raise AssertionError("a worker that is fenced does not act")


async def open_events(journal: StoredJournal, path: str) -> Sequence[UUID]:
    """What the attempt would be parked for if it waited for this now."""
    try:
        await journal.wait(path)
    except Parked as parked:
        return parked.keys
    return ()


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_comes_in_between_each_item_of_a_lane_ends_once(database_url: str, seed: int) -> None:
    async with lab(database_url) as parts, AsyncExitStack() as stack:
        world = World(parts, stack, random.Random(seed))
        await world.send()
        often = (world.claim, world.answer, world.park, world.decide, world.zombie)
        rarely = (world.send, world.defer, world.claim, world.fail, world.die, world.time, world.keep)
        for n in range(_STEPS):
            await world.dice.choice(often + often + rarely)()
            if n % 10 == 0:
                await assert_balanced(parts)
        for _ in range(100 * world.count):
            if len(world.ended) == world.count:
                break
            await world.finish()
        assert sorted(world.ended) == list(range(1, world.count + 1))
        plain = [seq for seq in world.ended if seq not in world.waited]
        assert plain == sorted(plain)
        await assert_balanced(parts)
        columns = "select parked, resumed_seq, done_seq, state from lane where kind = 'turn'"
        assert tuple(await parts.database.row(columns) or ()) == (0, None, world.count, "idle")
        assert await parts.count("select count(*) from parked") == 0

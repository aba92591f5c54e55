"""A lane with a shell is offered to the worker that has it, for a moment; nobody waits longer, and nobody else waits.

Time does not pass here by itself: `later` moves the lanes back by what an offer lasts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest

from switchboard.domain.ledger import Item, LaneKey
from switchboard.journey.turn import TurnLimits
from switchboard.lanes.kinds import KINDS
from switchboard.lanes.waiting import resume
from switchboard.ports.sandbox import SandboxRules
from switchboard.ports.tools import Kept
from switchboard.sandbox.run import Sandbox
from switchboard.store.work import deltas, lanes
from switchboard.store.work.embedded_turns import claim_lane
from switchboard.testing.scripted_llm import ScriptedLlm
from switchboard.tools.bash import Bash
from tests.asking import spec
from tests.hands import Hand, a_hand, assert_balanced, at_work, rescue, settled
from tests.integration.test_waiting import journal_of
from tests.lab import Lab, butler, lab, rule, submission, team_of
from tests.obeying import obedient
from tests.turning import Asked, model_engine
from tests.waiting import eventually

HALF_AN_HOUR = 1800.0


async def write(parts: Lab, sender: str = "ann", text: str = "hi") -> UUID:
    return (await parts.accept.accept(submission(text, sender=sender, channel="api"))).request_id


async def keep(hand: Hand, item: Item) -> Kept:
    kept = await lanes.keep(hand.database, hand.worker, item, HALF_AN_HOUR)
    assert kept is not None
    return kept


async def later(parts: Lab) -> None:
    await parts.database.run("update lane set ready_at = ready_at - interval '2 s' where state = 'ready'")


async def all_of(hand: Hand) -> list[Item]:
    return await hand.claim(0, 0, 64, 0)


async def a_kept_lane(parts: Lab, keeper: Hand) -> LaneKey:
    """An idle one."""
    await write(parts)
    [item] = await all_of(keeper)
    await keep(keeper, item)
    assert (await keeper.answer(item)).ok
    return item.lane


async def test_others_pass_over_it_for_a_moment(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as keeper, a_hand(parts.database) as other:
        lane = await a_kept_lane(parts, keeper)
        await write(parts)
        assert await all_of(other) == []
        [item] = await all_of(keeper)
        assert item.lane == lane
        assert (await keeper.answer(item)).ok
        await write(parts)
        await later(parts)
        assert [one.lane for one in await all_of(other)] == [lane]
        await assert_balanced(parts)


@pytest.mark.parametrize("how", ["killed", "left"])
async def test_nobody_waits_for_a_keeper_that_has_ended(database_url: str, how: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as keeper, a_hand(parts.database) as other:
        lane = await a_kept_lane(parts, keeper)
        await write(parts)
        assert await all_of(other) == []
        if how == "left":
            await lanes.release_worker(parts.database, keeper.worker)
        else:
            await keeper.die()
            await eventually(lambda: struck_off(parts, keeper))
        assert [one.lane for one in await all_of(other)] == [lane]


async def struck_off(parts: Lab, hand: Hand) -> bool:
    await rescue(parts.database)
    return bool(await parts.count("select count(*) = 0 from process where process_id = $1", hand.worker))


async def test_it_is_offered_for_as_long_as_it_is_kept(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as keeper, a_hand(parts.database) as other:
        lane = await a_kept_lane(parts, keeper)
        await parts.database.run("update lane set kept_until = now()")
        await write(parts)
        assert [one.lane for one in await all_of(other)] == [lane]


async def test_who_was_the_keeper_before_is_told(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as one, a_hand(parts.database) as two:
        await write(parts)
        [item] = await all_of(one)
        assert await keep(one, item) == Kept(None, one.worker)
        assert await keep(one, item) == Kept(one.worker, one.worker)
        assert await lanes.keep(parts.database, two.worker, item, HALF_AN_HOUR) is None
        assert (await one.answer(item)).ok
        assert await lanes.keep(parts.database, one.worker, item, HALF_AN_HOUR) is None
        await write(parts)
        await later(parts)
        [item] = await all_of(two)
        assert await keep(two, item) == Kept(one.worker, two.worker)


async def test_it_goes_before_nobody_and_waits_for_its_keeper_meanwhile(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as keeper, a_hand(parts.database) as other:
        kept = await a_kept_lane(parts, keeper)
        for sender in ("ann", "ben", "cid"):
            await write(parts, sender)
        first, served = set[bool](), list[tuple[str, int, int]]()
        while len(first) < 2:
            [item] = await lanes.claim(parts.database, keeper.worker, tuple(KINDS), {"work": (0, 0, 1)}, served)
            served = [("work", 2, item.flow)]
            first.add(item.lane == kept)
            if item.lane != kept:
                others = await all_of(other)
                assert len(others) == 1
                assert kept not in {one.lane for one in others}
                for one in others:
                    await other.fail(one)
            await keeper.fail(item)


Step = Callable[[Lab, Hand, Item], Awaitable[object]]


async def _answered_with_more(parts: Lab, hand: Hand, item: Item) -> None:
    await write(parts)
    assert (await hand.answer(item)).ok


async def _failed(_: Lab, hand: Hand, item: Item) -> None:
    assert await hand.fail(item)


async def _parked(parts: Lab, hand: Hand, item: Item) -> None:
    key = await (await journal_of(hand, item)).expect("step")
    assert await hand.steps.park(item, [key])
    await resume(parts.database, parts.notifier, key, 1)


async def _parked_with_more(parts: Lab, hand: Hand, item: Item) -> None:
    key = await (await journal_of(hand, item)).expect("step")
    await write(parts)
    assert await hand.steps.park(item, [key])


@pytest.mark.parametrize("ends", [_answered_with_more, _failed, _parked, _parked_with_more])
async def test_however_a_turn_ends_what_comes_next_is_offered(database_url: str, ends: Step) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as keeper, a_hand(parts.database) as other:
        await write(parts)
        [item] = await all_of(keeper)
        await keep(keeper, item)
        await ends(parts, keeper, item)
        assert await all_of(other) == []
        [after] = await all_of(keeper)
        assert after.lane == item.lane


async def test_what_is_offered_has_not_begun(database_url: str) -> None:
    """A stop leaves it alone, and no reader is told of a failed attempt; after a failed one both are otherwise."""
    async with lab(database_url) as parts, a_hand(parts.database) as keeper:
        await a_kept_lane(parts, keeper)
        request_id = await write(parts)
        stop = "select count(*) from stop_conversation((select conversation from lane where kind = 'turn'))"
        assert (await deltas.look(parts.database, request_id)).waiting == {}
        assert await parts.count(stop) == 0
        [item] = await all_of(keeper)
        assert await keeper.fail(item, delay=60)
        assert (await deltas.look(parts.database, request_id)).waiting == {"System1/echo": ("hand", "internal")}
        await parts.database.run("update lane set attempts = 0")  # as of an outage, which counts as none
        assert await parts.count(stop) == 1


async def test_a_program_that_waits_for_its_answer_does_not_wait_for_a_keeper(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as keeper, a_hand(parts.database) as program:
        lane = await a_kept_lane(parts, keeper)
        await write(parts)
        assert await claim_lane(parts.database, program.worker, lane) is not None


# Against an oracle ----------------------------------------------------------------------------------------------------


@dataclass
class Known:
    """What the oracle knows of a lane: `kept` by whom, and whether `offered` since it is ready."""

    waiting: int = 0
    keeper: int | None = None
    kept: bool = False
    running: tuple[Hand, Item] | None = None
    offered: bool = False
    parked: list[UUID] = field(default_factory=list)

    def ready(self) -> None:
        self.offered = self.kept

    def is_for(self, worker: int, alive: set[int]) -> bool:
        free = not (self.offered and self.kept) or self.keeper == worker or self.keeper not in alive
        return self.waiting > 0 and self.running is None and free


class World:
    """Lanes by sender, and workers that come and go."""

    def __init__(self, parts: Lab, stack: AsyncExitStack, dice: random.Random) -> None:
        self.parts, self.stack, self.dice = parts, stack, dice
        self.lanes = {f"s{n}": Known() for n in range(6)}
        self.names: dict[LaneKey, str] = {}
        self.hands: list[Hand] = []

    @property
    def alive(self) -> set[int]:
        return {hand.worker for hand in self.hands}

    def one(self, *, running: bool) -> Known | None:
        found = [known for known in self.lanes.values() if (known.running is not None) is running]
        return self.dice.choice(found) if found else None

    async def hire(self) -> None:
        if len(self.hands) < 3:
            self.hands.append(await self.stack.enter_async_context(a_hand(self.parts.database)))

    async def send(self) -> None:
        sender = self.dice.choice([*self.lanes])
        await write(self.parts, sender)
        known = self.lanes[sender]
        if known.waiting == 0 and known.running is None:
            known.ready()
        known.waiting += 1
        sql = (
            "select l.key from lane l join conversation c using (conversation) where l.kind = 'turn' and c.name like $1"
        )
        self.names[LaneKey(await self.parts.database.value(sql, f"%{sender}"))] = sender

    async def claim(self) -> None:
        hand, places = self.dice.choice(self.hands), self.dice.choice([1, 2, 64, 64])
        # An offer must not end while we look at it.
        open_ = [key for key, sender in self.names.items() if self.lanes[sender].offered]
        fresh = "update lane set ready_at = now() where key = any($1) and state = 'ready' and ready_at <= now()"
        await self.parts.database.run(fresh, open_)
        expected = {key for key, sender in self.names.items() if self.lanes[sender].is_for(hand.worker, self.alive)}
        items = await hand.claim(0, 0, places, 0)
        assert len(items) == min(places, len(expected))
        assert {item.lane for item in items} <= expected
        for item in items:
            known = self.lanes[self.names[item.lane]]
            known.running, known.waiting = (hand, item), known.waiting - 1

    async def keep(self) -> None:
        if (known := self.one(running=True)) and known.running:
            assert await keep(*known.running) == Kept(known.keeper, known.running[0].worker)
            known.keeper, known.kept = known.running[0].worker, True

    async def answer(self) -> None:
        if (known := self.one(running=True)) and known.running:
            (hand, item), known.running = known.running, None
            assert (await hand.answer(item)).ok
            known.ready()

    async def fail(self) -> None:
        if (known := self.one(running=True)) and known.running:
            (hand, item), known.running = known.running, None
            assert await hand.fail(item)
            known.waiting += 1
            known.ready()

    async def park(self) -> None:
        if (known := self.one(running=True)) and known.running:
            (hand, item), known.running = known.running, None
            known.parked.append(await (await journal_of(hand, item)).expect("step"))
            assert await hand.steps.park(item, known.parked[-1:])
            known.ready()

    async def decide(self) -> None:
        for known in self.lanes.values():
            if known.parked and known.running is None and not known.waiting:
                await resume(self.parts.database, self.parts.notifier, known.parked.pop(), 1)
                known.waiting += 1
                known.ready()
                return

    async def time(self) -> None:
        """All offers are over."""
        await later(self.parts)
        for known in self.lanes.values():
            known.offered = False

    async def expire(self) -> None:
        if known := self.one(running=False):
            key = next((key for key, sender in self.names.items() if self.lanes[sender] is known), None)
            await self.parts.database.run("update lane set kept_until = now() where key = $1", key)
            known.kept = False

    async def die(self) -> None:
        if len(self.hands) > 1:
            hand = self.hands.pop(self.dice.randrange(len(self.hands)))
            await hand.die()
            await eventually(lambda: struck_off(self.parts, hand))
            for known in self.lanes.values():
                if known.running and known.running[0] is hand:
                    known.running, known.waiting, known.offered = None, known.waiting + 1, False


@pytest.mark.parametrize("seed", range(2))
async def test_random_steps_agree_with_an_oracle(database_url: str, seed: int) -> None:
    async with lab(database_url) as parts, AsyncExitStack() as stack:
        world = World(parts, stack, random.Random(seed))
        await world.hire()
        steps = (world.claim, world.claim, world.claim, world.send, world.send, world.keep, world.keep, world.answer)
        rarely = (world.hire, world.fail, world.park, world.decide, world.time, world.expire, world.die)
        for _ in range(150):
            await world.dice.choice(steps + steps + rarely)()
        await assert_balanced(parts)


# With shells ----------------------------------------------------------------------------------------------------------


TEAM = team_of(butler("clerk", "model", owners=["api:ann"]))
RULES = [rule("System1/clerk")]


async def test_a_shell_that_was_left_behind_is_not_used_again(database_url: str, tmp_path: Path) -> None:
    """The conversation goes from one worker to the other and back: the first shell knows nothing of the second."""
    sandbox = Sandbox(SandboxRules())
    if lacking := await sandbox.lacking():
        pytest.skip(lacking)
    shells = [Bash(sandbox), Bash(sandbox)]
    async with ScriptedLlm(obedient) as llm, lab(database_url, [TEAM], RULES) as parts:
        models = Asked([spec("openai", llm.url, "m")])
        engines = [model_engine(models, (shell,), workspaces=tmp_path) for shell in shells]

        async def said(engine: int, command: str) -> str:
            limits = TurnLimits(attempts=1, timeout=60)
            async with at_work(parts.worker({"model": engines[engine]}, limits=limits)):
                request_id = await write(parts, text=f'call bash with {{"command": "{command}"}}')
                await eventually(lambda: settled(parts))
            sql = "select result ->> 'text' from step where request_id = $1 and path like 'tool:%'"
            return str(await parts.database.value(sql, request_id))

        new = "a new session: nothing is set that was set before\n"
        assert await said(0, "x=first") == f"{new}exit code 0, in /workspace"
        assert await said(0, "echo $x") == "exit code 0, in /workspace\nfirst"  # under another number
        assert await said(1, "x=second") == f"{new}exit code 0, in /workspace"
        assert await said(0, "echo $x") == f"{new}exit code 0, in /workspace"
        await asyncio.gather(*(shell.close() for shell in shells), models.aclose())

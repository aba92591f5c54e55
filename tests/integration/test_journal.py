"""The journal: what was done is never done again, what may have happened is never repeated blindly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal
from uuid import UUID, uuid5

import pytest
from msgspec.structs import replace

from switchboard.domain.ledger import Item, LaneKey
from switchboard.domain.message import RequestId
from switchboard.journey.turn import TurnLimits
from switchboard.lanes.journal import StoredJournal, keys_of
from switchboard.ports import engine as port
from switchboard.ports.engine import (
    NOT_DONE,
    Answer,
    Costed,
    Effect,
    EngineFailure,
    Fenced,
    OutcomeUnknown,
    StepFailed,
    Turn,
    TurnResult,
)
from switchboard.store.work.steps import load_steps
from tests.hands import Hand, Scripted, a_hand, all_dead_letters, assert_balanced, at_work, settled
from tests.lab import Lab, lab, submission
from tests.waiting import SOON, eventually

LIMITS = TurnLimits(attempts=3, timeout=10, backoff_base=0.02, backoff_cap=0.05)


class World:
    """Where steps have their effects, and what it can be asked."""

    def __init__(self) -> None:
        self.effects: list[UUID] = []
        self.asked: list[UUID] = []
        self.dies_after_effect = False
        self.dies_before_effect = False

    async def act(self, key: UUID) -> dict[str, str]:
        if self.dies_before_effect:
            raise ConnectionError("before")
        self.effects.append(key)
        if self.dies_after_effect:
            raise ConnectionError("after")
        return {"key": str(key)}

    async def ask(self, key: UUID) -> object:
        self.asked.append(key)
        return {"found": str(key)} if key in self.effects else NOT_DONE


async def request_of(hand: Hand) -> RequestId:
    return RequestId(await hand.database.value("select request_id from delivery order by seq limit 1"))


async def begin(parts: Lab, hand: Hand) -> tuple[Item, StoredJournal]:
    await parts.accept.accept(submission("x", channel="api"))
    [item] = await hand.claim()
    return item, await StoredJournal.open(hand.steps, item, await request_of(hand))


async def resume(hand: Hand, item: Item) -> tuple[Item, StoredJournal]:
    """The next attempt, as after a crash."""
    assert await hand.fail(item)
    [again] = await hand.claim()
    assert (again.lane, again.seq) == (item.lane, item.seq)
    return again, await StoredJournal.open(hand.steps, again, await request_of(hand))


@pytest.mark.parametrize("effect", ["idempotent", "queryable", "effectful"])
async def test_a_step_that_is_done_is_replayed_and_never_run_again(
    database_url: str, effect: Literal["idempotent", "queryable", "effectful"]
) -> None:
    world = World()
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        item, journal = await begin(parts, hand)
        first = [await journal.step(f"s{n}", world.act, effect=effect) for n in range(3)]
        await journal.flush()
        item, journal = await resume(hand, item)
        assert [await journal.step(f"s{n}", world.act, effect=effect, ask=world.ask) for n in range(3)] == first
        assert len(set(world.effects)) == len(world.effects) == 3
        assert world.asked == []
        await journal.step("s3", world.act, effect=effect)
        assert len(world.effects) == 4


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, {"a": [1, 2.5, None, "ü"]}])
async def test_whatever_a_step_gave_it_gives_again(database_url: str, value: object) -> None:
    calls = 0

    async def act(_: UUID) -> object:
        nonlocal calls
        calls += 1
        return value

    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        item, journal = await begin(parts, hand)
        assert await journal.step("s", act, effect="effectful") == value
        _, journal = await resume(hand, item)
        assert await journal.step("s", act, effect="effectful") == value
        assert calls == 1


async def test_the_engine_gets_the_same_on_resume_as_the_first_time(database_url: str) -> None:
    async def act(key: UUID) -> object:
        return {"id": key, "pair": (1, 2), 3: float("nan")}

    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        item, journal = await begin(parts, hand)
        first = await journal.step("s", act)
        await journal.flush()
        _, journal = await resume(hand, item)
        assert await journal.step("s", act) == first
        assert first == {"id": str(keys_of(item)("s")), "pair": [1, 2], "3": None}


async def test_an_effect_that_may_have_happened_is_never_repeated(database_url: str) -> None:
    world = World()
    world.dies_after_effect = True
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        item, journal = await begin(parts, hand)
        with pytest.raises(ConnectionError):
            await journal.step("pay", world.act, effect="effectful")
        _, journal = await resume(hand, item)
        with pytest.raises(OutcomeUnknown, match="pay"):
            await journal.step("pay", world.act, effect="effectful")
        assert len(world.effects) == 1


async def test_it_is_on_record_before_the_effect_that_the_effect_was_begun(database_url: str) -> None:
    seen: list[tuple[str, str]] = []

    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        _, journal = await begin(parts, hand)

        async def act(_: UUID) -> None:
            seen.extend([tuple(r) for r in await parts.database.rows("select path, state from step")])

        await journal.step("pay", act, effect="effectful")
        assert seen == [("pay", "started")]
        assert await parts.count("select count(*) from step where state = 'done' and ended_at >= started_at") == 1


@pytest.mark.parametrize("happened", [True, False])
async def test_what_can_be_asked_is_asked_and_done_only_if_it_was_not(database_url: str, happened: bool) -> None:
    world = World()
    world.dies_after_effect, world.dies_before_effect = happened, not happened
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        item, journal = await begin(parts, hand)
        with pytest.raises(ConnectionError):
            await journal.step("book", world.act, effect="queryable", ask=world.ask)
        world.dies_after_effect = world.dies_before_effect = False
        _, journal = await resume(hand, item)
        result = await journal.step("book", world.act, effect="queryable", ask=world.ask)
        key = str(keys_of(item)("book"))
        assert result == ({"found": key} if happened else {"key": key})
        assert world.effects == [UUID(key)]
        assert world.asked == [UUID(key)]


async def test_what_may_be_repeated_is_repeated_with_the_same_key(database_url: str) -> None:
    world = World()
    world.dies_after_effect = True
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        item, journal = await begin(parts, hand)
        with pytest.raises(ConnectionError):
            await journal.step("put", world.act)
        world.dies_after_effect = False
        _, journal = await resume(hand, item)
        await journal.step("put", world.act)
        assert world.effects == [keys_of(item)("put")] * 2


@pytest.mark.parametrize("path", ["s1", "s3/request:1", "tool:2:call_ü"])
def test_a_key_is_the_uuid5_of_lane_number_and_path(path: str) -> None:
    lane = UUID("018f3c5e-0000-7000-8000-000000000001")
    item = Item(LaneKey(lane), "work", 0, seq=9, epoch=3, attempts=1)
    assert keys_of(item)(path) == uuid5(UUID("6f0b2f0a-6a0e-5d3e-9c3b-0f6f0d1c7a11"), f"{lane}\n9\n{path}")


async def test_keys_differ_between_steps_items_and_lanes(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        for n in range(4):
            await parts.accept.accept(submission("x", channel="api", sender=f"s{n // 2}"))
        keys: set[UUID] = set()
        while items := await hand.claim():
            keys |= {keys_of(items[0])(f"s{n}") for n in range(3)}
            await hand.answer(items[0])
        assert len(keys) == 12


async def test_steps_are_known_by_path_whatever_order_they_are_asked_for_in(database_url: str) -> None:
    world = World()
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        item, journal = await begin(parts, hand)
        first = {path: await journal.step(path, world.act, effect="effectful") for path in ("s1", "s2/1", "tool:2:x")}
        _, journal = await resume(hand, item)
        again = {path: await journal.step(path, world.act, effect="effectful") for path in ("tool:2:x", "new", "s1")}
        assert {path: again[path] for path in ("tool:2:x", "s1")} == {path: first[path] for path in ("tool:2:x", "s1")}
        assert len(world.effects) == 4


async def test_a_path_asked_for_twice_in_one_attempt_is_a_defect_without_effect(database_url: str) -> None:
    world = World()
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        _, journal = await begin(parts, hand)
        await journal.step("pay", world.act, effect="effectful")
        with pytest.raises(ValueError, match="twice"):
            await journal.step("pay", world.act, effect="effectful")
        assert len(world.effects) == 1


async def test_steps_run_side_by_side_and_each_is_replayed(database_url: str) -> None:
    world, together = World(), asyncio.Barrier(8)

    async def act(key: UUID) -> dict[str, str]:
        await together.wait()
        return await world.act(key)

    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        item, journal = await begin(parts, hand)
        effects: list[Effect] = ["idempotent", "effectful"] * 4
        async with asyncio.timeout(SOON):
            first = await asyncio.gather(*(journal.step(f"s{n}", act, effect=e) for n, e in enumerate(effects)))
        await journal.flush()
        _, journal = await resume(hand, item)
        reverse = [await journal.step(f"s{n}", act, effect=effects[n]) for n in reversed(range(8))]
        assert (reverse[::-1], len(world.effects)) == (first, 8)


async def test_repeatable_steps_wait_for_nothing_and_are_recorded_in_order(
    database_url: str,
) -> None:
    world = World()
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        _, journal = await begin(parts, hand)
        async with parts.database.connection() as other, other.transaction():
            await other.execute("select from lane for update")
            async with asyncio.timeout(SOON):
                for n in range(3):
                    await journal.step(f"s{n}", world.act)
            assert await parts.count("select count(*) from step") == 0, "their lane is locked"
        await journal.step("pay", world.act, effect="effectful")
        order = await parts.database.rows("select path from step order by ended_at, path")
        assert [row["path"] for row in order] == ["s0", "s1", "s2", "pay"]


async def test_the_end_of_an_effect_is_awaited_though_its_task_was_cancelled(database_url: str) -> None:
    world = World()
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        item, journal = await begin(parts, hand)
        async with parts.database.connection() as other, other.transaction():

            async def act(key: UUID) -> object:
                await other.execute("select from lane for update")
                return await world.act(key)

            paying = asyncio.create_task(journal.step("pay", act, effect="effectful"))
            await eventually(lambda: _is("done", journal, "pay"))
            paying.cancel()
            await asyncio.wait([paying])
            flushing = asyncio.create_task(journal.flush())
            await asyncio.sleep(0)
            assert (paying.cancelled(), flushing.done()) == (True, False)
        await flushing
        _, journal = await resume(hand, item)
        await journal.step("pay", world.act, effect="effectful")
        assert len(world.effects) == 1


async def _is(state: str, journal: StoredJournal, path: str) -> bool:
    return path in (records := journal.on_record()) and records[path].state == state


async def test_a_step_that_failed_is_replayed_as_a_failure_and_costs_are_kept(database_url: str) -> None:
    calls = 0

    async def refuse(_: UUID) -> None:
        nonlocal calls
        calls += 1
        raise StepFailed({"status": 404})

    async def pay(_: UUID) -> Costed:
        return Costed("text", tokens_in=10, tokens_out=20, cost=30)

    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        item, journal = await begin(parts, hand)
        with pytest.raises(StepFailed):
            await journal.step("fetch", refuse, effect="effectful")
        assert await journal.step("ask", pay, effect="effectful") == "text"
        await journal.end("review", "skipped", "nothing to review")
        await journal.flush()
        _, journal = await resume(hand, item)
        for path, why in (("fetch", {"status": 404}), ("review", "nothing to review")):
            with pytest.raises(StepFailed) as failed:
                await journal.step(path, refuse, effect="effectful")
            assert failed.value.result == why
        assert await journal.step("ask", pay) == "text"
        assert calls == 1
        rows = await parts.database.rows("select path, state, tokens_in, tokens_out, cost from step order by path")
        assert [tuple(row) for row in rows] == [
            ("ask", "done", 10, 20, 30),
            ("fetch", "failed", 0, 0, None),
            ("review", "skipped", 0, 0, None),
        ]


async def test_tokens_are_reserved_first_and_stay_spent_if_the_end_is_unrecorded(
    database_url: str,
) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:

        async def recorded() -> list[tuple[object, ...]]:
            rows = await parts.database.rows("select path, state, tokens_out from step order by path")
            return [tuple(row) for row in rows]

        async def dies(_: UUID) -> None:
            assert ("ask", "started", 800) in await recorded()
            raise ConnectionError("as if killed")

        async def refused(_: UUID) -> None:
            raise StepFailed(Costed("refused", tokens_out=7))

        async def pay(_: UUID) -> Costed:
            assert await recorded() == [("ask", "started", 1600), ("never", "started", 500), ("no", "failed", 7)]
            return Costed("text", tokens_out=20)

        item, journal = await begin(parts, hand)
        with pytest.raises(ConnectionError):
            await journal.step("ask", dies, reserve=800)
        with pytest.raises(ConnectionError):
            await journal.step("never", killed, reserve=500)
        with pytest.raises(StepFailed, match="refused"):
            await journal.step("no", refused, reserve=300)
        await journal.flush()
        _, journal = await resume(hand, item)
        before = {path: (one.state, one.result, one.tokens) for path, one in journal.on_record().items()}
        assert before == {
            "ask": ("started", None, 800),
            "never": ("started", None, 500),
            "no": ("failed", "refused", 7),
        }
        assert await journal.step("ask", pay, reserve=800) == "text"
        await journal.end("never", "cancelled")
        after = {path: (one.state, one.tokens) for path, one in journal.on_record().items()}
        assert after == {"ask": ("done", 820), "never": ("cancelled", 500), "no": ("failed", 7)}
        await journal.flush()
        assert await recorded() == [("ask", "done", 820), ("never", "cancelled", 500), ("no", "failed", 7)]


async def killed(_: UUID) -> None:
    raise ConnectionError("as if killed")


async def test_a_fenced_turn_hears_of_it_at_its_next_step(database_url: str) -> None:
    world = World()
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        item, journal = await begin(parts, hand)
        assert await hand.fail(item)
        with pytest.raises(Fenced):
            await journal.step("pay", world.act, effect="effectful")
        assert world.effects == [], "the fence stands before the effect"
        with pytest.raises(Fenced):
            journal.check()
        with pytest.raises(Fenced):
            await journal.flush()
        assert await parts.count("select count(*) from step") == 0


async def test_a_step_shows_that_its_worker_lives(database_url: str) -> None:
    world = World()
    async with lab(database_url) as parts, a_hand(parts.database, ttl=10) as hand:
        _, journal = await begin(parts, hand)
        await parts.database.run("update process set beat = beat - interval '9 s'")
        await journal.step("s", world.act)
        await journal.flush()
        assert await parts.count("select count(*) from process where beat > clock_timestamp() - interval '5 s'") == 1


async def test_an_unknown_outcome_ends_as_a_dead_letter_without_a_second_run(database_url: str) -> None:
    world = World()
    world.dies_after_effect = True

    async def play(turn: Turn, journal: port.Journal) -> TurnResult:
        if turn.dead_letter is not None:
            return Answer("noted")
        try:
            await journal.step("pay", world.act, effect="effectful")
        except ConnectionError as error:
            raise EngineFailure("cut off") from error
        return Answer("paid")

    await _ends_unknown(database_url, play, "pay was begun")
    assert len(world.effects) == 1


async def test_a_turn_that_was_too_slow_within_an_effect_ends_as_outcome_unknown(database_url: str) -> None:
    begun = 0

    async def stuck(_: UUID) -> None:
        nonlocal begun
        begun += 1
        await eventually(_never, within=60)

    async def play(turn: Turn, journal: port.Journal) -> TurnResult:
        if turn.dead_letter is None:
            await journal.step("slow", stuck, effect="effectful")
        return Answer("ok")

    await _ends_unknown(database_url, play, "slow was begun", timeout=0.1)
    assert begun == 1


@pytest.mark.parametrize("slow", [False, True])
async def test_what_an_attempt_finished_before_it_failed_is_not_done_again(database_url: str, slow: bool) -> None:
    world = World()

    async def play(turn: Turn, journal: port.Journal) -> TurnResult:
        try:
            if slow and turn.attempt == 1:
                await eventually(_never, within=60)
        finally:  # so that nothing has time to be written before the attempt fails
            for path in ("a", "b"):
                await journal.step(path, world.act)
        if turn.attempt > 1:
            return Answer("done")
        raise EngineFailure("cut off")

    async with lab(database_url) as parts:
        await parts.accept.accept(submission("x", channel="api"))
        limits = replace(LIMITS, timeout=0.1) if slow else LIMITS
        async with at_work(parts.worker({"echo": Scripted(play)}, limits=limits)):
            await eventually(lambda: settled(parts))
        assert len(world.effects) == 2
        await assert_balanced(parts)


async def _never() -> bool:
    return False


async def _ends_unknown(
    url: str, play: Callable[[Turn, port.Journal], Awaitable[TurnResult]], reason: str, **more: Any
) -> None:
    limits = TurnLimits(attempts=3, timeout=more.get("timeout", 10), backoff_base=0.02, backoff_cap=0.05)
    async with lab(url) as parts:
        await parts.accept.accept(submission("x", channel="api"))
        async with at_work(parts.worker({"echo": Scripted(play)}, limits=limits)):
            await eventually(lambda: settled(parts))
        [dead] = await all_dead_letters(parts)
        assert dead["category"] == "outcome_unknown"
        assert dead["reason"].startswith(reason)
        assert await parts.count("select count(*) from notice where state = 'delivered'") == 1
        await assert_balanced(parts)


async def test_the_journal_of_another_item_is_never_replayed(database_url: str) -> None:
    world = World()
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        item, journal = await begin(parts, hand)
        await journal.step("s", world.act)
        await journal.flush()
        await parts.accept.accept(submission("next", channel="api"))
        settled_ = await hand.answer(item, hand_on=True)
        assert settled_.next_seq == 2
        second = Item(item.lane, "turn", 2, 2, item.epoch, 1)
        assert await load_steps(parts.database, second, await request_of(hand)) == {}

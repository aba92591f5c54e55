"""Waiting: an item that waits holds up no other, is decided once, and runs next; nothing is lost or doubled."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec.structs import replace
from pydantic import SecretStr

from switchboard.app.ops.doctor import check_database
from switchboard.app.ops.maintenance import Retention
from switchboard.app.settings import Settings
from switchboard.domain.errors import Conflict, NotFound
from switchboard.domain.ledger import Item
from switchboard.domain.message import RequestId
from switchboard.journey.turn import TurnLimits
from switchboard.lanes.journal import StoredJournal
from switchboard.lanes.waiting import resume
from switchboard.ports import engine as ports
from switchboard.ports.engine import Answer, Decided, EngineFailure, Parked, Refusal, Turn, TurnResult
from switchboard.store.work import lanes
from switchboard.store.work.ledger import deliveries_of
from switchboard.store.work.steps import forget_events
from tests.hands import Hand, Scripted, a_hand, all_dead_letters, assert_balanced, at_work, rescue, settled, turns
from tests.lab import Lab, lab, submission
from tests.waiting import eventually

LIMITS = TurnLimits(attempts=3, timeout=10, backoff_base=0.02, backoff_cap=0.05)
EARLIER, LATER = UUID(int=0), UUID(int=(1 << 128) - 1)
DUE = "update awaited set deadline_at = clock_timestamp() - interval '1 s'"


async def fill(parts: Lab, *texts: str) -> None:
    for text in texts:
        await parts.accept.accept(submission(text, sender="s", channel="api"))


async def awaited(parts: Lab) -> list[UUID]:
    rows = await parts.database.rows("select key from awaited where decided_at is null order by deadline_at, key")
    return [row["key"] for row in rows]


async def is_parked(parts: Lab) -> bool:
    return await settled(parts) and await parts.count("select count(*) from parked") > 0


class Asking:
    """Answers with its text, but asks first where that is a question; what it did is on record."""

    def __init__(self, within: float | None = None) -> None:
        self.within = within
        self.begun: list[tuple[str, int]] = []
        self.effects = Counter[str]()

    async def __call__(self, turn: Turn, journal: ports.Journal) -> TurnResult:
        text = turn.text
        self.begun.append((text, turn.attempt))
        if turn.dead_letter is not None or not text.endswith("?"):
            return Answer(text)

        async def act(_: UUID) -> str:
            self.effects[text] += 1
            return text

        said = await journal.step("before", act, effect="effectful")
        found = await journal.wait("approval", within=self.within)
        return Answer(f"{said} {'expired' if found.expired else found.value}")


async def replies(parts: Lab) -> list[str]:
    return [row["text"] for row in await parts.database.rows("select text from outbox order by created_at, seq")]


async def test_a_waiting_item_lets_its_lane_go_on_and_runs_next_once_decided(
    database_url: str,
) -> None:
    asking = Asking()
    async with lab(database_url) as parts:
        await fill(parts, "may I?", "1", "2")
        async with at_work(parts.worker({"echo": Scripted(asking)})):
            await eventually(lambda: is_parked(parts))
            assert await replies(parts) == ["1", "2"]
            await assert_balanced(parts)
            [key] = await awaited(parts)
            assert await resume(parts.database, parts.notifier, key, {"yes": [1]}) == Decided({"yes": [1]})
            await eventually(lambda: settled(parts))
        assert await replies(parts) == ["1", "2", "may I? {'yes': [1]}"]
        assert asking.effects == {"may I?": 1}, "what was done before waiting is not done again"
        assert asking.begun[-1] == ("may I?", 1), "waiting is no attempt"
        assert Counter(outcome for _, _, outcome, _ in await turns(parts)) == {"answered": 3, "parked": 1}
        assert await parts.count("select count(*) from parked") == 0
        assert await parts.count("select count(*) from lane where parked <> 0 or resumed_seq is not null") == 0
        await assert_balanced(parts)


async def test_a_waiting_item_is_shown_as_waiting(database_url: str) -> None:
    async with lab(database_url) as parts:
        accepted = await parts.accept.accept(submission("may I?", channel="api"))
        async with at_work(parts.worker({"echo": Scripted(Asking())})):
            await eventually(lambda: is_parked(parts))
            [delivery] = await deliveries_of(parts.database, accepted.request_id)
            assert (delivery.state, delivery.attempts) == ("waiting", 0)
            [lane] = await lanes.list_lanes(parts.database)
            assert (lane["state"], lane["waiting"], lane["parked"]) == ("idle", 0, 1)
            assert await parts.database.value("select message_state($1)", accepted.request_id) == "in_flight"
            told = await check_database(Settings(database_url=SecretStr(database_url)))
            assert "paused lane" not in {one.name for one in told}, "nobody has to resume it"


async def test_the_first_decision_stands_and_unknown_keys_and_late_ones_fail(
    database_url: str,
) -> None:
    async with lab(database_url) as parts:
        await fill(parts, "may I?")
        with pytest.raises(NotFound):
            await resume(parts.database, parts.notifier, uuid4(), "x")
        async with at_work(parts.worker({"echo": Scripted(Asking())})):
            await eventually(lambda: is_parked(parts))
            [key] = await awaited(parts)
            for value in ("first", "second"):
                assert await resume(parts.database, parts.notifier, key, value) == Decided("first")
            await eventually(lambda: settled(parts))
            assert await resume(parts.database, parts.notifier, key, "third") == Decided("first")
        assert await replies(parts) == ["may I? first"]
        await assert_balanced(parts)


async def test_what_nobody_decides_in_time_expires_by_the_clock_of_the_database(database_url: str) -> None:
    async with lab(database_url) as parts:
        await fill(parts, "may I?", "1")
        async with at_work(parts.worker({"echo": Scripted(Asking(within=3600))})):
            await eventually(lambda: is_parked(parts))
            [key] = await awaited(parts)
            await parts.database.run(DUE)
            await eventually(lambda: parts.count("select count(*) from outbox where text = 'may I? expired'"))
            assert await resume(parts.database, parts.notifier, key, "late") == Decided(None, expired=True)
        await assert_balanced(parts)


# By hand --------------------------------------------------------------------------------------------------------------


async def journal_of(hand: Hand, item: Item) -> StoredJournal:
    sql = "select request_id from delivery where lane = $1 and seq = $2"
    return await StoredJournal.open(hand.steps, item, RequestId(await hand.database.value(sql, item.lane, item.seq)))


async def park(hand: Hand, item: Item, path: str = "a", within: float | None = None) -> UUID:
    """Begin to wait; gives the key."""
    journal = await journal_of(hand, item)
    key = await journal.expect(path, within=within)
    with pytest.raises(Parked) as parked:
        await journal.wait(path)
    assert await hand.steps.park(item, parked.value.keys)
    return key


async def test_a_decision_that_comes_before_the_item_is_parked_is_kept(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await fill(parts, "0", "1")
        [item] = await hand.claim()
        journal = await journal_of(hand, item)
        key = await journal.expect("a")
        assert await journal.expect("a") == key
        with pytest.raises(Parked) as parked:
            await journal.wait("a")
        await resume(parts.database, parts.notifier, key, 5)
        assert await hand.steps.park(item, parked.value.keys)
        [again] = await hand.claim()
        assert (again.seq, again.attempts) == (1, 1)
        assert await (await journal_of(hand, again)).wait("a") == Decided(5)
        assert (await hand.answer(again)).ok
        await assert_balanced(parts)


async def test_a_decided_item_precedes_a_retry_that_keeps_its_attempts_and_time(
    database_url: str,
) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await fill(parts, "0", "1", "2")
        [first] = await hand.claim()
        key = await park(hand, first)
        [head] = await hand.claim()
        assert (head.seq, head.attempts) == (2, 1)
        assert await hand.fail(head, delay=3600)
        assert await hand.claim() == []
        await resume(parts.database, parts.notifier, key, None)
        await assert_balanced(parts)
        [again] = await hand.claim()
        assert (again.seq, again.attempts) == (1, 1)
        assert await hand.fail(again)
        [again] = await hand.claim()
        assert (again.seq, again.attempts) == (1, 2), "a resumed item is tried again in its place"
        assert (await hand.answer(again, hand_on=True)).next_seq is None
        assert await hand.claim() == [], "the head still waits for its time"
        assert await parts.count("select count(*) from lane where ready_at > now() + interval '50 min'") == 1
        await parts.database.run("update lane set ready_at = now() where kind = 'turn'")
        [head] = await hand.claim()
        assert (head.seq, head.attempts) == (2, 2)
        await assert_balanced(parts)


async def test_several_items_wait_in_a_lane_and_resume_in_order_of_decision(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await fill(parts, "0", "1", "2", "3")
        keys = [await park(hand, item) for _ in range(3) for item in await hand.claim()]
        [running] = await hand.claim()
        assert running.seq == 4
        for n in (2, 0, 1):
            await resume(parts.database, parts.notifier, keys[n], n)
        assert await hand.claim() == [], "the lane is at work"
        assert (await hand.answer(running)).ok
        order = []
        for _ in range(3):
            [item] = await hand.claim()
            order.append((item.seq, (await (await journal_of(hand, item)).wait("a")).value))
            assert (await hand.answer(item)).ok
            await assert_balanced(parts)
        assert order == [(3, 2), (1, 0), (2, 1)]
        assert await parts.count("select count(*) from lane where kind = 'turn' and state = 'idle'") == 1


async def test_an_item_may_wait_for_several_events_and_again_after_a_decision(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await fill(parts, "0", "1")
        [item] = await hand.claim()
        journal = await journal_of(hand, item)
        a, b = await journal.expect("s1"), await journal.expect("s2")
        with pytest.raises(Parked) as parked:
            await journal.wait("s1")
        assert set(parked.value.keys) == {a, b}
        assert await hand.steps.park(item, parked.value.keys)
        await resume(parts.database, parts.notifier, b, "b")
        [item] = await hand.claim()
        journal = await journal_of(hand, item)
        assert await journal.wait("s2") == Decided("b")
        with pytest.raises(Parked) as parked:
            await journal.wait("s1")
        assert parked.value.keys == (a,)
        assert await hand.steps.park(item, parked.value.keys)
        [other] = await hand.claim()
        assert other.seq == 2
        assert (await hand.answer(other)).ok
        await resume(parts.database, parts.notifier, a, "a")
        [item] = await hand.claim()
        assert (item.seq, item.attempts) == (1, 1)
        assert (await hand.answer(item)).ok
        await assert_balanced(parts)


async def test_an_event_registered_while_another_is_awaited_wakes_the_item_too(database_url: str) -> None:
    """As by a branch that goes on beside the one that waits, until the attempt is over."""
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await fill(parts, "0")
        [item] = await hand.claim()

        async def attempt() -> None:
            async with await journal_of(hand, item) as journal:
                try:
                    await journal.wait("a")
                finally:
                    await resume(parts.database, parts.notifier, await journal.expect("b"), "b")

        with pytest.raises(Parked) as parked:
            await attempt()
        assert await hand.steps.park(item, parked.value.keys)
        [again] = await hand.claim()
        assert await (await journal_of(hand, again)).wait("b") == Decided("b")


async def test_a_deferred_item_that_then_waits_for_an_event_wakes_by_that_only(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await fill(parts, "0")
        [item] = await hand.claim()
        await park(hand, item)
        await parts.database.run("update parked set due_at = clock_timestamp() - interval '1 h'")
        await rescue(parts.database)
        [item] = await hand.claim()
        await park(hand, item, "b")
        await rescue(parts.database)
        assert await hand.claim() == []
        await assert_balanced(parts)


async def test_an_engine_that_waits_for_nothing_is_a_defect_and_does_not_hang(database_url: str) -> None:
    async def play(turn: Turn, _: ports.Journal) -> TurnResult:
        if turn.dead_letter is None:
            raise Parked([])
        return Answer("noted")

    async with lab(database_url) as parts:
        await fill(parts, "0")
        async with at_work(parts.worker({"echo": Scripted(play)}, limits=replace(LIMITS, attempts=1))):
            await eventually(lambda: settled(parts))
        [dead] = await all_dead_letters(parts)
        assert dead["category"] == "poison"
        await assert_balanced(parts)


async def test_an_item_whose_events_were_all_decided_cannot_wait_for_ever(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await fill(parts, "0")
        [item] = await hand.claim()
        await resume(parts.database, parts.notifier, await park(hand, item), 1)
        [again] = await hand.claim()
        with pytest.raises(asyncpg.RaiseError, match="waits for nothing"):
            await hand.steps.park(again, [])
        assert (await hand.answer(again)).ok
        await assert_balanced(parts)


async def test_a_decision_is_not_undone_by_an_engine_that_skips_the_step(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await fill(parts, "0")
        [item] = await hand.claim()
        key = await (journal := await journal_of(hand, item)).expect("a")
        await resume(parts.database, parts.notifier, key, "yes")
        await journal.end("a", "skipped")
        await journal.flush()
        assert await (await journal_of(hand, item)).wait("a") == Decided("yes")


@pytest.mark.parametrize("again", [False, True])
async def test_a_path_is_of_an_acting_or_of_a_waiting_step_in_every_attempt(database_url: str, again: bool) -> None:
    """Otherwise the decision would take the place of the result."""

    async def act(_: UUID) -> int:
        return 7

    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await fill(parts, "0")
        [item] = await hand.claim()
        journal = await journal_of(hand, item)
        assert await journal.step("acts", act) == 7
        await journal.expect("waits")
        await journal.flush()
        if again:
            journal = await journal_of(hand, item)
        with pytest.raises(ValueError, match="'acts'"):
            await journal.wait("acts")
        with pytest.raises(ValueError, match="'waits'"):
            await journal.step("waits", act)
        assert await (await journal_of(hand, item)).step("acts", act) == 7
        assert len(await awaited(parts)) == 1


async def test_the_fence_stands_before_waiting_too(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as zombie, a_hand(parts.database) as alive:
        await fill(parts, "0", "1")
        [stale] = await zombie.claim()
        journal = await journal_of(zombie, stale)
        key = await journal.expect("a")
        await zombie.die()
        await eventually(lambda: rescue(parts.database))
        assert not await zombie.steps.park(stale, [key])
        [item] = await alive.claim()
        assert (item.seq, item.attempts) == (1, 2)
        assert not await alive.steps.park(stale, [key])
        assert await park(alive, item) == key, "the same event in every attempt"
        assert not await alive.steps.park(item, [key]), "once only"
        assert not (await alive.answer(item)).ok, "who is parked is not settled"
        await resume(parts.database, parts.notifier, key, 1)
        [again] = await alive.claim()
        assert again.attempts == 2, "the attempt that was lost counts, the one that was parked does not"
        assert not (await alive.answer(item)).ok
        assert (await alive.answer(again)).ok
        await assert_balanced(parts)


@pytest.mark.parametrize("good_order", [True, False])
async def test_a_worker_that_goes_lets_a_decided_item_run_before_its_own(database_url: str, good_order: bool) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as first, a_hand(parts.database) as second:
        await fill(parts, "0", "1")
        [item] = await first.claim()
        key = await park(first, item)
        [head] = await first.claim()
        assert head.seq == 2
        await resume(parts.database, parts.notifier, key, 1)
        if good_order:
            await lanes.release_worker(parts.database, first.worker)
        else:
            await first.die()
            await eventually(lambda: rescue(parts.database))
        [again] = await second.claim()
        assert (again.seq, again.attempts) == (1, 1)
        assert (await second.answer(again)).ok
        [head] = await second.claim()
        assert (head.seq, head.attempts) == (2, 1 if good_order else 2)
        assert (await second.answer(head)).ok
        await assert_balanced(parts)


async def test_an_item_that_ended_without_its_event_leaves_nothing_behind(database_url: str) -> None:
    async def play(turn: Turn, journal: ports.Journal) -> TurnResult:
        if turn.dead_letter is None:
            await journal.expect("a", within=3600)
        return Answer("without")

    async with lab(database_url) as parts:
        await fill(parts, "0")
        async with at_work(parts.worker({"echo": Scripted(play)})):
            await eventually(lambda: settled(parts))
            [key] = await awaited(parts)
            with pytest.raises(Conflict):
                await resume(parts.database, parts.notifier, key, 1)
            assert await awaited(parts) == []
        assert await replies(parts) == ["without"]
        await assert_balanced(parts)


async def test_events_of_items_that_ended_are_removed_and_of_no_others(database_url: str) -> None:
    """Of four items, one ended, one waits, one was decided and waits for its turn, and one runs."""
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await fill(parts, "0", "1", "2")
        keys = [await park(hand, item) for _ in range(3) for item in await hand.claim()]
        await fill(parts, "3")
        [running] = await hand.claim()
        keys.append(await (await journal_of(hand, running)).expect("a"))
        for n in (0, 1):
            await resume(parts.database, parts.notifier, keys[n], n)
        assert await Retention(parts.database).events() == 0, "nothing is old"
        assert await forget_events(parts.database, LATER, 10) == 0, "nothing has ended"
        assert (await hand.answer(running)).ok
        [first] = await hand.claim()
        assert (await hand.answer(first)).ok
        assert await forget_events(parts.database, EARLIER, 10) == 0, "the messages are younger"
        assert [await forget_events(parts.database, LATER, 1) for _ in range(3)] == [1, 1, 0]
        left = await parts.database.rows("select key from awaited")
        assert {row["key"] for row in left} == {keys[1], keys[2]}
        await assert_balanced(parts)


async def test_a_lane_that_stands_still_takes_the_decision_and_goes_on_with_it(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await fill(parts, "0", "1")
        [item] = await hand.claim()
        key = await park(hand, item)
        await parts.database.run("update lane set state = 'paused' where kind = 'turn'")
        await resume(parts.database, parts.notifier, key, 1)
        assert await hand.claim() == []
        [lane] = await lanes.list_lanes(parts.database)
        assert await lanes.resume_lane(parts.database, lane["lane"])
        assert [i.seq for i in await hand.claim()] == [1]
        await assert_balanced(parts)


async def test_a_resumed_item_may_end_as_a_dead_letter(database_url: str) -> None:
    async def play(turn: Turn, journal: ports.Journal) -> TurnResult:
        text = turn.text
        if turn.dead_letter is None and text != "1":
            value = (await journal.wait("a")).value
            if value == "fail":
                raise EngineFailure("no")
            return Refusal("no")
        return Answer(text)

    async with lab(database_url) as parts:
        await fill(parts, "0", "1", "2")
        async with at_work(parts.worker({"echo": Scripted(play)}, limits=LIMITS)):
            await eventually(lambda: parts.count("select count(*) = 2 from parked"))
            for key, value in zip(await awaited(parts), ("fail", "refuse"), strict=True):
                await resume(parts.database, parts.notifier, key, value)
            await eventually(lambda: _dead(parts, 2))
            await eventually(lambda: settled(parts))
        assert {dead["category"] for dead in await all_dead_letters(parts)} == {"retry_exhausted", "refused"}
        failed: list[Any] = [outcome for _, _, outcome, _ in await turns(parts) if outcome == "failed"]
        assert len(failed) == LIMITS.attempts
        await assert_balanced(parts)


async def _dead(parts: Lab, count: int) -> bool:
    return len(await all_dead_letters(parts)) == count


async def defer(parts: Lab, text: str) -> None:
    """A message whose delivery is not to run before its time, which has come."""
    await fill(parts, text)
    await parts.database.run("select defer_item(key, last_seq, now() - interval '1 s') from lane where kind = 'turn'")


async def test_a_timer_over_before_its_turn_swallows_nothing_that_lies_before_it(
    database_url: str,
) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await fill(parts, "0", "1")
        await defer(parts, "2")
        await fill(parts, "3")
        await defer(parts, "4")
        await rescue(parts.database)
        order = []
        while items := await hand.claim():
            order.append(items[0].seq)
            assert (await hand.answer(items[0])).ok
            await assert_balanced(parts)
        assert order == [1, 2, 3, 4, 5]
        assert await parts.count("select parked from lane where kind = 'turn'") == 0


async def test_a_timer_over_during_the_retry_of_an_earlier_item_keeps_its_place(
    database_url: str,
) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await fill(parts, "0")
        await defer(parts, "1")
        [head] = await hand.claim()
        assert await hand.fail(head, delay=3600)
        await rescue(parts.database)
        assert await hand.claim() == []
        await parts.database.run("update lane set ready_at = now() where kind = 'turn'")
        [head] = await hand.claim()
        assert (head.seq, head.attempts) == (1, 2)
        assert (await hand.answer(head)).ok
        [last] = await hand.claim()
        assert (last.seq, last.attempts) == (2, 1)
        assert (await hand.answer(last)).ok
        await assert_balanced(parts)


# Many of one lane -----------------------------------------------------------------------------------------------------


async def test_a_lane_finds_what_it_goes_on_with_without_reading_all_that_waits(database_url: str) -> None:
    many = 2000
    read = "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relname = 'parked'"
    async with lab(database_url) as parts:
        await fill(parts, "now", "next")
        await parts.database.run(
            "insert into parked (lane, seq, due_at)"
            " select key, n, clock_timestamp() + interval '1 h' from lane, generate_series(3, $1::int) n",
            many,
        )
        await parts.database.run("update lane set parked = $1 - 2, last_seq = $1", many)
        await parts.database.run("analyze parked")
        async with parts.database.connection() as connection, connection.transaction():
            await connection.execute("select choose_next(key) from lane")
            decided = "update parked set decided_at = clock_timestamp() from lane where lane = key and seq = 1000"
            await connection.execute(decided)
            await connection.execute("select choose_next(key) from lane")
            assert await connection.fetchval(read) < 20
            row = await connection.fetchrow("select next_seq, parked, done_seq from lane")
            assert tuple(row or ()) == (1000, many - 2, 0)

"""The engine against a model of it in a few lines of Python, in every order that hypothesis can think of.

Two hands at the same lanes, one of which dies now and then; a connector; retries, leases, receipts, resends. After
every move the books balance, no lane has a gap, no lane goes back, and nothing is settled twice.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from switchboard.domain.errors import Conflict
from switchboard.domain.ledger import Item, LaneKey, OutboxRow
from switchboard.journey.reply import PullRequest
from switchboard.ports.channel import Receipt, SendOutcome
from switchboard.store.books import audit_books
from switchboard.store.messages import outbox
from switchboard.store.messages.outbox import pull_pool
from switchboard.store.work import lanes, steps
from switchboard.store.work.steps import Step, StepWrite, write_steps
from tests.hands import Hand, a_hand, message_of, rescue
from tests.lab import Lab, lab, submission
from tests.postgres import Postgres
from tests.waiting import eventually
from tests.width import wide

T = TypeVar("T")
_events = itertools.count()
TELEGRAM = pull_pool("telegram", "bot:house")
TABLES = "message_inbox, dedupe, decision, lane, delivery, attempt, step, outbox, receipt, dead_letter, notice, parked"


class Engine(RuleBasedStateMachine):
    """`owners` is who may settle a lane; `settled` how often each (lane, seq) was.

    `parked` is what waits, with the place of its decision or None; `resumed` the item that goes first in a lane.
    """

    runner: asyncio.Runner
    parts: Lab

    items = Bundle("items")
    replies = Bundle("replies")
    events = Bundle("events")

    def __init__(self) -> None:
        super().__init__()
        self.stack = AsyncExitStack()
        self.hands: list[Hand] = []
        self.owners: dict[LaneKey, tuple[int, int, int]] = {}
        self.settled: Counter[tuple[LaneKey, int]] = Counter()
        self.parked: dict[tuple[LaneKey, int], int | None] = {}
        self.resumed: dict[LaneKey, int] = {}
        self.decided: dict[UUID, object] = {}
        self.known: list[str] = []
        self.done: dict[LaneKey, int] = {}
        self.do(self.parts.database.run(f"truncate {TABLES}, awaited"))
        for _ in range(2):
            self.hands.append(self.do(self.stack.enter_async_context(a_hand(self.parts.database))))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.do(self.stack.aclose())
        self.do(self.parts.database.run("truncate process"))

    @rule(sender=st.integers(0, 2), repeat=st.booleans())
    def accept(self, sender: int, repeat: bool) -> None:
        event = self.known[0] if repeat and self.known else f"m{next(_events)}"
        accepted = self.do(self.parts.accept.accept(submission("x", sender=f"s{sender}", thread="t", event=event)))
        assert accepted.duplicate == (event in self.known)
        self.known = [event] + [e for e in self.known if e != event]

    @rule(sender=st.integers(0, 3))
    def accept_new(self, sender: int) -> None:
        self.do(self.parts.accept.accept(submission("x", sender=f"s{sender}", event=f"n{next(_events)}")))

    @rule(target=items, who=st.integers(0, 1))
    def claim(self, who: int) -> tuple[int, Item | None]:
        hand = self.hands[who]
        claimed = self.do(hand.claim())
        for item in claimed:
            assert item.lane not in self.owners, "two owners of one lane"
            assert item.seq == self.next_of(item.lane)
            self.owners[item.lane] = (hand.worker, item.epoch, item.seq)
        return (hand.worker, claimed[0] if claimed else None)

    def next_of(self, lane: LaneKey) -> int:
        """Which item of the lane is to run: what was decided first, else the first that has neither ended nor waits."""
        decided = [(at, seq) for (one, seq), at in self.parked.items() if one == lane and at is not None]
        if lane not in self.resumed and decided:
            self.resumed[lane] = min(decided)[1]
        passed = {seq for one, seq in [*self.settled, *self.parked] if one == lane}
        return self.resumed.get(lane) or next(seq for seq in itertools.count(1) if seq not in passed)

    def leave(self, lane: LaneKey, seq: int) -> None:
        """The item does not run any more."""
        del self.owners[lane]
        if self.resumed.get(lane) == seq:
            del self.resumed[lane]
        self.parked.pop((lane, seq), None)

    @rule(target=events, held=items, within=st.sampled_from([None, 3600.0]), early=st.booleans())
    def park(self, held: tuple[int, Item | None], within: float | None, early: bool) -> UUID:
        worker, item = held
        key = self.do(self._uuid())
        if item is None:
            return key
        mine = self.owners.get(item.lane) == (worker, item.epoch, item.seq)
        database = self.parts.database
        request = self.do(message_of(database, item))
        step = StepWrite(item, request, Step(f"wait {key}", "started", "event", key))
        assert self.do(steps.expect(database, worker, step, within)) == mine
        if mine and early:
            self.decide(key)
        assert self.do(steps.park(database, worker, item, [key])) == mine
        if mine:
            self.leave(item.lane, item.seq)
            self.parked[item.lane, item.seq] = next(_events) if early else None
        return key

    @rule(key=events)
    def decide(self, key: UUID) -> None:
        waiting = self.do(self.parts.database.row("select lane, seq from awaited where key = $1", key))
        event = self.do(steps.decide(self.parts.database, key, str(next(_events))))
        if waiting is None:
            assert event is None
            return
        assert event is not None
        self._note(key, waiting["lane"], waiting["seq"], event.result, event.fresh)

    @rule(key=events)
    def expire(self, key: UUID) -> None:
        database = self.parts.database
        sql = "update awaited set deadline_at = clock_timestamp() where key = $1 returning lane, seq, decided_at"
        waiting = self.do(database.row(sql, key))
        self.do(lanes.tend(database))
        if waiting is not None and waiting["decided_at"] is None:
            found = self.do(database.row("select result from awaited where key = $1 and decided_at is not null", key))
            assert found is not None
            self._note(key, waiting["lane"], waiting["seq"], found["result"], fresh=True)

    def _note(self, key: UUID, lane: LaneKey, seq: int, result: object, fresh: bool) -> None:
        """An event was decided: the first decision stands, and it parks its item no longer."""
        assert fresh == (key not in self.decided)
        over = (lane, seq) in self.settled
        assert self.decided.setdefault(key, result) == result
        if fresh:
            assert (result is None) == over
            if (lane, seq) in self.parked and self.parked[lane, seq] is None:
                self.parked[lane, seq] = next(_events)

    @rule(held=items, hand_on=st.booleans())
    def answer(self, held: tuple[int, Item | None], hand_on: bool) -> None:
        worker, item = held
        if item is None:
            return
        mine = self.owners.get(item.lane) == (worker, item.epoch, item.seq)
        hand = Hand(self.parts.database, worker, self.hands[0].connection)
        result = self.do(hand.answer(item, pool=TELEGRAM, hand_on=hand_on))
        assert result.ok == mine
        if mine:
            self.settled[item.lane, item.seq] += 1
            self.leave(item.lane, item.seq)
            if result.next_seq is not None:
                assert hand_on
                assert result.next_seq == self.next_of(item.lane)
                self.owners[item.lane] = (worker, item.epoch, result.next_seq)

    @rule(held=items, journaled=st.booleans())
    def step_and_fail(self, held: tuple[int, Item | None], journaled: bool) -> None:
        worker, item = held
        if item is None:
            return
        mine = self.owners.get(item.lane) == (worker, item.epoch, item.seq)
        hand = Hand(self.parts.database, worker, self.hands[0].connection)
        if journaled:
            key = self.do(self._uuid())
            request = self.do(message_of(self.parts.database, item))
            step = StepWrite(item, request, Step("s", "done", "idempotent", key, 1))
            assert self.do(write_steps(self.parts.database, worker, [step])) == [mine]
        assert self.do(hand.fail(item)) == mine
        if mine:
            del self.owners[item.lane]

    async def _uuid(self) -> UUID:
        key: UUID = await self.parts.database.value("select gen_random_uuid()")
        return key

    @rule(sender=st.integers(0, 2))
    def accept_for_later(self, sender: int) -> None:
        database = self.parts.database
        self.accept_new(sender)
        item = "select d.lane, d.seq from delivery d join message_inbox m using (request_id) where m.sender = $1"
        row = self.do(database.row(f"{item} and d.state = 'pending' order by d.request_id desc limit 1", f"s{sender}"))
        assert row is not None
        self.do(database.run("select defer_item($1, $2, clock_timestamp() + interval '1 h')", row["lane"], row["seq"]))
        self.parked[row["lane"], row["seq"]] = None

    @rule()
    def time_passes(self) -> None:
        """What was accepted for later is due; many at once come in the order of their lanes.

        What its lane has not come to yet has its place there again.
        """
        database = self.parts.database
        sql = (
            "update parked p set due_at = clock_timestamp() from lane l"
            " where l.key = p.lane and due_at > clock_timestamp()"
            " returning p.lane, p.seq, p.seq > l.done_seq as early"
        )
        due = sorted((row["lane"], row["seq"], row["early"]) for row in self.do(database.rows(sql)))
        self.do(lanes.tend(database))
        for lane, seq, early in due:
            if early:
                del self.parked[lane, seq]
            else:
                self.parked[lane, seq] = next(_events)

    @rule(who=st.integers(0, 1), good_order=st.booleans())
    def go(self, who: int, good_order: bool) -> None:
        hand = self.hands[who]
        if good_order:
            self.do(lanes.release_worker(self.parts.database, hand.worker))
        else:
            self.do(hand.die())
            self.do(self._swept(hand.worker))
        self.owners = {lane: held for lane, held in self.owners.items() if held[0] != hand.worker}
        self.hands[who] = self.do(self.stack.enter_async_context(a_hand(self.parts.database)))

    async def _swept(self, worker: int) -> None:
        async def gone() -> bool:
            await rescue(self.parts.database)
            return not await self.parts.count("select count(*) from process where process_id = $1", worker)

        await eventually(gone)

    @rule(target=replies, idempotent=st.booleans())
    def pull(self, idempotent: bool) -> Sequence[OutboxRow]:
        pull = PullRequest("telegram", "bot:house", limit=1, idempotent=idempotent)
        return self.do(self.parts.replies.pull(pull))

    @rule(pulled=consumes(replies), outcome=st.sampled_from(["sent", "failed", "uncertain", "retryable"]))
    def receive(self, pulled: Sequence[OutboxRow], outcome: SendOutcome) -> None:
        for reply in pulled:
            found = self.do(outbox.get_reply(self.parts.database, reply.outbox_id))
            assert found is not None
            valid = found.lease == reply.lease and found.state == "sending"
            try:
                self.do(self.parts.replies.receipt(reply.outbox_id, reply.lease, Receipt(outcome)))
            except Conflict:
                assert not valid
            else:
                assert valid
            self.do(self.parts.database.run("update lane set ready_at = now() where kind = 'send' and state = 'ready'"))

    @rule()
    def leases_run_out(self) -> None:
        database = self.parts.database
        self.do(database.run("update lane set lease_until = now() where state = 'running' and lease_until is not null"))
        self.do(outbox.expire_leases(database))
        assert not self.do(self.parts.count("select count(*) from outbox where state = 'sending'"))

    @rule()
    def resend(self) -> None:
        for reply in self.do(outbox.page_of_replies(self.parts.database, limit=100)):
            if reply.state in {"uncertain", "failed", "dead"}:
                self.do(self.parts.replies.resend(reply.outbox_id))

    @invariant()
    def the_books_balance(self) -> None:
        books = self.do(audit_books(self.parts.database))
        assert books.balanced, books
        assert books.problems == ()

    @invariant()
    def no_lane_has_a_gap_or_goes_back(self) -> None:
        database = self.parts.database
        for row in self.do(database.rows("select * from lane")):
            assert self.done.get(row["key"], 0) <= row["done_seq"] <= row["last_seq"]
            self.done[row["key"]] = row["done_seq"]
        gaps = self.do(
            database.rows("select lane from delivery group by lane having count(*) <> max(seq) or min(seq) <> 1")
        )
        assert gaps == []

    @invariant()
    def what_is_parked_is_what_waits(self) -> None:
        rows = self.do(self.parts.database.rows("select lane, seq, decided_at is not null as decided from parked"))
        assert {(r["lane"], r["seq"]): r["decided"] for r in rows} == {
            item: at is not None for item, at in self.parked.items()
        }

    @invariant()
    def every_item_is_settled_by_one_turn(self) -> None:
        assert all(n == 1 for n in self.settled.values())
        sql = "select lane, seq, count(*) as n from attempt where outcome = 'answered' group by 1, 2"
        found = {(r["lane"], r["seq"]): r["n"] for r in self.do(self.parts.database.rows(sql))}
        assert found == dict(self.settled)
        running = "select key, owner, epoch, next_seq as seq from lane where kind = 'turn' and state = 'running'"
        owners = {r["key"]: (r["owner"], r["epoch"], r["seq"]) for r in self.do(self.parts.database.rows(running))}
        assert owners == self.owners


@pytest.mark.slow
def test_the_engine_does_what_its_model_does_in_any_order(postgres: Postgres) -> None:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        name = runner.run(postgres.create())
        parts = lab(postgres.url(name))
        try:
            Engine.runner, Engine.parts = runner, runner.run(parts.__aenter__())
            quick = settings(
                max_examples=wide(50, 12),
                stateful_step_count=30,
                suppress_health_check=list(HealthCheck),
            )
            run_state_machine_as_test(Engine, settings=quick)
        finally:
            runner.run(parts.__aexit__(None, None, None))
            runner.run(postgres.drop(name))

"""The engine against a model of it in a few lines of Python, in every order that hypothesis can think of.

Two hands at the same lanes, one of which dies now and then; a connector; retries, leases, receipts, resends. After
every move the books balance, no lane has a gap, no lane goes back, and nothing is settled twice.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from switchboard.domain.errors import Conflict
from switchboard.domain.ledger import Item, OutboxRow
from switchboard.journey.reply import PullRequest, pull_pool
from switchboard.store import lanes, outbox
from switchboard.store.books import audit_books
from switchboard.store.outbox import Receipt
from tests.hands import Hand, a_hand
from tests.lab import Lab, lab, submission
from tests.postgres import Postgres
from tests.waiting import eventually

T = TypeVar("T")
_events = itertools.count()
TELEGRAM = pull_pool("telegram", "bot:house")
TABLES = "message_inbox, dedupe, decision, lane, delivery, turn, step, outbox, receipt, dead_letter, notice"


class Engine(RuleBasedStateMachine):
    """`owners` is who may settle a lane; `settled` how often each (lane, seq) was."""

    runner: asyncio.Runner
    parts: Lab

    items = Bundle("items")
    replies = Bundle("replies")

    def __init__(self) -> None:
        super().__init__()
        self.stack = AsyncExitStack()
        self.hands: list[Hand] = []
        self.owners: dict[str, tuple[int, int, int]] = {}
        self.settled: Counter[tuple[str, int]] = Counter()
        self.known: list[str] = []
        self.done: dict[str, int] = {}
        self.do(self.parts.database.run(f"truncate {TABLES}"))
        for _ in range(2):
            self.hands.append(self.do(self.stack.enter_async_context(a_hand(self.parts.database))))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.do(self.stack.aclose())
        self.do(self.parts.database.run("truncate worker"))

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
            self.owners[item.lane] = (hand.worker, item.epoch, item.seq)
        return (hand.worker, claimed[0] if claimed else None)

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
            del self.owners[item.lane]
            if result.next_seq is not None:
                assert hand_on
                assert result.next_seq == item.seq + 1
                self.owners[item.lane] = (worker, item.epoch, result.next_seq)

    @rule(held=items, journaled=st.booleans())
    def step_and_fail(self, held: tuple[int, Item | None], journaled: bool) -> None:
        worker, item = held
        if item is None:
            return
        mine = self.owners.get(item.lane) == (worker, item.epoch, item.seq)
        hand = Hand(self.parts.database, worker, self.hands[0].connection)
        if journaled:
            step = lanes.Step(1, "s", "done", self.do(self._uuid()), 1)
            assert self.do(lanes.write_step(self.parts.database, worker, item, step, "idempotent")) == mine
        assert self.do(hand.fail(item)) == mine
        if mine:
            del self.owners[item.lane]

    async def _uuid(self) -> Any:
        return await self.parts.database.value("select gen_random_uuid()")

    @rule(who=st.integers(0, 1), good_order=st.booleans())
    def leave(self, who: int, good_order: bool) -> None:
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
            await lanes.rescue(self.parts.database)
            return not await self.parts.count("select count(*) from worker where worker_id = $1", worker)

        await eventually(gone)

    @rule(target=replies, idempotent=st.booleans())
    def pull(self, idempotent: bool) -> list[OutboxRow]:
        pull = PullRequest("telegram", "bot:house", limit=1, idempotent=idempotent)
        return self.do(self.parts.replies.pull(pull))

    @rule(pulled=consumes(replies), outcome=st.sampled_from(["sent", "failed", "uncertain", "retryable"]))
    def receive(self, pulled: list[OutboxRow], outcome: outbox.SendOutcome) -> None:
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
        for reply in self.do(outbox.list_replies(self.parts.database, states=["uncertain", "failed", "dead"])):
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
    def every_item_is_settled_by_one_turn(self) -> None:
        assert all(n == 1 for n in self.settled.values())
        sql = "select lane, seq, count(*) as n from turn where outcome = 'answered' group by 1, 2"
        found = {(r["lane"], r["seq"]): r["n"] for r in self.do(self.parts.database.rows(sql))}
        assert found == dict(self.settled)
        running = "select key, owner, epoch, done_seq + 1 as seq from lane where kind = 'turn' and state = 'running'"
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
                max_examples=25,
                stateful_step_count=30,
                suppress_health_check=list(HealthCheck),
            )
            run_state_machine_as_test(Engine, settings=quick)
        finally:
            runner.run(parts.__aexit__(None, None, None))
            runner.run(postgres.drop(name))

"""Replies on their way: leased in order, receipted once, and honest about what nobody knows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from switchboard.app.access import Access
from switchboard.app.connectors.work import ConnectorService
from switchboard.domain.errors import Conflict, NotFound
from switchboard.domain.ledger import LeasedRow, OutboxPart, OutboxRow, PartState
from switchboard.journey.reply import Callback, PullRequest, ReplyService, ReplyWays, SendLeg
from switchboard.journey.turn import TurnLeg, TurnLimits
from switchboard.lanes.kinds import NOTICE, SEND, TURN
from switchboard.lanes.notifier import CHANNEL, Notifier
from switchboard.lanes.worker import Worker, WorkerSettings
from switchboard.ports.channel import Receipt, SendOutcome
from switchboard.store.connectors.accounts import Holder, lease_account
from switchboard.store.database import Database
from switchboard.store.messages import outbox
from switchboard.store.messages.outbox import MAX_SENDS
from switchboard.testing.echo import Echo
from tests.hands import assert_balanced, at_work, settled
from tests.lab import Lab, lab, submission
from tests.servers import CONNECTOR
from tests.waiting import SOON, eventually

PULL = PullRequest("telegram", "bot:house")
IDEMPOTENT = PullRequest("telegram", "bot:house", idempotent=True)
SENT = Receipt("sent", "platform-1")


async def answered(parts: Lab, *texts: str, sender: str = "alice", channel: str = "telegram") -> None:
    """Messages with these texts, all echoed."""
    for text in texts:
        await parts.accept.accept(submission(text, sender=sender, channel=channel))
    async with at_work(parts.worker()):
        await eventually(lambda: settled(parts))


async def due_now(parts: Lab) -> None:
    """Let the time of every waiting retry come."""
    await parts.database.run("update lane set ready_at = clock_timestamp() - interval '1 ms' where state = 'ready'")


async def lease_runs_out(parts: Lab) -> int:
    await parts.database.run("update lane set lease_until = now() - interval '1 ms' where state = 'running'")
    return await outbox.expire_leases(parts.database)


async def state_of(parts: Lab, reply: OutboxRow) -> str:
    found = await outbox.get_reply(parts.database, reply.outbox_id)
    assert found is not None
    return found.state


async def test_a_reply_is_leased_sent_and_done(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "hello")
        [reply] = await parts.replies.pull(PULL)
        assert (reply.text, reply.recipient, reply.state, reply.attempts) == ("hello", "alice", "sending", 1)
        assert await parts.replies.pull(PULL) == [], "what is leased is nobody else's"
        assert await parts.replies.receipt(reply.outbox_id, reply.lease, SENT) == "sent"
        assert await parts.replies.pull(PULL) == []
        stored = await outbox.get_reply(parts.database, reply.outbox_id)
        assert stored is not None
        assert (stored.platform_message_id, stored.lease) == ("platform-1", 0)
        await assert_balanced(parts)


async def test_a_reply_has_the_address_that_the_connector_gave_with_the_message(database_url: str) -> None:
    address = {"chat_id": -100_123, "message_thread_id": 7, "words": "Grüße\n"}
    async with lab(database_url) as parts:
        await parts.accept.accept(submission("where?", sender="a", of_event={"reply_address": address}))
        await answered(parts, "nowhere", sender="b")
        assert {r.text: r.address for r in await parts.replies.pull(PULL)} == {"where?": address, "nowhere": None}


HELD = """
create function hold() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock(7);
    return new;
end $$;
create trigger hold before update on lane for each row when (old.delayed and not new.delayed) execute function hold();
"""
"""A process that finds that the time of a reply has come waits until the lock is free."""


async def test_a_reply_committed_during_a_lookup_comes_with_all_its_parts(
    database_url: str,
) -> None:
    address = {"chat": 7}
    holds = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    async with lab(database_url) as parts:
        await answered(parts, "before", sender="a")
        [reply] = await parts.replies.pull(PULL)
        await parts.replies.receipt(reply.outbox_id, reply.lease, Receipt("retryable", error="429", delay=3600))
        await due_now(parts)
        await parts.database.run(HELD)
        async with parts.database.pool.acquire() as held:
            await held.execute("select pg_advisory_lock(7)")
            pulling = asyncio.create_task(parts.replies.pull(PULL))
            await eventually(lambda: parts.count(holds))
            await parts.accept.accept(submission("meanwhile", sender="b", of_event={"reply_address": address}))
            await answered(parts, "nowhere", sender="c")
            await held.execute("select pg_advisory_unlock(7)")
            assert {one.text: one.address for one in await pulling} == {
                "before": None,
                "meanwhile": address,
                "nowhere": None,
            }


async def test_the_second_reply_is_not_offered_before_the_first_has_its_receipt(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "1", "2", "3")
        texts = []
        for _ in range(3):
            [reply] = await parts.replies.pull(PULL)
            assert await parts.replies.pull(PULL) == []
            texts.append(reply.text)
            await parts.replies.receipt(reply.outbox_id, reply.lease, SENT)
        assert texts == ["1", "2", "3"]
        await assert_balanced(parts)


async def test_conversations_do_not_wait_for_each_other(database_url: str) -> None:
    async with lab(database_url) as parts:
        for who in ("a", "b", "c"):
            await answered(parts, f"{who}1", f"{who}2", sender=who)
        first = await parts.replies.pull(PULL)
        assert [r.text for r in first] == ["a1", "b1", "c1"]
        await parts.replies.receipt(first[1].outbox_id, first[1].lease, SENT)
        assert [r.text for r in await parts.replies.pull(PULL)] == ["b2"]


async def test_no_more_are_leased_than_were_asked_for(database_url: str) -> None:
    async with lab(database_url) as parts:
        for who in range(5):
            await parts.accept.accept(submission("x", sender=str(who)))
        await answered(parts, "x")
        assert len(await parts.replies.pull(PullRequest("telegram", "bot:house", limit=2))) == 2
        assert len(await parts.replies.pull(PULL)) == 4


async def test_connectors_that_pull_at_once_never_get_the_same_reply(database_url: str) -> None:
    async with lab(database_url) as parts:
        for who in range(20):
            await parts.accept.accept(submission("x", sender=str(who)))
        await answered(parts, "x")
        pulled = await asyncio.gather(*(parts.replies.pull(PULL) for _ in range(6)))
        ids = [r.outbox_id for replies in pulled for r in replies]
        assert len(ids) == len(set(ids)) == 21


async def test_another_endpoints_connector_sees_nothing(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "x")
        for channel, endpoint in (("telegram", "bot:other"), ("email", "bot:house"), ("telegram", "")):
            assert await parts.replies.pull(PullRequest(channel, endpoint)) == []
        assert len(await parts.replies.pull(PULL)) == 1


async def test_a_retryable_failure_is_retried_after_its_delay_and_not_overtaken(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "1", "2")
        [reply] = await parts.replies.pull(PULL)
        receipt = Receipt("retryable", error="429", delay=3600)
        assert await parts.replies.receipt(reply.outbox_id, reply.lease, receipt) == "pending"
        assert await parts.replies.pull(PULL) == []
        wait = "select extract(epoch from ready_at - clock_timestamp())::int from lane where kind = 'send'"
        assert 3500 < await parts.count(wait) <= 3600
        await due_now(parts)
        [again] = await parts.replies.pull(PULL)
        assert (again.outbox_id, again.attempts) == (reply.outbox_id, 2)
        assert again.lease > reply.lease
        await parts.replies.receipt(again.outbox_id, again.lease, SENT)
        assert [r.text for r in await parts.replies.pull(PULL)] == ["2"]


async def test_attempts_used_up_end_the_reply_and_the_conversation_goes_on(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "1", "2")
        for attempt in range(1, MAX_SENDS + 1):
            await due_now(parts)
            [reply] = await parts.replies.pull(PULL)
            assert (reply.text, reply.attempts) == ("1", attempt)
            state = await parts.replies.receipt(
                reply.outbox_id, reply.lease, Receipt("retryable", error=f"no {attempt}")
            )
            assert state == ("dead" if attempt == MAX_SENDS else "pending")
        assert [r.text for r in await parts.replies.pull(PULL)] == ["2"]
        [request_id] = {r.request_id for r in await replies_of(parts) if r.text == "1"}
        receipts = await outbox.list_receipts(parts.database, request_id)
        assert [r["error"] for r in receipts] == [f"no {n}" for n in range(1, MAX_SENDS + 1)]
        await assert_balanced(parts)


@pytest.mark.parametrize("outcome", ["failed", "uncertain"])
async def test_a_final_receipt_lets_the_next_reply_go(database_url: str, outcome: SendOutcome) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "1", "2")
        [reply] = await parts.replies.pull(PULL)
        assert await parts.replies.receipt(reply.outbox_id, reply.lease, Receipt(outcome, error="blocked")) == outcome
        assert [r.text for r in await parts.replies.pull(PULL)] == ["2"]


async def test_a_lease_that_runs_out_is_honestly_uncertain(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "1", "2")
        [reply] = await parts.replies.pull(PULL)
        assert await outbox.expire_leases(parts.database) == 0, "not before its time"
        assert await lease_runs_out(parts) == 1
        assert await state_of(parts, reply) == "uncertain"
        assert [r.text for r in await parts.replies.pull(PULL)] == ["2"]
        with pytest.raises(Conflict, match="uncertain"):
            await parts.replies.receipt(reply.outbox_id, reply.lease, SENT)
        await assert_balanced(parts)


async def test_an_expired_lease_is_offered_again_if_the_platform_takes_a_key(
    database_url: str,
) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "1", "2")
        [reply] = await parts.replies.pull(IDEMPOTENT)
        assert await lease_runs_out(parts) == 1
        assert await state_of(parts, reply) == "pending"
        [again] = await parts.replies.pull(IDEMPOTENT)
        assert (again.outbox_id, again.attempts) == (reply.outbox_id, 2)
        with pytest.raises(Conflict):
            await parts.replies.receipt(reply.outbox_id, reply.lease, SENT)
        assert await parts.replies.receipt(again.outbox_id, again.lease, SENT) == "sent"


async def test_a_lease_that_runs_out_again_and_again_ends_in_a_dead_reply(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "1")
        for _ in range(MAX_SENDS):
            assert len(await parts.replies.pull(IDEMPOTENT)) == 1
            assert await lease_runs_out(parts) == 1
        [reply] = await replies_of(parts)
        assert reply.state == "dead"
        assert await parts.replies.pull(IDEMPOTENT) == []


class _ForNobody(ReplyService):
    """Its client hangs up while replies are leased for it."""

    async def pull(self, request: PullRequest, over: asyncio.Event | None = None) -> list[LeasedRow]:
        leased = await super().pull(request, over)
        if over is not None:
            over.set()
        return leased


async def test_a_connector_that_hangs_up_as_it_is_answered_uses_up_no_attempts(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "1")
        leaving = ConnectorService(parts.database, _ForNobody(parts.database, parts.notifier), Access(parts.database))
        for pull in (PULL, IDEMPOTENT) * MAX_SENDS:
            gone = asyncio.Event()
            assert await leaving.fetch(CONNECTOR, pull, gone) == []
            assert gone.is_set()
        assert await parts.count("select count(*) from receipt") == 2 * MAX_SENDS, "it was leased each time"
        [reply] = await parts.replies.pull(PULL)
        assert reply.attempts == 1


async def test_a_receipt_counts_once_and_only_with_its_lease(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "1")
        with pytest.raises(NotFound):
            await parts.replies.receipt(uuid4(), 1, SENT)
        [waiting] = await replies_of(parts)
        for lease in (0, 1, 99):
            with pytest.raises(Conflict):
                await parts.replies.receipt(waiting.outbox_id, lease, SENT)
        [reply] = await parts.replies.pull(PULL)
        with pytest.raises(Conflict):
            await parts.replies.receipt(reply.outbox_id, reply.lease + 1, SENT)
        outcomes = await asyncio.gather(
            *(parts.replies.receipt(reply.outbox_id, reply.lease, SENT) for _ in range(5)), return_exceptions=True
        )
        assert outcomes.count("sent") == 1
        assert [type(o) for o in outcomes].count(Conflict) == 4
        assert await parts.count("select count(*) from receipt") == 1


async def test_what_was_not_sent_can_be_sent_again_behind_what_waits(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "1", "2")
        [reply] = await parts.replies.pull(PULL)
        with pytest.raises(Conflict):
            await parts.replies.resend(reply.outbox_id)
        await parts.replies.receipt(reply.outbox_id, reply.lease, Receipt("failed", error="blocked"))
        await parts.replies.resend(reply.outbox_id)
        with pytest.raises(Conflict):
            await parts.replies.resend(reply.outbox_id)
        order = []
        while replies := await parts.replies.pull(PULL):
            [one] = replies
            order.append(one.text)
            assert one.attempts == 1
            await parts.replies.receipt(one.outbox_id, one.lease, SENT)
        assert order == ["2", "1"]
        assert await state_of(parts, reply) == "sent"
        with pytest.raises(NotFound):
            await parts.replies.resend(uuid4())
        await assert_balanced(parts)


async def test_ten_operators_that_send_again_at_once_send_once(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "1")
        [reply] = await parts.replies.pull(PULL)
        await parts.replies.receipt(reply.outbox_id, reply.lease, Receipt("uncertain"))
        done = await asyncio.gather(*(outbox.resend(parts.database, reply.outbox_id) for _ in range(10)))
        assert sum(done) == 1
        await assert_balanced(parts)


async def test_replies_read_at_the_door_count_as_sent_once_written(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "1", "2", channel="api")
        rows = await replies_of(parts)
        assert [(r.text, r.state, r.attempts) for r in rows] == [("1", "sent", 0), ("2", "sent", 0)]
        assert await parts.count("select count(*) from lane where state <> 'idle'") == 0
        await assert_balanced(parts)


# Waiting for replies ----------------------------------------------------------------------------------------------


async def test_a_long_poll_wakes_when_another_process_rings(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard.journey.reply._LOOK_EVERY_S", 600.0)
    async with lab(database_url) as parts:
        mine = await Database.connect(database_url)
        ears = await mine.dedicated_connection()
        try:
            notifier = Notifier(mine)
            await ears.add_listener(CHANNEL, lambda *args: notifier.handle_notification(str(args[3])))
            service = ReplyService(mine, notifier)
            waiting = asyncio.create_task(service.pull(PullRequest("telegram", "bot:house", wait_s=600)))
            await answered(parts, "wake up")
            async with asyncio.timeout(SOON):
                [reply] = await waiting
            assert reply.text == "wake up"
        finally:
            await ears.close()
            await mine.close()


async def test_a_long_poll_ends_empty_when_its_time_is_over_or_it_is_told_to(database_url: str) -> None:
    async with lab(database_url) as parts:
        assert await parts.replies.pull(PullRequest("telegram", "bot:house", wait_s=0.05)) == []
        over = asyncio.Event()
        waiting = asyncio.create_task(parts.replies.pull(PullRequest("telegram", "bot:house", wait_s=60), over))
        over.set()
        async with asyncio.timeout(SOON):
            assert await waiting == []


# Callbacks --------------------------------------------------------------------------------------------------------


@dataclass
class Platform:
    """Takes replies; what it says of the n-th is in `receipts`, then always "sent"."""

    receipts: list[Receipt | Exception] = field(default_factory=list)
    got: list[OutboxRow] = field(default_factory=list)

    async def send(self, reply: OutboxRow) -> Receipt:
        self.got.append(reply)
        said = self.receipts.pop(0) if self.receipts else Receipt("sent", str(reply.outbox_id))
        if isinstance(said, Exception):
            raise said
        return said


def worker(parts: Lab, callbacks: dict[str, Callback], *, configured: dict[str, Callback] | None = None) -> Worker:
    """`configured` is what the send leg knows, if that is not what the turn leg knew."""
    limits = TurnLimits(attempts=3, timeout=10, backoff_base=0.05, backoff_cap=0.2)
    ways = ReplyWays(parts.database, callbacks)
    turn = TurnLeg(parts.database, parts.notifier, parts.rule_book, {"echo": Echo()}, ways, limits)
    send = SendLeg(parts.database, callbacks if configured is None else configured)
    return Worker(
        parts.database, parts.notifier, {TURN: turn, NOTICE: turn, SEND: send}, WorkerSettings(poll=0.05, drain=1.0)
    )


async def test_replies_with_a_callback_are_posted_in_order_by_the_workers(database_url: str) -> None:
    platform = Platform()
    async with lab(database_url) as parts:
        async with at_work(worker(parts, {"bot:house": platform})):
            for n in range(5):
                await parts.accept.accept(submission(str(n), channel="api"))
            await eventually(lambda: settled(parts))
        assert [r.text for r in platform.got] == [str(n) for n in range(5)]
        assert {r.state for r in await replies_of(parts)} == {"sent"}
        await assert_balanced(parts)


async def test_a_failing_or_false_callback_is_retried_until_attempts_run_out(
    database_url: str,
) -> None:
    platform = Platform([Receipt("retryable", error="503"), *(ValueError("\x00 defect") for _ in range(MAX_SENDS))])
    async with lab(database_url) as parts:
        await parts.accept.accept(submission("1", channel="api"))
        await parts.accept.accept(submission("2", channel="api"))

        async def hurry() -> bool:
            await due_now(parts)
            return await settled(parts)

        with capture_logs() as logs:
            async with at_work(worker(parts, {"bot:house": platform})):
                await eventually(hurry)
        assert [r.text for r in platform.got] == ["1"] * MAX_SENDS + ["2", "2"]
        first, second = await replies_of(parts)
        assert (first.state, second.state) == ("dead", "sent")
        told = [entry for entry in logs if entry["event"] == "reply not sent"]
        of_first = [(e["attempt"], e["state"], e["log_level"]) for e in told if e["outbox_id"] == str(first.outbox_id)]
        assert of_first == [(n, "pending", "info") for n in range(1, MAX_SENDS)] + [(MAX_SENDS, "dead", "warning")]
        assert first.error == "ValueError:  defect"
        await assert_balanced(parts)


@pytest.mark.slow
async def test_a_callback_that_kills_every_worker_is_not_tried_forever(database_url: str) -> None:
    platform = Platform()
    async with lab(database_url) as parts:
        await parts.accept.accept(submission("1", channel="api"))
        await parts.accept.accept(submission("2", channel="api"))
        async with at_work(worker(parts, {"bot:house": platform}, configured={"bot:house": Never()})):
            await eventually(lambda: is_sending(parts))
        # What a worker that died again and again leaves: attempts of which no receipt tells.
        await parts.database.run("update lane set attempts = $1 where kind = 'send'", MAX_SENDS)
        async with at_work(worker(parts, {"bot:house": platform})):
            await eventually(lambda: settled(parts))
        first, second = await replies_of(parts)
        assert (first.state, second.state) == ("dead", "sent")
        assert "died" in str(first.error)
        assert [r.text for r in platform.got] == ["2"]
        await assert_balanced(parts)


class Never:
    """A platform that never answers."""

    async def send(self, reply: OutboxRow) -> Receipt:
        await asyncio.Event().wait()
        raise AssertionError(reply)


async def is_sending(parts: Lab) -> bool:
    return bool(
        await parts.database.value("select exists (select from lane where kind = 'send' and state = 'running')")
    )


async def test_a_callback_that_is_not_configured_any_more_fails_with_a_reason(database_url: str) -> None:
    async with lab(database_url) as parts:
        await parts.accept.accept(submission("1", channel="api"))
        async with at_work(worker(parts, {"bot:house": Platform()}, configured={})):
            await eventually(lambda: settled(parts))
        [reply] = await replies_of(parts)
        assert reply.state == "failed"
        assert "bot:house" in str(reply.error)


@pytest.mark.parametrize("hostile", ["a\x00b", "a\ud800b"])
async def test_whatever_a_platform_says_can_be_stored(database_url: str, hostile: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "1")
        [reply] = await parts.replies.pull(PULL)
        receipt = Receipt("failed", platform_message_id=hostile, error=hostile)
        assert await parts.replies.receipt(reply.outbox_id, reply.lease, receipt) == "failed"


# In parts ------------------------------------------------------------------------------------------------------------

IN_PARTS = IDEMPOTENT


async def recorded(parts: Lab, reply: OutboxRow, part: int, state: PartState, **more: Any) -> PartState:
    return await parts.replies.part(reply, reply.lease, OutboxPart(part, 5, state, **more), None)


async def replies_of(parts: Lab) -> list[OutboxRow]:
    """All, in the order in which they were written."""
    return (await outbox.page_of_replies(parts.database, limit=100))[::-1]


async def sent_parts(parts: Lab, reply: OutboxRow, *numbers: int) -> None:
    for number in numbers:
        assert await recorded(parts, reply, number, "intent", key=f"k{number}") == "intent"
        assert await recorded(parts, reply, number, "sent", platform_message_id=f"p{number}") == "sent"


def states(reply: LeasedRow) -> list[tuple[int, str]]:
    return [(one.part, one.state) for one in reply.parts]


@pytest.mark.parametrize("in_flight", [True, False], ids=["during a part", "between two parts"])
async def test_after_a_crash_midway_only_the_part_that_was_begun_is_uncertain(
    database_url: str, in_flight: bool
) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "long", "next")
        [reply] = await parts.replies.pull(IN_PARTS)
        assert not reply.parts
        await sent_parts(parts, reply, 0, 1)
        if in_flight:
            await recorded(parts, reply, 2, "intent", key="k2")
        assert await lease_runs_out(parts) == 1
        [again] = await parts.replies.pull(IN_PARTS)
        assert (again.outbox_id, again.attempts) == (reply.outbox_id, 1), "a crash uses up no attempt"
        known = [(0, "sent"), (1, "sent")]
        assert states(again) == [*known, (2, "uncertain")] if in_flight else known
        assert [one.key for one in again.parts] == ["k0", "k1", "k2"][: len(again.parts)]
        assert await recorded(parts, again, 1, "intent") == "sent", "what is sent is not begun again"
        await sent_parts(parts, again, 2, 3, 4)
        assert await parts.replies.receipt(again.outbox_id, again.lease, SENT) == "sent"
        assert [r.text for r in await parts.replies.pull(IN_PARTS)] == ["next"]


async def test_what_comes_back_after_its_lease_ran_out_begins_no_part(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "long")
        [reply] = await parts.replies.pull(IN_PARTS)
        await recorded(parts, reply, 0, "intent")
        await parts.database.run("update lane set lease_until = now() - interval '1 ms' where state = 'running'")
        with pytest.raises(Conflict):
            await recorded(parts, reply, 1, "intent")
        assert await recorded(parts, reply, 0, "sent") == "sent", "what has happened is still recorded"
        await lease_runs_out(parts)
        with pytest.raises(Conflict):
            await recorded(parts, reply, 1, "intent")


async def test_recording_a_part_renews_the_lease(database_url: str) -> None:
    left = "select extract(epoch from lease_until - clock_timestamp())::int from lane where state = 'running'"
    async with lab(database_url) as parts:
        await answered(parts, "long")
        [reply] = await parts.replies.pull(replace(IN_PARTS, lease_s=5))
        assert await parts.count(left) <= 5
        for _ in range(2):
            assert await recorded(parts, reply, 0, "intent") == "intent"
            assert await parts.count(left) > 5


async def test_an_instance_that_lost_its_account_begins_no_part(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "long")
        account = ("telegram", "bot:house")
        first = await lease_account(parts.database, *account, Holder("a"))
        [reply] = await parts.replies.pull(replace(IN_PARTS, account_lease=first.lease))
        intent, sent = OutboxPart(0, 1, "intent"), OutboxPart(0, 1, "sent", platform_message_id="7")
        assert await parts.replies.part(reply, reply.lease, intent, first.lease) == "intent"
        await parts.database.run("update connector_account set lease_until = clock_timestamp()")
        await lease_account(parts.database, *account, Holder("b"))
        for held in (first.lease, None):
            with pytest.raises(Conflict):
                await parts.replies.part(reply, reply.lease, intent, held)
        assert await parts.replies.part(reply, reply.lease, sent, first.lease) == "sent"


async def test_later_uses_up_no_attempt_and_ends_after_a_day(database_url: str) -> None:
    later = Receipt("later", error="429")
    async with lab(database_url) as parts:
        await answered(parts, "1", "2")
        for _ in range(MAX_SENDS + 2):
            await due_now(parts)
            [reply] = await parts.replies.pull(IN_PARTS)
            assert await recorded(parts, reply, 0, "sent") == "sent"
            await recorded(parts, reply, 1, "intent")
            assert await parts.replies.receipt(reply.outbox_id, reply.lease, later) == "pending"
        await due_now(parts)
        [reply] = await parts.replies.pull(IN_PARTS)
        assert (reply.attempts, states(reply)) == (1, [(0, "sent")]), "what was begun was certainly not sent"
        await parts.database.run("update outbox set created_at = now() - interval '25 hours'")
        assert await parts.replies.receipt(reply.outbox_id, reply.lease, later) == "dead"
        stored = await outbox.get_reply(parts.database, reply.outbox_id)
        assert stored is not None
        assert stored.error == "not taken within 24 hours: 429"
        assert [r.text for r in await parts.replies.pull(PULL)] == ["2"]


async def test_what_may_have_been_sent_in_part_is_uncertain_after_a_day(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "long")
        [reply] = await parts.replies.pull(IN_PARTS)
        await recorded(parts, reply, 0, "intent")
        await lease_runs_out(parts)
        [again] = await parts.replies.pull(IN_PARTS)
        await parts.database.run("update outbox set created_at = now() - interval '25 hours'")
        assert await parts.replies.receipt(again.outbox_id, again.lease, Receipt("later")) == "uncertain"


async def test_a_part_is_as_old_as_its_first_intent(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "long")
        [reply] = await parts.replies.pull(IN_PARTS)
        await recorded(parts, reply, 0, "intent")
        await parts.database.run("update outbox_part set at = at - interval '1 hour'")
        await recorded(parts, reply, 0, "intent")
        await lease_runs_out(parts)
        [again] = await parts.replies.pull(IN_PARTS)
        assert 3600 <= again.parts[0].age_s < 7200
        await recorded(parts, again, 0, "sent")
        [known] = await outbox.parts_of(parts.database, reply.outbox_id)
        assert known.age_s < 3600


async def test_an_operator_decides_about_an_uncertain_part(database_url: str) -> None:
    async with lab(database_url) as parts:
        await answered(parts, "long")
        [reply] = await parts.replies.pull(IN_PARTS)
        await sent_parts(parts, reply, 0)
        await recorded(parts, reply, 1, "intent")
        assert await parts.replies.receipt(reply.outbox_id, reply.lease, Receipt("uncertain")) == "uncertain"
        assert [one.state for one in await outbox.parts_of(parts.database, reply.outbox_id)] == ["sent", "uncertain"]
        await parts.replies.resend(reply.outbox_id)
        [again] = await parts.replies.pull(IN_PARTS)
        assert states(again) == [(0, "sent")]

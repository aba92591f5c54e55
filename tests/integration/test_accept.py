"""Accept on a real database: stored once, in the order of commits, byte for byte, and never half."""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.identity import conversation
from switchboard.core.envelope.read import read_envelope
from switchboard.core.policy.rates import AcceptLimits
from switchboard.core.uuid7 import uuid7_ms
from switchboard.domain.errors import (
    Forbidden,
    IdempotencyMismatch,
    InvalidInput,
    Overloaded,
    SenderOverRate,
    SwitchboardError,
    TooLarge,
    Unavailable,
)
from switchboard.domain.message import Message
from switchboard.domain.routing import Chosen, Decision, SystemId
from switchboard.journey.accept import Submission
from switchboard.journey.admission import Admission
from switchboard.store.books import audit_books
from switchboard.store.clock import DatabaseClock
from switchboard.store.database import Database
from switchboard.store.messages import inbox
from switchboard.store.messages.inbox import Acceptance, Arrival, unpack_raw
from switchboard.store.work.lanes import Looker, look
from tests.hands import assert_balanced, at_work, settled
from tests.lab import ROOT, Lab, butler, envelope, envelope_json, lab, message, rule, submission, team_of
from tests.waiting import eventually

HOLD_KEY = "insert into dedupe values ($1, gen_random_uuid(), gen_random_uuid())"
TO_ECHO = Decision(1, (Chosen(SystemId("System1/echo"), ROOT),), (), ())


@pytest.mark.parametrize(
    "more",
    [{"of_event": {"kind": "edit", "refers_to": "1"}}, {"of_event": {"kind": "delete"}, "text": ""}, {"kept": True}],
    ids=["an edit", "a deletion without text", "history"],
)
@pytest.mark.parametrize("text", ["a comma", "/stop"])
async def test_what_is_kept_as_history_goes_to_nobody(database_url: str, more: dict[str, Any], text: str) -> None:
    fields = envelope_json(**{"text": text, **more, "event": "2"})
    if "kept" in more:
        fields["control"]["ingestion_tier"] = "history"
    raw = json.dumps(fields).encode()
    async with lab(database_url) as parts:
        await parts.accept.accept(submission("hello", event="1"))
        kept = await parts.accept.accept(Submission(read_envelope(raw), raw))
        assert kept.decision is not None
        assert (kept.decision.chosen, kept.decision.unrouted) == ((), ())
        assert [step.reason for step in kept.decision.trail] == ["history"]
        assert (await parts.accept.accept(Submission(read_envelope(raw), raw))).duplicate
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        stored = [await inbox.get_message(parts.database, one) for one in (kept.request_id,)]
        assert [one.state for one in stored if one] == ["history"]
        assert await parts.count("select count(*) from delivery") == 1
        await assert_balanced(parts)
        books = await audit_books(parts.database)
        assert (books.messages.accepted, books.messages.answered, books.messages.history) == (2, 1, 1)


def album(first: str, *others: str) -> Submission:
    return submission("a photo", event=first, of_event={"also": list(others)})


async def test_the_other_events_of_an_album_are_duplicates_of_it(database_url: str) -> None:
    async with lab(database_url) as parts:
        outcomes = await all_accepted(parts, [submission("x", event="0"), album("1", "2", "3")])
        assert [one.duplicate for one in outcomes] == [False, False]
        again = await all_accepted(parts, [submission(event=event, sender="bob") for event in ("1", "2", "3", "4")])
        assert [one.duplicate for one in again] == [True, True, True, False]
        assert {one.request_id for one in again[:3]} == {outcomes[1].request_id}
        elsewhere = await parts.accept.accept(submission(event="2", endpoint="bot:other"))
        assert not elsewhere.duplicate
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        await assert_balanced(parts)


async def test_an_album_that_is_a_duplicate_reserves_nothing(database_url: str) -> None:
    async with lab(database_url) as parts:
        await parts.accept.accept(album("1", "2"))
        assert (await parts.accept.accept(album("1", "2", "3"))).duplicate
        late = await parts.accept.accept(submission("the third", event="3"))
        assert not late.duplicate, "the connector submits it by itself"


async def all_accepted(parts: Lab, submissions: list[Submission]) -> list[Acceptance]:
    outcomes = await parts.accept.accept_all(submissions)
    return [outcome for outcome in outcomes if isinstance(outcome, Acceptance)]


async def test_the_same_event_is_one_message_and_all_senders_get_the_same_id(database_url: str) -> None:
    async with lab(database_url) as parts:
        first = await parts.accept.accept(submission("one", event="e1"))
        again = await parts.accept.accept(submission("one, sent again", event="e1"))
        assert (first.duplicate, again.duplicate) == (False, True)
        assert again.request_id == first.request_id
        assert await parts.count("select count(*) from message_inbox") == 1
        assert await parts.count("select count(*) from delivery") == 1
        await assert_balanced(parts)


async def test_an_event_that_is_twice_in_one_batch_is_one_message(database_url: str) -> None:
    async with lab(database_url) as parts:
        events = ["a", "b", "a", "c", "b", "a"]
        accepted = await all_accepted(parts, [submission(f"text {n}", event=e) for n, e in enumerate(events)])
        assert [a.duplicate for a in accepted] == [False, False, True, False, True, True]
        assert len({a.request_id for a in accepted}) == 3
        for event in "abc":
            assert len({a.request_id for a, e in zip(accepted, events, strict=True) if e == event}) == 1
        stored = await parts.database.rows("select envelope #>> '{payload,normalized_text}' as text from message_inbox")
        assert {row["text"] for row in stored} == {"text 0", "text 1", "text 3"}
        assert await parts.count("select last_seq from lane") == 3, "a duplicate takes no place in its lane"
        await assert_balanced(parts)


async def test_the_same_text_under_two_ids_is_two_messages(database_url: str) -> None:
    async with lab(database_url) as parts:
        accepted = await all_accepted(parts, [submission("ok", event="1"), submission("ok", event="2")])
        assert [a.duplicate for a in accepted] == [False, False]
        assert await parts.count("select count(*) from delivery") == 2


async def test_one_idempotency_key_is_one_message_whatever_the_events_are_called(database_url: str) -> None:
    async with lab(database_url) as parts:
        accepted = await all_accepted(parts, [submission("ok", event=str(n), key="k") for n in range(3)])
        assert [a.duplicate for a in accepted] == [False, True, True]
        other = await parts.accept.accept(submission("ok", event="0"))
        assert not other.duplicate, "an idempotency key and an event id of the same name are not the same"


ANOTHER_BODY: list[dict[str, Any]] = [
    {"text": "bad"},
    {"sender": "bob"},
    {"thread": "t"},
]


@pytest.mark.parametrize("other", ANOTHER_BODY, ids=lambda other: next(iter(other)))
async def test_a_key_used_with_another_body_is_refused_with_the_first_id(
    database_url: str, other: dict[str, Any]
) -> None:
    async with lab(database_url) as parts:
        [first, again] = await all_accepted(parts, [submission("ok", key="k"), submission("ok", key="k", raw={"n": 2})])
        assert (again.request_id, again.duplicate) == (first.request_id, True), "the original bytes are not compared"
        same_batch = [submission("fresh", key="k2"), submission(**{"text": "ok", "key": "k2", **other})]
        stored, refused = await parts.accept.accept_all(same_batch)
        assert isinstance(stored, Acceptance)
        assert isinstance(refused, IdempotencyMismatch)
        assert refused.details == {"request_id": str(stored.request_id)}
        with pytest.raises(IdempotencyMismatch, match=str(first.request_id)):
            await parts.accept.accept(submission(**{"text": "ok", "key": "k", **other}))
        assert await parts.count("select count(*) from message_inbox") == 2


async def test_one_event_is_one_message_whatever_thread_and_form_it_has(database_url: str) -> None:
    async with lab(database_url) as parts:
        update = {"update_id": 7, "message": {"message_id": 1, "chat": {"id": 9}, "text": "x"}}
        mail = {"headers": {"Message-ID": "<m@x>"}}
        for channel, raw in (("telegram", update), ("email", mail)):
            given = [
                submission("x", channel=channel, raw=raw, thread=thread, event=event)
                for thread, event in ((None, "a"), ("t", "b"), ("9", "c"))
            ]
            assert [a.duplicate for a in await all_accepted(parts, given)] == [False, True, True]
        given = [submission("x", key="k", channel="api", event=event) for event in "ab"]
        assert [a.duplicate for a in await all_accepted(parts, given)] == [False, True]


async def test_a_reply_goes_to_the_chat_of_its_message_named_as_thread_or_not(
    database_url: str,
) -> None:
    async with lab(database_url) as parts:
        raw = {"update_id": 7, "message": {"chat": {"id": -1001, "type": "supergroup"}}}
        await all_accepted(parts, [submission("x", raw=raw), submission("y", thread="-1001"), submission("z")])
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        rows = await parts.database.rows("select thread, count(*) as n from outbox group by thread order by thread")
        assert [(row["thread"], row["n"]) for row in rows] == [("-1001", 2), (None, 1)]


async def test_two_accounts_may_use_the_same_event_id(database_url: str) -> None:
    async with lab(database_url) as parts:
        accepted = await all_accepted(parts, [submission(event="7", endpoint=f"bot:{n}") for n in range(2)])
        assert [a.duplicate for a in accepted] == [False, False]


async def test_two_processes_accepting_the_same_messages_store_each_once(database_url: str) -> None:
    async with lab(database_url) as one, lab(database_url) as two:
        for round_ in range(5):
            given = [submission("x", event=f"{round_}-{n}", sender=f"s{n % 7}") for n in range(40)]
            mirrored = list(reversed(given))
            ours, theirs = await asyncio.gather(all_accepted(one, given), all_accepted(two, mirrored))
            assert [a.request_id for a in ours] == [a.request_id for a in reversed(theirs)]
            assert sum(not a.duplicate for a in ours + theirs) == 40
        await assert_balanced(one)


async def test_a_commit_repeated_after_a_lost_answer_is_no_duplicate(
    database_url: str,
) -> None:
    async with lab(database_url) as parts:
        batch = [Arrival(message(str(n)), TO_ECHO) for n in range(3)]
        first = await inbox.accept(parts.database, batch)
        unheard = await inbox.accept(parts.database, [*batch, Arrival(message("new"), TO_ECHO)])
        assert [a.duplicate for a in unheard] == [False] * 4
        assert [a.request_id for a in unheard[:3]] == [a.request_id for a in first]
        assert await parts.count("select count(*) from delivery") == 4
        await assert_balanced(parts)


async def test_lanes_and_conversations_that_went_away_are_made_again(database_url: str) -> None:
    async with lab(database_url) as parts:
        batch = [message(str(n), sender=f"s{n % 2}") for n in range(9)]
        for one in batch[:6]:
            await inbox.accept(parts.database, [Arrival(one, TO_ECHO)])
        there = await parts.database.rows("select key, last_seq from lane order by key")
        assert [row["last_seq"] for row in there] == [3, 3]
        await parts.database.run("truncate conversation, lane, delivery, decision, message_inbox, message_raw, dedupe")
        await inbox.accept(parts.database, [Arrival(one, TO_ECHO) for one in batch[6:]])
        assert await parts.count("select sum(last_seq) from lane join conversation using (conversation)") == 3
        await assert_balanced(parts)


async def test_places_in_a_lane_are_given_in_the_order_of_commits(database_url: str) -> None:
    async with lab(database_url) as parts:
        fast, slow = await parts.database.dedicated_connection(), await parts.database.dedicated_connection()
        try:
            early, late = message("begun first", sender="x"), message("committed first", sender="x")
            transaction = slow.transaction()
            await transaction.start()
            await slow.execute("select now()")  # its clock stands still from here on
            assert await _accept_by(parts, late) == 1
            await slow.execute("select from lane for update")
            blocked = asyncio.create_task(_accept_by(parts, early))
            await eventually(lambda: _waits_for_lock(parts))
            await transaction.commit()
            assert await blocked == 2
            assert early.request_id < late.request_id, "the ids are in the other order, and must not matter"
        finally:
            await fast.close()
            await slow.close()


async def _accept_by(parts: Lab, given: Message) -> int:
    await inbox.accept(parts.database, [Arrival(given, TO_ECHO)])
    return await parts.count("select seq from delivery where request_id = $1", given.request_id)


async def _waits_for_lock(parts: Lab) -> bool:
    return bool(
        await parts.database.value(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )
    )


async def test_concurrent_accepts_leave_no_lane_gaps_and_keep_each_senders_order(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        parts = [await stack.enter_async_context(lab(database_url)) for _ in range(3)]

        async def send(by: Lab, sender: int) -> None:
            for n in range(10):
                await by.accept.accept(submission(f"{sender}:{n}", sender=str(sender % 3), event=f"{sender}-{n}"))

        await asyncio.gather(*(send(parts[n % 3], n) for n in range(12)))
        rows = await parts[0].database.rows(
            "select lane, seq, m.envelope #>> '{payload,normalized_text}' as text"
            " from delivery join message_inbox m using (request_id) order by lane, seq"
        )
        numbers, orders = defaultdict(list), defaultdict(list)
        for row in rows:
            who, _, n = row["text"].partition(":")
            numbers[row["lane"]].append(row["seq"])
            orders[who].append(int(n))
        assert all(seqs == list(range(1, 41)) for seqs in numbers.values())
        assert all(order == list(range(10)) for order in orders.values()), "an acknowledged message stays in front"
        await assert_balanced(parts[0])


RAW = [
    b'{"schema_version" :\t"ingest.v1",\r\n "x": 1.0, "x": 2e0}   \n',
    b'{"text": "\\u0000 \\ud800 \\u00e9"}',
    b"\xff\xfe\x00binary\x00",
    b"",
]


ODD = [
    "a\x1eb",
    "a\nb\r\nc",
    '{"a",NULL}',
    "NULL",
    "\\N \\x41 \\",
    "'; drop table lane; --",
    "$1, $2",
    "\x01\x7f\u2028\U0001f600",
    ",",
    "t",
]


@pytest.mark.parametrize("together", [True, False])
async def test_whatever_the_names_look_like_they_are_stored_as_they_are(database_url: str, together: bool) -> None:
    """Many messages go to the server as one text per column."""
    given = [
        submission(
            f"1{odd}2",
            sender=f"3{odd}4",
            endpoint=f"5{odd}6",
            thread=f"7{odd}8" if n % 2 else None,
            key=odd,
        )
        for n, odd in enumerate(ODD)
    ]
    async with lab(database_url) as parts:
        accepted = await all_accepted(parts, given) if together else [await parts.accept.accept(one) for one in given]
        rows = await parts.database.rows(
            "select i.*, c.name, w.raw from message_inbox i join conversation c using (conversation)"
            " join message_raw w using (request_id) join dedupe d using (request_id) order by i.request_id"
        )
        assert [row["request_id"] for row in rows] == [one.request_id for one in accepted]
        for n, (row, odd) in enumerate(zip(rows, ODD, strict=True)):
            assert (row["sender"], row["endpoint"]) == (f"3{odd}4", f"5{odd}6")
            assert row["thread"] == (f"7{odd}8" if n % 2 else None)
            assert row["name"] == conversation(given[n].envelope, CHANNELS["api"])
            assert unpack_raw(row["raw"]) == given[n].raw
            assert row["envelope"]["payload"]["normalized_text"] == f"1{odd}2"
        await assert_balanced(parts)


async def test_workers_are_woken_by_what_enters_lanes_that_were_just_idle(database_url: str) -> None:
    rung: list[str] = []
    async with lab(database_url) as parts:

        async def rings(*senders: str, queued: bool = False) -> bool:
            rung.clear()
            batch = [Arrival(message("x", sender=sender), TO_ECHO) for sender in senders]
            await inbox.accept(parts.database, batch, queued=queued, wake=lambda: rung.append("work"))
            return bool(rung)

        assert await rings("a", "b")
        assert await rings("a"), "a worker may have passed over the lane, because it was locked"
        await parts.database.run("update lane set ready_at = ready_at - interval '2 seconds'")
        assert not await rings("b", "a")
        assert await rings("a", "c")
        await parts.database.run("update lane set state = 'idle', done_seq = last_seq where lane_name(key) like '%/b'")
        assert not await rings("a", queued=True), "nothing waiting to be classified"
        known = Arrival(message("y", sender="b", event="e"), TO_ECHO)
        await inbox.accept(parts.database, [known])
        await parts.database.run("update lane set state = 'idle', done_seq = last_seq where lane_name(key) like '%/b'")
        await inbox.accept(parts.database, [known], wake=lambda: rung.append("for a duplicate"))
        assert rung == []
        assert await rings("b")


async def test_two_commits_are_under_way_but_never_with_the_same_conversation(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = inbox.accept
    at_work: list[set[str]] = []
    beside: list[tuple[int, bool]] = []

    async def watched(database: Database, given: Any, **more: Any) -> list[Acceptance]:
        mine = {one.arrival.message.conversation for one in given}
        beside.append((len(at_work), any(mine & others for others in at_work)))
        at_work.append(mine)
        try:
            return await real(database, given, **more)
        finally:
            at_work.remove(mine)

    monkeypatch.setattr(inbox, "accept", watched)
    for shared in ("s", None):
        beside.clear()
        calls = [[submission(thread=f"{shared or call}-{n % 7}") for n in range(60)] for call in range(6)]
        async with lab(database_url) as parts:
            taken = [
                one for call in await asyncio.gather(*(all_accepted(parts, call) for call in calls)) for one in call
            ]
            rows = await parts.database.rows("select request_id from delivery order by lane_name(lane), seq")
        assert not any(overlaps for _, overlaps in beside)
        assert max(count for count, _ in beside) == (0 if shared else 1)
        if shared:
            by_lane = [taken[at].request_id for n in range(7) for at in range(len(taken)) if at % 60 % 7 == n]
            assert [row["request_id"] for row in rows] == by_lane


async def test_the_leg_rings_for_workers(database_url: str) -> None:
    rung: list[str] = []
    async with lab(database_url) as parts:
        with parts.notifier.subscribe("work", lambda: rung.append("work")):
            await parts.accept.accept(submission())
        assert rung == ["work"]


@pytest.mark.parametrize("raw", RAW)
async def test_what_arrived_is_kept_byte_for_byte(database_url: str, raw: bytes) -> None:
    async with lab(database_url) as parts:
        accepted = await parts.accept.accept(Submission(envelope("hello"), raw, "message/x"))
        assert await inbox.get_raw(parts.database, accepted.request_id) == (raw, "message/x")


async def test_a_platform_object_with_nul_and_odd_spaces_is_kept_byte_for_byte(database_url: str) -> None:
    odd = submission("  a\u2028b ", raw={"nul": "\u0000", "deep": [{"\u0000": 1}], "lone": "\u2028\t "})
    async with lab(database_url) as parts:
        accepted = await parts.accept.accept(odd)
        assert await inbox.get_raw(parts.database, accepted.request_id) == (odd.raw, "application/json")
        stored = await inbox.get_message(parts.database, accepted.request_id)
        assert stored is not None
        assert (stored.sender, stored.state) == ("alice", "in_flight")
        assert stored.envelope["payload"]["normalized_text"] == "a\u2028b"
        assert "raw" not in stored.envelope["payload"]


async def test_a_full_backlog_refuses_with_a_retry_time_until_it_shrinks(
    database_url: str,
) -> None:
    async with lab(database_url, backlog=3) as parts:
        assert len(await all_accepted(parts, [submission(str(n)) for n in range(3)])) == 3
        watching = asyncio.create_task(parts.accept.watch_backlog(every=0.02))
        try:
            await eventually(lambda: _is_refused(parts))
            stored = await parts.count("select count(*) from message_inbox")
            with pytest.raises(Overloaded) as refused:
                await parts.accept.accept(submission("too much"))
            assert refused.value.retry_after > 0
            assert await parts.count("select count(*) from message_inbox") == stored, "nothing was stored"
            await parts.database.run("update lane set done_seq = last_seq, state = 'idle'")
            await eventually(lambda: _is_taken(parts))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def by_connector(text: str = "x", **more: Any) -> Submission:
    return replace(submission(text, **more), by_operator=False)


async def taken(parts: Lab, count: int, **more: Any) -> int:
    """How many of so many messages are accepted."""
    outcomes = await parts.accept.accept_all([by_connector(str(n), **more) for n in range(count)])
    assert all(isinstance(one, Acceptance | Overloaded) for one in outcomes)
    return sum(isinstance(one, Acceptance) for one in outcomes)


async def test_a_sender_over_its_rate_is_refused_and_no_other(database_url: str) -> None:
    async with lab(database_url, sender_per_minute=3) as parts:
        outcomes = await parts.accept.accept_all([by_connector(str(n)) for n in range(4)])
        assert [type(one) for one in outcomes] == [Acceptance, Acceptance, Acceptance, SenderOverRate]
        assert isinstance(outcomes[3], SenderOverRate)
        assert 0 < outcomes[3].retry_after <= 20
        assert await parts.count("select count(*) from message_inbox") == 3
        assert await taken(parts, 1, sender="bob") == 1
        assert await taken(parts, 1, endpoint="bot:work") == 1
        assert isinstance(await parts.accept.accept(submission("by an operator")), Acceptance)


async def test_what_was_acknowledged_is_a_duplicate_also_where_there_is_no_room(database_url: str) -> None:
    """Its sender missed the answer: refusing it would make them send it for ever."""
    async with lab(database_url, sender_per_minute=3) as parts:
        three = [replace(submission(str(n)), by_operator=False) for n in range(3)]
        firsts = await parts.accept.accept_all(three)
        again = await parts.accept.accept_all([*three, replace(submission("new"), by_operator=False)])
        assert [type(one) for one in again] == [*[Acceptance] * 3, SenderOverRate]
        assert [(a.request_id, a.duplicate) for a in again[:3] if isinstance(a, Acceptance)] == [
            (f.request_id, True) for f in firsts if isinstance(f, Acceptance)
        ]


async def test_another_mail_with_a_known_id_needs_room_of_its_own(database_url: str) -> None:
    async with lab(database_url, sender_per_minute=1) as parts:
        mails = [
            replace(submission(text, channel="email", sender="a@x.example", event="<1@x.example>"), by_operator=False)
            for text in ("first", "first", "second")
        ]
        [first], [same], [other] = [await parts.accept.accept_all([mail]) for mail in mails]
        assert isinstance(first, Acceptance)
        assert isinstance(same, Acceptance)
        assert same.duplicate
        assert isinstance(other, SenderOverRate)


async def test_what_stores_nothing_does_not_count_against_the_rate(database_url: str) -> None:
    async with lab(database_url, sender_per_minute=3) as parts:
        pinned = [replace(submission(str(n), pinned="System1/echo"), by_operator=False) for n in range(3)]
        assert {type(one) for one in await parts.accept.accept_all(pinned)} == {Forbidden}
        one = replace(submission("one"), by_operator=False)
        for _ in range(4):
            assert await _is_stored(parts, one)
        assert await _is_stored(parts, replace(submission("two"), by_operator=False))


async def _is_stored(parts: Lab, one: Submission) -> bool:
    [outcome] = await parts.accept.accept_all([one])
    return isinstance(outcome, Acceptance)


async def test_an_endpoint_fills_half_the_backlog_whose_end_is_for_priorities(
    database_url: str,
) -> None:
    async with lab(database_url) as parts:
        assert await taken(parts, 20) == 20
        admission = Admission(parts.database, AcceptLimits(backlog=40, sender_per_minute=0))
        await admission.take(await look(parts.database, Looker("here", 1)))

        def admitted(count: int, *, by_operator: bool = False, **more: Any) -> int:
            for n in range(count):
                try:
                    admission.check(envelope(**more), by_operator=by_operator, now=0)
                except Overloaded:
                    return n
            return count

        assert admitted(1) == 0, "half of it is of this endpoint"
        assert admitted(20, endpoint="bot:other") == 16
        assert admitted(3, endpoint="bot:third", tier="high_priority") == 2
        assert admitted(3, by_operator=True) == 2
        await admission.take(await look(parts.database, Looker("here", 1)))
        assert admitted(20, endpoint="bot:other") == 16, "of those before, none came in the end"


async def _is_refused(parts: Lab) -> bool:
    return not await _is_taken(parts)


async def _is_taken(parts: Lab) -> bool:
    [outcome] = await parts.accept.accept_all([submission("probe", event="probe")])
    return isinstance(outcome, Acceptance)


async def test_what_is_good_of_a_batch_is_kept_and_the_rest_is_told_why(database_url: str) -> None:
    async with lab(database_url, message_bytes=2000) as parts:
        wrong = submission("x", channel="telegram")
        wrong = Submission(
            replace(wrong.envelope, source=replace(wrong.envelope.source, provider="pigeon")),
            wrong.raw,
        )
        outcomes = await parts.accept.accept_all([submission("good"), submission("x" * 3000), wrong, submission("too")])
        assert [type(o) for o in outcomes] == [Acceptance, TooLarge, InvalidInput, Acceptance]
        assert await parts.count("select count(*) from message_inbox") == 2


@pytest.mark.parametrize("poison", ["a\x00b", "a\ud800b"])
async def test_a_message_that_cannot_be_stored_costs_the_others_nothing(database_url: str, poison: str) -> None:
    async with lab(database_url) as parts:
        bad = replace(submission("bad"), media_type=poison)
        first, refused, last = await parts.accept.accept_all([submission("good"), bad, submission("too")])
        assert (type(first), type(last)) == (Acceptance, Acceptance)
        assert not isinstance(refused, (Acceptance, Unavailable)), "waiting will not make it better"
        assert await parts.count("select count(*) from message_inbox") == 2


async def test_a_message_of_which_no_json_can_be_made_costs_the_others_nothing(database_url: str) -> None:
    async with lab(database_url) as parts:
        bad = submission("bad")
        odd = replace(bad.envelope.sender, display_name="a\ud800b")
        bad = replace(bad, envelope=replace(bad.envelope, sender=odd))
        first, refused, last = await parts.accept.accept_all([submission("good"), bad, submission("too")])
        assert (type(first), type(refused), type(last)) == (Acceptance, SwitchboardError, Acceptance)
        assert await parts.count("select count(*) from message_inbox") == 2


async def test_a_message_for_several_butlers_and_a_dead_end_is_stored_atomically(database_url: str) -> None:
    rules = [rule("System1/a", "System1/b", "System4/root")]
    async with lab(database_url, [team_of("System1/a", "System1/b", "System4/root")], rules) as parts:
        accepted = await parts.accept.accept(submission("for all"))
        again = await parts.accept.accept(submission("for all", event="other", sender="bob"))
        assert accepted.request_id != again.request_id
        assert await parts.count("select count(*) from delivery") == 4
        assert await parts.count("select count(*) from dead_letter") == 2
        assert await parts.count("select count(*) from notice") == 2
        await assert_balanced(parts)


async def test_many_batches_over_shared_conversations_never_deadlock(
    database_url: str,
) -> None:
    members = (butler("a"), butler("b"), butler("c"))
    dice = random.Random(7)

    def batch(round_: int) -> list[Arrival]:
        made = []
        for n in range(25):
            chosen = dice.sample(members, dice.randint(1, 3))
            decision = Decision(1, tuple(Chosen(m.system_id, ROOT) for m in chosen), (), ())
            event = f"{round_}-{n}" if dice.random() < 0.6 else f"shared-{dice.randrange(40)}"
            made.append(Arrival(message("x", sender=f"s{dice.randrange(12)}", event=event), decision))
        dice.shuffle(made)
        return made

    async with lab(database_url) as parts:
        wide = await Database.connect(database_url, size=24)
        try:
            batches = [batch(n) for n in range(60)]
            async with asyncio.timeout(30):
                await asyncio.gather(*(inbox.accept(wide, b) for b in batches))
        finally:
            await wide.close()
        for row in await parts.database.rows(
            "select lane, array_agg(seq order by seq) as seqs from delivery group by 1"
        ):
            assert all(after == before + 1 for before, after in pairwise(row["seqs"]))
        deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
        assert await parts.count(deadlocks) == 0
        await assert_balanced(parts)


async def test_without_a_database_the_sender_is_told_to_come_again(database_url: str) -> None:
    async with lab(database_url) as parts:
        parts.database.pool.terminate()
        with pytest.raises(Unavailable):
            await parts.accept.accept(submission("anyone there?"))


async def test_what_is_a_duplicate_of_nothing_is_not_taken_for_new(database_url: str) -> None:
    """Somebody tidies up by hand while the duplicate waits for a key that another transaction holds."""
    async with lab(database_url) as parts:
        [first] = await all_accepted(parts, [submission("x", sender="a", key="k")])
        keys = await parts.database.keys()
        async with parts.database.connection() as holding:
            transaction = holding.transaction()
            await transaction.start()
            await holding.execute(HOLD_KEY, keys.event("telegram", "bot:house", "idem:j"))
            more = [submission("x", sender="a", key="k"), submission("x", sender="b", key="j")]
            again = asyncio.create_task(all_accepted(parts, more))
            await eventually(lambda: _waits_for_lock(parts))
            await parts.database.run("delete from dedupe where request_id = $1", first.request_id)
            await transaction.rollback()
        ids = [one.request_id for one in await again]
        assert await parts.count("select count(*) from message_inbox where request_id = any($1)", ids) == 2


@pytest.mark.parametrize("ahead", [timedelta(seconds=-20), timedelta(0), timedelta(seconds=20)])
async def test_messages_are_numbered_and_dated_by_the_clock_of_the_database(
    database_url: str, ahead: timedelta
) -> None:
    clock = DatabaseClock(lambda: datetime.now(UTC) + ahead)
    async with lab(database_url, clock=clock) as parts:
        await clock.measure(parts.database)
        since = await parts.database.value("select clock_timestamp()")
        accepted = await parts.accept.accept(submission("x"))
        row = await parts.database.row("select received_at, clock_timestamp() as until from message_inbox")
        assert row is not None
        about = timedelta(seconds=5)  # of a machine that stands still while the clock is measured
        assert since - about < row["received_at"] < row["until"] + about
        assert abs(uuid7_ms(accepted.request_id) - row["received_at"].timestamp() * 1000) < 2


async def test_a_clock_that_is_set_while_the_server_runs_dates_no_message(database_url: str) -> None:
    """As it would until the next comparison: by weeks, say, until NTP has put it right."""
    ahead = timedelta(0)
    clock = DatabaseClock(lambda: datetime.now(UTC) + ahead)
    async with lab(database_url, clock=clock) as parts:
        await clock.measure(parts.database)
        ahead = timedelta(days=40)
        accepted = await parts.accept.accept(submission("x"))
        received_at = await parts.database.value("select received_at from message_inbox")
        assert abs(received_at - datetime.now(UTC)) < timedelta(seconds=5)
        assert abs(uuid7_ms(accepted.request_id) - received_at.timestamp() * 1000) < 2


async def test_nothing_is_accepted_while_the_clocks_are_far_apart(database_url: str) -> None:
    ahead = timedelta(seconds=-40)
    clock = DatabaseClock(lambda: datetime.now(UTC) + ahead)
    async with lab(database_url, clock=clock) as parts:
        await clock.measure(parts.database)
        outcomes = await parts.accept.accept_all([submission("x"), submission("y")])
        assert [type(one) for one in outcomes] == [Unavailable, Unavailable]
        assert "differs from this machine's by +40 s" in str(outcomes[0])
        assert await parts.count("select count(*) from message_inbox") == 0
        ahead = timedelta(0)
        following = asyncio.create_task(clock.follow(parts.database, every=0.01))
        try:
            await eventually(lambda: _accepted(parts))
        finally:
            following.cancel()


async def _accepted(parts: Lab) -> bool:
    [outcome] = await parts.accept.accept_all([submission("z")])
    return isinstance(outcome, Acceptance)

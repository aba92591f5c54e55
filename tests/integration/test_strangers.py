"""Who may write: strangers are held and cost no model, are told once, and are let in by an operator or a code."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from switchboard.core.channels.email import trusting
from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.people.strangers import CODE_ALPHABET, CODE_LENGTH, Contact, Policy, code_in, contact_of
from switchboard.core.policy.rates import AcceptLimits
from switchboard.core.turns.house import START
from switchboard.domain.errors import Forbidden
from switchboard.domain.routing import SystemId
from switchboard.journey.accept import AcceptLeg, Submission
from switchboard.journey.decide import DecideLeg
from switchboard.journey.reply import PullRequest
from switchboard.journey.strangers import LATE_TEXT, OWNER_TEXT, PAIRED_TEXT, STRANGER_TEXT, Strangers
from switchboard.store.books import audit_books
from switchboard.store.clock import DatabaseClock
from switchboard.store.people import strangers as store
from switchboard.store.rules import teams
from tests.hands import assert_balanced, at_work, settled
from tests.lab import DEFAULT_TEAMS, Lab, butler, envelope_json, lab, submission, team_of
from tests.servers import Opened, open_server
from tests.waiting import eventually
from tests.width import wide

PAIR: dict[tuple[str, str], Policy] = {("telegram", "bot:house"): "pair", ("email", "me@x.org"): "listed"}
PULL = PullRequest("telegram", "bot:house", limit=100)


def private(text: str, sender: str = "alice") -> Submission:
    return submission(text, sender=sender, chat_type="private")


async def decided(parts: Lab, identity: str, state: str, by: str = "boss") -> int:
    """How many messages were released or forgotten by the decision about everybody of this name."""
    rows = await parts.database.rows(
        "select d.messages from contact c, decide_contact(c.contact_id, $2, $3) d where c.identity = $1",
        *(identity, state, by),
    )
    return sum(row["messages"] for row in rows)


async def states(parts: Lab, *request_ids: UUID) -> list[str]:
    return [await parts.database.value("select message_state($1)", one) for one in request_ids]


async def notices(parts: Lab) -> list[tuple[str, str]]:
    return [(one.recipient, one.text) for one in await parts.replies.pull(PULL)]


async def test_a_strangers_message_is_held_and_decided_by_nobody(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        first = await parts.accept.accept(private("hello"))
        other = await parts.accept.accept(submission("hi", endpoint="bot:other"))
        assert (first.held, first.decision, other.held) == (True, None, False)
        assert await states(parts, first.request_id, other.request_id) == ["held", "in_flight"]
        books = await audit_books(parts.database)
        assert (books.messages.accepted, books.messages.held, books.messages.difference) == (2, 1, 0)
        assert books.problems == ()
        assert await parts.count("select count(*) from routing") == 0
        assert await notices(parts) == [("alice", STRANGER_TEXT)]


async def test_nobody_is_promised_an_answer_to_what_becomes_history(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        before = submission("hello", sender="alice", chat_type="private", of_control={"ingestion_tier": "history"})
        assert (await parts.accept.accept(before)).held
        assert await notices(parts) == []
        await parts.accept.accept(private("and now"))
        assert await notices(parts) == [("alice", STRANGER_TEXT)]


async def test_what_is_delivered_again_is_held_once(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        one = private("hello")
        first, again = await parts.accept.accept(one), await parts.accept.accept(one)
        assert (again.request_id, again.duplicate) == (first.request_id, True)
        assert await parts.count("select held from contact") == 1


async def test_approval_releases_in_order_and_what_follows_comes_behind(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        ids = [(await parts.accept.accept(private(f"message {n}"))).request_id for n in range(5)]
        assert await decided(parts, "alice", "approved") == 5
        last = await parts.accept.accept(private("message 5"))
        assert last.held is False
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        rows = await parts.database.rows("select request_id from delivery order by lane, seq")
        assert [row["request_id"] for row in rows] == [*ids, last.request_id]
        assert await states(parts, *ids, last.request_id) == ["answered"] * 6
        await assert_balanced(parts)


async def test_an_approval_that_is_cut_off_releases_nothing(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        for n in range(3):
            await parts.accept.accept(private(f"message {n}"))
        async with parts.database.connection() as connection:
            cut_off = connection.transaction()
            await cut_off.start()
            await connection.execute("select decide_contact(contact_id, 'approved', 'boss') from contact")
            await cut_off.rollback()
        assert await parts.count("select count(*) from held where state = 'held'") == 3
        assert await parts.count("select count(*) from routing") == 0
        assert (await parts.accept.accept(private("message 3"))).held
        assert await decided(parts, "alice", "approved") == 4


async def test_of_two_operators_who_approve_at_once_one_releases(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        await parts.accept.accept(private("hello"))
        released = await asyncio.gather(*(decided(parts, "alice", "approved", f"boss-{n}") for n in range(4)))
        assert sorted(released) == [0, 0, 0, 1]
        assert await parts.count("select count(*) from routing") == 1


async def test_messages_that_come_while_their_sender_is_let_in_are_all_delivered(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        await parts.accept.accept(private("first"))
        await asyncio.gather(
            *(parts.accept.accept(private(f"message {n}")) for n in range(15)), decided(parts, "alice", "approved")
        )
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        assert await parts.count("select count(*) from held") == 0
        assert await parts.count("select count(*) from delivery where state = 'answered'") == 16


async def test_deny_forgets_and_revoke_makes_a_stranger_again(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        held = await parts.accept.accept(private("secret"))
        assert await decided(parts, "alice", "denied") == 1
        assert await states(parts, held.request_id) == ["cancelled"]
        assert await parts.count("select count(*) from message_inbox where envelope::text like '%secret%'") == 0
        assert await parts.count("select length(raw) from message_raw") == 0
        with pytest.raises(Forbidden) as refused:
            await parts.accept.accept(private("let me in"))
        assert refused.value.code == "sender_denied"
        await decided(parts, "alice", "approved")
        assert not (await parts.accept.accept(private("thanks"))).held
        await decided(parts, "alice", "stranger")
        assert (await parts.accept.accept(private("and now?"))).held


async def test_a_sender_fills_20_places_and_all_strangers_1000(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        taken = await parts.accept.accept_all([private(f"{n}") for n in range(21)])
        assert [isinstance(one, Forbidden) for one in taken] == [False] * 20 + [True]
        await parts.database.run("update contact set held = 20 + 979")
        assert (await parts.accept.accept(private("a", "bob"))).held
        with pytest.raises(Forbidden) as refused:
            await parts.accept.accept(private("b", "carol"))
        assert refused.value.code == "held_full"
        assert await parts.count("select refused from contact where identity = 'alice'") == 1
        assert await parts.count("select count(*) from message_inbox") == 21


async def test_of_200_strangers_20_an_hour_are_told_and_nobody_twice_a_day(database_url: str) -> None:
    async with lab(database_url, policies=PAIR, classifying=True) as parts:
        for _ in range(2):
            taken = await parts.accept.accept_all([private("hello", f"stranger {n}") for n in range(200)])
            assert all(not isinstance(one, Exception) and one.held for one in taken)
        told = await notices(parts)
        assert len({who for who, _ in told}) == len(told) == 20
        await parts.database.run("update contact set told_at = told_at - interval '2 hours'")
        await parts.accept.accept_all([private("hello?", f"stranger {n}") for n in range(200)])
        assert len({who for who, _ in await notices(parts)} | {who for who, _ in told}) == 40
        await parts.database.run("update contact set told_at = told_at - interval '1 day'")
        await parts.accept.accept(private("still there?", "stranger 0"))
        assert await parts.count("select count(*) from routing") == 0, "no model is asked"
        assert await parts.count("select count(*) from lane where kind <> 'send'") == 0


async def test_groups_are_let_in_apart_from_persons_and_told_nothing(database_url: str) -> None:
    def grouped(text: str) -> Submission:
        return submission(text, sender="alice", chat_type="group", thread="-100")

    async with lab(database_url, policies=PAIR) as parts:
        await parts.accept.accept(private("me"))
        await parts.accept.accept(grouped("us"))
        await decided(parts, "alice", "approved")
        assert not (await parts.accept.accept(private("me again"))).held
        assert (await parts.accept.accept(grouped("us again"))).held
        assert await decided(parts, "-100", "approved") == 2
        assert not (await parts.accept.accept(grouped("all of us"))).held
        assert len(await notices(parts)) == 1


OWNED = (team_of(butler("echo", owners=["telegram:42"])),)
HOUSE = {"id": -100, "type": "group", "title": "Family home"}
UPDATES = itertools.count(1)


def in_group(text: str, sender: int = 42, **more: Any) -> Submission:
    """A message in a group, as Telegram's connector submits it."""
    message = {"message_id": 7, "chat": HOUSE, "from": {"id": sender}, "text": text}
    raw = {"update_id": next(UPDATES), "message": message}
    about = {"sender": str(sender), "chat_type": "group", "thread": "-100", "raw": raw}
    return submission(text, **{**about, **more})


@pytest.mark.parametrize(
    ("said", "admitted"),
    [
        (in_group("/start"), True),
        (in_group("/start@house from-a-link"), True),
        (in_group("hello"), False),
        (in_group("/start", 43), False),
        (in_group("/start@other_bot"), False),
        (in_group("/start", of_control={"ingestion_tier": "held"}), False),
        (in_group("/start", of_event={"kind": "edit", "refers_to": "7"}), False),
        (in_group("", payload={"passages": [{"kind": "forwarded", "text": "/start"}]}), False),
        (in_group("> x\n/start"), False),
    ],
)
async def test_an_owner_lets_a_group_in_by_start_and_nobody_else_does(
    database_url: str, said: Submission, admitted: bool
) -> None:
    async with lab(database_url, OWNED, policies=PAIR) as parts, at_work(parts.worker()):
        waiting = await parts.accept.accept(in_group("what is for dinner?", 43))
        answer = await parts.accept.accept(said)
        assert (waiting.held, answer.held) == (True, not admitted)
        await eventually(lambda: settled(parts))
        [group] = await store.list_contacts(parts.database, "approved" if admitted else "stranger", None, 10)
        assert (group.scope, group.identity, group.display_name) == ("group", "-100", "Family home")
        assert await parts.replies_to(waiting.request_id) == (["what is for dinner?"] if admitted else [])
        assert await parts.replies_to(answer.request_id) == ([START] if admitted else [])
        audits = await parts.count("select count(*) from audit where action = 'group_admitted'")
        assert audits == int(admitted)


async def test_an_owner_does_not_let_in_what_an_operator_has_denied(database_url: str) -> None:
    async with lab(database_url, OWNED, policies=PAIR) as parts:
        await parts.accept.accept(in_group("hello"))
        await decided(parts, "-100", "denied")
        with pytest.raises(Forbidden, match="denied"):
            await parts.accept.accept(in_group("/start"))
        await decided(parts, "-100", "stranger")
        start = in_group("/start")
        assert not (await parts.accept.accept(start)).held
        await decided(parts, "-100", "stranger")
        assert (await parts.accept.accept(start)).duplicate
        assert (await parts.accept.accept(in_group("hello"))).held, "what comes again lets nobody in again"
        await parts.accept.accept(submission("hello", sender="42", chat_type="private"))
        await decided(parts, "42", "denied")
        assert (await parts.accept.accept(in_group("/start"))).held, "nor does an owner whom an operator has denied"


async def test_a_conversation_begins_anew_when_the_command_was_held(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts, at_work(parts.worker()):
        command = await parts.accept.accept(private("/new"))
        assert command.held
        await decided(parts, "alice", "approved")
        await eventually(lambda: settled(parts))
        assert await parts.count("select count(*) from conversation_start") == 1


CHANNEL: dict[str, Any] = {"id": -1001, "type": "channel", "title": "News"}
POSTED: dict[str, Any] = {"sender_chat": CHANNEL, "date": 1, "text": "opening hours"}
ORIGIN: dict[str, Any] = {"type": "channel", "chat": CHANNEL, "message_id": 5, "date": 1}


def posted(where: str) -> Submission:
    """A post of a channel, or its copy in the group, as Telegram's connector submits them."""
    if where == "channel":
        update = {"channel_post": {"message_id": 5, "chat": CHANNEL, **POSTED}}
    else:
        copy = {"message_id": 9, "chat": HOUSE, "is_automatic_forward": True, "forward_origin": ORIGIN, **POSTED}
        update = {"message": copy}
    about = {"channel": ("-1001", "channel"), "group": ("-100", "supergroup")}[where]
    raw = {"update_id": next(UPDATES), **update}
    event = {"external_event_id": "post:-1001:5"}
    return submission("opening hours", sender="-1001", thread=about[0], chat_type=about[1], raw=raw, of_event=event)


@pytest.mark.parametrize("open_to", ["group", "channel", "both", "neither"])
@pytest.mark.parametrize("order", [("channel", "group"), ("group", "channel")])
async def test_a_post_and_its_copy_are_one_message_or_only_the_permitted_one(
    database_url: str, open_to: str, order: tuple[str, str]
) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        for where in order:
            if open_to in {where, "both"}:
                there = contact_of(posted(where).envelope, CHANNELS["telegram"])
                assert there is not None
                await store.add(parts.database, there, "boss")
        given = [(where, await parts.accept.accept(posted(where))) for where in (*order, *order)]
        new = [where for where, one in given if not one.duplicate]
        assert new == ([order[0]] if open_to in {"both", order[0]} else list(order))
        heard = [where for where, one in given if not one.held and not one.duplicate]
        assert heard == ([] if open_to == "neither" else [order[0] if open_to == "both" else open_to])
        for identity in ("-1001", "-100"):
            await decided(parts, identity, "approved")
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        assert await parts.count("select count(*) from delivery") == 1, "also when the other may write later"
        assert await parts.count("select sum(held) from contact") == 0


async def test_mail_counts_only_if_authenticated_and_nobody_is_answered(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        for n in range(200):
            mail = submission("hello", channel="email", endpoint="me@x.org", sender=f"a{n}@x.org", chat_type="private")
            assert (await parts.accept.accept(mail)).held
        await parts.database.run("update contact set scope = 'person', state = 'approved' where identity = 'a0@x.org'")
        assert await parts.count("select count(*) from outbox") == 0
        forged = submission("it is me", channel="email", endpoint="me@x.org", sender="a1@x.org")
        assert await decided(parts, "a1@x.org", "approved") == 1, "what is held flows on"
        assert (await parts.accept.accept(forged)).held, "but nobody is let in by what they did not prove"


async def test_an_authenticated_sender_who_is_listed_is_heard_and_nobody_else(database_url: str) -> None:
    def mail(sender: str, result: str) -> Submission:
        headers = {"Authentication-Results": [f"mx.x.org; {result}"]}
        raw = {"media_type": "message/rfc822", "encoding": "base64", "data": "", "headers": headers}
        return submission("hello", channel="email", endpoint="me@x.org", sender=sender, raw=raw)

    async with lab(database_url) as parts:
        channels = CHANNELS | {"email": trusting({"me@x.org": ["mx.x.org"]})}
        strangers = Strangers(parts.database, parts.notifier, Channels(channels.values()), PAIR)
        decide, limits, clock = DecideLeg(parts.rule_book), AcceptLimits(sender_per_minute=0), DatabaseClock()
        accept = AcceptLeg(
            parts.database, decide, parts.notifier, limits, Channels(channels.values()), clock, strangers=strangers
        )
        await store.add(parts.database, Contact("email", "me@x.org", "person", "noor@shop.org"), "boss")
        good, bad = "dmarc=pass header.from=shop.org", "dmarc=fail header.from=shop.org"
        assert not (await accept.accept(mail("Noor@Shop.org", good))).held
        assert (await accept.accept(mail("noor@shop.org", bad))).held
        assert (await accept.accept(mail("noor@shop.org", "dmarc=pass header.from=evil.org"))).held
        assert (await accept.accept(mail("ann@shop.org", good))).held
        rows = await parts.database.rows("select scope, identity, held from contact order by scope, identity")
        assert [tuple(row) for row in rows] == [
            ("person", "ann@shop.org", 1),
            ("person", "noor@shop.org", 0),
            ("unverified", "noor@shop.org", 2),
        ]
        assert await parts.count("select count(*) from outbox") == 0


async def test_strangers_are_forgotten_after_30_days(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        old = await parts.accept.accept(private("old"))
        await parts.accept.accept(private("from bob", "bob"))
        await parts.database.run("update held set at = at - interval '31 days' where request_id = $1", old.request_id)
        assert await store.forget(parts.database, timedelta(days=30)) == 2
        assert await store.forget(parts.database, timedelta(days=30)) == 0
        assert await states(parts, old.request_id) == ["cancelled"]
        assert await parts.count("select count(*) from contact") == 1
        await assert_balanced(parts)


# Messages that came too late ----------------------------------------------------------------------------------------


def late(text: str, sender: str, **more: Any) -> Submission:
    return submission(text, sender=sender, chat_type="private", of_control={"ingestion_tier": "held"}, **more)


async def test_late_messages_make_no_turn_one_notice_a_chat_and_are_overtaken(
    database_url: str,
) -> None:
    async with lab(database_url) as parts:
        waiting = [late(f"message {n}", f"person {n % 3}") for n in range(62)]
        taken = await parts.accept.accept_all(waiting)
        assert all(not isinstance(one, Exception) and one.held for one in taken)
        again = await parts.accept.accept_all(waiting)
        assert all(not isinstance(one, Exception) and one.duplicate for one in again)
        live = await parts.accept.accept(private("hello", "person 0"))
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        assert await parts.count("select count(*) from delivery") == 1
        assert await states(parts, live.request_id) == ["answered"]
        assert sorted(await notices(parts)) == [(f"person {n}", LATE_TEXT) for n in range(3)]
        assert (await audit_books(parts.database)).messages.held == 62
        await assert_balanced(parts)


async def test_late_messages_are_released_in_order_and_the_next_is_held_again(
    database_url: str,
) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        await store.add(parts.database, Contact("telegram", "bot:house", "person", "alice"), "boss")
        ids = [(await parts.accept.accept(late(f"message {n}", "alice"))).request_id for n in range(25)]
        assert await states(parts, *ids) == ["held"] * 25
        conversation = "telegram/bot%3Ahouse/alice"
        assert await decided(parts, conversation, "approved") == 25
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        rows = await parts.database.rows("select request_id from delivery order by lane, seq")
        assert [row["request_id"] for row in rows] == ids
        last = await parts.accept.accept(late("still later", "alice"))
        assert last.held
        assert await decided(parts, conversation, "denied") == 1
        assert (await parts.accept.accept(late("later yet", "alice"))).held, "it is no decision about its sender"
        assert len(await notices(parts)) == 1
        await assert_balanced(parts)


async def test_late_strangers_stay_strangers_and_late_messages_take_no_place(
    database_url: str,
) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        await store.add(parts.database, Contact("telegram", "bot:house", "person", "alice"), "boss")
        await parts.accept.accept(late("hello", "alice"))
        await parts.database.run("update contact set held = 1000 where scope = 'late'")
        assert (await parts.accept.accept(late("hello", "mallory"))).held
        rows = await parts.database.rows("select scope, identity from contact where held > 0 order by scope")
        assert [tuple(row) for row in rows] == [("late", "telegram/bot%3Ahouse/alice"), ("person", "mallory")]


async def test_nobody_is_told_by_mail_that_their_message_came_too_late(database_url: str) -> None:
    async with lab(database_url) as parts:
        assert (await parts.accept.accept(late("hello", "a@x.org", channel="email", endpoint="me@x.org"))).held
        assert await parts.count("select count(*) from outbox") == 0


async def test_a_command_that_came_too_late_stops_nothing(database_url: str) -> None:
    async with lab(database_url) as parts:
        running = await parts.accept.accept(private("hello"))
        assert (await parts.accept.accept(late("/stop", "alice"))).held
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        assert await states(parts, running.request_id) == ["answered"]


# Codes ---------------------------------------------------------------------------------------------------------------

CODE = "7KQ2MXW4PH"
TEN_MINUTES = timedelta(minutes=10)


async def keep(parts: Lab, endpoint: str = "bot:house", owner_of: SystemId | None = None) -> None:
    await store.keep_code(parts.database, store.NewCode("telegram", endpoint, CODE, TEN_MINUTES, owner_of))


async def paired(parts: Lab, text: str, sender: str) -> bool:
    """Whether somebody who writes this is let in: their next message is not held."""
    await parts.accept.accept(private(text, sender))
    return not (await parts.accept.accept(private("and now?", sender))).held


async def test_a_code_lets_its_sender_in_once_and_goes_nowhere_itself(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        await keep(parts, "bot:house")
        before = await parts.accept.accept(private("hello"))
        code = await parts.accept.accept(private(f" /start {CODE[:5].lower()}-{CODE[5:]}"))
        after, again = await parts.accept.accept(private("thanks")), await parts.accept.accept(private("bye"))
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        found = await states(parts, *(one.request_id for one in (before, code, after, again)))
        assert found == ["answered", "cancelled", "answered", "answered"]
        assert not await paired(parts, CODE, "mallory"), "it is for one stranger"
        assert await parts.count("select count(*) from audit where action = 'contact_paired'") == 1


async def test_a_code_from_someone_who_may_write_goes_nowhere_and_stays_valid(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        await parts.accept.accept(private("hello"))
        await decided(parts, "alice", "approved")
        await keep(parts)
        code = await parts.accept.accept(private(f"/start {CODE}"))
        assert await states(parts, code.request_id) == ["cancelled"]
        assert await paired(parts, CODE, "bob")
        assert not (await parts.accept.accept(private("ABCDEFGHJK"))).held, "what is no code of ours is a message"


async def test_a_code_counts_at_its_own_endpoint_for_ten_minutes_and_for_persons(database_url: str) -> None:
    others: dict[tuple[str, str], Policy] = {**PAIR, ("telegram", "bot:other"): "pair", ("telegram", "b"): "listed"}
    async with lab(database_url, policies=others) as parts:
        await keep(parts, "bot:other")
        await keep(parts, "b")
        assert not await paired(parts, CODE, "alice")
        await parts.accept.accept(submission(CODE, endpoint="b"))
        await parts.accept.accept(submission(CODE, endpoint="bot:other", chat_type="group", thread="-1"))
        await parts.database.run("update pairing_code set expires_at = clock_timestamp()")
        await parts.accept.accept(submission(CODE, endpoint="bot:other"))
        assert await parts.count("select count(*) from contact where state = 'approved'") == 0


async def test_the_fifth_wrong_try_locks_a_code_whoever_makes_it(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        await keep(parts, "bot:house")
        for n in range(4):
            assert not await paired(parts, f"/start ABCDEFGHJ{n + 2}", f"stranger {n}")
        assert await paired(parts, CODE, "owner")
        await keep(parts, "bot:house")
        for n in range(5):
            assert not await paired(parts, f"/start ABCDEFGHJ{n + 2}", f"guesser {n}")
        assert not await paired(parts, CODE, "late owner")


async def test_of_thousands_of_guesses_none_lets_anybody_in(database_url: str) -> None:
    guesses, guessers = random.Random(14), wide(50, 10)
    async with lab(database_url, policies=PAIR) as parts:
        await keep(parts, "bot:house")
        for n in range(guessers):
            words = ["".join(guesses.choices(CODE_ALPHABET, k=CODE_LENGTH)) for _ in range(199)]
            await parts.accept.accept_all([private(word, f"guesser {n}") for word in (*words, CODE)])
        assert await parts.count("select count(*) from contact where state = 'approved'") == 0
        assert await parts.count("select tries from pairing_code") == 5
        assert await parts.count("select count(*) from held where state = 'held'") == 20 * guessers


# Codes for owners ----------------------------------------------------------------------------------------------------

ECHO = SystemId("System1/echo")


async def owners(parts: Lab) -> set[str]:
    """Who owns the butler in this process, after it has looked."""
    await parts.rule_book.refresh()
    return {one.identity for one in parts.rule_book.rules.members[ECHO].owners}


@pytest.mark.parametrize(
    ("before", "where", "becomes"),
    [
        (None, {"chat_type": "private"}, True),
        ("approved", {"chat_type": "private"}, True),
        ("denied", {"chat_type": "private"}, False),
        (None, {"chat_type": "group", "thread": "-1"}, False),
        (None, {}, False),
        ("approved", {}, False),
        (None, {"chat_type": "private", "endpoint": "bot:other"}, False),
    ],
)
async def test_a_code_makes_an_owner_in_a_private_chat_alone(
    database_url: str, before: str | None, where: dict[str, str], becomes: bool
) -> None:
    policies: dict[tuple[str, str], Policy] = {**PAIR, ("telegram", "bot:other"): "pair"}
    async with lab(database_url, policies=policies) as parts:
        await keep(parts, owner_of=ECHO)
        if before is not None:
            await parts.accept.accept(private("hello"))
            await decided(parts, "alice", before)
        with suppress(Forbidden):
            await parts.accept.accept(submission(f"/start {CODE}", **where))
        assert await owners(parts) == ({"alice"} if becomes else set())
        await parts.accept.accept(private(CODE, "mallory"))
        locked = becomes or where.get("chat_type") != "private"
        assert await owners(parts) == ({"alice"} if becomes else set() if locked else {"mallory"})


async def test_an_owner_under_another_id_is_an_owner(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        await keep(parts, owner_of=ECHO)
        with suppress(Forbidden):
            await parts.accept.accept(private(f"/start {CODE}"))
        assert await owners(parts) == {"alice"}
        await store.move(parts.database, "telegram", "bot:house", "alice", "alice.new")
        assert await owners(parts) == {"alice.new"}


@pytest.mark.parametrize("approved", [False, True])
async def test_a_code_for_an_owner_that_others_read_goes_to_no_butler(database_url: str, approved: bool) -> None:
    """Nor does it later, when the group is let in, or again; it is spent, and whoever sent it is told nothing."""
    in_group = {"chat_type": "group", "thread": "-1"}
    async with lab(database_url, policies=PAIR) as parts:
        await parts.accept.accept(submission("hello", **in_group))
        if approved:
            await decided(parts, "-1", "approved")
        await keep(parts, owner_of=ECHO)
        code = await parts.accept.accept(submission(f"/start {CODE}", **in_group))
        await decided(parts, "-1", "approved")
        again = await parts.accept.accept(submission(CODE, **in_group))
        known = await parts.accept.accept(private(CODE, "mallory"))
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        assert await states(parts, *(one.request_id for one in (code, again))) == ["cancelled", "cancelled"]
        assert known.held, "a stranger's place is counted, however spent the code is"
        assert await parts.count("select held from contact where identity = 'mallory'") == 1
        assert await parts.count("select count(*) from delivery") == 1, "of the greeting"
        assert await parts.count("select count(*) from audit where action = 'contact_paired'") == 0
        assert (
            await parts.count("select count(*) from outbox where system_id = 'switchboard' and recipient <> 'mallory'")
            == 0
        )


@pytest.mark.parametrize("before", ["stranger", "approved", "denied"])
@pytest.mark.parametrize(
    "said",
    [in_group(f"/start {CODE}"), in_group(CODE, 43), in_group(CODE, 43, of_event={"kind": "edit", "refers_to": "7"})],
    ids=["owner's /start", "text", "edit"],
)
async def test_a_code_for_an_owner_that_others_read_makes_nobody_an_owner(
    database_url: str, said: Submission, before: str
) -> None:
    """Whoever sent it, and however: it is locked, and lets no group in."""
    async with lab(database_url, OWNED, policies=PAIR) as parts:
        await parts.accept.accept(in_group("hello", 43))
        await decided(parts, "-100", before)
        await keep(parts, owner_of=ECHO)
        with suppress(Forbidden):
            await parts.accept.accept(said)
        await parts.accept.accept(private(CODE, "mallory"))
        assert await parts.count("select count(*) from contact_owner") == 0
        assert await parts.count("select tries from pairing_code") == 5
        assert await parts.count("select count(*) from contact where state = $1 and identity = '-100'", before) == 1
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        assert await parts.count("select count(*) from delivery") == (1 if before == "approved" else 0)


async def test_no_code_makes_an_owner_by_mail(server: Opened) -> None:
    asked = {"channel": "email", "endpoint": "me@x.org", "owner_of": ECHO}
    answer = await server.http.post("/v1/pairing/codes", json=asked)
    error = answer.json()["error"]
    assert (answer.status_code, error["field"]) == (422, "owner_of")
    assert '"owners": ["email:you@example.org"]' in error["message"]
    assert (await post(server, "/codes", {**asked, "owner_of": None}))["owner_of"] is None


async def test_an_owner_by_code_is_told_and_stays_one_until_they_may_not_write(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        await keep(parts)
        await parts.accept.accept(private(CODE))
        assert await owners(parts) == set(), "who may write owns nothing by that"
        await keep(parts, owner_of=ECHO)
        await parts.accept.accept(private("HAPPYREADS"))
        await parts.accept.accept(private(CODE))
        told = await parts.database.rows("select text from outbox where recipient = 'alice' order by seq")
        assert [row["text"] for row in told] == [PAIRED_TEXT, OWNER_TEXT.format(name="echo")]
        audited = await parts.database.value("select detail from audit order by audit_id desc limit 1")
        assert audited["owner_of"] == ECHO
        assert await parts.count("select count(*) from delivery") == 1, "the word is a message, the codes are none"

        [team] = DEFAULT_TEAMS
        follow = replace(team, members=tuple(replace(one, description="new") for one in team.members))
        assert await teams.seed(parts.database, [follow], (), author="file", reason="a start")
        assert await owners(parts) == {"alice"}, "team files know nothing of it"
        await parts.database.run("delete from pairing_code")
        assert await owners(parts) == {"alice"}
        await decided(parts, "alice", "stranger")
        assert await owners(parts) == set()
        await decided(parts, "alice", "approved")
        assert await owners(parts) == set()


async def test_wrong_tries_of_permitted_writers_also_lock_an_owner_code(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        await keep(parts)
        await parts.accept.accept(private(CODE))
        await keep(parts, owner_of=ECHO)
        for n in range(5):
            await parts.accept.accept(private(f"ABCDEFGHJ{n + 2}"))
        await parts.accept.accept(private(CODE))
        assert await owners(parts) == set()
        assert await parts.count("select count(*) from delivery") == 5, "of the tries; what was a code goes nowhere"


@pytest.mark.parametrize("revoked", [False, True])
async def test_owners_change_as_a_butler_is_removed_and_neither_blocks_the_other(
    database_url: str, revoked: bool
) -> None:
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    async with lab(database_url, policies=PAIR) as parts:
        await keep(parts, owner_of=ECHO)
        if revoked:
            await parts.accept.accept(private(CODE))

        async def change() -> None:
            await (decided(parts, "alice", "stranger") if revoked else parts.accept.accept(private(CODE)))

        async def waits() -> bool:
            return await parts.count(waiting) == 1

        async with parts.database.transaction() as one:
            await one.run("lock table rule_set in share row exclusive mode")  # as all that writes rules does first
            changing = asyncio.create_task(change())
            await eventually(waits)
            await one.rows("select from contact_owner for update")
            await one.rows("select from member for update")
        await changing
        assert await owners(parts) == (set() if revoked else {"alice"})


async def test_no_code_stands_in_the_database(database_url: str) -> None:
    async with lab(database_url, policies=PAIR) as parts:
        await keep(parts, "bot:house")
        assert await parts.count("select count(*) from pairing_code c where c::text like $1", f"%{CODE}%") == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (CODE, CODE),
        (f"/start {CODE}", CODE),
        (f"/START {CODE[:5]}-{CODE[5:].lower()} ", CODE),
        ("/start", None),
        (f"is it {CODE}?", None),
        ("hello", None),
        (f"{CODE}X", None),
        ("O0I1O0I1O0", None),
        ("x" * 1000, None),
    ],
)
def test_what_may_be_a_code(text: str, code: str | None) -> None:
    assert code_in(text) == code


# Over HTTP -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data", policies={"telegram/bot:house": "pair"}) as opened:
        yield opened


async def post(server: Opened, path: str, body: object = None) -> Any:
    answer = await server.http.post(f"/v1/pairing{path}", json=body)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def decision_on(server: Opened, text: str, sender: str) -> str:
    answer = await server.submit(envelope_json(text, sender=sender))
    assert answer.status_code == 202, answer.text
    return str(answer.json()["triage_decision"])


async def test_an_operator_lists_approves_denies_and_revokes(server: Opened) -> None:
    held = (await server.submit(envelope_json("hello", sender="noor"))).json()
    assert (held["status"], held["triage_decision"]) == ("accepted", "held")
    listed = (await server.http.get("/v1/messages", params={"state": "held"})).json()
    assert [one["request_id"] for one in listed["messages"]] == [held["request_id"]]
    [contact] = (await server.http.get("/v1/pairing", params={"state": "stranger"})).json()["contacts"]
    assert (contact["identity"], contact["held"], contact["scope"]) == ("noor", 1, "person")
    told = (await server.http.get(f"/v1/messages/{held['request_id']}/explain")).json()["notes"]
    assert told == [f"held until its sender is approved: switchboard pairing approve {contact['contact_id']}"]

    own = f"/{contact['contact_id']}"
    assert await post(server, f"{own}/approve") == {"contact_id": contact["contact_id"], "messages": 1}
    assert await decision_on(server, "more", "noor") != "held"
    assert (await post(server, f"{own}/revoke"))["messages"] == 0
    assert await decision_on(server, "again", "noor") == "held"
    assert (await post(server, f"{own}/deny"))["messages"] == 1
    refused = await server.submit(envelope_json("still", sender="noor"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "sender_denied")
    entries = (await server.http.get("/v1/audit", params={"action": "contact_decided"})).json()["entries"]
    assert [one["detail"]["state"] for one in entries] == ["denied", "stranger", "approved"]


async def test_somebody_is_let_in_before_they_write_and_by_a_code(server: Opened) -> None:
    account = {"channel": "telegram", "endpoint": "bot:house"}
    await post(server, "", {**account, "identity": "noor"})
    assert await decision_on(server, "hi", "noor") != "held"
    issued = await post(server, "/codes", account)
    assert issued["strangers"] == "pair"
    assert await decision_on(server, f"/start {issued['code']}", "ann") == "held"
    [code, hi] = (await server.http.get("/v1/messages")).json()["messages"]
    assert (code["is_code"], code["state"], hi["is_code"]) == (True, "cancelled", False)
    assert await decision_on(server, "hi", "ann") != "held"
    listed = (await server.http.get("/v1/pairing", params={"state": "approved", "limit": 1})).json()
    page = (await server.http.get("/v1/pairing", params={"limit": 1, "cursor": listed["next_cursor"]})).json()
    assert {listed["contacts"][0]["identity"], page["contacts"][0]["identity"]} == {"noor", "ann"}

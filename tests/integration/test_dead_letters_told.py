"""Who is told of dead letters: the System4, the sender, the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping, Sequence
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from switchboard.app.ops.maintenance import NOBODY_TEXT, DeadLetterMaintenance, maintenance_tasks
from switchboard.app.settings import DeadLetterSettings
from switchboard.core.envelope.strict import strict
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import Unavailable
from switchboard.journey.accept import Submission
from switchboard.ports.engine import EngineFailure, Journal, NoReply, Refusal, Turn, TurnResult
from switchboard.store.books import audit_books
from switchboard.store.messages import dead_letters as store
from switchboard.store.messages.dead_letters import DeadLetterReport
from switchboard.store.messages.outbox import pull_pool
from tests.dead_letters import (
    OPERATOR,
    RULES,
    TEAMS,
    a_dead_letter,
    opened,
    request_of,
    to_butler,
    work_off,
)
from tests.hands import Scripted, a_hand, all_dead_letters, assert_balanced
from tests.lab import Lab, envelope_json, lab, rule, submission


async def many_dead_letters(parts: Lab, count: int, name: str = "s") -> None:
    """Dead letters of `count` conversations. The first come one by one: concurrent commits report 20 each."""
    mails = [submission(channel="email", sender=f"{name}{n}") for n in range(count)]
    for mail in mails[:20]:
        await parts.accept.accept(mail)
    await asyncio.gather(*(parts.accept.accept(mail) for mail in mails[20:]))


# Telling System4 ------------------------------------------------------------------------------------------------------


async def test_a_hundred_dead_letters_are_20_notices_and_a_digest_each_told_once(
    database_url: str,
) -> None:
    async with opened(database_url) as (parts, _):
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        await many_dead_letters(parts, 100)
        await assert_balanced(parts)
        assert await maintenance.digest() == 80
        assert await maintenance.digest() == 0
        assert await parts.count("select count(*) from notice where dead_letters = 1") == 20
        assert await parts.count("select count(*) from notice where dead_letters > 1") == 1
        assert await parts.count("select count(*) from dead_letter where notice_lane is null") == 0
        await assert_balanced(parts)
        told: list[str] = []

        async def hear(turn: Turn, _: Journal) -> TurnResult:
            dead_letter = turn.dead_letter
            assert dead_letter is not None
            if "digest" in dead_letter:
                assert (dead_letter["dead_letters"], dead_letter["categories"]) == (80, {"no_route": 80})
                assert {one["text"] for one in dead_letter["digest"]} == {"hello"}
            told.extend(one["dead_letter_id"] for one in dead_letter.get("digest", [dead_letter]))
            return NoReply()

        await work_off(parts, Scripted(hear))
        assert sorted(told) == sorted(str(row["dead_letter_id"]) for row in await all_dead_letters(parts))
        await a_dead_letter(parts, sender="afterwards")
        assert await parts.count("select count(*) from notice where state = 'pending' and dead_letters = 1") == 1
        await assert_balanced(parts)


async def test_many_that_wait_are_told_in_batches_that_hold_few_conversations(database_url: str) -> None:
    async with opened(database_url) as (parts, _):
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        await many_dead_letters(parts, 230)
        assert await store.digest(parts.database, "System4/root") == 200
        assert await maintenance.digest() == 10
        await many_dead_letters(parts, 410, "t")
        assert await maintenance.digest() == 410
        rows = await parts.database.rows(
            "select dead_letters from notice join lane on key = lane where conversation is null order by seq"
        )
        assert [row["dead_letters"] for row in rows] == [200, 420], "the one that is not next grows"
        await assert_balanced(parts)


async def test_a_digest_that_may_have_been_read_does_not_grow(database_url: str) -> None:
    async with opened(database_url) as (parts, _), a_hand(parts.database) as hand:
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())

        async def more(count: int, name: str) -> int:
            for n in range(count):
                await a_dead_letter(parts, sender=f"{name}{n}")
            return await maintenance.digest()

        assert await more(25, "a") == 5
        await hand.claim(0, 0, 0, 100)
        assert await parts.count("select count(*) from lane where conversation is null and state = 'running'") == 1
        assert await more(3, "b") == 3
        assert await more(4, "c") == 4
        rows = await parts.database.rows(
            "select seq, dead_letters from notice join lane on key = lane where conversation is null order by seq"
        )
        assert [(row["seq"], row["dead_letters"]) for row in rows] == [(1, 5), (2, 7)]
        await assert_balanced(parts)


async def test_a_dead_letter_that_was_closed_meanwhile_is_not_told(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        waiting = [await a_dead_letter(parts, sender=f"s{n}") for n in range(22)][20:]
        await service.handle(OPERATOR, waiting[0], "spam")
        assert await DeadLetterMaintenance(parts.database, parts.notifier, ()).digest() == 1
        rows = [row for row in await all_dead_letters(parts) if row["notice_lane"] is None]
        assert [row["dead_letter_id"] for row in rows] == [waiting[0]]
        assert (await audit_books(parts.database, patience_s=0)).balanced


async def test_dead_letters_that_wait_too_long_for_their_notice_are_named(database_url: str) -> None:
    async with opened(database_url) as (parts, _):
        for n in range(21):
            await a_dead_letter(parts, sender=f"s{n}")
        problems = (await audit_books(parts.database, patience_s=0)).problems
        assert sum("has waited to be told to System4/root" in problem for problem in problems) == 1


# Telling the sender ---------------------------------------------------------------------------------------------------


async def told(parts: Lab) -> list[dict[str, Any]]:
    """What was said to senders by nobody in particular."""
    rows = await parts.database.rows("select * from outbox where system_id = 'switchboard' order by created_at")
    return [dict(row) for row in rows]


async def test_the_sender_is_told_once_per_message_also_after_a_restart(database_url: str) -> None:
    twice = (rule("sales", "System4/root", channel="telegram"),)
    async with lab(database_url, TEAMS, twice) as parts:
        accepted = await parts.accept.accept(submission(thread="chat-5"))
        assert len(await all_dead_letters(parts)) == 2
        both = [DeadLetterMaintenance(parts.database, parts.notifier, ()) for _ in range(2)]
        assert sum(await asyncio.gather(*(maintenance.tell_senders() for maintenance in both))) == 1
        assert await DeadLetterMaintenance(parts.database, parts.notifier, ()).tell_senders() == 0
        [reply] = await told(parts)
        assert (reply["text"], reply["state"], reply["thread"]) == (NOBODY_TEXT, "pending", "chat-5")
        assert reply["request_id"] == accepted.request_id
        assert await parts.database.value("select pool from lane where kind = 'send'") == pull_pool(
            "telegram", "bot:house"
        )
        assert all(row["sender_told_at"] is not None for row in await all_dead_letters(parts))
        await assert_balanced(parts)


def mail_of(sender: str, **headers: str) -> Submission:
    raw = {"headers": {"From": sender, **{name.replace("_", "-"): value for name, value in headers.items()}}}
    given = envelope_json(channel="email", sender=sender, raw=raw, endpoint="imap:me@example.org")
    return Submission(strict(Envelope, given), json.dumps(given).encode())


@pytest.mark.parametrize(
    "mail",
    [
        mail_of("list@example.org", List_Id="<all.example.org>"),
        mail_of("news@example.org", List_Unsubscribe="<https://example.org/off>"),
        mail_of("ann@example.org", Auto_Submitted="auto-replied"),
        mail_of("ann@example.org", Precedence="Bulk"),
        mail_of("ann@example.org", Return_Path="<>"),
        mail_of("MAILER-DAEMON@example.org"),
        mail_of("no-reply@example.org"),
        mail_of("Me <ME@example.org>"),
    ],
    ids=lambda mail: (
        json.loads(mail.raw)["sender"]["identity"] + str(list(json.loads(mail.raw)["payload"]["raw"]["headers"])[1:])
    ),
)
async def test_lists_and_machines_are_told_nothing(database_url: str, mail: Submission) -> None:
    async with opened(database_url) as (parts, _):
        await parts.accept.accept(mail)
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        assert await maintenance.tell_senders() == 0
        assert await told(parts) == []
        [row] = await all_dead_letters(parts)
        assert (row["sender_spared"], row["sender_told_at"]) == (True, None)
        await parts.accept.accept(mail_of("ann@example.org", Auto_Submitted="no"))
        assert await maintenance.tell_senders() == 1


async def test_a_mail_in_its_own_form_is_looked_at_as_well(database_url: str) -> None:
    from_list = b"From: a@example.org\r\nTo: me@example.org\r\nPrecedence: list\r\nMessage-ID: <1@x>\r\n\r\nhello"
    async with opened(database_url) as (parts, _):
        given = envelope_json(channel="email", sender="a@example.org", endpoint="me@example.org")
        await parts.accept.accept(Submission(strict(Envelope, given), from_list, "message/rfc822"))
        assert await DeadLetterMaintenance(parts.database, parts.notifier, ()).tell_senders() == 0
        assert await told(parts) == []


async def test_a_sender_with_a_reply_or_one_pending_is_not_notified(database_url: str) -> None:
    both = (rule("System1/echo", "sales"),)
    async with lab(database_url, TEAMS, both) as parts:
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        await parts.accept.accept(submission(channel="telegram"))
        assert await maintenance.tell_senders() == 0  # one of two may still answer
        await work_off(parts)
        assert await maintenance.tell_senders() == 0  # and has
        assert await told(parts) == []


async def test_senders_of_handled_or_rerouted_dead_letters_are_not_notified(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        await service.handle(OPERATOR, await a_dead_letter(parts, sender="a"), "spam")
        await service.reroute(OPERATOR, await a_dead_letter(parts, sender="b"), to_butler("spare"))
        assert await maintenance.tell_senders() == 0


async def test_a_machine_that_answers_us_is_not_told_for_ever(database_url: str) -> None:
    async with opened(database_url) as (parts, _):
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        for _ in range(8):
            await parts.accept.accept(submission(channel="api", sender="robot"))
            await maintenance.tell_senders()
        assert len(await told(parts)) == 5
        assert await parts.count("select count(*) from dead_letter where sender_spared") == 3


async def test_a_machine_that_keeps_starting_conversations_is_not_told_forever(database_url: str) -> None:
    """A mail without References is a conversation of its own."""
    async with opened(database_url) as (parts, _):
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        for n in range(8):
            for sender, endpoint in (
                ("robot@x.org", "me@y.org"),
                ("robot@x.org", "us@y.org"),
                ("ann@x.org", "me@y.org"),
            ):
                given = submission(channel="email", sender=sender, endpoint=endpoint, thread=f"mail-{n}")
                await parts.accept.accept(given)
        assert await maintenance.tell_senders() == 15
        said = [(row["recipient"], row["endpoint"]) for row in await told(parts)]
        assert {one: said.count(one) for one in said} == {
            ("robot@x.org", "me@y.org"): 5,
            ("robot@x.org", "us@y.org"): 5,
            ("ann@x.org", "me@y.org"): 5,
        }
        await parts.database.run("update outbox set created_at = created_at - interval '61 minutes'")
        await parts.accept.accept(submission(channel="email", sender="robot@x.org", endpoint="me@y.org", thread="late"))
        assert await maintenance.tell_senders() == 1
        await assert_balanced(parts)


async def test_a_message_without_a_dead_letter_tells_nobody_and_makes_no_lane(database_url: str) -> None:
    async with opened(database_url) as (parts, _):
        made = "select tell_sender(gen_random_uuid(), gen_random_uuid(), 'x', null)"
        assert await parts.database.value(made) is False
        assert not await parts.count("select count(*) from lane")


async def test_a_sender_with_the_longest_of_names_is_told(database_url: str) -> None:
    """More bytes than an entry of an index holds, and none of them twice."""
    names = ["".join(chr(0x10000 + (n * 7919 + start) % 60_000) for n in range(512)) for start in (0, 30_000)]
    async with opened(database_url) as (parts, _):
        await parts.accept.accept(submission(channel="api", sender=names[0], endpoint=names[1]))
        assert await DeadLetterMaintenance(parts.database, parts.notifier, ()).tell_senders() == 1


@pytest.mark.parametrize(
    ("channel", "endpoint"),
    [("api", "bot:house"), ("email", "embedded:System1/clerk"), ("api", "embedded:System1/clerk")],
)
async def test_what_nobody_sends_is_there_at_once(database_url: str, channel: str, endpoint: str) -> None:
    async with opened(database_url) as (parts, _):
        request_id = await request_of(parts, await a_dead_letter(parts, channel=channel, endpoint=endpoint))
        callbacks = ["embedded:System1/clerk"]  # a program's message has no other way than back to it
        assert await DeadLetterMaintenance(parts.database, parts.notifier, callbacks).tell_senders() == 1
        assert [row["state"] for row in await told(parts)] == ["sent"]
        assert await parts.replies_to(request_id) == [NOBODY_TEXT]
        await assert_balanced(parts)


async def test_told_and_answered_after_all(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="email")
        await DeadLetterMaintenance(parts.database, parts.notifier, ()).tell_senders()
        await service.reroute(OPERATOR, dead_letter, to_butler("spare"))
        await work_off(parts)
        assert await parts.replies_to(await request_of(parts, dead_letter)) == [NOBODY_TEXT, "hello"]
        await assert_balanced(parts)


@pytest.mark.parametrize(("tell", "names"), [(True, {"tell_senders"}), (False, set[str]())])
async def test_senders_are_told_only_where_that_is_wanted(database_url: str, tell: bool, names: set[str]) -> None:
    async with opened(database_url) as (parts, _):
        made = maintenance_tasks(parts.database, parts.notifier, DeadLetterSettings(tell_sender=tell), ())
        assert {task.name for task in made} == {
            "expire_leases",
            "digest",
            "log_dead_letters",
            "empty_dead_letters",
            "make_partitions",
            "balance_books",
        } | names


# The log --------------------------------------------------------------------------------------------------------------


async def _fails(turn: Turn, _: Journal) -> TurnResult:
    if turn.dead_letter is not None:
        return NoReply()
    if turn.member.system_id == "System1/spare":
        return Refusal(f"I do not take {turn.envelope.payload.normalized_text}")
    raise EngineFailure(f"choked on {turn.envelope.payload.normalized_text}", error_class="overload")


def warnings_of(logs: Sequence[MutableMapping[str, Any]]) -> dict[str, MutableMapping[str, Any]]:
    """By their category what was logged of dead letters; none twice."""
    found = [entry for entry in logs if entry["event"] == "dead letter"]
    assert len({entry["dead_letter_id"] for entry in found}) == len(found)
    return {entry["category"]: entry for entry in found}


async def test_each_dead_letter_of_any_cause_is_logged_once_without_its_text(
    database_url: str,
) -> None:
    """Accepted for nobody, by a rule of the rules, refused by a butler, given up, written by SQL alone."""
    to_spare = rule("System1/spare", channel="discord")
    to_handler = rule("System4/root", channel="matrix")
    async with lab(database_url, TEAMS, (*RULES, to_spare, to_handler)) as parts:
        both = [DeadLetterMaintenance(parts.database, parts.notifier, ()) for _ in range(2)]
        with capture_logs() as logs:
            nobody = await a_dead_letter(parts, text="my secret")
            for channel in ("telegram", "discord", "matrix"):
                await parts.accept.accept(submission("my secret", channel=channel))
            await work_off(parts, Scripted(_fails))
            await parts.database.run(
                "select write_dead_letters(array_agg((gen_random_uuid(), request_id, conversation, 'root', 'expired',"
                " 'too late', null, null, null, null, null, 1)::new_dead_letter)) from message_inbox"
                " where channel = 'telegram'"
            )
            assert sum(await asyncio.gather(*(maintenance.log() for maintenance in both))) == 5
            assert await both[0].log() == 0
        told = warnings_of(logs)
        assert {category: (entry["log_level"], entry["reason"]) for category, entry in told.items()} == {
            "no_route": ("warning", "no rule matches"),
            "dead_letter_rule": ("warning", told["dead_letter_rule"]["reason"]),
            "refused": ("warning", "refused"),
            "retry_exhausted": ("warning", "overload"),
            "expired": ("warning", "too late"),
        }
        assert to_handler.name in told["dead_letter_rule"]["reason"]
        assert (told["no_route"]["dead_letter_id"], told["no_route"]["team_id"]) == (str(nobody), "root")
        assert told["refused"]["system_id"] == "System1/spare"
        assert "secret" not in str(logs)


async def test_retries_are_logged_with_their_number_and_without_what_was_written(database_url: str) -> None:
    async with opened(database_url) as (parts, _):
        with capture_logs() as logs:
            accepted = await parts.accept.accept(submission("my secret"))
            await work_off(parts, Scripted(_fails))
        found = [entry for entry in logs if entry["event"] == "turn failed"]
        assert [(entry["attempt"], entry["error_class"]) for entry in found] == [(1, "overload"), (2, "overload")]
        assert {(entry["request_id"], entry["system_id"]) for entry in found} == {
            (str(accepted.request_id), "System1/echo")
        }
        assert "secret" not in str(logs)


async def test_what_could_not_be_logged_is_logged_later(database_url: str) -> None:
    """As if the process had died in the middle: once too often rather than never."""
    async with opened(database_url) as (parts, _):
        expected = {await a_dead_letter(parts, sender=f"s{n}") for n in range(3)}
        written: list[UUID] = []

        def write(report: DeadLetterReport) -> None:
            written.append(report.dead_letter_id)
            if len(written) == 2:
                raise OSError("no space left on device")

        with pytest.raises(Unavailable):
            await store.log(parts.database, 10, write)
        assert await store.log(parts.database, 10, write) == 3
        assert set(written[2:]) == expected
        assert await store.log(parts.database, 10, write) == 0

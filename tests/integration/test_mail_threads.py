"""Mails, end to end in the accept leg: which are one message, and which one conversation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

from switchboard.core.envelope.read import read_envelope
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.domain.ledger import OutboxPart
from switchboard.journey.accept import Submission
from switchboard.journey.reply import PullRequest
from switchboard.ports.channel import Receipt
from switchboard.store.messages import inbox
from switchboard.store.messages.inbox import Acceptance
from tests.hands import assert_balanced, at_work
from tests.lab import Lab, envelope_json, lab, rule
from tests.servers import RULES, TEAMS, open_server
from tests.strategies import NOW
from tests.waiting import eventually

APART = "its sender is not known in the thread that it refers to, so it is in a separate conversation"
HOUSE = "house@home.example"


def mail(sender: str, text: str, own: str, **fields: str) -> bytes:
    head = {"From": sender, "To": HOUSE, "Message-ID": f"<{own}@x.example>", **fields}
    return (
        "".join(f"{name.replace('_', '-')}: {value}\n" for name, value in head.items()).encode() + b"\n" + text.encode()
    )


def taken(raw: bytes) -> Submission:
    read = envelope_from_mail(raw, endpoint=HOUSE, provider="imap", now=NOW)
    return Submission(read.envelope, read.raw, "message/rfc822")


def as_json(text: str, sender: str, event: str, **more: Any) -> Submission:
    raw = json.dumps(envelope_json(text, channel="email", endpoint=HOUSE, sender=sender, event=event, **more)).encode()
    return Submission(read_envelope(raw), raw)


async def accepted(parts: Lab, *given: Submission) -> list[Acceptance]:
    outcomes = await parts.accept.accept_all(given)
    assert all(isinstance(one, Acceptance) for one in outcomes)
    return [one for one in outcomes if isinstance(one, Acceptance)]


async def test_a_mail_is_one_message_in_whatever_form_it_comes(database_url: str) -> None:
    raw = mail(
        "Ann <ann@x.example>", "We meet at 5.", "m1", Subject="=?utf-8?q?Caf=C3=A9?=", References="<r@x.example>"
    )
    headers = {"headers": {"message-id": "<m1@x.example>", "subject": "Café"}}
    async with lab(database_url) as parts:
        first, *others = await accepted(
            parts,
            taken(raw),
            taken(b"Received: by way of another\n" + raw),
            as_json("Café\n\nWe meet at 5.\n", "Ann@X.example", "<m1@x.example>"),
            as_json("Café We  meet at 5.", "Ann <ann@x.example>", "m1@x.example", thread="t"),
            as_json("We meet at 5.", "ann@x.example", "4711", raw=headers),
        )
        assert [one.duplicate for one in (first, *others)] == [False, True, True, True, True]
        assert {one.request_id for one in others} == {first.request_id}


async def test_nobody_swallows_a_mail_by_its_message_id(database_url: str) -> None:
    """Neither one that came before with another sender or text, nor both."""
    given = [
        taken(mail("evil@y.example", "nothing", "m1")),
        taken(mail("ann@x.example", "nothing", "m1")),
        taken(mail("ann@x.example", "The invoice is due.", "m1")),
    ]
    async with lab(database_url) as parts:
        first = await accepted(parts, *given)
        assert [one.duplicate for one in first] == [False, False, False]
        for each in given, given[::-1]:
            again = [(await accepted(parts, one))[0] for one in each]
            assert [one.duplicate for one in again] == [True, True, True]
            assert {one.request_id for one in again} == {one.request_id for one in first}
        assert await parts.count("select count(*) from message_inbox") == 3
        await assert_balanced(parts)


async def test_an_id_of_the_provider_is_nobodys_choice(database_url: str) -> None:
    async with lab(database_url) as parts:
        first, again = await accepted(parts, as_json("one", "a@x.example", "18f2"), as_json("1", "a@x.example", "18f2"))
        assert (first.duplicate, again.duplicate) == (False, True)


async def posted(server: Any, raw: bytes) -> UUID:
    headers = {"content-type": "message/rfc822"}
    answer = await server.http.post(f"/v1/ingest?endpoint={HOUSE}", content=raw, headers=headers)
    assert answer.status_code == 202, answer.text
    return UUID(answer.json()["request_id"])


async def explained(server: Any, request_id: UUID) -> Mapping[str, Any]:
    explanation: Mapping[str, Any] = (await server.http.get(f"/v1/messages/{request_id}/explain")).json()
    return explanation


async def test_explain_names_the_message_that_has_the_same_id(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path) as server:
        one = await posted(server, mail("evil@y.example", "nothing", "m1"))
        other = await posted(server, mail("ann@x.example", "The invoice is due.", "m1"))
        assert (await explained(server, one))["notes"] == []
        same, apart = (await explained(server, other))["notes"]
        assert same == f"message {one} has the same id, but another sender or text; both are kept"
        assert apart == APART


async def conversations(parts: Lab, given: Sequence[Submission]) -> Sequence[str]:
    """Of each, submitted one after the other."""
    names = []
    for one in given:
        [taken_in] = await accepted(parts, one)
        stored = await inbox.get_message(parts.database, taken_in.request_id)
        assert stored is not None
        names.append(stored.conversation)
    return names


def reply(sender: str, own: str, *answered: str, **fields: str) -> Submission:
    references = " ".join(f"<{one}@x.example>" for one in answered)
    return taken(mail(sender, "well", own, References=references, **fields))


async def test_a_thread_is_open_to_who_wrote_or_was_addressed_in_it(database_url: str) -> None:
    async with lab(database_url) as parts:
        first, ann, ben, cem, dan, eve = await conversations(
            parts,
            [
                taken(
                    mail("Ann <ann@x.example>", "hello", "m1", Cc="Ben <Ben+work@x.example>", Reply_To="cem@x.example")
                ),
                reply("ann+tag@x.example", "m2", "m1"),
                reply("ben@x.example", "m3", "m1", "m2", Cc="dan@x.example"),
                reply("cem@x.example", "m4", "m1", "m3"),
                reply("dan@x.example", "m5", "m1", "m3"),
                reply("eve@y.example", "e1", "m1", "m3", Cc="ann@x.example"),
            ],
        )
        assert {first, ann, ben, cem, dan} == {f"email/{quote(HOUSE)}/%3Cm1%40x.example%3E"}
        assert eve == f"email/{quote(HOUSE)}/%3Ce1%40x.example%3E%20eve%40y.example"
        more = await conversations(
            parts,
            [
                reply("eve@y.example", "e2", "m1", "e1"),
                reply("eve@y.example", "e3", "m1"),
                reply("ann@x.example", "m6", "m1", "e1"),
                reply("ann@x.example", "m7", "e1"),
                reply("fay@y.example", "f1", "e1"),
            ],
        )
        assert more[:4] == [eve, eve, first, eve]
        assert more[4] not in {first, eve}


async def test_nobody_gets_into_a_thread_by_naming_it_before_it_begins(database_url: str) -> None:
    async with lab(database_url) as parts:
        eve, ann, ben, again = await conversations(
            parts,
            [
                reply("eve@y.example", "e1", "m1"),
                taken(mail("ann@x.example", "hello", "m1", Cc="ben@x.example")),
                reply("ben@x.example", "m2", "m1"),
                reply("eve@y.example", "e2", "m1", "m2"),
            ],
        )
        assert ann == ben != eve == again


async def test_of_two_who_name_a_thread_at_once_one_is_the_first(database_url: str) -> None:
    async with lab(database_url) as parts, lab(database_url) as others:
        for n in range(20):
            one, other = await asyncio.gather(
                conversations(parts, [reply("ann@x.example", f"a{n}", f"r{n}")]),
                conversations(others, [reply("eve@y.example", f"e{n}", f"r{n}")]),
            )
            assert one != other


async def test_a_reply_naming_only_our_mail_joins_its_thread_if_by_someone_there(
    database_url: str,
) -> None:
    """Eve was forwarded our mail to Ann, and later got one of ours herself, in a conversation of her own."""
    async with lab(database_url) as parts:

        async def sent(own: str) -> None:
            [one] = await parts.replies.pull(PullRequest("email", HOUSE, limit=1, wait_s=20))
            await parts.replies.receipt(one.outbox_id, one.lease, Receipt("sent", f"<{own}@x.example>"))

        async with at_work(parts.worker()):
            asked = taken(mail("Ann <ann@x.example>", "hello", "m1", Cc="ben@x.example"))
            [home] = await conversations(parts, [asked])
            await sent("ours")
            eve = await conversations(parts, [reply("eve@y.example", "e1", "ours"), reply("eve@y.example", "e2", "m1")])
            await sent("hers")
            await sent("hers too")
        ann, ben, answered, other, again, both, later, fay = await conversations(
            parts,
            [
                reply("ann+tag@x.example", "m2", "ours"),
                reply("ben@x.example", "m3", "unknown", "ours"),
                taken(mail("ann@x.example", "well", "m4", In_Reply_To="<ours@x.example>")),
                as_json("well", "ann@x.example", "m5@x.example", raw={"headers": {"references": "<other@x.example>"}}),
                reply("eve@y.example", "e3", "hers"),
                reply("eve@y.example", "e4", "ours", "hers too"),
                reply("ben@x.example", "m6", "m2"),
                reply("fay@y.example", "f1", "hers"),
            ],
        )
        assert {ann, ben, answered} == {home}
        assert home not in {*eve, other, again, both, fay}
        assert {again, both} <= set(eve)
        assert later != home, "he was not addressed in Ann's reply"
        assert fay not in eve


async def test_a_part_of_a_reply_is_ours_too_only_in_the_account_that_sent_it(database_url: str) -> None:
    async with lab(database_url) as parts, at_work(parts.worker()):
        [home] = await conversations(parts, [taken(mail("ann@x.example", "hello", "m1"))])
        [one] = await parts.replies.pull(PullRequest("email", HOUSE, wait_s=20))
        sent = OutboxPart(0, 1, "sent", platform_message_id="<ours@x.example>")
        await parts.replies.part(one, one.lease, sent, None)
        raw = mail("ann@x.example", "well", "m2", In_Reply_To="<ours@x.example>")
        elsewhere = envelope_from_mail(raw, endpoint="other@home.example", provider="imap", now=NOW)
        there = Submission(elsewhere.envelope, elsewhere.raw, "message/rfc822")
        assert await conversations(parts, [there, taken(raw)]) == [
            f"email/{quote('other@home.example')}/%3Cours%40x.example%3E",
            home,
        ]


async def test_mails_that_name_no_thread_are_threads_of_their_own_in_every_form(database_url: str) -> None:
    reference = {"headers": {"message-id": "<m3@x.example>", "references": "<m1@x.example> <m2@x.example>"}}
    answer = {"payload": {"headers": [{"name": "In-Reply-To", "value": "<m1@x.example>"}]}}
    async with lab(database_url) as parts:
        first, other, third, fourth, fifth, odd = await conversations(
            parts,
            [
                as_json("one", "ann@x.example", "m1@x.example"),
                as_json("two", "ann@x.example", "<other@x.example>"),
                as_json("three", "ann@x.example", "17", raw=reference),
                as_json("four", "ann@x.example", "18", raw=answer),
                reply("ann@x.example", "m5", "m1"),
                as_json("six", "ann@x.example", "4711"),
            ],
        )
        assert first == third == fourth == fifth
        assert len({first, other, odd}) == 3
        threads = [
            as_json("seven", "ann@x.example", "19", thread="18f2"),
            as_json("eight", "ann@x.example", "20", thread="18f2"),
            as_json("nine", "eve@y.example", "21", thread="18f2"),
            as_json("ten", "ann@x.example", "22", thread="m1@x.example"),
        ]
        seven, eight, nine, ten = await conversations(parts, threads)
        assert seven == eight != nine
        assert ten == first


async def test_a_stranger_is_not_pinned_to_the_butler_that_wrote_in_the_thread(database_url: str) -> None:
    async with lab(database_url) as parts, at_work(parts.worker()):
        [first] = await accepted(parts, taken(mail("ann@x.example", "hello", "m1")))
        await eventually(lambda: parts.replies_to(first.request_id))
        [written] = await parts.replies.pull(PullRequest("email", HOUSE))
        await parts.replies.receipt(written.outbox_id, written.attempts, Receipt("sent", "<b1@home.example>"))
        reasons: list[str] = []
        for sender in "ann@x.example", "eve@y.example":
            again = reply(sender, f"a{len(reasons)}", "m1", In_Reply_To="<b1@home.example>")
            [one] = await accepted(parts, again)
            assert one.decision is not None
            reasons.append(one.decision.trail[0].reason)
        assert reasons == ["pin", "catch_all"]


async def test_explain_says_why_a_mail_is_not_in_the_thread_that_it_names(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path) as server:
        await posted(server, mail("ann@x.example", "hello", "m1"))
        stranger = await posted(server, mail("eve@y.example", "hello", "e1", References="<m1@x.example>"))
        assert (await explained(server, stranger))["notes"] == [APART]


async def test_a_rule_may_name_any_recipient_of_a_mail(database_url: str, tmp_path: Path) -> None:
    rules = (*RULES, rule("side", channel="email", email_to="team@x.example"))
    async with open_server(database_url, tmp_path, tree=(TEAMS, rules)) as server:
        copy = await posted(server, mail("ann@x.example", "hello", "m1", Cc="ben@x.example, Team <Team@x.example>"))
        decided = (await explained(server, copy))["decisions"][0]["trail"][0]
        assert (decided["targets"][0]["team_id"], decided["considered"][-1]["fired"]) == ("side", True)

"""Turns that wait for people: what is asked and told, who decides, and what the model hears; nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from switchboard.agents.turns.asking import MOST_WAITING
from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.core.turns.house import NEW
from switchboard.core.turns.stop import STOPPED
from switchboard.domain.errors import Conflict
from switchboard.domain.message import RequestId
from switchboard.domain.routing import Team
from switchboard.domain.shown import ShownApproval
from switchboard.journey.accept import Submission
from switchboard.journey.approving import ApprovalDecision, decide
from switchboard.journey.reply import PullRequest
from switchboard.ports.channel import Receipt
from switchboard.ports.engine import Answer
from switchboard.ports.tools import Tool
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.rules.teams import seed
from switchboard.store.work import approvals as store
from switchboard.store.work.approvals import StoredApprovals
from switchboard.testing.engines import MemoryJournal, a_turn
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm
from switchboard.tools.ask import AskUser
from switchboard.tools.web_fetch import WebFetch, WebOptions
from tests.hands import assert_balanced, at_work, settled
from tests.integration.test_tool_web_fetch import Names, answer, redirect, serving
from tests.lab import TRUSTING, Lab, butler, lab, rule, submission, team_of
from tests.strategies import NOW
from tests.turning import OWNER, Noting, a_model_engine
from tests.waiting import eventually

RULES = [rule("System1/clerk")]
DUE = "update awaited set deadline_at = clock_timestamp() - interval '1 s'"
YES = ApprovalDecision("approved", "operator")


def brain(request: Request) -> Reply:
    """Calls what the last line of a message says, `pay 1 and look`; then says what came of it. All else is noted."""
    last = request.messages[-1]
    if last.role == "tool":
        return Reply(text=" | ".join(said.text for said in request.results))
    wanted = last.text.splitlines()[-1].removeprefix("> ")
    calls = [part.split(" ", 1) for part in wanted.split(" and ")]
    if not all(name in request.tools for name, *_ in calls):
        return Reply(text=f"Noted: {wanted}")
    return Reply(calls=tuple(_call(name, *rest) for name, *rest in calls))


def _call(name: str, text: str = "") -> Call:
    if name == "web_fetch":
        return Call(name, {"url": f"http://{text}"})
    return Call(name, {"question": text, "options": ["red", "blue"]} if name == "ask_user" else {"text": text})


@dataclass
class Site:
    """A worker with a butler that pays after approval only."""

    parts: Lab
    llm: ScriptedLlm
    pay: Noting
    look: Noting

    async def said(self, text: str, *, sender: str = "x", **more: Any) -> RequestId:
        accepted = await self.parts.accept.accept(submission(text, channel="api", sender=sender, **more))
        return accepted.request_id

    async def asked(self, count: int = 1) -> list[ShownApproval]:
        async def there() -> bool:
            return await settled(self.parts) and len(await self.open()) == count

        await eventually(there)
        return await self.open()

    async def open(self) -> list[ShownApproval]:
        return list(reversed(await store.list_approvals(self.parts.database, "pending", None, 100)))

    async def decided(self, asked: ShownApproval, wanted: ApprovalDecision = YES) -> None:
        await decide(self.parts.database, self.parts.notifier, asked, wanted)
        await eventually(lambda: settled(self.parts))

    async def ended(self, request_id: RequestId) -> list[str]:
        async def over() -> bool:
            return bool(await self.parts.database.value("select message_state($1) <> 'in_flight'", request_id))

        await eventually(over)
        return await self.parts.replies_to(request_id)

    async def command(self, text: str, *, sender: str = "x") -> str:
        [reply] = await self.ended(await self.said(text, sender=sender))
        return reply


def a_team(**options: Any) -> Team:
    given = {"owners": OWNER, "approve": ["pay"], **options}
    return team_of(butler("clerk", "model", **given))


@asynccontextmanager
async def a_site(
    url: str, tmp_path: Path, *more: Tool, channels: Channels = CHANNELS, **options: Any
) -> AsyncIterator[Site]:
    pay, look = Noting("pay", "effectful"), Noting("look")
    async with (
        lab(url, [a_team(**options)], RULES, channels=channels) as parts,
        ScriptedLlm(brain, strict=True) as llm,
    ):
        readers = StoredReaders(parts.database, channels)
        history = StoredHistory(parts.database, readers)
        context: dict[str, Any] = {
            "readers": readers,
            "approvals": StoredApprovals(parts.database),
            "workspaces": tmp_path,
        }
        async with (
            a_model_engine(llm, [pay, look, AskUser(), *more], history=history, **context) as (engine, _),
            at_work(parts.worker({"model": engine})),
        ):
            yield Site(parts, llm, pay, look)
            await assert_balanced(parts)


async def test_a_call_waits_for_its_approval_and_the_conversation_goes_on(database_url: str, tmp_path: Path) -> None:
    async with a_site(database_url, tmp_path) as site:
        first = await site.said("look here and pay 7")
        [asked] = await site.asked()
        assert (asked.tool, dict(asked.arguments), asked.kind) == ("pay", {"text": "7"}, "call")
        assert (asked.request_id, asked.message, asked.system_id) == (first, "look here and pay 7", "System1/clerk")
        [told] = await site.parts.replies_to(first)
        assert told.startswith("This needs approval first: pay (the settings require approval of each call)\n")
        assert '"text": "7"' in told
        assert f"/approve {asked.approval_id.hex[:8]}" in told
        assert site.look.calls == [], "nothing of the answer is done before all of it may be"
        for text in ("hello", "anything new?"):
            assert await site.ended(await site.said(text)) == [f"Noted: {text}"]
        prompt = site.llm.requests[-1].messages[-1].text
        assert 'pay {"text":"7"} for the message "look here and pay 7", which waits for an approval' in prompt
        assert await site.command("/new") == NEW
        await site.ended(await site.said("and now?"))
        assert not any("pay 7" in one.text or "pay {" in one.text for one in site.llm.requests[-1].messages)
        await site.decided(asked)
        [_, reply] = await site.parts.replies_to(first)
        assert reply == "look: {'text': 'here'} | pay: {'text': '7'}"
        assert [len(tool.calls) for tool in (site.pay, site.look)] == [1, 1]
        attempts = "select count(*) from attempt where request_id = $1 and outcome <> 'parked'"
        assert await site.parts.count(attempts, first) == 1, "waiting is no attempt"
        assert await site.parts.count("select count(*) from audit where action = 'approval:approved'") == 1


async def test_what_a_person_refuses_or_nobody_decides_is_told_to_the_model(database_url: str, tmp_path: Path) -> None:
    async with a_site(database_url, tmp_path) as site:
        first = await site.said("pay 7")
        [asked] = await site.asked()
        await site.decided(asked, ApprovalDecision("refused", "operator", "too much"))
        [_, reply] = await site.parts.replies_to(first)
        assert reply.startswith('pay was not called: a person refused it, saying "too much".')
        second = await site.said("pay 8")
        [asked] = await site.asked()
        await site.parts.database.run(DUE)
        [_, reply] = await site.ended(second)
        assert reply.startswith("pay was not called: nobody approved it in time.")
        with pytest.raises(Conflict, match="the time to decide about pay is over"):
            await site.decided(asked)
        assert site.pay.calls == []
        states = [one.state for one in await store.list_approvals(site.parts.database, None, None, 9)]
        assert states == ["expired", "refused"]


async def test_of_two_who_decide_at_once_one_does(database_url: str, tmp_path: Path) -> None:
    async with a_site(database_url, tmp_path) as site:
        await site.said("pay 7")
        [asked] = await site.asked()
        wanted = [YES, ApprovalDecision("refused", "another"), YES]
        outcomes = await asyncio.gather(*(site.decided(asked, one) for one in wanted), return_exceptions=True)
        conflicts = [one for one in outcomes if isinstance(one, Conflict)]
        assert len(conflicts) in (1, 2)
        await eventually(lambda: settled(site.parts))
        [now] = await store.of_message(site.parts.database, asked.request_id)
        assert len(site.pay.calls) == (now.state == "approved")
        assert await site.parts.count("select count(*) from audit where action like 'approval:%'") == 1
        for one in wanted:
            if one.state == now.state:
                await site.decided(asked, one)


async def test_several_calls_of_one_answer_are_told_once_and_return_together(database_url: str, tmp_path: Path) -> None:
    async with a_site(database_url, tmp_path) as site:
        first = await site.said("pay 1 and pay 2 and look x")
        one, two = await site.asked(2)
        await site.decided(two)
        assert await site.open() == [one], "the turn waits for the other"
        assert site.pay.calls == []
        await site.decided(one, ApprovalDecision("refused", "operator"))
        told, reply = await site.parts.replies_to(first)
        assert told.count("This needs approval first") == 2
        assert reply.startswith("pay was not called: a person refused it. ")
        assert reply.endswith("| pay: {'text': '2'} | look: {'text': 'x'}")


async def test_what_has_changed_since_it_was_asked_is_not_called(database_url: str, tmp_path: Path) -> None:
    """Its schema, or what the person is granted."""
    async with a_site(database_url, tmp_path) as site:
        first = await site.said("pay 7")
        [asked] = await site.asked()
        site.pay.title = "other"
        await site.decided(asked)
        assert (await site.parts.replies_to(first))[1].startswith("pay was not called: it has changed since")
        site.pay.title = ""
        second = await site.said("pay 8")
        [asked] = await site.asked()
        await _seed_again(site.parts, owners=["api:somebody"])
        await site.decided(asked)
        assert (await site.parts.replies_to(second))[1].startswith("pay was not called: it was approved, but this")
        assert site.pay.calls == []


async def _seed_again(parts: Lab, **options: Any) -> None:
    await seed(parts.database, [a_team(**options)], RULES, author="test", reason="changed")
    await parts.rule_book.refresh()


async def test_a_turn_that_waits_ends_when_its_sender_stops_it(database_url: str, tmp_path: Path) -> None:
    async with a_site(database_url, tmp_path) as site:
        first = await site.said("pay 7")
        [asked] = await site.asked()
        assert await site.command("/stop") == "Stopped."
        assert (await site.ended(first))[1] == STOPPED
        assert [one.state for one in await store.of_message(site.parts.database, first)] == ["ended"]
        with pytest.raises(Conflict, match="its turn has ended without a decision"):
            await site.decided(asked)
        assert site.pay.calls == []


# In chat --------------------------------------------------------------------------------------------------------------


async def test_only_owners_decide_in_chat_and_only_in_their_own_conversation(database_url: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"owners": ["api:x", "api:alice"], "grants": {"others": ["pay"]}}
    async with a_site(database_url, tmp_path, **options) as site:
        first = await site.said("pay 7")
        [asked] = await site.asked()
        start = asked.approval_id.hex[:8]
        nothing = f"Nothing here waits for {start}, or more than one thing does. Give more of its id."
        assert await site.command(f"/approve {start}", sender="stranger") == nothing
        assert await site.command(f"/approve {start}", sender="alice") == nothing, "nobody has shown it to her"
        assert (
            await site.command(f"/answer {start} yes")
            == f"That is not a question: write /approve {start} or /refuse {start}."
        )
        assert await site.command(f"/APPROVE {start}") == f"Approved: pay ({start})."
        assert (await site.ended(first))[1] == "pay: {'text': '7'}"
        assert (
            await site.command(f"/refuse {start}")
            == "Nothing is changed: the call of pay was approved already, by api:x."
        )
        assert await site.command(f"/approve {start}") == f"Approved: pay ({start})."
        assert len(site.pay.calls) == 1
        await site.said("pay 8", sender="stranger")
        [asked] = await site.asked()
        [told] = await site.parts.replies_to(asked.request_id)
        assert "/approve" not in told
        said = await site.command(f"/approve {asked.approval_id.hex}", sender="stranger")
        assert said.startswith("You may not decide that here.")
        refused = await site.parts.database.row("select actor, detail from audit where action = 'refused:approvals'")
        assert refused is not None
        assert refused["actor"] == "api:stranger"
        assert len(site.pay.calls) == 1


async def test_what_is_too_long_for_a_conversation_is_not_approved_there(database_url: str, tmp_path: Path) -> None:
    async with a_site(database_url, tmp_path) as site:
        first = await site.said(f"pay {'7' * 5000}")
        [asked] = await site.asked()
        [told] = await site.parts.replies_to(first)
        assert "more characters" in told
        assert "/approve" not in told
        assert (await site.command(f"/approve {asked.approval_id.hex[:8]}")).startswith(
            "It is too long to be shown here"
        )
        assert len(await site.open()) == 1
        await site.decided(asked)
        assert len(site.pay.calls) == 1


async def test_what_is_no_command_goes_to_the_butler(database_url: str, tmp_path: Path) -> None:
    async with a_site(database_url, tmp_path) as site:
        for text in (
            "/approve",
            "/approve it",
            "/answer 12ab",
            "please /approve 12ab",
            "/approve 12ab now",
            "/approved 12ab",
        ):
            assert await site.ended(await site.said(text)) == [f"Noted: {text}"]


# Questions ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("said", "meant"), [("2", "blue"), ("green, please", "green, please")])
async def test_a_question_waits_for_its_answer(database_url: str, tmp_path: Path, said: str, meant: str) -> None:
    async with a_site(database_url, tmp_path) as site:
        first = await site.said("ask_user Which colour?")
        [asked] = await site.asked()
        start = asked.approval_id.hex[:8]
        [told] = await site.parts.replies_to(first)
        assert told == (f"clerk asks:\n> Which colour?\n1. red\n2. blue\nTo answer: /answer {start} and your answer")
        assert await site.ended(await site.said("red")) == ["Noted: red"], (
            "what is no answer is a message like any other"
        )
        said_by_alice = await site.command(f"/answer {start} red", sender="alice")
        assert said_by_alice.startswith("Nothing here waits for")
        assert await site.command(f"/approve {start}") == f"That is a question: write /answer {start} and your answer."
        assert await site.command(f"/answer {start} {said}") == f"Answered: ask_user ({start})."
        assert (await site.ended(first))[1] == f'{{"answer":"{meant}"}}'


@pytest.mark.parametrize("what", ["expired", "refused"])
async def test_a_question_without_an_answer(database_url: str, tmp_path: Path, what: str) -> None:
    async with a_site(database_url, tmp_path) as site:
        first = await site.said("ask_user Which colour?")
        [asked] = await site.asked()
        if what == "expired":
            await site.parts.database.run(DUE)
        else:
            assert (await site.command(f"/refuse {asked.approval_id.hex[:4]}")).startswith("Refused: ask_user")
        [_, reply] = await site.ended(first)
        assert reply.endswith("go on as far as that is possible without the answer")


# How much -------------------------------------------------------------------------------------------------------------


async def test_a_conversation_waits_for_a_few_things_only(database_url: str, tmp_path: Path) -> None:
    async with a_site(database_url, tmp_path) as site:
        first = await site.said(" and ".join(f"pay {n}" for n in range(MOST_WAITING)))
        await site.asked(MOST_WAITING)
        [reply] = await site.ended(await site.said("pay 99"))
        assert reply.startswith("pay was not called: it needs an approval (")
        assert "not asked: 20 requests are already waiting" in reply
        await site.command("/stop")
        await site.ended(first)


async def test_where_nobody_can_be_asked_nothing_is_called(tmp_path: Path) -> None:
    pay = Noting("pay", risk="high")
    async with (
        ScriptedLlm(brain, strict=True) as llm,
        a_model_engine(llm, [pay, AskUser()], workspaces=tmp_path) as (engine, _),
    ):
        options = {"owners": OWNER, "grants": {"owners": ["pay", "ask_user"]}}
        result = await engine.run(a_turn(options, "pay 7 and ask_user Why?"), MemoryJournal())
    assert isinstance(result, Answer)
    assert result.text == (
        "pay was not called: it needs an approval (a tool of high risk), and nobody can be asked from here. | "
        "the question was not asked: nobody can be asked from here"
    )
    assert pay.calls == []


# Replies of a platform ------------------------------------------------------------------------------------------------


def _update(message_id: int, user: int, replied_to: int | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"message_id": message_id, "from": {"id": user}, "chat": {"id": 7, "type": "private"}}
    if replied_to is not None:
        message["reply_to_message"] = {"message_id": replied_to}
    return {"update_id": message_id, "message": message}


async def _sent(parts: Lab, platform_message_id: str) -> str:
    """What a connector does with the next reply; its text."""
    [one] = await parts.replies.pull(PullRequest("telegram", "bot:house", wait_s=20))
    await parts.replies.receipt(one.outbox_id, one.lease, Receipt("sent", platform_message_id))
    return one.text


async def test_a_reply_to_the_question_answers_it_and_other_messages_do_not(database_url: str, tmp_path: Path) -> None:
    async with a_site(database_url, tmp_path, owners=["telegram:7"]) as site:

        async def say(text: str, raw: dict[str, Any]) -> str:
            user = raw["message"]["from"]["id"]
            event = str(raw["update_id"])
            sent = submission(text, raw=raw, thread="7", sender=str(user), event=event, chat_type="private")
            accepted = await site.parts.accept.accept(sent)
            assert accepted.decision is not None
            return accepted.decision.chosen[0].system_id

        assert await say("ask_user Which colour?", _update(1, 7)) == "System1/clerk"
        [asked] = await site.asked()
        assert "> Which colour?" in await _sent(site.parts, "500")
        assert await say("blue", _update(2, 7)) == "System1/clerk", "what is no reply is no answer"
        assert await _sent(site.parts, "501") == "Noted: blue"
        assert await say("purple", _update(3, 7, replied_to=501)) == "System1/clerk"
        assert await _sent(site.parts, "502") == "Noted: purple"
        assert await say("1", _update(4, 7, replied_to=500)) == "switchboard"
        assert await _sent(site.parts, "503") == '{"answer":"red"}', "and not a word of ours"
        [now] = await store.of_message(site.parts.database, asked.request_id)
        assert (now.state, now.decided_by, now.answer) == ("answered", "telegram:7", "red")
        assert await say("too late", _update(5, 7, replied_to=500)) == "System1/clerk", "it waits for nothing any more"
        assert await _sent(site.parts, "504") == "Noted: too late"


# By mail -----------------------------------------------------------------------------------------------------------


HEAD = """From: Ann <ann@acme.example>
To: house@home.example
Authentication-Results: mx.example; dmarc=pass header.from=acme.example
"""
FROM_A_PHONE = """In-Reply-To: <asked@home.example>
References: <first@acme.example> <asked@home.example>
Subject: Re: {subject}

{said}

Sent from my iPhone

On 12 Nov 2026, at 10:00, House <house@home.example> wrote:

> This needs approval first: pay
> To decide: /approve {start} or /refuse {start}
"""


def _from_ann(number: int, text: str) -> Submission:
    raw = f"{HEAD}Message-ID: <{number}@acme.example>\n{text}".encode()
    read = envelope_from_mail(raw, endpoint="house@home.example", provider="imap", now=NOW)
    return Submission(read.envelope, read.raw, "message/rfc822")


async def test_a_phone_decides_by_mail_but_not_through_a_subject_or_a_quotation(
    database_url: str, tmp_path: Path
) -> None:
    async with a_site(database_url, tmp_path, channels=TRUSTING, owners=["email:ann@acme.example"]) as site:

        async def say(number: int, text: str) -> RequestId:
            return (await site.parts.accept.accept(_from_ann(number, text))).request_id

        first = await say(1, "Subject: A bill\n\npay 7")
        [asked] = await site.asked()
        start = asked.approval_id.hex[:8]
        for number, (subject, said) in enumerate(
            ((f"/approve {start}", "Is that one?"), ("A bill", f"> /approve {start}\n\nWhat is that?")), 2
        ):
            await site.ended(await say(number, FROM_A_PHONE.format(subject=subject, said=said, start=start)))
        assert site.pay.calls == []
        replied = await say(9, FROM_A_PHONE.format(subject="A bill", said=f"/approve {start}", start=start))
        assert await site.ended(replied) == [f"Approved: pay ({start})."]
        assert (await site.ended(first))[1] == "pay: {'text': '7'}"
        assert len(site.pay.calls) == 1


# Addresses ------------------------------------------------------------------------------------------------------------


async def test_an_address_that_a_model_chooses_is_approved_first(database_url: str, tmp_path: Path) -> None:
    """It may redirect within its host; to elsewhere was not approved."""
    async with serving() as web:
        web.answers["/page"] = answer("the page")
        web.answers["/own"] = redirect("/page")
        web.answers["/away"] = redirect("http://elsewhere.example/?what-I-know")
        names = Names(elsewhere_example=("127.0.0.1",))
        names.known["127.0.0.1"] = ("127.0.0.1",)
        page = '"text":"the page"'
        fetch = WebFetch(WebOptions(resolver=names))
        async with a_site(database_url, tmp_path, fetch, private_hosts=[web.place]) as site:
            for path, said in (("/page", page), ("/own", page), ("/away", "it redirects to an address")):
                before = len(web.asked)
                request_id = await site.said(f"web_fetch {web.place}{path}")
                [asked] = await site.asked()
                assert (asked.tool, dict(asked.arguments)) == ("web_fetch", {"url": web.url(path)})
                assert asked.why.startswith("the person has not written this address")
                assert len(web.asked) == before, "nothing leaves before"
                await site.decided(asked)
                assert said in (await site.ended(request_id))[1]
            assert "elsewhere.example" not in names.asked
            mine = await site.said(f"{web.url('/page')}\nweb_fetch {web.place}/page")
            assert page in (await site.ended(mine))[0], "what the person has written needs no approval"

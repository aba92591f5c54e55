"""Answers to mails that butlers wrote come back to where the mail was asked for, and to nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from msgspec.structs import replace

from switchboard.app.answered_mails import AnsweredMailEngine
from switchboard.app.dead_letters.replies import ReplyNotices
from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.mail_desk import WorkerMailDesk
from switchboard.app.ops.maintenance import DeadLetterMaintenance
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.core.envelope.due import due_text
from switchboard.core.mail.telling import ANSWERED_MAIL, answer_told
from switchboard.core.mail.written import WrittenMail
from switchboard.ports.channel import Receipt
from switchboard.ports.engine import Answer, Journal, Turn, TurnResult
from switchboard.ports.mail_desk import CalendarPart, OutgoingMail
from switchboard.ports.tools import ToolScope
from switchboard.store.connectors.accounts import Holder, lease_account
from switchboard.store.messages import outbox
from tests.hands import at_work, settled
from tests.lab import TRUSTING, Lab, butler, lab, submission, team_of
from tests.waiting import eventually

HOUSE: Final = "house@home.example"
BEN: Final = "ben@x.example"
MAIL: Final = OutgoingMail(key="email:1", sender=HOUSE, to=(BEN,), subject="Boiler", text="When can you come?")
WHERE: Final = "telegram/bot%3Ahouse/ann"


@dataclass
class Secretary:
    """A butler that says what it is told; which turns it had."""

    turns: list[Turn] = field(default_factory=list)

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:  # noqa: ARG002
        self.turns.append(turn)
        return Answer(turn.text)


@dataclass
class Correspondence:
    """A worker whose butler has sent a mail to Ben because Ann asked for it."""

    parts: Lab
    desk: WorkerMailDesk
    door: WorkerFrontDoor
    secretary: Secretary
    scope: ToolScope
    message_id: str

    async def arrives(self, text: str = "On Friday.", *, sender: str = BEN, **more: Any) -> UUID:
        """A mail arrives that answers ours; its sender is certain unless something else is said."""
        event = more.pop("event_id", "<b1@x.example>")
        given = {"from": sender, "to": HOUSE, "message-id": event, "in-reply-to": self.message_id}
        passed = {"authentication-results": f"mx.example; dmarc=pass header.from={sender.partition('@')[2]}"}
        headers = given | passed | more.pop("headers", {})
        raw = {"headers": {name: value for name, value in headers.items() if value}}
        one = submission(text, channel="email", endpoint=HOUSE, sender=sender, raw=raw, event=event, **more)
        accepted = await self.parts.accept.accept(replace(one, by_operator=False))
        await eventually(lambda: settled(self.parts))
        return accepted.request_id

    async def told(self) -> list[str]:
        """What was said in Ann's conversation after she had asked."""
        rows = await self.parts.database.rows(
            "select o.text from outbox o join lane l on l.key = o.lane where l.conversation = conversation_key($1)"
            " and o.request_id <> $2 order by o.outbox_id",
            *(WHERE, self.scope.turn),
        )
        return [row["text"] for row in rows]


@asynccontextmanager
async def a_correspondence(url: str, place: Path) -> AsyncIterator[Correspondence]:
    secretary, account = Secretary(), ("email", HOUSE)
    team = team_of(butler("clerk", "clerk", owners=["telegram:ann", "email:owner@home.example"]), "System4/root")
    async with lab(url, [team], [], channels=TRUSTING, policies={account: "listed"}) as parts:
        runtime = Runtime(Settings(data_dir=place), parts.database, parts.notifier, parts.rule_book, TRUSTING)
        door = WorkerFrontDoor(runtime)
        engine = AnsweredMailEngine(parts.database, door, TRUSTING)
        await lease_account(parts.database, *account, Holder("one"))
        given = {"sender": "ann", "thread": "ann", "chat_type": "private", "pinned": "System1/clerk"}
        async with at_work(parts.worker({"clerk": secretary, ANSWERED_MAIL: engine})):
            asked = await parts.accept.accept(submission("write to Ben", **given))
            await eventually(lambda: settled(parts))
            scope = ToolScope(
                *(place, frozenset(), frozenset(), asked.request_id, asked.request_id),
                conversation=f"System1/clerk {WHERE}",
            )
            desk = WorkerMailDesk(runtime, door)
            queued = await desk.queue(MAIL, scope)
            yield Correspondence(parts, desk, door, secretary, scope, queued.message_id)


async def test_an_answer_is_told_once_where_the_mail_was_asked_for(database_url: str, tmp_path: Path) -> None:
    async with a_correspondence(database_url, tmp_path) as one:
        first = await one.arrives("On Friday.\n\nOn Tuesday, the house wrote:\n> When can you come?\n")
        assert await one.arrives("On Friday.\n\nOn Tuesday, the house wrote:\n> When can you come?\n") == first
        [told] = await one.told()
        for line in (f"From: {BEN}", "Answers: your mail “Boiler” to ben@x.example", "On Friday."):
            assert line in told.splitlines()
        assert "answers=<b1@x.example>" in told
        turn = one.secretary.turns[-1]
        task = turn.envelope.control.task
        assert (turn.envelope.sender.identity, task is not None and task.tainted) == ("ann", True)
        assert task is not None
        assert "A mail that you sent for the person" in due_text(task, told)
        assert "was written by others" in due_text(task, told)
        # Nobody is answered by it.
        assert (
            await one.parts.count("select count(*) from outbox where channel = 'email' and recipient <> $1", BEN) == 0
        )
        assert await one.parts.count("select count(*) from outbox where channel = 'email'") == 1


@pytest.mark.parametrize(
    "other",
    [
        {"sender": "eve@x.example"},
        {"headers": {"authentication-results": ""}},
        {"headers": {"in-reply-to": "<guessed@home.example>"}},
    ],
    ids=["somebody else", "nobody vouches for the sender", "another mail"],
)
async def test_what_is_no_answer_is_held_as_ever(database_url: str, tmp_path: Path, other: dict[str, Any]) -> None:
    async with a_correspondence(database_url, tmp_path) as one:
        request_id = await one.arrives(**other)
        assert (
            await one.parts.count("select count(*) from held where request_id = $1 and state = 'held'", request_id) == 1
        )
        assert await one.told() == []


async def test_a_program_of_calendars_is_no_answer(database_url: str, tmp_path: Path) -> None:
    async with a_correspondence(database_url, tmp_path) as one:
        invitation = CalendarPart("REQUEST", "BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n")
        queued = await one.desk.queue(replace(MAIL, key="calendar:1", calendar=invitation), one.scope)
        reply = {"normalized_text": "Accepted", "attachments": [{"media_type": "text/calendar", "size_bytes": 9}]}
        request_id = await one.arrives(headers={"in-reply-to": queued.message_id}, payload=reply)
        assert await one.parts.count("select count(*) from held where request_id = $1", request_id) == 1
        assert await one.told() == []


@pytest.mark.parametrize(
    ("other", "held"),
    [({}, 0), ({"sender": "eve@x.example"}, 1), ({"headers": {"authentication-results": ""}}, 1)],
    ids=["who was invited", "somebody else", "nobody vouches for the sender"],
)
async def test_what_the_calendar_of_a_guest_answers_is_kept(
    database_url: str, tmp_path: Path, other: dict[str, Any], held: int
) -> None:
    """Guests need not be let in; their programs name no mail that they answer."""
    async with a_correspondence(database_url, tmp_path) as one:
        invitation = CalendarPart("REQUEST", "BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n")
        kind: dict[str, Any] = {"of_event": {"kind": "calendar"}}
        unasked = await one.arrives(**kind, headers={"in-reply-to": ""}, event_id="<b0@x.example>")
        assert await one.parts.count("select count(*) from held where request_id = $1", unasked) == 1
        await one.desk.queue(replace(MAIL, key="calendar:1", calendar=invitation), one.scope)
        headers = {"in-reply-to": "", **other.get("headers", {})}
        request_id = await one.arrives("Accepted", **kind, **{**other, "headers": headers})
        assert await one.parts.count("select count(*) from held where request_id = $1", request_id) == held
        assert await one.told() == []


async def test_who_was_denied_is_not_let_in_by_an_answer(database_url: str, tmp_path: Path) -> None:
    async with a_correspondence(database_url, tmp_path) as one:
        await one.arrives(headers={"in-reply-to": ""})
        await one.parts.database.run("update contact set state = 'denied'")
        with pytest.raises(Exception, match="denied"):
            await one.arrives(headers={"message-id": "<b2@x.example>"})
        assert await one.told() == []


def test_an_id_with_what_cannot_be_seen_is_not_told() -> None:
    written = WrittenMail(message_id="<a@home.example>", sender=HOUSE, to=(BEN,), subject="Boiler")
    told = {}
    for named in ("<b1@x.example>", "<b1\U000e0041@x.example>", "<\u202eb1@x.example>"):
        one = submission("On Friday.", channel="email", endpoint=HOUSE, sender=BEN, event=named)
        told[named] = "email_send with answers=" in answer_told(one.envelope, written, None)
    assert [*told.values()] == [True, False, False]


async def test_after_thirty_days_a_mail_is_not_answered_any_more(database_url: str, tmp_path: Path) -> None:
    async with a_correspondence(database_url, tmp_path) as one:
        await one.parts.database.run("update mail set created_at = created_at - interval '31 days'")
        request_id = await one.arrives()
        assert await one.parts.count("select count(*) from held where request_id = $1", request_id) == 1


async def test_an_owner_who_answers_writes_to_the_butler(database_url: str, tmp_path: Path) -> None:
    async with a_correspondence(database_url, tmp_path) as one:
        await one.desk.queue(replace(MAIL, key="email:2", to=("owner@home.example",)), one.scope)
        await one.parts.database.run("update mail set message_id = '<ours@home.example>' where key = 'email:2'")
        await one.parts.database.run("update contact set state = 'approved'")
        request_id = await one.arrives(sender="owner@home.example", headers={"in-reply-to": "<ours@home.example>"})
        envelope = await one.parts.database.value(
            "select envelope from message_inbox where request_id = $1", request_id
        )
        assert "answers_mail" not in envelope["control"]


async def test_nobody_is_told_where_the_person_is_not_let_in_any_more(database_url: str, tmp_path: Path) -> None:
    """It is a dead letter, and whoever has answered hears nothing of that."""
    async with a_correspondence(database_url, tmp_path) as one:
        await one.parts.database.run(
            "update mail set origin = jsonb_set(origin::jsonb, '{system_id}', '\"System1/x\"')"
        )
        request_id = await one.arrives()
        assert await one.parts.count("select count(*) from dead_letter where request_id = $1", request_id) == 1
        await DeadLetterMaintenance(one.parts.database, one.parts.notifier, (), TRUSTING).tell_senders()
        assert await one.parts.count("select count(*) from outbox where request_id = $1", request_id) == 0


async def test_that_a_mail_was_not_sent_is_told_once_where_it_was_asked_for(database_url: str, tmp_path: Path) -> None:
    async with a_correspondence(database_url, tmp_path) as one:
        [row] = await outbox.lease(
            one.parts.database, outbox.pull_pool("email", HOUSE), limit=9, lease_s=60.0, idempotent=False
        )
        await one.parts.replies.receipt(row.outbox_id, row.lease, Receipt("failed", error="550 no such user"))
        notices = ReplyNotices(one.parts.database, one.parts.notifier, one.parts.rule_book, one.door)
        await notices.tell()
        await one.parts.database.run("update outbox set untold = 'unsent' where outbox_id = $1", row.outbox_id)
        await notices.tell()
        await eventually(lambda: settled(one.parts))
        [told] = await one.told()
        assert told.startswith("The mail “Boiler” to ben@x.example was not sent, or was returned: 550 no such user.")
        assert f"switchboard outbox resend {row.outbox_id}" in told
        assert await one.parts.count("select count(*) from dead_letter where category = 'reply_undelivered'") >= 1

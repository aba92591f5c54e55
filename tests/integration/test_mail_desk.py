"""Mails that butlers write, from the desk to the outbox: each is there once, and its fate is seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from msgspec.structs import replace

from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.mail_desk import WorkerMailDesk, check_senders
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.domain.errors import Conflict, InvalidInput, NotFound
from switchboard.domain.ledger import LeasedRow
from switchboard.ports.channel import Receipt
from switchboard.ports.connector import LateFailure
from switchboard.ports.mail_desk import CalendarPart, OutgoingMail
from switchboard.ports.tools import ToolScope
from switchboard.store.connectors.accounts import Holder, lease_account
from switchboard.store.messages import outbox
from tests.lab import TRUSTING, Lab, butler, lab, submission

HOUSE: Final = "house@home.example"
BEN: Final = "ben@x.example"
MAIL: Final = OutgoingMail(key="email:1", sender=HOUSE, to=(BEN,), subject="Boiler", text="It leaks.\n*Now*")


@dataclass
class Desk:
    """A desk in an installation that has an account for HOUSE, and the scope of a call by Ann."""

    parts: Lab
    desk: WorkerMailDesk
    scope: ToolScope

    async def leased(self) -> list[LeasedRow]:
        """What the connector of the account gets to send."""
        return await outbox.lease(
            self.parts.database, outbox.pull_pool("email", HOUSE), limit=50, lease_s=60.0, idempotent=False
        )

    async def settle(self, row: LeasedRow, receipt: Receipt) -> None:
        await self.parts.replies.receipt(row.outbox_id, row.lease, receipt)


@asynccontextmanager
async def a_desk(url: str, place: Path) -> AsyncIterator[Desk]:
    async with lab(url, channels=TRUSTING) as parts:
        runtime = Runtime(Settings(data_dir=place), parts.database, parts.notifier, parts.rule_book, TRUSTING)
        await lease_account(parts.database, "email", HOUSE, Holder("one"))
        asked = await parts.accept.accept(submission("write to Ben", sender="ann", chat_type="private"))
        scope = ToolScope(
            *(place, frozenset(), frozenset(), uuid4(), asked.request_id),
            conversation="System1/echo telegram/bot%3Ahouse/ann",
        )
        yield Desk(parts, WorkerMailDesk(runtime, WorkerFrontDoor(runtime)), scope)


async def test_a_mail_is_one_row_of_the_outbox(database_url: str, tmp_path: Path) -> None:
    async with a_desk(database_url, tmp_path) as one:
        assert await one.desk.senders() == [HOUSE]
        assert await one.desk.state(MAIL.key) is None
        queued = await one.desk.queue(MAIL, one.scope)
        again = await one.desk.queue(MAIL, one.scope)
        assert again == replace(queued, duplicate=True)
        fate = await one.desk.state(MAIL.key)
        assert fate is not None
        assert (fate.state, fate.message_id) == ("waiting", queued.message_id)

        [row] = await one.leased()
        assert (row.text, row.channel, row.endpoint) == (MAIL.text, "email", HOUSE)
        assert (row.request_id, row.system_id, row.recipient) == (queued.request_id, "System1/echo", BEN)
        await one.settle(row, Receipt("sent", queued.message_id))
        fate = await one.desk.state(MAIL.key)
        assert fate is not None
        assert (fate.state, fate.why) == ("sent", "")
        assert await one.leased() == []


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"subject": "Boiler\r\nBcc: eve@x.example"}, InvalidInput, "one line"),
        ({"to": ("ben@x.example\r\nBcc: eve@x.example",)}, InvalidInput, "no address"),
        ({"to": ("Ben",)}, InvalidInput, "no address"),
        ({"to": ()}, InvalidInput, "at least one"),
        ({"bcc": tuple(f"p{n}@x.example" for n in range(10))}, InvalidInput, "at most 10"),
        ({"in_reply_to": "<a@b>\r\nX: y"}, InvalidInput, "Message-ID"),
        ({"sender": "ann@home.example"}, NotFound, "nothing sends from ann@home.example"),
        ({"text": "x" * 100_001}, InvalidInput, "100000"),
    ],
)
async def test_what_cannot_be_sent_is_not_queued(
    database_url: str, tmp_path: Path, wrong: dict[str, Any], error: type[Exception], said: str
) -> None:
    async with a_desk(database_url, tmp_path) as one:
        with pytest.raises(error, match=said):
            await one.desk.queue(replace(MAIL, **wrong), one.scope)
        assert await one.parts.count("select count(*) from mail") == 0


async def test_an_account_sends_thirty_mails_an_hour_and_a_hundred_a_day(database_url: str, tmp_path: Path) -> None:
    async with a_desk(database_url, tmp_path) as one:
        for number in range(30):
            await one.desk.queue(replace(MAIL, key=f"email:{number}"), one.scope)
        with pytest.raises(Conflict, match="60 minutes"):
            await one.desk.queue(replace(MAIL, key="email:more"), one.scope)
        assert (await one.desk.queue(replace(MAIL, key="email:7"), one.scope)).duplicate
        await one.parts.database.run("update mail set created_at = created_at - interval '2 hours'")
        await one.parts.database.run(
            "insert into mail select 'x' || n, gen_random_uuid(), gen_random_uuid(), channel, endpoint, system_id, "
            "'<' || n || '>', recipients, null, created_at from mail cross join generate_series(1, 70) n "
            "where key = 'email:0'"
        )
        with pytest.raises(Conflict, match="24 hours"):
            await one.desk.queue(replace(MAIL, key="email:more"), one.scope)


async def test_a_mail_that_is_not_sent_is_a_dead_letter(database_url: str, tmp_path: Path) -> None:
    """Whatever the reason; with a reply, some are only in the list of replies. It can be sent again."""
    async with a_desk(database_url, tmp_path) as one:
        queued = await one.desk.queue(MAIL, one.scope)
        [row] = await one.leased()
        await one.settle(row, Receipt("failed", error="550 no such user", because="blocked"))
        [untold] = await outbox.untold(one.parts.database, 10)
        assert (untold.why, untold.mail, untold.team_id) == ("unsent", True, "root")
        fate = await one.desk.state(MAIL.key)
        assert fate is not None
        assert (fate.state, fate.why) == ("failed", "550 no such user")

        await one.parts.replies.resend(row.outbox_id)
        [row] = await one.leased()
        assert not row.unreachable
        await one.settle(row, Receipt("sent", queued.message_id))
        late = LateFailure(platform_message_id=queued.message_id, reason="full", at=row.created_at)
        assert await outbox.report_late_failure(one.parts.database, "email", HOUSE, late) == "failed"
        assert [one.why for one in await outbox.untold(one.parts.database, 10)] == ["undelivered"]


async def test_a_calendar_part_is_kept_with_the_mail(database_url: str, tmp_path: Path) -> None:
    async with a_desk(database_url, tmp_path) as one:
        invitation = CalendarPart("REQUEST", f"BEGIN:VCALENDAR\r\nDESCRIPTION:{'x' * 20_000}\r\nEND:VCALENDAR\r\n")
        await one.desk.queue(replace(MAIL, calendar=invitation), one.scope)
        [row] = await one.leased()
        assert row.address is not None
        assert row.address["mail"]["calendar"] == {"method": "REQUEST", "ics": invitation.ics}


@pytest.mark.parametrize(
    ("grants", "address", "told"),
    [
        (["email_send"], "ann@home.example", ["nothing sends from the addresses of ann"]),
        (["email_send"], HOUSE.title(), []),
        (["email_read"], "ann@home.example", []),
    ],
)
async def test_doctor_names_mailboxes_from_which_nothing_is_sent(
    database_url: str, tmp_path: Path, grants: list[str], address: str, told: list[str]
) -> None:
    async with a_desk(database_url, tmp_path) as one:
        accounts = {"ann": {"user": "ann", "writes_as": [address]}}
        settings = Settings(data_dir=tmp_path, modules={"email": {"accounts": accounts}})
        member = butler("clerk", "model", grants={"owners": grants})
        found = await check_senders(one.parts.database, settings, [member])
        assert [result.detail for result in found] == told

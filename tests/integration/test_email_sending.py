"""A butler that sends mails for its owner: what is asked before, what is sent then, and for whom it sends nothing.

Messages are accepted, answered by the engine `model` and settled as in production; the mailbox is on a real server, and
what the connector would be given is read from the outbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.core.turns.asking import LOOKED_UP
from switchboard.domain.ledger import LeasedRow
from switchboard.domain.shown import ShownApproval
from switchboard.journey.approving import ApprovalDecision, decide
from switchboard.modules.email.manifest import MANIFEST
from switchboard.store.connectors.accounts import Holder, lease_account
from switchboard.store.database import Database
from switchboard.store.messages import outbox
from switchboard.testing.scripted_llm import Call, Reply, Request
from tests.hands import settled
from tests.mail_servers import PASSWORD, Dovecot, running_dovecot
from tests.mailboxes import SECRET, a_mail, account_at, deliver
from tests.offices import Office, Staffing, a_staffed_office
from tests.waiting import eventually

ANN: Final = "ann@home.example"
HOUSE: Final = "house@home.example"
OTHER: Final = "bob@home.example"
USERS: Final = count()
GRANTED: Final[dict[str, Any]] = {"grants": {"owners": ["email_search", "email_read", "email_send"]}}
ONLY_HOUSE: Final = "cannot be written from 'ann@home.example' here; there is: house@home.example"
BOILER: Final[dict[str, Any]] = {"to": ["ben@x.example"], "subject": "Boiler", "text": "It leaks.\nCan you come?"}


@pytest.fixture(scope="module")
def dovecot() -> Iterator[Dovecot]:
    with running_dovecot() as server:
        yield server


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, PASSWORD)


def obeys(request: Request) -> Reply:
    """Makes the call that the message is, and says what came of it."""
    if request.results:
        return Reply(text=request.results[-1].text)
    found = re.search(r"(email_\w+) (\{.*\})", request.messages[-1].text)
    assert found is not None
    return Reply(calls=(Call(found[1], json.loads(found[2])),))


def said(tool: str, **arguments: Any) -> str:
    return f"{tool} {json.dumps(arguments)}"


@dataclass
class Desk:
    """The office, and Ann's mailbox."""

    office: Office
    user: str
    asked: list[Any]

    async def ask(self, tool: str = "email_send", **arguments: Any) -> str:
        """What the butler answers Ann; nothing yet if somebody must approve the call."""
        [request_id] = await self.office.ask([said(tool, **arguments)])
        self.asked.append(request_id)
        return await self.answer()

    async def answer(self) -> str:
        return "\n".join(await self.office.parts.replies_to(self.asked[-1]))

    async def approve(self) -> str:
        [waiting] = await self.office.waiting()
        await decide(self.office.parts.database, self.office.parts.notifier, waiting, ApprovalDecision("approved", "x"))
        await eventually(lambda: settled(self.office.parts), within=60)
        return await self.answer()

    async def sent(self, account: str = ANN) -> list[LeasedRow]:
        database = self.office.parts.database
        return await outbox.lease(database, outbox.pull_pool("email", account), limit=9, lease_s=60.0, idempotent=False)


@asynccontextmanager
async def a_desk(
    url: str,
    place: Path,
    accounts: Mapping[str, dict[str, Any]],
    *,
    user: str,
    connected: tuple[str, ...] = (ANN, HOUSE, OTHER),
    options: dict[str, Any] = GRANTED,
    grant: dict[str, Any] | None = None,
) -> AsyncIterator[Desk]:
    async def connect(database: Database) -> None:
        for one in connected:
            await lease_account(database, "email", one, Holder("one"))

    modules = {} if grant is None else {"email": grant}
    staffing = Staffing(MANIFEST, dict(accounts), 1, obeys, connect, options, modules)
    async with a_staffed_office(url, place, staffing) as office:
        yield Desk(office, user, [])


@pytest.fixture
async def desk(database_url: str, tmp_path: Path, dovecot: Dovecot) -> AsyncIterator[Desk]:
    user = f"ann{next(USERS)}"
    async with a_desk(database_url, tmp_path, accounts_at(dovecot, user), user=user) as one:
        yield one


def accounts_at(dovecot: Dovecot, user: str) -> dict[str, dict[str, Any]]:
    """Ann's, her household's, and that of somebody else."""
    return {
        "ann": account_at(dovecot.port, user, writes_as=[ANN]),
        "home": account_at(dovecot.port, "house", group="family", writes_as=[HOUSE]),
        "bob": account_at(dovecot.port, "bob", person="bob", writes_as=[OTHER]),
    }


def shown(waiting: ShownApproval) -> str:
    """What was looked up for whoever approves it."""
    return str(waiting.arguments[LOOKED_UP])


def mail_in(row: LeasedRow) -> dict[str, Any]:
    assert row.address is not None
    return dict(row.address["mail"])


async def test_a_mail_is_shown_whole_and_sent_once_it_is_approved(desk: Desk) -> None:
    assert "approval" in await desk.ask(**BOILER, cc=["eva@x.example"], bcc=["dan@x.example"])
    assert await desk.sent() == []
    [waiting] = await desk.office.waiting()
    assert shown(waiting).splitlines() == [
        f"From: {ANN}",
        "To: ben@x.example",
        "Cc: eva@x.example",
        "Bcc: dan@x.example",
        "Subject: Boiler",
        "",
        "It leaks.",
        "Can you come?",
    ]
    assert '"state":"waiting"' in await desk.approve()
    [row] = await desk.sent()
    assert row.text == BOILER["text"]
    mail = mail_in(row)
    assert (mail["sender"], mail["to"], mail["cc"]) == (ANN, ["ben@x.example"], ["eva@x.example"])
    assert mail["bcc"] == ["dan@x.example"]


async def test_an_answer_is_in_the_thread_of_what_it_answers(desk: Desk, dovecot: Dovecot) -> None:
    deliver(dovecot, desk.user, a_mail("first", "The boiler", "It leaks.", None, to=ANN, cc="eva@x.example"))
    await desk.ask(text="On Friday.", answers="<first@x.example>")
    [waiting] = await desk.office.waiting()
    assert "Answers: “The boiler” of Ben <ben@x.example>" in shown(waiting).splitlines()
    await desk.approve()
    mail = mail_in((await desk.sent())[0])
    assert (mail["to"], mail["cc"], mail["subject"]) == (["ben@x.example"], [], "Re: The boiler")
    assert (mail["in_reply_to"], mail["references"]) == ("<first@x.example>", ["<first@x.example>"])


async def test_files_go_with_it_as_they_were_approved(desk: Desk, tmp_path: Path) -> None:
    plan = tmp_path / "clerk" / "plan.txt"
    plan.parent.mkdir(exist_ok=True)
    plan.write_text("Turn it off.")
    await desk.ask(**BOILER, files=["plan.txt"])
    [waiting] = await desk.office.waiting()
    assert "Files: plan.txt (12 bytes)" in shown(waiting).splitlines()
    await desk.approve()
    [row] = await desk.sent()
    assert [(one.filename, one.size_bytes) for one in row.files] == [("plan.txt", 12)]


async def test_another_mail_than_was_approved_is_not_sent(desk: Desk, tmp_path: Path) -> None:
    """A file that has changed since makes it another mail: it is asked about again."""
    plan = tmp_path / "clerk" / "plan.txt"
    plan.parent.mkdir(exist_ok=True)
    plan.write_text("Turn it off.")
    await desk.ask(**BOILER, files=["plan.txt"])
    plan.write_text("Turn it on!!")
    assert "email_send was not called: it has changed since approval was asked" in await desk.approve()
    assert await desk.sent() == []


async def test_a_mail_is_sent_from_an_address_of_the_caller_alone(desk: Desk) -> None:
    there = "there is: ann@home.example, house@home.example"
    for other in (OTHER, "eve@x.example"):
        answer = await desk.ask(**BOILER, sender=other)
        assert f"cannot be written from '{other}' here" in answer
        assert there in answer
    assert await desk.office.waiting() == []
    await desk.ask(**BOILER, sender=HOUSE.title())
    await desk.approve()
    assert [row.endpoint for row in await desk.sent(HOUSE)] == [HOUSE]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            {"grant": {"send_as": [HOUSE]}},
            "cannot be written from 'ann@home.example' here; there is: house@home.example",
        ),
        ({"grant": {"send_as": [OTHER]}}, "may not write from any address"),
        ({"connected": (HOUSE,)}, "cannot be written from 'ann@home.example' here; there is: house@home.example"),
        ({"connected": ()}, "Nothing sends from ann@home.example, house@home.example here"),
        ({"options": {}}, None),
    ],
    ids=["granted another", "granted nothing of theirs", "another is connected", "none is connected", "not granted"],
)
async def test_a_butler_sends_what_it_was_granted(
    database_url: str, tmp_path: Path, dovecot: Dovecot, more: dict[str, Any], told: str | None
) -> None:
    """A tool of high risk is granted by its name alone."""
    async with a_desk(database_url, tmp_path, accounts_at(dovecot, "granted"), user="granted", **more) as one:
        answer = await one.ask(**BOILER, sender=ANN)
        assert told is None or told in answer
        assert await one.office.waiting() == []


async def test_what_hides_something_is_not_shown_to_anybody(desk: Desk) -> None:
    for hidden in ("\u202e", "\u2066", "\x07", "\u200b", "\U000e0041", "\U000e0101"):
        for field in ("text", "subject"):
            answer = await desk.ask(**{**BOILER, field: f"It leaks.{hidden} Pay."})
            assert "cannot be seen" in answer
    assert await desk.office.waiting() == []


async def test_an_address_is_shown_as_it_is_sent_to(desk: Desk) -> None:
    """The first letter is a Cyrillic one."""
    await desk.ask(**{**BOILER, "to": ["ben@\u0445.example"], "cc": ["eva@b\u00fccher.example"]})
    [waiting] = await desk.office.waiting()
    assert "To: ben@xn--u1a.example\nCc: eva@xn--bcher-kva.example\n" in shown(waiting)

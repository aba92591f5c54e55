"""Mails that butlers have written, sent by the connector for e-mail over real servers; and accounts that only send."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any, Final

import pytest
from msgspec.structs import replace

from switchboard.connectors.email.channel import EmailSession
from switchboard.connectors.email.manifest import MANIFEST
from switchboard.connectors.email.settings import EmailAccountSettings
from switchboard.core.mail.written import WrittenMail, written_address
from switchboard.ports.connector import Account, FileOut, Part, Refused, Sent, SignInRefused
from switchboard.ports.mail_desk import CalendarPart
from switchboard.transport.mail_servers.server import Server
from tests.mail_servers import OWN, PASSWORD, Imap, Postbox, running_pymap, running_smtp

pytestmark = pytest.mark.slow

WRITTEN: Final = WrittenMail(
    message_id="<0123@home.example>",
    sender=OWN,
    to=("ben@x.example", "eva@x.example"),
    cc=("cat@x.example",),
    bcc=("dan@x.example",),
    subject="Grüße: *Boiler*",
    in_reply_to="<a@x.example>",
    references=("<b@x.example>", "<a@x.example>"),
)
TEXT: Final = "It *leaks*.\n.\nFrom here:\n<b>no</b> markup, größer\n"


@pytest.fixture
def pymap() -> Iterator[Imap]:
    with running_pymap() as server:
        yield server


@pytest.fixture
def smtp() -> Iterator[tuple[Postbox, int]]:
    with running_smtp(PASSWORD) as server:
        yield server


def settings_of(imap: Imap, smtp_port: int, **others: Any) -> EmailAccountSettings:
    servers = {
        "imap": Server(host="127.0.0.1", port=imap.port, tls="none"),
        "smtp": Server(host="127.0.0.1", port=smtp_port, tls="none"),
    }
    return EmailAccountSettings(**{"address": OWN, "display_name": "House", "user": imap.user, **servers, **others})


async def pieces() -> AsyncIterator[bytes]:
    yield b"%PDF-1"


PART: Final = Part(address=written_address(WRITTEN), text=TEXT)


def read(mail: bytes) -> EmailMessage:
    found = message_from_bytes(mail, policy=default)
    assert isinstance(found, EmailMessage)
    return found


async def test_a_mail_goes_to_all_as_it_was_written_and_is_filed_once(pymap: Imap, smtp: tuple[Postbox, int]) -> None:
    postbox, port = smtp
    session = EmailSession(settings_of(pymap, port), PASSWORD)
    files = (FileOut("plan.pdf", "application/pdf", 6, pieces),)
    for _ in range(2):
        assert await session.send(replace(PART, files=files), "key") == Sent(WRITTEN.message_id)
    await session.close()
    again = EmailSession(settings_of(pymap, port), PASSWORD)
    assert await again.find(PART, "key") == Sent(WRITTEN.message_id)
    await again.close()

    assert postbox.recipients[0] == ["ben@x.example", "eva@x.example", "cat@x.example", "dan@x.example"]
    sent = read(postbox.mails[0])
    assert (sent["from"], sent["to"], sent["cc"]) == (f"House <{OWN}>", ", ".join(WRITTEN.to), "cat@x.example")
    assert (sent["subject"], sent["message-id"], sent["in-reply-to"]) == (
        WRITTEN.subject,
        WRITTEN.message_id,
        "<a@x.example>",
    )
    assert sent["references"] == "<b@x.example> <a@x.example>"
    assert b"dan@" not in postbox.mails[0]
    assert sent["auto-submitted"] is None
    text, file = sent.iter_parts()
    assert text.get_content_type() == "text/plain"
    assert text.get_content().replace("\r\n", "\n").rstrip("\n") == TEXT.rstrip("\n")
    assert (file.get_filename(), file.get_content()) == ("plan.pdf", b"%PDF-1")
    client = pymap.login()
    client.select("Sent", readonly=True)
    assert len(client.search(None, "HEADER", "Message-ID", WRITTEN.message_id)[1][0].split()) == 1
    client.logout()


async def test_a_mail_that_one_recipient_cannot_get_goes_to_nobody(pymap: Imap, smtp: tuple[Postbox, int]) -> None:
    postbox, port = smtp
    postbox.refused = "cat@x.example"
    session = EmailSession(settings_of(pymap, port), PASSWORD)
    outcome = await session.send(PART, "key")
    await session.close()
    assert isinstance(outcome, Refused)
    assert "550 no such user" in outcome.reason
    assert postbox.mails == []


async def test_an_account_sends_from_its_own_address_alone(pymap: Imap, smtp: tuple[Postbox, int]) -> None:
    postbox, port = smtp
    session = EmailSession(settings_of(pymap, port), PASSWORD)
    forged = written_address(replace(WRITTEN, sender="ann@home.example"))
    outcome = await session.send(Part(address=forged, text="x"), "key")
    await session.close()
    assert isinstance(outcome, Refused)
    assert "sends from bot@home.example alone" in outcome.reason
    assert postbox.mails == []


async def test_an_invitation_is_one_part_beside_the_text(pymap: Imap, smtp: tuple[Postbox, int]) -> None:
    postbox, port = smtp
    ics = "BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nSUMMARY:Übung\r\nEND:VCALENDAR\r\n"
    session = EmailSession(settings_of(pymap, port), PASSWORD)
    written = replace(WRITTEN, calendar=CalendarPart("REQUEST", ics), automatic=True)
    await session.send(Part(address=written_address(written), text="You are invited."), "key")
    await session.close()
    sent = read(postbox.mails[0])
    assert (sent.get_content_type(), sent["auto-submitted"]) == ("multipart/alternative", "auto-generated")
    text, event = sent.iter_parts()
    assert text.get_content().strip() == "You are invited."
    assert (event.get_content_type(), event.get_param("method"), event.get_content()) == (
        "text/calendar",
        "REQUEST",
        ics,
    )


async def test_an_account_that_does_not_receive_signs_in_where_it_sends(pymap: Imap, smtp: tuple[Postbox, int]) -> None:
    _, port = smtp
    settings = settings_of(pymap, port, receive=False, idle_s=0.05)
    pymap.deliver(b"From: a@x.example\r\nSubject: x\r\n\r\nhello\r\n")
    session = await MANIFEST.open(Account("ann", settings, {"password": PASSWORD}))
    assert isinstance(session, EmailSession)
    assert await session.latest() is None
    async with aclosing(session.receive(None)) as batches:
        for _ in range(3):
            batch = await anext(batches)
            assert (batch.events, batch.cursor) == ((), None)
    await session.close()
    with pytest.raises(SignInRefused):
        await MANIFEST.open(Account("ann", settings, {"password": "wrong"}))

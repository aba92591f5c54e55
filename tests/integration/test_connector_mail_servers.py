"""The connector for e-mail against Postfix and Dovecot as people run them: TLS, passwords and access tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from switchboard.connectors.email.channel import EmailSession
from switchboard.connectors.email.manifest import MANIFEST
from switchboard.connectors.email.settings import EmailAccountSettings
from switchboard.ports.connector import Account, Inbound, Later, Outcome, Part, Sent, SignInRefused
from tests.mail_servers import OWN, PASSWORD, Dovecot, running_dovecot, running_postfix, write
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dovecot() -> Iterator[Dovecot]:
    with running_dovecot() as server:
        yield server


@pytest.fixture(scope="module")
def postfix(dovecot: Dovecot) -> Iterator[int]:
    with running_postfix(dovecot) as port:
        yield port


@pytest.fixture
def trusted(dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate of the servers is one of those that this machine trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(dovecot.certificate))


def settings_of(dovecot: Dovecot, postfix: int, **others: Any) -> EmailAccountSettings:
    made = {
        "address": OWN,
        "user": dovecot.user,
        "imap": {"host": "127.0.0.1", "port": dovecot.tls_port},
        "smtp": {"host": "127.0.0.1", "port": postfix, "tls": "starttls"},
    }
    return EmailAccountSettings.model_validate(made | others)


@asynccontextmanager
async def opened(settings: EmailAccountSettings, **secrets: str) -> AsyncIterator[EmailSession]:
    session = await MANIFEST.open(Account("desk", settings, secrets))
    assert isinstance(session, EmailSession)
    yield session
    await session.close()


async def next_mail(session: EmailSession, cursor: str | None) -> Inbound:
    async with asyncio.timeout(60), aclosing(session.receive(cursor)) as batches:
        async for batch in batches:
            for event in batch.events:
                assert isinstance(event, Inbound)
                return event
    raise AssertionError("it ended")


async def answered(session: EmailSession, event: Inbound, key: str) -> Outcome:
    address = event.envelope.event.reply_address
    assert address is not None
    return await session.send(Part(address=address, text="Fine."), key)


async def is_in(dovecot: Dovecot, message_id: str, user: str, folder: str = "INBOX") -> bool:
    return any(one["Message-ID"] == message_id for one in await asyncio.to_thread(dovecot.mails, user, folder))


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("tls", ["tls", "starttls"])
async def test_a_mail_through_postfix_is_answered_through_it(dovecot: Dovecot, postfix: int, tls: str) -> None:
    port = dovecot.tls_port if tls == "tls" else dovecot.port
    settings = settings_of(dovecot, postfix, imap={"host": "localhost", "port": port, "tls": tls})
    async with opened(settings, password=PASSWORD) as session:
        cursor = await session.latest()
        await asyncio.to_thread(write, dovecot, postfix, f"by-{tls}")
        event = await next_mail(session, cursor)
        assert event.envelope.payload.normalized_text.endswith("hello")
        sent = await answered(session, event, f"key-{tls}")
        assert isinstance(sent, Sent)
    await eventually(lambda: is_in(dovecot, sent.platform_message_id, "ada"))
    mails = dovecot.mails("ada")
    (answer,) = [one for one in mails if one["Message-ID"] == sent.platform_message_id]
    assert answer["In-Reply-To"] == f"<by-{tls}@x.example>"
    assert answer["Return-Path"] == f"<{OWN}>"
    assert await is_in(dovecot, sent.platform_message_id, "bot", "Sent")


@pytest.mark.parametrize("tls", ["tls", "starttls"])
async def test_nothing_is_said_to_servers_that_nobody_certifies(dovecot: Dovecot, postfix: int, tls: str) -> None:
    port = dovecot.tls_port if tls == "tls" else dovecot.port
    settings = settings_of(dovecot, postfix, imap={"host": "127.0.0.1", "port": port, "tls": tls})
    with pytest.raises(OSError, match="certificate verify failed"):
        await MANIFEST.open(Account("desk", settings, {"password": PASSWORD}))
    session = EmailSession(settings_of(dovecot, postfix, sent_copy="never"), PASSWORD)
    outcome = await session.send(Part(address={"to": "ada@x.example"}, text="x"), "key-uncertified")
    await session.close()
    assert isinstance(outcome, Later)
    assert "certificate verify failed" in outcome.reason


@pytest.mark.usefixtures("trusted")
async def test_an_access_token_opens_mailbox_and_submission_until_it_is_revoked(dovecot: Dovecot, postfix: int) -> None:
    settings = settings_of(dovecot, postfix, token_command=("echo", "token-of-today"))
    dovecot.tokens["token-of-today"] = "bot"
    async with opened(settings) as session:
        cursor = await session.latest()
        await asyncio.to_thread(write, dovecot, postfix, "by-token")
        event = await next_mail(session, cursor)
        assert isinstance(await answered(session, event, "key-token"), Sent)
        await session.close()
    del dovecot.tokens["token-of-today"]
    revoked = EmailSession(settings, "")
    later = await answered(revoked, event, "key-revoked")
    await revoked.close()
    assert isinstance(later, Later)
    assert "sign in again" in later.reason
    with pytest.raises(SignInRefused, match="sign in again") as refused:
        await MANIFEST.open(Account("desk", settings, {}))
    assert "token-of-today" not in f"{refused.value} {later}"


async def test_a_grant_that_is_invalid_is_said_to_be_one_to_sign_in_again(dovecot: Dovecot, postfix: int) -> None:
    refused = ("sh", "-c", "echo 'invalid_grant: refresh-token-and-secret' >&2; exit 1")
    with pytest.raises(SignInRefused, match="sign in again") as caught:
        await MANIFEST.open(Account("desk", settings_of(dovecot, postfix, token_command=refused), {}))
    assert "refresh-token" not in str(caught.value)


@pytest.mark.usefixtures("trusted")
async def test_a_wrong_password_is_told_of(dovecot: Dovecot, postfix: int) -> None:
    settings = settings_of(dovecot, postfix)
    with pytest.raises(SignInRefused, match="check the user and the password"):
        await MANIFEST.open(Account("desk", settings, {"password": "wrong-and-secret"}))
    session = EmailSession(settings, "wrong-and-secret")
    outcome = await session.send(Part(address={"to": "ada@x.example"}, text="x"), "key-wrong")
    await session.close()
    assert isinstance(outcome, Later)
    assert "check the user and the password" in outcome.reason

"""Telegram and e-mail obey the laws of connectors: against the strict Bot API server, and pymap with aiosmtpd.

The folder of files does so in tests/acceptance/test_connect.py.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from email import message_from_bytes, policy
from email.message import EmailMessage
from imaplib import IMAP4

import pytest

from switchboard.connectors.email.manifest import MANIFEST as EMAIL
from switchboard.connectors.email.settings import Server, Settings
from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.intake import Handling
from switchboard.connectors.telegram.manifest import MANIFEST as TELEGRAM
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Account, Manifest
from switchboard.testing.bot_api import TOKEN, BotApi, Status
from switchboard.testing.connectors import (
    CHECKS,
    EDITING_CHECKS,
    FILE_CHECKS,
    LOSING_CHECKS,
    NETWORK_CHECKS,
    ConnectorCheck,
    EditingCheck,
    FileCheck,
    LosingCheck,
    NetworkCheck,
    Shown,
)
from tests.mail_servers import OWN, PASSWORD, Imap, Postbox, running_pymap, running_smtp

pytestmark = pytest.mark.slow

ANSWERED = Handling(start="all", on_uncertain="resend_marked", on_stale="answer")


def without_pauses(manifest: Manifest, text_limit: int) -> Manifest:
    """As fast as it goes, and with parts that are soon full."""
    quick = replace(
        manifest.capabilities,
        text_limit=text_limit,
        caption_limit=0,
        per_account_s=0.0,
        per_conversation_s=0.0,
        brake=None,
    )
    return replace(manifest, capabilities=quick)


@dataclass(slots=True)
class TelegramDriver:
    """People who write to a bot, each in a chat of their own."""

    api: BotApi
    last: dict[str, JsonObject] = field(default_factory=dict)
    threads: list[str] = field(default_factory=list)
    longest: int = 4096

    @property
    def configured(self) -> Configured:
        settings = TELEGRAM.settings.model_validate({"api_url": self.api.url, "poll_s": 50})
        return Configured(without_pauses(TELEGRAM, 400), Account("house", settings, {"token": TOKEN}), ANSWERED)

    async def says(self, thread: str, text: str) -> None:
        self.last[thread] = self.api.people.say(text, user=self._user(thread))

    def _user(self, thread: str) -> JsonObject:
        if thread not in self.threads:
            self.threads.append(thread)
        return {"id": 1000 + self.threads.index(thread), "is_bot": False, "first_name": thread}

    async def brings(self, thread: str, text: str, data: bytes) -> None:
        self.api.people.document(data, "a.bin", "application/octet-stream", user=self._user(thread), caption=text)

    def loses_files(self) -> None:
        self.api.people.lose_files()

    async def edits(self, thread: str, text: str) -> None:
        self.api.people.edit(self.last[thread], text)

    async def shown(self) -> Sequence[Shown]:
        return [Shown(self.threads[one["chat"]["id"] - 1000], one["text"]) for one in self.api.sent]

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        async with self.api.closed():
            yield

    def puts_off(self, times: int, seconds: float) -> None:
        parameters = {"retry_after": seconds}
        self.api.spoil("sendMessage", *[Status(429, "Too Many Requests: retry after 1", parameters)] * times)

    def asked(self) -> int:
        return sum(call.method != "getUpdates" for call in self.api.calls)


@pytest.mark.parametrize("check", [*CHECKS, *NETWORK_CHECKS, *EDITING_CHECKS], ids=lambda check: check.__name__)
async def test_telegram(check: ConnectorCheck | NetworkCheck | EditingCheck) -> None:
    async with BotApi() as api:
        await check(TelegramDriver(api))


@dataclass(slots=True)
class MailDriver:
    """People who write mails."""

    imap: Imap
    client: IMAP4
    postbox: Postbox
    smtp_port: int
    said: Counter[str] = field(default_factory=Counter)
    longest: int = 200_000  # what is longer is cut, and says so

    @property
    def configured(self) -> Configured:
        settings = Settings(
            address=OWN,
            user=self.imap.user,
            imap=Server(host="127.0.0.1", port=self.imap.port, tls="none"),
            smtp=Server(host="127.0.0.1", port=self.smtp_port, tls="none"),
            idle_s=0.1,
        )
        return Configured(without_pauses(EMAIL, 400), Account("desk", settings, {"password": PASSWORD}), ANSWERED)

    async def says(self, thread: str, text: str) -> None:
        await self._sends(thread, text)

    async def brings(self, thread: str, text: str, data: bytes) -> None:
        await self._sends(thread, text, data)

    async def _sends(self, thread: str, text: str, data: bytes | None = None) -> None:
        mail = EmailMessage(policy=policy.SMTP)
        mail["From"], mail["To"] = f"{thread}@x.example", OWN  # no subject: it would be part of the text
        first, before = f"<{thread}@x.example>", self.said[thread]
        mail["Message-ID"] = f"<{thread}.{before}@x.example>" if before else first
        if before:
            mail["References"] = first
        self.said[thread] += 1
        mail.set_content(text)
        if data is not None:
            mail.add_attachment(data, maintype="application", subtype="octet-stream", filename="a.bin")
        status, told = await asyncio.to_thread(self.client.append, "INBOX", "", "", mail.as_bytes())
        assert status == "OK", told

    async def shown(self) -> Sequence[Shown]:
        mails = [message_from_bytes(one, policy=policy.default) for one in list(self.postbox.mails)]
        return [Shown(str(one["To"]).partition("@")[0], _text(one)) for one in mails]


def _text(mail: EmailMessage) -> str:
    plain = mail.get_body(("plain",))
    assert isinstance(plain, EmailMessage)
    return str(plain.get_content()).strip()


@pytest.fixture
def mail_driver() -> Iterator[MailDriver]:
    with running_pymap() as imap, running_smtp() as (postbox, port):
        client = imap.login()
        yield MailDriver(imap, client, postbox, port)
        client.logout()
    with warnings.catch_warnings():  # a connector that is killed within this process leaves its sockets behind
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_email(check: ConnectorCheck, mail_driver: MailDriver) -> None:
    await check(mail_driver)


@pytest.mark.parametrize("check", [*FILE_CHECKS, *LOSING_CHECKS], ids=lambda check: check.__name__)
async def test_files_by_telegram(check: FileCheck | LosingCheck) -> None:
    async with BotApi() as api:
        await check(TelegramDriver(api))


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("check", FILE_CHECKS, ids=lambda check: check.__name__)
async def test_files_by_email(check: FileCheck, mail_driver: MailDriver) -> None:
    await check(mail_driver)

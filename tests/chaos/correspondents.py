"""The people of the run of channels: they write on each platform, and keep what they get. They are never killed.

The platforms are real servers, each a process of its own: those of `switchboard.testing`, and for mail Dovecot with
Postfix, or pymap with an SMTP server where those are not installed. In: questions; out: all answers, in the order of
their arrival. Next: `channels_run.py`.
"""

from __future__ import annotations

import asyncio
import re
import smtplib
import ssl
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from functools import partial
from typing import Final, Protocol

import httpx2
import pytest

from switchboard.bench.platforms import TRIED, PlatformAccount, TriedPlatform
from switchboard.connectors.kernel.parts import REPEAT_NOTE
from tests.mail_servers import (
    OWN,
    PASSWORD,
    Dovecot,
    running_dovecot,
    running_postfix,
    running_pymap,
    running_smtp,
)

SAID: Final = "heard: "
"""What the butler puts before the question that it answers."""
_URL: Final = re.compile(r"http://127\.0\.0\.1:\d+")
_EMAIL: Final = "email"
_A_PERSONS_MAILS: Final = 3
"""Somebody who gets more within minutes may be a program, and has to wait."""


@dataclass(frozen=True, slots=True)
class Question:
    """The `number`th of a conversation of a channel; its text is found again in the answer."""

    channel: str
    conversation: int
    number: int

    @property
    def text(self) -> str:
        """Unlike that of any other question."""
        return f"question {self.number} of {self.channel} {self.conversation}."


@dataclass(frozen=True, slots=True)
class Got:
    """An answer as somebody received it; `marked`: it says that it may be a repeat."""

    text: str
    marked: bool

    @classmethod
    def read(cls, text: str) -> Got:
        """An answer with this text."""
        return cls(text, REPEAT_NOTE in text)

    @property
    def question(self) -> str:
        """The text of the question that is answered."""
        text = self.text[self.text.find(SAID) + len(SAID) :]
        return text[: text.find(".") + 1]


class Correspondents(Protocol):
    """Everybody who writes on one platform."""

    @property
    def account(self) -> PlatformAccount:
        """Our account there, to which they write."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What the processes of ours need to reach the platform."""

    @property
    def patience(self) -> int:
        """How many questions one person may ask within minutes, and is answered at once."""

    async def ask(self, question: Question) -> None:
        """Whoever has the conversation writes."""

    async def got(self) -> list[Got]:
        """What has arrived at anybody, the oldest first."""


@dataclass(frozen=True, slots=True)
class ChatPeople:
    """People who write on a platform whose server is ours; each conversation is a direct chat."""

    account: PlatformAccount
    client: httpx2.AsyncClient
    """At the server."""
    environment: Mapping[str, str] = field(default_factory=dict)
    patience: int = 1_000_000

    async def ask(self, question: Question) -> None:
        """Somebody writes to the account."""
        path = f"/say/{question.conversation + 1}"
        (await self.client.post(path, params={"wait": "0"}, content=question.text)).raise_for_status()

    async def got(self) -> list[Got]:
        """What the account has sent to anybody."""
        return [Got.read(text) for text in (await self.client.get("/say")).raise_for_status().json()]


@asynccontextmanager
async def chat_people(tried: TriedPlatform) -> AsyncIterator[ChatPeople]:
    """Start the server of the platform, with its rate limits."""
    command = (sys.executable, "-m", tried.platform.program, "--limits")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    assert process.stdout is not None
    told = _URL.search((await process.stdout.readline()).decode())
    assert told is not None, f"{tried.platform.program} has not started"
    try:
        async with httpx2.AsyncClient(base_url=told[0], trust_env=False, timeout=30) as client:
            yield ChatPeople(tried.account_at(told[0]), client)
    finally:
        process.terminate()
        await process.wait()


@dataclass(frozen=True, slots=True)
class MailPeople:
    """Each conversation is a thread of a person with an address of their own, all of which lead to one mailbox."""

    account: PlatformAccount
    environment: Mapping[str, str]
    post: Callable[[str, bytes], None]
    received: Callable[[], Sequence[Message]]
    patience: int = _A_PERSONS_MAILS

    async def ask(self, question: Question) -> None:
        """Somebody writes a mail."""
        person = f"ada+{question.conversation}@x.example"
        thread = f"<{question.conversation}.0@x.example>"
        mail = f"From: Ada <{person}>\r\nTo: {OWN}\r\nSubject: {question.conversation}\r\n"
        mail += f"Message-ID: <{question.conversation}.{question.number}@x.example>\r\n"
        mail += f"In-Reply-To: {thread}\r\nReferences: {thread}\r\n" if question.number else ""
        await asyncio.to_thread(self.post, person, f"{mail}\r\n{question.text}\r\n".encode())

    async def got(self) -> list[Got]:
        """What has been delivered to anybody."""
        return [Got.read(_text(one)) for one in await asyncio.to_thread(self.received)]


@asynccontextmanager
async def mail_people() -> AsyncIterator[MailPeople]:
    """With the servers of mail."""
    with _mail_servers() as people:
        yield people


@contextmanager
def _mail_servers() -> Iterator[MailPeople]:
    """Start Dovecot and Postfix if that can be done here, else pymap and an SMTP server that keeps what it gets."""
    try:
        with running_dovecot() as dovecot, running_postfix(dovecot) as postfix:
            yield _real(dovecot, postfix)
    except pytest.skip.Exception:
        with running_pymap() as imap, running_smtp() as (box, port):

            def received() -> list[Message]:
                return [message_from_bytes(one) for one in box.mails]

            yield MailPeople(
                _account(imap.user, imap.port, port, "none"), {}, lambda _, mail: imap.deliver(mail), received
            )


def _real(dovecot: Dovecot, postfix: int) -> MailPeople:
    def post(person: str, mail: bytes) -> None:
        with smtplib.SMTP("127.0.0.1", postfix) as client:
            client.starttls(context=ssl.create_default_context(cafile=dovecot.certificate))
            client.login("ada", PASSWORD)
            client.sendmail(person, [OWN], mail)

    trusted = {"SSL_CERT_FILE": str(dovecot.certificate)}
    account = _account(dovecot.user, dovecot.port, postfix, "starttls")
    return MailPeople(account, trusted, post, lambda: dovecot.mails("ada"))


def _account(user: str, imap: int, smtp: int, tls: str) -> PlatformAccount:
    servers = {name: {"host": "127.0.0.1", "port": port, "tls": tls} for name, port in (("imap", imap), ("smtp", smtp))}
    return PlatformAccount(
        channel=_EMAIL,
        endpoint=OWN,
        secrets={"password": PASSWORD},
        settings={"address": OWN, "user": user, **servers},
    )


def _text(mail: Message) -> str:
    plain = next((part for part in mail.walk() if part.get_content_type() == "text/plain"), mail)
    found = plain.get_payload(decode=True)
    return found.decode(errors="replace") if isinstance(found, bytes) else ""


PEOPLE: Final[Mapping[str, Callable[[], AbstractAsyncContextManager[Correspondents]]]] = {
    **{tried.channel: partial(chat_people, tried) for tried in TRIED},
    _EMAIL: mail_people,
}
"""The platforms of all channels, by channel; each is started where it is opened."""

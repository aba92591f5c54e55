"""The people of the run of channels: they write by Telegram and by mail, and keep what they get. They are never killed.

The platforms are real servers that run in this process or beside it: the strict Bot API, and Dovecot with Postfix, or
pymap with an SMTP server where those are not installed. In: questions; out: all answers, in the order of their arrival.
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from typing import Final

import pytest

from switchboard.connectors.kernel.parts import REPEAT_NOTE
from switchboard.domain.json_values import JsonObject
from switchboard.testing.bot_api import BotApi
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
_FIRST_ID: Final = 1000


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


class Telegram:
    """Each conversation is a private chat."""

    def __init__(self, api: BotApi) -> None:
        self._api = api

    def ask(self, question: Question) -> None:
        """Somebody writes to the bot."""
        number = _FIRST_ID + question.conversation
        self._api.people.say(question.text, user={"id": number, "is_bot": False, "first_name": f"Person {number}"})

    def got(self) -> list[Got]:
        """What the bot has sent to anybody."""
        return [_got(text) for text in self._api.texts]


@dataclass(frozen=True, slots=True)
class Mail:
    """Each conversation is a thread of a person with an address of their own, all of which lead to one mailbox."""

    servers: str
    settings: JsonObject
    """Of the account that reads the mailbox."""
    environment: Mapping[str, str]
    post: Callable[[str, bytes], None]
    received: Callable[[], Sequence[Message]]

    def ask(self, question: Question) -> None:
        """Somebody writes a mail."""
        person = f"ada+{question.conversation}@x.example"
        thread = f"<{question.conversation}.0@x.example>"
        mail = f"From: Ada <{person}>\r\nTo: {OWN}\r\nSubject: {question.conversation}\r\n"
        mail += f"Message-ID: <{question.conversation}.{question.number}@x.example>\r\n"
        mail += f"In-Reply-To: {thread}\r\nReferences: {thread}\r\n" if question.number else ""
        self.post(person, f"{mail}\r\n{question.text}\r\n".encode())

    def got(self) -> list[Got]:
        """What has been delivered to anybody."""
        return [_got(_text(one)) for one in self.received()]


@contextmanager
def mail_servers() -> Iterator[Mail]:
    """Dovecot and Postfix if they can be started here, else pymap and an SMTP server that keeps what it gets."""
    try:
        with running_dovecot() as dovecot, running_postfix(dovecot) as postfix:
            yield _real(dovecot, postfix)
    except pytest.skip.Exception:
        with running_pymap() as imap, running_smtp() as (box, port):

            def received() -> list[Message]:
                return [message_from_bytes(one) for one in box.mails]

            settings = _settings(imap.user, imap.port, port, "none")
            yield Mail("pymap", settings, {}, lambda _, mail: imap.deliver(mail), received)


def _real(dovecot: Dovecot, postfix: int) -> Mail:
    def post(person: str, mail: bytes) -> None:
        with smtplib.SMTP("127.0.0.1", postfix) as client:
            client.starttls(context=ssl.create_default_context(cafile=dovecot.certificate))
            client.login("ada", PASSWORD)
            client.sendmail(person, [OWN], mail)

    trusted = {"SSL_CERT_FILE": str(dovecot.certificate)}
    settings = _settings(dovecot.user, dovecot.port, postfix, "starttls")
    return Mail("Dovecot and Postfix", settings, trusted, post, lambda: dovecot.mails("ada"))


def _settings(user: str, imap: int, smtp: int, tls: str) -> JsonObject:
    servers = {name: {"host": "127.0.0.1", "port": port, "tls": tls} for name, port in (("imap", imap), ("smtp", smtp))}
    return {"address": OWN, "user": user, **servers}


def _got(text: str) -> Got:
    return Got(text, REPEAT_NOTE in text)


def _text(mail: Message) -> str:
    plain = next((part for part in mail.walk() if part.get_content_type() == "text/plain"), mail)
    found = plain.get_payload(decode=True)
    return found.decode(errors="replace") if isinstance(found, bytes) else ""

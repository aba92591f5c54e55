"""Real servers of mail for tests: pymap for IMAP, aiosmtpd for SMTP. Both listen on loopback and forget everything."""

from __future__ import annotations

import imaplib
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller

OWN = "bot@home.example"
PASSWORD = "pw-very-secret"
MAIL = (
    "From: Ada <ada@x.example>\r\nTo: bot@home.example\r\nMessage-ID: <{name}@x.example>\r\n"
    "Subject: {name}\r\n\r\nhello\r\n"
)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@dataclass(frozen=True)
class Imap:
    """A server that runs; `user` and PASSWORD open its only mailbox."""

    port: int
    user: str
    announces: bool = True
    """Whether it announces what came between a search and IDLE; if not, the poll finds it."""

    def login(self) -> imaplib.IMAP4:
        client = imaplib.IMAP4("127.0.0.1", self.port)
        client.login(self.user, PASSWORD)
        return client

    def deliver(self, *mails: bytes, folder: str = "INBOX") -> None:
        client = self.login()
        for mail in mails:
            status, said = client.append(folder, "", "", mail)
            assert status == "OK", said
        client.logout()


def once_up(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until it listens."""
    while True:
        assert process.poll() is None, "the IMAP server has ended"
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return


@contextmanager
def running_pymap() -> Iterator[Imap]:
    """An IMAP server with one mailbox."""
    port = free_port()
    program = Path(sys.executable).with_name("pymap")
    where = ("--no-tls", "--host", "127.0.0.1", "--port", str(port), "--no-service", "admin")
    user = ("dict", "--demo-data", "--demo-user", "bot", "--demo-password", PASSWORD)
    with subprocess.Popen([program, *where, *user], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        once_up(process, port)
        yield Imap(port, "bot", announces=False)
        process.kill()


@dataclass
class Postbox:
    """What the SMTP server does with a mail."""

    mails: list[bytes] = field(default_factory=list)
    senders: list[str] = field(default_factory=list)
    rcpt: str = "250 OK"
    data: str = "250 OK"

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, to: str, _options: Any) -> str:  # noqa: N802
        envelope.rcpt_tos.append(to)
        return self.rcpt

    async def handle_DATA(self, server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        self.mails.append(envelope.content)
        self.senders.append(envelope.mail_from)
        if self.data == "close":
            server.transport.abort()
        return self.data


@contextmanager
def running_smtp() -> Iterator[tuple[Postbox, int]]:
    """An SMTP server, and its port."""
    postbox = Postbox()
    port = free_port()
    controller = Controller(postbox, hostname="127.0.0.1", port=port)
    controller.start()
    yield postbox, port
    controller.stop()

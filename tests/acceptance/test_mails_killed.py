"""Mails that a butler writes, by real servers: each arrives once, wherever its writer or its connector is killed.

What may have been sent, and is not found in the folder for sent mails, is not sent again unless an operator says so.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from switchboard.store.connectors.accounts import Holder, lease_account
from tests.acceptance.mailing_node import TREE
from tests.forked import ForkedCommand, Forks
from tests.mail_servers import OWN, PASSWORD, Dovecot, running_dovecot, running_postfix
from tests.mailboxes import deliver
from tests.postgres import Postgres
from tests.processes import environment
from tests.servers import Opened, open_server
from tests.waiting import eventually
from tests.width import wide

pytestmark = pytest.mark.slow

ADA: Final = "ada@x.example"
WRITING: Final = ("mail_begun", "mail_written", "mail_queued", "before_journal", "before_complete", "after_complete")
SENDING: Final = (
    *("connector_fetched", "connector_intended", "connector_sent"),
    *("connector_recorded", "connector_unreported", "connector_reported"),
)
ROUNDS: Final = wide(20, 1)


@dataclass(frozen=True)
class House:
    """A switchboard, its database, and what its processes are told."""

    server: Opened
    url: str
    place: Path
    environment: dict[str, str]
    forks: Forks

    async def write(self, text: str, dies_at: str) -> None:
        """A message comes in, and the worker that has it sent dies at a point; another one goes on."""
        accepted = await self.server.submit(
            {
                "schema_version": "ingest.v1",
                "source": {"channel": "api", "provider": "http", "endpoint_identity": "x"},
                "event": {"external_event_id": text, "observed_at": "2026-11-21T12:00:00Z"},
                "sender": {"identity": "x"},
                "payload": {"normalized_text": text},
            }
        )
        assert accepted.status_code == 202, accepted.text
        for point, ended in ((f"{dies_at}:1", -signal.SIGKILL), ("", 0)):
            env = os.environ | {"SWITCHBOARD_CRASH_AT": point}
            words = (self.url, str(self.place), OWN, ADA)
            node = self.forks.start("tests.acceptance.mailing_node", *words, env=env, errors=self.place / "errors")
            assert await node.wait() == ended, (self.place / "errors").read_text()[-3000:]

    async def connect(self, dies_at: str = "") -> None:
        """The connector runs until nothing is left to be sent, or until it dies."""
        env = self.environment | {"SWITCHBOARD_CRASH_AT": f"{dies_at}:1" if dies_at else ""}
        command = ["switchboard", "connect", "desk"]
        with ForkedCommand(command, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
            try:
                if dies_at:
                    await asyncio.to_thread(one.wait)
                else:
                    await eventually(self.is_settled, within=90)
            finally:
                one.kill()

    async def is_settled(self) -> bool:
        return await self.server.lab.count("select count(*) from outbox where state in ('pending', 'sending')") == 0

    async def state_of(self, text: str) -> str:
        rows = "select state from outbox where text = $1 and channel = 'email'"
        return str(await self.server.lab.database.value(rows, text))


@pytest.mark.timeout(3600)
async def test_each_mail_arrives_once_wherever_anything_is_killed(
    postgres: Postgres, tmp_path: Path, forks: Forks
) -> None:
    with running_dovecot() as dovecot, running_postfix(dovecot) as postfix:
        channels = tmp_path / "channels.d"
        channels.mkdir()
        (channels / "desk.toml").write_text(
            'channel = "email"\nsecrets = {password = {env = "MAIL_PASSWORD"}}\n'
            f'[settings]\naddress = "{OWN}"\nuser = "bot"\nreceive = false\n'
            f'imap = {{host = "127.0.0.1", port = {dovecot.port}, tls = "none"}}\n'
            f'smtp = {{host = "127.0.0.1", port = {postfix}, tls = "starttls"}}\n'
        )
        database = await postgres.create()
        url = postgres.url(database)
        try:
            async with open_server(url, tmp_path / "data", tree=TREE) as server:
                known = environment(tmp_path / "data", URL=server.url, CHANNELS_DIR=str(channels))
                known |= {"MAIL_PASSWORD": PASSWORD, "SSL_CERT_FILE": str(dovecot.certificate)}
                await lease_account(server.lab.database, "email", OWN, Holder("nobody", restarted=True))
                house = House(server, url, tmp_path, known, forks)
                written = [
                    await sent_under_kills(house, dovecot, number, WRITING[(at + number) % len(WRITING)], sending)
                    for number in range(ROUNDS)
                    for at, sending in enumerate(SENDING)
                ]
                arrived = Counter(str(mail["subject"]) for mail in dovecot.mails("ada"))
                copies = Counter(str(mail["subject"]) for mail in dovecot.mails("bot", "Sent"))
        finally:
            await postgres.drop(database)
    assert arrived == Counter(written)
    assert not copies - Counter(written), "a copy is filed once"


async def sent_under_kills(house: House, dovecot: Dovecot, number: int, writing: str, sending: str) -> str:
    """The text of a mail, which has been written and sent by now."""
    text = f"{number} {writing} {sending}"
    await house.write(text, writing)
    await house.connect(sending)
    if sending == "connector_sent":  # the provider has filed the copy by itself
        [mail] = [one for one in dovecot.mails("ada") if one["subject"] == text]
        deliver(dovecot, "bot", mail.as_bytes(), folder="Sent")
    await house.connect()
    state = await house.state_of(text)
    if sending == "connector_intended":
        assert state == "uncertain", "it is not sent again by itself"
        row = await house.server.lab.database.value("select outbox_id from outbox where text = $1", text)
        await house.server.lab.replies.resend(row)
        await house.connect()
        state = await house.state_of(text)
    assert state == "sent"
    return text

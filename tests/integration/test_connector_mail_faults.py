"""The connector for e-mail, with its kernel, against Dovecot: silence, full and new mailboxes."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from msgspec.structs import replace

from switchboard.connectors.email import channel
from switchboard.connectors.email.manifest import MANIFEST
from switchboard.connectors.email.settings import EmailAccountSettings
from switchboard.connectors.kernel import sending
from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.intake import Handling
from switchboard.ports.connector import Account
from switchboard.testing.connectors.running import connector, scripted
from tests.integration.test_connector_email import silent_smtp
from tests.mail_servers import MAIL, OWN, PASSWORD, Dovecot, running_dovecot
from tests.waiting import eventually

pytestmark = pytest.mark.slow

MANY: Final = 50_000
MAIL_BEGINS: Final = b"DATA\r\n"
NOW: Final = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


@pytest.fixture
def dovecot() -> Iterator[Dovecot]:
    with running_dovecot() as server:
        yield server


def configured(dovecot: Dovecot, postfix: int = 1, who: str = OWN, *, start: Any = "now", **others: Any) -> Configured:
    made = {
        "address": who,
        "user": who.partition("@")[0],
        "imap": {"host": "127.0.0.1", "port": dovecot.port, "tls": "none"},
        "smtp": {"host": "127.0.0.1", "port": postfix, "tls": "starttls"},
        "idle_s": 1,
    }
    settings = EmailAccountSettings.model_validate(made | others)
    return Configured(MANIFEST, Account("desk", settings, {"password": PASSWORD}), Handling(start=start))


async def holds(value: bool) -> bool:
    return value


def mail(name: str) -> bytes:
    return MAIL.format(name=name).encode()


@dataclass
class Proxy:
    """Before a server: connections that are open while `hush` is called carry nothing any more, and stay open."""

    port: int
    generation: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def hush(self) -> None:
        self.generation += 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        born = self.generation
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers += [writer, ours]
        await asyncio.gather(self._carry(reader, ours, born), self._carry(theirs, writer, born))

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, born: int) -> None:
        while data := await source.read(65_536):
            if born == self.generation:
                target.write(data)
        target.close()


@asynccontextmanager
async def proxied(port: int) -> AsyncIterator[tuple[Proxy, int]]:
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield proxy, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in proxy.writers:
            writer.close()


async def test_an_open_and_silent_mailbox_is_unhealthy_and_then_receives_again(dovecot: Dovecot) -> None:
    async with proxied(dovecot.port) as (proxy, port):
        account = configured(dovecot, imap={"host": "127.0.0.1", "port": port, "tls": "none"})
        short = replace(MANIFEST, capabilities=replace(MANIFEST.capabilities, receive_window_s=2.0))
        switchboard = scripted()
        async with connector(replace(account, manifest=short), switchboard):
            await eventually(lambda: holds(any(beat["state"] == "healthy" for beat in switchboard.heartbeats)))
            proxy.hush()
            before = len(switchboard.heartbeats)
            await asyncio.to_thread(dovecot.deliver, mail("m1"))
            await eventually(lambda: holds(bool(switchboard.accepted)))
            assert any(beat["state"] == "degraded" for beat in switchboard.heartbeats[before:])
            await eventually(lambda: holds(switchboard.heartbeats[-1]["state"] == "healthy"))
    assert len(switchboard.accepted) == 1


def fill(dovecot: Dovecot, count: int) -> None:
    """So many mails, which are one file."""
    box = dovecot.home / "mail/bot"
    for name in ("cur", "new", "tmp"):
        (box / name).mkdir(parents=True)
    (box / "cur/1.m.x:2,").write_bytes(mail("old"))
    for number in range(2, count + 1):
        os.link(box / "cur/1.m.x:2,", box / f"cur/{number}.m.x:2,")
    for place in (box, *box.rglob("*")):
        if place.is_dir() or place.name == "1.m.x:2,":
            shutil.chown(place, "nobody", "nogroup")


async def test_an_account_that_is_added_over_50000_mails_reads_none_of_them(dovecot: Dovecot) -> None:
    await asyncio.to_thread(fill, dovecot, MANY)
    switchboard = scripted()
    async with connector(configured(dovecot), switchboard):
        await eventually(lambda: holds(switchboard.cursor is not None), within=60)
        assert str(switchboard.cursor).partition(":")[2] == str(MANY)
        await asyncio.to_thread(dovecot.deliver, mail("new"))
        await eventually(lambda: holds(bool(switchboard.accepted)), within=60)
    assert [one["event"]["external_event_id"] for one in switchboard.accepted] == ["<new@x.example>"]
    assert switchboard.quarantined == {}


async def test_a_mailbox_made_anew_with_the_same_uids_loses_and_doubles_nothing(dovecot: Dovecot) -> None:
    account, switchboard = configured(dovecot, start="all", folder="Work"), scripted()
    dovecot.deliver(mail("m1"), mail("m2"), folder="Work")
    async with connector(account, switchboard):
        await eventually(lambda: holds(len(switchboard.accepted) == 2 and switchboard.cursor is not None))
    before = str(switchboard.cursor)
    client = dovecot.login()
    client.delete("Work")
    client.create("Work")
    client.logout()
    dovecot.deliver(mail("m3"), mail("m2"), mail("m4"), folder="Work")
    async with connector(account, switchboard):
        await eventually(lambda: holds(len(switchboard.accepted) == 4 and str(switchboard.cursor).endswith(":3")))
    found = [one["event"]["external_event_id"] for one in switchboard.accepted]
    assert found == [f"<m{number}@x.example>" for number in (1, 2, 3, 4)]
    assert switchboard.duplicates == 1
    assert str(switchboard.cursor).partition(":")[0] != before.partition(":")[0]


async def test_a_mail_a_silent_server_may_have_is_not_resent_and_others_arrive(
    dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_ANSWERED_S", 2.0)
    monkeypatch.setattr(channel, "_WRITTEN_S", 1.0)
    monkeypatch.setattr(sending, "_ANSWER_S", 0.5)
    switchboard = scripted()

    async def says(why: str) -> bool:
        beat = switchboard.heartbeats[-1]
        return beat["state"] == "degraded" and bool(re.fullmatch(f"since {NOW}: {why}", beat["error_message"]))

    async with silent_smtp(b".\r\n") as (lines, port):
        account = configured(dovecot, smtp={"host": "127.0.0.1", "port": port, "tls": "none"}, sent_copy="never")
        async with connector(account, switchboard):
            await eventually(lambda: holds(switchboard.cursor is not None))
            await asyncio.to_thread(dovecot.deliver, mail("m1"))
            await eventually(lambda: holds(len(switchboard.accepted) == 1))
            first = switchboard.reply(switchboard.accepted[0], "Fine.")
            await eventually(lambda: holds(lines.count(MAIL_BEGINS) == 1))
            await asyncio.to_thread(dovecot.deliver, mail("m2"))
            await eventually(lambda: holds(len(switchboard.accepted) == 2))
            await eventually(lambda: says("e-mail has not reported the outcome of a reply"))
            assert not switchboard.outcome(first), "meanwhile the server is still waited for"
            await eventually(lambda: holds(switchboard.outcome(first) == "uncertain"))
            await eventually(lambda: says("the SMTP server got the whole mail and did not answer"))
        async with connector(account, switchboard):  # nor does another process
            await asyncio.to_thread(dovecot.deliver, mail("m3"))
            await eventually(lambda: holds(len(switchboard.accepted) == 3))
    assert lines.count(MAIL_BEGINS) == 1

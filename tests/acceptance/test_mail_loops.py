"""Two switchboards that may answer each other by mail stop, though their processes are killed after every mail."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from switchboard.store.messages import outbox
from tests.forked import ForkedCommand
from tests.mail_servers import OWN, PASSWORD, Dovecot, running_dovecot, running_postfix, write
from tests.postgres import Postgres
from tests.processes import environment
from tests.routing import butler, rule, team_of
from tests.servers import Opened, open_server
from tests.waiting import eventually

pytestmark = pytest.mark.slow

ADA: Final = "ada@x.example"
MOST: Final = 5
"""Answers in a row, `email.max_hops`."""
CHATTY: Final = butler("chatty", reply_to_automatic=True)
TREE: Final = ((team_of(CHATTY),), (rule(CHATTY.system_id, channel="email"),))
"""Nothing else keeps them from answering each other."""


@dataclass(frozen=True)
class House:
    """A switchboard whose mailbox is connected by a process that is killed at will."""

    server: Opened
    user: str
    environment: dict[str, str]

    @contextmanager
    def connected(self) -> Iterator[None]:
        """By a process that is killed at the end."""
        command = ["switchboard", "connect", "desk"]
        with ForkedCommand(command, env=self.environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
            try:
                yield
            finally:
                one.kill()

    async def is_ready(self) -> bool:
        """Whether its connector knows from where it goes on."""
        return await self.server.lab.count("select count(*) from connector_account where cursor is not null") == 1

    async def has_declined(self) -> bool:
        """Whether it has left a mail without an answer."""
        return await self.server.lab.count("select count(*) from delivery where state = 'declined'") > 0

    async def has_settled(self) -> bool:
        """Whether no message is worked on, and no reply may still be sent."""
        worked_on = await self.server.lab.count("select count(*) from delivery where state = 'pending'")
        return worked_on + await self.server.lab.count("select count(*) from outbox where state ~ 'ing$'") == 0

    async def expire_leases(self) -> None:
        """As a worker of an installation does, every second."""
        while True:
            await outbox.expire_leases(self.server.lab.database)
            await asyncio.sleep(1.0)


@asynccontextmanager
async def house(postgres: Postgres, place: Path, address: str, dovecot: Dovecot, postfix: int) -> AsyncIterator[House]:
    """With a mailbox at these servers, and a database of its own."""
    user = address.partition("@")[0]
    channels = place / "channels.d"
    channels.mkdir(parents=True)
    (channels / "desk.toml").write_text(
        'channel = "email"\nsecrets = {password = {env = "MAIL_PASSWORD"}}\n'
        f'[settings]\naddress = "{address}"\nuser = "{user}"\nidle_s = 1\n'
        f'imap = {{host = "127.0.0.1", port = {dovecot.port}, tls = "none"}}\n'
        f'smtp = {{host = "127.0.0.1", port = {postfix}, tls = "starttls"}}\n'
    )
    database = await postgres.create()
    try:
        async with open_server(postgres.url(database), place / "data", worker=True, tree=TREE) as server:
            known = environment(place / "data", URL=server.url, CHANNELS_DIR=str(channels))
            known |= {"MAIL_PASSWORD": PASSWORD, "SSL_CERT_FILE": str(dovecot.certificate)}
            made = House(server, user, known)
            expiring = asyncio.create_task(made.expire_leases())
            yield made
            expiring.cancel()
    finally:
        await postgres.drop(database)


async def test_two_switchboards_stop_though_both_are_killed_after_every_mail(
    postgres: Postgres, tmp_path: Path
) -> None:
    with running_dovecot() as dovecot, running_postfix(dovecot) as postfix:
        async with AsyncExitStack() as stack:
            ours, theirs = [
                await stack.enter_async_context(house(postgres, tmp_path / who, who, dovecot, postfix))
                for who in (OWN, ADA)
            ]

            async def has(count: int) -> bool:
                found = [len(list((dovecot.home / "mail" / one.user).glob("[cn]*/*"))) for one in (ours, theirs)]
                return sum(found) >= count

            for answers in range(1, MOST + 1):
                with ours.connected(), theirs.connected():
                    if answers == 1:
                        await eventually(ours.is_ready, within=60)
                        await eventually(theirs.is_ready)
                        await asyncio.to_thread(write, dovecot, postfix, "first")
                    await eventually(partial(has, 1 + answers), within=60)
            with ours.connected(), theirs.connected():
                await eventually(theirs.has_declined, within=60)
                await eventually(ours.has_settled, within=60)
                await eventually(theirs.has_settled)
            assert not await ours.has_declined()
        mails = dovecot.mails(theirs.user) + dovecot.mails(ours.user)
    counted = sorted(str(one["X-Switchboard-Hops"]) for one in mails)
    assert counted == [*map(str, range(1, MOST + 1)), "None"], "one mail of a person, and five answers"

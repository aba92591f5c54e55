"""The connector for e-mail, of two switchboards that write to each other through Postfix and Dovecot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from msgspec.structs import replace

from switchboard.connectors.email.manifest import MANIFEST
from switchboard.connectors.kernel.accounts import Configured
from switchboard.testing.connectors import ScriptedSwitchboard
from switchboard.testing.connectors.running import connector, scripted
from tests.integration.test_connector_mail_faults import configured, holds
from tests.mail_servers import OWN, Dovecot, running_dovecot, running_postfix, write
from tests.waiting import eventually

pytestmark = pytest.mark.slow

STRIPPED: Final = (
    "/^(Auto-Submitted|Message-ID|In-Reply-To|References|X-Switchboard-Hops):/ IGNORE\n"
    "/^Subject:/ REPLACE Subject: away\n"
)
BRAKE_S: Final = 15.0


@pytest.fixture
def dovecot() -> Iterator[Dovecot]:
    with running_dovecot() as server:
        yield server


@pytest.fixture
def trusted(dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate of the servers is one of those that this machine trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(dovecot.certificate))


async def answer_all(switchboard: ScriptedSwitchboard, replies: list[str]) -> None:
    """A butler that answers whatever it gets."""
    while True:
        for message in switchboard.accepted[len(replies) :]:
            replies.append(switchboard.reply(message, f"answer {len(replies)}"))
        await asyncio.sleep(0.02)


@asynccontextmanager
async def answering(account: Configured) -> AsyncIterator[tuple[ScriptedSwitchboard, list[str]]]:
    switchboard, replies = scripted(), list[str]()
    async with connector(account, switchboard):
        await eventually(lambda: holds(switchboard.cursor is not None))
        butler = asyncio.create_task(answer_all(switchboard, replies))
        try:
            yield switchboard, replies
        finally:
            butler.cancel()


@pytest.mark.usefixtures("trusted")
async def test_two_switchboards_stop_though_nothing_says_that_they_are_programs(dovecot: Dovecot) -> None:
    hasty = replace(MANIFEST, capabilities=replace(MANIFEST.capabilities, brake=(4, BRAKE_S)))
    with running_postfix(dovecot, header_checks=STRIPPED) as postfix:
        ours, theirs = (replace(configured(dovecot, postfix, who), manifest=hasty) for who in (OWN, "ada@x.example"))
        async with answering(ours) as (bot, our_replies), answering(theirs) as (ada, their_replies):
            await asyncio.to_thread(write, dovecot, postfix, "first")
            await eventually(
                lambda: holds("failed" in outcomes(bot, our_replies) + outcomes(ada, their_replies)), within=90
            )
            await eventually(lambda: holds("" not in outcomes(bot, our_replies) + outcomes(ada, their_replies)))
            sent = [outcomes(*one).count("sent") for one in ((bot, our_replies), (ada, their_replies))]
    assert max(sent) == 5
    assert [one["Auto-Submitted"] for one in dovecot.mails("ada")] == [None] * sent[0]
    assert len(dovecot.mails("bot")) == 1 + sent[1]


def outcomes(switchboard: ScriptedSwitchboard, replies: list[str]) -> list[str]:
    return [switchboard.outcome(one) for one in replies]

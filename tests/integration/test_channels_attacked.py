"""Telegram and mail attacked over their real interfaces: strangers in great number, guessed codes, forged senders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from switchboard.app.access import Principal
from switchboard.connectors.email import settings as email_settings
from switchboard.connectors.email.manifest import MANIFEST as EMAIL
from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.intake import Handling
from switchboard.connectors.kernel.runner import Runner
from switchboard.connectors.telegram.manifest import MANIFEST as TELEGRAM
from switchboard.core.turns.house import NEW, START
from switchboard.journey.strangers import STRANGER_TEXT
from switchboard.ports.connector import Account, Identity
from switchboard.testing.bot_api import TOKEN, BotApi
from tests.guessing import BOT, contacts, guess
from tests.hands import settled
from tests.lab import DEFAULT_RULES, butler, team_of
from tests.mail_servers import OWN, PASSWORD, Imap, Postbox, running_pymap, running_smtp
from tests.servers import NO_TLS, Opened, open_server
from tests.waiting import eventually

POLICIES: Any = {"telegram/bot:123456": "pair", f"email/{OWN}": "listed"}
TRUSTED = {"email": {"trusted_servers": {OWN: ["mx.home.example"]}}}


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data", worker=True, policies=POLICIES, more=TRUSTED) as opened:
        yield opened


@asynccontextmanager
async def connected(server: Opened, configured: Configured, endpoint: str) -> AsyncIterator[None]:
    """The connector of an account, in this process; it has no more than the token of the account."""
    stop, channel = asyncio.Event(), configured.manifest.channel
    headers = await server.token_for(Principal("connector", "house", channel, endpoint))

    async with httpx2.AsyncClient(base_url=server.url, headers=headers, verify=NO_TLS, trust_env=False) as http:

        async def connect(_: Identity) -> httpx2.AsyncClient:
            return http

        runner = Runner(configured, connect, asyncio.get_running_loop().time)
        running = asyncio.create_task(runner.run(stop))
        try:
            yield
        finally:
            stop.set()
            assert await running == 0


def telegram(api: BotApi) -> Configured:
    settings = TELEGRAM.settings.model_validate({"api_url": api.url, "poll_s": 1})
    return Configured(TELEGRAM, Account("house", settings, {"token": TOKEN}), Handling(start="all"))


def person(number: int) -> dict[str, Any]:
    return {"id": 1000 + number, "is_bot": False, "first_name": f"Person {number}"}


async def test_200_strangers_cost_no_model_and_the_admitted_get_ordered_answers(server: Opened, api: BotApi) -> None:
    async with connected(server, telegram(api), "bot:123456"):
        for n in range(3):
            for number in range(200 if n == 0 else 1):
                api.people.say(f"message {n}", user=person(number))
        await asyncio.wait_for(api.until(lambda: not api.world.updates), 150)
        await asyncio.wait_for(api.until(lambda: len(api.sent) == 20), 150)
        strangers = await contacts(server.http, state="stranger")
        assert (len(strangers), sum(one["held"] for one in strangers)) == (200, 202)
        assert set(api.texts) == {STRANGER_TEXT}
        assert len({one["chat"]["id"] for one in api.sent}) == 20
        assert await server.lab.count("select count(*) from routing") == 0, "no model is asked"
        assert await server.lab.count("select count(*) from delivery") == 0, "and no butler"
        [first] = [one for one in strangers if one["identity"] == "1000"]
        assert (await server.http.post(f"/v1/pairing/{first['contact_id']}/approve")).json()["messages"] == 3
        await asyncio.wait_for(api.until(lambda: len(api.sent) == 23), 150)
        assert [text.split()[-1] for text in api.texts[20:]] == ["0", "1", "2"]
        assert {one["chat"]["id"] for one in api.sent[20:]} == {1000}
        await eventually(lambda: settled(server.lab))


async def test_an_owner_admits_the_group_there_and_may_begin_anew(
    database_url: str, tmp_path: Path, api: BotApi
) -> None:
    owned = (team_of(butler("echo", owners=["telegram:42"])),)
    group, mention = api.people.group(title="Family home"), [{"type": "mention", "offset": 0, "length": 10}]
    command = [{"type": "bot_command", "offset": 0, "length": 16}]
    async with (
        open_server(database_url, tmp_path, worker=True, tree=(owned, DEFAULT_RULES), policies=POLICIES) as server,
        connected(server, telegram(api), "bot:123456"),
    ):
        api.people.say("@house_bot, hello", group, user=person(1), entities=mention)
        api.people.say("/start@house_bot", group, user=person(1), entities=command)
        await asyncio.wait_for(api.until(lambda: not api.world.updates), 60)
        [contact] = await contacts(server.http, state="stranger")
        assert (contact["display_name"], contact["held"], api.sent) == ("Family home", 2, [])
        api.people.say("/start@house_bot", group, entities=command)
        await asyncio.wait_for(api.until(lambda: len(api.sent) == 3), 60)
        assert sorted(api.texts) == sorted(["@house_bot, hello", START, START])
        api.people.say("/new@house_bot", group, entities=[{**command[0], "length": 14}])
        await asyncio.wait_for(api.until(lambda: len(api.sent) == 4), 60)
        assert api.texts[3] == NEW
        await eventually(lambda: settled(server.lab))


async def test_of_many_guesses_of_the_owners_code_over_http_none_lets_anybody_in(server: Opened) -> None:
    """300 of them; `make kit` tries 10,000."""
    await guess(
        server.http, await server.token_for(Principal("connector", "house", "telegram", BOT["endpoint"])), 3, 100
    )
    assert await contacts(server.http, state="approved") == []
    assert await server.lab.count("select count(*) from delivery") == 0
    assert await server.lab.count("select count(*) from held where state = 'held'") == 60


# Mail ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def imap() -> Iterator[Imap]:
    with running_pymap() as opened:
        yield opened


@pytest.fixture
def smtp() -> Iterator[tuple[Postbox, int]]:
    with running_smtp() as opened:
        yield opened


GOOD = "mx.home.example; dmarc=pass header.from=shop.example"
ATTACKS: Mapping[str, tuple[str, ...]] = {
    "nobody says anything": (),
    "the header is by another server": ("mx.evil.example; dmarc=pass header.from=shop.example",),
    "a forged header stands above ours": ("mx.evil.example; dmarc=pass header.from=shop.example", GOOD),
    "ours says fail above a forged one in our name": ("mx.home.example; dmarc=fail header.from=shop.example", GOOD),
    "only a chain of forwarders vouches": ("mx.home.example; arc=pass header.d=shop.example; dmarc=none",),
    "a forwarder has signed": ("mx.home.example; dkim=pass header.d=lists.example; dmarc=none",),
    "it is another sender who passes": ("mx.home.example; dmarc=pass header.from=evil.example",),
    "the pass is in a comment": ("mx.home.example; dmarc=none (dmarc=pass header.from=shop.example)",),
}


def mail(name: str, results: tuple[str, ...]) -> bytes:
    """From somebody who is on the list, as far as its own words go."""
    headers = "".join(f"Authentication-Results: {one}\r\n" for one in results)
    sent = f"From: Noor <noor@shop.example>\r\nReply-To: thief@evil.example\r\nTo: {OWN}\r\nSubject: {name}\r\n"
    return f"{headers}{sent}Message-ID: <{name.replace(' ', '-')}@shop.example>\r\n\r\npay me\r\n".encode()


def desk(imap: Imap, port: int) -> Configured:
    servers = {"imap": imap.port, "smtp": port}
    wanted = {name: {"host": "127.0.0.1", "port": number, "tls": "none"} for name, number in servers.items()}
    settings = email_settings.EmailAccountSettings.model_validate(
        {"address": OWN, "user": imap.user, "idle_s": 1, **wanted}
    )
    return Configured(EMAIL, Account("desk", settings, {"password": PASSWORD}), Handling(start="all"))


async def test_a_forged_sender_on_the_list_is_held_and_nothing_is_sent(
    server: Opened, imap: Imap, smtp: tuple[Postbox, int]
) -> None:
    postbox, port = smtp
    configured = desk(imap, port)
    await server.http.post("/v1/pairing", json={"channel": "email", "endpoint": OWN, "identity": "noor@shop.example"})
    forged = [mail(name, results) for name, results in ATTACKS.items()]
    await asyncio.to_thread(imap.deliver, *forged, mail("really from Noor", (GOOD,)))
    async with connected(server, configured, OWN):
        await eventually(lambda: holds(server, 1 + len(ATTACKS)), within=60)
        await eventually(lambda: arrived(postbox), within=60)
        await eventually(lambda: settled(server.lab))
    assert [b"really from Noor" in one for one in postbox.mails] == [True]
    [unverified] = await contacts(server.http, state="stranger")
    assert (unverified["scope"], unverified["held"]) == ("unverified", len(ATTACKS))


async def test_who_takes_the_message_id_of_another_mail_swallows_nothing(
    server: Opened, imap: Imap, smtp: tuple[Postbox, int]
) -> None:
    """Although both are waiting in the mailbox when the connector comes, the forged one first."""
    postbox, port = smtp
    await server.http.post("/v1/pairing", json={"channel": "email", "endpoint": OWN, "identity": "noor@shop.example"})
    real = mail("order", (GOOD,))
    forged = real.replace(b"noor@shop.example", b"eve@evil.example").replace(b"pay me", b"ignore the other")
    await asyncio.to_thread(imap.deliver, forged, real)
    async with connected(server, desk(imap, port), OWN):
        await eventually(lambda: holds(server, 2), within=30)
        await eventually(lambda: arrived(postbox), within=30)
        await eventually(lambda: settled(server.lab))
    assert [b"pay me" in one for one in postbox.mails] == [True]


async def holds(server: Opened, messages: int) -> bool:
    """Whether so many mails are stored."""
    return await server.lab.count("select count(*) from message_inbox where channel = 'email'") == messages


async def arrived(postbox: Postbox) -> bool:
    """Whether anything was sent."""
    return bool(postbox.mails)

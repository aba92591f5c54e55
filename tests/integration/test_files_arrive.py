"""Files from platforms to the database and on to butlers: real connectors in this process, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import policy
from email.message import EmailMessage
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest

from switchboard.app.access import Principal
from switchboard.connectors.email.manifest import MANIFEST as EMAIL
from switchboard.connectors.email.settings import EmailAccountSettings
from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.intake import Handling
from switchboard.connectors.kernel.runner import Runner
from switchboard.connectors.telegram.manifest import MANIFEST as TELEGRAM
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Account, Identity
from switchboard.testing.bot_api import TOKEN, BotApi
from switchboard.transport.mail_servers.server import Server
from tests.mail_servers import OWN, PASSWORD, running_dovecot
from tests.servers import AGENT, NO_TLS, Opened, open_server
from tests.waiting import eventually

BOT = "bot:123456"
PNG = b"\x89PNG\r\n\x1a\n" + Random(1).randbytes(300_000)
OGG = b"OggS" + Random(2).randbytes(20_000)
PDF = b"%PDF-1.7\n" + Random(3).randbytes(700_000)
OCTETS = "application/octet-stream"
TOO_LARGE = 20 * 1024 * 1024 + 1
LIMITS = {"blobs": {"endpoint_bytes_per_day": 400_000}}


@asynccontextmanager
async def serving(configured: Configured, server: Opened) -> AsyncIterator[None]:
    """The connector of an account runs meanwhile."""
    channel, stop = configured.manifest.channel, asyncio.Event()
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS) as http:

        async def connect(identity: Identity) -> httpx2.AsyncClient:
            http.headers.update(await server.token_for(Principal("connector", "c", channel, identity.endpoint)))
            return http

        task = asyncio.create_task(Runner(configured, connect, asyncio.get_running_loop().time).run(stop))
        try:
            yield
        finally:
            stop.set()
            await task


def bot(api: BotApi, **handling: Any) -> Configured:
    settings = TELEGRAM.settings.model_validate({"api_url": api.url, "poll_s": 1})
    account = Account("house", settings, {"token": TOKEN})
    return Configured(TELEGRAM, account, Handling.model_validate({"start": "all", **handling}))


async def messages(server: Opened, count: int) -> list[JsonObject]:
    """So many of them, the oldest first, once they are there."""

    async def there() -> bool:
        return bool(await server.lab.count("select count(*) from message_inbox") >= count)

    await eventually(there, within=60)
    page = (await server.http.get("/v1/messages", params={"limit": 500})).json()["messages"]
    found = [(await server.http.get(f"/v1/messages/{one['request_id']}")).json() for one in reversed(page)]
    assert len(found) == count
    return found


def files_of(message: JsonObject) -> list[JsonObject]:
    found: list[JsonObject] = message["envelope"]["payload"]["attachments"]
    return found


async def content(server: Opened, attachment: JsonObject, **headers: str) -> bytes:
    path = f"/v1/blobs/{attachment['storage_ref'].removeprefix('blob:')}"
    return (await server.http.get(path, headers=headers)).content


async def test_what_people_send_to_a_bot_reaches_its_butler_as_it_was(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path / "data") as server, BotApi() as api:
        api.people.photo(PNG)
        api.people.voice(OGG)
        api.people.document(PDF, "letter.pdf", "text/html")
        api.people.document(bytes(TOO_LARGE), "film.mp4", "video/mp4")
        api.people.album([PNG, OGG, PDF])
        async with serving(bot(api), server):
            photo, voice, document, film, album = await messages(server, 5)
        butler = await server.token_for(AGENT)
        for message, data, kind in (
            (photo, PNG, "image/png"),
            (voice, OGG, "audio/ogg"),
            (document, PDF, "application/pdf"),
        ):
            [attachment] = files_of(message)
            assert (attachment["media_type"], attachment["size_bytes"]) == (kind, len(data))
            assert await content(server, attachment, **butler) == data
        [attachment] = files_of(film)
        assert f"it has {TOO_LARGE} bytes" in attachment["unavailable"]
        assert [await content(server, one) for one in files_of(album)] == [PNG, OGG, PDF]
        assert sum(call.method == "getFile" for call in api.calls) == 6, "the large one was not asked for"
        assert await server.lab.count("select count(*) from blob") == 3


async def test_who_is_let_in_gets_files_through_and_strangers_fill_no_disk(database_url: str, tmp_path: Path) -> None:
    policies: Any = {f"telegram/{BOT}": "pair"}
    async with open_server(database_url, tmp_path / "data", policies=policies) as server, BotApi() as api:
        api.people.photo(PNG)
        async with serving(bot(api), server):
            [held] = await messages(server, 1)
            assert "not been approved" in files_of(held)[0]["unavailable"]
            [contact] = (await server.http.get("/v1/pairing")).json()["contacts"]
            await server.http.post(f"/v1/pairing/{contact['contact_id']}/approve", json={})
            api.people.photo(PNG)
            _, second = await messages(server, 2)
        assert await content(server, files_of(second)[0]) == PNG
        assert sum(call.method == "getFile" for call in api.calls) == 1


async def test_a_quota_refuses_the_file_and_never_the_message(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path / "data", more=LIMITS) as server, BotApi() as api:
        api.people.photo(PNG)
        async with serving(bot(api), server):
            await messages(server, 1)
            api.people.photo(PNG[:200_000])
            first, second = await messages(server, 2)
        assert files_of(first)[0]["storage_ref"]
        assert "at most" in files_of(second)[0]["unavailable"]
        assert second["state"] != "held"


async def test_a_mail_as_bytes_brings_its_files_but_not_those_of_strangers(database_url: str, tmp_path: Path) -> None:
    mail = EmailMessage(policy=policy.SMTP)
    mail["From"], mail["Subject"] = "ada@x.example", "plans"
    mail.set_content("see the plans")
    for data, name in ((PDF[:100_000], "a.pdf"), (b"", "empty.bin"), (PDF[:100_000], "again.pdf")):
        mail.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    policies: Any = {"email/closed@home.example": "listed"}
    async with open_server(database_url, tmp_path / "data", policies=policies) as server:
        for endpoint in ("open@home.example", "closed@home.example", "open@home.example"):
            query, kind = {"endpoint": endpoint}, {"content-type": "message/rfc822"}
            answer = await server.http.post("/v1/ingest", content=mail.as_bytes(), params=query, headers=kind)
            assert answer.status_code == 202, answer.text
        first, held = await messages(server, 2)
        assert [one["media_type"] for one in files_of(first)] == ["application/pdf", OCTETS, "application/pdf"]
        assert [await content(server, one) for one in files_of(first)] == [PDF[:100_000], b"", PDF[:100_000]]
        assert ["not been approved" in one["unavailable"] for one in files_of(held)] == [True] * 3
        assert await server.lab.count("select count(*) from blob") == 2


@pytest.mark.slow
async def test_a_mail_of_25_mb_arrives_with_its_attachment(database_url: str, tmp_path: Path) -> None:
    data = Random(4).randbytes(18_200_000)
    mail = EmailMessage(policy=policy.SMTP)
    mail["From"], mail["To"], mail["Message-ID"], mail["Subject"] = "ada@x.example", OWN, "<m1@x.example>", "plans"
    mail.set_content("see the plans")
    mail.add_attachment(data, maintype="application", subtype="zip", filename="plans.zip")
    raw = mail.as_bytes()
    assert 24_900_000 < len(raw) < 25_000_000
    with running_dovecot() as dovecot:
        await asyncio.to_thread(dovecot.deliver, raw)
        settings = EmailAccountSettings(
            address=OWN,
            user=dovecot.user,
            imap=Server(host="127.0.0.1", port=dovecot.port, tls="none"),
            smtp=Server(host="127.0.0.1", port=1, tls="none"),
        )
        configured = Configured(EMAIL, Account("desk", settings, {"password": PASSWORD}), Handling(start="all"))
        async with open_server(database_url, tmp_path / "data") as server:
            async with serving(configured, server):
                [message] = await messages(server, 1)
            [attachment] = files_of(message)
            assert (attachment["filename"], attachment["size_bytes"]) == ("plans.zip", len(data))
            assert await content(server, attachment) == data

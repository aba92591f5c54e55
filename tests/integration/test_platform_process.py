"""The servers of platforms as processes, as somebody starts them who has a bot in another language."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from switchboard.testing.bot_api import TOKEN as BOT_API_TOKEN
from switchboard.testing.discord import TOKEN
from switchboard.testing.loopback import bound
from switchboard.testing.slack import BOT_TOKEN
from switchboard.testing.whatsapp import APP_SECRET
from switchboard.testing.whatsapp import TOKEN as GRAPH_TOKEN


@asynccontextmanager
async def started(program: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that is ended, if it has not ended by itself."""
    command = (sys.executable, "-m", f"switchboard.testing.{program}", *arguments)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    yield process
    if process.returncode is None:
        process.terminate()
    assert await process.wait() in (0, 2)


async def test_what_is_said_to_slack_is_answered_by_the_app() -> None:
    async with started("slack") as process, httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        assert process.stdout is not None
        told = (await process.stdout.readline()).decode()
        assert BOT_TOKEN in told
        api = told.split("at ")[1].split(",")[0]
        waiting = asyncio.create_task(client.post(f"{api.removesuffix('api/')}say", content="hello"))
        headers = {"Authorization": f"Bearer {BOT_TOKEN}"}
        posted = False
        while not posted:  # until the person has written, there is no direct chat to answer in
            found = await client.get(f"{api}users.conversations?types=im", headers=headers)
            for chat in found.json()["channels"]:
                message = {"channel": chat["id"], "text": "hi"}
                posted = (await client.post(f"{api}chat.postMessage", data=message, headers=headers)).is_success
        assert (await waiting).text == "hi\n"


async def test_several_people_write_to_one_bot_and_its_limits_hold() -> None:
    async with started("bot_api", "--limits") as process, httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        assert process.stdout is not None
        base = (await process.stdout.readline()).decode().split("at ")[1].split(",")[0]
        for person in (7, 8):
            said = await client.post(f"{base}/say/{person}?wait=0", content=f"hello from {person}")
            assert (said.status_code, said.text) == (202, "")
        updates = (await client.get(f"{base}/bot{BOT_API_TOKEN}/getUpdates")).json()["result"]
        chats = [one["message"]["chat"]["id"] for one in updates]
        assert len(set(chats)) == 2
        answers = [
            {"chat_id": chat, "text": text} for chat, text in zip((*chats, chats[0]), ("a", "b", "c"), strict=True)
        ]
        posted = [await client.post(f"{base}/bot{BOT_API_TOKEN}/sendMessage", json=one) for one in answers]
        assert [one.status_code for one in posted] == [200, 200, 429]
        assert (await client.get(f"{base}/say")).json() == ["a", "b"]


@pytest.mark.parametrize("program", ["slack", "discord", "bot_api", "whatsapp"])
async def test_a_port_that_is_taken_is_named(program: str) -> None:
    taken = bound(0)
    taken.listen()
    async with started(program, "--port", str(taken.getsockname()[1])) as process:
        _, told = await process.communicate()
        assert "choose another port" in told.decode()
    taken.close()


async def test_discord_tells_its_address_and_token() -> None:
    async with started("discord") as process, httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        assert process.stdout is not None
        told = (await process.stdout.readline()).decode()
        api = told.split("at ")[1].split(",")[0]
        found = await client.get(f"{api}/users/@me", headers={"Authorization": f"Bot {TOKEN}"})
        assert (TOKEN in told, found.json()["username"]) == (True, "house")


async def test_whatsapp_tells_its_address_number_token_and_secret() -> None:
    async with started("whatsapp") as process, httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        assert process.stdout is not None
        told = (await process.stdout.readline()).decode()
        url, number = told.split("at ")[1].split(", number ")
        path = f"{url}/v25.0/{number.split(',')[0]}"
        found = await client.get(path, headers={"Authorization": f"Bearer {GRAPH_TOKEN}"})
        assert found.json()["verified_name"] == "House"
        assert all(one in told for one in (GRAPH_TOKEN, APP_SECRET))

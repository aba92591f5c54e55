"""A bot whose updates Telegram posts to the server: kept before they are confirmed, and read as those of polls are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from switchboard.app.connectors import hook_accounts, hooks, posted
from switchboard.app.ownership import read_ours
from switchboard.app.settings import Settings
from switchboard.cli.channels.account import connect_account
from switchboard.connectors.kernel.accounts import read_account
from switchboard.connectors.telegram import channel
from switchboard.connectors.telegram.posted import secret_word
from switchboard.store.connectors import posted as store
from switchboard.store.database import query
from switchboard.testing.bot_api import TOKEN, BotApi
from tests.bot_api import bot_of
from tests.servers import Opened, open_server
from tests.waiting import eventually

HEADER = "X-Telegram-Bot-Api-Secret-Token"


@pytest.fixture
async def server(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opened]:
    monkeypatch.setattr(hook_accounts, "_FRESH_S", 0.0)
    more = {"channels_dir": tmp_path / "channels.d"}
    async with open_server(database_url, tmp_path / "data", worker=True, more=more) as opened:
        monkeypatch.setenv("SWITCHBOARD_URL", opened.url)
        yield opened


class Bot:
    """An account that is connected, and disconnected, in one way or the other."""

    def __init__(self, server: Opened, api: BotApi, place: Path) -> None:
        self._server, self._api = server, api
        self._settings = Settings(data_dir=place / "data", channels_dir=place / "channels.d")
        self._file = self._settings.channels_dir / "house.toml"
        self._file.parent.mkdir()
        secret = self._file.with_name("house.token")
        secret.touch(mode=0o600)
        secret.write_text(TOKEN)

    def says(self, *, webhook: bool) -> None:
        """Write the file of the account."""
        settings = f'{{api_url = "{self._api.url}", poll_s = 1, webhook = {str(webhook).lower()}}}'
        self._file.write_text(
            f'channel = "telegram"\nsettings = {settings}\nsecrets.token.file = "house.token"\n'
            'handling = {start = "all"}\n'
        )

    @asynccontextmanager
    async def connected(self, *, webhook: bool) -> AsyncIterator[None]:
        self.says(webhook=webhook)
        stop = asyncio.Event()
        account = read_account(self._file, read_ours, self._server.url)
        serving = asyncio.create_task(connect_account(self._settings, account, stop))
        try:
            yield
        finally:
            stop.set()
            assert await serving == 0


@pytest.fixture
def bot(server: Opened, api: BotApi, tmp_path: Path) -> Bot:
    return Bot(server, api, tmp_path)


async def until(api: BotApi, holds: Callable[[], bool]) -> None:
    await asyncio.wait_for(api.until(holds), 20)


async def state_of(server: Opened) -> tuple[str, str]:
    [one] = (await server.http.get("/v1/connectors")).json()["connectors"]
    return one["state"], one["error_message"] or ""


async def messages(server: Opened) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = (await server.http.get("/v1/messages")).json()["messages"]
    return found


async def test_from_polling_to_a_webhook_and_back_nothing_is_lost_or_doubled(
    server: Opened, api: BotApi, bot: Bot
) -> None:
    async with bot.connected(webhook=False):
        api.people.say("polled")
        await until(api, lambda: api.texts == ["polled"])
    api.people.say("between")
    async with bot.connected(webhook=True):
        await until(api, lambda: api.webhook is not None)
        assert not api.polling
        api.people.say("posted")
        await until(api, lambda: api.texts == ["polled", "between", "posted"])
    api.people.say("nobody is there")
    await until(api, lambda: not api.world.updates)
    async with bot.connected(webhook=False):
        api.people.say("polled again")
        await until(api, lambda: len(api.texts) == 5)
        assert api.webhook is None
    assert api.texts == ["polled", "between", "posted", "nobody is there", "polled again"]
    assert not any(call.params.given.get("drop_pending_updates") for call in api.calls)
    found = await messages(server)
    keys = [
        (await server.http.get(f"/v1/messages/{one['request_id']}/raw")).json()["event"]["external_event_id"]
        for one in reversed(found)
    ]
    assert len(set(keys)) == 5, "all of one form, whatever way they came"
    assert {key.count(":") for key in keys} == {keys[0].count(":")}


async def test_an_update_that_came_both_ways_is_one_message(server: Opened, api: BotApi, bot: Bot) -> None:
    bot.says(webhook=True)
    api.people.say("twice")
    [update] = list(api.world.updates)
    async with httpx2.AsyncClient(headers={HEADER: secret_word(TOKEN)}) as telegram:
        for _ in range(2):
            answer = await telegram.post(f"{server.url}/hooks/house", json=update)
            assert (answer.status_code, answer.json()["status"]) == (200, "kept")
    async with bot.connected(webhook=False):
        api.people.say("then")
        await until(api, lambda: len(api.texts) == 2)
    assert api.texts == ["twice", "then"]
    assert len(await messages(server)) == 2
    assert await server.lab.database.value("select count(*) from posted_event") == 0


async def test_a_post_during_webhook_removal_does_not_wait_for_the_next_session(
    server: Opened, api: BotApi, bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database is slow, it is stored after the session that polls has looked for what was posted."""
    monkeypatch.setattr(hooks, "ANSWER_S", 60.0)
    bot.says(webhook=True)
    api.people.say("posted late")
    [update] = list(api.world.updates)
    api.world.confirmed([update["update_id"]])
    async with httpx2.AsyncClient(headers={HEADER: secret_word(TOKEN)}) as telegram, AsyncExitStack() as slow:
        held = await slow.enter_async_context(server.lab.database.transaction())
        await held.run(query("posted.lock"), "telegram", f"bot:{TOKEN.partition(':')[0]}")
        posting = asyncio.create_task(telegram.post(f"{server.url}/hooks/house", json=update))
        await eventually(lambda: _waiting(server, 1))
        async with bot.connected(webhook=False):
            await until(api, lambda: api.polling)
            await slow.aclose()
            assert (await posting).json()["status"] == "kept"
            api.people.say("polled")
            await until(api, lambda: sorted(api.texts) == ["polled", "posted late"])
            await eventually(lambda: _settled(server))


async def _waiting(server: Opened, sessions: int) -> bool:
    blocked = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    return await server.lab.count(blocked) == sessions


async def _settled(server: Opened) -> bool:
    return await server.lab.count("select count(*) from posted_event") == 0


async def test_an_album_that_is_posted_is_one_message(server: Opened, api: BotApi, bot: Bot) -> None:
    async with bot.connected(webhook=True):
        await until(api, lambda: api.webhook is not None)
        api.people.album([b"\xff\xd8\xff1", b"\xff\xd8\xff2", b"\xff\xd8\xff3"], "from the garden")
        await until(api, lambda: len(api.texts) == 1)
    [one] = await messages(server)
    raw = (await server.http.get(f"/v1/messages/{one['request_id']}/raw")).json()
    assert len(raw["payload"]["attachments"]) == 3


async def test_only_telegram_may_post_and_only_to_a_bot_that_says_so(server: Opened, api: BotApi, bot: Bot) -> None:
    api.people.say("forged")
    [update] = api.world.updates
    bot.says(webhook=True)
    async with httpx2.AsyncClient() as anybody:
        for headers in ({}, {HEADER: ""}, {HEADER: "0" * 64}, {HEADER: TOKEN}):
            refused = await anybody.post(f"{server.url}/hooks/house", json=update, headers=headers)
            assert refused.status_code == 401
        bot.says(webhook=False)
        right = {HEADER: secret_word(TOKEN)}
        assert (await anybody.post(f"{server.url}/hooks/house", json=update, headers=right)).status_code == 404
    assert await server.lab.database.value("select count(*) from posted_event") == 0


async def test_what_does_not_fit_any_more_stays_with_telegram_until_it_does(
    api: BotApi, bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bot.connected(webhook=True):
        await until(api, lambda: api.webhook is not None)
    monkeypatch.setattr(posted, "MOST_WAITING", 1)
    api.people.say("first")
    api.people.say("second")
    await until(api, lambda: api.refused is not None)
    assert api.refused is not None
    assert api.refused[1] == "Wrong response from the webhook: 503 Service Unavailable"
    async with bot.connected(webhook=True):
        await until(api, lambda: api.texts == ["first", "second"])


async def test_a_webhook_of_somebody_else_is_named_and_left_alone(server: Opened, api: BotApi, bot: Bot) -> None:
    async with bot_of(api) as other:
        await other("setWebhook", url="https://other.example/hooks/bot-of-mine")
    async with bot.connected(webhook=True):

        async def is_told() -> bool:
            state, why = await state_of(server)
            return state == "degraded" and "a webhook is set for this bot, at other.example" in why

        await eventually(lambda: _reported(server))
        await eventually(is_told)
    assert api.webhook is not None
    assert api.webhook.url == "https://other.example/hooks/bot-of-mine"


async def test_a_webhook_that_telegram_does_not_reach_is_told(
    server: Opened, api: BotApi, bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posted, "MOST_WAITING", 0)
    monkeypatch.setattr(channel, "_POSTED_S", 0.2)
    monkeypatch.setattr(channel, "_LOOK_AT_WEBHOOK_S", 0.2)
    api.people.say("hello")
    async with bot.connected(webhook=True):

        async def is_told() -> bool:
            state, why = await state_of(server)
            return state == "degraded" and f"Telegram does not reach {server.url}/hooks/house: Wrong" in why

        await eventually(lambda: _reported(server))
        await eventually(is_told)
        monkeypatch.setattr(posted, "MOST_WAITING", 10)
        await until(api, lambda: api.texts == ["hello"])

        async def is_well() -> bool:
            return (await state_of(server))[0] == "healthy"

        await eventually(is_well)


async def _reported(server: Opened) -> bool:
    return bool((await server.http.get("/v1/connectors")).json()["connectors"])


async def test_what_is_posted_at_once_keeps_to_the_limit(server: Opened) -> None:
    database = server.lab.database
    async with database.transaction() as held:
        await held.run(query("posted.lock"), "telegram", "bot:house")
        posting = [asyncio.create_task(store.put(database, "telegram", "bot:house", b"{}", most=2)) for _ in range(6)]
        await eventually(lambda: _waiting(server, 6))
    assert (await asyncio.gather(*posting)).count(None) == 4
    assert await server.lab.count("select count(*) from posted_event") == 2

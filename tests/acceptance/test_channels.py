"""Accounts come, change and go while `switchboard up` runs: from an empty directory to an answer in Telegram."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from switchboard.testing.bot_api import TOKEN, BotApi
from switchboard.testing.scripted_llm import Call, Reply, ScriptedLlm
from tests.processes import environment, running, switchboard, told
from tests.waiting import eventually

pytestmark = pytest.mark.slow
OTHER = "777:OTHER-TOKEN"
READ = Reply(calls=(Call("read_file", {"path": "nothing.txt"}),))
BEN: dict[str, Any] = {"id": 41, "is_bot": False, "first_name": "Ben"}


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi() as opened:
        yield opened


class House:
    """An installation whose settings `init` wrote, and its command line."""

    def __init__(self, place: Path, api: BotApi) -> None:
        self.place = place / "house"
        self.env = environment(self.place / "data", CHANNELS_DIR=str(self.place / "channels.d"))
        self.api = api

    async def run(self, *arguments: str, given: str | None = None, code: int = 0) -> dict[str, Any]:
        """What a command says with --json."""
        return await asyncio.to_thread(lambda: told(self.env, *arguments, given=given, code=code))

    async def add(self, token: str = TOKEN, name: str = "house", code: int = 0, **more: str) -> dict[str, Any]:
        """`channels add telegram`, the token on stdin."""
        options = ("--set", f"api_url={self.api.url}", "--set", "poll_s=1", "--secret-file", "-")
        others = [part for name, value in more.items() for part in (f"--{name}", value)]
        return await self.run("channels", "add", "telegram", name, *options, *others, given=token, code=code)

    async def account(self, name: str = "house") -> dict[str, Any]:
        """How an account is."""
        [found] = [one for one in (await self.run("channels", "list"))["channels"] if one["name"] == name]
        return dict(found)

    async def is_in(self, state: str) -> bool:
        """Whether the account is in that state."""
        return bool((await self.account())["state"] == state)

    def secret(self, token: str) -> None:
        """Another token in place of the one that is kept."""
        new = self.place / "channels.d/new"
        new.touch(mode=0o600)
        new.write_text(token)
        new.replace(self.place / "channels.d/house.token")


@pytest.fixture
async def house(place: Path, api: BotApi, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    """Set up by `init` and started by `up`, both with nothing connected; `connectors` is the parameter, if any."""
    made = House(place, api)
    made.env["SWITCHBOARD_CONNECTORS"] = getattr(request, "param", "apart")
    async with started(made, "--model", "none"):
        yield made


@asynccontextmanager
async def started(made: House, *options: str) -> AsyncIterator[House]:
    """Set up by `init` with these options, and started by `up`."""
    done = await asyncio.to_thread(switchboard, made.env, "init", made.place, "--yes", *options)
    assert done.returncode == 0, done.stderr
    starting = running(made.env, "up", cwd=made.place)
    up = await asyncio.to_thread(starting.__enter__)
    made.env = dict(up.environment)
    try:
        yield made
    finally:
        await asyncio.to_thread(starting.__exit__, None, None, None)
        assert up.process.returncode == 0


async def test_from_nothing_to_the_first_answer(house: House, api: BotApi) -> None:
    added = await house.add()
    assert (added["endpoint"], added["strangers"]) == ("bot:123456", "pair")
    await asyncio.wait_for(api.until(lambda: api.polling), 60)
    api.people.say("Please note that I was here", user=BEN, chat=None)
    await asyncio.wait_for(api.until(lambda: any("operator must approve" in text for text in api.texts)), 60)
    told_before = len(api.texts)
    api.people.say(f"/start {added['pairing']['code']}", user=BEN)
    await asyncio.wait_for(api.until(lambda: len(api.texts) > told_before + 1), 60)
    await eventually(lambda: house.is_in("healthy"), within=60)
    assert {text.partition(":")[0].partition(". ")[0] for text in api.texts[told_before:]} == {
        "Filed",
        "You may write here now",
    }
    assert 'switchboard_connector_healthy{channel="telegram",endpoint="bot:123456"} 1.0' in await metrics(house)
    secret = house.place / "channels.d/house.token"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert TOKEN not in (house.place / "channels.d/house.toml").read_text()


async def test_who_sends_a_code_for_owners_has_the_butler_use_its_tools(place: Path, api: BotApi) -> None:
    ann = {**BEN, "id": 42, "first_name": "Ann"}
    async with (
        ScriptedLlm(lambda request: Reply("Hello.") if request.results else READ) as llm,
        started(House(place, api), "--url", f"{llm.url}/v1", "--model", "m", "--no-test") as house,
    ):
        refused = await house.add(owner="buttler", code=2)
        assert "did you mean butler?" in refused["error"]["message"]
        added = await house.add(owner="butler")
        assert added["pairing"]["owner_of"] == "System1/butler"
        await asyncio.wait_for(api.until(lambda: api.polling), 60)
        api.people.say(f"/start {added['pairing']['code']}", user=BEN)
        plain = await house.run("pairing", "code", "telegram/bot:123456")
        api.people.say(f"/start {plain['code']}", user=ann)
        await asyncio.wait_for(api.until(lambda: len(api.texts) == 2), 60)
        assert "you are an owner of butler" in api.texts[0]
        assert "Tools" in api.texts[1]
        api.people.say("Who are you?", user=BEN)
        await asyncio.wait_for(api.until(lambda: len(api.texts) == 3), 60)
        api.people.say("Who are you?", user=ann)
        await asyncio.wait_for(api.until(lambda: len(api.texts) == 4), 60)
        owners, others = [set(request.tools) for request in llm.requests if not request.results]
        assert {"read_file", "web_fetch"} <= owners
        assert others == {"remember", "memory_search", "history_search", "module_tools"}
        assert [one["owner_of"] for one in (await house.run("pairing", "list"))["contacts"]] == [[], ["System1/butler"]]
        for message in (await house.run("messages", "list", "--state", "answered"))["messages"]:
            [delivery] = (await house.run("explain", message["request_id"]))["deliveries"]
            by_owner = message["sender"] == "41"
            said = "nothing.txt: does not exist" if by_owner else None
            [call] = delivery["refused"]
            assert (call["path"], call["tool"], call["said"]) == ("request:1", "read_file", said)
            assert delivery["offered"]["by_owner"] == by_owner
            shown = (await asyncio.to_thread(switchboard, house.env, "explain", message["request_id"])).stdout
            assert f"✗ call in request:1  read_file  {said or 'not made: this turn has no such tool'}" in shown
            assert ("its sender is no owner of System1/butler" in shown) != by_owner


async def metrics(house: House) -> str:
    """What Prometheus would read."""
    token = (house.place / "data/operator.token").read_text().strip()
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=house.env["SWITCHBOARD_URL"], headers=headers, trust_env=False) as http:
        return (await http.get("/metrics")).text


async def test_nothing_is_written_unless_the_platform_accepts_the_secret(house: House, api: BotApi) -> None:
    refused = await house.add(OTHER, code=1)
    assert "does not accept the token" in refused["error"]["message"]
    assert not (house.place / "channels.d").exists()
    await house.add()
    assert (await house.add(name="second", code=1))["error"]["code"] == "conflict"
    api.tokens.add(OTHER)
    assert (await house.add(OTHER, code=1))["error"]["code"] == "conflict"
    assert sorted(one.name for one in (house.place / "channels.d").iterdir()) == ["house.token", "house.toml"]


async def test_a_revoked_rotated_or_foreign_token_is_a_named_state(house: House, api: BotApi) -> None:
    await house.add()
    await eventually(lambda: house.is_in("healthy"), within=60)
    api.tokens.clear()
    await eventually(lambda: house.is_in("failed"), within=60)
    assert "token" in (await house.account())["error"]
    rotated = "123456:ROTATED"
    api.tokens.add(rotated)
    house.secret(rotated)
    await eventually(lambda: house.is_in("healthy"), within=60)
    me = dict(api.world.bot)
    api.world.bot = {**me, "id": 777}
    house.secret(OTHER)
    api.tokens.add(OTHER)
    await eventually(lambda: house.is_in("failed"), within=60)
    assert "the secret belongs to bot:777, and not to bot:123456" in (await house.account())["error"]
    api.world.bot = me
    house.secret(rotated)
    await eventually(lambda: house.is_in("healthy"), within=60)
    house.secret("")
    await eventually(lambda: house.is_in("invalid"), within=60)
    [finding] = [one for one in (await house.run("doctor", code=1))["findings"] if one["name"] == "account"]
    assert "secrets.token is empty" in finding["detail"]
    await asyncio.wait_for(api.until(lambda: api.polling), 60)  # the old one runs on
    assert "; until that is fixed, the account runs on as it was" in (await house.account())["error"]
    file = house.place / "channels.d/house.toml"
    right = file.read_text()
    file.write_text("channel = ")
    broken = await house.account()
    assert (broken["state"], broken["channel"], broken["account"]) == ("invalid", "telegram", "telegram/bot:123456")
    assert "is not TOML" in broken["error"]
    assert "runs on as it was" in broken["error"]
    file.write_text(right)
    house.secret(rotated)
    await eventually(lambda: house.is_in("healthy"), within=60)


async def test_who_may_write_changes_while_it_runs(house: House, api: BotApi) -> None:
    await house.add()
    await asyncio.wait_for(api.until(lambda: api.polling), 60)
    api.people.say("hello", user=BEN)
    await asyncio.wait_for(api.until(lambda: len(api.texts) == 1), 60)
    file = house.place / "channels.d/house.toml"
    file.write_text(file.read_text().replace('strangers = "pair"', 'strangers = "open"'))
    await eventually(lambda: is_open(house), within=60)
    api.people.say("Note this", user={**BEN, "id": 42})
    await asyncio.wait_for(api.until(lambda: len(api.texts) == 2), 60)
    assert "Note this" in api.texts[1]


async def is_open(house: House) -> bool:
    """Whether the server knows that everyone may write."""
    return bool((await house.run("pairing", "code", "telegram/bot:123456"))["strangers"] == "open")


@pytest.mark.parametrize("house", ["apart", "inside"], indirect=True)
async def test_paused_resumed_and_removed_without_a_restart(house: House, api: BotApi) -> None:
    added = await house.add()
    await asyncio.wait_for(api.until(lambda: api.polling), 60)
    await house.run("channels", "pause", "house")
    assert (await house.account())["state"] == "paused"
    await asyncio.wait_for(api.until(lambda: not api.polling), 60)
    api.people.say(f"/start {added['pairing']['code']}", user=BEN)
    await house.run("channels", "resume", "house")
    await asyncio.wait_for(api.until(lambda: api.polling), 60)
    contacts = (await house.run("pairing", "list", "--state", "approved"))["contacts"]
    assert [one["identity"] for one in contacts] == ["41"]
    await house.run("channels", "remove", "house", "--yes")
    assert (await house.run("channels", "list"))["channels"] == []
    assert list((house.place / "channels.d").iterdir()) == []
    house.secret(TOKEN)
    account = f'channel = "telegram"\nsettings.api_url = "{api.url}"\nsecrets.token.file = "house.token"\n'
    (house.place / "channels.d/-other.toml").write_text(account)
    await asyncio.wait_for(api.until(lambda: api.polling), 60)

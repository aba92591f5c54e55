"""The strict Discord server: what it gives, refuses, and does wrong on purpose; also as foreign clients see it."""

from __future__ import annotations

import asyncio
import json
import warnings
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
import pytest
import websockets
import yarl

from switchboard.domain.json_values import JsonObject
from switchboard.testing.discord import (
    ANN,
    ARCHIVED_THREAD,
    BOT,
    CLOSED_TO_BOT,
    FORUM,
    GUILD,
    HEARTBEAT_S,
    MISSING_PERMISSIONS,
    ROLE,
    TOKEN,
    VOICE,
    Cut,
    DiscordServer,
    Hang,
    MovableClock,
    Page,
    too_many_requests,
)
from switchboard.testing.discord.world import about_guild

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # discord.py imports audioop, which Python 3.13 has not
    import discord as discord_py
    import hikari

INTENTS: Final = 1 << 0 | 1 << 9 | 1 << 10 | 1 << 12 | 1 << 13 | 1 << 15
WITHOUT_CONTENT: Final = INTENTS & ~(1 << 15)
POST: Final = "POST /channels/{channel}/messages"
NOBODY: Final = {"parse": [], "replied_user": False}


class Gateway:
    """A socket of a bot that does nothing by itself."""

    def __init__(self, frames: websockets.ClientConnection, inflate: Callable[[bytes], bytes] | None) -> None:
        self.frames, self._inflate = frames, inflate

    async def send(self, op: int, data: object) -> None:
        await self.frames.send(json.dumps({"op": op, "d": data}))

    async def read(self) -> JsonObject:
        data = await self.frames.recv()
        if isinstance(data, bytes):
            assert self._inflate is not None
            data = self._inflate(data).decode()
        found: JsonObject = json.loads(data)
        return found

    async def event(self, name: str) -> JsonObject:
        """The data of the next event, which is one of these."""
        found = await self.read()
        assert found["t"] == name, found
        data: JsonObject = found["d"]
        return data

    async def identify(self, intents: int = INTENTS, token: str = TOKEN) -> JsonObject:
        """The data of READY; GUILD_CREATE has been read, too."""
        await self.send(2, {"token": token, "intents": intents, "properties": {}})
        ready = await self.event("READY")
        await self.event("GUILD_CREATE")
        return ready

    async def resume(self, session: str, number: int) -> None:
        await self.send(6, {"token": TOKEN, "session_id": session, "seq": number})

    async def closed(self) -> int | None:
        """The code with which the server closes the socket."""
        await self.frames.wait_closed()
        return self.frames.close_code


@asynccontextmanager
async def gateway_of(discord: DiscordServer, compress: str = "") -> AsyncIterator[Gateway]:
    """A socket whose HELLO has been read; it ends without a word, as that of a killed process does."""
    inflate = zlib.decompressobj().decompress if compress else None
    more = f"&compress={compress}" if compress else ""
    frames = await websockets.connect(f"{discord.gateway_url}?v=10&encoding=json{more}", proxy=None)
    gateway = Gateway(frames, inflate)
    hello = await gateway.read()
    assert (hello["op"], hello["d"]["heartbeat_interval"]) == (10, 41_250)
    try:
        yield gateway
    finally:
        frames.transport.abort()


class Rest:
    """A bot that does nothing by itself."""

    def __init__(self, discord: DiscordServer, client: httpx2.AsyncClient) -> None:
        self._discord, self.client = discord, client

    async def ask(self, verb: str, path: str, *, token: str = TOKEN, **more: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bot {token}"}
        return await self.client.request(verb, f"{self._discord.api_url}{path}", headers=headers, **more)

    async def get(self, path: str) -> Any:
        return (await self.ask("GET", path)).json()

    async def post(self, channel: str, content: str = "", **more: object) -> JsonObject:
        """The answer to a message, a failure too."""
        found: JsonObject = (
            await self.ask("POST", f"/channels/{channel}/messages", json={"content": content, **more})
        ).json()
        return found


@asynccontextmanager
async def rest_of(discord: DiscordServer) -> AsyncIterator[Rest]:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        yield Rest(discord, client)


def contents(messages: list[JsonObject]) -> list[str]:
    return [one["content"] for one in messages]


# Gateway --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", ["", "zlib-stream"])
async def test_a_session_gives_everything_after_a_number_again(compress: str) -> None:
    async with DiscordServer() as discord:
        async with gateway_of(discord, compress) as gateway:
            session = (await gateway.identify())["session_id"]
            said = discord.people.say("one")
            assert (await gateway.event("MESSAGE_CREATE"))["content"] == "one"
        await discord.until(lambda: not discord.links)
        discord.people.edit(said, "one!")
        discord.people.delete(discord.people.say("two"))
        async with gateway_of(discord, compress) as gateway:
            await gateway.resume(session, 3)
            found = [await gateway.read() for _ in range(4)]
            names = ["MESSAGE_UPDATE", "MESSAGE_CREATE", "MESSAGE_DELETE", "RESUMED"]
            assert [(one["t"], one["s"]) for one in found] == [*zip(names, (4, 5, 6, 7), strict=True)]
        async with gateway_of(discord, compress) as gateway:
            await gateway.resume(session, 2)
            again = [await gateway.read() for _ in range(5)]
            assert [one["t"] for one in again] == ["MESSAGE_CREATE", *names]
            discord.people.say("live")
            assert (await gateway.event("MESSAGE_CREATE"))["content"] == "live"


@pytest.mark.parametrize("code", [1000, 1001, 4900])
async def test_a_session_ends_with_some_closes_and_after_minutes(code: int) -> None:
    async with DiscordServer() as discord:
        async with gateway_of(discord) as gateway:
            session = (await gateway.identify())["session_id"]
            await gateway.frames.close(code)
        await discord.until(lambda: not discord.links)
        async with gateway_of(discord) as gateway:
            await gateway.resume(session, 2)
            found = await gateway.read()
            assert found["t" if code == 4900 else "op"] == ("RESUMED" if code == 4900 else 9)
            assert found["d"] is False or code == 4900
        await discord.until(lambda: not discord.links)
        discord.skip(181)
        async with gateway_of(discord) as gateway:
            await gateway.resume(session, 2)
            assert (await gateway.read())["d"] is False


@pytest.mark.parametrize(
    ("op", "data", "code"),
    [
        (2, {"token": "other", "intents": INTENTS}, 4004),
        (2, {"token": TOKEN, "intents": 1 << 40}, 4013),
        (2, {"token": TOKEN, "intents": 1 << 1}, 4014),
        (6, {"token": TOKEN, "session_id": "session-1", "seq": 99}, 4007),
        (6, {"token": "other", "session_id": "session-1", "seq": 1}, 4004),
        (3, {}, 4003),
        (77, {}, 4001),
    ],
)
async def test_what_the_gateway_refuses_is_closed_with_its_code(op: int, data: JsonObject, code: int) -> None:
    async with DiscordServer() as discord:
        async with gateway_of(discord) as gateway:
            await gateway.identify()
        async with gateway_of(discord) as gateway:
            await gateway.send(op, data)
            assert await gateway.closed() == code


async def test_without_the_intent_contents_are_blank_and_asking_is_refused() -> None:
    async with DiscordServer() as discord, gateway_of(discord) as gateway, rest_of(discord) as rest:
        channel = discord.people.channel()
        await gateway.identify(WITHOUT_CONTENT)
        discord.people.say("to all", channel)
        discord.people.say(f"<@{BOT['id']}> to the bot", channel)
        discord.people.say("in private")
        found = [(await gateway.event("MESSAGE_CREATE"))["content"] for _ in range(3)]
        assert found == ["", f"<@{BOT['id']}> to the bot", "in private"]
        assert (await rest.get("/applications/@me"))["flags"] == 1 << 19
        discord.message_content = False
        assert (await rest.get("/applications/@me"))["flags"] == 0
        assert contents(await rest.get(f"/channels/{channel.id}/messages")) == [f"<@{BOT['id']}> to the bot", ""]
        async with gateway_of(discord) as other:
            await other.send(2, {"token": TOKEN, "intents": INTENTS})
            assert await other.closed() == 4014


async def test_a_thousand_sign_ins_a_day_and_then_the_token_is_reset() -> None:
    async with DiscordServer() as discord, rest_of(discord) as rest:
        for _ in range(999):
            discord.sessions.begin(INTENTS)
        async with gateway_of(discord) as gateway:
            await gateway.identify()
        limit = (await rest.get("/gateway/bot"))["session_start_limit"]
        assert (limit["total"], limit["remaining"]) == (1000, 0)
        assert 0 < limit["reset_after"] <= 86_400_000
        async with gateway_of(discord) as gateway:
            await gateway.send(2, {"token": TOKEN, "intents": INTENTS})
            assert await gateway.closed() == 4004
        assert (await rest.ask("GET", "/users/@me")).status_code == 401


async def test_a_new_day_has_new_sign_ins() -> None:
    async with DiscordServer() as discord, rest_of(discord) as rest:
        discord.sessions.begin(INTENTS)
        discord.skip(86_401)
        assert (await rest.get("/gateway/bot"))["session_start_limit"]["remaining"] == 1000


async def test_heartbeats_are_acknowledged_needed_and_sometimes_neither() -> None:
    async with DiscordServer() as discord, gateway_of(discord) as gateway, gateway_of(discord) as silent:
        await gateway.identify()
        discord.skip(HEARTBEAT_S)
        await gateway.send(1, 2)
        assert (await gateway.read())["op"] == 11
        discord.skip(HEARTBEAT_S)
        assert await silent.closed() == 4000
        discord.deafen_links()
        discord.people.say("unheard")
        await gateway.send(1, 2)
        assert (await gateway.read())["op"] == 11
        discord.mute_links()
        await gateway.send(1, 2)
        await discord.close_links(4009)
        assert await gateway.closed() == 4009


async def test_the_server_ends_sessions_in_all_its_ways() -> None:
    async with DiscordServer() as discord, gateway_of(discord) as gateway:
        session = (await gateway.identify())["session_id"]
        await discord.ask_reconnect()
        assert (await gateway.read())["op"] == 7
        await discord.invalidate_sessions(resumable=True)
        assert await gateway.read() == {"op": 9, "d": True}
        discord.is_bricked = True
        async with gateway_of(discord) as other:
            await other.resume(session, 2)
            assert await other.closed() == 1006
        discord.is_bricked = False
        async with gateway_of(discord) as other:
            await other.resume(session, 2)
            assert (await other.read())["t"] == "RESUMED"
            assert await gateway.closed() == 4000
            await discord.invalidate_sessions()
            assert await other.read() == {"op": 9, "d": False}
            discord.cut_links()
            assert await other.closed() == 1006
        async with gateway_of(discord) as other:
            await other.resume(session, 2)
            assert (await other.read())["d"] is False


# Events ---------------------------------------------------------------------------------------------------------------


async def test_what_people_do_is_told() -> None:
    async with DiscordServer() as discord, gateway_of(discord) as gateway:
        people = discord.people
        forum = people.channel("ideas", kind=FORUM)
        await gateway.identify()
        channel = people.channel()
        said = people.say(f"<@&{ROLE}> see https://example.org/", channel)
        people.preview(said)
        people.say("indeed", channel, reply_to=said)
        people.react(said)
        thread = people.thread(channel, "Garden", said)
        people.say("in the thread", thread)
        people.archive(thread)
        people.thread(forum, "An idea")
        people.attach(b"OggS", "voice-message.ogg", "audio/ogg", flags=VOICE, duration_secs=2.5)
        people.put({"content": "beep", "webhook_id": "77"}, channel, user={**ANN, "id": "77", "bot": True})
        found = [await gateway.read() for _ in range(11)]
    made, create, preview, reply, reaction, begun, inside, archived, post, voice, webhook = (one["d"] for one in found)
    assert [one["t"] for one in found[-6:-3]] == ["THREAD_CREATE", "MESSAGE_CREATE", "THREAD_UPDATE"]
    assert (made["id"], create["guild_id"], create["mention_roles"]) == (channel.id, "10", [ROLE])
    assert (preview["content"], preview["edited_timestamp"]) == (create["content"], None)
    assert (reply["type"], reply["referenced_message"]["id"]) == (19, said["id"])
    assert (reaction["emoji"]["name"], reaction["message_id"]) == ("👍", said["id"])
    assert (begun["id"], begun["parent_id"]) == (said["id"], channel.id)
    assert (inside["channel_id"], archived["thread_metadata"]["archived"]) == (thread.id, True)
    assert post["parent_id"] == forum.id
    assert (voice["flags"], voice["attachments"][0]["duration_secs"], "guild_id" in voice) == (VOICE, 2.5, False)
    assert (webhook["webhook_id"], "member" in webhook) == ("77", False)


async def test_events_of_any_kind_are_sent_and_a_server_opens_again() -> None:
    async with DiscordServer() as discord:
        async with gateway_of(discord) as gateway:
            session = (await gateway.identify())["session_id"]
            async with discord.closed():
                assert await gateway.closed() == 1006
                with pytest.raises(ConnectionRefusedError):
                    await websockets.connect(discord.gateway_url, proxy=None)
        discord.put("ODD_EVENT", {"odd": True})
        async with gateway_of(discord) as gateway:
            await gateway.resume(session, 2)
            assert await gateway.event("ODD_EVENT") == {"odd": True}


async def test_nothing_is_told_of_hidden_channels() -> None:
    async with DiscordServer() as discord, gateway_of(discord) as gateway, rest_of(discord) as rest:
        channel = discord.people.channel()
        channel.is_hidden = True
        await gateway.identify()
        [shown] = about_guild(discord.world, GUILD)["channels"]
        assert (shown["id"], shown["flags"]) == (channel.id, 1 << 17)
        assert await rest.get(f"/guilds/{GUILD}/channels") == []
        discord.people.say("unheard", channel)
        discord.people.say("heard")
        assert (await gateway.event("MESSAGE_CREATE"))["content"] == "heard"
        assert (await rest.get(f"/channels/{channel.id}/messages"))["code"] == 50001


# Messages of the bot --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"content": ""}, 50006),
        ({"content": " \n"}, 50006),
        ({"content": "x" * 2001}, 50035),
        ({"content": "😀" * 1001}, 50035),
        ({"content": "x", "nonce": "n" * 26}, 50035),
        ({"content": "x", "message_reference": {"message_id": "1"}}, 50035),
        ({"content": "x", "allowed_mentions": {"parse": ["all"]}}, 50035),
        ({"content": "x", "allowed_mentions": {"parse": ["users"], "users": ["1"]}}, 50035),
    ],
)
async def test_what_discord_refuses_is_refused(body: JsonObject, code: int) -> None:
    async with DiscordServer() as discord, rest_of(discord) as rest:
        refused = await rest.post(discord.people.channel().id, **body)
    assert refused["code"] == code
    assert discord.sent == []


async def test_the_longest_message_is_sent_and_answers_are_plain_json() -> None:
    async with DiscordServer() as discord, rest_of(discord) as rest:
        path = f"/channels/{discord.people.channel().id}/messages"
        absent = {"message_id": "1", "fail_if_not_exists": False}
        answer = await rest.ask("POST", path, json={"content": "😀" * 1000, "message_reference": absent})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        assert discord.texts == ["😀" * 1000]


async def test_a_nonce_makes_one_message_of_an_author_for_a_while() -> None:
    async with DiscordServer() as discord, rest_of(discord) as rest, gateway_of(discord) as gateway:
        one, other = discord.people.channel("one").id, discord.people.channel("other").id
        await gateway.identify()
        once = {"nonce": "n" * 25, "enforce_nonce": True}
        first = await rest.post(one, "hi", **once)
        again = await rest.post(one, "hi", **once)
        assert (again["id"], again["nonce"]) == (first["id"], "n" * 25)
        assert (await rest.post(other, "something else", **once))["id"] == first["id"]
        assert (await gateway.event("MESSAGE_CREATE"))["nonce"] == once["nonce"]
        assert (await rest.post(one, "hi", nonce="n" * 25))["id"] != first["id"]
        discord.skip(121)
        later = await rest.post(one, "hi", **once)
        assert later["id"] != first["id"]
        discord.people.delete(later)
        assert (await rest.post(one, "hi", **once))["code"] == 10008
        assert "nonce" not in (await rest.get(f"/channels/{one}/messages"))[0]


@pytest.mark.parametrize(
    ("allowed", "pings"),
    [
        (None, ["901", "&11", "everyone"]),
        (NOBODY, []),
        ({"parse": ["users"]}, ["901"]),
        ({"parse": [], "roles": ["11"], "replied_user": True}, ["&11", "901"]),
    ],
)
async def test_whom_a_message_pings_is_on_record(allowed: JsonObject | None, pings: list[str]) -> None:
    async with DiscordServer() as discord, rest_of(discord) as rest:
        channel = discord.people.channel()
        said = discord.people.say("hello", channel)
        more: Mapping[str, object] = {} if allowed is None else {"allowed_mentions": allowed}
        text, reference = "<@901> <@&11> @everyone", {"message_id": said["id"]}
        assert (await rest.post(channel.id, text, message_reference=reference, **more))["type"] == 19
        assert discord.pings == pings


async def test_an_edit_without_allowed_mentions_pings_again() -> None:
    async with DiscordServer() as discord, rest_of(discord) as rest:
        channel = discord.people.channel()
        sent = await rest.post(channel.id, "hi", allowed_mentions=NOBODY)
        path = f"/channels/{channel.id}/messages/{sent['id']}"
        assert (await rest.ask("PATCH", path, json={"content": "<@901>"})).json()["edited_timestamp"]
        assert discord.pings == ["901"]
        said = discord.people.say("mine", channel)
        refused = await rest.ask("PATCH", f"/channels/{channel.id}/messages/{said['id']}", json={"content": "x"})
        assert refused.json()["code"] == 50005


async def test_places_that_refuse_messages() -> None:
    async with DiscordServer() as discord, rest_of(discord) as rest:
        channel, direct = discord.people.channel(), discord.people.direct_chat()
        thread = discord.people.thread(channel)
        channel.posting, direct.posting, thread.posting = MISSING_PERMISSIONS, CLOSED_TO_BOT, ARCHIVED_THREAD
        codes = [(await rest.post(one.id, "x"))["code"] for one in (channel, direct, thread)]
        assert [*codes, (await rest.post("1", "x"))["code"]] == [50013, 50007, 50083, 10003]


async def test_threads_begin_on_a_message_and_are_found_when_archived() -> None:
    async with DiscordServer() as discord, rest_of(discord) as rest:
        channel = discord.people.channel()
        said = discord.people.say("hello", channel)
        path = f"/channels/{channel.id}/messages/{said['id']}/threads"
        made = (await rest.ask("POST", path, json={"name": "Hello"})).json()
        assert (made["id"], made["owner_id"]) == (said["id"], BOT["id"])
        assert (await rest.ask("POST", path, json={"name": "Hello"})).json()["code"] == 160004
        assert (await rest.get(f"/channels/{said['id']}"))["parent_id"] == channel.id
        sent = await rest.post(made["id"], "in it")
        discord.people.archive(discord.world.channels[made["id"]])
        listed = await rest.get(f"/channels/{channel.id}/threads/archived/public")
        assert [(one["id"], one["last_message_id"]) for one in listed["threads"]] == [(made["id"], sent["id"])]
        refused = await rest.ask("POST", f"/channels/{made['id']}/typing")
        assert refused.json()["code"] == 50083
        assert (await rest.ask("POST", f"/channels/{channel.id}/typing")).status_code == 204
        assert discord.typing == [channel.id]


async def test_history_has_pages_after_and_before() -> None:
    async with DiscordServer() as discord, rest_of(discord) as rest:
        channel = discord.people.channel()
        said = [discord.people.say(f"m{n}", channel) for n in range(5)]
        path = f"/channels/{channel.id}/messages"
        assert contents(await rest.get(f"{path}?limit=2")) == ["m4", "m3"]
        assert contents(await rest.get(f"{path}?limit=2&after={said[0]['id']}")) == ["m2", "m1"]
        assert contents(await rest.get(f"{path}?limit=2&before={said[3]['id']}")) == ["m2", "m1"]
        assert contents(await rest.get(f"{path}?after=0&limit=100")) == ["m4", "m3", "m2", "m1", "m0"]
        assert "guild_id" not in (await rest.get(f"{path}/{said[0]['id']}"))
        for query in ("limit=101", "limit=0", "after=yesterday"):
            assert (await rest.get(f"{path}?{query}"))["code"] == 50035
        assert (await rest.get(f"{path}/1"))["code"] == 10008


# Files ----------------------------------------------------------------------------------------------------------------


async def test_files_go_both_ways_and_their_urls_expire() -> None:
    async with DiscordServer() as discord, rest_of(discord) as rest:
        channel = discord.people.channel()
        said = discord.people.attach(b"bill", "bill.pdf", "application/pdf", channel)
        path = f"/channels/{channel.id}/messages"
        [shown] = (await rest.get(f"{path}/{said['id']}"))["attachments"]
        assert (await rest.client.get(shown["url"])).content == b"bill"
        assert (await rest.client.get(shown["url"].replace("hm=", "hm=0"))).status_code == 404
        discord.skip(86_401)
        assert (await rest.client.get(shown["url"])).status_code == 404
        [fresh] = (await rest.get(f"{path}/{said['id']}"))["attachments"]
        assert (await rest.client.get(fresh["url"], headers={"Authorization": f"Bot {TOKEN}"})).content == b"bill"
        assert len(discord.leaks) == 1
        files = {f"files[{n}]": (f"{n}.txt", b"x" * (n + 1), "text/plain") for n in range(2)}
        sent = await rest.ask("POST", path, data={"payload_json": json.dumps({"content": "two"})}, files=files)
        assert [(one["filename"], one["size"]) for one in sent.json()["attachments"]] == [("0.txt", 1), ("1.txt", 2)]


@pytest.mark.parametrize(
    ("sizes", "status", "code"),
    [([1] * 11, 400, 50035), ([10 * 1024 * 1024 + 1], 413, 40005), ([9 * 1024 * 1024] * 3, 413, 40005)],
)
async def test_too_many_and_too_large_files_are_refused(sizes: list[int], status: int, code: int) -> None:
    async with DiscordServer() as discord, rest_of(discord) as rest:
        files = {f"files[{n}]": (f"{n}.bin", bytes(size)) for n, size in enumerate(sizes)}
        path = f"/channels/{discord.people.channel().id}/messages"
        refused = await rest.ask("POST", path, data={"payload_json": "{}"}, files=files)
        assert (refused.status_code, refused.json()["code"]) == (status, code)


# Limits, and what goes wrong on purpose -------------------------------------------------------------------------------


async def test_limits_are_those_of_a_route_in_a_channel_and_of_all() -> None:
    async with DiscordServer(limits=True, clock=MovableClock(1_800_000_000.0)) as discord, rest_of(discord) as rest:
        one, other = discord.people.channel("one").id, discord.people.channel("other").id
        answers = [await rest.ask("POST", f"/channels/{one}/messages", json={"content": "x"}) for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [429]
        assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["4", "3", "2", "1", "0", "0"]
        assert {answer.headers["x-ratelimit-bucket"] for answer in answers} == {
            answers[0].headers["x-ratelimit-bucket"]
        }
        refused = answers[-1]
        assert 4 < refused.json()["retry_after"] <= 5
        assert (refused.json()["global"], refused.headers["x-ratelimit-scope"]) == (False, "user")
        assert (await rest.ask("POST", f"/channels/{other}/messages", json={"content": "x"})).status_code == 200
        discord.clock.move(5)
        discord.spoil(POST, too_many_requests(2.5, is_global=True))
        everywhere = await rest.ask("POST", f"/channels/{one}/messages", json={"content": "x"})
        assert (everywhere.json()["retry_after"], everywhere.headers["x-ratelimit-global"]) == (2.5, "true")
        assert everywhere.headers["retry-after"] == "3"


async def test_one_may_sign_in_once_in_five_seconds() -> None:
    async with DiscordServer(limits=True, clock=MovableClock(1_800_000_000.0)) as discord:
        async with gateway_of(discord) as gateway:
            await gateway.identify()
        async with gateway_of(discord) as gateway:
            await gateway.send(2, {"token": TOKEN, "intents": INTENTS})
            assert await gateway.read() == {"op": 9, "d": False}
            discord.skip(5)
            assert (await gateway.identify())["session_id"] == "session-2"


async def test_a_reply_mentions_whom_it_answers_unless_that_is_off() -> None:
    async with DiscordServer() as discord, gateway_of(discord) as gateway, rest_of(discord) as rest:
        channel = discord.people.channel()
        await gateway.identify(WITHOUT_CONTENT)
        await rest.post(channel.id, "of the bot")
        [sent] = discord.sent
        await gateway.event("MESSAGE_CREATE")
        discord.people.say("yes", channel, reply_to=sent)
        discord.people.say("no", channel, reply_to=sent, pings=False)
        loud, quiet = [await gateway.event("MESSAGE_CREATE") for _ in range(2)]
        assert ([one["id"] for one in loud["mentions"]], loud["content"]) == ([BOT["id"]], "yes")
        assert (quiet["mentions"], quiet["content"]) == ([], "")
        assert quiet["referenced_message"]["author"]["id"] == BOT["id"]


async def test_faults_happen_once_each_in_their_order() -> None:
    async with DiscordServer() as discord, rest_of(discord) as rest:
        channel = discord.people.channel().id
        discord.spoil(POST, Page(502), Cut(taken=False), Cut(), Hang(taken=True))
        with pytest.raises(ValueError, match="Expecting value"):
            await rest.post(channel, "a")
        for text in ("b", "c"):
            with pytest.raises(httpx2.TransportError):
                await rest.post(channel, text)
        hanging = asyncio.create_task(rest.post(channel, "d"))
        await discord.until(lambda: discord.texts == ["c", "d"])
        hanging.cancel()
        assert [call.error for call in discord.calls_of(POST)] == [None, None, None]
        assert (await rest.ask("GET", "/nothing")).status_code == 404
        assert (await rest.ask("GET", "/users/@me", token="old")).json() == {"message": "401: Unauthorized", "code": 0}


# Foreign clients ------------------------------------------------------------------------------------------------------


async def test_discord_py_resumes_and_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with DiscordServer(limits=True) as discord:
        monkeypatch.setattr(discord_py.http.Route, "BASE", discord.api_url)
        monkeypatch.setattr(discord_py.gateway.DiscordWebSocket, "DEFAULT_GATEWAY", yarl.URL(discord.gateway_url))
        channel = discord.people.channel()
        intents = discord_py.Intents.default()
        intents.message_content = True
        client = discord_py.Client(intents=intents)
        ready, heard = asyncio.Event(), asyncio.Queue[discord_py.Message]()

        @client.event
        async def on_ready() -> None:
            ready.set()

        @client.event
        async def on_message(message: discord_py.Message) -> None:
            if not message.author.bot:
                await heard.put(message)

        running = asyncio.create_task(client.start(TOKEN))
        await ready.wait()
        discord.people.say("hello", channel)
        first = await heard.get()
        discord.cut_links()
        await discord.until(lambda: not discord.links)
        discord.people.say("in the gap", channel)
        assert [first.content, (await heard.get()).content] == ["hello", "in the gap"]
        assert len(discord.sessions.identified) == 1
        file = discord_py.File(__file__, "a.txt")
        nobody = discord_py.AllowedMentions.none()
        sent = await first.reply("<@901>", file=file, nonce="n1", allowed_mentions=nobody)
        assert (discord.pings, sent.attachments[0].filename) == ([], "a.txt")
        assert len([one async for one in first.channel.history(after=first)]) == 2
        heard_of = await _press_a_button(discord, first)
        assert ([one["content"] for one in discord.whispers], heard_of) == (["heard of it"], ("yes", 901))
        guild = await client.fetch_guild(10)
        assert [one.name for one in await guild.fetch_channels()] == ["general"]
        assert (await guild.active_threads(), guild.self_role) == ([], guild.get_role(11))
        thread = await first.create_thread(name="Hello")
        assert [one.id for one in await guild.active_threads()] == [thread.id]
        assert thread.id == first.id
        with pytest.raises(discord_py.HTTPException, match="50035"):
            await thread.send("x" * 2001)
        said = discord.people.attach(b"bill", "bill.pdf", "application/pdf")
        assert said["channel_id"]
        private = await heard.get()
        assert await private.attachments[0].read() == b"bill"
        assert discord.leaks == []
        await client.close()
        await running


async def _press_a_button(discord: DiscordServer, message: discord_py.Message) -> tuple[str, int]:
    """The value of the button and who has pressed it, as the client is told."""
    pressed = asyncio.get_running_loop().create_future()

    class Heard(discord_py.ui.Button[discord_py.ui.View]):
        async def callback(self, interaction: discord_py.Interaction) -> None:
            await interaction.response.defer()
            await interaction.followup.send("heard of it", ephemeral=True)
            pressed.set_result((self.custom_id, interaction.user.id))

    view = discord_py.ui.View()
    view.add_item(Heard(label="Yes", custom_id="yes"))
    asked = await message.channel.send("May I?", view=view)
    discord.people.press(discord.world.channels[str(asked.channel.id)].messages[str(asked.id)], "yes")
    found: tuple[str, int] = await pressed
    await asked.edit(view=None)
    assert discord.sent[-1]["components"] == []
    return found


async def test_hikari_hears_compressed_events_and_answers() -> None:
    async with DiscordServer() as discord:
        channel = discord.people.channel()
        intents = hikari.Intents.ALL_UNPRIVILEGED | hikari.Intents.MESSAGE_CONTENT
        bot = hikari.GatewayBot(TOKEN, rest_url=discord.api_url, intents=intents, banner=None, logs="ERROR")

        async def answer(event: hikari.MessageCreateEvent) -> None:
            if not event.is_bot:
                await bot.rest.create_message(event.channel_id, f"pong {event.content}", user_mentions=False)

        bot.subscribe(hikari.MessageCreateEvent, answer)
        start: Callable[..., Awaitable[None]] = bot.start
        await start(check_for_updates=False)
        assert discord.links[0].compressor is not None
        said = discord.people.say("ping", channel)
        await discord.until(lambda: discord.texts == ["pong ping"])
        await discord.ask_reconnect()
        discord.people.say("again")
        await discord.until(lambda: discord.texts == ["pong ping", "pong again"])
        assert len(discord.sessions.identified) == 1
        assert (await bot.rest.fetch_message(int(channel.id), int(said["id"]))).content == "ping"
        found = await bot.rest.fetch_messages(int(channel.id))
        assert [one.content for one in found] == ["pong ping", "ping"]
        await bot.close()

"""The Discord package against the strict server: what is received through gaps, and what becomes of a part."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from importlib.metadata import entry_points
from typing import Any, Final

import pytest
from msgspec import structs
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from switchboard.connectors.discord.channel import DiscordSession, open_session
from switchboard.connectors.discord.cursor import DiscordCursor, snowflake_at
from switchboard.connectors.discord.gateway import NO_CONTENT, TOKEN_REFUSED, Gateway, GatewayWanted
from switchboard.connectors.discord.manifest import MANIFEST
from switchboard.connectors.discord.rest import RestClient
from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.held import short_key
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import ReplyChoice
from switchboard.ports.connector import (
    Account,
    FileIn,
    FileOut,
    Identity,
    Inbound,
    Later,
    Outcome,
    Part,
    Refused,
    Sent,
    SignInRefused,
    Uncertain,
)
from switchboard.tasks import cancel_tasks
from switchboard.testing.connectors import in_no_time
from switchboard.testing.connectors.clock import passes
from switchboard.testing.connectors.running import connected, connector, scripted, texts, until
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard
from switchboard.testing.discord import (
    ANN,
    ARCHIVED_THREAD,
    BOT,
    CLOSED_TO_BOT,
    GUILD,
    LOCKED_THREAD,
    MISSING_ACCESS,
    MISSING_PERMISSIONS,
    ROLE,
    TOKEN,
    Cut,
    DiscordServer,
    Fault,
    Page,
    RestError,
    too_many_requests,
)
from switchboard.testing.discord.gateway import RESUME_S
from tests.discord_driver import POST
from tests.drivers import ANSWERED, without_pauses

HISTORY: Final = "GET /channels/{channel}/messages"
_KEY: Final = "b6d6b5b2-94ad-4b3c-9b38-7d2c0e6b6ac6:0"
Test = Callable[[DiscordServer], Any]


def account_of(discord: DiscordServer, token: str = TOKEN, **settings: Any) -> Account:
    urls = {"api_url": discord.api_url, "gateway_url": discord.gateway_url}
    return Account("house", MANIFEST.settings.model_validate({**urls, **settings}), {"token": token})


def configured(discord: DiscordServer, **settings: Any) -> Configured:
    return Configured(without_pauses(MANIFEST), account_of(discord, **settings), ANSWERED)


@asynccontextmanager
async def session_of(discord: DiscordServer, token: str = TOKEN, **settings: Any) -> AsyncIterator[DiscordSession]:
    session = await open_session(account_of(discord, token, **settings))
    try:
        yield session
    finally:
        await session.close()


@asynccontextmanager
async def receiving(discord: DiscordServer, session: DiscordSession) -> AsyncIterator[None]:
    """Whatever comes is left alone."""

    async def receive() -> None:
        async for _ in session.receive(await session.latest()):
            pass

    task = asyncio.create_task(receive())
    await until(lambda: is_signed_in(discord), "it is signed in")
    try:
        yield
    finally:
        await cancel_tasks(task)


def run(test: Test, **about: Any) -> None:
    """With a server, in no time."""

    async def running() -> None:
        async with DiscordServer(**about) as discord:
            await test(discord)

    in_no_time(running())


async def accepts(switchboard: ScriptedSwitchboard, *said: str) -> None:
    await until(lambda: len(switchboard.accepted) >= len(said), f"{said} are accepted", more_s=60)
    assert texts(switchboard.accepted) == list(said)


async def signs_in(switchboard: ScriptedSwitchboard) -> None:
    """It knows its session, and so does the next process."""
    await until(lambda: DiscordCursor.read(switchboard.cursor).s, "it is signed in")


async def settles(switchboard: ScriptedSwitchboard, message: JsonObject) -> None:
    """The next process begins after this message."""
    await until(lambda: DiscordCursor.read(switchboard.cursor).w == int(message["id"]), "it is settled")


def kinds(switchboard: ScriptedSwitchboard) -> list[str]:
    return [one["event"].get("kind", "message") for one in switchboard.accepted]


def is_signed_in(discord: DiscordServer) -> bool:
    return any(link.session is not None for link in discord.links)


def sign_ins(discord: DiscordServer) -> int:
    return len(discord.sessions.identified)


def troubles(switchboard: ScriptedSwitchboard) -> list[str]:
    return [beat["error_message"] for beat in switchboard.heartbeats if beat["error_message"]]


# Gaps -----------------------------------------------------------------------------------------------------------------


def test_a_restart_within_the_window_misses_nothing() -> None:
    """Neither edits nor deletions, nor whoever writes for the first time; and it is no sign-in."""

    async def check(discord: DiscordServer) -> None:
        switchboard, people = scripted(), discord.people
        async with connector(configured(discord), switchboard) as running:
            await signs_in(switchboard)
            first = people.say("one")
            await accepts(switchboard, "one")
            await settles(switchboard, first)
            await running.killed()
        people.edit(first, "one!")
        people.say("from Bob", user=people.person("777", "bob"))
        people.delete(first)
        people.react(people.say("two"))
        await passes(RESUME_S - 5)
        async with connector(configured(discord), switchboard):
            await accepts(switchboard, "one", "one!", "from Bob", "", "two", "👍")
        assert kinds(switchboard) == ["message", "edit", "message", "delete", "message", "reaction"]
        assert sign_ins(discord) == 1

    run(check)


def test_a_restart_beyond_the_window_reads_the_history() -> None:
    """Of channels, threads, also of one that was put away, and of direct chats that were heard of before."""

    async def check(discord: DiscordServer) -> None:
        switchboard, people = scripted(), discord.people
        general = people.channel()
        garden = people.thread(general)
        hidden = people.channel("hidden")
        async with connector(configured(discord), switchboard) as running:
            await signs_in(switchboard)
            people.say("before")
            first = people.say("before", general)
            discord.world.post(general, ANN, {"content": "told to nobody"})
            discord.skip(5)
            last = people.say("before", garden)
            await accepts(switchboard, *["before"] * 3)
            await settles(switchboard, last)
            await running.killed()
        await passes(RESUME_S + 60)
        hidden.is_hidden = True
        people.edit(first, "known already")
        people.say("in private")
        people.say(f"<@{BOT['id']}> in general", general)
        people.edit(people.say("in the gard", garden), "in the garden")
        people.archive(garden)
        people.say("where we see nothing", hidden)
        async with connector(configured(discord), switchboard):
            await accepts(switchboard, *["before"] * 3, "in private", "told to nobody", "in general", "in the garden")
            people.say("live", general)
            await until(lambda: "live" in texts(switchboard.accepted), "what comes then is accepted")
        assert set(kinds(switchboard)) == {"message"}
        assert sign_ins(discord) == 2
        assert [call.name for call in discord.calls if call.error] == [], "nothing is asked that must be refused"

    run(check)


def test_what_comes_while_the_history_is_read_is_submitted_once() -> None:
    """It is in the history as well."""

    async def check(discord: DiscordServer) -> None:
        switchboard, general = scripted(), discord.people.channel()
        discord.people.say("one", general)
        discord.spoil(HISTORY, Cut(taken=False))
        async with connector(configured(discord), switchboard):
            await until(lambda: discord.calls_of(HISTORY), "the history is asked for")
            discord.people.say("two", general)
            await accepts(switchboard, "one", "two")
            last = discord.people.say("three", general)
            await settles(switchboard, last)
        assert texts(switchboard.accepted) == ["one", "two", "three"]
        assert switchboard.duplicates == 0

    run(check)


def test_much_is_read_in_pages_and_only_what_is_not_too_old() -> None:
    async def check(discord: DiscordServer) -> None:
        switchboard, general = scripted(), discord.people.channel()
        for number in range(3):
            discord.people.say(f"old {number}", general)
        discord.skip(2 * 3600)
        for number in range(230):
            discord.people.say(f"{number}", general)
        # The connector's clock does not move with Discord's.
        async with connector(configured(discord, catch_up_h=0), switchboard):
            await accepts(switchboard, *map(str, range(230)))
        assert len(discord.calls_of(HISTORY)) == 3

    run(check)


@pytest.mark.parametrize(
    ("happens", "more_sign_ins"),
    [
        (DiscordServer.ask_reconnect, 0),
        (lambda discord: discord.invalidate_sessions(resumable=True), 0),
        (lambda discord: discord.close_links(4000), 0),
        (lambda discord: discord.close_links(4008), 0),
        (DiscordServer.invalidate_sessions, 1),
        (lambda discord: discord.close_links(4007), 1),
        (lambda discord: discord.close_links(4009), 1),
    ],
    ids=["op 7", "op 9 true", "4000", "4008", "op 9 false", "4007", "4009"],
)
def test_a_socket_that_ends_is_followed_by_another(happens: Test, more_sign_ins: int) -> None:
    async def check(discord: DiscordServer) -> None:
        general = discord.people.channel()
        async with connected(configured(discord)) as switchboard:
            discord.people.say("before", general)
            await accepts(switchboard, "before")
            before = sign_ins(discord)
            await happens(discord)
            discord.people.say("after", general)
            await accepts(switchboard, "before", "after")
        assert sign_ins(discord) - before == more_sign_ins

    run(check)


def test_a_session_that_is_bricked_is_given_up() -> None:
    """Sockets that resume it are broken without a word."""

    async def check(discord: DiscordServer) -> None:
        general = discord.people.channel()
        async with connected(configured(discord)) as switchboard:
            await signs_in(switchboard)
            discord.is_bricked = True
            discord.cut_links()
            discord.people.say("after", general)
            await accepts(switchboard, "after")
        assert sign_ins(discord) == 2

    run(check)


def test_a_socket_without_acknowledgements_is_left() -> None:
    async def check(discord: DiscordServer) -> None:
        general = discord.people.channel()
        async with connected(configured(discord)) as switchboard:
            await signs_in(switchboard)
            discord.mute_links()
            discord.people.say("nobody hears it", general)
            await passes(90)
            await accepts(switchboard, "nobody hears it")
        assert sign_ins(discord) == 1

    run(check)


def test_a_socket_of_a_killed_process_can_be_resumed() -> None:
    """Neither a restart nor an end that is asked for closes with 1000 or 1001, which would end the session."""

    async def check(discord: DiscordServer) -> None:
        switchboard = scripted()
        for number in range(3):
            async with connector(configured(discord), switchboard) as running:
                await until(lambda: is_signed_in(discord), "it is connected")
                said = discord.people.say(f"{number}")
                await accepts(switchboard, *map(str, range(number + 1)))
                await settles(switchboard, said)
                running.stop.set()
                await running.task
            await discord.until(lambda: not discord.links)
        assert sign_ins(discord) == 1

    run(check)


def test_a_server_that_was_away_is_caught_up_with() -> None:
    async def check(discord: DiscordServer) -> None:
        general = discord.people.channel()
        async with connected(configured(discord)) as switchboard:
            discord.people.say("before", general)
            await accepts(switchboard, "before")
            discord.put("GUILD_DELETE", {"id": GUILD, "unavailable": True})
            message = discord.world.post(general, ANN, {"content": "while it was away"})
            about = {"id": general.id, "type": 0, "last_message_id": message["id"], "name": "general"}
            discord.put("GUILD_CREATE", {"id": GUILD, "name": "House", "roles": [], "channels": [about]})
            await accepts(switchboard, "before", "while it was away")

    run(check)


@pytest.mark.parametrize("status", [500, 403, 404])
def test_a_channel_whose_history_fails_holds_up_no_other(status: int) -> None:
    """It is read later, also by another process; an answer of a proxy is no answer of Discord."""

    async def check(discord: DiscordServer) -> None:
        switchboard, people = scripted(), discord.people
        bad, good = people.channel("bad"), people.channel("good")
        async with connector(configured(discord), switchboard):
            await settles(switchboard, people.say("before", good))
        discord.sessions.clear()
        people.say("missed", bad)
        discord.spoil("GET /channels/{channel}/messages", *[Page(status)] * 13)
        async with connector(configured(discord), switchboard):
            await until(lambda: sign_ins(discord) == 2, "it is signed in anew")
            people.say("live", good)
            await until(lambda: "live" in texts(switchboard.accepted), "what comes meanwhile is accepted", more_s=60)
            await until(lambda: DiscordCursor.read(switchboard.cursor).c, "the next process knows what is owed")
            assert any("in some channels" in one for one in troubles(switchboard))
        async with connector(configured(discord), switchboard):
            await passes(1000)
            await accepts(switchboard, "before", "live", "missed")
            await until(lambda: switchboard.heartbeats[-1]["state"] == "healthy", "it is healthy again")
        assert DiscordCursor.read(switchboard.cursor).c == ()

    run(check)


def test_after_a_resumption_servers_are_asked_for() -> None:
    """Their events are not given again: neither names nor the role of the bot are known."""

    async def check(discord: DiscordServer) -> None:
        switchboard, people = scripted(), discord.people
        general = people.channel()
        garden = people.thread(general)
        async with connector(configured(discord), switchboard) as running:
            said = people.say("before", general)
            await accepts(switchboard, "before")
            await settles(switchboard, said)
            await running.killed()
        async with connector(configured(discord), switchboard):
            people.say(f"<@&{ROLE}> look at <#{general.id}>", garden)
            await accepts(switchboard, "before", "look at #general")
            people.say("and more", garden)
            await until(lambda: len(switchboard.accepted) == 3, "it goes on")
        assert [one["control"]["addressed"] for one in switchboard.accepted] == [False, True, False]
        assert len(discord.calls_of("GET /guilds/{guild}")) == 1

    run(check)


def test_a_clock_that_was_ahead_hides_no_history() -> None:
    """Neither what was said since it was set right, nor what was said when nobody listened."""

    async def check(discord: DiscordServer) -> None:
        general, switchboard = discord.people.channel(), scripted()
        ahead = DiscordCursor(w=snowflake_at(time.time() + 86_400))
        switchboard.cursor = str(ahead)
        async with connector(configured(discord), switchboard):
            await signs_in(switchboard)
            discord.people.say("heard", general)
            await accepts(switchboard, "heard")
            await until(lambda: DiscordCursor.read(switchboard.cursor).w < ahead.w, "it is as late as it is")
        discord.sessions.clear()
        discord.people.say("missed", general)
        async with connector(configured(discord), switchboard):
            await accepts(switchboard, "heard", "missed")

    run(check)


def test_what_was_said_before_an_account_was_added_is_left_alone() -> None:
    async def check(discord: DiscordServer) -> None:
        general = discord.people.channel()
        discord.people.say("long ago", general)
        only_new = structs.replace(configured(discord), handling=ANSWERED.model_copy(update={"start": "now"}))
        async with connected(only_new) as switchboard:
            await signs_in(switchboard)
            discord.people.say("now", general)
            await accepts(switchboard, "now")

    run(check)


def test_an_idle_account_saves_no_cursor_again_and_again() -> None:
    """Though heartbeats show all the time that it is alive."""

    async def check(discord: DiscordServer) -> None:
        async with connected(configured(discord)) as switchboard:
            await until(lambda: switchboard.cursor, "the first cursor is saved")
            await passes(5)
            before = switchboard.requests.count("PUT /v1/connectors/cursor")
            await passes(600)
            assert switchboard.requests.count("PUT /v1/connectors/cursor") == before
        assert {beat["state"] for beat in switchboard.heartbeats} == {"starting", "healthy"}

    run(check)


class Elsewhere(DiscordServer):
    """It says that its gateway, and that of its sessions, is somewhere else."""

    @property
    def gateway_url(self) -> str:
        return "ws://127.0.0.2:9/gateway"


def test_the_token_goes_to_no_gateway_but_discords() -> None:
    async def check() -> None:
        async with Elsewhere() as discord:
            account = account_of(discord, gateway_url=f"{discord.url.replace('http', 'ws')}/gateway")
            async with connected(Configured(without_pauses(MANIFEST), account, ANSWERED)) as switchboard:
                general = discord.people.channel()
                discord.people.say("before", general)
                await accepts(switchboard, "before")
                discord.cut_links()
                discord.people.say("after", general)
                await accepts(switchboard, "before", "after")
            assert sign_ins(discord) == 1

    in_no_time(check())


def test_a_gateway_that_leads_elsewhere_is_not_followed() -> None:
    """Its first frame, which holds the token, would go there."""

    async def check() -> None:
        async with DiscordServer() as discord:

            def lead_away(_: ServerConnection, _request: Request) -> Response:
                return Response(302, "Found", Headers({"Location": discord.gateway_url, "Content-Length": "0"}))

            async with serve(lambda _: asyncio.sleep(0), "127.0.0.1", 0, process_request=lead_away) as door:
                url = f"ws://127.0.0.1:{door.sockets[0].getsockname()[1]}"
                rest = RestClient(discord.api_url, TOKEN)
                gateway = Gateway(rest, TOKEN, GatewayWanted(1, url, frozenset({"127.0.0.1"})), None, lambda _: None)
                with pytest.raises(OSError, match="302"):
                    await asyncio.wait_for(gateway.run(), 60)
                await rest.close()
            assert sign_ins(discord) == 0

    in_no_time(check())


# Failure states -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "says"),
    [(4004, TOKEN_REFUSED), (4011, "too many servers for one connection (2500)"), (4014, NO_CONTENT)],
)
def test_what_a_person_must_do_is_said_in_words(code: int, says: str) -> None:
    async def check(discord: DiscordServer) -> None:
        async with connected(configured(discord)) as switchboard:
            await signs_in(switchboard)
            await discord.close_links(code)
            await until(lambda: any(one["state"] == "failed" for one in switchboard.heartbeats), "it has failed")
        assert any(says in one for one in troubles(switchboard)), troubles(switchboard)

    run(check)


@pytest.mark.parametrize(
    ("token", "settings", "spoil", "says"),
    [
        ("nonsense", {}, None, TOKEN_REFUSED),
        ("not.this.one", {}, None, TOKEN_REFUSED),
        (TOKEN, {}, "intent", NO_CONTENT),
        (TOKEN, {"message_content": False}, "intent", None),
    ],
)
def test_signing_in_finds_out_what_is_wrong(
    token: str, settings: JsonObject, spoil: str | None, says: str | None
) -> None:
    async def check(discord: DiscordServer) -> None:
        discord.message_content = spoil is None
        try:
            async with session_of(discord, token, **settings) as session:
                assert (session.identity.endpoint, session.identity.display_name) == ("bot:900", "@house")
            told = None
        except SignInRefused as error:
            told = error.message
        assert told == says
        assert sign_ins(discord) == 0

    run(check)


def test_a_refused_token_is_used_no_more() -> None:
    async def check(discord: DiscordServer) -> None:
        async with session_of(discord) as session:
            discord.tokens.clear()
            for _ in range(3):
                assert isinstance(await session.send(text_of(discord), _KEY), Later)
        assert len(discord.calls_of(POST)) == 1

    run(check)


def test_too_many_sign_ins_are_said_with_their_time() -> None:
    async def check(discord: DiscordServer) -> None:
        discord.sessions.identified = [discord.clock()] * 951
        async with connected(configured(discord)) as switchboard:
            await until(lambda: troubles(switchboard), "it says so")
        assert "Discord permits 49 more times" in troubles(switchboard)[0]
        assert sign_ins(discord) == 951

    run(check)


def test_messages_without_their_texts_are_trouble() -> None:
    """The intent was switched off after signing in: as nothing is read, nothing is answered."""

    async def check(discord: DiscordServer) -> None:
        general = discord.people.channel()
        async with connected(configured(discord)) as switchboard:
            await signs_in(switchboard)
            blank = {"id": "5", "channel_id": general.id, "guild_id": GUILD, "author": ANN, "content": "", "type": 0}
            discord.put("MESSAGE_CREATE", blank)
            await until(lambda: any("without text" in one for one in troubles(switchboard)), "it says so")
            discord.people.say("now it is shown", general)
            await until(lambda: switchboard.heartbeats[-1]["state"] == "healthy", "it is healthy again")
        assert [one["control"]["ingestion_tier"] for one in switchboard.accepted] == ["history", "history"]

    run(check)


# Sending --------------------------------------------------------------------------------------------------------------


def text_of(discord: DiscordServer, text: str = "hi", place: str | None = None, **more: Any) -> Part:
    channel = place or discord.people.direct_chat().id
    return Part(address=more.pop("address", {"channel": channel}), text=text, **more)


def a_file(data: bytes, name: str = "a.txt") -> FileOut:
    async def read() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 1 << 20):
            yield data[start : start + (1 << 20)]

    return FileOut(name, "text/plain", len(data), read)


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (too_many_requests(3.0), Later(3.0, "429 You are being rate limited.")),
        (too_many_requests(3.0, is_global=True), Later(3.0, "429 You are being rate limited.", account=True)),
        (too_many_requests(9.0, code=20028), Later(9.0, "429 You are being rate limited. (20028)")),
        (RestError(401, 0, "401: Unauthorized"), Later(60.0, "401 401: Unauthorized")),
        (RestError(404, 10008, "Unknown Message"), Sent("")),
        (LOCKED_THREAD, Refused("403 Thread is locked (160005)", "target")),
        (ARCHIVED_THREAD, Refused("400 Tried to perform an operation on an archived thread (50083)", "target")),
        (RestError(404, 10003, "Unknown Channel"), Refused("the channel no longer exists (10003)", "blocked")),
        (CLOSED_TO_BOT, Refused("this person takes no messages of the bot (50007)", "blocked")),
        (
            MISSING_ACCESS,
            Refused("the bot may not see this channel: it needs the permission View Channel (50001)", "blocked"),
        ),
        (RestError(403, 7, "Something else"), Refused("Something else (7)", "blocked")),
        (RestError(400, 50035, "Invalid Form Body"), Refused("400 Invalid Form Body (50035)", "other")),
        (RestError(413, 40005, "Request entity too large"), Refused("413 Request entity too large (40005)", "other")),
        (Page(403), Later(60.0, "403 HTTP 403 without an answer of Discord")),
        (Page(502), Uncertain("HTTP 502 without an answer of Discord")),
        (RestError(500, 0, "Internal Server Error"), Uncertain("HTTP 500 without an answer of Discord")),
        (Cut(taken=False), None),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Fault) else "",
)
def test_answers_of_discord_are_outcomes(fault: Fault, outcome: Outcome | None) -> None:
    async def check(discord: DiscordServer) -> None:
        async with session_of(discord) as session:
            discord.spoil(POST, fault)
            found = await session.send(text_of(discord), _KEY)
        assert found == outcome if outcome is not None else isinstance(found, Uncertain), found

    run(check)


def test_the_permission_that_is_missing_is_named() -> None:
    async def check(discord: DiscordServer) -> None:
        general = discord.people.channel()
        general.posting = MISSING_PERMISSIONS
        async with session_of(discord) as session:
            found = await session.send(text_of(discord, place=general.id), _KEY)
        assert isinstance(found, Refused)
        assert "Send Messages in Threads" in found.reason

    run(check)


def test_an_answer_notifies_nobody_and_fetches_nothing() -> None:
    """Neither whom a text names nor whom it answers; and no link is looked at."""

    async def check(discord: DiscordServer) -> None:
        general = discord.people.channel()
        names = f"@everyone @here <@{ANN['id']}> <@!{ANN['id']}> <@&{ROLE}> <#{general.id}> https://example.org"
        async with connected(configured(discord)) as switchboard:
            discord.people.say(f"<@{BOT['id']}> hello", general)
            await accepts(switchboard, "hello")
            outbox_id = switchboard.reply(switchboard.accepted[0], names)
            await until(lambda: switchboard.outcome(outbox_id), "it is sent")
        [call] = discord.calls_of(POST)
        assert discord.pings == []
        assert (
            call.request.body["message_reference"]["message_id"]
            == switchboard.accepted[0]["event"]["external_event_id"]
        )
        assert call.request.body["flags"] == 4
        [said] = discord.texts
        assert not any(mark in said for mark in ("@everyone", "@here", "<@", "<#"))

    run(check)


def test_what_was_sent_without_an_answer_is_one_message() -> None:
    """Discord has it, though nobody said so: its nonce is given again, and it makes no second one."""

    async def check(discord: DiscordServer) -> None:
        async with session_of(discord) as session:
            discord.spoil(POST, Cut())
            part = text_of(discord)
            assert isinstance(await session.send(part, _KEY), Uncertain)
            assert await session.send(part, _KEY) == Sent(discord.sent[0]["id"])
        assert len(discord.sent) == 1
        assert {call.request.body["nonce"] for call in discord.calls_of(POST)} == {short_key(_KEY, 25)}

    run(check)


@pytest.mark.parametrize("hears", [True, False], ids=["by its nonce", "by its words"])
def test_what_may_have_been_sent_is_looked_for(hears: bool) -> None:
    """When the nonce is forgotten: our own event brought it, or the channel is searched behind what was answered."""

    async def check(discord: DiscordServer) -> None:
        general = discord.people.channel()
        asked = discord.people.say("hello", general)
        part = Part(address={"channel": general.id, "message": asked["id"]}, text="the same")
        earlier = discord.world.post(general, BOT, {"content": "not the same"})
        async with session_of(discord) as session, receiving(discord, session) if hears else nullcontext():
            assert await session.find(part, _KEY) is None
            discord.spoil(POST, Cut())
            await session.send(part, _KEY)
            discord.skip(30)
            asked_before = len(discord.calls)
            await until(lambda: not hears or session._nonces, "it hears itself")
            found = await session.find(part, _KEY)
            assert (len(discord.calls) > asked_before) is not hears
        assert found is not None
        assert found.platform_message_id != earlier["id"]
        assert [found.platform_message_id] == [one["id"] for one in discord.sent if one["content"] == "the same"]

    run(check)


def test_an_equal_answer_to_another_message_is_not_found() -> None:
    async def check(discord: DiscordServer) -> None:
        general = discord.people.channel()
        asked = [discord.people.say(text, general)["id"] for text in "ab"]
        parts = [
            Part(address={"channel": general.id, "message": one, "group": True}, text="Done.", reply_to=one)
            for one in asked
        ]
        async with session_of(discord) as session:
            sent = await session.send(parts[0], "1")
        async with session_of(discord) as session:
            assert [await session.find(part, f"{number}") for number, part in enumerate(parts, 1)] == [sent, None]

    run(check)


def test_a_look_up_in_a_busy_or_a_hidden_channel_has_an_end() -> None:
    """What was sent is uncertain then."""

    async def check(discord: DiscordServer) -> None:
        busy, hidden = discord.people.channel("busy"), discord.people.channel("hidden")
        for _ in range(501):
            discord.world.post(busy, ANN, {"content": "and"})
        hidden.is_hidden = True
        async with session_of(discord) as session:
            for channel in (busy, hidden):
                assert await session.find(text_of(discord, place=channel.id), _KEY) is None

    run(check)


def test_a_part_with_files_is_not_taken_for_another() -> None:
    """Parts without words differ by their files alone."""

    async def check(discord: DiscordServer) -> None:
        parts = [
            text_of(discord, "", files=(a_file(b"x" * size, name),)) for name, size in (("a", 1), ("a", 2), ("b", 2))
        ]
        async with session_of(discord) as session:
            for number, part in enumerate(parts):
                assert await session.find(part, f"{number}") is None
                sent = await session.send(part, f"{number}")
                assert await session.find(part, f"{number}") == sent

    run(check)


def test_the_limits_of_routes_are_kept() -> None:
    """Twenty answers in one channel, and not one of them is refused."""

    async def check(discord: DiscordServer) -> None:
        async with connected(configured(discord)) as switchboard:
            await signs_in(switchboard)
            discord.people.say("ask")
            await accepts(switchboard, "ask")
            answers = [switchboard.reply(switchboard.accepted[0], f"answer {number}") for number in range(20)]
            await until(lambda: all(map(switchboard.outcome, answers)), "all are sent", more_s=60)
        assert discord.texts == [f"answer {number}" for number in range(20)]
        assert [call.error for call in discord.calls if call.error] == []

    run(check, limits=True)


def test_files_leave_together_with_their_text() -> None:
    async def check(discord: DiscordServer) -> None:
        files = tuple(a_file(f"{number}".encode() * 3, f'{number}".txt') for number in range(10))
        async with session_of(discord) as session:
            found = await session.send(text_of(discord, "here", files=files), _KEY)
            assert found == Sent(discord.sent[0]["id"])
        [message] = discord.sent
        assert (message["content"], len(message["attachments"])) == ("here", 10)
        stored = [discord.world.files[one["id"]][1] for one in message["attachments"]]
        assert stored == [f"{number}".encode() * 3 for number in range(10)]

    run(check)


def test_an_answer_begins_a_thread_where_that_is_wanted() -> None:
    async def check(discord: DiscordServer) -> None:
        people, settings = discord.people, configured(discord, threads="start")
        general, called = people.channel(), f"<@{BOT['id']}> lunch?"
        async with connected(settings) as switchboard:
            await signs_in(switchboard)
            first = people.say(called, general)
            gone = people.say(f"<@{BOT['id']}> dinner?", general)
            await accepts(switchboard, "lunch?", "dinner?")
            people.delete(gone)
            replies = [
                switchboard.reply(one, f"re {one['payload']['normalized_text']}") for one in switchboard.accepted[:2]
            ]
            await until(lambda: all(map(switchboard.outcome, replies)), "both are answered")
            people.say("and then?", discord.world.channels[first["id"]])
            await until(lambda: "and then?" in texts(switchboard.accepted), "the thread is followed")
            again = switchboard.reply(switchboard.accepted[0], "once more")
            await until(lambda: switchboard.outcome(again), "it is answered again")
            asked = [call.error for call in discord.calls_of("POST /channels/{channel}/messages/{message}/threads")]
            assert sorted(map(str, asked)) == ["None", "Unknown Message"]
            assert all("message_reference" not in call.request.body for call in discord.calls_of(POST))
        async with session_of(discord) as session:  # which knows of no thread
            await session.send(Part(address=switchboard.accepted[0]["event"]["reply_address"], text="later"), "4")
        where = {one["content"]: one["channel_id"] for one in discord.sent}
        in_thread = dict.fromkeys(("re lunch?", "once more", "later"), first["id"])
        assert where == {**in_thread, "re dinner?": general.id}
        last = switchboard.accepted[-1]
        assert last["control"]["addressed"]
        assert last["event"]["external_thread_id"] == switchboard.accepted[0]["event"]["external_thread_id"]

    run(check)


def test_a_press_is_heard_of_at_once_and_answered_where_it_was() -> None:
    """Even while the switchboard takes nothing; a press that is answered too late gets a message.

    Discord then refuses the token of the press, not ours.
    """
    choices = (ReplyChoice("Yes", "choice:1"), ReplyChoice("No", "choice:2"))

    async def check(discord: DiscordServer) -> None:
        chat = discord.people.direct_chat().id
        async with session_of(discord) as session, receiving(discord, session):
            await session.send(text_of(discord, "May I?", choices=choices), _KEY)
            press = discord.people.press(discord.sent[0], "choice:1")
            await discord.until(lambda: all(one.heard for one in discord.world.presses.values()))
            pressed = discord.sent[0]["id"]
            address = {"channel": chat, "message": pressed, "press": press["id"], "token": press["token"]}
            done = (ReplyChoice("Done", "choice:3"),)
            assert await session.send(Part(address=address, text="Thanks.", choices=done), "2") == Sent(
                address["message"]
            )
            discord.skip(1000)
            late = await session.send(Part(address=address, text="Too late."), "3")
            assert late == Sent(discord.sent[-1]["id"])
            assert isinstance(await session.send(text_of(discord, "To all others."), "4"), Sent)
        assert [one["content"] for one in discord.whispers] == ["Thanks."]
        assert discord.whispers[0]["flags"] & 1 << 6
        labels = [one["label"] for row in discord.sent[0]["components"] for one in row["components"]]
        assert (labels, discord.texts) == (["Done"], ["May I?", "Too late.", "To all others."])
        assert discord.pings == []

    run(check)


def test_typing_is_shown_and_fails_without_a_word() -> None:
    async def check(discord: DiscordServer) -> None:
        general = discord.people.channel()
        async with session_of(discord) as session:
            await session.typing({"channel": general.id})
            await session.typing({"channel": "5", "parent": general.id})
            await session.typing({"channel": "5"})
        assert discord.typing == [general.id, general.id]

    run(check)


# Files ----------------------------------------------------------------------------------------------------------------


async def fetched(session: DiscordSession, file: FileIn) -> bytes:
    return b"".join([piece async for piece in session.fetch(file)])


async def file_of(session: DiscordSession, discord: DiscordServer, message: JsonObject) -> FileIn:
    """The file of a message, as the message is shown now."""
    shown = discord.world.show_message(message, reads_content=True)
    found = await session.read(json.dumps({"t": "MESSAGE_CREATE", "d": shown}).encode())
    assert isinstance(found, Inbound)
    [file] = found.files
    return file


def test_a_file_whose_address_has_expired_is_fetched_all_the_same() -> None:
    """And always without the token, which file hosts must not learn."""

    async def check(discord: DiscordServer) -> None:
        async with session_of(discord) as session:
            message = discord.people.attach(b"data", "a.txt", "text/plain")
            file = await file_of(session, discord, message)
            assert await fetched(session, file) == b"data"
            assert discord.calls_of("GET /channels/{channel}/messages/{message}") == []
            discord.skip(90_000)
            assert await fetched(session, file) == b"data"
            assert len(discord.calls_of("GET /channels/{channel}/messages/{message}")) == 1
        assert discord.leaks == []

    run(check)


def lose_message(discord: DiscordServer, message: JsonObject) -> None:
    discord.people.delete(message)
    discord.skip(90_000)


@pytest.mark.parametrize(
    ("lose", "error"),
    [
        (lambda discord, _: discord.world.files.clear(), FileNotFoundError),
        (lose_message, FileNotFoundError),
        (lambda discord, _: discord.spoil("download", Cut()), OSError),
        (lambda discord, _: discord.tokens.clear() or discord.skip(90_000), OSError),
    ],
    ids=["file", "message", "connection", "token"],
)
def test_why_a_file_cannot_be_had(lose: Callable[[DiscordServer, JsonObject], None], error: type[OSError]) -> None:
    async def check(discord: DiscordServer) -> None:
        async with session_of(discord) as session:
            message = discord.people.attach(b"data", "a.txt", "text/plain")
            file = await file_of(session, discord, message)
            lose(discord, message)
            with pytest.raises(OSError, match=r".") as raised:
                await fetched(session, file)
        assert type(raised.value) is not FileNotFoundError if error is OSError else type(raised.value) is error

    run(check)


def test_a_file_is_fetched_from_discord_alone() -> None:
    async def check(discord: DiscordServer) -> None:
        async with session_of(discord) as session:
            with pytest.raises(ValueError, match="not at Discord"):
                await fetched(session, FileIn(0, {"url": "http://169.254.169.254/latest", "attachment": "1"}))

    run(check)


# The package ----------------------------------------------------------------------------------------------------------


def test_the_manifest_of_discord_imports_no_client() -> None:
    """It is an entry point, and read for every account of every channel."""
    (found,) = entry_points(group="switchboard.connectors", name="discord")
    assert found.load() is MANIFEST
    clients = "'httpx2' in sys.modules, 'websockets' in sys.modules"
    code = f"import sys; import switchboard.connectors.discord.manifest; print({clients})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "False False\n"


def test_the_invitation_asks_for_what_is_needed() -> None:
    for threads, permissions in (("channel", 274_878_008_384), ("start", 309_237_746_752)):
        account = Account("house", MANIFEST.settings.model_validate({"threads": threads}), {"token": TOKEN})
        assert MANIFEST.to_do is not None
        told = MANIFEST.to_do(account, Identity("bot:900", "@house"))
        assert f"client_id=900&scope=bot&permissions={permissions}" in told

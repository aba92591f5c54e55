"""The Slack package against the strict server: sockets, gaps, files, sending, failures in words."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from msgspec.structs import replace

from switchboard.app.accounts.adding import sign_in_account
from switchboard.connectors.kernel.parts import REPEAT_NOTE
from switchboard.connectors.slack.manifest import MANIFEST
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import (
    DEAF_S,
    Account,
    FileIn,
    FileOut,
    Part,
    Refused,
    Sent,
    SignInRefused,
)
from switchboard.testing.connectors import in_no_time, passes
from switchboard.testing.connectors.expecting import answered
from switchboard.testing.connectors.running import connected, texts, until
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard
from switchboard.testing.slack import ANN, APP_TOKEN, BOT_TOKEN, BOT_USER, Cut, Page, SlackError, SlackServer
from tests.slack_driver import SECRETS, SlackDriver, as_read

MENTION: Final = f"<@{BOT_USER}>"
RETRIED_S: Final = 360.0
"""For so long Slack sends an event again."""
Story = Callable[[SlackServer, ScriptedSwitchboard], Awaitable[None]]


def played(story: Story, *, limits: bool = False, seed: int = 0, **settings: Any) -> None:
    """The story with an open account, in no time."""

    async def play() -> None:
        async with SlackServer(limits=limits, seed=seed) as slack:
            configured = SlackDriver(slack).configured
            values = MANIFEST.settings.model_validate({"api_url": slack.api_url, **settings})
            account = Account("house", values, SECRETS)
            async with connected(replace(configured, account=account)) as switchboard:
                await until(lambda: slack.sockets, "a socket is open")
                await story(slack, switchboard)

    in_no_time(play())


async def hears(switchboard: ScriptedSwitchboard, text: str) -> JsonObject:
    """The accepted message with this text."""

    def found() -> list[JsonObject]:
        return [one for one in switchboard.accepted if text in one["payload"].get("normalized_text", "")]

    await until(found, f"{text!r} is accepted")
    return found()[0]


async def sends(switchboard: ScriptedSwitchboard, to: JsonObject, text: str, *files: tuple[str, bytes]) -> str:
    """The outcome of an answer."""
    outbox_id = switchboard.reply(to, text, files)
    await answered(switchboard, outbox_id)
    return switchboard.outcome(outbox_id)


# Receiving -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_mention_is_one_message_in_whatever_order_it_comes(seed: int) -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        for number in range(5):
            slack.people.say(f"{MENTION} {number}", channel)
        await until(lambda: not slack.deliveries.waiting, "all events are acknowledged")
        await until(lambda: not switchboard.posted.events, "all are settled")
        assert [(one["payload"]["normalized_text"], one["control"]["addressed"]) for one in switchboard.accepted] == [
            (str(number), True) for number in range(5)
        ]

    played(story, seed=seed)


def test_a_thread_that_is_followed_and_its_root() -> None:
    """The root is told with the first message that is said to us; once we have written there, all are."""

    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        root = slack.people.say("shall we paint the roof?", channel)
        slack.people.say("not in winter", channel, thread=root["ts"])
        slack.people.say(f"{MENTION} what does it cost?", channel, thread=root["ts"])
        heard = await hears(switchboard, "what does it cost?")
        assert heard["payload"]["normalized_text"] == "shall we paint the roof?\n\nwhat does it cost?"
        [quoted, _] = heard["payload"]["passages"]
        assert (quoted["kind"], quoted["author"], quoted["refers_to"]) == ("quoted", "Ann", root["ts"])
        early = await hears(switchboard, "not in winter")
        assert (early["control"]["addressed"], early["control"]["ingestion_tier"]) == (False, "history")
        assert await sends(switchboard, heard, "100 EUR") == "sent"
        assert slack.sent[-1]["thread_ts"] == root["ts"]
        slack.people.say("and in red?", channel, thread=root["ts"])
        late = await hears(switchboard, "and in red?")
        assert (late["control"]["addressed"], late["payload"]["normalized_text"]) == (True, "and in red?")

    played(story)


def test_a_thread_is_not_followed_if_the_account_says_so() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        said = slack.people.say(f"{MENTION} hello", channel)
        await sends(switchboard, await hears(switchboard, "hello"), "good day")
        slack.people.say("lunch?", channel, thread=said["ts"])
        assert (await hears(switchboard, "lunch?"))["control"]["ingestion_tier"] == "history"

    played(story, follow_threads=False)


def test_names_stand_for_ids() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.people.person("U7", "Zoë")
        channel = slack.people.channel("roofs")
        for _ in range(3):
            slack.people.say(f"ask <@U7> in <#{channel.id}>, not <@U8>")
        await until(lambda: len(switchboard.accepted) == 3, "all are accepted")
        assert set(texts(switchboard.accepted)) == {"ask @Zoë in #roofs, not @U8"}
        assert switchboard.accepted[0]["sender"]["display_name"] == "Ann"
        asked = [call.arguments.word("user") for call in slack.calls_of("users.info")]
        assert sorted(asked) == [ANN, "U7", "U8"], "a name is asked for once"

    played(story)


def test_a_socket_that_answers_no_pings_is_replaced() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.freeze_sockets()
        await passes(60.0)
        slack.people.say("are you there?")
        await hears(switchboard, "are you there?")

    played(story)


def test_what_a_deaf_socket_has_lost_comes_first() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.people.say("before")
        await hears(switchboard, "before")
        [deaf] = slack.sockets
        slack.deafen_sockets()
        slack.people.say("lost")
        await passes(DEAF_S - 10.0)
        await slack.until(lambda: deaf not in slack.sockets and bool(slack.sockets))
        slack.people.say("at once")
        await hears(switchboard, "at once")
        await until(lambda: not slack.deliveries.waiting, "it is acknowledged")
        assert texts(switchboard.accepted) == ["before", "lost", "at once"]

    played(story)


@pytest.mark.parametrize("reason", ["warning", "refresh_requested"])
def test_the_next_socket_is_open_before_the_old_one_is_closed(reason: str) -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        [old] = slack.sockets
        await slack.disconnect_sockets(reason)
        await slack.until(lambda: len(slack.sockets) == 2)
        await slack.until(lambda: old not in slack.sockets)
        slack.people.say("still there?")
        await hears(switchboard, "still there?")
        assert len(slack.calls_of("users.conversations")) == 1, "nothing was missed"

    played(story)


def test_what_was_missed_is_fetched_when_slack_has_given_it_up() -> None:
    """In a direct chat, a channel, an old thread, a new one, and an edit; each once."""

    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        people, channel = slack.people, slack.people.channel()
        root = people.say(f"{MENTION} the first", channel)
        await sends(switchboard, await hears(switchboard, "the first"), "an answer")
        edited = people.say("before")
        await hears(switchboard, "before")
        await passes(3 * RETRIED_S)
        edited_late = people.say("just before")
        await hears(switchboard, "just before")
        SlackDriver(slack).cuts(2 * RETRIED_S)
        people.edit(edited_late, "just before that")
        people.edit(edited, "too old to be looked at")
        people.say("in the old thread", channel, thread=root["ts"])
        new = people.say(f"{MENTION} at the top", channel)
        people.say("in the new thread", channel, thread=new["ts"])
        people.say("directly")
        await passes(3 * RETRIED_S)
        for text in ("in the old thread", "at the top", "in the new thread", "directly", "just before that"):
            await hears(switchboard, text)
        heard = [one for one in texts(switchboard.accepted) if one]
        assert len(heard) == len(set(heard)) == 8, heard
        edits = [one for one in switchboard.accepted if one["event"].get("kind") == "edit"]
        assert [one["event"]["refers_to"] for one in edits] == [edited_late["ts"]]
        follow_up = await hears(switchboard, "in the old thread")
        assert follow_up["control"]["addressed"], "we have written in that thread"

    played(story)


def test_what_is_said_now_does_not_wait_for_what_was_missed() -> None:
    """Slack lets fifty conversations be asked in a minute, and there are more: those with news come first."""

    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channels = [slack.people.channel(f"c{number}") for number in range(120)]
        await passes(3 * RETRIED_S)
        SlackDriver(slack).cuts(2 * RETRIED_S)
        for channel in channels:
            slack.people.say(f"missed in {channel.name}", channel)
        slack.people.say("missed in private")
        await passes(2 * RETRIED_S + 60.0)
        await until(lambda: "missed in c40" in texts(switchboard.accepted), "some were fetched", more_s=60.0)
        slack.people.say("privately now")
        slack.people.say(f"{MENTION} now", channels[-1])
        await hears(switchboard, "privately now")
        assert len(switchboard.accepted) < 60
        await until(lambda: "now" in texts(switchboard.accepted), "the other, too", more_s=60.0)
        heard = texts(switchboard.accepted)
        assert heard[-30:].index("missed in c119") < heard[-30:].index("now")
        assert "missed in c118" not in heard
        await until(lambda: len(switchboard.accepted) == 123, "all are accepted", more_s=300.0)

    played(story, limits=True)


def test_an_error_of_slack_while_missed_messages_are_fetched_loses_none() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        root = slack.people.say(f"{MENTION} the first", channel)
        await hears(switchboard, "the first")
        SlackDriver(slack).cuts(2 * RETRIED_S)
        slack.people.say("in the thread", channel, thread=root["ts"])
        slack.people.say("at the top", channel)
        slack.spoil(
            "conversations.history", SlackError("internal_error"), Page(502), SlackError("ratelimited", retry_after=9)
        )
        slack.spoil("conversations.replies", SlackError("fatal_error"))
        await passes(3 * RETRIED_S)
        for text in ("in the thread", "at the top"):
            await hears(switchboard, text)

    played(story)


def test_a_token_that_is_revoked_is_a_failed_account() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.bot_tokens.clear()
        slack.cut_sockets()
        await passes(DEAF_S + 60.0)
        await until(lambda: switchboard.heartbeats[-1]["state"] == "failed", "it has failed")
        assert "does not accept the bot_token" in switchboard.heartbeats[-1]["error_message"]

    played(story)


def test_where_slack_refuses_replies_all_else_is_fetched() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        root = slack.people.say(f"{MENTION} the first", channel)
        await hears(switchboard, "the first")
        slack.refusals["conversations.replies"] = "missing_scope"
        SlackDriver(slack).cuts(2 * RETRIED_S)
        slack.people.say("lost", channel, thread=root["ts"])
        slack.people.say("found", channel)
        await passes(3 * RETRIED_S)
        await hears(switchboard, "found")
        assert switchboard.heartbeats[-1]["state"] == "healthy"

    played(story)


# Files ---------------------------------------------------------------------------------------------------------------


def unavailable(message: JsonObject) -> str:
    [attachment] = message["payload"]["attachments"]
    return str(attachment.get("unavailable"))


def test_a_page_to_sign_in_is_no_file() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.people.share(b"<html>mine</html>", "a.html", "text/html")
        await until(lambda: len(switchboard.accepted) == 1, "it is accepted")
        assert "storage_ref" in switchboard.accepted[0]["payload"]["attachments"][0]
        slack.scopes.discard("files:read")
        slack.people.share(b"\x89PNG", "a.png", "image/png")
        await until(lambda: len(switchboard.accepted) == 2, "it is accepted")
        assert "files:read" in unavailable(switchboard.accepted[1])
        await sends(switchboard, switchboard.accepted[1], "I cannot see it")
        await until(lambda: "files:read" in (switchboard.heartbeats[-1]["error_message"] or ""), "the account says so")

    played(story)


def test_a_token_goes_to_no_other_host() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        asked = list[str]()
        other = await asyncio.start_server(lambda _, __: asked.append("somebody"), "127.0.0.1", 0)
        async with other:
            url = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}/a.txt"
            about = slack.workspace.add_file(ANN, "a.txt", "text/plain", b"text", url_private_download=url).about
            slack.people.put({"user": ANN, "text": "", "subtype": "file_share", "files": [about]})
            await until(lambda: len(switchboard.accepted) == 1, "it is accepted")
            assert "not in Slack" in unavailable(switchboard.accepted[0])
            assert not asked

    played(story)


def test_a_file_of_another_workspace_is_looked_up_first() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.people.share(b"text", "a.txt", "text/plain", file_access="check_file_info")
        await until(lambda: bool(switchboard.accepted), "it is accepted")
        [attachment] = switchboard.accepted[0]["payload"]["attachments"]
        assert (attachment["filename"], attachment["size_bytes"], "storage_ref" in attachment) == ("a.txt", 4, True)

    played(story)


# Sending -------------------------------------------------------------------------------------------------------------


def test_a_part_is_found_by_its_key_where_its_answer_was_lost() -> None:
    """In a direct chat, and in a thread."""

    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        slack.people.say("hello")
        slack.people.say(f"{MENTION} in a thread", channel)
        for text in ("hello", "in a thread"):
            to = await hears(switchboard, text)
            await sends(switchboard, to, "the same words")
            slack.spoil("chat.postMessage", Cut())
            assert await sends(switchboard, to, "the same words") == "sent"
            slack.spoil("chat.postMessage", Cut(taken=False))
            assert await sends(switchboard, to, "other words") == "sent"
        marked = f"other words\n\n{REPEAT_NOTE}"
        assert list(map(as_read, slack.sent)) == ["the same words", "the same words", marked] * 2

    played(story)


def test_files_are_found_by_name_and_size_where_their_answer_was_lost() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.people.say("send me")
        to = await hears(switchboard, "send me")
        slack.spoil("files.completeUploadExternal", Cut())
        slack.spoil("upload", Cut())
        slack.spoil("files.getUploadURLExternal", Page(502))
        assert await sends(switchboard, to, "Here.", ("a.txt", b"aaa"), ("b.bin", b"b" * 70_000)) == "sent"
        assert [one.get("text") for one in slack.sent] == ["Here.", ""]
        assert [one["name"] for one in slack.sent[-1]["files"]] == ["a.txt", "b.bin"]

    played(story)


@pytest.mark.parametrize("fault", [None, SlackError("invalid_blocks"), SlackError("msg_blocks_too_long")])
def test_nothing_pings_and_what_cannot_be_shown_is_sent_plain(fault: SlackError | None) -> None:
    text = (
        f"**Hi** <@{ANN}>, <!channel>, <!subteam^S1>, @here: `<!here>` [<@{ANN}>](https://x.example) ann@here.example"
    )

    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.people.say("hello")
        to = await hears(switchboard, "hello")
        slack.spoil("chat.postMessage", *([fault] if fault else []))
        assert await sends(switchboard, to, text) == "sent"
        [sent] = slack.sent
        assert slack.pings == []
        assert "ann@here.example" in as_read(sent)
        shown = as_read(sent).replace("\u200b", "")
        assert f"<@{ANN}>, <!channel>, <!subteam^S1>, @here: " in shown
        assert ("**Hi**" in shown) == (fault is None)
        arguments = slack.calls_of("chat.postMessage")[-1].arguments
        assert (arguments.flag("unfurl_links"), arguments.flag("unfurl_media")) == (False, False)

    played(story)


def test_an_answer_leaves_a_thread_that_is_gone() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        said = slack.people.say(f"{MENTION} hello", channel)
        to = await hears(switchboard, "hello")
        slack.people.delete(said)
        assert await sends(switchboard, to, "an answer") == "sent"
        assert "thread_ts" not in slack.sent[-1]

    played(story)


@pytest.mark.parametrize(
    ("code", "why"),
    [("not_in_channel", "invite it there with /invite"), ("restricted_action", "does not let the app write")],
)
def test_a_channel_that_takes_nothing_is_blocked_in_words(code: str, why: str) -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        slack.people.say(f"{MENTION} hello", channel)
        to = await hears(switchboard, "hello")
        channel.posting = code
        assert await sends(switchboard, to, "an answer") == "failed"
        assert any(why in str(body) for body in switchboard.told)

    played(story)


CHOICES: Final = ((" Yes", "choice:yes"), ("No", "choice:no"))


def test_whoever_presses_a_button_is_told_and_it_becomes_another() -> None:
    """In a thread of a channel; what was written there stays."""

    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        said = slack.people.say(f"{MENTION} buy it", channel)
        asked = switchboard.reply(await hears(switchboard, "buy it"), "**May** I, <!channel>?", choices=CHOICES)
        await answered(switchboard, asked)
        before = slack.sent[-1]
        assert (before["blocks"][0]["text"], before["thread_ts"]) == ("**May** I, <\u200b!channel>?", said["ts"])
        slack.people.press(before, "choice:yes")
        press = await hears(switchboard, "choice:yes")
        assert (press["event"]["kind"], press["event"]["refers_to"]) == ("button", before["ts"])
        assert press["event"]["external_thread_id"] == f"{channel.id}:{said['ts']}"
        slack.spoil("chat.update", Cut())
        told = switchboard.reply(press, "Approved.", choices=(("Approved by Ann", "choice:done"),))
        await answered(switchboard, told)
        after = slack.sent[-1]
        assert (after["ts"], after["blocks"][0]) == (before["ts"], before["blocks"][0])
        assert [one["text"]["text"] for one in after["blocks"][1]["elements"]] == ["Approved by Ann"]
        assert {(one["user"], one["text"], one["thread_ts"]) for one in slack.whispers} == {
            (ANN, "Approved.", said["ts"])
        }
        assert len(slack.sent) == 1
        assert slack.pings == []

    played(story)


def test_a_press_that_cannot_be_answered_there_is_answered_by_a_message() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.people.say("buy it")
        await answered(switchboard, switchboard.reply(await hears(switchboard, "buy it"), "May I?", choices=CHOICES))
        slack.people.press(slack.sent[-1], "choice:no")
        press = await hears(switchboard, "choice:no")
        slack.refusals |= {"chat.postEphemeral": "user_not_in_channel", "chat.update": "cant_update_message"}
        await answered(switchboard, switchboard.reply(press, "Refused.", choices=()))
        assert slack.texts[1:] == ["Refused."]

    played(story)


def test_slack_shows_that_a_butler_works() -> None:
    async def story(slack: SlackServer) -> None:
        async with session_of(slack) as session:
            channel = slack.people.channel()
            said = slack.people.say("hello", channel)
            await session.typing({"channel": channel.id, "thread": said["ts"]})
            await session.typing({"channel": channel.id})
            slack.refusals["assistant.threads.setStatus"] = "missing_scope"
            await session.typing({"channel": channel.id, "thread": said["ts"]})
        assert [one["status"] for one in slack.statuses] == ["is thinking…"]

    in_no_time(with_slack(story))


async def with_slack(story: Callable[[SlackServer], Awaitable[None]]) -> None:
    async with SlackServer() as slack:
        await story(slack)


@asynccontextmanager
async def session_of(slack: SlackServer, **secrets: str) -> AsyncIterator[Any]:
    session = await MANIFEST.open(account_of(slack, **secrets))
    try:
        yield session
    finally:
        await session.close()


def account_of(slack: SlackServer, **secrets: str) -> Account:
    settings = MANIFEST.settings.model_validate({"api_url": slack.api_url})
    return Account("house", settings, SECRETS | secrets)


def test_empty_files_and_answers_to_nowhere_are_refused() -> None:
    async def nothing() -> AsyncIterator[bytes]:
        yield b""

    async def story(slack: SlackServer) -> None:
        async with session_of(slack) as session:
            files = (FileOut("a.txt", "text/plain", 0, nothing),)
            chat = slack.people.direct_chat().id
            assert isinstance(await session.send(Part(address={"channel": chat}, files=files), "k"), Refused)
            assert isinstance(await session.send(Part(address={}, text="x"), "k"), Refused)
            assert isinstance(await session.send(Part(address={"channel": chat}, text="x"), "k"), Sent)
            with pytest.raises(ValueError, match="where the file is"):
                [piece async for piece in session.fetch(FileIn(0, {}))]

    in_no_time(with_slack(story))


# Signing in ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("secrets", "spoil", "why"),
    [
        ({"app_token": BOT_TOKEN, "bot_token": APP_TOKEN}, None, "perhaps the two tokens are swapped"),
        (
            {"bot_token": "xoxb-wrong"},
            None,
            "Slack does not accept the bot_token .invalid_auth.: copy it again, under Install",
        ),
        ({"app_token": "xapp-wrong"}, None, "Slack does not accept the app_token .invalid_auth."),
        ({}, "scope chat:write", "the app lacks chat:write: add"),
        ({}, "scope files:write", "the app lacks files:write: add"),
        ({}, "app scope connections:write", "the app_token lacks the scope connections:write"),
        ({}, "link", "Socket Mode is off: switch it on"),
    ],
)
def test_what_is_wrong_is_said_before_an_account_is_added(secrets: dict[str, str], spoil: str | None, why: str) -> None:
    async def story(slack: SlackServer) -> None:
        match (spoil or "").split():
            case ["scope", scope]:
                slack.scopes.discard(scope)
            case ["app", "scope", scope]:
                slack.app_scopes.discard(scope)
            case ["link"]:
                await slack.disconnect_sockets("link_disabled")
        with pytest.raises(SignInRefused, match=why):
            await sign_in_account(MANIFEST, account_of(slack, **secrets))

    in_no_time(with_slack(story))


def test_the_account_is_the_bot_in_its_workspace() -> None:
    async def story(slack: SlackServer) -> None:
        identity = await sign_in_account(MANIFEST, account_of(slack))
        assert (identity.endpoint, identity.display_name) == ("T0HOUSE:U0BOT", "@house")
        assert MANIFEST.to_do is not None
        assert "/invite @house" in MANIFEST.to_do(account_of(slack), identity)

    in_no_time(with_slack(story))


def test_socket_mode_that_is_switched_off_is_a_failed_account() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        await slack.disconnect_sockets("link_disabled")
        await until(lambda: switchboard.heartbeats[-1]["state"] == "failed", "it has failed")
        assert "Socket Mode is off" in switchboard.heartbeats[-1]["error_message"]

    played(story)


def test_events_of_another_app_are_not_acknowledged() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.people.say("hello")
        payload = slack.deliveries.waiting[-1].payload
        await hears(switchboard, "hello")
        slack.put({**payload, "event_id": "Ev9", "authorizations": [{"is_bot": True, "user_id": "U0OTHER"}]})
        await until(lambda: switchboard.heartbeats[-1]["state"] == "failed", "it has failed")
        assert "another app" in switchboard.heartbeats[-1]["error_message"]
        assert [one["event_id"] for one in slack.deliveries.acknowledged].count("Ev9") == 0

    played(story)


def test_too_many_events_are_told() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.put({"type": "app_rate_limited", "team_id": "T0HOUSE", "minute_rate_limited": 1})
        slack.people.say("hello")
        await hears(switchboard, "hello")
        await until(lambda: _troubles(switchboard), "the account says so")

    def _troubles(switchboard: ScriptedSwitchboard) -> bool:
        return any("30,000" in (one["error_message"] or "") for one in switchboard.heartbeats)

    played(story)


def test_the_manifest_imports_no_client() -> None:
    code = (
        "import sys; from switchboard.connectors.slack.manifest import MANIFEST; "
        "assert not {'httpx2', 'websockets', 'slack_sdk'} & set(sys.modules), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

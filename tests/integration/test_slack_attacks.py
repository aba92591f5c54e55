"""The Slack package where people, Slack or proxies do their worst: nothing freezes, gets lost, comes twice or leaks."""

from __future__ import annotations

import time
from typing import Final

import pytest

from switchboard.domain.json_values import JsonObject
from switchboard.testing.connectors import in_no_time, passes
from switchboard.testing.connectors.expecting import answered
from switchboard.testing.connectors.running import connected, connector, listening, scripted, texts, until
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard
from switchboard.testing.slack import ANN, Cut, Page, SlackError, SlackServer
from tests.integration.test_slack import CHOICES, MENTION, RETRIED_S, hears, played, sends
from tests.slack_driver import SlackDriver, as_read

# What is looked up ----------------------------------------------------------------------------------------------------


async def threads_in(slack: SlackServer, switchboard: ScriptedSwitchboard, many: int) -> list[JsonObject]:
    """Messages at the top of a channel, which were heard."""
    channel = slack.people.channel()
    roots = [slack.people.say(f"root {number}.", channel) for number in range(many)]
    await hears(switchboard, f"root {many - 1}.")
    await until(lambda: not slack.deliveries.waiting, "all are acknowledged")
    return [{**one, "place": channel} for one in roots]


def test_how_missed_threads_began_is_not_asked_for_each() -> None:
    """It is in the history that was just fetched. The first messages of new threads are, and of old ones."""

    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        roots = await threads_in(slack, switchboard, 20)
        await passes(RETRIED_S)
        SlackDriver(slack).cuts(2 * RETRIED_S)
        roots += [{**slack.people.say("root 20.", roots[0]["place"]), "place": roots[0]["place"]}]
        for number, root in enumerate(roots):
            slack.people.say(f"{MENTION} missed {number}.", root["place"], thread=root["ts"])
        await passes(2 * RETRIED_S + 60.0)
        for number in range(21):
            heard = await hears(switchboard, f"missed {number}.")
            assert heard["payload"]["normalized_text"] == f"root {number}.\n\nmissed {number}."
        assert len(slack.calls_of("conversations.history")) <= 3

    played(story)


def test_mentions_in_many_old_threads_hold_up_nobody() -> None:
    """Slack says fifty times a minute how a thread began: the others are read without it."""

    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        roots = await threads_in(slack, switchboard, 80)
        for root in roots:
            slack.people.say(f"{MENTION} hi", root["place"], thread=root["ts"])
        await until(lambda: len(switchboard.accepted) == 160, "all are accepted")
        found = [one for one in texts(switchboard.accepted) if one.endswith(".\n\nhi")]
        assert 20 <= len(found) <= 50, found

    played(story, limits=True)


HIDDEN: Final = {"file_access": "check_file_info"}
"""Of the event of a file of Slack Connect, which does not say what it is."""


def shares_hidden(slack: SlackServer, text: str, many: int) -> None:
    """Ten files in each message of a channel."""
    channel = slack.people.channel()
    stored = [slack.workspace.add_file(ANN, f"{n}.txt", "text/plain", b"text", **HIDDEN) for n in range(many)]
    for start in range(0, many, 10):
        files = [{"id": one.about["id"], **HIDDEN} for one in stored[start : start + 10]]
        slack.people.put({"user": ANN, "text": text, "subtype": "file_share", "files": files}, channel)


@pytest.mark.parametrize(("mention", "most"), [("", 0), (MENTION, 100)])
def test_files_of_slack_connect_hold_up_nobody(mention: str, most: int) -> None:
    """Slack says a hundred times a minute what a file is."""

    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.people.say("before")
        await hears(switchboard, "before")
        shares_hidden(slack, mention, 120)
        slack.people.say("somebody else")
        await until(lambda: "somebody else" in texts(switchboard.accepted), "somebody else is heard")
        assert len([one for one in slack.calls_of("files.info") if not one.error]) == most

    played(story, limits=True)


def test_a_file_of_which_slack_says_nothing_now_is_looked_up_later() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.spoil("files.info", SlackError("ratelimited", retry_after=9), SlackError("internal_error"))
        shares_hidden(slack, f"{MENTION} look", 10)
        files = (await hears(switchboard, "look"))["payload"]["attachments"]
        assert [(one["size_bytes"], "storage_ref" in one) for one in files] == [(4, True)] * 10

    played(story)


def test_many_mentions_in_one_message_are_not_all_looked_up() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.people.say(" ".join(f"<@U{number:09}>" for number in range(1000)))
        await hears(switchboard, "@U000000999")
        assert len(slack.calls_of("users.info")) <= 20

    played(story)


@pytest.mark.parametrize("many", [20, 101])
def test_many_files_make_no_message_unreadable(many: int) -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        about = [slack.workspace.add_file(ANN, f"{n}.txt", "text/plain", b"x").about for n in range(many)]
        slack.people.put({"user": ANN, "text": "look", "subtype": "file_share", "files": about})
        assert len((await hears(switchboard, "look"))["payload"]["attachments"]) == 20

    played(story)


# What is missed -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [SlackError("team_added_to_org"), Page(403, "<html>blocked</html>")])
@pytest.mark.parametrize("method", ["conversations.history", "conversations.replies"])
def test_a_failure_that_may_pass_loses_nothing(method: str, fault: SlackError | Page) -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        root = slack.people.say(f"{MENTION} the first", channel)
        await hears(switchboard, "the first")
        SlackDriver(slack).cuts(2 * RETRIED_S)
        slack.people.say("missed", channel, thread=root["ts"] if method.endswith("replies") else "")
        slack.spoil(method, fault)
        await passes(3 * RETRIED_S)
        await hears(switchboard, "missed")

    played(story)


def test_without_the_header_of_scopes_the_history_is_asked() -> None:
    """A proxy may drop it."""

    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.people.say("the first")
        await hears(switchboard, "the first")
        SlackDriver(slack).cuts(2 * RETRIED_S)
        slack.people.say("missed")
        await passes(3 * RETRIED_S)
        await hears(switchboard, "missed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SlackServer, "_scope_headers", lambda *_: {})
        played(story)


def test_a_clock_that_was_ahead_does_not_hide_the_history() -> None:
    """As of a machine that learns the time only after it has started."""

    async def play() -> None:
        async with SlackServer() as slack:
            configured, switchboard, real = SlackDriver(slack).configured, scripted(), time.time
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(time, "time", lambda: real() + 30 * 86_400.0)
                async with connector(configured, switchboard):
                    await until(lambda: slack.sockets, "a socket is open")
                    slack.people.say("the first")
                    await hears(switchboard, "the first")
                    await passes(60.0)
            slack.people.say("missed")
            await passes(3 * RETRIED_S)
            async with connector(configured, switchboard):
                await passes(60.0)
                await hears(switchboard, "missed")

    in_no_time(play())


def test_what_was_said_before_the_app_was_invited_is_not_read() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.people.say("hello")
        await hears(switchboard, "hello")
        board = slack.people.channel("board", kind="group")
        slack.people.remove_app(board)
        secret = slack.people.say("the confidential plan", board)
        slack.people.say("must not leak", board, thread=secret["ts"])
        SlackDriver(slack).cuts(2 * RETRIED_S)
        slack.people.invite_app(board)
        slack.people.say("welcome", board)
        slack.people.say("let us begin", board, thread=secret["ts"])
        await passes(3 * RETRIED_S)
        for text in ("welcome", "let us begin"):
            await hears(switchboard, text)
        assert not [one for one in texts(switchboard.accepted) if "confidential" in one or "leak" in one]

    played(story)


# What does not concern us, and what nobody may know -------------------------------------------------------------------


@pytest.mark.parametrize("is_bot", [True, False])
def test_an_event_of_another_workspace_is_left_out(is_bot: bool) -> None:
    """One app in two workspaces of an organization: each of its sockets gets the events of both."""

    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        slack.people.say("ours")
        await hears(switchboard, "ours")
        installed = {"team_id": "T0OTHER", "user_id": "U0OTHERBOT", "is_bot": is_bot}
        told = next(one for one in slack.deliveries.acknowledged if one["event"].get("text") == "ours")
        event = {**told["event"], "ts": slack.workspace.next_ts(), "text": "theirs"}
        slack.put({**told, "event": event, "event_id": "Ev1", "team_id": "T0OTHER", "authorizations": [installed]})
        slack.people.say("again ours")
        await hears(switchboard, "again ours")
        assert texts(switchboard.accepted) == ["ours", "again ours"]
        assert not [one for one in switchboard.heartbeats if one["state"] == "failed"]

    played(story)


def test_a_message_of_slack_connect_that_is_fetched_again_is_known() -> None:
    """Its event names the other workspace; the history names none."""

    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel("shared")
        said = slack.people.say(f"{MENTION} pay the bill", channel)
        await hears(switchboard, "pay the bill")
        told = next(one for one in slack.deliveries.acknowledged if one["event"]["ts"] == said["ts"])
        event = {**told["event"], "ts": slack.workspace.next_ts(), "text": f"{MENTION} of others"}
        channel.messages[event["ts"]] = {key: one for key, one in event.items() if key != "channel"}
        slack.put({**told, "event_id": "Ev1", "team_id": "T0THEM", "event": event})
        await hears(switchboard, "of others")
        SlackDriver(slack).cuts(90.0)
        await passes(300.0)
        slack.people.say("after", channel)
        await hears(switchboard, "after")
        assert len({one["event"]["external_event_id"] for one in switchboard.accepted}) == 3

    played(story)


def test_secrets_of_slack_are_neither_kept_nor_in_the_log() -> None:
    async def play() -> None:
        async with SlackServer() as slack:
            with listening() as said:
                async with connected(SlackDriver(slack).configured) as switchboard:
                    await until(lambda: slack.sockets, "a socket is open")
                    slack.people.say("a private word")
                    to = await hears(switchboard, "a private word")
                    await answered(switchboard, switchboard.reply(to, "May I?", choices=CHOICES))
                    slack.people.press(slack.sent[-1], CHOICES[0][1])
                    press = await hears(switchboard, CHOICES[0][1])
                lines = said()
            for event in (to, press):
                raw = event["payload"]["raw"]
                assert not {"token", "response_url", "trigger_id"} & set(raw), raw
            assert not [one for one in lines if "GET /link/" in one or "private word" in one]

    in_no_time(play())


# Sockets --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["https://wss-primary.slack.com/link", "", "wss://", "wss://[::1/x"])
def test_an_odd_url_of_a_socket_ends_no_process(url: str) -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        issue, odd = SlackServer._issue_ticket, [url]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(slack, "_issue_ticket", lambda given: {"url": odd.pop()} if odd else issue(slack, given))
            slack.cut_sockets()
            await passes(60.0)
        slack.people.say("hello")
        await hears(switchboard, "hello")
        assert not odd

    played(story)


def test_an_account_without_a_socket_is_not_healthy() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        await passes(60.0)
        slack.spoil("apps.connections.open", SlackError("ratelimited", retry_after=3000))
        slack.cut_sockets()
        await passes(90.0)
        assert any("Slack opens no socket" in (one["error_message"] or "") for one in switchboard.heartbeats)

    played(story)


# Sending --------------------------------------------------------------------------------------------------------------


def test_a_file_of_the_same_name_elsewhere_is_another() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        for text in ("alpha", "beta"):
            slack.people.say(f"{MENTION} {text}", channel)
        alpha, beta = [await hears(switchboard, text) for text in ("alpha", "beta")]
        assert await sends(switchboard, alpha, "", ("report.csv", b"1,2,3")) == "sent"
        slack.spoil("files.completeUploadExternal", Cut(taken=False))
        assert await sends(switchboard, beta, "", ("report.csv", b"4,5,6")) == "uncertain"
        slack.spoil("files.completeUploadExternal", Cut())
        assert await sends(switchboard, beta, "", ("report.csv", b"4,5,6")) == "sent"

    played(story)


@pytest.mark.parametrize("code", ["missing_scope", "thread_not_found"])
def test_where_replies_are_refused_a_part_is_uncertain(code: str) -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        slack.people.say(f"{MENTION} hello", channel)
        to = await hears(switchboard, "hello")
        slack.refusals["conversations.replies"] = code
        slack.spoil("chat.postMessage", Cut(taken=False))
        first, second = switchboard.reply(to, "the answer"), switchboard.reply(to, "the next")
        await answered(switchboard, first)
        await answered(switchboard, second)
        assert [as_read(one).partition("\n")[0] for one in slack.sent] == ["the answer", "the next"]

    played(story)


def test_a_part_that_left_a_thread_is_found_beside_it() -> None:
    """Since the message with which the thread began is gone."""

    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        said = slack.people.say(f"{MENTION} hello", channel)
        to = await hears(switchboard, "hello")
        slack.people.delete(said)
        gone = SlackError("thread_not_found")
        slack.spoil("chat.postMessage", gone, gone, Cut())
        assert await sends(switchboard, to, "the answer") == "sent"
        assert slack.texts == ["the answer"]

    played(story)


def test_an_edit_that_takes_the_mention_away_stays_in_its_thread() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        channel = slack.people.channel()
        said = slack.people.say(f"{MENTION} the first", channel)
        first = await hears(switchboard, "the first")
        slack.people.edit(said, "never mind")
        second = await hears(switchboard, "never mind")
        assert first["event"]["external_thread_id"] == second["event"]["external_thread_id"]

    played(story)


def test_the_name_of_a_private_channel_is_not_told() -> None:
    async def story(slack: SlackServer, switchboard: ScriptedSwitchboard) -> None:
        hidden = slack.people.channel("merger", kind="group")
        slack.people.say(f"what is <#{hidden.id}>?")
        assert (await hears(switchboard, "what is"))["payload"]["normalized_text"] == f"what is #{hidden.id}?"

    played(story)

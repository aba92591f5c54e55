"""The strict Slack server: what it gives, refuses, and does wrong on purpose; also as foreign clients see it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, Final

import httpx2
import pytest
import websockets
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from switchboard.domain.json_values import JsonObject
from switchboard.testing.connectors.clock import in_no_time
from switchboard.testing.slack import (
    ANN,
    APP_TOKEN,
    BOT,
    BOT_TOKEN,
    BOT_USER,
    TEAM,
    Cut,
    Hang,
    MovableClock,
    Page,
    SlackError,
    SlackServer,
)

Frames = websockets.ClientConnection

MENTION: Final = f"<@{BOT_USER}>"


class App:
    """An app that does nothing by itself."""

    def __init__(self, slack: SlackServer, client: httpx2.AsyncClient) -> None:
        self._slack, self.client = slack, client

    async def __call__(self, method: str, *, token: object = BOT_TOKEN, **arguments: object) -> JsonObject:
        """The whole answer to a form, a failure too."""
        form = {name: value if isinstance(value, str) else json.dumps(value) for name, value in arguments.items()}
        answer = await self.client.post(f"{self._slack.api_url}{method}", data=form, headers=_bearer(str(token)))
        found: JsonObject = answer.json()
        return found

    async def socket(self) -> Frames:
        """A socket whose first frame has been read."""
        opened = await self("apps.connections.open", token=APP_TOKEN)
        frames = await websockets.connect(opened["url"], proxy=None)
        assert (await read_frame(frames))["type"] == "hello"
        return frames


@asynccontextmanager
async def app_of(slack: SlackServer) -> AsyncIterator[App]:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        yield App(slack, client)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


async def read_frame(frames: Frames) -> JsonObject:
    found: JsonObject = json.loads(await frames.recv())
    return found


async def read_event(frames: Frames) -> JsonObject:
    """The event of the next frame, which is acknowledged."""
    frame = await read_frame(frames)
    await frames.send(json.dumps({"envelope_id": frame["envelope_id"]}))
    found: JsonObject = frame["payload"]["event"]
    return found


def texts(messages: Sequence[JsonObject]) -> list[str]:
    return [one["text"] for one in messages]


# Socket Mode ----------------------------------------------------------------------------------------------------------


async def test_an_event_comes_again_until_it_is_acknowledged_then_is_lost() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        frames = await app.socket()
        slack.people.say("hello")
        found = [await read_frame(frames)]
        for seconds in (3, 63, 303):
            slack.skip(seconds)
            found.append(await read_frame(frames))
        assert [one["retry_attempt"] for one in found] == [0, 1, 2, 3]
        assert [one["retry_reason"] for one in found] == ["", "timeout", "timeout", "timeout"]
        assert len({one["envelope_id"] for one in found}) == 4
        assert len({one["payload"]["event_id"] for one in found}) == 1
        slack.skip(3)
        await slack.until(lambda: bool(slack.deliveries.lost))
        await frames.send(json.dumps({"envelope_id": found[-1]["envelope_id"]}))
        slack.people.say("another")
        assert (await read_event(frames))["text"] == "another"
        await slack.until(lambda: len(slack.deliveries.acknowledged) == 1)
        await frames.close()


async def test_what_is_sent_while_no_socket_is_open_comes_a_minute_later() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        slack.people.say("nobody hears it")
        await slack.until(lambda: [one.attempt for one in slack.deliveries.waiting] == [2])
        frames = await app.socket()
        slack.skip(60)
        frame = await read_frame(frames)
        assert (frame["payload"]["event"]["text"], frame["retry_attempt"]) == ("nobody hears it", 2)
        await frames.close()


async def test_a_deaf_socket_answers_pings_and_a_frozen_one_does_not() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        frames = await app.socket()
        slack.deafen_sockets()
        await (await frames.ping())
        slack.people.say("hello")
        await slack.until(lambda: slack.deliveries.waiting[0].is_sent)
        other = await app.socket()
        slack.freeze_sockets()
        pong = await other.ping()
        slack.cut_sockets()
        with pytest.raises(websockets.ConnectionClosed):
            await pong
        with pytest.raises(websockets.ConnectionClosed):
            await frames.recv()
        await slack.until(lambda: not slack.sockets)


async def test_what_is_said_at_the_moment_of_a_cut_comes_over_the_next_socket() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        await app.socket()
        slack.cut_sockets()
        slack.people.say("hello")
        await slack.until(lambda: not slack.sockets)
        frames = await app.socket()
        slack.skip(70)
        assert (await read_frame(frames))["payload"]["event"]["text"] == "hello"


async def test_sockets_are_told_before_they_are_closed() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        old = await app.socket()
        for reason in ("warning", "refresh_requested"):
            await slack.disconnect_sockets(reason)
            assert await read_frame(old) == {
                "type": "disconnect",
                "reason": reason,
                "debug_info": {"host": "applink-1"},
            }
        new = await app.socket()
        await slack.close_sockets()
        for frames in (old, new):
            with pytest.raises(websockets.ConnectionClosed):
                await frames.recv()
        await slack.disconnect_sockets("link_disabled")
        assert (await app("apps.connections.open", token=APP_TOKEN))["error"] == "forbidden_team"


async def test_tickets_are_used_once_and_there_are_ten_sockets() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        url = (await app("apps.connections.open", token=APP_TOKEN))["url"]
        sockets = [await websockets.connect(url, proxy=None)]
        with pytest.raises(websockets.InvalidStatus):
            await websockets.connect(url, proxy=None)
        stale = (await app("apps.connections.open", token=APP_TOKEN))["url"]
        slack.skip(31)
        with pytest.raises(websockets.InvalidStatus):
            await websockets.connect(stale, proxy=None)
        sockets += [await app.socket() for _ in range(9)]
        url = (await app("apps.connections.open", token=APP_TOKEN))["url"]
        refused = await websockets.connect(url, proxy=None)
        assert (await read_frame(refused))["reason"] == "too_many_websockets"
        for frames in (*sockets, refused):
            await frames.close()


def test_in_virtual_time_it_comes_again_by_itself() -> None:
    async def read_all() -> list[int]:
        async with SlackServer() as slack, app_of(slack) as app:
            frames = await app.socket()
            slack.people.say("hello")
            found = [(await read_frame(frames))["retry_attempt"] for _ in range(4)]
            frames.transport.abort()
            return found

    assert in_no_time(read_all()) == [0, 1, 2, 3]


async def test_events_of_any_kind_are_sent_and_a_server_opens_again() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        frames = await app.socket()
        async with slack.closed():
            with pytest.raises(websockets.ConnectionClosed):
                await frames.recv()
            with pytest.raises(httpx2.TransportError):
                await app("auth.test")
        frames = await app.socket()
        slack.put({"type": "app_rate_limited", "minute_rate_limited": 1_800_000_000})
        assert (await read_frame(frames))["payload"]["type"] == "app_rate_limited"
        await frames.close()


# Events ---------------------------------------------------------------------------------------------------------------


async def test_a_mention_is_two_events_with_one_ts_in_either_order() -> None:
    orders = set()
    for seed in range(6):
        async with SlackServer(seed=seed) as slack, app_of(slack) as app:
            frames = await app.socket()
            said = slack.people.say(f"{MENTION} hi", slack.people.channel())
            found = [await read_event(frames) for _ in range(2)]
            orders.add(tuple(one["type"] for one in found))
            assert {one["ts"] for one in found} == {said["ts"]}
            assert {one["text"] for one in found} == {f"{MENTION} hi"}
            assert [one.get("channel_type") for one in found if one["type"] == "app_mention"] == [None]
            await frames.close()
    assert orders == {("message", "app_mention"), ("app_mention", "message")}


async def test_what_people_do_is_told() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        frames, people = await app.socket(), slack.people
        channel = people.channel()
        root = people.say("see https://example.org/", channel)
        people.preview(root)
        people.edit(root, "see there")
        people.say("a reply", channel, thread=root["ts"])
        people.broadcast("for all", channel, root["ts"])
        people.react(root)
        people.share(b"%PDF-", "bill.pdf", "application/pdf")
        people.say("by Slack Connect", channel, user=people.person("W0EVE", "Eve", team="T0ELSE"))
        people.put({"subtype": "bot_message", "bot_id": "B0OTHER", "text": "beep"}, channel)
        gone = people.say("oops", channel)
        people.delete(gone)
        found = [await read_event(frames) for _ in range(12)]
        await frames.close()
    shown, preview, edit, reply, wide, twice, reaction, file, foreign, bot, _, deleted = found
    assert preview["message"]["text"] == preview["previous_message"]["text"] == shown["text"]
    assert "edited" not in preview["message"]
    assert (edit["message"]["text"], edit["message"]["edited"]["user"]) == ("see there", ANN)
    assert (reply["thread_ts"], reply["parent_user_id"]) == (root["ts"], ANN)
    assert (wide["subtype"], wide["root"]["ts"]) == ("thread_broadcast", root["ts"])
    assert (twice["subtype"], twice["message"]["ts"]) == ("message_changed", wide["ts"])
    assert (reaction["type"], reaction["item"]["ts"]) == ("reaction_added", root["ts"])
    assert (file["subtype"], file["files"][0]["size"], file["channel_type"]) == ("file_share", 5, "im")
    assert foreign["user_team"] == "T0ELSE"
    assert (bot["bot_id"], "user" in bot) == ("B0OTHER", False)
    assert (deleted["subtype"], deleted["deleted_ts"]) == ("message_deleted", gone["ts"])


async def test_nothing_is_told_of_channels_without_the_app_or_the_scope() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        frames, people = await app.socket(), slack.people
        left, closed = people.channel("left"), people.channel("closed", kind="group")
        people.remove_app(left)
        slack.scopes.discard("groups:history")
        people.say("unheard", left)
        people.say("unheard", closed)
        people.say("heard")
        assert (await read_event(frames))["text"] == "heard"
        await frames.close()


# Messages of the app --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "no_text"),
        ({"text": "x", "markdown_text": "x"}, "markdown_text_conflict"),
        ({"text": "x" * 40_001}, "msg_too_long"),
        ({"markdown_text": "x" * 12_001}, "msg_too_long"),
        ({"markdown_text": "&" * 2_641}, "msg_blocks_too_long"),
        ({"blocks": [{"type": "markdown", "text": "x" * 6_001}] * 2}, "invalid_blocks"),
        ({"blocks": "["}, "invalid_blocks"),
        ({"text": "x", "channel": "C0NOTHING"}, "channel_not_found"),
        ({"text": "x", "thread_ts": "1.000001"}, "thread_not_found"),
        ({"text": "x", "metadata": {"event_type": "x"}}, "invalid_metadata_format"),
    ],
)
async def test_what_slack_refuses_is_refused(arguments: JsonObject, code: str) -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        refused = await app("chat.postMessage", **{"channel": slack.people.channel().id, **arguments})
    assert (refused["ok"], refused["error"]) == (False, code)
    assert slack.sent == []


@pytest.mark.parametrize("longest", [{"text": "x" * 40_000}, {"markdown_text": "&amp;" * 2_400}])
async def test_the_longest_text_is_posted(longest: JsonObject) -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        assert (await app("chat.postMessage", channel=slack.people.channel().id, **longest))["ok"]


async def test_places_that_refuse_messages() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        left, old, strict = (slack.people.channel(name) for name in ("left", "old", "strict"))
        slack.people.remove_app(left)
        old.is_archived, strict.posting = True, "restricted_action"
        codes = [(await app("chat.postMessage", channel=one.id, text="x"))["error"] for one in (left, old, strict)]
    assert codes == ["not_in_channel", "is_archived", "restricted_action"]


async def test_whom_a_message_pings_is_on_record() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        place = slack.people.channel().id
        for text in ("&lt;!channel&gt; @ann", f"<@{ANN}> and <!here>", "<!subteam^S0ALL|@all> <https://a.org>"):
            assert (await app("chat.postMessage", channel=place, markdown_text=text))["ok"]
        assert slack.pings == [f"@{ANN}", "!here", "!subteam^S0ALL"]


async def test_the_app_hears_its_own_messages_and_sets_its_status() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        frames = await app.socket()
        said = slack.people.say("hello")
        assert (await read_event(frames))["text"] == "hello"
        place = slack.people.direct_chat().id
        status = {"channel_id": place, "status": "is thinking"}
        assert (await app("assistant.threads.setStatus", thread_ts=said["ts"], **status))["ok"]
        assert not (await app("assistant.threads.setStatus", **status))["ok"]
        posted = await app("chat.postMessage", channel=ANN, text="hi", thread_ts=said["ts"])
        own = await read_event(frames)
        assert (own["ts"], own["bot_id"], own["thread_ts"]) == (posted["ts"], BOT, said["ts"])
        assert [one["status"] for one in slack.statuses] == ["is thinking"]
        assert [(one["channel"], one["text"]) for one in slack.sent] == [(place, "hi")]
        await frames.close()


# History --------------------------------------------------------------------------------------------------------------


async def test_history_has_no_replies_and_its_pages_go_both_ways() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        channel = slack.people.channel()
        said = [slack.people.say(f"m{n}", channel) for n in range(5)]
        slack.people.say("a reply", channel, thread=said[0]["ts"])
        slack.people.broadcast("for all", channel, said[0]["ts"])

        async def pages(**arguments: object) -> list[list[str]]:
            found, cursor = list[list[str]](), ""
            while not found or cursor:
                more = {"cursor": cursor} if cursor else {}
                page = await app("conversations.history", channel=channel.id, limit=2, **arguments, **more)
                assert page["has_more"] == ("response_metadata" in page)
                found.append(texts(page["messages"]))
                cursor = page.get("response_metadata", {}).get("next_cursor", "")
            return found

        assert await pages() == [["for all", "m4"], ["m3", "m2"], ["m1", "m0"]]
        assert await pages(oldest=said[1]["ts"]) == [["m3", "m2"], ["for all", "m4"]]
        assert await pages(oldest=said[3]["ts"], inclusive="true") == [["m4", "m3"], ["for all"]]
        assert await pages(latest=said[1]["ts"], inclusive="1") == [["m1", "m0"]]
        first = await app("conversations.history", channel=channel.id, limit=3)
        slack.people.delete(said[2])
        cursor = first["response_metadata"]["next_cursor"]
        rest = await app("conversations.history", channel=channel.id, limit=3, cursor=cursor)
        assert texts(rest["messages"]) == ["m1", "m0"]
        refused = [
            await app("conversations.history", channel=channel.id, **one)
            for one in ({"limit": 1000}, {"cursor": "none"}, {"oldest": "soon"})
        ]
        assert [one["error"] for one in refused] == ["invalid_limit", "invalid_cursor", "invalid_ts_oldest"]


async def test_replies_begin_with_the_root_and_may_be_refused() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        channel = slack.people.channel()
        root = slack.people.say("root", channel)
        replies = [slack.people.say(f"r{n}", channel, thread=root["ts"]) for n in range(3)]
        thread = {"channel": channel.id, "ts": root["ts"]}
        first = await app("conversations.replies", **thread, limit=2)
        assert texts(first["messages"]) == ["root", "r0", "r1"]
        cursor = first["response_metadata"]["next_cursor"]
        assert texts((await app("conversations.replies", **thread, limit=2, cursor=cursor))["messages"]) == [
            "root",
            "r2",
        ]
        newer = await app("conversations.replies", **thread, oldest=replies[0]["ts"])
        assert texts(newer["messages"]) == ["root", "r1", "r2"]
        assert newer["messages"][0]["reply_count"] == 3
        slack.refusals["conversations.replies"] = "missing_scope"
        assert (await app("conversations.replies", **thread))["error"] == "missing_scope"


async def test_metadata_are_shown_only_when_asked_for() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        place = slack.people.channel().id
        metadata = {"event_type": "switchboard_part", "event_payload": {"key": "k1"}}
        posted = await app("chat.postMessage", channel=place, text="hi", metadata=metadata)
        assert "metadata" not in posted["message"]
        [bare] = (await app("conversations.history", channel=place))["messages"]
        [whole] = (await app("conversations.history", channel=place, include_all_metadata="true"))["messages"]
        thread = {"channel": place, "ts": posted["ts"]}
        [same] = (await app("conversations.replies", **thread, include_all_metadata="true"))["messages"]
        assert bare["metadata"]["event_payload"] == {}
        assert whole["metadata"] == same["metadata"] == metadata


async def test_conversations_and_people_are_told() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        one, other = slack.people.channel("one"), slack.people.channel("other")
        direct, closed = slack.people.direct_chat(), slack.people.channel("closed", kind="group")
        slack.people.remove_app(other)
        every = {"types": "public_channel,private_channel,im,mpim"}
        first = await app("users.conversations", **every, limit=2)
        rest = await app("users.conversations", **every, cursor=first["response_metadata"]["next_cursor"])
        assert [one["id"] for one in [*first["channels"], *rest["channels"]]] == [one.id, direct.id, closed.id]
        assert (await app("users.info", user=ANN))["user"]["profile"]["display_name"] == "Ann"
        assert (await app("users.info", user="U0NOBODY"))["error"] == "user_not_found"
        slack.scopes.discard("im:read")
        refused = await app("users.conversations", **every)
        assert (refused["error"], refused["needed"]) == ("missing_scope", "im:read")


# Files ----------------------------------------------------------------------------------------------------------------


async def test_a_file_is_uploaded_in_three_steps_and_seen_after_the_last() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        place = slack.people.channel()
        assert (await app("files.getUploadURLExternal", filename="a.txt", length=0))["error"] == "invalid_arguments"
        begun = await app("files.getUploadURLExternal", filename="a.txt", length=5)
        shared = {"files": [{"id": begun["file_id"], "title": "A"}], "channel_id": place.id}
        assert (await app("files.completeUploadExternal", **shared))["error"] == "file_not_found"
        assert (await app.client.post(begun["upload_url"], content=b"longer than said")).status_code == 400
        assert (await app.client.post(begun["upload_url"], content=b"bytes")).status_code == 200
        assert (await app("files.list"))["files"] == []
        assert (await app("files.info", file=begun["file_id"]))["error"] == "file_not_found"
        assert (await app("files.completeUploadExternal", **shared))["files"] == [
            {"id": begun["file_id"], "title": "A"}
        ]
        assert (await app("files.completeUploadExternal", **shared))["error"] == "file_not_found"
        listed = await app("files.list", user=BOT_USER, channel=place.id)
        assert [(one["name"], one["size"]) for one in listed["files"]] == [("a.txt", 5)]
        later = await app("files.list", ts_from=str(int(slack.clock()) + 100))
        assert (later["files"], later["paging"]["total"]) == ([], 0)
        assert [one["files"][0]["id"] for one in slack.sent] == [begun["file_id"]]


async def test_without_the_scope_a_download_is_a_page_to_sign_in() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        message = slack.people.share(b"bill", "bill.pdf", "application/pdf", file_access="check_file_info")
        [shown] = message["files"]
        assert "url_private_download" not in shown
        url = (await app("files.info", file=shown["id"]))["file"]["url_private_download"]
        found = await app.client.get(url, headers=_bearer(BOT_TOKEN))
        assert (found.content, found.headers["content-type"]) == (b"bill", "application/pdf")
        slack.scopes.discard("files:read")
        for token in (BOT_TOKEN, ""):
            page = await app.client.get(url, headers=_bearer(token))
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")


# What is refused, and what goes wrong on purpose ----------------------------------------------------------------------


async def test_tokens_and_scopes_are_checked() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        answer = await app.client.get(f"{slack.api_url}auth.test", headers=_bearer(BOT_TOKEN))
        assert set(answer.headers["x-oauth-scopes"].split(",")) == slack.scopes
        assert (answer.json()["team_id"], answer.json()["user_id"]) == (TEAM, BOT_USER)
        assert (await app("auth.test", token=""))["error"] == "not_authed"
        assert (await app("auth.test", token="xoxb-old"))["error"] == "invalid_auth"
        assert (await app("auth.test", token=APP_TOKEN))["error"] == "not_allowed_token_type"
        assert (await app("apps.connections.open"))["error"] == "not_allowed_token_type"
        assert (await app("chat.sayHello"))["error"] == "unknown_method"
        slack.refusals["auth.test"] = "account_inactive"
        assert (await app("auth.test"))["error"] == "account_inactive"
        slack.scopes.discard("chat:write")
        refused = await app("chat.postMessage", channel=ANN, text="x")
        assert (refused["error"], refused["needed"]) == ("missing_scope", "chat:write")


async def test_methods_that_read_take_no_json() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        place = slack.people.channel().id
        for method, error in (("chat.postMessage", None), ("conversations.history", "channel_not_found")):
            body = {"channel": place, "text": "x"}
            answer = await app.client.post(f"{slack.api_url}{method}", json=body, headers=_bearer(BOT_TOKEN))
            assert answer.json().get("error") == error


async def test_limits_are_those_of_slack() -> None:
    clock = MovableClock(1_800_000_000.0)
    async with SlackServer(limits=True, clock=clock) as slack, app_of(slack) as app:
        one, other = slack.people.channel("one").id, slack.people.channel("other").id
        post = f"{slack.api_url}chat.postMessage"
        for place, status in ((one, 200), (one, 429), (other, 200)):
            answer = await app.client.post(post, data={"channel": place, "text": "x"}, headers=_bearer(BOT_TOKEN))
            assert answer.status_code == status
            assert answer.headers.get("retry-after") == ("1" if status == 429 else None)
        clock.move(1.0)
        assert (await app("chat.postMessage", channel=one, text="x"))["ok"]
        found = [(await app("conversations.history", channel=one))["ok"] for _ in range(51)]
        assert found == [True] * 50 + [False]


async def test_faults_happen_once_each_in_their_order() -> None:
    async with SlackServer() as slack, app_of(slack) as app:
        place = slack.people.channel().id
        faults = (SlackError("ratelimited", retry_after=30), Page(502), Cut(taken=False), Cut(), Hang(taken=True))
        slack.spoil("chat.postMessage", *faults)
        assert (await app("chat.postMessage", channel=place, text="a"))["error"] == "ratelimited"
        with pytest.raises(ValueError, match="Expecting value"):
            await app("chat.postMessage", channel=place, text="b")
        for text in ("c", "d"):
            with pytest.raises(httpx2.TransportError):
                await app("chat.postMessage", channel=place, text=text)
        hanging = asyncio.create_task(app("chat.postMessage", channel=place, text="e"))
        await slack.until(lambda: slack.texts == ["d", "e"])
        hanging.cancel()
        assert [call.error for call in slack.calls_of("chat.postMessage")] == ["ratelimited", None, None, None]
        slack.spoil("upload", Cut())
        begun = await app("files.getUploadURLExternal", filename="a.txt", length=1)
        with pytest.raises(httpx2.TransportError):
            await app.client.post(begun["upload_url"], content=b"x")


# Foreign clients ------------------------------------------------------------------------------------------------------


async def test_slack_sdk_understands_the_web_api() -> None:
    async with SlackServer() as slack:
        sdk = AsyncWebClient(BOT_TOKEN, base_url=slack.api_url)
        who = await sdk.auth_test()
        assert (who["user_id"], "chat:write" in who.headers["x-oauth-scopes"]) == (BOT_USER, True)
        channel = slack.people.channel()
        root = slack.people.say("root", channel)
        metadata = {"event_type": "part", "event_payload": {"key": "k"}}
        posted = await sdk.chat_postMessage(
            channel=channel.id, markdown_text="**hi**", thread_ts=root["ts"], metadata=metadata, unfurl_links=False
        )
        assert posted["message"]["thread_ts"] == root["ts"]
        uploaded = await sdk.files_upload_v2(channel=channel.id, filename="a.txt", content="paid", title="A")
        assert (await sdk.files_info(file=uploaded["file"]["id"]))["file"]["size"] == 4
        replies = await sdk.conversations_replies(channel=channel.id, ts=root["ts"], include_all_metadata=True)
        assert replies["messages"][1]["metadata"] == metadata
        pages = [page["messages"] async for page in await sdk.conversations_history(channel=channel.id, limit=1)]
        assert [texts(one) for one in pages] == [[""], ["root"]]
        [listed] = (await sdk.users_conversations(types="public_channel"))["channels"]
        assert listed["id"] == channel.id
        assert (await sdk.users_info(user=ANN))["user"]["real_name"] == "Ann"
        slack.spoil("chat.postMessage", SlackError("ratelimited", retry_after=7))
        with pytest.raises(SlackApiError) as error:
            await sdk.chat_postMessage(channel=channel.id, text="x")
        assert (error.value.response.status_code, error.value.response.headers["Retry-After"]) == (429, "7")
        with pytest.raises(SlackApiError, match="msg_too_long"):
            await sdk.chat_postMessage(channel=channel.id, markdown_text="x" * 12_001)


async def test_slack_sdk_receives_acknowledges_and_reconnects() -> None:
    async with SlackServer() as slack:
        web = AsyncWebClient(base_url=slack.api_url)
        client = SocketModeClient(APP_TOKEN, web_client=web, ping_interval=60)
        heard: asyncio.Queue[SocketModeRequest] = asyncio.Queue()

        async def hear(_: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
            await heard.put(request)

        client.socket_mode_request_listeners.append(hear)
        connect: Callable[[], Awaitable[None]] = client.connect
        close: Callable[[], Awaitable[None]] = client.close
        await connect()
        slack.people.say("hello")
        first = await heard.get()
        slack.skip(3)
        again = await heard.get()
        assert (first.payload, again.retry_attempt, again.retry_reason) == (again.payload, 1, "timeout")
        await client.send_socket_mode_response(SocketModeResponse(again.envelope_id))
        await slack.until(lambda: not slack.deliveries.waiting)
        await slack.disconnect_sockets("refresh_requested")
        await slack.until(lambda: len(slack.calls_of("apps.connections.open")) == 2 and len(slack.sockets) == 1)
        slack.people.say("on the new socket")
        assert (await heard.get()).payload["event"]["text"] == "on the new socket"
        await close()


async def test_bolt_answers_a_mention() -> None:
    async with SlackServer() as slack:
        app = AsyncApp(client=AsyncWebClient(BOT_TOKEN, base_url=slack.api_url))

        async def answer(event: dict[str, Any], say: Any) -> None:
            await say("pong", thread_ts=event["ts"])

        app.event("app_mention")(answer)
        app.event("message")(_ignore)
        handler = AsyncSocketModeHandler(app, APP_TOKEN, web_client=AsyncWebClient(base_url=slack.api_url))
        connect: Callable[[], Awaitable[None]] = handler.connect_async
        close: Callable[[], Awaitable[None]] = handler.close_async
        await connect()
        channel = slack.people.channel()
        said = slack.people.say(f"{MENTION} ping", channel)
        await slack.until(lambda: bool(slack.sent) and len(slack.deliveries.acknowledged) == 3)
        assert [(one["text"], one["thread_ts"]) for one in slack.sent] == [("pong", said["ts"])]
        await close()


async def test_bolt_hears_who_presses_a_button() -> None:
    async with SlackServer() as slack:
        app = AsyncApp(client=AsyncWebClient(BOT_TOKEN, base_url=slack.api_url))

        async def pressed(ack: Any, body: JsonObject, client: AsyncWebClient) -> None:
            await ack()
            place, ts = body["channel"]["id"], body["message"]["ts"]
            await client.chat_update(channel=place, ts=ts, text="done", blocks=[])
            await client.chat_postEphemeral(channel=place, user=body["user"]["id"], text=body["actions"][0]["value"])

        app.action("yes")(pressed)
        app.event("message")(_ignore)
        handler = AsyncSocketModeHandler(app, APP_TOKEN, web_client=AsyncWebClient(base_url=slack.api_url))
        connect: Callable[[], Awaitable[None]] = handler.connect_async
        close: Callable[[], Awaitable[None]] = handler.close_async
        await connect()
        button = {"type": "button", "action_id": "yes", "value": "v1", "text": {"type": "plain_text", "text": "Yes"}}
        client = AsyncWebClient(BOT_TOKEN, base_url=slack.api_url)
        chat = slack.people.direct_chat()
        await client.chat_postMessage(channel=chat.id, text="?", blocks=[{"type": "actions", "elements": [button]}])
        slack.people.press(slack.sent[0], "v1")
        await slack.until(lambda: bool(slack.whispers))
        assert slack.whispers == [{"channel": chat.id, "user": ANN, "thread_ts": "", "text": "v1"}]
        assert slack.texts == ["done"]
        await close()


@pytest.mark.parametrize(
    "button",
    [
        {"text": {"type": "plain_text", "text": "x" * 76}},
        {"text": {"type": "mrkdwn", "text": "Yes"}},
        {"value": "x" * 2001},
        {"action_id": ""},
        {"type": "carousel"},
    ],
)
async def test_buttons_that_slack_refuses(button: JsonObject) -> None:
    right = {"type": "button", "action_id": "a", "value": "v", "text": {"type": "plain_text", "text": "Yes"}}
    async with SlackServer() as slack, app_of(slack) as app:
        chat = slack.people.direct_chat().id
        for elements in ([right | button], [right, right], []):
            blocks = [{"type": "actions", "elements": elements}]
            assert (await app("chat.postMessage", channel=chat, blocks=blocks))["error"] == "invalid_blocks"
        assert (await app("chat.update", channel=chat, ts="1.2", text="x"))["error"] == "message_not_found"
        said = slack.people.say("mine")
        assert (await app("chat.update", channel=chat, ts=said["ts"], text="x"))["error"] == "cant_update_message"
        answer = await app("chat.postEphemeral", channel=chat, user="U0NOBODY", text="x")
        assert answer["error"] == "user_not_in_channel"


async def test_a_press_that_nobody_acknowledges_is_lost_at_once() -> None:
    button = {"type": "button", "action_id": "a", "value": "v", "text": {"type": "plain_text", "text": "Yes"}}
    async with SlackServer() as slack, app_of(slack) as app:
        chat = slack.people.direct_chat().id
        await app("chat.postMessage", channel=chat, blocks=[{"type": "actions", "elements": [button]}])
        slack.deliveries.waiting.clear()
        press = slack.people.press(slack.sent[0], "v")
        await slack.until(lambda: press in slack.deliveries.lost)


async def _ignore() -> None:
    """The app hears messages, and does nothing."""


def test_time_passes_only_as_it_is_moved() -> None:
    clock = MovableClock(100.0)
    assert clock() == 100.0
    clock.move(60)
    assert clock() == 160.0


async def test_no_two_messages_have_one_ts() -> None:
    async with SlackServer(clock=MovableClock(1_800_000_000.0)) as slack:
        found = [slack.people.say("x")["ts"] for _ in range(50)]
    assert all(one < other for one, other in pairwise(found))

"""The strict Bot API server: what it gives, refuses, and does wrong on purpose; also as a foreign client sees it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import httpx2
import pytest
import telebot
import telegram
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from telebot import asyncio_helper
from telebot.async_telebot import AsyncTeleBot

from switchboard.domain.json_values import JsonObject
from switchboard.testing.bot_api import ANN, BOT, TOKEN, BotApi, Cut, Hang, Page, Status
from switchboard.testing.loopback import Loopback
from tests.bot_api import Bot, bot_of

ANNS: Final[int] = ANN["id"]


def texts(updates: list[JsonObject]) -> list[str]:
    return [one["message"]["text"] for one in updates]


# Updates --------------------------------------------------------------------------------------------------------------


async def test_updates_come_again_until_a_later_offset_confirms_them() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        for n in range(3):
            api.people.say(f"m{n}")
        first = await bot.updates()
        assert texts(first) == ["m0", "m1", "m2"]
        assert await bot.updates(offset=0) == first
        assert texts(await bot.updates(offset=first[1]["update_id"] + 1)) == ["m2"]
        assert texts(await bot.updates()) == ["m2"]
        assert texts(await bot.updates(limit=1)) == ["m2"]
        assert await bot.updates(offset=first[2]["update_id"] + 1) == []


async def test_a_limit_leaves_the_rest_for_the_next_call() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        for n in range(120):
            api.people.say(f"m{n}")
        assert texts(await bot.updates(limit=2)) == ["m0", "m1"]
        assert len(await bot.updates()) == 100


async def test_a_long_poll_returns_when_somebody_writes() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        poll = asyncio.create_task(bot.updates(timeout=50))
        await api.until(lambda: api.polling)
        api.people.say("late")
        assert texts(await poll) == ["late"]


async def test_a_poll_that_is_given_up_ends_and_takes_nothing() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        poll = asyncio.create_task(bot.updates(timeout=50))
        await api.until(lambda: api.polling)
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        api.people.say("still there")
        assert texts(await bot.updates()) == ["still there"]


async def test_a_second_poller_ends_the_first() -> None:
    async with BotApi() as api, bot_of(api) as bot, bot_of(api) as other:
        first = asyncio.create_task(bot("getUpdates", timeout=50))
        await api.until(lambda: api.polling)
        second = asyncio.create_task(other.updates(timeout=50))
        refused = await first
        assert (refused["error_code"], "other getUpdates" in refused["description"]) == (409, True)
        api.people.say("to the second")
        assert texts(await second) == ["to the second"]


async def test_only_kinds_that_were_asked_for_come_and_that_is_remembered() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        assert await bot.updates(allowed_updates=["edited_message"]) == []
        said = api.people.say("hello")
        api.people.edit(said, "hello!")
        assert [list(one)[1] for one in await bot.updates()] == ["edited_message"]
        assert [list(one)[1] for one in await bot.updates(allowed_updates=["message"])] == ["edited_message"]


async def test_what_people_do_is_told() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        people = api.people
        forum = people.group(title="House")
        thread = people.topic(forum)
        people.say("in the garden", forum, topic=thread, reply_to=people.say("first", forum))
        photos = people.album([b"1", b"22"], "two")
        people.voice()
        people.document(b"%PDF-", "bill.pdf", "application/pdf")
        people.block()
        group = people.group(-55, kind="group")
        people.migrate(group)
        sent = (await bot("sendMessage", chat_id=forum.id, text="Which?"))["result"]
        people.press(sent, "yes")
        updates = await bot.updates()
    messages = [one["message"] for one in updates if "message" in one]
    assert messages[0]["forum_topic_created"]["name"] == "Garden"
    assert messages[2]["message_thread_id"] == thread
    assert messages[2]["reply_to_message"]["text"] == "first"
    assert len({one["media_group_id"] for one in photos}) == 1
    assert [one["photo"][-1]["file_size"] for one in photos] == [1, 2]
    assert [one.get("migrate_to_chat_id", one.get("migrate_from_chat_id")) for one in messages[-2:]] == [
        -100777888,
        -55,
    ]
    assert [one["my_chat_member"]["new_chat_member"]["status"] for one in updates if "my_chat_member" in one] == [
        "kicked"
    ]
    assert [one["callback_query"]["data"] for one in updates if "callback_query" in one] == ["yes"]


# Webhooks -------------------------------------------------------------------------------------------------------------


async def test_a_webhook_gets_each_update_until_it_takes_it_and_ends_polling() -> None:
    taken: list[tuple[str | None, Any]] = []
    answers = iter([500, 200, 200])

    async def hook(request: Request) -> Response:
        taken.append(
            (request.headers.get("X-Telegram-Bot-Api-Secret-Token"), (await request.json())["message"]["text"])
        )
        return Response(status_code=next(answers))

    ours = Loopback(Starlette(routes=[Route("/hook", hook, methods=["POST"])]))
    async with BotApi() as api, bot_of(api) as bot, ours:
        api.people.say("one")
        api.people.say("two")
        hooked = f"{ours.url}/hook"
        assert (await bot("setWebhook", url=hooked, secret_token="s3cret"))["ok"]
        assert "webhook is active" in (await bot("getUpdates"))["description"]
        assert (await bot("getWebhookInfo"))["result"]["url"] == hooked
        await api.until(lambda: not api.world.updates)
        assert taken == [("s3cret", "one"), ("s3cret", "one"), ("s3cret", "two")]
        await bot("deleteWebhook")
        assert (await bot("getWebhookInfo"))["result"]["url"] == ""
        assert await bot.updates() == []


# Messages of the bot --------------------------------------------------------------------------------------------------


async def test_a_message_is_sent_in_a_topic_as_an_answer() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        forum = api.people.group()
        thread = api.people.topic(forum)
        said = api.people.say("How are you?", forum, topic=thread)
        bold = {"type": "bold", "offset": 0, "length": 4}
        answer = {"message_id": said["message_id"]}
        sent = await bot(
            "sendMessage",
            chat_id=forum.id,
            text="Well 😀",
            entities=[bold],
            message_thread_id=thread,
            reply_parameters=answer,
        )
    assert sent["result"]["reply_to_message"]["text"] == "How are you?"
    assert (sent["result"]["message_thread_id"], sent["result"]["entities"]) == (thread, [bold])
    assert api.sent == [sent["result"]]
    assert api.texts == ["Well 😀"]


@pytest.mark.parametrize(
    ("params", "code", "words"),
    [
        ({"text": ""}, 400, "message text is empty"),
        ({"text": " \n"}, 400, "message text is empty"),
        ({"text": "x" * 4097}, 400, "message is too long"),
        ({"text": "😀" * 2049}, 400, "message is too long"),
        ({"chat_id": 7, "text": "x"}, 400, "chat not found"),
        ({"chat_id": None, "text": "x"}, 400, "chat_id is empty"),
        ({"text": "x", "message_thread_id": 5}, 400, "message thread not found"),
        ({"text": "x", "reply_parameters": {"message_id": 999}}, 400, "message to be replied not found"),
        ({"text": "x", "entities": [{"type": "bold", "offset": 0, "length": 2}]}, 400, "ends after the end"),
        (
            {"text": "😀", "entities": [{"type": "bold", "offset": 1, "length": 1}]},
            400,
            "in a middle of a UTF-16 symbol",
        ),
        ({"text": "x", "entities": [{"type": "loud", "offset": 0, "length": 1}]}, 400, "unsupported type"),
        ({"text": "x", "entities": [{"type": "text_link", "offset": 0, "length": 1}]}, 400, "url is needed"),
        ({"text": "x", "entities": "["}, 400, "can't parse entities"),
        ({"text": "x", "parse_mode": "HTML"}, 400, "unsupported parse_mode"),
    ],
)
async def test_what_telegram_refuses_is_refused(params: JsonObject, code: int, words: str) -> None:
    async with BotApi() as api, bot_of(api) as bot:
        api.people.say("hello")
        refused = await bot("sendMessage", **{"chat_id": ANNS, **params})
    assert (refused["error_code"], words in refused["description"]) == (code, True), refused
    assert api.sent == []


async def test_the_longest_text_is_sent() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        api.people.say("hello")
        assert (await bot("sendMessage", chat_id=ANNS, text="😀" * 2048))["ok"]


async def test_those_who_blocked_or_removed_the_bot_get_nothing() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        group = api.people.group()
        api.people.block()
        api.people.kick(group)
        assert (await bot("sendMessage", chat_id=ANNS, text="x"))[
            "description"
        ] == "Forbidden: bot was blocked by the user"
        assert (await bot("sendMessage", chat_id=group.id, text="x"))["error_code"] == 403
        api.people.unblock()
        assert (await bot("sendMessage", chat_id=ANNS, text="x"))["ok"]


async def test_a_group_that_became_a_supergroup_names_it() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        old = api.people.group(-5, kind="group")
        new = api.people.migrate(old)
        refused = await bot("sendMessage", chat_id=old.id, text="x")
        assert (refused["error_code"], refused["parameters"]) == (400, {"migrate_to_chat_id": new.id})
        assert (await bot("sendMessage", chat_id=new.id, text="x"))["ok"]


async def test_limits_are_those_of_telegram() -> None:
    now = [1000.0]
    async with BotApi(limits=True, clock=lambda: now[0]) as api, bot_of(api) as bot:
        group = api.people.group()
        api.people.say("hello")
        for _ in range(20):
            assert (await bot("sendMessage", chat_id=group.id, text="x"))["ok"]
            now[0] += 1
        refused = await bot("sendMessage", chat_id=group.id, text="too many")
        assert refused["parameters"] == {"retry_after": 40}
        assert refused["description"] == "Too Many Requests: retry after 40"
        assert (await bot("sendMessage", chat_id=ANNS, text="x"))["ok"]
        assert (await bot("sendMessage", chat_id=ANNS, text="too soon"))["parameters"] == {"retry_after": 1}
        now[0] += 40
        assert (await bot("sendMessage", chat_id=group.id, text="x"))["ok"]


async def test_actions_and_edits() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        said = api.people.say("hello")
        assert (await bot("sendChatAction", chat_id=ANNS, action="typing"))["result"] is True
        assert (await bot("sendChatAction", chat_id=ANNS, action="dancing"))["error_code"] == 400
        sent = (await bot("sendMessage", chat_id=ANNS, text="one"))["result"]
        which = {"chat_id": ANNS, "message_id": sent["message_id"]}
        assert (await bot("editMessageText", **which, text="two"))["result"]["text"] == "two"
        assert "not modified" in (await bot("editMessageText", **which, text="two"))["description"]
        which = {"chat_id": ANNS, "message_id": said["message_id"]}
        assert "can't be edited" in (await bot("editMessageText", **which, text="no"))["description"]


def row(*buttons: JsonObject) -> JsonObject:
    return {"inline_keyboard": [list(buttons)]}


def button(text: object = "Yes", data: object = "y") -> JsonObject:
    return {"text": text, "callback_data": data}


@pytest.mark.parametrize(
    ("markup", "words"),
    [
        (row(button(data="x" * 65)), "BUTTON_DATA_INVALID"),
        (row(button(data="ä" * 33)), "BUTTON_DATA_INVALID"),
        (row(button(data="")), "BUTTON_DATA_INVALID"),
        (row(button(text="")), "must be non-empty"),
        (row(button(text=7)), "must be of type String"),
        (row(*[button()] * 9), "reply markup is too long"),
        ({"inline_keyboard": [[button()]] * 101}, "reply markup is too long"),
        ({"inline_keyboard": "no"}, "can't parse reply keyboard markup"),
    ],
)
async def test_buttons_that_telegram_refuses_are_refused(markup: JsonObject, words: str) -> None:
    async with BotApi() as api, bot_of(api) as bot:
        api.people.say("hello")
        refused = await bot("sendMessage", chat_id=ANNS, text="Well?", reply_markup=markup)
    assert words in refused["description"]
    assert api.sent == []


async def test_a_press_is_answered_once_and_soon_and_buttons_are_edited() -> None:
    now = [1000.0]
    async with BotApi(clock=lambda: now[0]) as api, bot_of(api) as bot:
        said = api.people.say("hello")
        sent = (await bot("sendMessage", chat_id=ANNS, text="Well?", reply_markup=row(button(data="y" * 64))))["result"]
        early, late = (api.people.press(api.sent[0], "y" * 64) for _ in range(2))
        [one, other] = [found["callback_query"] for found in (await bot.updates(offset=-2))]
        assert (one["data"], one["message"]["reply_markup"]) == ("y" * 64, row(button(data="y" * 64)))
        long = await bot("answerCallbackQuery", callback_query_id=one["id"], text="x" * 201)
        assert "MESSAGE_TOO_LONG" in long["description"]
        assert (await bot("answerCallbackQuery", callback_query_id=one["id"], text="Done"))["result"] is True
        again = await bot("answerCallbackQuery", callback_query_id=one["id"])
        now[0] += 3600
        old = await bot("answerCallbackQuery", callback_query_id=other["id"])
        unknown = await bot("answerCallbackQuery", callback_query_id="nobody's")
        assert all("query is too old" in refused["description"] for refused in (again, old, unknown))
        assert (early.toast, late.toast) == ("Done", None)
        which = {"chat_id": ANNS, "message_id": sent["message_id"]}
        edited = (await bot("editMessageReplyMarkup", **which, reply_markup=row(button("Done"))))["result"]
        assert (edited["reply_markup"], edited["text"]) == (row(button("Done")), "Well?")
        same = await bot("editMessageReplyMarkup", **which, reply_markup=row(button("Done")))
        assert "not modified" in same["description"]
        assert "reply_markup" not in (await bot("editMessageReplyMarkup", **which))["result"]
        foreign = await bot("editMessageReplyMarkup", chat_id=ANNS, message_id=said["message_id"])
        gone = await bot("editMessageReplyMarkup", chat_id=ANNS, message_id=99)
        assert "can't be edited" in foreign["description"]
        assert "not found" in gone["description"]


async def test_drafts_are_shown_in_private_chats_until_a_message_comes() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        api.people.say("hello")
        group = api.people.group()
        for params, words in (
            ({"chat_id": group.id, "draft_id": 7, "text": "no"}, "TEXTDRAFT_PEER_INVALID"),
            ({"chat_id": ANNS, "text": "no"}, "TEXTDRAFT_ID_INVALID"),
            ({"chat_id": ANNS, "draft_id": 7, "text": "x" * 4097}, "too long"),
        ):
            assert words in (await bot("sendMessageDraft", **params))["description"]
        for text in ("", "On", "On Tuesday"):
            assert (await bot("sendMessageDraft", chat_id=ANNS, draft_id=7, text=text))["result"] is True
            assert api.world.drafts == {ANNS: (7, text)}
        assert api.sent == []
        await bot("sendMessage", chat_id=ANNS, text="On Tuesday.")
        assert (api.world.drafts, api.texts) == ({}, ["On Tuesday."])


# Files ----------------------------------------------------------------------------------------------------------------


async def test_files_go_both_ways() -> None:
    async with BotApi() as api, httpx2.AsyncClient(trust_env=False) as client:
        bot = Bot(client, api.url)
        got = api.people.document(b"bill", "bill.pdf", "application/pdf")["document"]
        path = (await bot("getFile", file_id=got["file_id"]))["result"]["file_path"]
        assert (await client.get(f"{api.url}/file/bot{TOKEN}/{path}")).content == b"bill"
        files = {"document": ("answer.txt", b"paid", "text/plain")}
        sent = (
            await client.post(f"{bot.base}/sendDocument", data={"chat_id": str(ANNS), "caption": "c"}, files=files)
        ).json()
        again = await bot("sendDocument", chat_id=ANNS, document=sent["result"]["document"]["file_id"])
        assert again["result"]["document"]["file_size"] == 4
        media = [{"type": "photo", "media": f"attach://p{n}"} for n in range(2)]
        photos = {f"p{n}": (f"{n}.jpg", b"\xff\xd8\xff", "image/jpeg") for n in range(2)}
        form = {"chat_id": str(ANNS), "media": json.dumps(media)}
        album = (await client.post(f"{bot.base}/sendMediaGroup", data=form, files=photos)).json()["result"]
        assert len({one["media_group_id"] for one in album}) == 1
    assert api.texts == ["c", "", "", ""]


async def test_files_that_are_too_large_or_empty_are_refused() -> None:
    async with BotApi() as api, httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        bot = Bot(client, api.url)
        large = api.people.document(bytes(20 * 1024 * 1024 + 1), "a.bin", "application/octet-stream")["document"]
        assert (await bot("getFile", file_id=large["file_id"]))["description"] == "Bad Request: file is too big"
        assert (await bot("getFile", file_id="nothing"))["error_code"] == 400

        async def upload(data: bytes, **more: str) -> JsonObject:
            form = {"chat_id": str(ANNS), **more}
            answer = await client.post(f"{bot.base}/sendDocument", data=form, files={"document": ("a", data)})
            found: JsonObject = answer.json()
            return found

        assert (await upload(bytes(50 * 1024 * 1024 + 1)))["error_code"] == 413
        assert (await upload(b""))["description"] == "Bad Request: file must be non-empty"
        assert (await upload(b"x", caption="x" * 1025))["description"] == "Bad Request: message caption is too long"


# What goes wrong on purpose -------------------------------------------------------------------------------------------


async def test_faults_happen_once_each_in_their_order() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        api.people.say("hello")
        api.spoil("sendMessage", Status(500, "Internal Server Error"), Cut(taken=False), Cut(taken=True))
        assert (await bot("sendMessage", chat_id=ANNS, text="a"))["error_code"] == 500
        for text in ("b", "c"):
            with pytest.raises(httpx2.TransportError):
                await bot("sendMessage", chat_id=ANNS, text=text)
        assert (await bot("sendMessage", chat_id=ANNS, text="d"))["ok"]
        assert api.texts == ["c", "d"]
        assert [call.params.word("text") for call in api.called("sendMessage")] == ["a", "b", "c", "d"]


async def test_hanging_pages_and_closing() -> None:
    async with BotApi() as api, httpx2.AsyncClient(trust_env=False) as client:
        bot = Bot(client, api.url)
        api.people.say("hello")
        api.spoil("sendMessage", Hang(taken=True), Page(502))
        hanging = asyncio.create_task(bot("sendMessage", chat_id=ANNS, text="a"))
        await api.until(lambda: api.texts == ["a"])
        hanging.cancel()
        assert (await client.post(f"{bot.base}/sendMessage", json={})).status_code == 502
        async with api.closed():
            with pytest.raises(httpx2.TransportError):
                await bot("getMe")
        assert (await bot("getMe"))["result"] == BOT


async def test_unknown_tokens_and_methods() -> None:
    async with BotApi() as api, bot_of(api) as bot:
        assert (await bot("sendHello"))["error_code"] == 404
        api.tokens.clear()
        assert await bot("getMe") == {"ok": False, "error_code": 401, "description": "Unauthorized"}


# A foreign client -----------------------------------------------------------------------------------------------------


async def test_python_telegram_bot_understands_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTB_TIMEDELTA", "true")  # its way of the future, without which it warns
    async with BotApi() as api, telegram.Bot(TOKEN, f"{api.url}/bot", f"{api.url}/file/bot") as bot:
        forum = api.people.group()
        thread = api.people.topic(forum)
        said = api.people.say("hello", forum, topic=thread)
        api.people.edit(said, "hello!")
        api.people.album([b"1", b"2"], "two")
        voice = api.people.voice(b"OggS-voice")
        api.people.migrate(api.people.group(-5, kind="group"))
        assert bot.username == "house_bot"
        sent = await bot.send_message(forum.id, "hi", message_thread_id=thread, reply_to_message_id=said["message_id"])
        api.people.press(sent.to_dict(), "yes")
        await bot.send_chat_action(ANNS, "typing")
        assert await bot.send_message_draft(ANNS, 7, "so far")
        assert await bot.answer_callback_query(next(iter(api.world.presses)), "yes!")
        keyboard = telegram.InlineKeyboardMarkup([[telegram.InlineKeyboardButton("yes", callback_data="y")]])
        assert (await bot.edit_message_reply_markup(forum.id, sent.message_id, reply_markup=keyboard)) is not True
        assert (await bot.edit_message_text("hi!", forum.id, sent.message_id)) is not True
        got = await bot.get_file(voice["voice"]["file_id"])
        assert bytes(await got.download_as_bytearray()) == b"OggS-voice"
        document = await bot.send_document(ANNS, b"paid", filename="answer.txt", caption="c")
        assert document.document is not None
        photos = [telegram.InputMediaPhoto(b"\xff\xd8\xff"), telegram.InputMediaPhoto(b"\xff\xd8\xff")]
        assert len(await bot.send_media_group(ANNS, photos)) == 2
        updates = await bot.get_updates(timeout=0, allowed_updates=["message"])
        assert [one.update_id - updates[0].update_id for one in updates] == list(range(9))
        shown, edited = updates[1].message, updates[2].message
        assert shown is not None
        assert (shown.text, shown.message_thread_id, edited) == ("hello", thread, None)
        with pytest.raises(telegram.error.ChatMigrated):
            await bot.send_message(-5, "x")
        with pytest.raises(telegram.error.BadRequest, match="Message is too long"):
            await bot.send_message(ANNS, "x" * 4097)
        api.spoil("sendMessage", Status(429, "Too Many Requests: retry after 7", {"retry_after": 7}))
        with pytest.raises(telegram.error.RetryAfter):
            await bot.send_message(ANNS, "x")
        api.people.block()
        with pytest.raises(telegram.error.Forbidden):
            await bot.send_message(ANNS, "x")
        await bot.set_webhook("http://127.0.0.1:9/hook")
        with pytest.raises(telegram.error.Conflict):
            await bot.get_updates()


async def test_python_telegram_bot_reads_posts_their_copies_and_checklists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTB_TIMEDELTA", "true")
    async with BotApi() as api, telegram.Bot(TOKEN, f"{api.url}/bot") as bot:
        channel, group = api.people.channel(), api.people.group()
        api.people.post(channel, "news", group=group)
        api.people.send({"checklist": {"title": "Trip", "tasks": [{"id": 1, "text": "Hotel"}]}})
        post, copy, listed = await bot.get_updates(timeout=0)
    assert post.channel_post is not None
    assert copy.message is not None
    assert copy.message.is_automatic_forward
    assert isinstance(copy.message.forward_origin, telegram.MessageOriginChannel)
    assert copy.message.forward_origin.message_id == post.channel_post.message_id
    assert listed.message is not None
    assert listed.message.checklist is not None
    assert [task.text for task in listed.message.checklist.tasks] == ["Hotel"]


async def test_telebot_understands_it_too(telebots: Callable[[BotApi], AsyncTeleBot]) -> None:
    async with BotApi() as api:
        bot = telebots(api)
        forum = api.people.group()
        thread = api.people.topic(forum)
        said = api.people.say("hello", forum, topic=thread)
        api.people.edit(said, "hello!")
        api.people.album([b"1", b"2"], "two")
        voice = api.people.voice(b"OggS-voice")
        assert (await bot.get_me()).username == "house_bot"
        # A long poll gives updates again until a later offset confirms them, and ends when somebody writes.
        first = await bot.get_updates(timeout=1)
        assert [one.update_id for one in await bot.get_updates(timeout=1)] == [one.update_id for one in first]
        shown, edited = first[1].message, first[2].edited_message
        assert shown is not None
        assert edited is not None
        assert (shown.text, shown.message_thread_id, edited.text) == ("hello", thread, "hello!")
        poll = asyncio.create_task(bot.get_updates(offset=first[-1].update_id + 1, timeout=50))
        await api.until(lambda: api.polling)
        api.people.say("late")
        [late] = await poll
        assert late.message is not None
        assert late.message.text == "late"
        # What it sends: in a topic, as an answer, edited, with a file, as an album.
        answer = telebot.types.ReplyParameters(said["message_id"])
        sent = await bot.send_message(forum.id, "hi", message_thread_id=thread, reply_parameters=answer)
        assert sent.reply_to_message is not None
        await bot.edit_message_text("hi!", forum.id, sent.message_id)
        await bot.send_chat_action(ANNS, "typing")
        got = await bot.get_file(voice["voice"]["file_id"])
        assert await bot.download_file(got.file_path) == b"OggS-voice"
        document = await bot.send_document(ANNS, ("answer.txt", b"paid"), caption="c")
        assert (document.caption, document.document is not None) == ("c", True)
        one, two = (telebot.types.InputFile(io.BytesIO(b"\xff\xd8\xff")) for _ in range(2))
        album = [telebot.types.InputMediaPhoto(one), telebot.types.InputMediaPhoto(two)]
        assert len(await bot.send_media_group(ANNS, [*album])) == 2
        # What is refused, and how.
        assert await refused(bot.send_message(ANNS, "x" * 4097)) == (400, "Bad Request: message is too long", None)
        api.spoil("sendMessage", Status(429, "Too Many Requests: retry after 7", {"retry_after": 7}))
        assert await refused(bot.send_message(ANNS, "x")) == (429, "Too Many Requests: retry after 7", 7)
        api.people.block()
        assert (await refused(bot.send_message(ANNS, "x")))[0] == 403
        poll = asyncio.create_task(bot.get_updates(offset=late.update_id + 2, timeout=50))
        await api.until(lambda: api.polling)
        async with bot_of(api) as other:
            await other("getUpdates", timeout=0)
        assert (await refused(poll))[0] == 409


@pytest.fixture
async def telebots(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[BotApi], AsyncTeleBot]]:
    """Makes a bot of a server, of whose address the module has a variable."""
    made = list[AsyncTeleBot]()

    def make(api: BotApi) -> AsyncTeleBot:
        monkeypatch.setattr(asyncio_helper, "API_URL", f"{api.url}/bot{{0}}/{{1}}")
        monkeypatch.setattr(asyncio_helper, "FILE_URL", f"{api.url}/file/bot{{0}}/{{1}}")
        made.append(AsyncTeleBot(TOKEN))
        return made[-1]

    yield make
    for bot in made:
        close: Callable[[], Awaitable[None]] = bot.close_session
        await close()


async def refused(call: Awaitable[object]) -> tuple[int, str, int | None]:
    """The code, the description, and after how many seconds it may be tried again."""
    with pytest.raises(asyncio_helper.ApiTelegramException) as error:
        await call
    told = error.value.result_json
    return error.value.error_code, error.value.description, told.get("parameters", {}).get("retry_after")

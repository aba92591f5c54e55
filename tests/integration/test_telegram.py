"""The Telegram package against the strict Bot API server: what is received, and what becomes of a part."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Final

import pytest

from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.intake import Handling
from switchboard.connectors.telegram import api as telegram_api
from switchboard.connectors.telegram.manifest import MANIFEST
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import ReplyChoice
from switchboard.ports.connector import (
    Account,
    Batch,
    Busy,
    FileIn,
    FileOut,
    Inbound,
    Later,
    Outcome,
    Part,
    Refused,
    Sent,
    Session,
    SignInRefused,
    Uncertain,
    Unreadable,
    Why,
)
from switchboard.testing.bot_api import ANN, TOKEN, BotApi, Cut, Fault, Hang, Page, Status
from switchboard.testing.connectors.running import connector, scripted, until
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard
from tests.bot_api import bot_of

ANNS: Final[JsonObject] = {"chat": ANN["id"], "message": 1}


@asynccontextmanager
async def session_of(api: BotApi, token: str = TOKEN, **settings: Any) -> AsyncIterator[Session]:
    made = MANIFEST.settings.model_validate({"api_url": api.url, "poll_s": 50, **settings})
    session = await MANIFEST.open(Account("house", made, {"token": token}))
    try:
        yield session
    finally:
        await session.close()


async def first(batches: AsyncIterator[Batch]) -> Batch:
    """The next batch in which there is something."""
    async for batch in batches:
        if batch.events:
            return batch
    raise AssertionError("it ended")


def texts(batch: Batch) -> list[str]:
    return [one.envelope.payload.normalized_text for one in batch.events if isinstance(one, Inbound)]


def a_file(data: bytes, name: str = "a.txt", media_type: str = "text/plain") -> FileOut:
    async def read() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 1 << 20):
            yield data[start : start + (1 << 20)]

    return FileOut(name, media_type, len(data), read)


def text_of(text: str = "hi", **more: Any) -> Part:
    return Part(address=more.pop("address", ANNS), text=text, **more)


# Signing in -----------------------------------------------------------------------------------------------------------


async def test_the_endpoint_is_the_id_of_the_bot() -> None:
    async with BotApi() as api, session_of(api) as session:
        assert (session.identity.endpoint, session.identity.display_name) == ("bot:123456", "@house_bot")


@pytest.mark.parametrize(
    "token", ["123456:WRONG", "no token", "123456:TWO\nLINES", "123456:" + "A" * 70_000, "\x1b[2J"]
)
async def test_a_wrong_token_is_refused_and_not_repeated_to_anybody(token: str) -> None:
    async with BotApi() as api:
        with pytest.raises(SignInRefused, match="@BotFather") as refused:
            async with session_of(api, token):
                pass
    assert token not in str(refused.value)


@pytest.mark.parametrize("token", ["hello", "123456", ":ABC", "123456:"])
async def test_what_is_no_token_is_refused_also_without_a_network(token: str) -> None:
    async with BotApi() as api, api.closed():
        with pytest.raises(SignInRefused, match="look like 123456:ABC-DEF"):
            async with session_of(api, token):
                pass


async def test_telegram_that_is_away_is_an_error_of_the_network() -> None:
    async with BotApi() as api, api.closed():
        with pytest.raises(OSError, match="Connect") as away:
            async with session_of(api):
                pass
    assert TOKEN not in str(away.value)


async def test_the_token_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with BotApi() as api, session_of(api) as session:
        api.people.say("hello")
        api.spoil("sendMessage", Cut(), Status(400, "Bad Request"))
        for _ in range(3):
            await session.send(text_of(), "k")
        await session.typing(ANNS)
    assert caplog.messages
    assert TOKEN not in caplog.text


# Receiving ------------------------------------------------------------------------------------------------------------


async def test_what_is_not_confirmed_comes_again_to_the_next_session() -> None:
    async with BotApi() as api:
        api.people.say("one")
        api.people.say("two")
        cursors = []
        for _ in range(2):
            async with session_of(api) as session, aclosing(session.receive(None)) as batches:  # type: ignore[type-var]
                batch = await first(batches)
                assert texts(batch) == ["one", "two"]
                cursors.append(batch.cursor)
        assert cursors == [f"{api.world.next_update}@0"] * 2
        async with session_of(api) as session, aclosing(session.receive(cursors[0])) as batches:  # type: ignore[type-var]
            assert texts(await first(batches)) == ["one", "two"]  # no offset at the start, whatever the cursor says
            await session.confirm(str(cursors[0]))
            following = asyncio.create_task(first(batches))
            await api.until(lambda: not api.world.updates and api.polling)
            api.people.say("three")
            assert texts(await following) == ["three"]
    offsets = [call.params.number("offset") for call in api.called("getUpdates")]
    assert offsets[:3] == [0, 0, 0]


async def test_more_comes_while_something_is_not_confirmed_and_nothing_twice() -> None:
    async with BotApi() as api, session_of(api) as session, aclosing(session.receive(None)) as batches:  # type: ignore[type-var]
        api.people.say("stuck")
        assert texts(await first(batches)) == ["stuck"]
        api.people.say("next")
        batch = await first(batches)
        assert texts(batch) == ["next"]
        await session.confirm(str(batch.cursor))
        following = asyncio.create_task(first(batches))
        await api.until(lambda: not api.world.updates and api.polling)
        api.people.say("last")
        assert texts(await following) == ["last"]


async def test_an_older_update_id_is_new_all_the_same() -> None:
    async with BotApi() as api, session_of(api) as session, aclosing(session.receive(None)) as batches:  # type: ignore[type-var]
        api.people.say("before the quiet week")
        batch = await first(batches)
        api.world.updates.clear()
        api.world.next_update = 1000
        api.people.say("after it")
        assert texts(await first(batches)) == ["after it"]
        assert batch.cursor != "1001@0"


async def test_a_round_trip_without_news_is_a_sign_of_life() -> None:
    async with BotApi() as api, session_of(api, poll_s=1) as session:
        batches = session.receive(None)
        assert [await anext(batches), await anext(batches)] == [Batch((), None)] * 2
        polls = api.called("getUpdates")
    assert [call.params.number("timeout") for call in polls] == [0, 1], "the first tells at once that Telegram answers"


async def test_odd_updates_stand_in_nobodys_way() -> None:
    async with BotApi() as api, session_of(api) as session, aclosing(session.receive(None)) as batches:  # type: ignore[type-var]
        api.put("message", {"text": "of nobody"})
        api.people.say("of Ann")
        odd, sound = (await first(batches)).events
    assert isinstance(odd, Unreadable)
    assert isinstance(sound, Inbound)


async def test_a_foreign_webhook_is_named_without_its_path() -> None:
    async with BotApi() as api, bot_of(api) as bot, session_of(api) as session:
        await bot("setWebhook", url="https://hooks.example/s3cret")
        with pytest.raises(Busy, match=r"hooks\.example;") as busy:
            await first(session.receive(None))
    assert "s3cret" not in str(busy.value)


async def test_another_poller_is_told_of() -> None:
    async with BotApi() as api, bot_of(api) as bot, session_of(api) as session:
        mine = asyncio.create_task(first(session.receive(None)))
        await api.until(lambda: api.polling)
        await bot.updates()
        with pytest.raises(Busy, match="another program polls"):
            await mine


async def test_a_token_that_is_revoked_while_polling_signs_out() -> None:
    async with BotApi() as api, session_of(api) as session:
        api.tokens.clear()
        with pytest.raises(SignInRefused):
            await first(session.receive(None))


@pytest.mark.parametrize("fault", [Page(502), Page(200, "{}"), Cut(taken=False), Status(500, "Internal Server Error")])
async def test_polling_fails_as_the_network_does(fault: Fault) -> None:
    async with BotApi() as api, session_of(api) as session:
        api.spoil("getUpdates", fault)
        with pytest.raises(OSError, match=r".") as failed:
            await first(session.receive(None))
        assert TOKEN not in str(failed.value)
        api.people.say("hello")
        assert texts(await first(session.receive(None))) == ["hello"]


async def test_at_the_first_start_what_was_there_is_history() -> None:
    now = [1_000_000.0]
    async with BotApi(clock=lambda: now[0]) as api, session_of(api) as session:
        api.people.say("old")
        cursor = await session.latest()
        now[0] = 4e9
        api.people.say("new")
        batch = await first(session.receive(cursor))
        kept = [one.envelope.control.ingestion_tier for one in batch.events if isinstance(one, Inbound)]
        assert (texts(batch), kept) == (["old", "new"], ["history", "full"])
        assert len(api.world.updates) == 2  # nothing was dropped to get there
        assert str(batch.cursor).partition("@")[2] == str(cursor).partition("@")[2]


async def test_files_are_fetched_in_pieces_and_large_ones_are_not_asked_for() -> None:
    async with BotApi() as api, session_of(api) as session:
        data = bytes(range(256)) * 4096
        api.people.document(data, "a.bin", "application/octet-stream")
        api.people.document(bytes(20 * 1024 * 1024 + 1), "b.bin", "application/octet-stream")
        small, large = [one.files[0] for one in (await first(session.receive(None))).events if isinstance(one, Inbound)]
        assert b"".join([piece async for piece in session.fetch(small)]) == data
        for never in (large, FileIn(0, {"file_id": "gone"}), FileIn(0, {})):
            with pytest.raises(ValueError, match=r"20 MB|file_id"):
                await anext(session.fetch(never))
        api.spoil("getFile", Status(429, "Too Many Requests: retry after 0.01", {"retry_after": 0.01}))
        assert b"".join([piece async for piece in session.fetch(small)]) == data
        api.spoil("getFile", Page(502))
        with pytest.raises(OSError, match="502"):
            await anext(session.fetch(small))


async def test_a_silent_poll_is_given_up_and_the_account_receives_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telegram_api, "ANSWER_S", 1.0)
    switchboard = scripted()
    async with BotApi() as api:
        made = MANIFEST.settings.model_validate({"api_url": api.url, "poll_s": 1})
        api.spoil("getUpdates", Hang())
        house = Configured(MANIFEST, Account("house", made, {"token": TOKEN}), Handling(start="all"))
        async with connector(house, switchboard):
            await until(lambda: "degraded" in [beat["state"] for beat in switchboard.heartbeats], "it is told of")
            assert "healthy" not in [beat["state"] for beat in switchboard.heartbeats], "nothing was received"
            api.people.say("hello")
            await until(lambda: bool(switchboard.accepted), "it receives again")
            await until(lambda: switchboard.heartbeats[-1]["state"] == "healthy", "and is well")


async def test_a_comment_and_its_forward_are_one_message_whose_edits_find_it() -> None:
    switchboard = scripted()
    origin = {"type": "hidden_user", "sender_user_name": "Bob", "date": 1748849400}
    async with BotApi() as api:
        made = MANIFEST.settings.model_validate({"api_url": api.url, "poll_s": 1})
        house = Configured(MANIFEST, Account("house", made, {"token": TOKEN}), Handling(start="all"))
        api.people.say("what is this?")
        news = api.people.say("news", forward_origin=origin)
        async with connector(house, switchboard):
            await until(lambda: bool(switchboard.accepted), "both are accepted")
            api.people.edit(news, "other news")
            await until(lambda: len(switchboard.accepted) == 2, "and so is the edit")
    message, edit = switchboard.accepted
    passages = [(one["kind"], one["text"], one.get("author")) for one in message["payload"]["passages"]]
    assert passages == [("own", "what is this?", None), ("forwarded", "news", "Bob")]
    address = message["event"]["reply_address"]
    assert (address["message"], address["also"]) == (1, [2])
    assert edit["event"]["refers_to"] in map(str, (address["message"], *address["also"]))


async def test_a_post_and_its_copy_are_one_message_and_unknown_kinds_are_counted() -> None:
    switchboard = scripted()
    async with BotApi() as api:
        made = MANIFEST.settings.model_validate({"api_url": api.url, "poll_s": 1})
        house = Configured(MANIFEST, Account("house", made, {"token": TOKEN}), Handling(start="all", groups="all"))
        news, group = api.people.channel(), api.people.group()
        api.people.post(news, "new opening hours", group=group)
        api.people.send({"hologram": {"size": 3}}, group)
        api.people.send({"checklist": {"title": "Trip", "tasks": [{"id": 1, "text": "Hotel"}]}})
        async with connector(house, switchboard):
            await until(lambda: _counters(switchboard).get("accepted") == 3, "all are accepted")
    said = [(one["event"].get("kind", "message"), one["payload"]["normalized_text"]) for one in switchboard.accepted]
    assert said == [
        ("message", "new opening hours"),
        ("membership", "(A message of a kind that is not read: hologram)"),
        ("message", "(Checklist: Trip)\n[ ] Hotel"),
    ]
    assert (_counters(switchboard)["unknown_kinds"], switchboard.quarantined) == (1, {})


def _counters(switchboard: ScriptedSwitchboard) -> JsonObject:
    beats = switchboard.heartbeats
    return beats[-1]["counters"] if beats else {}


# Sending --------------------------------------------------------------------------------------------------------------


async def test_a_text_with_entities_in_a_topic_as_an_answer() -> None:
    async with BotApi() as api, session_of(api) as session:
        forum = api.people.group()
        thread = api.people.topic(forum)
        said = api.people.say("How?", forum, topic=thread)
        address = {"chat": forum.id, "topic": thread, "message": said["message_id"], "group": True}
        bold: JsonObject = {"entities": [{"type": "bold", "offset": 0, "length": 4}]}
        outcome = await session.send(text_of("Well 😀", address=address, rendered=bold, reply_to="x"), "k")
        assert outcome == Sent(str(api.sent[0]["message_id"]))
    sent = api.sent[0]
    assert (sent["text"], sent["entities"], sent["message_thread_id"]) == ("Well 😀", bold["entities"], thread)
    assert sent["reply_to_message"]["text"] == "How?"


@pytest.mark.parametrize(("quote", "quoted"), [("groups", False), ("always", True), ("never", False)])
async def test_in_private_an_answer_shows_what_it_answers_only_if_wanted(quote: str, quoted: bool) -> None:
    async with BotApi() as api, session_of(api, quote=quote) as session:
        api.people.say("hello")
        await session.send(text_of(reply_to="x"), "k")
    assert ("reply_to_message" in api.sent[0]) == quoted


@pytest.mark.parametrize(
    ("fault", "outcome", "arrived"),
    [
        (Status(429, "Too Many Requests: retry after 40", {"retry_after": 40}), Later, 0),
        (Status(401, "Unauthorized"), Later, 0),
        (Status(500, "Internal Server Error"), Uncertain, 0),
        (Page(502), Uncertain, 0),
        (Page(429, "slow down"), Later, 0),
        (Cut(taken=True), Uncertain, 1),
        (Cut(taken=False), Uncertain, 0),
        (Page(200), Uncertain, 0),
        (Status(400, "Bad Request: something new"), Refused, 0),
    ],
)
async def test_what_became_of_a_part_is_said_as_far_as_it_is_known(
    fault: Fault, outcome: type[Outcome], arrived: int
) -> None:
    async with BotApi() as api, session_of(api) as session:
        api.people.say("hello")
        api.spoil("sendMessage", fault)
        assert isinstance(await session.send(text_of(), "k"), outcome)
        assert len(api.sent) == arrived
        assert isinstance(await session.send(text_of(), "k"), Sent)


async def test_telegram_names_the_seconds_to_wait() -> None:
    async with BotApi(limits=True, clock=lambda: 1000.0) as api, session_of(api) as session:
        api.people.say("hello")
        assert isinstance(await session.send(text_of(), "k"), Sent)
        later = await session.send(text_of(), "k")
    assert isinstance(later, Later)
    assert later.seconds == 1.0


async def test_what_was_never_written_is_sent_later() -> None:
    async with BotApi() as api, session_of(api) as session, api.closed():
        assert isinstance(
            await session.send(text_of(), "k"), Later | Uncertain
        )  # the first may find its connection cut
        assert isinstance(await session.send(text_of(), "k"), Later)


async def test_a_call_that_is_given_up_leaves_the_session_usable() -> None:
    async with BotApi() as api, session_of(api) as session:
        api.people.say("hello")
        api.spoil("sendMessage", Hang(taken=True))
        sending = asyncio.create_task(session.send(text_of("a"), "k"))
        await api.until(lambda: api.texts == ["a"])
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert isinstance(await session.send(text_of("b"), "k"), Sent)


@pytest.mark.parametrize(
    ("spoil", "part", "why"),
    [
        (lambda _: None, text_of("x", rendered={"entities": [{"type": "bold", "offset": 0, "length": 9}]}), "markup"),
        (lambda _: None, text_of("x", address={"chat": 42, "message": 99, "group": True}, reply_to="x"), "target"),
        (lambda _: None, text_of("x", address={"chat": 42, "topic": 5}, reply_to="x"), "target"),
        (lambda api: api.people.block(), text_of(), "blocked"),
        (lambda _: None, text_of(address={"chat": 77}), "blocked"),
        (lambda _: None, text_of(address={"to": "ada@x.example"}), "other"),
        (lambda _: None, text_of("x" * 4097), "other"),
    ],
)
async def test_refusals_are_told_apart(spoil: Callable[[BotApi], None], part: Part, why: Why) -> None:
    async with BotApi() as api, session_of(api) as session:
        api.people.say("hello")
        spoil(api)
        refused = await session.send(part, "k")
    assert isinstance(refused, Refused)
    assert refused.because == why
    assert api.sent == []


async def test_a_topic_that_is_gone_is_left_once_nothing_else_is_missing() -> None:
    async with BotApi() as api, session_of(api) as session:
        group = api.people.group()
        part = text_of(address={"chat": group.id, "topic": 5, "message": 1, "group": True})
        assert isinstance(await session.send(part, "k"), Sent)
    assert "message_thread_id" not in api.sent[0]


async def test_replies_follow_a_group_that_has_moved() -> None:
    async with BotApi() as api, session_of(api) as session:
        old = api.people.group(-5, kind="group")
        new = api.people.migrate(old)
        address = {"chat": -5, "message": 1, "group": True}
        for _ in range(2):
            assert isinstance(await session.send(text_of(address=address, reply_to="x"), "k"), Sent)
    assert [one["chat"]["id"] for one in api.sent] == [new.id] * 2


async def test_files_are_sent_as_photos_or_documents() -> None:
    async with BotApi() as api, session_of(api) as session:
        api.people.say("hello")
        for name, media_type in (('a "b"\r\n.txt', "text/plain"), ("p.jpg", "image/jpeg"), ("q.png", "image/png")):
            if name == "q.png":
                api.spoil("sendPhoto", Status(400, "Bad Request: PHOTO_INVALID_DIMENSIONS"))
            part = text_of("Here", files=(a_file(b"data" * 500_000, name, media_type),))
            assert isinstance(await session.send(part, "k"), Sent)
    assert api.texts == ["Here"] * 3
    assert ["photo" in one for one in api.sent] == [False, True, False]
    assert set(map(len, api.world.files.values())) == {2_000_000}
    assert api.sent[0]["document"]["file_name"] == "a %22b%22%0D%0A.txt"


async def test_sounds_and_films_are_sent_as_such_or_as_documents() -> None:
    sent = [("a.ogg", "audio/ogg"), ("a.mp3", "audio/mpeg"), ("a.mp4", "video/mp4"), ("a.gif", "image/gif")]
    async with BotApi() as api, session_of(api) as session:
        api.people.say("hello")
        for name, media_type in (*sent, ("b.ogg", "audio/ogg")):
            if name == "b.ogg":
                api.spoil("sendVoice", Status(400, "Bad Request: VOICE_MESSAGES_FORBIDDEN"))
            assert isinstance(await session.send(text_of("Here", files=(a_file(b"x", name, media_type),)), "k"), Sent)
    kinds = ("voice", "audio", "video", "animation", "document")
    assert [next(kind for kind in kinds if kind in one) for one in api.sent] == list(kinds)


async def test_a_file_that_is_gone_or_out_of_reach_is_not_sent() -> None:
    async def fails(error: Exception) -> AsyncIterator[bytes]:
        yield b"da"
        raise error

    async with BotApi() as api, session_of(api) as session:
        api.people.say("hello")
        for error in (OSError("away"), ValueError("gone")):
            file = FileOut("a.txt", "text/plain", 4, partial(fails, error))
            with pytest.raises(type(error), match=str(error)):
                await session.send(text_of(files=(file,)), "k")
        assert api.sent == []


async def test_files_that_are_too_large_are_refused() -> None:
    async with BotApi() as api, session_of(api) as session:
        api.people.say("hello")
        api.spoil("sendDocument", Status(413, "Request Entity Too Large"))
        assert isinstance(await session.send(text_of(files=(a_file(b"data"),)), "k"), Refused)


CHOICES: Final = (ReplyChoice("Approve", "t1"), ReplyChoice("Refuse", "t2"), ReplyChoice("1. a longer label", "t3"))


async def test_choices_are_buttons_and_a_part_whose_buttons_are_refused_says_so() -> None:
    async with BotApi() as api, session_of(api) as session:
        api.people.say("hello")
        assert isinstance(await session.send(text_of(choices=CHOICES), "k"), Sent)
        rows = api.sent[0]["reply_markup"]["inline_keyboard"]
        assert [[one["text"] for one in some] for some in rows] == [["Approve", "Refuse"], ["1. a longer label"]]
        refused = await session.send(text_of(choices=(ReplyChoice("x", "y" * 65),)), "k")
        assert isinstance(refused, Refused)
        assert refused.because == "markup", "it is sent without them"


@pytest.mark.parametrize("choices", [None, CHOICES[:1]])
async def test_a_press_is_answered_and_its_answer_can_be_sent_again(choices: tuple[ReplyChoice, ...] | None) -> None:
    """Whatever part of it Telegram has done before; a message is sent only if nobody learns the outcome otherwise."""
    async with BotApi() as api, session_of(api) as session:
        api.people.say("hello")
        await session.send(text_of(choices=CHOICES), "k")
        [asked] = api.sent
        pressed = api.people.press(asked, "t1")
        event = (await first(session.receive(None))).events[-1]
        assert isinstance(event, Inbound)
        about = event.envelope
        assert (about.event.kind, about.payload.normalized_text, about.sender.identity) == ("button", "t1", "42")
        assert about.control.idempotency_key == f"press:{next(iter(api.world.presses))}"
        part = text_of("Approved. " + "x" * 300, address=about.event.reply_address, choices=choices)
        api.spoil(
            "answerCallbackQuery", Status(429, "Too Many Requests: retry after 3", {"retry_after": 3}), Cut(taken=False)
        )
        assert await session.send(part, "k") == Later(3.0, "429 Too Many Requests: retry after 3")
        assert isinstance(await session.send(part, "k"), Later)
        sent = await session.send(part, "k")
        assert sent == Sent(str(asked["message_id"]))
        assert pressed.toast is not None
        assert (len(pressed.toast), pressed.toast[:9]) == (200, "Approved.")
        assert (len(asked["reply_markup"]["inline_keyboard"]) == 1) is (choices is not None)
        again = await session.send(part, "k")
        assert isinstance(again, Sent)
        assert len(api.sent) == (1 if choices else 2)


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (None, None),
        (Status(404, "Not Found"), Refused("this Bot API has no drafts: 404 Not Found")),
        (
            Status(400, "Bad Request: TEXTDRAFT_PEER_INVALID"),
            Refused("400 Bad Request: TEXTDRAFT_PEER_INVALID", "blocked"),
        ),
        (Status(403, "Forbidden: blocked"), Refused("403 Forbidden: blocked", "blocked")),
        (Status(429, "Too Many", {"retry_after": 9}), Later(9.0, "429 Too Many")),
        (Status(500, "Internal"), OSError),
        (Cut(taken=False), OSError),
        (Page(502), OSError),
    ],
)
async def test_a_draft_is_shown_or_it_is_said_where_there_are_none(
    fault: Fault | None, outcome: Later | Refused | type[OSError] | None
) -> None:
    async with BotApi() as api, session_of(api) as session:
        api.people.say("hello")
        if fault is not None:
            api.spoil("sendMessageDraft", fault)
        part = text_of("so far", rendered={"entities": [{"type": "bold", "offset": 0, "length": 2}]})
        if isinstance(outcome, type):
            with pytest.raises(outcome):
                await session.draft(part, 7)
        else:
            assert await session.draft(part, 7) == outcome
            assert api.world.drafts == ({} if fault else {42: (7, "so far")})
        assert api.sent == []


async def test_drafts_can_be_switched_off() -> None:
    async with BotApi() as api, session_of(api, drafts=False) as session:
        assert isinstance(await session.draft(text_of(), 7), Refused)
        assert not api.called("sendMessageDraft")


async def test_typing_is_shown_and_never_fails() -> None:
    async with BotApi() as api, session_of(api) as session:
        api.people.say("hello")
        await session.typing(ANNS)
        forum = api.people.group()
        await session.typing({"chat": forum.id, "topic": api.people.topic(forum)})
        await session.typing({"chat": 77})
        await session.typing({})
        async with api.closed():
            await session.typing(ANNS)
    assert [call.error for call in api.called("sendChatAction")] == [
        None,
        None,
        "Bad Request: chat not found",
        "Bad Request: chat_id is empty",
    ]
    assert api.called("sendChatAction")[1].params.number("message_thread_id")

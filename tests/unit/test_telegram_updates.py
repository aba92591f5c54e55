"""Updates of the Bot API as events: those of its documentation, and odd ones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.connectors.telegram.updates import KINDS, Me, read
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.identity import dedupe_key
from switchboard.domain.envelope import Attachment, Envelope
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import FileIn, Inbound, Unreadable
from tests.strategies import json_values

ME: Final = Me(123456, "house_bot")
NOW: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
DATE: Final = 1748849400
ANN: Final[JsonObject] = {"id": 42, "is_bot": False, "first_name": "Ann", "last_name": "Lee"}
HOUSE: Final[JsonObject] = {"id": 123456, "is_bot": True, "first_name": "House"}
PRIVATE: Final[JsonObject] = {"id": 42, "type": "private", "first_name": "Ann"}
GROUP: Final[JsonObject] = {"id": -100200, "type": "supergroup", "title": "Home"}


def message(chat: JsonObject = PRIVATE, **fields: Any) -> JsonObject:
    return {"message_id": 7, "date": DATE, "chat": chat, "from": ANN, **fields}


def update(kind: str, about: object, update_id: object = 9) -> JsonObject:
    return {"update_id": update_id, kind: about}


def inbound(kind: str, about: JsonObject, **more: Any) -> Inbound:
    found = read(update(kind, about), ME, NOW, **more)
    assert isinstance(found, Inbound), found
    return found


def entity(kind: str, offset: int, length: int, **more: object) -> JsonObject:
    return {"type": kind, "offset": offset, "length": length, **more}


def test_a_text() -> None:
    found = inbound("message", message(text="hello"))
    event, sender = found.envelope.event, found.envelope.sender
    assert event.external_event_id == f"9:42:7:{DATE}"
    assert (event.external_thread_id, event.kind, event.refers_to, event.observed_at) == ("42", "message", None, NOW)
    assert event.sent_at == datetime.fromtimestamp(DATE, UTC)
    assert event.reply_address == {"chat": 42, "message": 7}
    assert (sender.identity, sender.display_name, sender.chat_type) == ("42", "Ann Lee", "private")
    assert found.envelope.source.endpoint_identity == "bot:123456"
    assert found.envelope.payload.normalized_text == "hello"
    assert found.envelope.payload.raw == update("message", message(text="hello"))
    assert (found.direct, found.own, found.by_bot, found.envelope.control.addressed) == (True, False, False, True)


def test_an_edit_is_an_event_of_its_own() -> None:
    event = inbound("edited_message", message(text="hello!", edit_date=DATE + 60)).envelope.event
    assert (event.kind, event.refers_to, event.external_event_id) == ("edit", "7", f"9:42:7:{DATE + 60}")
    assert event.sent_at == datetime.fromtimestamp(DATE + 60, UTC)


@pytest.mark.parametrize(
    ("fields", "attachment", "text"),
    [
        (
            {"photo": [{"file_id": "s", "file_size": 9}, {"file_id": "l", "file_size": 99}], "caption": "us"},
            Attachment(media_type="image/jpeg", size_bytes=99, source_attachment_id="l"),
            "us",
        ),
        (
            {"document": {"file_id": "d", "file_name": "a.pdf", "mime_type": "application/pdf", "file_size": 5}},
            Attachment(media_type="application/pdf", filename="a.pdf", size_bytes=5, source_attachment_id="d"),
            "",
        ),
        (
            {"voice": {"file_id": "v", "duration": 3, "mime_type": "audio/ogg", "file_size": 8}},
            Attachment(media_type="audio/ogg", size_bytes=8, source_attachment_id="v"),
            "(Voice message of 3 seconds, not transcribed)",
        ),
        (
            {"voice": {"file_id": "v"}, "caption": "listen"},
            Attachment(media_type="audio/ogg", size_bytes=0, source_attachment_id="v"),
            "listen\n\n(Voice message, not transcribed)",
        ),
        (
            {"animation": {"file_id": "a"}, "document": {"file_id": "b"}},
            Attachment(media_type="video/mp4", size_bytes=0, source_attachment_id="a"),
            "",
        ),
        (
            {"sticker": {"file_id": "t", "emoji": "👍", "is_video": True}},
            Attachment(media_type="video/webm", size_bytes=0, source_attachment_id="t"),
            "👍",
        ),
    ],
)
def test_files(fields: Mapping[str, Any], attachment: Attachment, text: str) -> None:
    found = inbound("message", message(**fields))
    assert found.envelope.payload.attachments == (attachment,)
    assert found.envelope.payload.normalized_text == text
    handle = {"file_id": attachment.source_attachment_id, "size": attachment.size_bytes}
    assert found.files == (FileIn(0, handle),)


def test_a_file_that_is_given_under_another_id_is_the_same_file() -> None:
    ids = [{"document": {"file_id": file_id, "file_unique_id": "u"}} for file_id in ("d-1", "d-2")]
    first, again = (inbound("message", message(**fields)) for fields in ids)
    assert first.envelope.payload.attachments == again.envelope.payload.attachments
    assert [one.files[0].handle["file_id"] for one in (first, again)] == ["d-1", "d-2"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"location": {"latitude": 52.5, "longitude": 13}}, "(Location: 52.500000, 13.000000)"),
        ({"contact": {"first_name": "Ben", "phone_number": "+49"}}, "(Contact: Ben +49)"),
        ({"poll": {"question": "When?"}}, "(Poll: When?)"),
        ({"dice": {"value": 6}}, "(Dice: 6)"),
        ({"story": {}}, "(A message of a kind that bots cannot read)"),
        ({"text": "/start@house_bot now"}, "/start now"),
        ({"text": "/start@House_Bot"}, "/start"),
        ({"text": "/start@house_bots now"}, "/start@house_bots now"),
        ({"text": "write to /start@house_bot"}, "write to /start@house_bot"),
    ],
)
def test_texts(fields: Mapping[str, Any], text: str) -> None:
    assert inbound("message", message(**fields)).envelope.payload.normalized_text == text


@pytest.mark.parametrize(
    ("fields", "addressed"),
    [
        ({"text": "hello"}, False),
        ({"text": "😀 @House_Bot", "entities": [entity("mention", 3, 10)]}, True),
        ({"text": "@houses", "entities": [entity("mention", 0, 7)]}, False),
        ({"text": "/start@house_bot", "entities": [entity("bot_command", 0, 16)]}, True),
        ({"text": "/start@rival_bot", "entities": [entity("bot_command", 0, 16)]}, False),
        ({"text": "/start", "entities": [entity("bot_command", 0, 6)]}, True),
        ({"text": "House", "entities": [entity("text_mention", 0, 5, user=HOUSE)]}, True),
        ({"caption": "@house_bot", "caption_entities": [entity("mention", 0, 10)]}, True),
        ({"text": "yes", "reply_to_message": {"from": HOUSE}}, True),
        ({"text": "yes", "reply_to_message": {"from": ANN}}, False),
        ({"text": "yes", "reply_to_message": {"from": HOUSE, "forum_topic_created": {}}}, False),
        ({"text": "x", "entities": [3, {"type": "mention", "offset": -5, "length": "x"}]}, False),
    ],
)
def test_who_is_addressed_in_a_group(fields: Mapping[str, Any], addressed: bool) -> None:
    found = inbound("message", message(GROUP, **fields))
    assert (found.envelope.control.addressed, found.direct) == (addressed, False)
    assert found.envelope.event.reply_address == {"chat": -100200, "message": 7, "group": True}


def test_a_topic_is_a_conversation_and_a_thread_of_answers_is_none() -> None:
    topic = inbound("message", message(GROUP, text="x", message_thread_id=3, is_topic_message=True)).envelope.event
    assert topic.external_thread_id == "-100200:3"
    assert topic.reply_address == {"chat": -100200, "topic": 3, "message": 7, "group": True}
    answer = inbound("message", message(GROUP, text="x", message_thread_id=3)).envelope.event
    assert (answer.external_thread_id, "topic" in (answer.reply_address or {})) == ("-100200", False)


def test_albums_are_named() -> None:
    assert inbound("message", message(media_group_id="a1", photo=[{"file_id": "l"}])).album == "a1"


@pytest.mark.parametrize("sender", [HOUSE, {"id": 5, "is_bot": True, "first_name": "Rival"}])
def test_bots(sender: JsonObject) -> None:
    found = inbound("message", message(GROUP, text="x") | {"from": sender})
    assert (found.own, found.by_bot) == (sender is HOUSE, True)


def test_who_speaks_as_a_channel_or_group_is_no_bot() -> None:
    anonymous = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    found = inbound("message", message(GROUP, text="x", sender_chat=GROUP) | {"from": anonymous})
    assert (found.by_bot, found.envelope.sender.identity, found.envelope.sender.display_name) == (
        False,
        "-100200",
        "Home",
    )
    post = {"message_id": 7, "date": DATE, "chat": {"id": -5, "type": "channel", "title": "News"}, "text": "x"}
    assert inbound("channel_post", post).envelope.sender.identity == "-5"


def test_a_group_that_moves_says_where_in_both_places() -> None:
    old = inbound("message", message({**GROUP, "id": -5, "type": "group"}, migrate_to_chat_id=-100200))
    new = inbound("message", message(GROUP, migrate_from_chat_id=-5))
    assert old.moved == new.moved == ("-5", "-100200")
    assert old.envelope.event.kind == new.envelope.event.kind == "membership"


def test_buttons_reactions_and_membership() -> None:
    query = {"id": "1", "from": ANN, "message": message(GROUP, text="?") | {"from": HOUSE}, "data": "yes"}
    button = inbound("callback_query", query)
    assert (button.own, button.envelope.sender.identity) == (False, "42")
    assert (button.envelope.event.kind, button.envelope.event.refers_to) == ("button", "7")
    assert button.envelope.payload.normalized_text == "yes"
    new = [{"type": "emoji", "emoji": "👍"}, {"type": "custom_emoji", "custom_emoji_id": "1"}]
    reaction = {"chat": GROUP, "message_id": 7, "user": ANN, "date": DATE, "old_reaction": [], "new_reaction": new}
    found = inbound("message_reaction", reaction).envelope
    assert (found.event.kind, found.event.refers_to, found.payload.normalized_text) == ("reaction", "7", "👍 (other)")
    states = {"old_chat_member": {"status": "member"}, "new_chat_member": {"status": "kicked"}}
    member = inbound("my_chat_member", {"chat": PRIVATE, "from": ANN, "date": DATE, **states}).envelope
    assert (member.event.kind, member.payload.normalized_text) == ("membership", "(The bot was member, and is kicked)")


def test_what_was_sent_before_the_first_start_is_history() -> None:
    old = inbound("message", message(text="x"), since=DATE + 1).envelope
    assert old.kept_as_history
    assert old.payload.normalized_text == "x"
    assert inbound("message", message(text="x"), since=DATE).envelope.control.ingestion_tier == "full"


def test_the_server_finds_the_same_key_with_and_without_the_update() -> None:
    for kind, about in (("message", message(text="x")), ("edited_message", message(text="x", edit_date=DATE + 1))):
        envelope = inbound(kind, about).envelope
        kept = msgspec.structs.replace(envelope, payload=msgspec.structs.replace(envelope.payload, raw=None))
        assert dedupe_key(envelope, CHANNELS["telegram"]) == dedupe_key(kept, CHANNELS["telegram"])


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ([], "no update_id"),
        ({"message": message(text="x")}, "no update_id"),
        (update("message", message(text="x"), True), "no update_id"),
        (update("inline_query", {"id": "1"}), "not asked for: update_id, inline_query"),
        (update("message", []), "not asked for"),
        (update("message", {"text": "x"}), "no chat or no sender"),
        (update("message", message(text="x" * 300_000)), "ValidationError"),
    ],
)
def test_odd_updates_are_unreadable_and_say_why(odd: object, reason: str) -> None:
    found = read(odd, ME, NOW)
    assert isinstance(found, Unreadable)
    assert reason in found.reason
    assert found == read(odd, ME, NOW)


def test_halves_of_characters_and_nul_are_replaced() -> None:
    assert inbound("message", message(text="a\ud800\x00b")).envelope.payload.normalized_text == "a\ufffdb"


def deep(value: object) -> object:
    for _ in range(5000):
        value = [value]
    return value


def test_thousands_of_levels_are_unreadable() -> None:
    assert isinstance(read(update("message", message(text="x", deep=deep(1))), ME, NOW), Unreadable)


ODD: Final = st.recursive(
    json_values() | st.integers() | st.sampled_from([ANN, GROUP, PRIVATE, HOUSE, -1, 2**70, "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "type", "file_id", "date"]), inner)
    ),
    max_leaves=8,
)
FIELDS: Final = [
    *(
        "message_id",
        "date",
        "edit_date",
        "chat",
        "from",
        "sender_chat",
        "text",
        "caption",
        "entities",
        "photo",
        "voice",
    ),
    *("document", "sticker", "location", "poll", "reply_to_message", "message_thread_id", "is_topic_message"),
    *("media_group_id", "migrate_to_chat_id", "data", "message", "new_reaction"),
]


@given(st.sampled_from(sorted(KINDS)), st.dictionaries(st.sampled_from(FIELDS), ODD), st.booleans())
def test_nothing_that_arrives_raises(kind: str, odd: JsonObject, sound: bool) -> None:
    found = read(update(kind, {**(message(text="x") if sound else {}), **odd}), ME, NOW)
    if isinstance(found, Inbound):
        assert msgspec.json.decode(msgspec.json.encode(found.envelope), type=Envelope) == found.envelope
        assert found.envelope.event.external_event_id
        assert all(file.attachment < len(found.envelope.payload.attachments) for file in found.files)

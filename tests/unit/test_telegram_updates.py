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
from switchboard.core.envelope.identity import dedupe_key
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
NEWS: Final[JsonObject] = {"id": -100300, "type": "channel", "title": "News"}
PAID: Final[JsonObject] = {"currency": "EUR", "total_amount": 905, "invoice_payload": "order 7"}


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
            Attachment(media_type="audio/ogg", size_bytes=8, source_attachment_id="v", voice=True, seconds=3),
            "",
        ),
        (
            {"voice": {"file_id": "v"}, "caption": "listen"},
            Attachment(media_type="audio/ogg", size_bytes=0, source_attachment_id="v", voice=True),
            "listen",
        ),
        (
            {"video_note": {"file_id": "n", "duration": 7, "length": 240}},
            Attachment(media_type="video/mp4", size_bytes=0, source_attachment_id="n", voice=True, seconds=7),
            "",
        ),
        (
            {"audio": {"file_id": "m", "duration": 200, "title": "Song"}},
            Attachment(media_type="audio/mpeg", size_bytes=0, source_attachment_id="m", seconds=200),
            "",
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
        (
            {"venue": {"title": "Café", "address": "Row 1", "location": {"latitude": 1.5}}, "location": {}},
            "(Place: Café, Row 1, 1.500000, ?)",
        ),
        (
            {"contact": {"first_name": "Ben", "last_name": "Ray", "phone_number": "+49", "vcard": "BEGIN:VCARD"}},
            "(Contact: Ben Ray +49)",
        ),
        ({"poll": {"question": "When?"}}, "(Poll: When?)"),
        (
            {"poll": {"question": "When?", "type": "quiz", "options": [{"text": "Mon\nday"}, {"text": "> Tue"}]}},
            "(Quiz: When?)\n- Mon day\n- > Tue",
        ),
        (
            {"checklist": {"title": "Trip", "tasks": [{"text": "Hotel", "completion_date": 7}, {"text": "Car"}]}},
            "(Checklist: Trip)\n[x] Hotel\n[ ] Car",
        ),
        ({"web_app_data": {"button_text": "Order", "data": '{"n": 2}'}}, '(Sent by the web app “Order”)\n\n{"n": 2}'),
        ({"successful_payment": PAID}, "(Payment of 9.05 EUR for order 7)"),
        ({"refunded_payment": {**PAID, "currency": "XTR"}}, "(Refund of 905 stars for order 7)"),
        ({"invoice": {**PAID, "title": "Tea", "currency": "JPY"}}, "(Invoice: Tea, 905 JPY)"),
        (
            {"users_shared": {"users": [{"user_id": 5, "first_name": "Ben", "username": "ben"}, {"user_id": 6}]}},
            "(Shared: Ben @ben 5; 6)",
        ),
        ({"chat_shared": {"chat_id": -1007, "title": "Home"}}, "(Shared: Home -1007)"),
        (
            {"paid_media": {"star_count": 5, "paid_media": [{}, {}]}},
            "(2 photos or videos for 5 stars, which bots cannot see)",
        ),
        ({"dice": {"value": 6}}, "(Dice: 6)"),
        ({"game": {"title": "Chess"}}, "(Game: Chess)"),
        ({"story": {"chat": GROUP, "id": 1}}, "(Story of Home, which bots cannot see)"),
        ({"passport_data": {}}, "(Telegram Passport data, which is encrypted and was not read)"),
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


@pytest.mark.parametrize(
    ("kind", "about", "text", "unknown"),
    [
        ("message", message(GROUP, gift={}), "(sent a gift)", None),
        ("message", message(checklist_tasks_added={"tasks": [{"text": "A"}]}), "(added to a checklist)\n[ ] A", None),
        ("message", message(GROUP, suggested_post_paid={}), "(paid for a suggested post)", None),
        ("message", message(hologram={}, moon=1), "a kind that is not read: hologram, moon)", "hologram, moon"),
        ("message", message(), "message of a kind that is not read: unnamed)", "unnamed"),
        ("edited_message", message(hologram={}), "message of a kind that is not read: hologram)", "hologram"),
        ("inline_query", {"id": "1", "from": ANN}, "update of a kind that is not read: inline_query)", "inline_query"),
        ("chat_boost", {"chat": NEWS, "boost": {}}, "update of a kind that is not read: chat_boost)", "chat_boost"),
        ("poll", {"id": "1", "options": []}, "update of a kind that is not read: poll)", "poll"),
        ("Odd\nkind", {"from": ANN}, "update of a kind that is not read: unnamed)", "unnamed"),
    ],
)  # fmt: skip
def test_what_nobody_wrote_and_what_is_unknown_is_no_message(
    kind: str, about: JsonObject, text: str, unknown: str | None
) -> None:
    found = inbound(kind, about)
    assert found.envelope.kept_as_history
    assert found.envelope.payload.normalized_text.endswith(text)
    assert (found.unknown, found.own) == (unknown, kind == "poll")


def copied(**fields: Any) -> JsonObject:
    """A post of the channel as its group sees it."""
    origin = {"type": "channel", "chat": NEWS, "message_id": 5, "date": DATE}
    telegram = {"id": 777000, "is_bot": False, "first_name": "Telegram"}
    about = {"sender_chat": NEWS, "is_automatic_forward": True, "forward_origin": origin}
    return {**message(GROUP), **about, "from": telegram, **fields}


def test_a_post_and_its_copy_in_the_group_are_one_message() -> None:
    said: JsonObject = {"text": "@house_bot, look", "entities": [entity("mention", 0, 10)]}
    post = {"message_id": 5, "date": DATE, "chat": NEWS, "sender_chat": NEWS, **said}
    read_as = [read(update(*one), ME, NOW) for one in (("channel_post", post, 9), ("message", copied(**said), 10))]
    envelopes = [one.envelope for one in read_as if isinstance(one, Inbound)]
    assert [dedupe_key(one, CHANNELS["telegram"]) for one in envelopes] == ["event:post:-100300:5"] * 2
    assert [one.event.external_event_id for one in envelopes] == ["post:-100300:5"] * 2
    # Whichever comes first, nothing of the message is missing.
    first, second = ((one.sender.identity, one.payload.normalized_text, one.payload.passages) for one in envelopes)
    assert first == second == ("-100300", "@house_bot, look", ())
    assert all(one.control.addressed for one in envelopes)


@pytest.mark.parametrize(
    ("kind", "about"),
    [
        ("edited_channel_post", {"message_id": 5, "date": DATE, "edit_date": DATE + 1, "chat": NEWS, "text": "x"}),
        ("edited_message", copied(text="x", edit_date=DATE + 1)),
        ("message", copied(text="x", is_automatic_forward=False)),
        ("message", copied(text="x", sender_chat=GROUP)),
        ("message", copied(text="x", forward_origin={"type": "channel", "chat": PRIVATE, "message_id": 5})),
    ],
)
def test_other_posts_and_forwards_are_events_of_their_own(kind: str, about: JsonObject) -> None:
    found = inbound(kind, about)
    assert found.envelope.event.external_event_id.startswith("9:")
    # An edit of the copy is not answered a second time, whatever the account does with edits.
    assert (found.envelope.control.ingestion_tier == "history") == (kind == "edited_message")


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
        (update("inline_query", 1), "nothing that is read: update_id, inline_query"),
        (update("message", []), "nothing that is read"),
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


ODD_NAMES: Final = [
    "id",
    "type",
    "file_id",
    "date",
    "options",
    "tasks",
    "users",
    "total_amount",
    "currency",
    "location",
]
ODD: Final = st.recursive(
    json_values() | st.integers() | st.sampled_from([ANN, GROUP, PRIVATE, HOUSE, -1, 2**70, "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(ODD_NAMES), inner),
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
    *("media_group_id", "migrate_to_chat_id", "data", "message", "new_reaction", "is_automatic_forward"),
    *("venue", "checklist", "web_app_data", "successful_payment", "users_shared", "paid_media", "forward_origin"),
]


@given(st.sampled_from([*KINDS, "inline_query", "poll"]), st.dictionaries(st.sampled_from(FIELDS), ODD), st.booleans())
def test_nothing_that_arrives_raises(kind: str, odd: JsonObject, sound: bool) -> None:
    found = read(update(kind, {**(message(text="x") if sound else {}), **odd}), ME, NOW)
    if isinstance(found, Inbound):
        assert msgspec.json.decode(msgspec.json.encode(found.envelope), type=Envelope) == found.envelope
        assert found.envelope.event.external_event_id
        assert all(file.attachment < len(found.envelope.payload.attachments) for file in found.files)

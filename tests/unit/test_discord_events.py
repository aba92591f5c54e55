"""Events of Discord's gateway as ours: what its documentation shows, and odd ones; cursors, routes and hosts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.connectors.discord.cursor import MOST_OWED, DiscordCursor, seconds_of, snowflake_at
from switchboard.connectors.discord.events import KINDS, DiscordReader, is_blank_event, split_bulk
from switchboard.connectors.discord.gateway import GatewayWanted
from switchboard.connectors.discord.limits import RouteTimes, route_of
from switchboard.connectors.discord.places import DiscordPlaces
from switchboard.connectors.discord.settings import DiscordAccountSettings
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.identity import dedupe_key
from switchboard.domain.envelope import Envelope
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Inbound, Unreadable
from tests.strategies import json_values

NOW: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
ME, ANN, BOB = "900", "901", "902"
GUILD, GENERAL, GARDEN, OURS, CHAT = "10", "100", "101", "102", "103"
MESSAGE: Final = str(snowflake_at(NOW.timestamp()))
AUTHOR: Final[JsonObject] = {"id": ANN, "username": "ann", "global_name": "Ann Lee", "bot": False}
GUILD_CREATE: Final[JsonObject] = {
    "id": GUILD,
    "name": "House",
    "roles": [{"id": "11", "name": "house", "tags": {"bot_id": ME}}, {"id": "12", "name": "cooks"}],
    "channels": [
        {"id": GENERAL, "type": 0, "name": "general"},
        {"id": "110", "type": 0, "name": "merger", "permission_overwrites": [{"id": GUILD, "deny": "1024"}]},
        {"id": "111", "type": 0, "name": "hidden", "flags": 1 << 17},
    ],
    "threads": [
        {"id": GARDEN, "type": 11, "name": "Garden", "parent_id": GENERAL, "owner_id": ANN},
        {"id": OURS, "type": 11, "name": "Ours", "parent_id": GENERAL, "owner_id": ME},
        {"id": "112", "type": 11, "name": "Price", "parent_id": "110", "owner_id": ANN},
        {"id": "113", "type": 12, "name": "Secret", "parent_id": GENERAL, "owner_id": ANN},
    ],
}


def reader(**settings: Any) -> DiscordReader:
    places = DiscordPlaces(ME)
    places.learn_guild(GUILD_CREATE)
    places.learn_place({"id": CHAT, "type": 1, "recipients": [{"id": ANN}]})
    return DiscordReader(DiscordAccountSettings.model_validate(settings), places)


def message(text: str = "hello", channel: str = GENERAL, **more: Any) -> JsonObject:
    where = {} if channel == CHAT else {"guild_id": GUILD}
    said = {"id": MESSAGE, "channel_id": channel, "author": AUTHOR, "content": text, "type": 0, "mentions": []}
    return {**said, **where, "edited_timestamp": None, "attachments": [], "embeds": [], **more}


def inbound(about: JsonObject, name: str = "MESSAGE_CREATE", **settings: Any) -> Inbound:
    found = reader(**settings).read(name, about, NOW)
    assert isinstance(found, Inbound), found
    return found


def test_a_text_of_a_direct_chat() -> None:
    found = inbound(message(channel=CHAT))
    event, sender = found.envelope.event, found.envelope.sender
    assert (event.external_event_id, event.external_thread_id, event.kind) == (MESSAGE, CHAT, "message")
    assert (event.sent_at, event.observed_at, event.refers_to) == (NOW, NOW, None)
    assert event.reply_address == {"channel": CHAT, "message": MESSAGE}
    assert (sender.identity, sender.display_name, sender.chat_type) == (ANN, "Ann Lee", "private")
    assert found.envelope.source.endpoint_identity == "bot:900"
    assert (found.direct, found.own, found.by_bot, found.envelope.control.addressed) == (True, False, False, True)
    assert dedupe_key(found.envelope, CHANNELS["discord"]) != dedupe_key(
        inbound(message("hi", CHAT, edited_timestamp="2026-01-31T13:00:00+00:00"), "MESSAGE_UPDATE").envelope,
        CHANNELS["discord"],
    )


def test_a_text_of_a_thread_says_where_it_is() -> None:
    found = inbound(message(channel=GARDEN)).envelope
    assert (found.event.external_thread_id, found.sender.chat_type) == (GARDEN, "group")
    assert found.event.reply_address == {"channel": GARDEN, "message": MESSAGE, "group": True}
    channel = CHANNELS["discord"]
    assert (channel.group_of(found), channel.title(found)) == (GUILD, "House")
    assert channel.facts(found)["discord_parent_channel_id"] == GENERAL


@pytest.mark.parametrize(
    ("more", "addressed"),
    [
        ({}, False),
        ({"mentions": [{"id": ME, "username": "house"}]}, True),
        ({"mentions": [{"id": BOB, "username": "house"}]}, False),
        ({"mention_roles": ["11"]}, True),
        ({"mention_roles": ["12"]}, False),
        ({"mention_everyone": True, "content": "@everyone"}, False),
        ({"type": 19, "referenced_message": {"id": "5", "author": {"id": ME}}}, True),
        ({"type": 19, "referenced_message": {"id": "5", "author": {"id": BOB}}}, False),
        ({"channel_id": GARDEN}, False),
        ({"channel_id": OURS}, True),
    ],
)
def test_a_message_is_said_to_the_bot_or_not(more: JsonObject, addressed: bool) -> None:
    assert inbound(message(**more)).envelope.control.addressed is addressed


def test_in_a_thread_of_the_bot_not_all_need_be_said_to_it() -> None:
    assert inbound(message(channel=OURS), follow_threads=False).envelope.control.addressed is False


def test_an_answer_may_begin_a_thread() -> None:
    named: JsonObject = {"mentions": [{"id": ME}]}
    found = inbound(message(f"<@{ME}> what\nabout  lunch?", **named), threads="start").envelope.event
    assert found.external_thread_id == MESSAGE
    begun = {"channel": MESSAGE, "parent": GENERAL, "title": "what about lunch?"}
    assert found.reply_address == {**begun, "message": MESSAGE, "group": True}
    for elsewhere in (message(channel=GARDEN, **named), message()):
        event = inbound(elsewhere, threads="start").envelope.event
        assert event.external_thread_id == elsewhere["channel_id"]


EDITED: Final = {"edited_timestamp": "2026-01-31T13:00:00+00:00"}


@pytest.mark.parametrize(
    ("name", "about", "begun_by", "is_there"),
    [
        ("MESSAGE_UPDATE", message(**EDITED, mentions=[{"id": ME}]), None, True),
        ("MESSAGE_UPDATE", message(**EDITED), None, False),
        ("MESSAGE_UPDATE", message(**EDITED), ANN, False),
        ("MESSAGE_UPDATE", message(**EDITED), ME, True),
        ("MESSAGE_DELETE", {"id": MESSAGE, "channel_id": GENERAL, "guild_id": GUILD}, ME, True),
        (
            "MESSAGE_REACTION_ADD",
            {"message_id": MESSAGE, "channel_id": GENERAL, "user_id": ANN, "emoji": {"name": "x"}},
            ME,
            True,
        ),
    ],
)
def test_what_is_about_a_message_belongs_to_its_thread(
    name: str, about: JsonObject, begun_by: str | None, is_there: bool
) -> None:
    """Which has the id of the message, and was begun by its answer."""
    one = reader(threads="start")
    if begun_by is not None:
        begun = {"id": MESSAGE, "type": 11, "parent_id": GENERAL, "owner_id": begun_by, "guild_id": GUILD}
        one.places.learn_place(begun)
    found = one.read(name, about, NOW)
    assert isinstance(found, Inbound)
    event = found.envelope.event
    assert event.reply_address is not None
    assert {event.external_thread_id, event.reply_address["channel"]} == {MESSAGE if is_there else GENERAL}


PEOPLE: Final = [{"id": ANN, "username": "ann", "global_name": "Ann Lee"}, {"id": BOB, "username": "b[o]b /stop"}]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("<@900>  hello", "hello"),
        ("<@900> ", "@900"),
        ("<@!900> <@&11> hello <@900>", "hello @900"),
        ("ask <@901> or <@902>", "ask @Ann Lee or @b o b stop"),
        ("<@&12>, <#100> <#101> <#7>", "@cooks, #general #Garden #7"),
        ("what is in <#110> <#111> <#112> <#113>?", "what is in #110 #111 #112 #113?"),
        ("nice <:party:77> <a:dance:78>", "nice :party: :dance:"),
        ("at <t:1700000000:R>", "at 2023-11-14T22:13:20Z"),
        ("at <t:999999999999>", "at <t:999999999999>"),
        ("use </play song:7>", "use /play song"),
        ("a <b> &amp; <@nobody>", "a <b> &amp; <@nobody>"),
    ],
)
def test_ids_in_a_text_become_names(written: str, read: str) -> None:
    assert inbound(message(written, mentions=PEOPLE)).envelope.payload.normalized_text == read


FORWARDED: Final = {"content": "buy <#100>", "timestamp": "2026-01-30T10:00:00+00:00", "attachments": []}


@pytest.mark.parametrize(
    ("more", "passages"),
    [
        ({"content": "> theirs\nmine"}, [("quoted", "> theirs"), ("own", "mine")]),
        ({"content": "mine\n>>> theirs\nstill"}, [("own", "mine"), ("quoted", "> theirs\n> still")]),
        ({"content": "", "sticker_items": [{"name": "Wave"}]}, [("own", "(Sticker: Wave)")]),
        (
            {"poll": {"question": {"text": "When?"}, "answers": [{"poll_media": {"text": "now"}}]}},
            [("own", "hello"), ("own", "(Poll: When?)\n- now")],
        ),
        ({"content": "", "message_snapshots": [{"message": FORWARDED}]}, [("forwarded", "buy #general")]),
    ],
)
def test_whose_words_a_message_has(more: JsonObject, passages: list[tuple[str, str]]) -> None:
    payload = inbound(message(**more)).envelope.payload
    found = [(one.kind, one.text) for one in payload.passages]
    only_own = {kind for kind, _ in passages} == {"own"}
    assert found == ([] if only_own else passages)
    assert payload.normalized_text == "\n\n".join(text for _, text in passages)


def test_a_voice_message_and_the_files_of_a_forward() -> None:
    voice = {"id": "1", "filename": "v.ogg", "size": 9, "content_type": "audio/ogg", "duration_secs": 2.6, "url": "u"}
    [spoken] = inbound(message("", flags=1 << 13, attachments=[voice])).envelope.payload.attachments
    assert (spoken.voice, spoken.seconds, spoken.source_attachment_id) == (True, 3, "1")
    picture = {"id": "2", "filename": "p.png", "size": 7, "content_type": "image/png", "url": "u2"}
    found = inbound(message("", message_snapshots=[{"message": {"content": "", "attachments": [picture]}}]))
    assert [one.filename for one in found.envelope.payload.attachments] == ["p.png"]
    assert found.files[0].handle == {"channel": GENERAL, "message": MESSAGE, "attachment": "2", "url": "u2"}


@pytest.mark.parametrize(
    ("name", "about", "kind", "key", "refers_to"),
    [
        (
            "MESSAGE_UPDATE",
            message(edited_timestamp="2026-01-31T13:00:00+00:00"),
            "edit",
            f"{MESSAGE}:2026-01-31T13:00:00+00:00",
            MESSAGE,
        ),
        ("MESSAGE_DELETE", {"id": "5", "channel_id": CHAT}, "delete", "5:deleted", "5"),
        (
            "INTERACTION_CREATE",
            {"id": "6", "type": 3, "channel_id": CHAT, "user": AUTHOR, "message": {"id": "5"}, "data": {}},
            "button",
            "6",
            "5",
        ),
    ],
)
def test_what_else_happens(name: str, about: JsonObject, kind: str, key: str, refers_to: str) -> None:
    event = inbound(about, name).envelope.event
    assert (event.kind, event.external_event_id, event.refers_to) == (kind, key, refers_to)


def test_a_reaction_is_known_by_who_reacted_and_how() -> None:
    about = {"user_id": ANN, "channel_id": CHAT, "message_id": "5", "emoji": {"id": None, "name": "👍"}}
    first, other = (inbound({**about, "emoji": {"name": one}}, "MESSAGE_REACTION_ADD") for one in "👍👎")
    assert first.envelope.payload.normalized_text == "👍"
    assert first.envelope.event.external_event_id != other.envelope.event.external_event_id
    assert first.envelope.event.refers_to == "5"


def test_the_token_of_a_press_is_in_its_address_alone() -> None:
    press = {"id": "6", "type": 3, "channel_id": CHAT, "user": AUTHOR, "message": {"id": "5"}, "token": "secret-press"}
    found = inbound({**press, "data": {"custom_id": "choice:1"}}, "INTERACTION_CREATE")
    assert found.envelope.event.reply_address == {
        "channel": CHAT,
        "message": "5",
        "press": "6",
        "token": "secret-press",
    }
    assert b"secret-press" not in found.raw
    assert "secret-press" not in str(found.envelope.payload)
    assert found.envelope.payload.normalized_text == "choice:1"
    nowhere = reader().read("INTERACTION_CREATE", {**press, "channel_id": None}, NOW)
    assert isinstance(nowhere, Unreadable)
    assert b"secret-press" not in nowhere.raw


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("MESSAGE_UPDATE", message(embeds=[{"type": "link"}])),
        ("MESSAGE_CREATE", message(type=21)),
        ("MESSAGE_CREATE", message(type=18)),
        ("INTERACTION_CREATE", {"id": "6", "type": 2, "channel_id": CHAT, "user": AUTHOR}),
        ("TYPING_START", {"channel_id": CHAT}),
    ],
)
def test_what_is_no_event_for_us(name: str, about: JsonObject) -> None:
    assert reader().read(name, about, NOW) is None


def test_other_types_of_messages_are_counted() -> None:
    found = inbound(message(type=7))
    assert (found.own, found.unknown, found.envelope.event.kind) == (True, "message type 7", "membership")


def test_a_message_that_is_not_shown_is_history() -> None:
    blank, shown = inbound(message("")), inbound(message("", sticker_items=[{"name": "Wave"}]))
    assert (blank.envelope.control.ingestion_tier, is_blank_event(blank), is_blank_event(shown)) == (
        "history",
        True,
        False,
    )


def test_many_deletions_are_as_many_events() -> None:
    found = list(split_bulk("MESSAGE_DELETE_BULK", {"ids": ["1", "2"], "channel_id": CHAT}))
    assert [(name, about["id"]) for name, about in found] == [("MESSAGE_DELETE", "1"), ("MESSAGE_DELETE", "2")]


@given(
    st.sampled_from(sorted(KINDS)), json_values() | st.dictionaries(st.sampled_from(sorted(message())), json_values())
)
def test_odd_events_never_raise(name: str, about: Any) -> None:
    found = reader().read(name, message() | about if isinstance(about, dict) else about, NOW)
    if isinstance(found, Inbound):
        msgspec.json.decode(msgspec.json.encode(found.envelope), type=Envelope)
        again = json.loads(found.raw)
        assert isinstance(reader().read(again["t"], again["d"], NOW), Inbound)
    elif found is not None:
        assert isinstance(found, Unreadable)
        assert found.reason


# Cursors, routes, hosts -----------------------------------------------------------------------------------------------


def test_a_cursor_is_read_as_it_was_written() -> None:
    whole = DiscordCursor(w=7, s="s", u="wss://g", q=9, d=("1", "2"), p=("3",), o=("4",), a=5)
    assert DiscordCursor.read(str(whole)) == whole
    for odd in (None, "", "[]", "nonsense", '{"w":"x"}', "\ud800"):
        assert DiscordCursor.read(odd) == DiscordCursor()


def test_the_largest_cursor_has_room() -> None:
    ids = tuple(str(10**19 + one) for one in range(1000))
    awaited = DiscordCursor(w=10**18, s="s" * 64, u="wss://" + "g" * 64, q=9, d=ids, p=ids[:100], o=ids[:500], a=7)
    assert len(str(awaited)) <= 65_536
    lost = DiscordCursor.read(str(msgspec.structs.replace(awaited, o=ids[: MOST_OWED + 1])))
    assert (lost.s, lost.o, lost.w) == ("", (), 7)


def test_the_time_of_a_snowflake() -> None:
    assert seconds_of(175928847299117063) == pytest.approx(1462015105.796)
    assert seconds_of(snowflake_at(1462015105.796)) == pytest.approx(1462015105.796)


def test_a_route_is_its_verb_its_place_and_its_kind() -> None:
    assert route_of("GET", "/channels/1/messages?after=7") == route_of("GET", "/channels/1/messages?after=8")
    assert route_of("GET", "/channels/1/messages/5") == route_of("GET", "/channels/1/messages/6")
    assert route_of("GET", "/channels/1/messages") != route_of("POST", "/channels/1/messages")
    for path in ("/channels/{}/messages", "/guilds/{}", "/webhooks/9/{}", "/interactions/9/{}/callback"):
        assert route_of("GET", path.format(1)) != route_of("GET", path.format(2))
    times = RouteTimes()
    times.learn("r", {"x-ratelimit-remaining": "0", "x-ratelimit-reset-after": "2.5"}, 10.0)
    times.learn("s", {"x-ratelimit-remaining": "1", "x-ratelimit-reset-after": "2.5"}, 10.0)
    assert (times.wait("r", 11.0), times.wait("r", 13.0), times.wait("s", 11.0)) == (1.5, 0.0, 0.0)


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("wss://gateway.discord.gg", True),
        ("wss://gateway-us-east1-b.discord.gg/x", True),
        ("ws://gateway.discord.gg", False),
        ("wss://evildiscord.gg", False),
        ("wss://discord.gg.evil.example", False),
        ("ws://127.0.0.1:8080/gateway", True),
        ("https://127.0.0.1:8080/gateway", False),
        ("", False),
    ],
)
def test_where_the_token_may_go(url: str, is_one: bool) -> None:
    assert GatewayWanted(1, None, frozenset({"127.0.0.1"})).is_gateway(url) is is_one

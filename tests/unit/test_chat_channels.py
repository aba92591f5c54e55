"""Slack, Discord, WhatsApp and Matrix: what an event is, by functions of the raw event alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from switchboard.core.channels import discord, slack, whatsapp
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.strangers import contact_of
from switchboard.core.routing import facts as routing
from switchboard.ports.channel import Replied
from tests.lab import native

US: Final = "T1:U9"
"""The endpoint of a Slack account: the team and the user of the bot."""


def slack_push(kind: str = "message", **event: Any) -> dict[str, Any]:
    """An event as it is pushed; what it says of the team stands in the outer object."""
    return {"team_id": "T1", "event": {"type": kind, "channel": "C1", "ts": "5.1", "user": "U1", "text": "hi", **event}}


EDITED: Final = {"ts": "5.1", "user": "U1", "text": "hi", "edited": {"user": "U1", "ts": "6.2"}}
REPLY: Final = {"thread_ts": "5.1", "ts": "7.3"}

SLACK: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "at the top of a channel, not to us": (slack_push(), {}),
    "to us: it begins its own thread": (
        slack_push(text="<@U9> hi"),
        {"conversation": "C1:5.1", "addressed": True},
    ),
    "to us, with a name": (slack_push(text="so <@U9|house>"), {"conversation": "C1:5.1", "addressed": True}),
    "to somebody else": (slack_push(text="<@U99> hi"), {}),
    "to everybody": (slack_push(text="<!channel> hi"), {}),
    "what somebody else said to us": (slack_push(text="&gt; <@U9> hi\nwell"), {}),
    "in a thread": (
        slack_push(**REPLY),
        {"key": "T1:C1:7.3", "conversation": "C1:5.1", "replied_to": "5.1"},
    ),
    "in a thread, and shown in the channel": (
        slack_push(subtype="thread_broadcast", **REPLY),
        {"key": "T1:C1:7.3", "conversation": "C1:5.1", "replied_to": "5.1"},
    ),
    "the first of a thread": (slack_push(thread_ts="5.1"), {}),
    "in a direct chat": (
        slack_push(channel="D1", channel_type="im"),
        {"key": "T1:D1:5.1", "conversation": "D1", "addressed": True},
    ),
    "in a thread of a direct chat": (
        slack_push(channel="D1", channel_type="im", **REPLY),
        {"key": "T1:D1:7.3", "conversation": "D1", "addressed": True, "replied_to": "5.1"},
    ),
    "in a chat of several": (slack_push(channel="G1", channel_type="mpim"), {"key": "T1:G1:5.1", "conversation": "G1"}),
    "an edit": (
        slack_push(subtype="message_changed", ts="6.3", message=EDITED, previous_message={"text": "ho"}),
        {"key": "T1:C1:5.1:6.2"},
    ),
    "an edit that takes the mention away": (
        slack_push(subtype="message_changed", message=EDITED, previous_message={"text": "<@U9> ho"}),
        {"key": "T1:C1:5.1:6.2", "conversation": "C1:5.1"},
    ),
    "an edit in a thread": (
        slack_push(subtype="message_changed", message={**EDITED, **REPLY}),
        {"key": "T1:C1:7.3:6.2", "conversation": "C1:5.1", "replied_to": "5.1"},
    ),
    "a preview, which is no edit": (
        slack_push(subtype="message_changed", message={"ts": "5.1", "user": "U1", "text": "hi"}),
        {},
    ),
    "a deletion": (
        slack_push(subtype="message_deleted", deleted_ts="5.1", previous_message={"ts": "5.1", "user": "U1"}),
        {"key": "T1:C1:5.1:deleted"},
    ),
    "a deletion, without what was deleted": (
        slack_push(subtype="message_deleted", deleted_ts="5.1", user=None),
        {"key": "T1:C1:5.1:deleted", "author": None},
    ),
    "by a program": (slack_push(bot_id="B1", user=None), {"by_bot": True, "author": "B1"}),
    "by a program of old": (slack_push(subtype="bot_message"), {"by_bot": True}),
    "without its outer object": (slack_push(team="T1")["event"], {}),
    "odd values": (
        slack_push(channel=["C1"], ts=5, user={}, text=7),
        {"key": None, "author": None, "conversation": None, "group": None},
    ),
}


@pytest.mark.parametrize("case", SLACK.values(), ids=SLACK.keys())
def test_what_an_event_of_slack_is(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    raw, expected = case
    event, message = slack.event_of(raw), native("slack", raw, endpoint=US, sender="U9")
    known = routing.facts(message, CHANNELS["slack"])
    found = {
        "key": CHANNELS["slack"].event_id(message),
        "author": slack.author_of(event),
        "conversation": CHANNELS["slack"].chat(message),
        "group": slack.place_of(event),
        "addressed": known["addressed"] == "yes",
        "by_bot": slack.is_by_bot(event),
        "replied_to": CHANNELS["slack"].replied_to(message),
    }
    usual = {"key": "T1:C1:5.1", "author": "U1", "conversation": "C1", "addressed": False, "by_bot": False}
    assert found == usual | {"group": (expected.get("conversation") or "C1")[:2], "replied_to": None} | expected


@pytest.mark.parametrize("text", ["<@U9> hi", "hi <@U9|house>, and <@U8>", "&gt; <@U9>\n<@U9> see above"])
@pytest.mark.parametrize("where", [{}, REPLY])
def test_both_events_of_a_mention_say_the_same(text: str, where: dict[str, str]) -> None:
    """Slack pushes both, in either order: with a difference half of all mentions would be lost as duplicates."""
    there = {"text": text, **where}
    both = [slack_push(channel_type="channel", **there), slack_push("app_mention", **there)]
    one, other = (native("slack", raw, endpoint=US, sender="U1") for raw in both)
    channel = CHANNELS["slack"]
    assert routing.facts(one, channel) == routing.facts(other, channel)
    assert routing.facts(one, channel)["addressed"] == "yes"
    for tells in (channel.event_id, channel.chat, channel.group, channel.replied_to):
        assert tells(one) == tells(other) is not None or tells is channel.replied_to


ANSWERED: Final = {
    "id": "4",
    "author": {"id": "7", "username": "ann", "global_name": "Ann"},
    "content": " tea? ",
    "timestamp": "2025-06-02T07:30:00+00:00",
}
OURS: Final = {"id": "4", "author": {"id": "55", "username": "house", "bot": True}, "attachments": [{}]}


def discord_message(**more: Any) -> dict[str, Any]:
    """A message in a channel of a server."""
    return {"id": "5", "channel_id": "2", "guild_id": "1", "author": {"id": "7"}, "content": "hi", **more}


DISCORD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "in a channel": (discord_message(), {}),
    "in the frame of the gateway": ({"op": 0, "t": "MESSAGE_CREATE", "d": discord_message()}, {}),
    "to us": (discord_message(mentions=[{"id": "8"}, {"id": "55"}]), {"addressed": True}),
    "to our role, which has our name": (discord_message(mention_roles=["3", "66"]), {"role": True}),
    "to everybody": (discord_message(mention_everyone=True), {}),
    "an answer to us, with the ping off": (
        discord_message(type=19, message_reference={"message_id": "4"}, referenced_message=OURS),
        {
            "addressed": True,
            "replied_to": "4",
            "replied": Replied(text="(document)", author="house", refers_to="4", ours=True),
        },
    ),
    "an answer to somebody else": (
        discord_message(type=19, message_reference={"type": 0, "message_id": "4"}, referenced_message=ANSWERED),
        {
            "replied_to": "4",
            "replied": Replied(
                text="tea?", author="Ann", sent_at=datetime(2025, 6, 2, 7, 30, tzinfo=UTC), refers_to="4"
            ),
        },
    ),
    "an answer to what was deleted": (
        discord_message(type=19, message_reference={"message_id": "4"}, referenced_message=None),
        {"replied_to": "4"},
    ),
    "a forward answers nothing": (discord_message(type=0, message_reference={"type": 1, "message_id": "4"}), {}),
    "nor does a post from elsewhere": (discord_message(type=0, message_reference={"message_id": "4"}), {}),
    "nor does a pin": (discord_message(type=6, message_reference={"message_id": "4"}), {}),
    "an edit": (
        discord_message(edited_timestamp="2025-06-02T07:31:00+00:00"),
        {"key": "5:2025-06-02T07:31:00+00:00"},
    ),
    "a deletion": (
        {"t": "MESSAGE_DELETE", "d": {"id": "5", "channel_id": "2", "guild_id": "1"}},
        {"key": "5:deleted", "author": None},
    ),
    "in a direct chat": (
        {"id": "5", "channel_id": "2", "author": {"id": "7"}},
        {"group": None, "addressed": True},
    ),
    "by a program": (discord_message(author={"id": "7", "bot": True}), {"by_bot": True}),
    "by a webhook": (discord_message(webhook_id="9"), {"by_bot": True}),
    "odd values": (
        {"id": [], "channel_id": {}, "guild_id": "x", "author": 7, "mentions": "55", "message_reference": [1]},
        {"key": None, "conversation": None, "group": None, "author": None},
    ),
}


@pytest.mark.parametrize("case", DISCORD.values(), ids=DISCORD.keys())
def test_what_a_message_of_discord_is(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    raw, expected = case
    message, channel = native("discord", raw, endpoint="bot:55", sender="7"), CHANNELS["discord"]
    inner = discord.message_of(raw)
    found = {
        "key": channel.event_id(message),
        "author": discord.author_of(inner),
        "conversation": channel.chat(message),
        "group": channel.group(message),
        "addressed": routing.facts(message, channel)["addressed"] == "yes",
        "role": discord.is_addressed(inner, lambda _: False, {"66"}),
        "by_bot": discord.is_by_bot(inner),
        "replied_to": channel.replied_to(message),
        "replied": channel.replied(message),
    }
    usual = {"key": "5", "author": "7", "conversation": "2", "group": "1", "addressed": False, "role": False}
    assert found == usual | {"by_bot": False, "replied_to": None, "replied": None} | expected


META: Final = {"metadata": {"display_phone_number": "15550001", "phone_number_id": "9"}}
HEARD: Final = {"from": "4912345", "id": "wamid.A", "timestamp": "1748849400", "type": "text", "text": {"body": "hi"}}
HIDDEN: Final = {key: value for key, value in HEARD.items() if key != "from"}


def cloud(message: dict[str, Any], **contact: Any) -> dict[str, Any]:
    """One message in the form in which a connector splits a webhook."""
    return {**META, "contacts": [{"profile": {"name": "Ann"}, **contact}], "messages": [message]}


WHATSAPP: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "known by the phone alone": (cloud(HEARD, wa_id="4912345"), {"author": "4912345"}),
    "by an id, and the phone": (cloud(HEARD, wa_id="4912345", user_id="DE.1"), {"author": "DE.1"}),
    "by an id alone": (cloud(HIDDEN, user_id="DE.1"), {"author": "DE.1", "phone": None}),
    "by the id for a parent business": (
        cloud(HIDDEN, user_id="DE.1", parent_user_id="DE.ENT.2"),
        {"author": "DE.ENT.2", "phone": None},
    ),
    "an answer": (cloud({**HEARD, "context": {"from": "15550001", "id": "wamid.B"}}), {"replied_to": "wamid.B"}),
    "a forward": (cloud({**HEARD, "context": {"forwarded": True}}), {}),
    "a status": (
        {**META, "statuses": [{"id": "wamid.C", "status": "failed", "recipient_id": "4912345"}]},
        {"key": "wamid.C:failed", "author": None, "phone": None},
    ),
    "in a group": (cloud({**HEARD, "group_id": "G1"}), {"conversation": "G1", "addressed": False}),
    "a message by itself": (HEARD, {"number": None}),
    "a whole webhook": ({"entry": [{"changes": [{"field": "messages", "value": cloud(HEARD)}]}]}, {}),
    "odd values": (
        {"metadata": [], "contacts": [7], "messages": [{"id": 5, "from": ["1"], "context": "x"}]},
        {"key": None, "author": None, "phone": None, "number": None},
    ),
}


@pytest.mark.parametrize("case", WHATSAPP.values(), ids=WHATSAPP.keys())
def test_what_a_message_of_whatsapp_is(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    raw, expected = case
    message, channel = native("whatsapp", raw, endpoint="9", sender="somebody"), CHANNELS["whatsapp"]
    known = routing.facts(message, channel)
    found = {
        "key": channel.event_id(message),
        "author": whatsapp.author_of(raw),
        "phone": whatsapp.phone_of(raw),
        "number": known.get("whatsapp_phone_number_id"),
        "conversation": channel.chat(message),
        "addressed": known["addressed"] == "yes",
        "replied_to": channel.replied_to(message),
    }
    usual = {"key": "wamid.A", "author": "4912345", "phone": "4912345", "number": "9", "conversation": None}
    assert found == usual | {"addressed": True, "replied_to": None} | expected
    assert known["whatsapp_user_id"] == (found["author"] or "somebody")


HOUSE: Final = "@house:x.example"
ANSWER: Final = {"m.in_reply_to": {"event_id": "$5"}}
MATRIX: dict[str, tuple[dict[str, Any], str, str, dict[str, Any]]] = {
    "by mention": ({"m.mentions": {"user_ids": [HOUSE]}}, HOUSE, "hi", {"addressed": True}),
    "by our whole id": ({}, HOUSE, f"hi {HOUSE}, tea?", {"addressed": True}),
    "at the end of a sentence": ({}, HOUSE, f"so says {HOUSE}.", {"addressed": True}),
    "by the name of our server, which is not ours": ({}, HOUSE, "write to ann@x.example or @x.example", {}),
    "somebody on another server": ({}, HOUSE, "hi @house:x.example.org", {}),
    "somebody with a longer name": ({}, HOUSE, "hi @thehouse:x.example", {}),
    "by the name of an endpoint that is no id": ({}, "bot:house", "hi @house", {"addressed": True}),
    "an answer": ({"m.relates_to": ANSWER}, HOUSE, "hi", {"replied_to": "$5"}),
    "an answer in a thread": (
        {"m.relates_to": {"rel_type": "m.thread", "event_id": "$1", "is_falling_back": False, **ANSWER}},
        HOUSE,
        "hi",
        {"replied_to": "$5"},
    ),
    "the next message of a thread": (
        {"m.relates_to": {"rel_type": "m.thread", "event_id": "$1", "is_falling_back": True, **ANSWER}},
        HOUSE,
        "hi",
        {},
    ),
    "odd values": ({"m.relates_to": ["$5"], "m.mentions": {"user_ids": HOUSE}}, HOUSE, "hi", {}),
}


@pytest.mark.parametrize("case", MATRIX.values(), ids=MATRIX.keys())
def test_what_an_event_of_matrix_is(case: tuple[dict[str, Any], str, str, dict[str, Any]]) -> None:
    content, endpoint, text, expected = case
    raw = {"event_id": "$7", "room_id": "!r", "sender": "@ann:x.example", "content": content}
    message, channel = native("matrix", raw, endpoint=endpoint, text=text), CHANNELS["matrix"]
    addressed = routing.facts(message, channel)["addressed"] == "yes"
    found = {"addressed": addressed, "replied_to": channel.replied_to(message)}
    assert found == {"addressed": False, "replied_to": None} | expected


PLACES: dict[str, tuple[str, object, dict[str, Any], str]] = {
    "a channel of Slack": ("slack", slack_push(), {}, "C1"),
    "a thread of it": ("slack", slack_push(**REPLY), {"thread": "C1:5.1"}, "C1"),
    "a thread, without the event": ("slack", None, {"thread": "C1:5.1"}, "C1"),
    "a server of Discord": ("discord", discord_message(), {"thread": "2"}, "1"),
    "a thread of that": ("discord", discord_message(channel_id="3"), {"thread": "3"}, "1"),
    "a chat of several in none": ("discord", {"channel_id": "2"}, {}, "2"),
    "a room of Matrix": ("matrix", {"room_id": "!r"}, {"thread": "!r:$root"}, "!r"),
    "a topic of Telegram": ("telegram", {"message": {"chat": {"id": -1}}}, {"thread": "-1:7"}, "-1"),
    "where nothing is known": ("api", None, {"thread": "t"}, "t"),
}


@pytest.mark.parametrize("case", PLACES.values(), ids=PLACES.keys())
def test_a_group_is_approved_by_its_place(case: tuple[str, object, dict[str, Any], str]) -> None:
    channel, raw, more, expected = case
    message = native(channel, raw, chat_type="group", endpoint="here", **more)
    contact = contact_of(message, CHANNELS[channel])
    assert (contact.scope, contact.identity) == ("group", expected)

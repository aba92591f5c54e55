"""`core/channels`: what rules match on, per channel; who may provide a channel; and a channel of a third party."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import switchboard
from switchboard.core.channels import email
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.mail.auth import MAX_HEADER, mail_auth
from switchboard.core.mail.headers import address
from switchboard.core.routing import facts as routing
from switchboard.core.text.words import near, or_list
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput
from switchboard.ports.channel import MAX_REPLIED, SEVERAL, Form, Replied
from tests.lab import native

ATTACHED = [{"media_type": one, "size_bytes": 1} for one in ("image/png", "application/pdf", "image/jpeg")]


def facts(message: Envelope) -> dict[str, str]:
    return routing.facts(message, CHANNELS[message.source.channel])


def own(found: Mapping[str, str]) -> dict[str, str]:
    """Without the keys that every channel, or every chat, has."""
    every = {"channel", "endpoint", "sender", "thread", "has_attachment", "addressed", "email_parent_domain"}
    return {key: value for key, value in found.items() if key not in every}


def test_common_keys_and_nothing_that_is_not_known() -> None:
    assert facts(native("webhook")) == {
        "channel": "webhook",
        "endpoint": "bot:house",
        "sender": "5488423581",
        "has_attachment": "no",
    }
    full = facts(native("webhook", thread="t", chat_type="group"))
    assert full == {
        "channel": "webhook",
        "endpoint": "bot:house",
        "sender": "5488423581",
        "thread": "t",
        "chat_type": "group",
        "has_attachment": "no",
    }


GROUP = {"id": -1001234567890, "type": "supergroup"}
TELEGRAM: dict[str, tuple[object, dict[str, str]]] = {
    "message in a group, its id negative": (
        {"update_id": 1, "message": {"chat": GROUP, "from": {"id": 42}}},
        {"telegram_chat_id": "-1001234567890", "telegram_user_id": "42", "telegram_chat_type": "supergroup"},
    ),
    "edited message": (
        {"edited_message": {"chat": {"id": 42, "type": "private"}, "from": {"id": 42}}},
        {"telegram_chat_id": "42", "telegram_user_id": "42", "telegram_chat_type": "private"},
    ),
    "channel post, which has no user": (
        {"channel_post": {"chat": {"id": -100, "type": "channel"}, "sender_chat": {"id": -100}}},
        {"telegram_chat_id": "-100", "telegram_chat_type": "channel"},
    ),
    "button: who pressed it, not the bot that wrote the message": (
        {"callback_query": {"from": {"id": 42}, "message": {"chat": GROUP, "from": {"id": 999}}}},
        {"telegram_chat_id": "-1001234567890", "telegram_user_id": "42", "telegram_chat_type": "supergroup"},
    ),
    "button on a message too old to be shown": ({"callback_query": {"from": {"id": 42}}}, {"telegram_user_id": "42"}),
    "reaction": (
        {"message_reaction": {"chat": GROUP, "user": {"id": 42}}},
        {"telegram_chat_id": "-1001234567890", "telegram_user_id": "42", "telegram_chat_type": "supergroup"},
    ),
    "bare message": (
        {"message_id": 5, "chat": {"id": 7, "type": "group"}, "from": {"id": 42}},
        {"telegram_chat_id": "7", "telegram_user_id": "42", "telegram_chat_type": "group"},
    ),
    "ids that are not ids": (
        {"message": {"chat": {"id": {"$ne": 1}, "type": "castle"}, "from": {"id": True}}},
        {},
    ),
    "an id of five thousand digits": ({"message": {"chat": {"id": 10**5000}, "from": {"id": 1.5}}}, {}),
    "strings and lists where objects should be": ({"message": "x", "edited_message": [1], "chat": "y"}, {}),
    "no object at all": ("message", {}),
}


@pytest.mark.parametrize("channel", ["telegram", "telegram_bot", "telegram_user_client"])
@pytest.mark.parametrize("case", TELEGRAM.values(), ids=TELEGRAM.keys())
def test_telegram(case: tuple[object, dict[str, str]], channel: str) -> None:
    raw, expected = case
    found = own(facts(native(channel, raw, sender="Ann")))
    assert {key: value for key, value in found.items() if key != "chat_type"} == expected
    assert found.get("chat_type") == expected.get("telegram_chat_type")


def test_telegram_without_its_raw_object_is_known_from_the_envelope() -> None:
    found = own(facts(native("telegram", sender="5488423581", chat_type="private")))
    assert found == {
        "telegram_chat_id": "5488423581",
        "telegram_user_id": "5488423581",
        "telegram_chat_type": "private",
        "chat_type": "private",
    }
    in_group = own(facts(native("telegram", sender="5", thread="-100", chat_type="group")))
    assert (in_group["telegram_chat_id"], in_group["telegram_user_id"]) == ("-100", "5")
    assert "telegram_chat_id" not in facts(native("telegram", sender="5", thread="topic:3", chat_type="group"))


ANN = {"id": 42, "is_bot": False, "first_name": "Ann", "last_name": "Lee"}
OUR_BOT = {"id": 123456, "is_bot": True, "first_name": "House", "username": "house_bot"}
LATER = datetime(2025, 6, 2, 7, 30, tzinfo=UTC)
REPLIED: dict[str, tuple[dict[str, object], Replied | None]] = {
    "no answer": ({"text": "hello"}, None),
    "a text": (
        {"reply_to_message": {"message_id": 5, "date": 1748849400, "from": ANN, "text": " the dentist at 10 "}},
        Replied(text="the dentist at 10", author="Ann Lee", sent_at=LATER, refers_to="5"),
    ),
    "a text of ours": (
        {"reply_to_message": {"message_id": 5, "from": OUR_BOT, "text": "Which?"}},
        Replied(text="Which?", author="House", refers_to="5", ours=True),
    ),
    "a caption, by a channel": (
        {"reply_to_message": {"from": ANN, "sender_chat": {"id": -1, "title": "News"}, "photo": [], "caption": "Rain"}},
        Replied(text="Rain", author="News"),
    ),
    "nothing but a photo": (
        {"reply_to_message": {"from": ANN, "photo": []}},
        Replied(text="(photo)", author="Ann Lee"),
    ),
    "what Ann forwarded is by somebody else, even if we forwarded it": (
        {
            "reply_to_message": {
                "from": OUR_BOT,
                "date": 1748849500,
                "text": "Pay",
                "forward_origin": {"type": "hidden_user", "sender_user_name": "Bob", "date": 1748849400},
            }
        },
        Replied(text="Pay", author="Bob", sent_at=LATER),
    ),
    "a message of another chat, whose id means nothing here": (
        {
            "external_reply": {
                "origin": {"type": "channel", "chat": {"id": -1, "title": "News"}, "message_id": 3, "date": 1748849400},
                "message_id": 3,
                "poll": {"question": "Tea?"},
            }
        },
        Replied(text="Tea?", author="News", sent_at=LATER),
    ),
    "of which Telegram gives the text as a quotation": (
        {"external_reply": {"origin": {"sender_user": ANN}, "photo": []}, "quote": {"text": "the rain"}},
        Replied(text="the rain", author="Ann Lee"),
    ),
    "of which the sender chose a part, which is in the answer": (
        {"external_reply": {"origin": {"sender_user": ANN}, "photo": []}, "quote": {"text": "the", "is_manual": True}},
        Replied(text="(photo)", author="Ann Lee"),
    ),
    "a forward, as they were before": (
        {"reply_to_message": {"message_id": 5, "from": ANN, "text": "Pay", "forward_sender_name": "Bob"}},
        Replied(text="Pay", author="Bob", refers_to="5"),
    ),
    "ours, in another chat": (
        {"external_reply": {"origin": {"type": "user", "sender_user": OUR_BOT}, "video_note": {}}},
        Replied(text="(video note)", author="House", ours=True),
    ),
    "the beginning of a topic": ({"reply_to_message": {"message_id": 1, "forum_topic_created": {"name": "Tea"}}}, None),
    "odd values": (
        {"reply_to_message": {"message_id": [], "date": 10**30, "from": "Ann", "text": 5, "forward_origin": 3}},
        Replied(text=""),
    ),
}


@pytest.mark.parametrize("case", REPLIED.values(), ids=REPLIED.keys())
def test_what_a_telegram_message_replies_to(case: tuple[dict[str, object], Replied | None]) -> None:
    message, expected = case
    raw = {"update_id": 1, "message": {"chat": GROUP, "from": {"id": 7}, **message}}
    assert CHANNELS["telegram"].replied(native("telegram", raw, endpoint="bot:123456")) == expected


@pytest.mark.parametrize("length", [1000, 1001, 4096, 100_000])
def test_a_long_message_that_is_replied_to_says_how_much_is_missing(length: int) -> None:
    raw = {"message": {"chat": GROUP, "reply_to_message": {"text": "x" * length}}}
    found = CHANNELS["telegram"].replied(native("telegram", raw))
    assert found is not None
    assert len(found.text) <= MAX_REPLIED
    shown, _, mark = found.text.partition(" ")
    assert mark == ("" if length == MAX_REPLIED else f"[{length - len(shown)} more characters]")


def mail(**headers: object) -> dict[str, object]:
    return {"media_type": "message/rfc822", "encoding": "base64", "data": "", "headers": headers}


MAIL: dict[str, tuple[object, str, dict[str, str]]] = {
    "no raw object": (
        None,
        "Ann@Shop.Example",
        {"email_sender": "ann@shop.example", "email_domain": "shop.example"},
    ),
    "headers as the connector gives them": (
        mail(
            **{
                "to": ["Me <Me+Shop@Example.com>", "you@example.com"],
                "list-id": "News <News.Shop.Example>",
            }
        ),
        "ann@shop.example",
        {
            "email_sender": "ann@shop.example",
            "email_domain": "shop.example",
            "email_to": "me+shop@example.com\nyou@example.com",
            "email_tag": "shop",
            "email_list_id": "news.shop.example",
        },
    ),
    "a From header cannot make somebody else the sender": (
        mail(**{"from": "boss@bank.example", "sender": "boss@bank.example"}),
        "evil@evil.example",
        {"email_sender": "evil@evil.example", "email_domain": "evil.example"},
    ),
    "a display name cannot either": (
        None,
        '"boss@bank.example" <evil@evil.example>',
        {"email_sender": "evil@evil.example", "email_domain": "evil.example"},
    ),
    "the mailbox's own address among many recipients": (
        mail(to='a@x.example, "Doe, John" <b@x.example>, me@example.com'),
        "ann@shop.example",
        {
            "email_sender": "ann@shop.example",
            "email_domain": "shop.example",
            "email_to": "me@example.com\na@x.example\nb@x.example",
        },
    ),
    "the form of the Gmail API": (
        {"id": "1", "payload": {"headers": [{"name": "To", "value": "x@example.com"}, 7, {"name": None}]}},
        "ann@shop.example",
        {
            "email_sender": "ann@shop.example",
            "email_domain": "shop.example",
            "email_to": "x@example.com",
        },
    ),
    "headers of no use": (
        mail(**{"to": [None, 7, {"a": 1}, "nobody", ""], "list-id": 5, "authentication-results": {"dmarc": "pass"}}),
        "not an address",
        {},
    ),
}


@pytest.mark.parametrize("case", MAIL.values(), ids=MAIL.keys())
def test_email(case: tuple[object, str, dict[str, str]]) -> None:
    raw, sender, expected = case
    endpoint = "gmail:user:me@example.com"
    found = own(facts(native("email", raw, sender=sender, endpoint=endpoint)))
    assert found == expected | {"email_automatic": "yes" if "email_list_id" in expected else "no"}


def test_a_mail_is_addressed_to_everybody_that_its_headers_name() -> None:
    fields = {"to": "Ann <Ann@x.example>, me+shop@example.com", "cc": ["b@x.example, ann@x.example", "c@x.example"]}
    one = mail(**fields, **{"delivered-to": "me@example.com", "x-original-to": "d@x.example", "from": "e@x.example"})
    found = facts(native("email", one, sender="e@x.example", endpoint="gmail:user:me@example.com"))["email_to"]
    assert found.split(SEVERAL) == [
        *("me+shop@example.com", "me@example.com"),
        *("ann@x.example", "b@x.example", "c@x.example", "d@x.example"),
    ]


PASSED = "dmarc=pass header.from=shop.example"


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], None),
        (["dmarc=pass header.from=shop.example"], None),
        ([f"mx.evil.example; {PASSED}"], None),
        ([f"mx.example.com.evil.example; {PASSED}"], None),
        ([f"(mx.example.com;) mx.evil.example; {PASSED}"], None),
        ([f'"mx.example.com;" mx.evil.example; {PASSED}'], None),
        ([f"mx.evil.example; {PASSED}", f"mx.example.com; {PASSED}"], None),
        ([f"mx.example.com; {PASSED}"], "pass"),
        ([f"mx.example.com {PASSED}"], None),
        ([f"(by) MX.Example.Com 1; {PASSED}"], "pass"),
        (["mx.example.com; dmarc=fail", f"mx.example.com; {PASSED}"], "fail"),
        (["mx.example.com; none"], "none"),
        ([f"mx.office.example; {PASSED}"], "pass"),
        ([f"mx.other.example; {PASSED}"], None),
    ],
)
def test_only_a_server_that_the_account_trusts_is_believed(results: list[str], expected: str | None) -> None:
    own_servers = {
        "*": ["MX.Office.example"],
        "me@example.com": ["mx.example.com"],
        "you@example.com": ["mx.other.example"],
    }
    one = native(
        "email", mail(**{"Authentication-Results": results}), sender="a@shop.example", endpoint="me@example.com"
    )
    assert email.trusting(own_servers).facts(one).get("email_auth") == expected
    assert CHANNELS["email"].facts(one)["email_auth"] is None, "unless a server is named, none is believed"


OTHERS: dict[str, tuple[Envelope, dict[str, str]]] = {
    "cli session": (native("cli", thread="s1"), {"session_id": "s1"}),
    "cli without a thread": (native("cli", sender="me"), {"session_id": "me"}),
    "api session": (native("api", thread="s1"), {"session_id": "s1"}),
    "slack event": (
        native("slack", {"team_id": "T1", "event": {"channel": "C1", "user": "U1"}}),
        {"slack_team_id": "T1", "slack_channel_id": "C1", "slack_user_id": "U1"},
    ),
    "slack edit": (
        native("slack", {"team_id": "T1", "event": {"channel": "C1", "message": {"user": "U1"}}}),
        {"slack_team_id": "T1", "slack_channel_id": "C1", "slack_user_id": "U1"},
    ),
    "slack button": (
        native("slack", {"team": {"id": "T1"}, "channel": {"id": "C1"}, "user": {"id": "U1"}}),
        {"slack_team_id": "T1", "slack_channel_id": "C1", "slack_user_id": "U1"},
    ),
    "slack without raw": (native("slack", sender="U1"), {"slack_user_id": "U1"}),
    "discord message": (
        native("discord", {"guild_id": "1", "channel_id": "2", "author": {"id": "3"}}),
        {"discord_guild_id": "1", "discord_channel_id": "2", "discord_user_id": "3"},
    ),
    "discord gateway frame": (
        native("discord", {"t": "INTERACTION_CREATE", "d": {"channel_id": 2, "member": {"user": {"id": 3}}}}),
        {"discord_channel_id": "2", "discord_user_id": "3"},
    ),
    "matrix": (
        native("matrix", {"room_id": "!r:example.com", "sender": "@ann:example.com"}, thread="$event"),
        {"matrix_room_id": "!r:example.com", "matrix_user_id": "@ann:example.com"},
    ),
    "matrix without raw": (
        native("matrix", sender="@ann:example.com", thread="!r:example.com"),
        {"matrix_room_id": "!r:example.com", "matrix_user_id": "@ann:example.com"},
    ),
    "whatsapp cloud": (
        native(
            "whatsapp",
            {"entry": [{"changes": [{"value": {"metadata": {"phone_number_id": "9"}, "messages": [{"from": "4"}]}}]}]},
            thread="4",
        ),
        {"whatsapp_chat_id": "4", "whatsapp_user_id": "4", "whatsapp_phone_number_id": "9"},
    ),
    "whatsapp web": (
        native("whatsapp_user_client", {"key": {"remoteJid": "1@g.us"}}, sender="4"),
        {"whatsapp_chat_id": "1@g.us", "whatsapp_user_id": "4"},
    ),
    "irc": (native("irc", sender="Ann!a@host", thread="#Home"), {"irc_channel": "#home", "irc_nick": "ann"}),
    "irc in private": (native("irc", sender="Ann"), {"irc_nick": "ann"}),
    "xmpp room": (
        native("xmpp", sender="Ann@x.example/phone", thread="Home@muc.x.example", chat_type="group"),
        {"chat_type": "group", "xmpp_jid": "ann@x.example", "xmpp_room": "home@muc.x.example"},
    ),
    "signal": (
        native("signal", {"envelope": {"dataMessage": {"groupInfo": {"groupId": "g="}}}}, sender="+49"),
        {"signal_user_id": "+49", "signal_group_id": "g="},
    ),
    "sms": (native("sms", sender="+49"), {"sms_number": "+49"}),
    "voice has common keys only": (native("voice", {"message": {"chat": {"id": 1}}}), {}),
}


@pytest.mark.parametrize("case", OTHERS.values(), ids=OTHERS.keys())
def test_other_channels(case: tuple[Envelope, dict[str, str]]) -> None:
    assert own(facts(case[0])) == case[1]


# Facts of chats

HOUSE = "bot:@House"
GROUP_MESSAGE = {"chat": GROUP, "from": {"id": 42}}
SAID: dict[str, tuple[Envelope, dict[str, str]]] = {
    "telegram, in private": (
        native("telegram", {"message": {"chat": {"id": 1, "type": "private"}}}),
        {"addressed": "yes"},
    ),
    "telegram, in a group": (native("telegram", {"message": GROUP_MESSAGE}), {"addressed": "no"}),
    "telegram, by name": (
        native("telegram", {"message": GROUP_MESSAGE}, text="hey @house, hi", endpoint=HOUSE),
        {"addressed": "yes"},
    ),
    "telegram, another's name": (
        native("telegram", {"message": GROUP_MESSAGE}, text="@household", endpoint=HOUSE),
        {"addressed": "no"},
    ),
    "telegram, a command with the bot's name": (
        native("telegram", {"message": GROUP_MESSAGE}, text="/Start@house now", endpoint=HOUSE),
        {"addressed": "yes", "command": "/start"},
    ),
    "telegram, a command for another bot": (
        native("telegram", {"message": GROUP_MESSAGE}, text="/stop@rival_bot", endpoint=HOUSE),
        {"addressed": "no"},
    ),
    "telegram, an address with the bot's name for its domain": (
        native("telegram", {"message": GROUP_MESSAGE}, text="write to ann@house.example", endpoint=HOUSE),
        {"addressed": "no"},
    ),
    "telegram, an address in a host of the bot's name": (
        native("telegram", {"message": GROUP_MESSAGE}, text="see jo@house", endpoint=HOUSE),
        {"addressed": "no"},
    ),
    "telegram, a longer name with a dot": (
        native("telegram", {"message": GROUP_MESSAGE}, text="@house.mate, hi", endpoint=HOUSE),
        {"addressed": "no"},
    ),
    "telegram, by name at the end of a sentence": (
        native("telegram", {"message": GROUP_MESSAGE}, text="so says (@house).", endpoint=HOUSE),
        {"addressed": "yes"},
    ),
    "telegram, an answer to the bot": (
        native(
            "telegram",
            {"message": {**GROUP_MESSAGE, "reply_to_message": {"from": {"username": "house"}}}},
            endpoint=HOUSE,
        ),
        {"addressed": "yes"},
    ),
    "telegram, a topic": (
        native("telegram", {"message": {**GROUP_MESSAGE, "message_thread_id": 7, "is_topic_message": True}}),
        {"addressed": "no", "telegram_topic_id": "7"},
    ),
    "telegram, a thread of answers is no topic": (
        native("telegram", {"message": {**GROUP_MESSAGE, "message_thread_id": 7}}),
        {"addressed": "no"},
    ),
    "telegram, an animation": (
        native("telegram", {"message": {**GROUP_MESSAGE, "animation": {}, "document": {}}}),
        {"addressed": "no", "media": "animation", "has_attachment": "yes"},
    ),
    "telegram, a video note": (
        native("telegram", {"message": {**GROUP_MESSAGE, "video_note": {}}}),
        {"addressed": "no", "media": "video", "has_attachment": "yes"},
    ),
    "a path is no command": (native("sms", text="/etc/hosts"), {"addressed": "yes"}),
    "a command in another line": (native("sms", text="hi\n/start"), {"addressed": "yes"}),
    "the connector says so": (native("matrix", of_control={"addressed": True}), {"addressed": "yes"}),
    "attachments of the envelope": (
        native("api", payload={"normalized_text": "hello", "attachments": ATTACHED}),
        {"media": "document\nphoto", "has_attachment": "yes"},
    ),
    "discord, in private": (native("discord", {"channel_id": "2", "author": {"id": "3"}}), {"addressed": "yes"}),
    "discord, a thread": (
        native("discord", {"guild_id": "1", "channel_id": "2", "channel": {"type": 11, "parent_id": "9"}}),
        {"addressed": "no", "discord_parent_channel_id": "9"},
    ),
    "discord, a category is no parent": (
        native("discord", {"guild_id": "1", "channel_id": "2", "channel": {"type": 0, "parent_id": "9"}}),
        {"addressed": "no"},
    ),
    "discord, by mention": (
        native("discord", {"guild_id": "1", "mentions": [{"id": "55"}, 7]}, endpoint="bot:55"),
        {"addressed": "yes"},
    ),
    "discord, a voice message": (
        native("discord", {"guild_id": "1", "flags": 8192, "attachments": [{"content_type": "audio/ogg"}]}),
        {"addressed": "no", "media": "voice", "has_attachment": "yes"},
    ),
    **{
        f"{channel}, {text!r}": (native(channel, {"guild_id": "1"}, text=text), {"addressed": "no"} | command)
        for channel in ("slack", "discord", "matrix")
        for text, command in (
            ("!Approve 12ab", {"command": "/approve"}),
            ("/approve 12ab", {"command": "/approve"}),
            ("!important", {}),
            ("!", {}),
            ("!stopped", {}),
            ("hi !stop", {}),
        )
    },
    "a mark that is none here": (native("signal", text="!stop"), {"addressed": "yes"}),
    "slack, by mention": (
        native("slack", {"authorizations": [{"user_id": "U9"}], "event": {"type": "message"}}, text="hi <@U9>"),
        {"addressed": "yes"},
    ),
    "slack, another's mention": (
        native("slack", {"authorizations": [{"user_id": "U9"}], "event": {"type": "message"}}, text="hi <@U8>"),
        {"addressed": "no"},
    ),
    "slack, in private": (native("slack", {"event": {"channel_type": "im"}}), {"addressed": "yes"}),
    "slack, a file": (
        native("slack", {"event": {"files": [{"mimetype": "text/csv"}]}}),
        {"addressed": "no", "media": "document", "has_attachment": "yes"},
    ),
    "matrix, by mention": (
        native("matrix", {"content": {"m.mentions": {"user_ids": ["@house:x.example"]}}}, endpoint="@house:x.example"),
        {"addressed": "yes"},
    ),
    "matrix, an image": (
        native("matrix", {"content": {"msgtype": "m.image"}}),
        {"addressed": "no", "media": "photo", "has_attachment": "yes"},
    ),
    "whatsapp, a voice message": (
        native("whatsapp", {"type": "audio", "audio": {"voice": True}}),
        {"addressed": "yes", "media": "voice", "has_attachment": "yes"},
    ),
    "whatsapp, a photo in a group": (
        native("whatsapp_user_client", {"key": {"remoteJid": "1@g.us"}, "message": {"imageMessage": {"url": ""}}}),
        {"addressed": "no", "media": "photo", "has_attachment": "yes"},
    ),
    "irc, by name": (native("irc", thread="#home", text="house: hello", endpoint="irc:House"), {"addressed": "yes"}),
    "irc, in a channel": (native("irc", thread="#home", endpoint="irc:House"), {"addressed": "no"}),
    "signal, a voice message": (
        native(
            "signal", {"envelope": {"dataMessage": {"attachments": [{"contentType": "audio/aac", "voiceNote": True}]}}}
        ),
        {"addressed": "yes", "media": "voice", "has_attachment": "yes"},
    ),
    "xmpp, in a room": (
        native("xmpp", thread="home@muc.x.example", chat_type="group"),
        {"addressed": "no"},
    ),
}
OF_CHATS = ("addressed", "command", "media", "telegram_topic_id", "discord_parent_channel_id")


@pytest.mark.parametrize("case", SAID.values(), ids=SAID.keys())
def test_facts_of_chats(case: tuple[Envelope, dict[str, str]]) -> None:
    found = facts(case[0])
    assert {key: found[key] for key in OF_CHATS if key in found} | {"has_attachment": found["has_attachment"]} == {
        "has_attachment": "no",
        **case[1],
    }


def test_the_tag_of_an_address_and_the_domains_above_one() -> None:
    raw = mail(to="me+shop@x.example, Me+a+b@X.example", cc="other+tag@x.example")
    found = facts(native("email", raw, sender="a@mail.b.example", endpoint="gmail:me@x.example"))
    assert (found["email_tag"], found["email_parent_domain"]) == ("shop\na+b", "mail.b.example\nb.example")
    plain = facts(native("email", mail(to="me@x.example"), sender="a@localhost", endpoint="me@x.example"))
    assert ("email_tag" in plain, plain["email_parent_domain"]) == (False, "localhost")


def test_of_a_deep_domain_itself_and_the_shortest_above_it_are_facts() -> None:
    domain = "a.b.c.d.e.f.g.h.spam.example"
    parents = facts(native("email", sender=f"x@{domain}"))["email_parent_domain"].split(SEVERAL)
    assert (parents[0], parents[-1], len(parents)) == (domain, "spam.example", 9)
    deeper = facts(native("email", sender=f"x@z.{domain}"))["email_parent_domain"].split(SEVERAL)
    assert deeper == [f"z.{domain}", *parents[1:]]


def test_a_mail_has_eight_tags_at_most() -> None:
    raw = mail(to=", ".join(f"me+{number}@x.example" for number in range(20)))
    found = facts(native("email", raw, endpoint="me@x.example"))
    assert found["email_tag"].split(SEVERAL) == [str(number) for number in range(8)]


# Whatever stands in raw

NAMES = ("message", "chat", "from", "id", "type", "headers", "to", "payload", "event", "d", "entry", "key", "list-id")
REPLIES = ("reply_to_message", "external_reply", "origin", "forward_origin", "sender_user", "date", "text", "poll")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["a@b", "<a@b>", "\x00", '"']),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES + REPLIES) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=1500)
@given(channel=st.sampled_from(sorted(CHANNELS)), raw=JSON, known=st.booleans())
def test_facts_never_raise_and_are_always_clean(channel: str, raw: Any, known: bool) -> None:
    message = native(channel)
    payload = replace(message.payload, raw=raw)
    sender = replace(message.sender, chat_type="group" if known else None)
    message = replace(message, payload=payload, sender=sender)
    found, replied = facts(message), CHANNELS[channel].replied(message)
    assert replied is None or len(replied.text) <= MAX_REPLIED
    keys = CHANNELS.keys_of(channel)
    assert found.keys() <= keys.keys() <= CHANNELS.keys_of("*").keys()
    for key, value in found.items():
        assert isinstance(value, str)
        values = keys[key]
        for one in value.split(SEVERAL) if isinstance(values, Form) and values.several else (value,):
            assert one == one.strip() != ""
            assert one.isprintable()
            assert len(one) <= 512
            assert not isinstance(values, Form) or values.pattern.fullmatch(one)
        assert values != "lower" or value == value.lower()
        assert not isinstance(values, frozenset) or value in values


def test_huge_headers_take_no_time_and_say_nothing() -> None:
    for filler in ("<", '"', "@", "a", "(", "a@", ";", "\\"):
        raw = mail(
            **{"to": [filler * 200_000] * 50, "list-id": filler * 200_000, "authentication-results": filler * 9_999}
        )
        assert own(facts(native("email", raw, sender="a@b"))).keys() <= {
            "email_sender",
            "email_domain",
            "email_to",
            "email_list_id",
            "email_automatic",
            "email_tag",
        }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ann@x.example", "ann@x.example"),
        ("Ann <Ann@X.Example.>", "ann@x.example"),
        ('"a@b" <c@d>', "c@d"),
        ("mail ann@x.example now", "ann@x.example"),
        ("nobody", None),
        ("@", None),
        ("a@", None),
        ("", None),
    ],
)
def test_address(text: str, expected: str | None) -> None:
    assert address(text) == expected


AUTH: dict[str, tuple[str, str | None]] = {
    "gmail, everything passes": (
        "mx.google.com; dkim=pass header.i=@x.example; spf=pass; dmarc=pass header.from=x.example",
        "pass",
    ),
    "microsoft, without a server's name": (
        "spf=pass (sender IP is 1.2.3.4) smtp.mailfrom=a@x.example; dkim=none",
        "pass",
    ),
    "dmarc fails although a signature passes": (
        "mx; dkim=pass header.d=x.example; dmarc=fail header.from=x.example",
        "fail",
    ),
    "dmarc passes for somebody else": ("mx; dmarc=pass header.from=evil.example", "none"),
    "a signature of somebody else": (
        "mx; dkim=pass header.d=evil.example; spf=pass smtp.mailfrom=evil.example",
        "none",
    ),
    "only a forwarder's chain vouches": (
        "mx; arc=pass smtp.remote-ip=1.2.3.4; dmarc=none header.from=x.example",
        "none",
    ),
    "forwarded by a list that signs again": (
        "mx; dkim=fail header.d=x.example; dkim=pass header.d=list.example; arc=pass; dmarc=fail header.from=x.example",
        "fail",
    ),
    "forwarded with the sender's signature intact": (
        "mx; dkim=pass header.d=x.example; spf=fail smtp.mailfrom=list.example; dmarc=pass header.from=x.example",
        "pass",
    ),
    "spf fails": ("mx; spf=softfail smtp.mailfrom=x.example", "fail"),
    "none": ("mx; none", "none"),
    "nothing": ("", None),
    "a pass in a comment": ("mx; spf=none (dmarc=pass header.from=x.example; (nested) dmarc=pass)", "none"),
    "a pass in quotes": ('mx; spf=fail smtp.mailfrom="a; dmarc=pass header.from=x.example"@evil.example', "fail"),
    "an escaped quote": (
        'mx; spf=fail smtp.mailfrom="a\\"; dmarc=pass header.from=x.example; \\""@evil.example',
        "fail",
    ),
    "a comment left open": ("mx; dmarc=pass header.from=x.example (", None),
    "too long": ("mx; dmarc=pass header.from=x.example;" + " " * MAX_HEADER, None),
    "blanks around the sign": ("mx; dmarc = PASS header.from = X.example", "pass"),
    "a version": ("mx 1; dmarc/1=pass header.from=x.example", "pass"),
    "the first of two domains counts": ("mx; dkim=pass header.d=evil.example header.d=x.example", "none"),
}


@pytest.mark.parametrize("case", AUTH.values(), ids=AUTH.keys())
def test_mail_auth(case: tuple[str, str | None]) -> None:
    assert mail_auth(case[0], {"mx", "mx.google.com", ""}, "x.example") == case[1]


@pytest.mark.parametrize(
    ("signer", "expected"),
    [("mail.x.example", "pass"), ("x.example", "pass"), ("example", "none"), ("il.x.example", "none"), ("", "none")],
)
def test_a_signature_counts_for_the_domains_below_its_own(signer: str, expected: str) -> None:
    assert mail_auth(f"mx; dkim=pass header.d={signer}", {"mx"}, "mail.x.example") == expected


def test_nothing_vouches_for_a_sender_without_a_domain() -> None:
    assert mail_auth("mx; dmarc=pass", {"mx"}, "") == "none"


# Channels and providers


B = {"email_parent_domain": "b.example"}


@pytest.mark.parametrize(
    ("made_up", "follows"),
    [
        ({"channel": "email", "email_sender": "a@b.example"}, {"email_domain": "b.example", **B}),
        (
            {"channel": "email", "sender": "Ann <Ann@B.example>"},
            {"email_sender": "ann@b.example", "email_domain": "b.example", **B},
        ),
        (
            {"channel": "email", "email_sender": "a@b.example", "email_domain": "c.example"},
            {"email_parent_domain": "c.example"},
        ),
        ({"channel": "email", "email_domain": "b.example"}, B),
        ({"channel": "email", "email_domain": "a.b.example"}, {"email_parent_domain": "a.b.example\nb.example"}),
        ({"channel": "slack", "media": "photo\nvoice"}, {"has_attachment": "yes"}),
        ({"channel": "email", "sender": "nobody"}, {}),
        ({"channel": "telegram", "telegram_chat_type": "private"}, {"chat_type": "private"}),
        ({"channel": "api", "sender": "a@b.example"}, {}),
    ],
)
def test_what_follows_from_facts_that_are_made_up(made_up: dict[str, str], follows: dict[str, str]) -> None:
    assert routing.with_derived(made_up, CHANNELS[made_up["channel"]]) == made_up | follows


@pytest.mark.parametrize("channel", sorted(CHANNELS))
def test_every_provider_of_every_channel_is_let_in(channel: str) -> None:
    for provider in CHANNELS[channel].providers:
        assert CHANNELS.of(native(channel, provider=provider, endpoint="n", sender="n")) is CHANNELS[channel]
    assert {"channel", "endpoint", "sender", "thread", "chat_type"} <= CHANNELS.keys_of(channel).keys()


def test_a_wrong_provider_is_refused_with_the_right_ones() -> None:
    with pytest.raises(InvalidInput, match=re.escape("file, gmail, imap or smtp, not by 'telegram'")) as caught:
        CHANNELS.of(native("email", provider="telegram"))
    assert (caught.value.code, caught.value.field) == ("invalid_source_provider", "source.provider")


@pytest.mark.parametrize(("channel", "meant"), [("telegramm", "telegram"), ("TELEGRAM", "telegram"), ("zzz", "email")])
def test_an_unknown_channel_is_refused_with_near_names(channel: str, meant: str) -> None:
    with pytest.raises(InvalidInput, match=meant) as caught:
        CHANNELS.of(native(channel, provider="x"))
    assert (caught.value.code, caught.value.field) == ("unknown_channel", "source.channel")


def test_near_names_among_very_many() -> None:
    names = [f"team-{number}" for number in range(100_000)] + ["kitchen"]
    assert near("Kitchn", names) == ("kitchen",)
    assert near("qqqqqq", names) == ()
    assert or_list([]) == "nothing"


SOURCE = Path(switchboard.__file__).parent
_NAMES = "|".join(sorted(CHANNELS))
COMPARED = re.compile(rf"""([=!]=|\bin)\s*[(\[{{]?("[\w]+",\s*)*"({_NAMES})"|case "({_NAMES})":""")


def test_nobody_but_a_channels_own_file_asks_for_its_name() -> None:
    assert COMPARED.search('if channel == "telegram":')
    assert COMPARED.search('if channel in {"cli", "email"}:')
    named = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if COMPARED.search(path.read_text(encoding="utf-8")) and path.parent.name not in ("channels", "bench")
    }
    assert named == set()

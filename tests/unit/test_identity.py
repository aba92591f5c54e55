"""`core/envelope/identity.py`: which events are one event, and which messages one conversation."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope import identity
from switchboard.core.envelope.identity import MAX_KEY
from switchboard.domain.envelope import Envelope
from tests.lab import native
from tests.strategies import envelopes, json_values, words


def dedupe_key(one: Envelope) -> str:
    return identity.dedupe_key(one, CHANNELS[one.source.channel])


def conversation(one: Envelope) -> str:
    return identity.conversation(one, CHANNELS[one.source.channel])


GROUP = {"chat": {"id": -1001234}}
SLACK = {"team_id": "T1", "event": {"channel": "C2", "ts": "1700000000.000100", "type": "message"}}
MAIL = {"media_type": "message/rfc822", "headers": {"message-id": " <a@b.example> "}}
GMAIL = {"id": "18f", "payload": {"headers": [3, {"name": 4}, {"name": "Message-ID", "value": "<a@b.example>"}]}}
DISCORD = {"id": "112233445566778899", "edited_timestamp": None}
EDITED = {"id": "112233445566778899", "edited_timestamp": "2026-06-01T10:00:00.123000+00:00"}


@pytest.mark.parametrize(
    ("channel", "raw", "key"),
    [
        ("telegram", {"update_id": 101, "message": GROUP | {"message_id": 5, "date": 17}}, "event:101:-1001234:5:17"),
        (
            "telegram",
            {"update_id": 101, "edited_message": GROUP | {"message_id": 5, "edit_date": 9}},
            "event:101:-1001234:5:9",
        ),
        ("telegram", {"update_id": 101, "message": {"text": "x"}}, "event:101"),
        ("telegram_bot", {"update_id": 101}, "event:101"),
        ("telegram", {"update_id": True}, "event:77"),
        ("telegram", {"update_id": "101; drop"}, "event:77"),
        ("telegram", {"update_id": 10**5000}, "event:77"),
        ("telegram", {"update_id": [1]}, "event:77"),
        ("telegram", "101", "event:77"),
        ("telegram", None, "event:77"),
        ("telegram", {"message_id": 4, "chat": {"id": 5}, "edit_date": 1700000000}, "event:77:edit:1700000000"),
        ("email", MAIL, "event:a@b.example"),
        ("email", {"headers": {"Message-Id": "<a@b.example>"}}, "event:a@b.example"),
        ("email", GMAIL, "event:a@b.example"),
        ("email", {"headers": {"message-id": "<>"}}, "event:77"),
        ("email", {"headers": {"message-id": 7}}, "event:77"),
        ("email", {"headers": "message-id: x"}, "event:77"),
        ("slack", SLACK, "event:T1:C2:1700000000.000100"),
        ("slack", {"team": "T1", "channel": "C2", "ts": "1700000000.000100"}, "event:T1:C2:1700000000.000100"),
        ("slack", {"team_id": "T1", "event": {"channel": "C2", "ts": 17}}, "event:77"),
        ("slack", {"team_id": "T1:C2", "event": {"channel": "C2", "ts": "1.2"}}, "event:77"),
        ("discord", DISCORD, "event:112233445566778899"),
        ("discord", {"t": "MESSAGE_CREATE", "d": DISCORD}, "event:112233445566778899"),
        ("discord", EDITED, "event:112233445566778899:2026-06-01T10:00:00.123000+00:00"),
        ("whatsapp", {"id": "wamid.HBgL"}, "event:wamid.HBgL"),
        ("whatsapp", {"key": {"id": "3EB0"}}, "event:3EB0"),
        ("matrix", {"event_id": "$abc:example.org"}, "event:$abc:example.org"),
        ("matrix", {"event_id": "abc"}, "event:77"),
        ("api", {"update_id": 101, "event_id": "$x", "id": "1"}, "event:77"),
    ],
)
def test_dedupe_key_of(channel: str, raw: Any, key: str) -> None:
    assert dedupe_key(native(channel, raw)) == key


@pytest.mark.parametrize(
    ("channel", "raw", "event_id"),
    [
        ("telegram", {"update_id": 101}, "101"),
        ("email", MAIL, "<a@b.example>"),
        ("email", MAIL, "a@b.example"),
        ("slack", SLACK, "T1:C2:1700000000.000100"),
        ("discord", DISCORD, "112233445566778899"),
        ("matrix", {"event_id": "$abc"}, "$abc"),
    ],
)
def test_an_event_is_the_same_with_and_without_raw(channel: str, raw: Any, event_id: str) -> None:
    with_raw = dedupe_key(native(channel, raw, event=event_id))
    assert with_raw == dedupe_key(native(channel, None, event=event_id))


def test_an_idempotency_key_comes_first_and_cannot_be_taken_for_an_event() -> None:
    assert dedupe_key(native(raw={"update_id": 1}, key="k")) == "idem:k"
    assert dedupe_key(native(key="77")) != dedupe_key(native(event="77"))


@given(words(), words())
def test_the_text_never_counts(one: str, other: str) -> None:
    assert dedupe_key(native(text=one)) == dedupe_key(native(text=other))
    assert dedupe_key(native(event="1", text=one)) != dedupe_key(native(event="2", text=one))


def test_an_edit_is_a_new_event() -> None:
    message = {"message_id": 9, "chat": {"id": 5}, "text": "x"}
    original = native(raw={"update_id": 1, "message": message})
    edited = native(raw={"update_id": 2, "edited_message": message | {"edit_date": 17}})
    assert dedupe_key(original) != dedupe_key(edited)
    assert dedupe_key(native("discord", DISCORD)) != dedupe_key(native("discord", EDITED))


def test_a_long_id_is_hashed_and_a_short_one_cannot_look_like_it() -> None:
    long = dedupe_key(native(event="😀" * 500))
    assert len(long.encode()) <= MAX_KEY
    assert long != dedupe_key(native(event="😀" * 499))
    forged = dedupe_key(native(event=long.removeprefix("event=")[:512]))
    assert forged != long


@given(envelopes())
def test_keys_are_short_and_storable_for_any_envelope(one: Envelope) -> None:
    for key in (dedupe_key(one), conversation(one)):
        assert 0 < len(key.encode("utf-8")) <= MAX_KEY
        assert "\x00" not in key
    assert conversation(one).isascii()
    assert conversation(one).count("/") == 2


@given(st.sampled_from(["telegram", "email", "slack", "discord", "whatsapp", "matrix"]), json_values())
def test_no_raw_makes_it_raise(channel: str, raw: Any) -> None:
    for nested in ({"message": raw}, {"chat": raw}, {"headers": raw}, {"event": raw, "d": raw, "key": raw}):
        assert dedupe_key(native(channel, nested)).startswith(("event:", "event="))
        assert conversation(native(channel, nested))


CHAT = {"chat": {"id": -1001234, "type": "supergroup"}}


@pytest.mark.parametrize(
    ("one", "key"),
    [
        (native(), "telegram/bot%3Ahouse/5488423581"),
        (native(thread="5488423581", sender="9"), "telegram/bot%3Ahouse/5488423581"),
        (native(raw={"update_id": 1, "message": CHAT}), "telegram/bot%3Ahouse/-1001234"),
        (native(raw={"update_id": 1, "channel_post": CHAT}), "telegram/bot%3Ahouse/-1001234"),
        (native(raw={"update_id": 1, "callback_query": {"message": CHAT}}), "telegram/bot%3Ahouse/-1001234"),
        (
            native(raw={"message_id": 3, **CHAT, "reply_to_message": {"chat": {"id": 6}}}),
            "telegram/bot%3Ahouse/-1001234",
        ),
        (native(raw={"message": CHAT}, thread="t"), "telegram/bot%3Ahouse/t"),
        (native("slack", {"message": CHAT}), "slack/bot%3Ahouse/5488423581"),
        (native("slack", {"event": {"channel": "C1", "ts": "1.0"}}), "slack/bot%3Ahouse/C1"),
        (native("slack", {"event": {"channel": "C1", "ts": "1.0", "thread_ts": "1.0"}}), "slack/bot%3Ahouse/C1"),
        (native("slack", {"channel": "C1", "ts": "2.0", "thread_ts": "1.0"}), "slack/bot%3Ahouse/C1%3A1.0"),
        (native("slack", {"type": "block_actions", "channel": {"id": "D7"}}), "slack/bot%3Ahouse/D7"),
        (native("slack", {"channel": {"id": ["C1"]}}), "slack/bot%3Ahouse/5488423581"),
        (native("discord", {"t": "MESSAGE_CREATE", "d": {"channel_id": "42"}}), "discord/bot%3Ahouse/42"),
        (native("discord", {"id": "1", "channel_id": "42"}), "discord/bot%3Ahouse/42"),
        (native("whatsapp", {"key": {"remoteJid": "12-3@g.us"}}), "whatsapp/bot%3Ahouse/12-3%40g.us"),
        (native("whatsapp", {"group_id": "G1", "from": "49"}), "whatsapp/bot%3Ahouse/G1"),
        (native("whatsapp", {"id": "wamid.1", "from": "49"}, sender="49"), "whatsapp/bot%3Ahouse/49"),
        (native("matrix", {"room_id": "!r:x.example"}), "matrix/bot%3Ahouse/%21r%3Ax.example"),
        (native("irc", {"target": "#Home"}, sender="Ann!a@h"), "irc/bot%3Ahouse/%23home"),
        (native("irc", {"target": "us"}, sender="Ann"), "irc/bot%3Ahouse/Ann"),
        (native("xmpp", sender="Ann@x.example/phone"), "xmpp/bot%3Ahouse/ann%40x.example"),
        (
            native("signal", {"envelope": {"dataMessage": {"groupInfo": {"groupId": "abc="}}}}),
            "signal/bot%3Ahouse/abc%3D",
        ),
        (native("api", endpoint="a/b", sender="Jörg"), "api/a%2Fb/J%C3%B6rg"),
    ],
)
def test_conversation_of(one: Envelope, key: str) -> None:
    assert conversation(one) == key


_PARTS = st.tuples(words(64), *[st.one_of(st.text("a/%=~ é", min_size=1, max_size=4), words(512))] * 2).map(
    lambda parts: tuple(part.strip() or "x" for part in parts)
)


@given(_PARTS, _PARTS)
def test_distinct_conversations_have_distinct_keys(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    first, second = (conversation(native(c, endpoint=e, thread=t)) for c, e, t in (one, other))
    assert (first == second) == (one == other)
    assert max(len(first), len(second)) <= MAX_KEY


def test_a_short_part_cannot_look_like_a_shortened_one() -> None:
    long = conversation(native(thread="é" * 300))
    forged = conversation(native(thread=unquote(long.rpartition("/")[2])))
    assert forged != long
    assert len(forged) <= MAX_KEY

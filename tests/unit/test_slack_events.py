"""What events of Slack become: both of a mention, edits that are none, texts with ids, threads, shared messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.connectors.kernel.requests import NotAnswered, NotWritten
from switchboard.connectors.slack.api import SlackRefusal
from switchboard.connectors.slack.events import Lookup, SlackBot, SlackContext, payload_of, read_event, root_passage
from switchboard.connectors.slack.manifest import APP
from switchboard.connectors.slack.refusals import outcome_of
from switchboard.connectors.slack.settings import SlackAccountSettings
from switchboard.connectors.slack.texts import escape_text, in_words, source_of
from switchboard.connectors.slack.threads import SlackPlace
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.identity import conversation
from switchboard.core.people.strangers import contact_of
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Inbound, Later, Refused, Uncertain, Unreadable
from switchboard.testing.slack import ANN, BOT, BOT_USER, SCOPES, TEAM, SlackServer

ME: Final = SlackBot(TEAM, BOT_USER, BOT)
NOW: Final = datetime(2026, 11, 29, tzinfo=UTC)
MENTION: Final = f"<@{BOT_USER}>"
NAMES: Final = {"U1": "Zoë", "C1": "general"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "ts", "type", "user", "elements", "url", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


def read(payload: JsonObject, known: Lookup | None = None, **settings: object) -> Inbound:
    context = SlackContext(ME, SlackAccountSettings.model_validate(settings), NOW, known or Lookup())
    found = read_event(payload, json.dumps(payload).encode(), context)
    assert isinstance(found, Inbound), found
    return found


def told(slack: SlackServer) -> list[JsonObject]:
    """The events that Slack has for the app, oldest first."""
    return [one.payload for one in slack.deliveries.waiting]


def without_raw(event: Inbound) -> Inbound:
    payload = replace(event.envelope.payload, raw=None)
    return replace(event, raw=b"", envelope=replace(event.envelope, payload=payload))


@pytest.mark.parametrize("kind", ["channel", "group", "mpim"])
@pytest.mark.parametrize("in_thread", [False, True])
def test_both_events_of_a_mention_come_out_equal(kind: str, in_thread: bool) -> None:
    slack = SlackServer()
    channel = slack.people.channel(kind=kind)  # type: ignore[arg-type]
    root = slack.people.say("about the roof", channel)["ts"] if in_thread else ""
    said = slack.people.say(f"{MENTION} what do you think?", channel, thread=root)
    events = [read(one) for one in told(slack)[-2:]]
    assert {one["event"]["type"] for one in told(slack)[-2:]} == {"message", "app_mention"}
    assert without_raw(events[0]) == without_raw(events[1])
    event = events[0].envelope
    assert event.control.addressed
    assert event.event.external_event_id == f"{TEAM}:{channel.id}:{said['ts']}"
    assert event.payload.normalized_text == "what do you think?"
    thread = root or said["ts"]
    assert conversation(event, CHANNELS["slack"]) == conversation(events[1].envelope, CHANNELS["slack"])
    assert event.event.external_thread_id == f"{channel.id}:{thread}"
    expected = {"channel": channel.id, "message": said["ts"], "thread": thread, "group": True}
    assert event.event.reply_address == expected
    assert contact_of(event, CHANNELS["slack"]).identity == channel.id


def test_what_is_said_to_nobody_is_heard_in_the_channel() -> None:
    slack = SlackServer()
    channel = slack.people.channel()
    root = slack.people.say("lunch?", channel)
    slack.people.say("yes", channel, thread=root["ts"])
    slack.people.say(f"&gt; {MENTION} was asked\nnot by me", channel)
    top, reply, quoted = (read(one).envelope for one in told(slack) if one["event"]["type"] == "message")
    assert [one.control.addressed for one in (top, reply, quoted)] == [False] * 3
    assert [one.event.external_thread_id for one in (top, reply)] == [channel.id, f"{channel.id}:{root['ts']}"]
    follows = read(told(slack)[1], Lookup(follows=True)).envelope
    assert (follows.control.addressed, follows.event.external_thread_id) == (True, reply.event.external_thread_id)


@pytest.mark.parametrize(("dm", "thread"), [("one", ""), ("threads", ":{ts}")])
def test_a_direct_chat_is_one_conversation_or_each_of_its_threads(dm: str, thread: str) -> None:
    slack = SlackServer()
    said = slack.people.say("hello")
    chat = slack.people.direct_chat()
    slack.people.say("and?", chat, thread=said["ts"])
    first, second = (read(one, dm=dm) for one in told(slack))
    assert first.direct
    assert first.envelope.control.addressed
    expected = chat.id + thread.format(ts=said["ts"])
    assert [one.envelope.event.external_thread_id for one in (first, second)] == [expected] * 2
    addresses = [one.envelope.event.reply_address or {} for one in (first, second)]
    assert [one.get("thread") for one in addresses] == [said["ts"] if dm == "threads" else None, said["ts"]]


def test_only_edits_of_the_text_are_edits() -> None:
    slack = SlackServer()
    said = slack.people.say("see https://example.org/")
    slack.people.preview(said)
    edited = slack.people.edit(said, "see &lt;there&gt;")
    slack.people.preview(edited)
    slack.people.delete(edited)
    _, first, edit, second, deletion = (read(one) for one in told(slack))
    assert (first.own, second.own, first.unknown) == (True, True, None), "a preview is nobody's words"
    event = edit.envelope.event
    assert (event.kind, event.refers_to) == ("edit", said["ts"])
    assert event.external_event_id == f"{TEAM}:{slack.people.direct_chat().id}:{said['ts']}:{edited['edited']['ts']}"
    assert edit.envelope.payload.normalized_text == "see <there>"
    assert (deletion.envelope.event.kind, deletion.envelope.event.refers_to) == ("delete", said["ts"])


def test_a_deleted_message_with_replies_is_deleted_and_no_edit() -> None:
    slack = SlackServer()
    said, chat = slack.people.say("hello"), slack.people.direct_chat().id
    slack.people.say("and?", slack.people.direct_chat(), thread=said["ts"])
    slack.people.delete(said)
    assert told(slack)[-1]["event"]["subtype"] == "message_changed"
    event = read(told(slack)[-1])
    assert (event.envelope.event.kind, event.envelope.event.refers_to) == ("delete", said["ts"])
    assert event.envelope.event.external_event_id == f"{TEAM}:{chat}:{said['ts']}:deleted"
    assert event.envelope.sender.identity == ANN
    unknown = {"type": "message", "subtype": "message_deleted", "deleted_ts": said["ts"], "channel": chat}
    assert read({"team_id": TEAM, "event": unknown}).own, "nobody knows whose it was"


def test_a_broadcast_is_one_message_in_its_thread() -> None:
    slack = SlackServer()
    channel = slack.people.channel()
    root = slack.people.say("lunch?", channel)
    slack.people.broadcast("at noon", channel, root["ts"])
    _, message, change = (read(one) for one in told(slack))
    assert message.envelope.event.external_thread_id == f"{channel.id}:{root['ts']}"
    assert (message.own, change.own) == (False, True)


def test_ourselves_programs_and_what_nobody_needs() -> None:
    slack = SlackServer()
    chat = slack.people.direct_chat()
    slack.people.put({"user": BOT_USER, "bot_id": BOT, "text": "mine"}, chat)
    slack.people.put({"subtype": "bot_message", "bot_id": "B1", "username": "CI", "text": "", "attachments": [
        {"fallback": "build &amp; test failed"}]}, chat)  # fmt: skip
    slack.people.put({"subtype": "channel_join", "user": ANN, "text": "has joined"}, chat)
    slack.people.react(slack.people.say("hello"), "tada")
    own, program, joined, _, reaction = (read(one) for one in told(slack))
    assert (own.own, program.own, program.by_bot, joined.own, joined.unknown) == (
        True,
        False,
        True,
        True,
        "channel_join",
    )
    assert program.envelope.payload.normalized_text == "build & test failed"
    assert program.envelope.sender.display_name == "CI"
    assert (reaction.envelope.event.kind, reaction.envelope.payload.normalized_text) == ("reaction", ":tada:")
    assert reaction.envelope.event.refers_to == told(slack)[3]["event"]["ts"]


def test_what_is_shared_and_the_root_of_a_thread_are_others_words() -> None:
    slack = SlackServer()
    shared = {"is_share": True, "author_name": "Bob", "text": "we <!here> sell", "ts": "1700000000.000100"}
    preview = {"from_url": "https://example.org/", "text": "An example"}
    root = slack.people.say("the old plan")
    slack.people.say("look", attachments=[shared, preview], thread=root["ts"])
    known = Lookup(root=root_passage(root, {ANN: "Ann"}, ME))
    passages = read(told(slack)[-1], known).envelope.payload.passages
    found = [(one.kind, one.text, one.author) for one in passages]
    assert found == [("quoted", "the old plan", "Ann"), ("own", "look", None), ("forwarded", "we @here sell", "Bob")]
    assert passages[0].refers_to == root["ts"]
    assert root_passage({**root, "subtype": "tombstone"}, {}, ME) is None


def test_a_recording_stands_for_itself() -> None:
    slack = SlackServer()
    slack.people.share(b"OggS", "clip.m4a", "audio/mp4", subtype="slack_audio", duration_ms=13_400)
    event = read(told(slack)[-1])
    [attachment] = event.envelope.payload.attachments
    assert (attachment.voice, attachment.seconds, attachment.filename) == (True, 14, "clip.m4a")
    assert event.envelope.payload.normalized_text == "[voice message, 14 s]"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("<@U1>, and <@U2>: <@U3|carl>", "@Zoë, and @U2: @carl"),
        ("in <#C1> or <#C2|random>, <#C3|>", "in #general or #random, #C3"),
        ("<!subteam^S1|@ops> <!subteam^S2> <!channel> <!here|here>", "@ops @S2 @channel @here"),
        ("<!date^1392734382^{date}|Feb 18> &lt;b&gt;&amp;amp;", "Feb 18 <b>&amp;"),
        (
            "<https://a.example/?x=1&amp;y|here> <https://a.example/>",
            "here (https://a.example/?x=1&y) https://a.example/",
        ),
        ("<https://a.example|a.example> <mailto:z@a.example|z@a.example>", "https://a.example z@a.example"),
        (f" {MENTION}: !approve X", "!approve X"),
        (f"I asked {MENTION}", f"I asked @{BOT_USER}"),
        ("1 &lt; 2 <", "1 < 2 <"),
    ],
)
def test_texts_are_read_as_people_read_them(source: str, words: str) -> None:
    assert in_words(source, NAMES, BOT_USER) == words


@given(st.text(max_size=200))
def test_what_is_escaped_is_read_as_it_was(text: str) -> None:
    assert in_words(escape_text(text), {}, BOT_USER) == text.strip()


def test_a_text_is_found_in_blocks() -> None:
    elements: list[JsonObject] = [
        {"type": "text", "text": "a <b> "},
        {"type": "user", "user_id": BOT_USER},
        {"type": "link", "url": "https://x.example"},
        {"type": "emoji", "name": "tada"},
    ]
    block = {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": elements}]}
    header = {"type": "header", "text": {"type": "plain_text", "text": "Title"}}
    assert (
        source_of({"text": "", "blocks": [header, block]}) == f"Title\na &lt;b&gt; {MENTION}<https://x.example>:tada:"
    )


@given(JSON, JSON, JSON)
def test_nothing_that_slack_could_send_raises(event: object, message: object, more: object) -> None:
    for payload in (
        {"team_id": TEAM, "event": event},
        {"event": {"type": "message", "channel": "C1", "subtype": "message_changed", "message": message}},
        {"event": {"type": "message", "channel": "C1", "user": "U1", "ts": "1.2", "blocks": [message], "text": ""}},
        {
            "event": {
                "type": "message",
                "channel": "C1",
                "user": "U1",
                "ts": "1.2",
                "files": [more],
                "attachments": [more],
            }
        },
    ):
        raw = json.dumps(payload).encode()
        context = SlackContext(ME, SlackAccountSettings(), NOW)
        assert isinstance(read_event(payload_of(raw), raw, context), Inbound | Unreadable)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NotWritten("refused"), Later(2.0, "refused")),
        (NotAnswered("reset"), Uncertain("reset")),
        (SlackRefusal("internal_error"), Uncertain("internal_error")),
        (SlackRefusal("ratelimited", retry_after=7.0), Later(7.0, "ratelimited")),
        (SlackRefusal("token_revoked"), Later(60.0, "Slack does not accept the bot_token (token_revoked)")),
        (SlackRefusal("thread_not_found"), Refused("thread_not_found", "target")),
        (SlackRefusal("msg_blocks_too_long"), Refused("msg_blocks_too_long", "markup")),
        (SlackRefusal("is_archived"), Refused("the channel is archived", "blocked")),
        (SlackRefusal("no_text"), Refused("no_text")),
    ],
)
def test_what_slack_refuses_has_an_outcome(error: SlackRefusal, outcome: object) -> None:
    assert outcome_of(error) == outcome


def test_a_cursor_keeps_what_is_known_and_fits_the_server() -> None:
    place = SlackPlace(posted=7)
    place.note_time(1_700_000_000.5)
    for number in range(1000):
        key = f"C{number % 50:010}", f"{1_700_000_000 + number}.123456"
        place.note_thread(key, 1_700_000_000.0 + number, ours=number % 2 == 0).told = key[1]
    cursor = str(place)
    assert SlackPlace.read(cursor) == place
    assert len(cursor) < 65_536
    assert len(place.threads) == 300
    assert [SlackPlace.read(odd) for odd in (None, "x", "[]", '{"threads": {"C1": {"1.2": 3}}}')][:3] == [
        SlackPlace()
    ] * 3


def test_the_app_asks_for_what_is_needed() -> None:
    scopes = APP["oauth_config"]["scopes"]["bot"]
    assert set(scopes) == SCOPES - {"reactions:write"}
    events: Mapping[str, list[str]] = APP["settings"]["event_subscriptions"]
    assert "message.im" in events["bot_events"]

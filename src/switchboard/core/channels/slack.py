"""Slack. `payload.raw` is an event as it is pushed, with or without its outer object, or an interaction.

The functions over `Raw` say what an event is; a connector fills in the envelope by them. `message` and `app_mention`,
which Slack pushes for the same mention in either order, say the same. Next: `connectors/`.
"""

from __future__ import annotations

import re
from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Found
from switchboard.ports.chat import (
    EXCLAMATION_MARK,
    KEYS,
    chat_facts,
    is_called,
    is_own,
    is_private,
    is_quoted_line,
    kind_of,
    media_of,
    words_of_sender,
)
from switchboard.ports.raw import Raw, at, child, first_word, matching, raw_of, word

_ID = re.compile(r"[A-Z0-9]{1,40}", re.ASCII)
_MENTION = re.compile(r"<@([A-Z0-9]{1,40})[|>]")
_TS = re.compile(r"\d{1,20}\.\d{1,10}", re.ASCII)
_EDIT, _DELETION = "message_changed", "message_deleted"


def event_of(raw: Raw) -> Raw:
    """The event itself, out of its outer object."""
    return child(raw, "event") or raw


def message_of(event: Raw) -> Raw:
    """The message that an event is about: of an edit the new one, of a deletion the one that was deleted."""
    inner = "previous_message" if is_deletion(event) else {_EDIT: "message"}.get(str(event.get("subtype")))
    return child(event, inner) if inner else event


def is_deletion(event: Raw) -> bool:
    """Whether a message was deleted; of one with replies Slack says that it is another message now, a tombstone."""
    return event.get("subtype") == _DELETION or (
        event.get("subtype") == _EDIT and at(event, "message", "subtype") == "tombstone"
    )


def event_key(raw: Raw) -> str | None:
    """Team, channel and time of the message; of an edit or a deletion, also that."""
    event = event_of(raw)
    message, subtype = message_of(event), event.get("subtype")
    team = matching(_ID, raw.get("team_id")) or matching(_ID, event.get("team")) or matching(_ID, message.get("team"))
    channel = matching(_ID, event.get("channel"))
    ts = matching(_TS, message.get("ts")) or matching(_TS, event.get("deleted_ts"))
    if not (team and channel and ts):
        return None
    edited = matching(_TS, at(message, "edited", "ts")) if subtype == _EDIT else None
    what = "deleted" if is_deletion(event) else edited
    return ":".join(filter(None, (team, channel, ts, what)))


def author_of(event: Raw) -> str | None:
    """The id of the person or the bot that wrote the message."""
    return first_word(message_of(event), ("user",), ("bot_id",))


def is_by_bot(event: Raw) -> bool:
    """Whether a program wrote the message."""
    message = message_of(event)
    return bool(message.get("bot_id")) or message.get("subtype") == "bot_message"


def place_of(event: Raw) -> str | None:
    """The channel, which may be a direct message: what is approved as a whole."""
    return matching(_ID, event.get("channel"))


def thread_of(event: Raw) -> str | None:
    """The time of the message with which the thread began; None of a message that begins one, or is in none."""
    message = message_of(event)
    thread = matching(_TS, message.get("thread_ts"))
    return thread if thread != message.get("ts") else None


def is_direct(event: Raw) -> bool:
    """Whether only the sender and we read it."""
    return event.get("channel_type") == "im"


def conversation_of(event: Raw, *, addressed: bool, threads: bool = False) -> str | None:
    """The conversation of a message: its thread, which a message that addresses us begins, or the channel.

    A direct chat is one conversation unless `threads`.
    """
    place, message = place_of(event), message_of(event)
    if place is None or (is_direct(event) and not threads):
        return place
    began = matching(_TS, message.get("ts")) if addressed or is_direct(event) else None
    thread = thread_of(event) or began
    return f"{place}:{thread}" if thread else place


def mentioned_in(text: str) -> frozenset[str]:
    """The ids of those who are mentioned in a text of Slack, without what is quoted in it."""
    if "<@" not in text:
        return frozenset()
    return frozenset(one for line in text.splitlines() if not is_quoted_line(line) for one in _MENTION.findall(line))


def _event_id(envelope: Envelope) -> str | None:
    return event_key(raw_of(envelope))


def _chat(envelope: Envelope) -> str | None:
    event = event_of(raw_of(envelope))
    before = at(event, "previous_message", "text")  # an edit may have taken the mention away
    addressed = _is_addressed_to_us(envelope) or (isinstance(before, str) and _mentions_us(envelope, before))
    return conversation_of(event, addressed=addressed) or _channel(envelope.payload.raw)


def _group(envelope: Envelope) -> str | None:
    """Without `payload.raw` it is in the name of the conversation."""
    named = (envelope.event.external_thread_id or "").partition(":")[0]
    return _channel(envelope.payload.raw) or matching(_ID, named)


def _channel(raw: object) -> str | None:
    return first_word(
        raw, ("event", "channel"), ("event", "item", "channel"), ("channel", "id"), ("channel_id",), ("channel",)
    )


def _replied_to(envelope: Envelope) -> str | None:
    return thread_of(event_of(raw_of(envelope)))


def _facts(envelope: Envelope) -> Found:
    raw, event = envelope.payload.raw, event_of(raw_of(envelope))
    user = first_word(raw, ("event", "user"), ("event", "message", "user"), ("user", "id"), ("user_id",), ("user",))
    return {
        "slack_team_id": first_word(raw, ("team_id",), ("team", "id"), ("event", "team"), ("team",)),
        "slack_channel_id": _channel(raw),
        "slack_user_id": user or envelope.sender.identity,
        "media": _media(message_of(event)),
        **chat_facts(envelope, direct=_direct(envelope), named=_is_addressed_to_us(envelope), mark=EXCLAMATION_MARK),
    }


def _direct(envelope: Envelope) -> bool:
    return is_private(envelope) or is_direct(event_of(raw_of(envelope)))


def _is_addressed_to_us(envelope: Envelope) -> bool:
    """Whether the text mentions us, as Slack gives it or as the connector does."""
    text = message_of(event_of(raw_of(envelope))).get("text")
    said = text if isinstance(text, str) and text else words_of_sender(envelope)
    return _mentions_us(envelope, said) or is_called(envelope)


def _mentions_us(envelope: Envelope, text: str) -> bool:
    own = word(at(raw_of(envelope), "authorizations", 0, "user_id"))
    return any(one == own or is_own(envelope, one) for one in mentioned_in(text))


def _media(message: Raw) -> str | None:
    files = message.get("files")
    return media_of(_kind_of(one) for one in files) if isinstance(files, list) else None


def _kind_of(file: object) -> str:
    """Clips of speech say so beside their type."""
    return "voice" if at(file, "subtype") == "slack_audio" else kind_of(at(file, "mimetype")) or "document"


CHANNELS: Final = (
    Channel(
        name="slack",
        providers=frozenset({"slack"}),
        event_id=_event_id,
        chat=_chat,
        group=_group,
        command_mark=EXCLAMATION_MARK,
        replied_to=_replied_to,
        facts=_facts,
        implies={"slack_channel_id": ("slack_team_id",)},
        keys={**dict.fromkeys(("slack_team_id", "slack_channel_id", "slack_user_id"), "text"), **KEYS},
        identity="platform",
        history="realtime",
    ),
)

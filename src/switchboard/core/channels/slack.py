"""Slack. `payload.raw` is an event as it is pushed, with or without its outer object, or an interaction."""

from __future__ import annotations

import re
from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Found
from switchboard.ports.chat import KEYS, chat_facts, is_called, is_own, is_private, kind_of, media_of, words_of_sender
from switchboard.ports.raw import Raw, at, child, first_word, matching, raw_of, word

_ID = re.compile(r"[A-Z0-9]{1,40}", re.ASCII)
_MENTION = re.compile(r"<@([A-Z0-9]{1,40})[|>]")
_TS = re.compile(r"\d{1,20}\.\d{1,10}", re.ASCII)


def _event(raw: Raw) -> Raw:
    return child(raw, "event") or raw


def _event_id(envelope: Envelope) -> str | None:
    # (team, channel, ts) is the same in `message` and `app_mention`, which Slack pushes for the same message.
    raw = raw_of(envelope)
    event = _event(raw)
    team = matching(_ID, raw.get("team_id")) or matching(_ID, event.get("team"))
    channel, ts = matching(_ID, event.get("channel")), matching(_TS, event.get("ts"))
    return f"{team}:{channel}:{ts}" if team and channel and ts else None


def _chat(envelope: Envelope) -> str | None:
    """The channel, possibly of a direct message; a thread in it is a conversation of its own."""
    channel, thread = _channel(envelope.payload.raw), _replied_to(envelope)
    return f"{channel}:{thread}" if channel and thread else channel


def _channel(raw: object) -> str | None:
    return first_word(
        raw, ("event", "channel"), ("event", "item", "channel"), ("channel", "id"), ("channel_id",), ("channel",)
    )


def _replied_to(envelope: Envelope) -> str | None:
    event = _event(raw_of(envelope))
    thread = matching(_TS, event.get("thread_ts"))
    return thread if thread != event.get("ts") else None


def _facts(envelope: Envelope) -> Found:
    raw = envelope.payload.raw
    user = first_word(raw, ("event", "user"), ("event", "message", "user"), ("user", "id"), ("user_id",))
    return {
        "slack_team_id": first_word(raw, ("team_id",), ("team", "id"), ("event", "team")),
        "slack_channel_id": _channel(raw),
        "slack_user_id": user or envelope.sender.identity,
        "media": _media(_event(raw_of(envelope))),
        **chat_facts(envelope, direct=_direct(envelope), named=_is_addressed_to_us(envelope)),
    }


def _direct(envelope: Envelope) -> bool:
    return is_private(envelope) or _event(raw_of(envelope)).get("channel_type") == "im"


def _is_addressed_to_us(envelope: Envelope) -> bool:
    raw, text = raw_of(envelope), words_of_sender(envelope)
    own = word(at(raw, "authorizations", 0, "user_id"))
    mentioned = any(one == own or is_own(envelope, one) for one in _MENTION.findall(text)) if "<@" in text else False
    return _event(raw).get("type") == "app_mention" or mentioned or is_called(envelope)


def _media(event: Raw) -> str | None:
    files = event.get("files")
    return media_of(kind_of(at(one, "mimetype")) or "document" for one in files) if isinstance(files, list) else None


CHANNELS: Final = (
    Channel(
        name="slack",
        providers=frozenset({"slack"}),
        event_id=_event_id,
        chat=_chat,
        replied_to=_replied_to,
        facts=_facts,
        implies={"slack_channel_id": ("slack_team_id",)},
        keys={**dict.fromkeys(("slack_team_id", "slack_channel_id", "slack_user_id"), "text"), **KEYS},
        identity="platform",
        history="realtime",
    ),
)

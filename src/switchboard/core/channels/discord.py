"""Discord. `payload.raw` is a message, or a frame of the gateway around one."""

from __future__ import annotations

import re
from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import NUMBER, Channel, Found
from switchboard.ports.chat import KEYS, chat_facts, is_called, is_own, is_private, kind_of, media_of
from switchboard.ports.raw import Raw, at, child, first_word, integer, matching, number, raw_of

_SNOWFLAKE = re.compile(r"\d{1,20}", re.ASCII)
_THREADS: Final = frozenset({10, 11, 12})
"""The types of channels that are threads; the parent of any other channel is a category."""
_VOICE: Final = 1 << 13
_EDITED_AT = re.compile(r"[\dTZ:.+-]{1,40}", re.ASCII)


def _message(envelope: Envelope) -> Raw:
    raw = raw_of(envelope)
    return child(raw, "d") or raw


def _event_id(envelope: Envelope) -> str | None:
    message = _message(envelope)
    snowflake, edited = message.get("id"), matching(_EDITED_AT, message.get("edited_timestamp"))
    found = matching(_SNOWFLAKE, snowflake) or number(snowflake)
    return f"{found}:{edited}" if found and edited else found


def _chat(envelope: Envelope) -> str | None:
    """The channel: each thread and each direct chat is one."""
    return first_word(_message(envelope), ("channel_id",))


def _replied_to(envelope: Envelope) -> str | None:
    return matching(_SNOWFLAKE, at(_message(envelope), "message_reference", "message_id"))


def _facts(envelope: Envelope) -> Found:
    message = _message(envelope)
    user = first_word(message, ("author", "id"), ("member", "user", "id"), ("user", "id"), ("user_id",))
    return {
        "discord_guild_id": integer(message.get("guild_id")),
        "discord_channel_id": integer(_chat(envelope)) or integer(envelope.event.external_thread_id),
        "discord_parent_channel_id": _parent(message),
        "discord_user_id": integer(user) or integer(envelope.sender.identity),
        "media": _media(message),
        **chat_facts(envelope, direct=_direct(envelope, message), named=_is_addressed_to_us(envelope, message)),
    }


def _parent(message: Raw) -> str | None:
    """The parent channel of a thread; interactions contain their channel, and connectors add it to messages."""
    channel = child(message, "channel")
    return integer(channel.get("parent_id")) if channel.get("type") in _THREADS else None


def _direct(envelope: Envelope, message: Raw) -> bool:
    return is_private(envelope) or (bool(message) and envelope.sender.chat_type is None and "guild_id" not in message)


def _is_addressed_to_us(envelope: Envelope, message: Raw) -> bool:
    mentions = message.get("mentions")
    those = mentions if isinstance(mentions, list) else ()
    return is_called(envelope) or any(
        is_own(envelope, at(one, "id")) or is_own(envelope, at(one, "username")) for one in those
    )


def _media(message: Raw) -> str | None:
    attached, flags = message.get("attachments"), message.get("flags")
    kinds = [kind_of(at(one, "content_type")) or "document" for one in attached] if isinstance(attached, list) else []
    if isinstance(flags, int) and flags & _VOICE:
        kinds = ["voice"]
    return media_of((*kinds, "sticker" if message.get("sticker_items") else None))


CHANNELS: Final = (
    Channel(
        name="discord",
        providers=frozenset({"discord"}),
        event_id=_event_id,
        chat=_chat,
        replied_to=_replied_to,
        facts=_facts,
        implies={
            "discord_channel_id": ("discord_guild_id", "discord_parent_channel_id"),
            "discord_parent_channel_id": ("discord_guild_id",),
        },
        keys=dict.fromkeys(
            ("discord_guild_id", "discord_channel_id", "discord_parent_channel_id", "discord_user_id"), NUMBER
        )
        | KEYS,
        identity="platform",
        realm="channel",
        history="realtime",
    ),
)

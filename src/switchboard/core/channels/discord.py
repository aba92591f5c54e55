"""Discord. `payload.raw` is a message, or a frame of the gateway around one.

The functions over `Raw` say what a message is; a connector fills in the envelope by them. Next: `connectors/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Final

from switchboard.core.passages.showing import shortened_text
from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import MAX_REPLIED, NUMBER, SEVERAL, Channel, Found, Replied
from switchboard.ports.chat import EXCLAMATION_MARK, KEYS, chat_facts, is_called, is_own, is_private, kind_of, media_of
from switchboard.ports.raw import Raw, at, child, first_word, integer, matching, number, raw_of, word

_SNOWFLAKE = re.compile(r"\d{1,20}", re.ASCII)
_THREADS: Final = frozenset({10, 11, 12})
"""The types of channels that are threads; the parent of any other channel is a category."""
_VOICE: Final = 1 << 13
_ANSWERING: Final = frozenset({None, 19, 23})
"""The types of messages that answer the one to which they refer; None: the connector does not say."""
_DELETION: Final = "MESSAGE_DELETE"
_EDITED_AT = re.compile(r"[\dTZ:.+-]{1,40}", re.ASCII)


def message_of(raw: Raw) -> Raw:
    """The message, out of the frame of the gateway around it."""
    return child(raw, "d") or raw


def event_key(raw: Raw) -> str | None:
    """The id of the message; of an edit also its time, of a deletion that it is one."""
    message = message_of(raw)
    snowflake, edited = message.get("id"), matching(_EDITED_AT, message.get("edited_timestamp"))
    found = matching(_SNOWFLAKE, snowflake) or number(snowflake)
    what = "deleted" if raw.get("t") == _DELETION else edited
    return f"{found}:{what}" if found and what else found


def author_of(message: Raw) -> str | None:
    """The id of who wrote the message, or pressed a button."""
    return first_word(message, ("author", "id"), ("member", "user", "id"), ("user", "id"), ("user_id",))


def is_by_bot(message: Raw) -> bool:
    """Whether a program wrote the message."""
    return at(message, "author", "bot") is True or bool(message.get("webhook_id"))


def conversation_of(message: Raw) -> str | None:
    """The channel: each thread, each post in a forum and each direct chat is one."""
    return first_word(message, ("channel_id",))


def place_of(message: Raw) -> str | None:
    """What is approved as a whole: the server; None of what is in none."""
    return integer(message.get("guild_id"))


def replied_to(message: Raw) -> str | None:
    """The id of the message that it answers: a forward, a pin and a post from elsewhere refer to one, too."""
    reference = child(message, "message_reference")
    answers = message.get("type") in _ANSWERING and reference.get("type") in (None, 0)
    return matching(_SNOWFLAKE, reference.get("message_id")) if answers else None


def is_addressed(message: Raw, own: Callable[[object], bool], roles: Collection[str] = ()) -> bool:
    """Whether a message of a server addresses us: by name, by our role, or as an answer to us, with or without a ping.

    `own` says of an id or a name whether it is ours; `roles`: the ids of the roles that are ours alone, since people
    choose the role of the same name.
    """
    named = (*_list_at(message, "mentions"), at(message, "referenced_message", "author"))
    if any(own(at(one, "id")) or own(at(one, "username")) for one in named):
        return True
    return any(one in roles for one in _list_at(message, "mention_roles"))


def _list_at(message: Raw, name: str) -> Sequence[object]:
    found = message.get(name)
    return found if isinstance(found, list) else ()


def _message(envelope: Envelope) -> Raw:
    return message_of(raw_of(envelope))


def _replied_message(envelope: Envelope) -> Replied | None:
    message = _message(envelope)
    answered = child(message, "referenced_message")
    if not answered or replied_to(message) is None:
        return None
    author = child(answered, "author")
    return Replied(
        text=_text_or_kind(answered),
        author=first_word(author, ("global_name",), ("username",)),
        sent_at=_time_of(answered.get("timestamp")),
        refers_to=matching(_SNOWFLAKE, answered.get("id")),
        ours=is_own(envelope, author.get("id")),
    )


def _text_or_kind(message: Raw) -> str:
    """The text of a message, otherwise what it is, such as `(photo)`."""
    text = message.get("content")
    if isinstance(text, str) and text.strip():
        return shortened_text(text.strip(), MAX_REPLIED)
    kind = next(iter((_media(message) or "").split(SEVERAL)))
    return f"({kind})" if kind else ""


def _time_of(timestamp: object) -> datetime | None:
    text = matching(_EDITED_AT, timestamp)
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)


def _facts(envelope: Envelope) -> Found:
    message = _message(envelope)
    user = author_of(message)
    return {
        "discord_guild_id": place_of(message),
        "discord_channel_id": integer(conversation_of(message)) or integer(envelope.event.external_thread_id),
        "discord_parent_channel_id": _parent(message),
        "discord_user_id": integer(user) or integer(envelope.sender.identity),
        "media": _media(message),
        **chat_facts(
            envelope,
            direct=_direct(envelope, message),
            named=_is_addressed_to_us(envelope, message),
            mark=EXCLAMATION_MARK,
        ),
    }


def _parent(message: Raw) -> str | None:
    """The parent channel of a thread; interactions contain their channel, and connectors add it to messages."""
    channel = child(message, "channel")
    return integer(channel.get("parent_id")) if channel.get("type") in _THREADS else None


def _direct(envelope: Envelope, message: Raw) -> bool:
    return is_private(envelope) or (bool(message) and envelope.sender.chat_type is None and "guild_id" not in message)


def _is_addressed_to_us(envelope: Envelope, message: Raw) -> bool:
    return is_called(envelope) or is_addressed(message, lambda name: is_own(envelope, name))


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
        event_id=lambda envelope: event_key(raw_of(envelope)),
        chat=lambda envelope: conversation_of(_message(envelope)),
        group=lambda envelope: place_of(_message(envelope)),
        title=lambda envelope: word(at(_message(envelope), "guild", "name")),
        command_mark=EXCLAMATION_MARK,
        replied_to=lambda envelope: replied_to(_message(envelope)),
        replied=_replied_message,
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

"""Telegram, by a bot or by a user's own client. `payload.raw` is an Update of the Bot API, or a bare Message."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from switchboard.core.passages.showing import shortened_text
from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import CHAT_TYPES, MAX_REPLIED, NUMBER, Channel, Found, Replied
from switchboard.ports.chat import KEYS, chat_facts, is_called, is_own, media_of
from switchboard.ports.raw import MAX_WORD, Raw, at, child, first_word, integer, number, raw_of, word

_WHO: Final = frozenset({"chat", "from", "user"})
_MEDIA: Final = {
    **{kind: kind for kind in ("animation", "audio", "document", "photo", "sticker", "video", "voice")},
    "video_note": "video",
}


_FORWARDED: Final = frozenset(
    {"forward_origin", "forward_date", "forward_from", "forward_from_chat", "forward_sender_name"}
)
_ORIGINS: Final = ("sender_user", "sender_chat", "chat")
"""Where the origin of a message has its author, but for one who hides the account and has only a name."""
_UNTITLED: Final = (*_MEDIA, "sticker", "contact", "location", "venue", "dice", "game", "invoice", "story", "checklist")
"""What a message without a text may be."""
_POST: Final = "post:"
"""How the key of a post begins."""


def _message(envelope: Envelope) -> Raw:
    """The part of an update that has `chat`, `from` or `user`; an update holds one object."""
    return _message_in(raw_of(envelope))


def _message_in(raw: Raw) -> Raw:
    if child(raw, "chat"):
        return raw
    if query := child(raw, "callback_query"):
        # The sender is the person who pressed the button; the message under the button is the bot's own.
        return {**child(query, "message"), "from": query.get("from")}
    return next((part for part in raw.values() if isinstance(part, dict) and _WHO & part.keys()), {})


def update_key(update: Raw) -> str | None:
    """The key of an update: its update_id and more, since ids restart at random after a week.

    A post of a channel comes again, under another update_id, as a message of the group in which it is discussed; its
    place in the channel is the key of both.
    """
    message = _message_in(update)
    if number(update.get("update_id")) and (post := _post(update)):
        return f"{_POST}{post}"
    when = message.get("edit_date") or message.get("date")
    parts = (update.get("update_id"), at(message, "chat", "id"), message.get("message_id"), when)
    known = [number(part) or "-" for part in parts]
    return None if known[0] == "-" else ":".join(known).rstrip(":-")


def _post(update: Raw) -> str | None:
    """The place of a new post of a channel, also of the copy in its group."""
    post, copy = child(update, "channel_post"), child(update, "message")
    if copy:
        return posted_in(copy)
    chat, message_id = integer(at(post, "chat", "id")), number(post.get("message_id"))
    return f"{chat}:{message_id}" if chat and message_id else None


def posted_in(message: Raw) -> str | None:
    """Of a post that Telegram has copied into the group of its channel: its place there, `channel:message`.

    None also if the post was itself a forward: then nothing says where in the channel it stands.
    """
    origin, poster = child(message, "forward_origin"), integer(at(message, "sender_chat", "id"))
    channel, message_id = integer(at(origin, "chat", "id")), number(origin.get("message_id"))
    is_copy = message.get("is_automatic_forward") is True and channel is not None and channel == poster
    return f"{channel}:{message_id}" if is_copy and message_id else None


def _event_id(envelope: Envelope) -> str | None:
    if key := update_key(raw_of(envelope)):
        return key
    # Without an update_id, the connector's id is often that of the message, which an edit shares with the original.
    edited = number(_message(envelope).get("edit_date"))
    return f"{envelope.event.external_event_id}:edit:{edited}" if edited else None


def _chat(envelope: Envelope) -> str | None:
    return number(at(_message(envelope), "chat", "id"))


def _replied_to(envelope: Envelope) -> str | None:
    return number(at(_message(envelope), "reply_to_message", "message_id"))


def name_of(who: Raw) -> str | None:
    """The name of a user or a chat, as people see it; one line."""
    names = (word(who.get(part)) for part in ("first_name", "last_name"))
    return " ".join(name for name in names if name)[:MAX_WORD] or first_word(who, ("title",), ("username",))


def time_of(seconds: object) -> datetime | None:
    """The time of a number of seconds since 1970."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if isinstance(seconds, int) and seconds > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def is_forwarded(message: Raw) -> bool:
    """Whether somebody else wrote the whole message, and its sender passed it on."""
    return not _FORWARDED.isdisjoint(message)


def origin_of(message: Raw) -> Raw:
    """Who wrote a forwarded message, and when, as a MessageOrigin; of an old message, made from its older fields."""
    fields = {"sender_user": "forward_from", "sender_chat": "forward_from_chat"}
    fields |= {"sender_user_name": "forward_sender_name", "date": "forward_date"}
    return child(message, "forward_origin") or {ours: message.get(old) for ours, old in fields.items()}


def author_in(origin: Raw) -> tuple[str | None, Raw]:
    """The name of who wrote a message, by its `origin`, and their account if it is not hidden."""
    who = next((found for kind in _ORIGINS if (found := child(origin, kind))), {})
    return name_of(who) or word(origin.get("sender_user_name")), who


class Answered(Struct, frozen=True):
    """The message that another one answers: its content, and who wrote it when. `number`: its id in the same chat."""

    content: Raw
    who: Raw
    author: str | None
    sent_at: datetime | None
    number: str | None = None


def answered_by(message: Raw) -> Answered | None:
    """The message that this one answers. In a topic every message answers the one that created it, which says nothing.

    One that is forwarded is by its first author.
    """
    here, elsewhere = child(message, "reply_to_message"), child(message, "external_reply")
    if "forum_topic_created" in here or not (here or elsewhere):
        return None
    if here and not is_forwarded(here):
        who = next((found for kind in ("sender_chat", "from") if (found := child(here, kind))), {})
        return Answered(here, who, name_of(who), time_of(here.get("date")), number(here.get("message_id")))
    origin = origin_of(here) if here else child(elsewhere, "origin")
    author, who = author_in(origin)
    sent_at = time_of(origin.get("date"))
    return Answered(here or elsewhere, {} if here else who, author, sent_at, number(here.get("message_id")))


def _replied_message(envelope: Envelope) -> Replied | None:
    message = _message(envelope)
    answered = answered_by(message)
    if answered is None:
        return None
    return Replied(
        text=_text_or_kind(answered.content, child(message, "quote")),
        author=answered.author,
        sent_at=answered.sent_at,
        refers_to=answered.number,
        ours=_is_ours(envelope, answered.who),
    )


def _is_ours(envelope: Envelope, who: Raw) -> bool:
    return is_own(envelope, integer(who.get("id"))) or is_own(envelope, who.get("username"))


def _text_or_kind(message: Raw, quote: Raw) -> str:
    """The text of a message, otherwise what it is, such as `(photo)`.

    Of a message in another chat, Telegram gives the text only as a quotation. One that the sender chose is part of the
    answer itself.
    """
    written = at(message, "text") or at(message, "caption") or at(message, "poll", "question")
    if not written and quote.get("is_manual") is not True:
        written = quote.get("text")
    if isinstance(written, str) and written.strip():
        return shortened_text(written.strip(), MAX_REPLIED)
    return next((f"({kind.replace('_', ' ')})" for kind in _UNTITLED if kind in message), "")


def _user(message: Raw) -> str | None:
    return integer(at(message, "from", "id")) or integer(at(message, "user", "id"))


def _facts(envelope: Envelope) -> Found:
    message = _message(envelope)
    chat_type = word(at(message, "chat", "type")) or envelope.sender.chat_type
    user = _user(message) or (None if message else integer(envelope.sender.identity))
    chat = integer(at(message, "chat", "id")) or integer(envelope.event.external_thread_id)
    known = chat_type if chat_type in CHAT_TYPES else None
    return {
        "chat_type": envelope.sender.chat_type or known,
        "telegram_chat_id": chat or (user if known == "private" else None),
        "telegram_user_id": user,
        "telegram_chat_type": known,
        "telegram_topic_id": integer(message.get("message_thread_id")) if message.get("is_topic_message") else None,
        "media": _media(message),
        **chat_facts(envelope, direct=known == "private", named=_is_addressed_to_us(envelope, message)),
    }


def _media(message: Raw) -> str | None:
    kinds = _MEDIA.keys() & message.keys()
    # An animation comes with a document for old clients.
    return (
        media_of(_MEDIA[kind] for kind in kinds - ({"document"} if "animation" in kinds else set())) if kinds else None
    )


def _is_addressed_to_us(envelope: Envelope, message: Raw) -> bool:
    """Whether the bot is addressed, by its name or by an answer to it."""
    return is_called(envelope) or is_own(envelope, at(message, "reply_to_message", "from", "username"))


def _implied_facts(facts: Mapping[str, str]) -> Found:
    return {"chat_type": facts.get("telegram_chat_type")}


_TELEGRAM: Final = Channel(
    name="telegram",
    providers=frozenset({"telegram"}),
    event_id=_event_id,
    comes_twice=lambda envelope: (_event_id(envelope) or "").startswith(_POST),
    chat=_chat,
    title=lambda envelope: word(at(_message(envelope), "chat", "title")),
    replied_to=_replied_to,
    replied=_replied_message,
    facts=_facts,
    keys={
        **dict.fromkeys(("telegram_chat_id", "telegram_user_id", "telegram_topic_id"), NUMBER),
        "telegram_chat_type": CHAT_TYPES,
        **KEYS,
    },
    implies={"telegram_chat_type": ("chat_type",), "telegram_topic_id": ("telegram_chat_id",)},
    implied=_implied_facts,
    identity="platform",
    realm="channel",
    history="realtime",
)
CHANNELS: Final = (_TELEGRAM, _TELEGRAM.named("telegram_bot"), _TELEGRAM.named("telegram_user_client"))

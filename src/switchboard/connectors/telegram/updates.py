"""Converts a Bot API Update into an event. Pure; called by `channel.py`.

In: anything getUpdates returned, however odd; out: an `Inbound`, or an `Unreadable` that says what is wrong. Never
raises. Next: `kinds.py`, `passages.py` and `content.py`.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard.connectors.telegram.content import files_of
from switchboard.connectors.telegram.kinds import describe_service_event, names_in, unknown_kind
from switchboard.connectors.telegram.passages import own_entities, passages_in
from switchboard.core.channels.telegram import answered_by, is_forwarded, name_of, posted_in, time_of, update_key
from switchboard.core.passages.own import has_others_words, joined
from switchboard.core.text.lenient import clean
from switchboard.domain.envelope import (
    Attachment,
    ChatType,
    Control,
    Envelope,
    Event,
    EventKind,
    Passage,
    Payload,
    Sender,
    Source,
)
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import PRESS, FileIn, Inbound, Piece, Unreadable
from switchboard.ports.raw import Raw, at, child, integer, number, word

KINDS: Final[dict[str, EventKind]] = {
    "message": "message",
    "edited_message": "edit",
    "channel_post": "message",
    "edited_channel_post": "edit",
    "callback_query": "button",
    "message_reaction": "reaction",
    "my_chat_member": "membership",
}
"""The updates that we ask for, and what they are for us."""
_CHAT_TYPES: Final[dict[str, ChatType]] = {
    "private": "private",
    "group": "group",
    "supergroup": "supergroup",
    "channel": "channel",
}
_SPLIT: Final = 4096
"""The maximum length of a text in UTF-16 units: what is longer, apps send in several messages."""
_NEARLY_SPLIT: Final = 4000
"""Most apps split at a blank before that, so the pieces are shorter."""


class Me(Struct, frozen=True):
    """Our bot; `username` without the @."""

    id: int
    username: str | None = None

    @property
    def endpoint(self) -> str:
        """The part of its identity that never changes."""
        return f"bot:{self.id}"


def read(update: object, me: Me, now: datetime, *, since: int = 0) -> Inbound | Unreadable:
    """The event of an update that arrived at `now`. Anything sent before `since` (seconds since 1970) is history."""
    try:
        raw = clean(update)
        if not isinstance(raw, dict) or number(raw.get("update_id")) is None:
            return _unreadable(update, "it has no update_id")
        kind = next((one for one in (*KINDS, *raw) if isinstance(raw.get(one), dict)), None)
        if kind is None:
            return _unreadable(update, f"it has nothing that is read: {', '.join(raw)[:200]}")
        event = _event(raw, kind, me, now) if kind in KINDS else _unrequested_event(raw, kind, me, now)
        if isinstance(event, str):
            return _unreadable(update, event)
        _check(event.envelope)
    except (msgspec.MsgspecError, OverflowError, RecursionError) as error:
        return _unreadable(update, f"{type(error).__name__}: {error}"[:500])
    return _as_history(event) if _is_before(event.envelope, since) else event


class _Kind(Struct, frozen=True):
    """What an update is for us. `said`: what happened, if nobody wrote; `unknown`: the platform's name of its kind."""

    event: EventKind
    said: str | None = None
    unknown: str | None = None


def _kind(message: Raw, name: str) -> _Kind:
    """Nobody writes what happens in a chat, nor, as far as we know, what we do not know."""
    kind = KINDS[name]
    if kind == "message" and (said := describe_service_event(message)) is not None:
        return _Kind("membership", said)
    if kind in ("message", "edit") and (unknown := unknown_kind(message)) is not None:
        return _Kind("membership", f"(A message of a kind that is not read: {unknown})", unknown)
    return _Kind(kind)


def _files(message: Raw, kind: EventKind) -> tuple[tuple[Attachment, FileIn], ...]:
    return tuple(files_of(message)) if kind in ("message", "edit") else ()


def _refers_to(message: Raw, kind: EventKind) -> str | None:
    return number(message.get("message_id")) if kind in ("edit", "reaction", "button") else None


def _album(message: Raw, kind: EventKind) -> str | None:
    return word(message.get("media_group_id")) if kind == "message" else None


def _chat_type(chat: Raw) -> ChatType | None:
    return _CHAT_TYPES.get(word(chat.get("type")) or "")


def _event(update: JsonObject, name: str, me: Me, now: datetime) -> Inbound | str:
    about = child(update, name)
    # The message below a button is ours; the user who pressed it is in another field.
    message = child(about, "message") if name == "callback_query" else about
    chat, sender = child(message, "chat"), _sender(about)
    chat_id, who = integer(chat.get("id")), integer(sender.get("id"))
    if chat_id is None or who is None:
        return "it has no chat or no sender"
    read_as = _kind(message, name)
    kind, direct = read_as.event, chat.get("type") == "private"
    files = _files(message, kind)
    passages = _passages(name, about, read_as.said, me)
    envelope = Envelope(
        schema_version="ingest.v1",
        source=Source(channel="telegram", provider="telegram", endpoint_identity=me.endpoint),
        event=Event(
            external_event_id=update_key(update) or "",
            external_thread_id=_thread(chat_id, message),
            observed_at=now,
            sent_at=time_of(about.get("edit_date") or about.get("date")),
            kind=kind,
            refers_to=_refers_to(message, kind),
            reply_address=_address(chat_id, message, direct=direct) | _press(about, kind),
        ),
        sender=Sender(identity=who, display_name=name_of(sender), chat_type=_chat_type(chat)),
        payload=Payload(
            raw=update,
            normalized_text=joined(passages),
            passages=passages if has_others_words(passages) else (),
            attachments=tuple(attachment for attachment, _ in files),
        ),
        control=_control(about, kind, addressed=direct or _is_addressed(message, me)),
    )
    return Inbound(
        envelope=envelope,
        raw=msgspec.json.encode(update),
        own=who == str(me.id),
        by_bot=sender.get("is_bot") is True,
        direct=direct,
        files=tuple(file for _, file in files),
        album=_album(message, kind),
        piece=_piece(message, kind),
        moved=_threads_of_migration(chat_id, message),
        unknown=read_as.unknown,
    )


def _unrequested_event(update: JsonObject, name: str, me: Me, now: datetime) -> Inbound:
    """The event of an update of a kind that we do not ask for, or do not know; an old webhook may have asked for it."""
    about, unknown = child(update, name), names_in([name])
    chat, sender = child(about, "chat"), _sender(about)
    chat_id, who = integer(chat.get("id")), integer(sender.get("id"))
    envelope = Envelope(
        schema_version="ingest.v1",
        source=Source(channel="telegram", provider="telegram", endpoint_identity=me.endpoint),
        event=Event(
            external_event_id=update_key(update) or "",
            external_thread_id=chat_id,
            observed_at=now,
            sent_at=time_of(about.get("date")),
            kind="membership",
        ),
        sender=Sender(identity=who or str(me.id), display_name=name_of(sender), chat_type=_chat_type(chat)),
        payload=Payload(raw=update, normalized_text=f"(An update of a kind that is not read: {unknown})"),
    )
    own = who is None or who == str(me.id)
    return Inbound(envelope=envelope, raw=msgspec.json.encode(update), own=own, unknown=unknown)


def _sender(about: Raw) -> Raw:
    """The sender; channels and anonymous administrators speak as a chat, whatever `from` says."""
    return next(
        (who for at_ in ("sender_chat", "from", "user", "actor_chat") if (who := child(about, at_))),
        child(about, "chat"),
    )


def _topic(message: Raw) -> str | None:
    """The topic of a forum; other messages can have a thread too, but nothing can be sent to it."""
    return integer(message.get("message_thread_id")) if message.get("is_topic_message") is True else None


def _thread(chat_id: str, message: Raw) -> str:
    topic = _topic(message)
    return f"{chat_id}:{topic}" if topic else chat_id


def _address(chat_id: str, message: Raw, *, direct: bool) -> JsonObject:
    address: JsonObject = {"chat": int(chat_id)}
    if topic := _topic(message):
        address["topic"] = int(topic)
    if number(message.get("message_id")):
        address["message"] = message["message_id"]
    if not direct:
        address["group"] = True
    return address


def _press(about: Raw, kind: EventKind) -> JsonObject:
    """The id of a pressed button, by which whoever pressed it is answered."""
    press = word(about.get("id")) if kind == "button" else None
    return {PRESS: press} if press else {}


def _control(about: Raw, kind: EventKind, *, addressed: bool) -> Control:
    """A press is known by its own id: what else an update says of it is about the message that has the button."""
    if kind != "button":
        # In the channel it is answered again; here its edit would be answered a second time.
        copied = kind == "edit" and posted_in(about) is not None
        return Control(addressed=addressed, ingestion_tier="history" if copied else "full")
    press = word(about.get("id"))
    return Control(addressed=True, idempotency_key=f"press:{press}" if press else None)


def _passages(name: str, about: Raw, happening: str | None, me: Me) -> tuple[Passage, ...]:
    if happening is None and KINDS[name] in ("message", "edit"):
        return passages_in(about, me.username)
    said = happening if happening is not None else _action_text(name, about)
    return (Passage(kind="own", text=said),) if said else ()


def _action_text(name: str, about: Raw) -> str:
    """What somebody did without writing."""
    match name:
        case "callback_query":
            return word(about.get("data")) or ""
        case "message_reaction":
            new = about.get("new_reaction")
            return " ".join(word(at(one, "emoji")) or "(other)" for one in new) if isinstance(new, list) else ""
    before, after = (word(at(about, f"{age}_chat_member", "status")) for age in ("old", "new"))
    return f"(The bot was {before}, and is {after})"


def _piece(message: Raw, kind: EventKind) -> Piece | None:
    """Where a message stands among those that are sent together; a command is always a message by itself."""
    number_, text = message.get("message_id"), message.get("text")
    words = text if isinstance(text, str) else ""
    if kind != "message" or number(number_) is None or not isinstance(number_, int):
        return None
    forwarded = is_forwarded(message) and posted_in(message) is None
    return (
        None if words.startswith("/") and not forwarded else Piece(number=number_, cut=_cut(words), forwarded=forwarded)
    )


def _cut(text: str) -> Literal["", "\n"] | None:
    """What belongs between a text and its rest, if the app has probably split it.

    Apps split where there is a blank or the end of a line, which Telegram then removes. Only where they find neither,
    they split a word, and the text is as long as can be.
    """
    if len(text) < _NEARLY_SPLIT // 2:
        return None
    units = len(text.encode("utf-16-le")) // 2
    if units < _NEARLY_SPLIT:
        return None
    return "" if units >= _SPLIT else "\n"


def _is_addressed(message: Raw, me: Me) -> bool:
    """Whether it answers the bot, names it, or is a command not meant for another bot, in words of its sender."""
    answered = answered_by(message)
    if answered is not None and integer(at(message, "reply_to_message", "from", "id")) == str(me.id):
        return True
    return any(_is_call(words, about, me) for words, about in own_entities(message))


def _is_call(words: str, entity: Raw, me: Me) -> bool:
    """Whether an entity with these words names the bot."""
    kind = entity.get("type")
    if kind == "text_mention":
        return integer(at(entity, "user", "id")) == str(me.id)
    if kind not in ("mention", "bot_command"):
        return False
    before, sign, named = words.partition("@")
    if kind == "bot_command" and before and not sign:
        return True
    return me.username is not None and named.lower() == me.username.lower()


def _threads_of_migration(chat_id: str, message: Raw) -> tuple[str, str] | None:
    """The threads that a group moved from and to; Telegram reports a move in both."""
    if new := integer(message.get("migrate_to_chat_id")):
        return chat_id, new
    if old := integer(message.get("migrate_from_chat_id")):
        return old, chat_id
    return None


def _check(envelope: Envelope) -> None:
    """Check like the server, to report here what it would refuse."""
    msgspec.json.decode(msgspec.json.encode(envelope), type=Envelope)


def _is_before(envelope: Envelope, since: int) -> bool:
    sent_at = envelope.event.sent_at
    return sent_at is not None and sent_at.timestamp() < since and envelope.event.kind == "message"


def _as_history(event: Inbound) -> Inbound:
    control = replace(event.envelope.control, ingestion_tier="history")
    return replace(event, envelope=replace(event.envelope, control=control))


def _unreadable(update: object, reason: str) -> Unreadable:
    try:
        raw = json.dumps(update).encode()
    except (RecursionError, TypeError, ValueError):
        raw = repr(type(update)).encode()
    return Unreadable(f"unreadable:{hashlib.sha256(raw).hexdigest()[:32]}", raw, reason)

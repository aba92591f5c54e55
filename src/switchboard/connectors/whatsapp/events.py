"""Converts a message of a webhook into an event. Pure; called by `channel.py`.

In: one message with its contact and the number that it was sent to, however odd; out: an `Inbound`, or an `Unreadable`
that says what is wrong. Never raises. Next: `words.py` and `people.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard.connectors.whatsapp.moves import NumberMove, name_of_phone
from switchboard.connectors.whatsapp.people import WhatsAppSender, changed_identity, earlier_identity, sender_of
from switchboard.connectors.whatsapp.words import file_in, is_described, passages_in
from switchboard.core.channels.whatsapp import event_key
from switchboard.core.passages.own import has_others_words, joined
from switchboard.domain.envelope import Control, Envelope, Event, EventKind, Passage, Payload, Sender, Source
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Inbound, Unreadable
from switchboard.ports.raw import Raw, at, child, integer, word

_KINDS: Final[dict[str, EventKind]] = {
    "interactive": "button",
    "button": "button",
    "reaction": "reaction",
    "edit": "edit",
    "revoke": "delete",
    "system": "membership",
}
"""By type of message; all others are messages."""
_REFERS: Final = {
    "interactive": ("context", "id"),
    "button": ("context", "id"),
    "reaction": ("reaction", "message_id"),
    "edit": ("edit", "original_message_id"),
    "revoke": ("revoke", "original_message_id"),
}
_LATEST_S: Final = 4_102_444_800
"""No message is from after the year 2100."""
KnownAs = Callable[[str], str | None]
"""From a phone number to the identity that somebody with it has written under last."""


class _Known(Struct, frozen=True):
    """What is known of people who have written or moved, when a message was sent."""

    known_as: KnownAs
    moves: Sequence[NumberMove]
    sent_s: int

    def name_sender(self, sender: WhatsAppSender) -> WhatsAppSender:
        """One who is known by the phone alone is not who had it before."""
        if sender.user_id is not None or sender.phone is None:
            return sender
        return replace(sender, identity=name_of_phone(sender.phone, self.sent_s, self.moves))


class _Read(Struct, frozen=True):
    """What a message is for us; `unknown`: Meta's name of a type that is not read."""

    kind: EventKind
    sender: WhatsAppSender
    passages: tuple[Passage, ...]
    moved: tuple[str, str] | None = None
    unknown: str | None = None


def read_message(
    value: JsonObject, now: datetime, known_as: KnownAs = lambda _: None, moves: Sequence[NumberMove] = ()
) -> Inbound | Unreadable:
    """The event of a message that arrived at `now`; `moves`: who has left a phone number."""
    try:
        message = child(value, "messages", 0)
        kind = "errors" if message.get("errors") and message.get("type") != "system" else word(message.get("type"))
        wamid = event_key(value)
        read = _read_kind(kind or "", value, _Known(known_as, moves, sent_s(message) or int(now.timestamp())))
        if wamid is None or kind is None or read is None:
            return unreadable_message(value, "it has no id, no type or no sender")
        event = _event_of(value, wamid, kind, read, now)
        msgspec.json.decode(msgspec.json.encode(event.envelope), type=Envelope)  # what the server would refuse
    except (msgspec.MsgspecError, OverflowError, RecursionError) as error:
        return unreadable_message(value, f"{type(error).__name__}: {error}"[:500])
    return event


def unreadable_message(value: JsonObject, reason: str) -> Unreadable:
    """A message that cannot be read."""
    raw = msgspec.json.encode(value)
    return Unreadable(event_key(value) or f"unreadable:{hashlib.sha256(raw).hexdigest()[:32]}", raw, reason)


def sent_s(message: Raw) -> int | None:
    """When it was sent, in seconds since 1970."""
    found = int(integer(message.get("timestamp")) or -1)
    return found if 0 <= found < _LATEST_S else None


def _read_kind(kind: str, value: JsonObject, known: _Known) -> _Read | None:
    if kind == "system":
        return _read_system(value, known)
    found = sender_of(value)
    if found is None:
        return None
    sender = known.name_sender(found)
    message = child(value, "messages", 0)
    if not is_described(kind) or "group_id" in message:
        unknown = "group" if "group_id" in message else kind[:64]
        told = Passage(kind="own", text=f"(A message of a kind that is not read: {unknown})")
        return _Read("membership", sender, (told,), unknown=unknown)
    earlier = earlier_identity(sender)
    moved = None if earlier is None else (earlier, sender.identity)
    return _Read(_KINDS.get(kind, "message"), sender, passages_in(kind, message), moved)


def _read_system(value: JsonObject, known: _Known) -> _Read | None:
    """A change of the ids of somebody moves the conversation; anything else is only kept."""
    changed = changed_identity(value)
    if changed is None:
        return None
    new, phone, old = known.name_sender(changed.new), word(at(value, "messages", 0, "from")), changed.old
    if old is None and phone is not None:
        old = known.known_as(phone) if new.user_id else name_of_phone(phone, known.sent_s, known.moves)
    moved = None if old is None or old == new.identity else (old, new.identity)
    told = Passage(kind="own", text="(Has another phone number now)")
    return _Read("membership", new, (told,), moved)


def _event_of(value: JsonObject, wamid: str, kind: str, read: _Read, now: datetime) -> Inbound:
    message = child(value, "messages", 0)
    sent = sent_s(message)
    files = file_in(kind, message) if read.kind == "message" else ()
    envelope = Envelope(
        schema_version="ingest.v1",
        source=Source(
            channel="whatsapp",
            provider="whatsapp",
            endpoint_identity=word(at(value, "metadata", "phone_number_id")) or "",
        ),
        event=Event(
            external_event_id=wamid,
            external_thread_id=read.sender.identity,
            observed_at=now,
            sent_at=None if sent is None else datetime.fromtimestamp(sent, UTC),
            kind=read.kind,
            refers_to=word(at(message, *_REFERS[kind])) if kind in _REFERS else None,
            reply_address=read.sender.address(wamid, sent if sent is not None else int(now.timestamp())),
        ),
        sender=Sender(identity=read.sender.identity, display_name=read.sender.name, chat_type="private"),
        payload=Payload(
            raw=value,
            normalized_text=joined(read.passages),
            passages=read.passages if has_others_words(read.passages) else (),
            attachments=tuple(attachment for attachment, _ in files),
        ),
        control=Control(addressed=True),
    )
    return Inbound(
        envelope=envelope,
        raw=msgspec.json.encode(value),
        direct=True,
        files=tuple(file for _, file in files),
        moved=read.moved,
        unknown=read.unknown,
    )

"""Converts an event of Slack into an event of ours. Pure; called by `channel.py`, which has looked up what it needs.

In: the payload of an event, however odd, or a message of the history in the same form; out: an `Inbound`, or an
`Unreadable` that says what is wrong. Never raises. Both events of a mention come out equal but for `raw`. Next:
`texts.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from switchboard.connectors.slack.files import files_of
from switchboard.connectors.slack.presses import PRESSED, read_press
from switchboard.connectors.slack.settings import SlackAccountSettings
from switchboard.connectors.slack.texts import in_words, source_of
from switchboard.core.channels.slack import (
    author_of,
    conversation_of,
    event_key,
    event_of,
    is_by_bot,
    is_deletion,
    is_direct,
    mentioned_in,
    message_of,
    place_of,
    thread_of,
)
from switchboard.core.passages.own import has_others_words, joined, read_passages
from switchboard.core.passages.plain import limit_passages
from switchboard.core.text.lenient import clean
from switchboard.core.voice.recordings import shown_voices
from switchboard.domain.envelope import (
    Attachment,
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
from switchboard.ports.connector import Inbound, Unreadable
from switchboard.ports.raw import Raw, at, child, first_word, word

_MESSAGES: Final = frozenset({None, "file_share", "thread_broadcast", "me_message", "bot_message"})
_EDIT: Final = "message_changed"


class SlackBot(Struct, frozen=True):
    """Our app in its workspace: ids of the team, of its user, and of its bot."""

    team: str
    user: str
    bot: str = ""

    @property
    def endpoint(self) -> str:
        """What never changes."""
        return f"{self.team}:{self.user}"


class Lookup(Struct, frozen=True):
    """What an event does not say itself: names by id, whole files by id, whether we have written in its thread, and
    the message with which that began, if nobody has read it yet."""

    names: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Raw] = field(default_factory=dict)
    follows: bool = False
    root: Passage | None = None


class SlackContext(Struct, frozen=True):
    """With what an event is read: the receiving app, its settings, what was looked up, and when the event arrived."""

    me: SlackBot
    settings: SlackAccountSettings
    now: datetime
    known: Lookup = Lookup()


def payload_of(raw: bytes) -> JsonObject | str:
    """The payload of a kept event; or why it cannot be read."""
    try:
        found = clean(json.loads(raw))
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    return found if isinstance(found, dict) else "it is no event"


def kind_of(event: Raw) -> EventKind | None:
    """What an event is for us; None if nobody needs it."""
    match event.get("type"):
        case "app_mention":
            return "message"
        case "reaction_added":
            return "reaction" if at(event, "item", "type") == "message" else None
        case "message":
            return _kind_of_message(event)
    return None


def _kind_of_message(event: Raw) -> EventKind | None:
    if is_deletion(event):
        return "delete" if author_of(event) is not None else None
    subtype = word(event.get("subtype"))
    if subtype == _EDIT:
        return "edit" if _is_edit(event) else None
    return "message" if subtype in _MESSAGES else None


def _is_edit(event: Raw) -> bool:
    """Whether somebody has edited a message: previews of links and replies in its thread change it, too."""
    new, old = message_of(event), child(event, "previous_message")
    edited = word(at(new, "edited", "ts"))
    return edited is not None and edited != at(old, "edited", "ts") and source_of(new) != source_of(old)


def is_addressed(event: Raw, me: SlackBot, *, follows: bool = False) -> bool:
    """Whether a message is said to us: in a direct chat, by its text alone, or in a thread that we follow."""
    message = message_of(event)
    return is_direct(event) or follows or me.user in mentioned_in(source_of(message))


def read_event(payload: JsonObject | str, raw: bytes, given: SlackContext) -> Inbound | Unreadable:
    """The event of a payload."""
    if isinstance(payload, str):
        return _as_unreadable(raw, payload)
    try:
        found = _read_payload(payload, raw, given)
        if isinstance(found, str):
            return _as_unreadable(raw, found)
        msgspec.json.decode(msgspec.json.encode(found.envelope), type=Envelope)  # as the server will
    except (msgspec.MsgspecError, OverflowError, RecursionError) as error:
        return _as_unreadable(raw, f"{type(error).__name__}: {error}"[:500])
    return replace(found, raw=raw)


def _read_payload(payload: JsonObject, raw: bytes, given: SlackContext) -> Inbound | str:
    if payload.get("type") == PRESSED:
        return read_press(payload, given.me.endpoint, given.now, threads=given.settings.dm == "threads")
    kind = kind_of(event_of(payload))
    return _event_to_count(payload, raw, given) if kind is None else _event_of_kind(payload, kind, given)


def _event_of_kind(payload: JsonObject, kind: EventKind, given: SlackContext) -> Inbound | str:
    me, known, settings = given.me, given.known, given.settings
    event = _as_message_event(payload) if kind == "reaction" else event_of(payload)
    message, author, place = message_of(event), _author_in(payload, kind), place_of(event)
    if author is None or place is None:
        return "it has no author or no channel"
    direct, addressed = is_direct(event), kind != "reaction" and is_addressed(event, me, follows=known.follows)
    # A thread that we follow is one already; one that an edit takes the mention away from has begun.
    named = any(me.user in mentioned_in(source_of(one)) for one in (message, child(event, "previous_message")))
    files = tuple(files_of(message, known.files)) if kind == "message" else ()
    passages = _passages_of(payload, kind, me, known, tuple(attachment for attachment, _ in files))
    envelope = Envelope(
        schema_version="ingest.v1",
        source=Source(channel="slack", provider="slack", endpoint_identity=me.endpoint),
        event=Event(
            external_event_id=event_key(payload) or _other_key(payload),
            external_thread_id=conversation_of(event, addressed=named, threads=settings.dm == "threads"),
            observed_at=given.now,
            sent_at=_sent_at(event, kind),
            kind=kind,
            refers_to=_refers_to(event, kind),
            reply_address=_address_of(event, settings, addressed=named),
        ),
        sender=Sender(
            identity=author,
            display_name=known.names.get(author) or word(message.get("username")),
            chat_type="private" if direct else "group",
        ),
        payload=Payload(
            raw=payload,
            normalized_text=joined(passages),
            passages=passages if has_others_words(passages) else (),
            attachments=tuple(attachment for attachment, _ in files),
        ),
        control=Control(addressed=addressed),
    )
    return Inbound(
        envelope=envelope,
        raw=b"",
        own=author in (me.user, me.bot) or message.get("bot_id") == me.bot != "",
        by_bot=is_by_bot(event),
        direct=direct,
        files=tuple(file for _, file in files),
    )


def _as_message_event(payload: JsonObject) -> Raw:
    """A reaction as an event of the message that it is about: Slack does not say in which thread that is."""
    item = child(event_of(payload), "item")
    place = word(item.get("channel")) or ""
    return {"type": "message", "channel": place, "ts": item.get("ts"), "channel_type": "im" if place[:1] == "D" else ""}


def _author_in(payload: JsonObject, kind: EventKind) -> str | None:
    event = event_of(payload)
    return word(event.get("user")) if kind == "reaction" else author_of(event)


def _other_key(payload: Raw) -> str:
    return word(payload.get("event_id")) or ""


def time_of(ts: object) -> datetime | None:
    """The time of a message, which is its id."""
    text = word(ts)
    try:
        return datetime.fromtimestamp(float(text), UTC) if text else None
    except (ValueError, OverflowError, OSError):
        return None


def _sent_at(event: Raw, kind: EventKind) -> datetime | None:
    message = message_of(event)
    return time_of(
        {"edit": at(message, "edited", "ts"), "delete": event.get("event_ts")}.get(kind) or message.get("ts")
    )


def _refers_to(event: Raw, kind: EventKind) -> str | None:
    """The message that an edit, a deletion or a reaction is about."""
    return None if kind == "message" else first_word(event, ("deleted_ts",), ("message", "ts"), ("ts",))


def _address_of(event: Raw, settings: SlackAccountSettings, *, addressed: bool) -> JsonObject:
    """Where an answer goes: into the thread of the message, which a message in a channel that names us begins."""
    message, direct = message_of(event), is_direct(event)
    begins = settings.dm == "threads" if direct else addressed
    thread = thread_of(event) or (word(message.get("ts")) if begins else None)
    address: JsonObject = {"channel": place_of(event), "message": word(message.get("ts"))}
    return address | ({"thread": thread} if thread else {}) | ({} if direct else {"group": True})


def _passages_of(
    payload: Raw, kind: EventKind, me: SlackBot, known: Lookup, attachments: tuple[Attachment, ...]
) -> tuple[Passage, ...]:
    event = event_of(payload)
    message = message_of(event)
    match kind:
        case "delete":
            return ()
        case "reaction":
            return _own_passage(f":{word(event.get('reaction')) or 'unknown'}:")
    text = in_words(source_of(message), known.names, me.user)
    passages = [
        *([known.root] if known.root is not None else ()),
        *(read_passages(text, "slack") if text else ()),
        *_shared_passages(message, known.names, me),
    ]
    return limit_passages(passages) if passages else _own_passage(shown_voices(attachments))


def _shared_passages(message: Raw, names: Mapping[str, str], me: SlackBot) -> Iterator[Passage]:
    """Messages that the sender has shared; previews of links are nobody's words."""
    shared = message.get("attachments")
    for about in map(child, shared if isinstance(shared, list) else ()):
        text = about.get("text") or about.get("fallback")
        if not isinstance(text, str) or not (about.get("is_share") or about.get("is_msg_unfurl") or is_bare(message)):
            continue
        if words := in_words(text, names, me.user):
            yield Passage(
                kind="forwarded",
                text=words,
                author=first_word(about, ("author_name",), ("author_subname",)),
                sent_at=time_of(about.get("ts")),
            )


def is_bare(message: Raw) -> bool:
    """Whether a message says nothing but by what is attached to it, as those of some programs."""
    return not source_of(message) and not message.get("files")


def _own_passage(text: str) -> tuple[Passage, ...]:
    return (Passage(kind="own", text=text),) if text else ()


def root_passage(root: Raw, names: Mapping[str, str], me: SlackBot) -> Passage | None:
    """The message with which a thread began, for the first reader of the thread."""
    words = in_words(source_of(root), names, me.user)[:MAX_ROOT]
    author = author_of(root) or ""
    if not words or word(root.get("subtype")) not in _MESSAGES:
        return None
    name = names.get(author) or word(root.get("username")) or author or None
    ts = word(root.get("ts"))
    return Passage(kind="quoted", text=words, author=name, sent_at=time_of(ts), refers_to=ts)


MAX_ROOT: Final = 2000


def _event_to_count(payload: JsonObject, raw: bytes, given: SlackContext) -> Inbound:
    """An event that nobody needs: it is only counted."""
    event = event_of(payload)
    name = first_word(event, ("subtype",), ("type",)) or "unknown"
    envelope = Envelope(
        schema_version="ingest.v1",
        source=Source(channel="slack", provider="slack", endpoint_identity=given.me.endpoint),
        event=Event(
            external_event_id=_other_key(payload) or event_key(payload) or _digest_of(raw),
            external_thread_id=place_of(event),
            observed_at=given.now,
            kind="membership",
        ),
        sender=Sender(identity=author_of(event) or given.me.user),
        payload=Payload(raw=payload, normalized_text=f"(An event that is not read: {name})"),
    )
    return Inbound(envelope=envelope, raw=raw, own=True, unknown=None if name == _EDIT else name)


def _as_unreadable(raw: bytes, reason: str) -> Unreadable:
    return Unreadable(f"unreadable:{_digest_of(raw)}", raw, reason)


def _digest_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:32]

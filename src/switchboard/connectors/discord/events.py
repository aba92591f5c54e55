"""Converts an event of the gateway into an event of ours. Pure; called by `arriving.py`, and for quarantine.

In: the name and the data of an event, however odd; out: an `Inbound`, an `Unreadable` that says what is wrong, or
nothing if it is no event for us. Never raises. Next: `passages.py` and `files.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from switchboard.connectors.discord.cursor import seconds_of
from switchboard.connectors.discord.files import files_of
from switchboard.connectors.discord.passages import passages_in, time_in
from switchboard.connectors.discord.places import DiscordPlace, DiscordPlaces
from switchboard.connectors.discord.settings import DiscordAccountSettings
from switchboard.core.channels.discord import author_of, conversation_of, event_key, is_addressed, is_by_bot
from switchboard.core.passages.own import has_others_words, joined
from switchboard.core.text.lenient import clean
from switchboard.domain.envelope import Control, Envelope, Event, EventKind, Passage, Payload, Sender, Source
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import PRESS, Inbound, Unreadable
from switchboard.ports.raw import Raw, at, child, first_word, integer, word

_WRITTEN: Final = frozenset({"0", "19", "20", "23"})
"""The types of messages that somebody wrote: the usual one, a reply, and what comes of commands."""
_BESIDE: Final = frozenset({"18", "21"})
"""Those that say again what a thread is and begins with."""
_IN_CHANNELS: Final = frozenset({0, 5})
"""The types of channels in which a thread can be begun on a message."""
_PRESSED: Final = 3
_MAX_TITLE: Final = 80
KINDS: Final[dict[str, EventKind]] = {
    "MESSAGE_CREATE": "message",
    "MESSAGE_UPDATE": "edit",
    "MESSAGE_DELETE": "delete",
    "MESSAGE_REACTION_ADD": "reaction",
    "INTERACTION_CREATE": "button",
}
"""The events that are for us, and as what."""
_NOT_SHOWN: Final = Passage(kind="quoted", text="(A message that Discord does not show to bots)", author="Discord")
TOKEN: Final = "token"  # noqa: S105  the name of a field
"""The field of a press with which it is answered, in its address only."""


class DiscordReader(Struct, frozen=True):
    """Whose events are read, and how; `places` is filled meanwhile."""

    settings: DiscordAccountSettings
    places: DiscordPlaces

    @property
    def endpoint(self) -> str:
        """Our own identity, which never changes."""
        return f"bot:{self.places.me}"

    def read(self, name: str, data: object, now: datetime) -> Inbound | Unreadable | None:
        """The event that arrived at `now`; None: it is none for us."""
        try:
            about = clean(data)
            if not isinstance(about, dict):
                return _unreadable_event(name, data, "it has no data")
            kind = KINDS.get(name)
            made = None if kind is None else self._event_of(name, kind, about, now)
            if isinstance(made, str):
                return _unreadable_event(name, data, made)
            if made is not None:
                msgspec.json.decode(msgspec.json.encode(made.envelope), type=Envelope)  # as the server will
        except (msgspec.MsgspecError, OverflowError, RecursionError) as error:
            return _unreadable_event(name, data, f"{type(error).__name__}: {error}"[:500])
        return made

    def _event_of(self, name: str, kind: EventKind, about: JsonObject, now: datetime) -> Inbound | str | None:
        if kind in ("message", "edit"):
            return self._read_written(name, kind, about, now)
        if kind == "button" and about.get("type") != _PRESSED:
            return None
        return self._read_deed(name, kind, about, now)

    def _read_written(self, name: str, kind: EventKind, message: JsonObject, now: datetime) -> Inbound | str | None:
        """A message, or its new text."""
        if kind == "edit" and message.get("edited_timestamp") is None:
            return None  # a preview of a link has arrived
        type_ = integer(message.get("type", 0))
        if type_ in _BESIDE:
            return None
        who = self._find_doer(name, message)
        if isinstance(who, str):
            return who
        if type_ not in _WRITTEN:
            return self._make_event(who, _Content(unknown=f"message type {type_}"[:64]), now)
        self.places.note_author(who.key.partition(":")[0], who.author, who.name)
        addressed = self._is_addressed(who)
        if _is_blank(who.about) and not addressed:
            return self._make_event(who, _Content((_NOT_SHOWN,), blank=True), now)
        return self._make_event(who, _Content(passages_in(who.about, self.places), addressed=addressed), now)

    def _read_deed(self, name: str, kind: EventKind, about: JsonObject, now: datetime) -> Inbound | str | None:
        """What somebody did without writing."""
        token = word(about.pop(TOKEN, None))
        who = self._find_doer(name, about)
        if isinstance(who, str):
            return who
        said = {"reaction": word(at(about, "emoji", "name")), "button": word(at(about, "data", "custom_id"))}.get(kind)
        passages = (Passage(kind="own", text=said),) if said else ()
        return self._make_event(who, _Content(passages, addressed=kind == "button", answered_by=token), now)

    def _find_doer(self, name: str, about: JsonObject) -> _Who | str:
        """Who did it, and where."""
        channel = integer(conversation_of(about))
        raw = {"t": name, "d": about | self.places.around(about)}
        place = self.places.places.get(channel or "")
        author, called = author_of(about), _name_of(about)
        if name == "MESSAGE_DELETE":
            author, called = self._author_of_deleted(about, place)
        if channel is None or author is None:
            return "it has no channel or nobody who did it"
        key = _reaction_key(about, author) if name == "MESSAGE_REACTION_ADD" else event_key(raw)
        if key is None:
            return "it has no id"
        return _Who(raw, KINDS[name], key, channel, author, called, place)

    def _author_of_deleted(self, about: Raw, place: DiscordPlace | None) -> tuple[str, str | None]:
        """Discord does not say whose message is deleted: in a direct chat it is the other person's."""
        known = self.places.authors.get(integer(about.get("id")) or "")
        if known is not None:
            return known
        return (place.with_whom if place and place.with_whom else "unknown"), None

    def _is_addressed(self, who: _Who) -> bool:
        if who.is_direct:
            return True
        me, place = self.places.me, who.place
        if is_addressed(who.about, lambda one: one == me, self.places.own_roles(integer(who.about.get("guild_id")))):
            return True
        return self.settings.follow_threads and place is not None and place.is_thread and place.owner == me

    def _make_event(self, who: _Who, content: _Content, now: datetime) -> Inbound:
        files = tuple(files_of(who.about)) if who.kind in ("message", "edit") and not content.unknown else ()
        kind: EventKind = "membership" if content.unknown else who.kind
        envelope = Envelope(
            schema_version="ingest.v1",
            source=Source(channel="discord", provider="discord", endpoint_identity=self.endpoint),
            event=Event(
                external_event_id=who.key,
                external_thread_id=self._thread_of(who, content),
                observed_at=now,
                sent_at=_sent_at(who),
                kind=kind,
                refers_to=_refers_to(who),
                reply_address=self._address_of(who, content),
            ),
            sender=Sender(
                identity=who.author, display_name=who.name, chat_type="private" if who.is_direct else "group"
            ),
            payload=Payload(
                raw=who.raw,
                normalized_text=joined(content.passages),
                passages=content.passages if has_others_words(content.passages) else (),
                attachments=tuple(attachment for attachment, _ in files),
            ),
            control=_control_of(who, content),
        )
        return Inbound(
            envelope=envelope,
            raw=msgspec.json.encode(who.raw),
            own=who.author == self.places.me or content.unknown is not None,
            by_bot=is_by_bot(who.about),
            direct=who.is_direct,
            files=tuple(file for _, file in files),
            unknown=content.unknown,
        )

    def _begins_thread(self, who: _Who, content: _Content) -> bool:
        """Whether its answer begins a thread on its message, which then has the id of that."""
        place = who.place
        in_channel = place is not None and place.kind in _IN_CHANNELS
        wanted = self.settings.threads == "start" and content.addressed
        return wanted and who.kind in ("message", "edit") and in_channel

    def _thread_of(self, who: _Who, content: _Content) -> str:
        """Where its message is answered."""
        message = _message_of(who)
        begun = self.places.places.get(message)
        is_begun = begun is not None and begun.parent == who.channel and begun.owner == self.places.me
        return message if is_begun or self._begins_thread(who, content) else who.channel

    def _address_of(self, who: _Who, content: _Content) -> JsonObject:
        address: JsonObject = {"channel": self._thread_of(who, content), "message": _message_of(who)}
        if not who.is_direct:
            address["group"] = True
        if self._begins_thread(who, content):
            title = " ".join(joined(content.passages).split())[:_MAX_TITLE].strip()
            address |= {"parent": who.channel, "title": title or "Answer"}
        if who.kind == "button":
            address |= {PRESS: who.key} | ({TOKEN: content.answered_by} if content.answered_by else {})
        return address


class _Who(Struct, frozen=True):
    """Who did what where; `key`: its id, `raw`: the frame with what is known of its place."""

    raw: JsonObject
    kind: EventKind
    key: str
    channel: str
    author: str
    name: str | None
    place: DiscordPlace | None

    @property
    def about(self) -> JsonObject:
        """The message, or what else happened."""
        found: JsonObject = self.raw["d"]
        return found

    @property
    def is_direct(self) -> bool:
        """Whether only the sender and we read it."""
        return self.about.get("guild_id") is None


class _Content(Struct, frozen=True):
    """`blank`: Discord does not show what was written; `answered_by`: the token with which a press is answered."""

    passages: tuple[Passage, ...] = ()
    addressed: bool = False
    blank: bool = False
    unknown: str | None = None
    answered_by: str | None = None


def is_blank_event(event: Inbound | Unreadable) -> bool:
    """Whether it is a message of which Discord shows nothing, as without the intent."""
    if not isinstance(event, Inbound) or event.envelope.event.kind != "message" or event.own:
        return False
    raw = event.envelope.payload.raw
    return not event.direct and not event.envelope.control.addressed and _is_blank(child(raw, "d"))


def _is_blank(message: Raw) -> bool:
    shown = ("content", "attachments", "embeds", "sticker_items", "poll", "message_snapshots", "components")
    return not any(message.get(name) for name in shown)


def _control_of(who: _Who, content: _Content) -> Control:
    if who.kind == "button":
        return Control(addressed=True, idempotency_key=f"press:{who.key}")
    return Control(addressed=content.addressed, ingestion_tier="history" if content.blank else "full")


def _name_of(about: Raw) -> str | None:
    people = (child(about, "author"), child(about, "member", "user"), child(about, "user"))
    return next((found for one in people if (found := first_word(one, ("global_name",), ("username",)))), None)


def _reaction_key(about: Raw, author: str) -> str | None:
    """A reaction has no id, and none is needed for more than to know it again."""
    message, emoji = integer(about.get("message_id")), child(about, "emoji")
    name = word(emoji.get("id")) or word(emoji.get("name")) or ""
    return f"{message}:{author}:{hashlib.sha256(name.encode()).hexdigest()[:16]}" if message else None


def _refers_to(who: _Who) -> str | None:
    match who.kind:
        case "edit" | "delete":
            return integer(who.about.get("id"))
        case "reaction":
            return integer(who.about.get("message_id"))
        case "button":
            return integer(at(who.about, "message", "id"))
    return None


def _message_of(who: _Who) -> str:
    """The message that it is, or that it is about."""
    return _refers_to(who) or who.key


def _sent_at(who: _Who) -> datetime | None:
    """By the clock of Discord: ids begin with it."""
    if who.kind == "edit":
        return time_in(who.about.get("edited_timestamp"))
    snowflake = integer(who.about.get("id")) if who.kind in ("message", "button") else None
    return datetime.fromtimestamp(seconds_of(int(snowflake)), UTC) if snowflake else None


def _unreadable_event(name: str, data: object, reason: str) -> Unreadable:
    shown = {key: one for key, one in data.items() if key != TOKEN} if isinstance(data, dict) else data
    try:
        raw = json.dumps({"t": name, "d": shown}).encode()
    except (RecursionError, TypeError, ValueError):
        raw = repr(type(data)).encode()
    return Unreadable(f"unreadable:{hashlib.sha256(raw).hexdigest()[:32]}", raw, reason)


def split_bulk(name: str, data: Raw) -> Iterator[tuple[str, JsonObject]]:
    """The event; of many deletions each by itself."""
    ids = data.get("ids")
    if name != "MESSAGE_DELETE_BULK" or not isinstance(ids, list):
        yield name, dict(data)
        return
    for one in ids:
        yield "MESSAGE_DELETE", {"id": one, "channel_id": data.get("channel_id"), "guild_id": data.get("guild_id")}

"""Matrix. `payload.raw` is an event of a room."""

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
    media_of,
    words_of_sender,
)
from switchboard.ports.raw import Raw, at, child, first_word, matching, raw_of

_MEDIA: Final = {"m.image": "photo", "m.video": "video", "m.audio": "audio", "m.file": "document"}
_EVENT = re.compile(r"\$[!-~]{1,255}")
_USER = re.compile(r"@[^\s:@]{1,200}:\S{1,250}$")
"""The id of a user at the end of an endpoint; what follows the colon is the server, which is nobody's name."""


def _event_id(envelope: Envelope) -> str | None:
    return matching(_EVENT, raw_of(envelope).get("event_id"))


def _room(envelope: Envelope) -> str | None:
    return first_word(envelope.payload.raw, ("room_id",))


def _replied_to(envelope: Envelope) -> str | None:
    """In a thread every message names the one before it, for clients that show no threads: it answers nothing."""
    relation = child(envelope.payload.raw, "content", "m.relates_to")
    if relation.get("is_falling_back") is True:
        return None
    return matching(_EVENT, at(relation, "m.in_reply_to", "event_id"))


def _facts(envelope: Envelope) -> Found:
    raw, thread = envelope.payload.raw, envelope.event.external_thread_id or ""
    return {
        "matrix_room_id": _room(envelope) or (thread if thread.startswith("!") else None),
        "matrix_user_id": first_word(raw, ("sender",)) or envelope.sender.identity,
        "media": _media(raw_of(envelope)),
        **chat_facts(envelope, direct=is_private(envelope), named=_is_addressed_to_us(envelope), mark=EXCLAMATION_MARK),
    }


def _is_addressed_to_us(envelope: Envelope) -> bool:
    """By the mentions of the event, or by our whole id in the text, which old clients write."""
    named = at(envelope.payload.raw, "content", "m.mentions", "user_ids")
    if any(is_own(envelope, one) for one in (named if isinstance(named, list) else ())):
        return True
    own = _USER.search(envelope.source.endpoint_identity)
    if own is None:
        return is_called(envelope)
    return re.search(rf"(?<!\S){re.escape(own[0])}(?![.:-]?\w)", words_of_sender(envelope)) is not None


def _media(event: Raw) -> str | None:
    content = child(event, "content")
    if event.get("type") == "m.sticker":
        return "sticker"
    if "org.matrix.msc3245.voice" in content:
        return "voice"
    return media_of((_MEDIA.get(str(content.get("msgtype"))),))


CHANNELS: Final = (
    Channel(
        name="matrix",
        providers=frozenset({"matrix"}),
        event_id=_event_id,
        chat=_room,
        command_mark=EXCLAMATION_MARK,
        replied_to=_replied_to,
        facts=_facts,
        keys={**dict.fromkeys(("matrix_room_id", "matrix_user_id"), "text"), **KEYS},
        history="realtime",
    ),
)

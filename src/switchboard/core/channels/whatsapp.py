"""WhatsApp, by the Cloud API or by a user's own client. `payload.raw` is one message in the form of either.

A webhook of the Cloud API can hold several messages, so its connector must split them.
"""

from __future__ import annotations

import re
from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Found
from switchboard.ports.chat import KEYS, chat_facts, is_own, is_private, media_of
from switchboard.ports.raw import Raw, at, child, first_word, matching, raw_of

_MEDIA: Final = {
    "image": "photo",
    **{kind: kind for kind in ("audio", "document", "sticker", "video")},
}
_TOKEN = re.compile(r"[!-~]{1,512}")


def _event_id(envelope: Envelope) -> str | None:
    raw = raw_of(envelope)
    return matching(_TOKEN, raw.get("id")) or matching(_TOKEN, at(raw, "key", "id"))


def _chat(envelope: Envelope) -> str | None:
    """The chat as a user's own client names it; a group of the Cloud API.

    All other chats of the Cloud API are private.
    """
    return first_word(envelope.payload.raw, ("key", "remoteJid"), ("chat_id",), ("group_id",))


def _replied_to(envelope: Envelope) -> str | None:
    return matching(_TOKEN, at(envelope.payload.raw, "context", "id"))


def _facts(envelope: Envelope) -> Found:
    raw = envelope.payload.raw
    change = at(raw, "entry", 0, "changes", 0, "value")
    return {
        "whatsapp_chat_id": _chat(envelope) or envelope.event.external_thread_id,
        "whatsapp_user_id": first_word(change, ("messages", 0, "from")) or envelope.sender.identity,
        "whatsapp_phone_number_id": first_word(change, ("metadata", "phone_number_id")),
        "media": _media(raw_of(envelope)),
        **chat_facts(envelope, direct=_direct(envelope), named=_is_addressed_to_us(envelope)),
    }


def _direct(envelope: Envelope) -> bool:
    """Only groups are known from `payload.raw`; all other chats are private."""
    chat = _chat(envelope)
    return is_private(envelope) or (envelope.sender.chat_type is None and (chat is None or not chat.endswith("@g.us")))


def _is_addressed_to_us(envelope: Envelope) -> bool:
    named = at(envelope.payload.raw, "message", "extendedTextMessage", "contextInfo", "mentionedJid")
    those = named if isinstance(named, list) else ()
    return any(isinstance(one, str) and is_own(envelope, one.partition("@")[0]) for one in those)


def _media(raw: Raw) -> str | None:
    """The kind of media: the Cloud API names the type; a user's own client has a part of that name."""
    kinds = {
        kind for name, kind in _MEDIA.items() if raw.get("type") == name or child(raw, "message", f"{name}Message")
    }
    audio = child(raw, "audio") or child(raw, "message", "audioMessage")
    return media_of("voice" if kind == "audio" and (audio.get("voice") or audio.get("ptt")) else kind for kind in kinds)


_WHATSAPP: Final = Channel(
    name="whatsapp",
    providers=frozenset({"whatsapp"}),
    event_id=_event_id,
    chat=_chat,
    replied_to=_replied_to,
    facts=_facts,
    keys={**dict.fromkeys(("whatsapp_chat_id", "whatsapp_user_id", "whatsapp_phone_number_id"), "text"), **KEYS},
    history="realtime",
)
CHANNELS: Final = (_WHATSAPP, _WHATSAPP.named("whatsapp_user_client"))

"""WhatsApp, by the Cloud API or by a user's own client. `payload.raw` is one message in the form of either.

A webhook of the Cloud API can hold several messages, so its connector must split them.
"""

from __future__ import annotations

import re
from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Found
from switchboard.ports.raw import at, first_word, matching, raw_of

_TOKEN = re.compile(r"[!-~]{1,512}")


def _event_id(envelope: Envelope) -> str | None:
    raw = raw_of(envelope)
    return matching(_TOKEN, raw.get("id")) or matching(_TOKEN, at(raw, "key", "id"))


def _chat(envelope: Envelope) -> str | None:
    """The chat as a user's own client names it; a group of the Cloud API. What else the Cloud API brings is private."""
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
    }


_WHATSAPP: Final = Channel(
    name="whatsapp",
    providers=frozenset({"whatsapp"}),
    event_id=_event_id,
    chat=_chat,
    replied_to=_replied_to,
    facts=_facts,
    keys=dict.fromkeys(("whatsapp_chat_id", "whatsapp_user_id", "whatsapp_phone_number_id"), "text"),
    history="realtime",
)
CHANNELS: Final = (_WHATSAPP, _WHATSAPP.named("whatsapp_user_client"))

"""WhatsApp, by the Cloud API or by a user's own client. `payload.raw` is one message in the form of either.

A webhook of the Cloud API can hold several messages and statuses, so its connector must split them: each with the
`metadata`, and with the one of the `contacts` that it is from. The functions over `Raw` say what such a message is.
Next: `connectors/`.
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
_WORD = re.compile(r"[a-z_]{1,40}", re.ASCII)
_PHONE = re.compile(r"\d{5,20}", re.ASCII)


def value_of(raw: Raw) -> Raw:
    """What the Cloud API says of one message: `metadata`, `contacts` and `messages` or `statuses`."""
    return child(raw, "entry", 0, "changes", 0, "value") or raw


def message_of(raw: Raw) -> Raw:
    """The message itself."""
    return child(value_of(raw), "messages", 0) or raw


def event_key(raw: Raw) -> str | None:
    """The id of a message; of a status also what it says."""
    status = child(value_of(raw), "statuses", 0)
    if status:
        found, what = matching(_TOKEN, status.get("id")), matching(_WORD, status.get("status"))
        return f"{found}:{what}" if found and what else None
    return matching(_TOKEN, message_of(raw).get("id")) or matching(_TOKEN, at(raw, "key", "id"))


def author_of(raw: Raw) -> str | None:
    """Who wrote a message: the id of the user, for the parent business where there is one; without an id, the phone.

    People can hide their phone number. An id is for one business, and changes with the number. A status is
    by nobody: its contact is whom we wrote to.
    """
    value, message = value_of(raw), message_of(raw)
    contact = {} if "statuses" in value else child(value, "contacts", 0)
    known = first_word(contact, ("parent_user_id",)) or first_word(message, ("from_parent_user_id",))
    found = known or first_word(contact, ("user_id",)) or first_word(message, ("from_user_id",), ("from",))
    return found or phone_of(raw)


def phone_of(raw: Raw) -> str | None:
    """The phone number of who wrote a message, in digits; None if it is hidden."""
    value = value_of(raw)
    known = None if "statuses" in value else first_word(value, ("contacts", 0, "wa_id"))
    found = first_word(message_of(raw), ("from",)) or known
    return found if found and _PHONE.fullmatch(found) else None


def number_id_of(raw: Raw) -> str | None:
    """Which of the numbers of a business the message was sent to."""
    return first_word(value_of(raw), ("metadata", "phone_number_id"))


def replied_to(raw: Raw) -> str | None:
    """The id of the message that it answers; a forward refers to none."""
    return matching(_TOKEN, at(message_of(raw), "context", "id"))


def _chat(envelope: Envelope) -> str | None:
    """The chat as a user's own client names it; a group of the Cloud API.

    All other chats of the Cloud API are private.
    """
    raw = raw_of(envelope)
    return first_word(raw, ("key", "remoteJid"), ("chat_id",)) or first_word(message_of(raw), ("group_id",))


def _facts(envelope: Envelope) -> Found:
    raw = raw_of(envelope)
    return {
        "whatsapp_chat_id": _chat(envelope) or envelope.event.external_thread_id,
        "whatsapp_user_id": author_of(raw) or envelope.sender.identity,
        "whatsapp_phone_number_id": number_id_of(raw),
        "media": _media(message_of(raw)),
        **chat_facts(envelope, direct=_direct(envelope), named=_is_addressed_to_us(envelope)),
    }


def _direct(envelope: Envelope) -> bool:
    """Only groups are known from `payload.raw`; all other chats are private."""
    chat = _chat(envelope)
    group = "group_id" in message_of(raw_of(envelope)) or (chat is not None and chat.endswith("@g.us"))
    return is_private(envelope) or (envelope.sender.chat_type is None and not group)


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
    event_id=lambda envelope: event_key(raw_of(envelope)),
    chat=_chat,
    replied_to=lambda envelope: replied_to(raw_of(envelope)),
    facts=_facts,
    keys={**dict.fromkeys(("whatsapp_chat_id", "whatsapp_user_id", "whatsapp_phone_number_id"), "text"), **KEYS},
    history="realtime",
)
CHANNELS: Final = (_WHATSAPP, _WHATSAPP.named("whatsapp_user_client"))

"""What makes two events the same event, and two messages parts of one conversation.

Called by `journey/accept.py` with a valid envelope. Out: the dedupe key (unique within channel and endpoint) and the
conversation key. The text never counts: the same words sent twice are two messages, and an edit is a new event.
`payload.raw` comes from strangers, so whatever is odd in it is passed over, never raised. Next: `store`, which enforces
both keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from switchboard.domain.envelope import Envelope
from switchboard.domain.message import Conversation

MAX_KEY: Final = 400
"""Most bytes in a dedupe key and in a conversation key: both are indexed."""
_MAX_CHANNEL, _MAX_PART = 98, 150  # with two slashes: 400
_HASH_MARK: Final = "="
"""Percent-encoding never leaves this character, so a shortened part cannot be forged by a short one."""

_SLACK_ID = re.compile(r"[A-Z0-9]{1,40}", re.ASCII)
_SLACK_TS = re.compile(r"\d{1,20}\.\d{1,10}", re.ASCII)
_SNOWFLAKE = re.compile(r"\d{1,20}", re.ASCII)
_EDITED_AT = re.compile(r"[\dTZ:.+-]{1,40}", re.ASCII)
_MESSAGE_ID = re.compile(r"<?[^<>\s]{1,512}>?")
_TOKEN = re.compile(r"[!-~]{1,512}")
_MATRIX_EVENT = re.compile(r"\$[!-~]{1,255}")


def dedupe_key(envelope: Envelope) -> str:
    """The name of this event, at most 400 bytes; the first that applies:

    - `idem:` and the idempotency key;
    - `event:` and the platform's id in `payload.raw`: Telegram update_id, e-mail Message-ID, Slack team:channel:ts,
      Discord id and time of the edit, WhatsApp message id, Matrix event_id;
    - `event:` and `external_event_id`.

    The last two look alike on purpose: an event that arrives once with and once without `raw` is still one event.
    """
    if envelope.control.idempotency_key:
        return _key("idem", envelope.control.idempotency_key)
    family, raw = _family(envelope.source.channel), envelope.payload.raw
    native = _NATIVE_ID[family](raw) if family in _NATIVE_ID and isinstance(raw, dict) else None
    name = native or envelope.event.external_event_id
    if family == "email" and (bare := _matching(_MESSAGE_ID, name)):
        name = bare.strip("<>")  # connectors disagree on whether the brackets belong to the id
    return _key("event", name + _edit_mark(family, native, raw))


def conversation(envelope: Envelope) -> Conversation:
    """Within which order matters: `channel/endpoint/thread`, at most 400 bytes of ASCII.

    In place of a thread stands the chat (where `payload.raw` tells it), else the sender. Each part is percent-encoded;
    a long one ends in `=` and its sha256. Distinct inputs give distinct keys.
    """
    return _conversation(envelope, envelope.event.external_thread_id or _telegram_chat(envelope))


def own_conversation(envelope: Envelope) -> Conversation:
    """The conversation of this sender with us alone: what `conversation` gives where no thread and no chat is named."""
    return _conversation(envelope, None)


def _conversation(envelope: Envelope, chat: str | None) -> Conversation:
    source = envelope.source
    return _joined(source.channel, source.endpoint_identity, chat or envelope.sender.identity)


@lru_cache(maxsize=8192)  # the same chats write again and again
def _joined(channel: str, endpoint: str, other: str) -> Conversation:
    first = _shortened(_quoted(channel), _MAX_CHANNEL)
    return Conversation("/".join((first, *(_shortened(_quoted(part), _MAX_PART) for part in (endpoint, other)))))


def replied_to(envelope: Envelope) -> str | None:
    """The platform's id of the message that this one replies to, where `payload.raw` tells it. Never raises."""
    raw = envelope.payload.raw
    look = _REPLIED_TO.get(_family(envelope.source.channel))
    return look(raw) if look is not None and isinstance(raw, dict) else None


@lru_cache(maxsize=1024)  # every message asks, and there are few channels
def _family(channel: str) -> str:
    """`telegram_bot` and `telegram_user_client` speak the same raw language as `telegram`."""
    name = channel.partition("_")[0].lower()
    return {"mail": "email", "gmail": "email", "imap": "email"}.get(name, name)


@lru_cache(maxsize=1024)  # the same accounts again and again, with ever new chats
def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _key(kind: str, name: str) -> str:
    key = f"{kind}:{name}"
    # Another sign after the kind, lest a short name be made to look like the remains of a long one.
    return key if _size(key) <= MAX_KEY else _shortened(f"{kind}{_HASH_MARK}{name}", MAX_KEY)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _shortened(text: str, limit: int) -> str:
    if _size(text) <= limit:
        return text
    data = text.encode("utf-8", "surrogatepass")
    mark = _HASH_MARK + sha256(data).hexdigest()
    return data[: limit - len(mark)].decode("utf-8", "ignore") + mark


def _integer(value: object) -> str | None:
    # A bool is an int to Python, and a number of thousands of digits is a trap for str().
    good = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return str(value) if good else None


def _matching(pattern: re.Pattern[str], value: object) -> str | None:
    return value if isinstance(value, str) and pattern.fullmatch(value) else None


def _child(value: object, name: str) -> Mapping[str, object]:
    child = value.get(name) if isinstance(value, Mapping) else None
    return child if isinstance(child, dict) else {}


def _telegram_id(raw: Mapping[str, object]) -> str | None:
    return _integer(raw.get("update_id"))


def _email_id(raw: Mapping[str, object]) -> str | None:
    value = next((value for name, value in _headers(raw) if name.lower() == "message-id"), None)
    return _matching(_MESSAGE_ID, value.strip().replace("\x00", "")) if isinstance(value, str) else None


def _headers(raw: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Name and value, from an object of headers or from the Gmail API's `payload.headers`, a list of pairs."""
    yield from _child(raw, "headers").items()
    pairs = _child(raw, "payload").get("headers")
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, dict) and isinstance(name := pair.get("name"), str):
            yield name, pair.get("value")


def _slack_id(raw: Mapping[str, object]) -> str | None:
    # Slack wraps the event when it pushes it; (team, channel, ts) is the same in `message` and `app_mention`.
    event = _child(raw, "event") or raw
    team = _matching(_SLACK_ID, raw.get("team_id")) or _matching(_SLACK_ID, event.get("team"))
    channel, ts = _matching(_SLACK_ID, event.get("channel")), _matching(_SLACK_TS, event.get("ts"))
    return f"{team}:{channel}:{ts}" if team and channel and ts else None


def _discord_id(raw: Mapping[str, object]) -> str | None:
    message = _child(raw, "d") or raw
    snowflake, edited = message.get("id"), _matching(_EDITED_AT, message.get("edited_timestamp"))
    found = _matching(_SNOWFLAKE, snowflake) or _integer(snowflake)
    return f"{found}:{edited}" if found and edited else found


def _whatsapp_id(raw: Mapping[str, object]) -> str | None:
    # The message itself, or as the user client knows it. A webhook of the Cloud API can hold several messages, so its
    # connector must have taken them apart.
    return _matching(_TOKEN, raw.get("id")) or _matching(_TOKEN, _child(raw, "key").get("id"))


def _matrix_id(raw: Mapping[str, object]) -> str | None:
    return _matching(_MATRIX_EVENT, raw.get("event_id"))


_NATIVE_ID: Final[Mapping[str, Callable[[Mapping[str, object]], str | None]]] = {
    "telegram": _telegram_id,
    "email": _email_id,
    "slack": _slack_id,
    "discord": _discord_id,
    "whatsapp": _whatsapp_id,
    "matrix": _matrix_id,
}


def _telegram_replied_to(raw: Mapping[str, object]) -> str | None:
    found = (_integer(_child(part, "reply_to_message").get("message_id")) for part in _telegram_parts(raw))
    return next((one for one in found if one), None)


def _email_replied_to(raw: Mapping[str, object]) -> str | None:
    values = (value for name, value in _headers(raw) if name.lower() == "in-reply-to" and isinstance(value, str))
    found = (_matching(_MESSAGE_ID, value.strip()) for value in values)
    return next((one.strip("<>") for one in found if one), None)


def _slack_replied_to(raw: Mapping[str, object]) -> str | None:
    event = _child(raw, "event") or raw
    thread = _matching(_SLACK_TS, event.get("thread_ts"))
    return thread if thread != event.get("ts") else None


def _discord_replied_to(raw: Mapping[str, object]) -> str | None:
    return _matching(_SNOWFLAKE, _child(_child(raw, "d") or raw, "message_reference").get("message_id"))


def _whatsapp_replied_to(raw: Mapping[str, object]) -> str | None:
    return _matching(_TOKEN, _child(raw, "context").get("id"))


def _matrix_replied_to(raw: Mapping[str, object]) -> str | None:
    relation = _child(_child(_child(raw, "content"), "m.relates_to"), "m.in_reply_to")
    return _matching(_MATRIX_EVENT, relation.get("event_id"))


_REPLIED_TO: Final[Mapping[str, Callable[[Mapping[str, object]], str | None]]] = {
    "telegram": _telegram_replied_to,
    "email": _email_replied_to,
    "slack": _slack_replied_to,
    "discord": _discord_replied_to,
    "whatsapp": _whatsapp_replied_to,
    "matrix": _matrix_replied_to,
}


def _telegram_parts(raw: object) -> Iterator[Mapping[str, object]]:
    """The message inside an update: `message`, `edited_message`, `channel_post`, `callback_query.message`, or raw."""
    if not isinstance(raw, dict):
        return
    if "chat" in raw:
        yield raw
        return
    for part in raw.values():
        if isinstance(part, dict):
            yield part
            yield _child(part, "message")


def _telegram_chat(envelope: Envelope) -> str | None:
    if _family(envelope.source.channel) != "telegram":
        return None
    ids = (_integer(_child(part, "chat").get("id")) for part in _telegram_parts(envelope.payload.raw))
    return next((found for found in ids if found), None)


def _edit_mark(family: str, native: str | None, raw: object) -> str:
    # Without an update_id the connector's id is often that of the message, which an edit shares with its original.
    if family != "telegram" or native is not None:
        return ""
    dates = (_integer(part.get("edit_date")) for part in _telegram_parts(raw))
    return next((f":edit:{date}" for date in dates if date), "")

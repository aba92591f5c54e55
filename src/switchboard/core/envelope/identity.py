"""When two events are the same event, and two messages belong to one conversation.

Called by `journey/accept.py` and `journey/submit.py` with a valid envelope and its channel. Out: the dedupe key (unique
within channel and endpoint) and the conversation key. The text does not count: the same words sent twice are two
messages, and an edit is a new event. Only where strangers choose the ids does it distinguish two events with one id.
Next: `store`, which enforces both.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from switchboard.core.envelope.due import conversation_of_task
from switchboard.domain.envelope import Envelope
from switchboard.domain.message import Conversation, Named
from switchboard.ports.channel import Channel

EMBEDDED: Final = "embedded:"
"""The endpoints of messages whose program gets the answer itself begin like this: no connector serves them."""
MAX_KEY: Final = 400
"""Maximum bytes in a dedupe key and in a conversation key: both are indexed."""
_MAX_CHANNEL, _MAX_PART = 98, 150  # with two slashes: 400
_HASH_MARK: Final = "="
"""Percent-encoding never leaves this character, so a shortened part cannot be forged by a short one."""


def dedupe_key(envelope: Envelope, channel: Channel) -> str:
    """The key of this event, at most 400 bytes; the first that applies:

    - `due:` and the idempotency key of a task that is due, which nobody else can take;
    - `idem:` and the idempotency key;
    - `event:` and the platform's own id, where the channel finds it in `payload.raw`;
    - `event:` and `external_event_id`.

    The last two look alike on purpose: an event that arrives once with and once without `raw` is still one event.
    """
    if envelope.control.idempotency_key:
        return _key("due" if envelope.control.is_ours else "idem", envelope.control.idempotency_key)
    return event_key(channel.event_id(envelope) or envelope.event.external_event_id)


def hash_of_body(body: bytes) -> str:
    """The id of an event that has none: equal bodies have equal ids."""
    return f"sha256:{sha256(body).hexdigest()}"


def event_key(event_id: str) -> str:
    """The key of an event that is known by its id alone, such as the other photos of an album."""
    return _key("event", event_id)


def content_of(envelope: Envelope, channel: Channel) -> str | None:
    """What must be equal, besides the key, for two events to be the same; None: only the key."""
    return None if envelope.control.idempotency_key else channel.content(envelope)


def key_of_its_own(key: str, content: str) -> str:
    """The key of an event whose `dedupe_key` was taken by another one, with another content."""
    return _key("event", f"{key} {sha256(content.encode('utf-8', 'surrogatepass')).hexdigest()}")


def conversation(envelope: Envelope, channel: Channel) -> Conversation:
    """The key within which order matters: `channel/endpoint/thread`, at most 400 bytes of ASCII.

    Without a thread it is the chat (where the channel knows it), else the sender. Each part is percent-encoded; a long
    one ends in `=` and its sha256. Distinct inputs give distinct keys. A task that is due has the one it was made in.
    """
    return conversation_of_task(envelope) or _conversation(envelope, thread_of(envelope, channel))


def named_in(envelope: Envelope, channel: Channel) -> Named | None:
    """The conversations that the message names, if anybody could name them; None if whoever names one belongs to it."""
    correspondence = None if envelope.control.is_ours else channel.correspondence(envelope)
    if correspondence is None:
        return None
    threads = tuple(_conversation(envelope, thread) for thread in correspondence.threads)
    apart = _conversation(envelope, f"{correspondence.threads[-1]} {correspondence.author}")
    source, known = envelope.source, (correspondence.author, correspondence.addressed)
    return Named(threads[0], apart, *known, threads, correspondence.answered, source.channel, source.endpoint_identity)


def thread_of(envelope: Envelope, channel: Channel) -> str | None:
    """The named thread, otherwise the chat if the channel knows it; None if there is only the sender."""
    return envelope.event.external_thread_id or channel.chat(envelope)


def chat_conversation(channel: str, endpoint: str, chat: str) -> Conversation:
    """The conversation in a chat of an account, as `conversation` names it."""
    return _joined(channel, endpoint, chat)


def own_conversation(envelope: Envelope) -> Conversation:
    """The private conversation of this sender: what `conversation` returns if neither thread nor chat is named."""
    return _conversation(envelope, None)


def _conversation(envelope: Envelope, chat: str | None) -> Conversation:
    source = envelope.source
    return _joined(source.channel, source.endpoint_identity, chat or envelope.sender.identity)


@lru_cache(maxsize=8192)  # the same chats recur
def _joined(channel: str, endpoint: str, other: str) -> Conversation:
    first = _shortened(_quoted(channel), _MAX_CHANNEL)
    return Conversation("/".join((first, *(_shortened(_quoted(part), _MAX_PART) for part in (endpoint, other)))))


@lru_cache(maxsize=1024)  # the same accounts recur, but with new chats
def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _key(kind: str, name: str) -> str:
    key = f"{kind}:{name}"
    # A different character after the kind: a short name must not look like a shortened long one.
    return key if _size(key) <= MAX_KEY else _shortened(f"{kind}{_HASH_MARK}{name}", MAX_KEY)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _shortened(text: str, limit: int) -> str:
    if _size(text) <= limit:
        return text
    data = text.encode("utf-8", "surrogatepass")
    mark = _HASH_MARK + sha256(data).hexdigest()
    return data[: limit - len(mark)].decode("utf-8", "ignore") + mark

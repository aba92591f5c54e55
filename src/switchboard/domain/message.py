"""A message after acceptance: its identity, its immutable context, and the row that is stored.

Made by `journey/accept.py`, read by every later leg. Next: `domain/routing.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NewType
from uuid import UUID

from msgspec import Struct

from switchboard.domain.envelope import Envelope

RequestId = NewType("RequestId", UUID)
"""A UUIDv7; the one name of a message from acceptance to its receipt."""
Conversation = NewType("Conversation", str)
"""(channel, endpoint, thread or sender) as one key, within which order matters: `telegram/bot%3Ahouse/5488423581`."""

OtherContent = Literal["duplicate", "event", "refused"]
"""What another content under a known key is: nothing new, as platforms change what they deliver again; an event of its
own; or a mistake of its caller."""


class Message(Struct, frozen=True, gc=False):
    """One inbound event, stored once. `thread`: where it was written, unless to us alone; replies go there.

    `content` distinguishes it from a message with the same key and another content, where that is a message of its own.
    `other` says the same of all that `core/envelope/content.py` compares, where the submitter and not the channel
    decides it. `raw` holds the bytes exactly as submitted; `media_type` says what they are (an envelope's JSON, or a
    mail).
    """

    request_id: RequestId
    conversation: Conversation
    dedupe_key: str
    envelope: Envelope
    raw: bytes
    media_type: str
    received_at: datetime
    thread: str | None = None
    content: str | None = None
    other: OtherContent = "duplicate"


class Named(Struct, frozen=True):
    """The conversation of a message whose thread anyone can name: `home`, or `apart` if its author is a stranger.

    `threads`: the conversations in which its author may be known, `home` first and the message's own last. `answered`:
    the platform's ids of messages that it refers to, the nearest first, of which some may be replies that this account
    (`channel`, `endpoint`) has sent.
    """

    home: Conversation
    apart: Conversation
    author: str
    addressed: tuple[str, ...]
    threads: tuple[Conversation, ...]
    answered: tuple[str, ...]
    channel: str
    endpoint: str

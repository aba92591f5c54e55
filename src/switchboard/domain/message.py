"""A message after acceptance: its identity, its immutable context, and the row that is stored.

Made by `journey/accept.py`, read by every later leg. Next: `domain/routing.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import NewType
from uuid import UUID

from msgspec import Struct

from switchboard.domain.envelope import Envelope

RequestId = NewType("RequestId", UUID)
"""A UUIDv7; the one name of a message from acceptance to its receipt."""
Conversation = NewType("Conversation", str)
"""(channel, endpoint, thread or sender) as one key, within which order matters: `telegram/bot%3Ahouse/5488423581`."""


class Message(Struct, frozen=True, gc=False):
    """One inbound event, stored once. `thread`: where it was written, if not to us alone; replies go there.

    `content` is what tells it from a message of another content with the same key, if that is to be one of its own.
    `raw` are the bytes exactly as they were submitted; `media_type` says what they are (an envelope's JSON, or a mail).
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


class Named(Struct, frozen=True):
    """A message that names a thread which anybody could name: `home`, or `apart` if its author is a stranger there.

    `threads`: the conversations in which its author may be known, `home` first and its own last.
    """

    home: Conversation
    apart: Conversation
    author: str
    addressed: tuple[str, ...]
    threads: tuple[Conversation, ...]

"""The parts of a message that must be equal in two submissions of the same event.

Called by `store/messages/inbox.py` and `journey/submit.py`, which keep a keyed hash of it next to that of the event's
key. In: a message; out: bytes. Next: `core/envelope/identity.py`, which says when two events are the same.
"""

from __future__ import annotations

import msgspec

from switchboard.domain.envelope import Envelope
from switchboard.domain.message import Message

_encode = msgspec.json.Encoder().encode


def compared_content(message: Message) -> bytes:
    """Text, sender, thread and attachments as JSON; all other differences stem from the delivery.

    An attachment with a platform id is compared by it alone: its bytes may be available only the second time. A channel
    may define its own comparison.
    """
    if message.content is not None:
        return _encode(message.content)
    return envelope_content(message.envelope)


def envelope_content(envelope: Envelope) -> bytes:
    """The same where the channel has no comparison of its own."""
    payload = envelope.payload
    text, sender = payload.normalized_text, envelope.sender.identity
    files = [one.source_attachment_id or one for one in payload.attachments]
    return _encode((text, sender, envelope.event.external_thread_id, files))

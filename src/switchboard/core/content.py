"""Which parts of a message must be equal for two submissions of an event to be the same submission.

Called by `store/inbox.py` and `journey/submit.py`, which keep a keyed hash of it next to that of the event's key. In: a
message; out: bytes.
Next: `core/identity.py`, which says when two events are the same.
"""

from __future__ import annotations

import msgspec

from switchboard.domain.message import Message

_encode = msgspec.json.Encoder().encode


def compared_content(message: Message) -> bytes:
    """Text, sender, thread and attachments as JSON; all other differences stem from how the event was delivered.

    An attachment that has an id of the platform is compared by it alone: its bytes may be had the second time only.
    Where the channel has its own idea of what is the same, that.
    """
    if message.content is not None:
        return _encode(message.content)
    envelope, payload = message.envelope, message.envelope.payload
    text, sender = payload.normalized_text, envelope.sender.identity
    files = [one.source_attachment_id or one for one in payload.attachments]
    return _encode((text, sender, envelope.event.external_thread_id, files))

"""Which parts of a message must be equal for two submissions of an event to be the same submission.

Called by `store/inbox.py`, which keeps a keyed hash of it next to that of the event's key. In: a valid envelope; out: a
digest. Next: `core/identity.py`, which says when two events are the same.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from switchboard.domain.envelope import Envelope


def content_digest(envelope: Envelope) -> str:
    """SHA-256 of text, sender, thread and attachments; all other differences stem from how the event was delivered."""
    payload = envelope.payload
    compared = (
        *(payload.normalized_text, envelope.sender.identity, envelope.event.external_thread_id),
        payload.attachments,
    )
    return sha256(msgspec.json.encode(compared)).hexdigest()

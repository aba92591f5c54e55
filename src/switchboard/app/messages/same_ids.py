"""Which message has the id of another one, with another content.

`views.py` and `explain.py` call it for one message. Reads only. Next: `core/envelope/identity.py`, which made the keys.
"""

from __future__ import annotations

from uuid import UUID

from switchboard.app.runtime import Runtime
from switchboard.core.envelope.content import envelope_content
from switchboard.core.envelope.identity import content_of, dedupe_key, key_of_its_own
from switchboard.domain.envelope import Envelope
from switchboard.store.messages import inbox
from switchboard.store.messages.inbox import StoredMessage


async def find_same_id(runtime: Runtime, message: StoredMessage, envelope: Envelope) -> UUID | None:
    """The first message with its id; None: the id is its own. `envelope`: with its `payload.raw`."""
    channel, place = runtime.channels[message.channel], (message.channel, message.endpoint)
    key = dedupe_key(envelope, channel)
    first = await inbox.first_of_event(runtime.database, *place, key)
    if first is None or first == message.request_id:
        return None
    own = key_of_its_own(key, content_of(envelope, channel) or envelope_content(envelope).decode())
    return first if await inbox.first_of_event(runtime.database, *place, own) == message.request_id else None

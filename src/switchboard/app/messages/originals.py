"""A stored message as it was submitted, `payload.raw` and all: read again from the bytes that arrived.

Called by `app/dead_letters/reroute.py` and `app/ops/maintenance.py`, which need what the table of messages does not
keep. In: the bytes and what is known of them; out: the envelope, or None where this release cannot read them any more.
Next: `core/routing/facts.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from switchboard.core.envelope.read import read_envelope
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonMapping


@dataclass(frozen=True, slots=True)
class Original:
    """The bytes of a message; `envelope` is what the table keeps of it."""

    raw: bytes
    media_type: str
    envelope: JsonMapping
    received_at: datetime


def whole_envelope(original: Original) -> Envelope | None:
    """The envelope with its `payload.raw`."""
    try:
        return _read(original)
    except InvalidInput:  # a later release may read the same bytes in another way
        return None


def _read(original: Original) -> Envelope:
    if original.media_type != "message/rfc822":
        return read_envelope(original.raw)
    source = original.envelope["source"]
    endpoint, provider = source["endpoint_identity"], source["provider"]
    return envelope_from_mail(original.raw, endpoint=endpoint, provider=provider, now=original.received_at).envelope

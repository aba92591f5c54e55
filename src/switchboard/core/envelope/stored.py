"""The JSON form in which an envelope is stored: without `payload.raw`, which is kept in the bytes as they arrived.

Called by `store/inbox.py`, which writes it, by `store/lanes.py` and `journey/classify.py`, which read it, and by
`agents/delivery.py`, which hands it to butlers. Only the types are validated again. Next: `store/inbox.py`.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from switchboard.domain.envelope import Envelope

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Envelope).decode


def stored_json(envelope: Envelope) -> bytes:
    """The typed part of the envelope: `payload.raw` may hold what PostgreSQL cannot. Raises UnicodeEncodeError."""
    payload = envelope.payload
    if payload.raw is not None:
        envelope = replace(envelope, payload=replace(payload, raw=None))
    return _encode(envelope)


def stored_envelope(text: str | bytes) -> Envelope:
    """Read the output of `stored_json`. Raises msgspec.ValidationError if another release stored it differently."""
    return _decode(text)

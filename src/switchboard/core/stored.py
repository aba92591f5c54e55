"""The JSON in which an envelope is kept: without `payload.raw`, which is kept in the bytes as they arrived.

Called by `store/inbox.py`, which writes it, by `store/lanes.py` and `journey/classify.py`, which read it, and by
`agents/delivery.py`, which hands it to butlers. Nothing is validated again but the types. Next: `store/inbox.py`.
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
    """What `stored_json` made. Raises msgspec.ValidationError for what another release stored and we cannot read."""
    return _decode(text)

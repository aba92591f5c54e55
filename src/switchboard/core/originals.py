"""A stored message as it was submitted, including `payload.raw`: read again from the bytes that arrived.

Called by `app/dead_letters/reroute.py`, `app/ops/maintenance.py`, `app/messages/explain.py` and `journey/reply.py`,
which need what the table of messages does not keep. In: the bytes and what is known about them; out: the envelope, or
None if this release can no longer read them. Next: `core/routing/facts.py`.
"""

from __future__ import annotations

import json

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.envelope.read import read_envelope
from switchboard.core.envelope.stored import with_texts
from switchboard.core.mail.envelope import raw_of_mail
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonMapping


class Original(Struct, frozen=True):
    """The bytes of a message; `envelope` is what the table keeps of it."""

    raw: bytes
    media_type: str
    envelope: JsonMapping | Envelope


def whole_envelope(original: Original) -> Envelope | None:
    """The envelope with its `payload.raw`."""
    try:
        return _read(original)
    except (InvalidInput, msgspec.ValidationError):  # a later release may read the same bytes differently
        return None


def _read(original: Original) -> Envelope:
    if original.media_type != "message/rfc822":
        return _read_json(original.raw)
    # Its body was read in a separate process, and is not read again here, as that may take any amount of time.
    stored = original.envelope if isinstance(original.envelope, Envelope) else with_texts(original.envelope)
    kept = msgspec.convert(stored, Envelope)
    return replace(kept, payload=replace(kept.payload, raw=raw_of_mail(original.raw)))


def _read_json(raw: bytes) -> Envelope:
    """Earlier releases took blanks and NUL from the id of the sender, which are refused now."""
    try:
        envelope = read_envelope(raw)
    except InvalidInput as error:
        if error.field != "sender.identity":
            raise
        return read_envelope(_with_bare_sender(raw))
    return (
        envelope
        if envelope.sender.identity.strip() == envelope.sender.identity
        else read_envelope(_with_bare_sender(raw))
    )


def _with_bare_sender(raw: bytes) -> bytes:
    given = json.loads(raw)
    match given:
        case {"sender": {"identity": str(identity)}}:
            given["sender"]["identity"] = identity.replace("\0", "").strip()
        case _:
            pass
    return json.dumps(given).encode()

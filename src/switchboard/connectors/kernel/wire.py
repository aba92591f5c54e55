"""The form in which a message is submitted: what this server reads. Pure.

`api.py` calls it with what the answer to the lease named under `accepts`, because a server refuses fields that it does
not know, and then the message goes to quarantine. Next: `api.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec
from msgspec.structs import replace

from switchboard.domain.envelope import Envelope

PASSAGES: Final = "passages"
RECORDINGS: Final = "recordings"
"""That attachments say whether they are voice messages, and how long they are."""
_COMPARED: Final = "compared"
"""The text of a mail in `payload.raw` as servers without passages have stored it, so that they know it again."""
_MAIL: Final = "email"
_encode: Final = msgspec.json.Encoder().encode


def submitted_form(envelope: Envelope, accepts: Collection[str]) -> bytes:
    """The envelope as JSON: with its passages instead of its text, if the server accepts them, otherwise with a text.

    Such a server gets the text of a mail as its own release would read it.
    """
    if RECORDINGS not in accepts:
        envelope = _without_recordings(envelope)
    if PASSAGES not in accepts:
        return _encode(_without_passages(envelope))
    if not envelope.payload.passages:
        return _encode(envelope)
    whole = msgspec.to_builtins(envelope, builtin_types=())
    del whole["payload"]["normalized_text"]
    return _encode(whole)


def _without_recordings(envelope: Envelope) -> Envelope:
    files = envelope.payload.attachments
    if not any(one.voice or one.seconds is not None for one in files):
        return envelope
    plain = tuple(replace(one, voice=None, seconds=None) for one in files)
    return replace(envelope, payload=replace(envelope.payload, attachments=plain))


def _without_passages(envelope: Envelope) -> Envelope:
    payload = replace(envelope.payload, passages=())
    if envelope.source.channel == _MAIL and isinstance(payload.raw, dict):
        raw = dict(payload.raw)
        said = raw.pop(_COMPARED, None)
        if isinstance(said, str):
            payload = replace(payload, raw=raw, normalized_text=said.strip() or payload.normalized_text)
    return replace(envelope, payload=payload)

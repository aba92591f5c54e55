"""The short way to an `Envelope`: of bytes in which nothing is unusual, and nothing wrong.

Called by `core/wire.py` first of all, for nearly every message is like that, and msgspec is several times as fast as
pydantic. Bytes enter; an envelope leaves, or None: then the long way takes or refuses them. Whatever is taken here, the
long way would take as the same (`tests/unit/test_clean.py`); where msgspec is the more lenient, this says None. Next:
`core/checked.py`, the long way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from switchboard.domain.envelope import MAX_DEPTH, Attachment, Envelope


class _EventAsWritten(msgspec.Struct, gc=False):
    observed_at: str


class _AsWritten(msgspec.Struct, gc=False):
    event: _EventAsWritten


_read: Final = msgspec.json.Decoder(Envelope).decode
_read_as_written: Final = msgspec.json.Decoder(_AsWritten).decode
_EXACT_TIME: Final = re.compile(r"[^.+]{19}(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)").fullmatch
_WHOLE_SECOND: Final = len("2026-01-31T12:00:00Z")
_SPACES: Final = "".join(map(chr, range(0x2000, 0x200B)))
_BLANKS: Final = f"\t\n\v\f\r \x85\xa0\u1680{_SPACES}\u2028\u2029\u202f\u205f\u3000"
"""What pydantic strips; Python strips four control characters more."""


def clean_envelope(data: bytes) -> Envelope | None:
    """The envelope in `data` if it is clean; None where the long way has to look at it."""
    if b"\\" in data and b"\\u0000" in data:
        return None
    try:
        envelope = _read(data)
        time = _read_as_written(data).event.observed_at
    except (ValueError, RecursionError):  # msgspec's own errors are ValueErrors, and so is UnicodeDecodeError
        return None
    # msgspec rounds the seventh digit of a fraction, pydantic cuts it off; and an offset without colon is no RFC 3339.
    # A time of twenty characters has neither.
    if len(time) != _WHOLE_SECOND and not _EXACT_TIME(time):
        return None
    payload, control = envelope.payload, envelope.control
    raw, trace = payload.raw, control.trace_context
    # Of all strings this is the one that people write, and often it ends in a blank. Nobody else has seen it yet.
    text = payload.normalized_text.strip(_BLANKS)
    if text is not payload.normalized_text:
        force_setattr(payload, "normalized_text", text)
    good = (
        (raw is None or (control.ingestion_tier == "full" and _is_shallow(raw, MAX_DEPTH)))
        and (trace is None or _is_shallow(trace, MAX_DEPTH))
        and (_are_bare_files(payload.attachments) if payload.attachments else text != "")
        and _are_bare_names(envelope)
    )
    return envelope if good else None


def _are_bare_names(envelope: Envelope) -> bool:
    """Whether stripping leaves them as they are: `strip` gives the very same object then. A loop would take longer."""
    source, event, sender, control = envelope.source, envelope.event, envelope.sender, envelope.control
    thread, name = event.external_thread_id, sender.display_name
    key, pinned = control.idempotency_key, control.pinned_target
    return (
        source.channel.strip() is source.channel
        and source.provider.strip() is source.provider
        and source.endpoint_identity.strip() is source.endpoint_identity
        and event.external_event_id.strip() is event.external_event_id
        and (thread is None or thread.strip() is thread)
        and sender.identity.strip() is sender.identity
        and (name is None or name.strip() is name)
        and (key is None or key.strip() is key)
        and (pinned is None or pinned.strip() is pinned)
        and (sender.participants is None or _are_bare((*sender.participants, *sender.participants.values())))
    )


def _are_bare_files(attachments: Sequence[Attachment]) -> bool:
    return all(
        _are_bare((one.media_type, one.filename, one.storage_ref, one.source_attachment_id)) for one in attachments
    )


def _are_bare(texts: Sequence[str | None]) -> bool:
    return all(text is None or text.strip() is text for text in texts)


def _is_shallow(value: Any, left: int) -> bool:
    """Whether no object and no list stands within more than `left` others, itself counted."""
    if type(value) is str:
        return True
    if left == 0:
        return False
    for child in value.values() if type(value) is dict else value:
        kind = type(child)
        if (kind is dict or kind is list) and not _is_shallow(child, left - 1):
            return False
    return True

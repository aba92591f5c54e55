"""The fast parser of an `Envelope`: for bytes in which nothing is unusual and nothing is wrong.

`read.py` and `core/mail/envelope.py` call it first, because nearly every message is like that and msgspec is several
times as fast as pydantic. Returns an envelope, or None: then the strict parser accepts or refuses the bytes. Whatever
is accepted here the strict parser would accept as the same envelope (`tests/unit/test_envelope_fast.py`); where msgspec
is more lenient, this returns None. Next: `strict.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from switchboard.core.passages.own import joined
from switchboard.domain.envelope import MAX_ADDRESS, MAX_DEPTH, Attachment, Control, Envelope, Passage
from switchboard.domain.json_values import JsonMapping


class _EventAsWritten(msgspec.Struct, frozen=True, gc=False):
    observed_at: str
    sent_at: str | None = None


class _AsWritten(msgspec.Struct, frozen=True, gc=False):
    event: _EventAsWritten


_read: Final = msgspec.json.Decoder(Envelope).decode
_read_as_written: Final = msgspec.json.Decoder(_AsWritten).decode
_encode: Final = msgspec.json.Encoder().encode
_EXACT_TIME: Final = re.compile(r"[^.+]{19}(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)").fullmatch
_WHOLE_SECOND: Final = len("2026-01-31T12:00:00Z")
_SPACES: Final = "".join(map(chr, range(0x2000, 0x200B)))
_BLANKS: Final = f"\t\n\v\f\r \x85\xa0\u1680{_SPACES}\u2028\u2029\u202f\u205f\u3000"
"""The characters that pydantic strips; Python strips four more control characters."""


def fast_envelope(data: bytes) -> Envelope | None:
    """The envelope in `data` if nothing is unusual; None if the strict parser must look at it."""
    if b"\\" in data and b"\\u0000" in data:
        return None
    try:
        envelope = _read(data)
        times = _read_as_written(data).event
    except (ValueError, RecursionError):  # msgspec's own errors are ValueErrors, and so is UnicodeDecodeError
        return None
    # msgspec rounds the seventh digit of a fraction, pydantic truncates; and RFC 3339 wants a colon in the offset.
    # A time of twenty characters has neither.
    if not _is_exact(times.observed_at) or (times.sent_at is not None and not _is_exact(times.sent_at)):
        return None
    payload = envelope.payload
    # People write this string, often with whitespace at the end. There is no other reference to the payload yet.
    text = payload.normalized_text.strip(_BLANKS)
    if text is not payload.normalized_text:
        force_setattr(payload, "normalized_text", text)
    files = payload.attachments
    bare = _are_bare_files(files) if files else text != "" or envelope.event.kind != "message"
    bare = bare and (not payload.passages or _are_the_text(payload.passages, text))
    return envelope if bare and _is_plain(payload.raw, envelope.control) and _are_bare_names(envelope) else None


def _are_the_text(passages: Sequence[Passage], text: str) -> bool:
    """Whether they are as the strict parser would leave them: its times are not those that msgspec has read."""
    bare = all(
        one.sent_at is None and one.kind != "transcript" and _are_bare((one.text, one.author, one.refers_to))
        for one in passages
    )
    return bare and joined(passages) == text


def _is_exact(time: str) -> bool:
    return len(time) == _WHOLE_SECOND or _EXACT_TIME(time) is not None


def _is_plain(raw: JsonMapping | str | None, control: Control) -> bool:
    trace = control.trace_context
    return (
        not control.is_ours
        and (raw is None or (control.ingestion_tier != "metadata" and _is_shallow(raw, MAX_DEPTH)))
        and (trace is None or _is_shallow(trace, MAX_DEPTH))
    )


def _are_bare_names(envelope: Envelope) -> bool:
    """Whether stripping changes nothing: `strip` then returns the very same object. A loop would take longer."""
    source, event, sender, control = envelope.source, envelope.event, envelope.sender, envelope.control
    return (
        source.channel.strip() is source.channel
        and source.provider.strip() is source.provider
        and source.endpoint_identity.strip() is source.endpoint_identity
        and event.external_event_id.strip() is event.external_event_id
        and sender.identity.strip() is sender.identity
        and _are_bare_options(
            event.external_thread_id, sender.display_name, control.idempotency_key, control.pinned_target
        )
        and (control.model is None or control.model.strip() is control.model)
        and (event.reply_address is None or _is_short(event.reply_address))
        and (event.refers_to is None or event.refers_to.strip() is event.refers_to)
        and (not event.also or _are_bare(event.also))
        and (sender.participants is None or _are_bare((*sender.participants, *sender.participants.values())))
    )


def _is_short(address: JsonMapping) -> bool:
    return _is_shallow(address, MAX_DEPTH) and len(_encode(address)) <= MAX_ADDRESS


def _are_bare_options(thread: str | None, name: str | None, key: str | None, pinned: str | None) -> bool:
    return (
        (thread is None or thread.strip() is thread)
        and (name is None or name.strip() is name)
        and (key is None or key.strip() is key)
        and (pinned is None or pinned.strip() is pinned)
    )


def _are_bare_files(attachments: Sequence[Attachment]) -> bool:
    return all(
        _are_bare((one.media_type, one.filename, one.storage_ref, one.source_attachment_id, one.unavailable))
        for one in attachments
    )


def _are_bare(texts: Sequence[str | None]) -> bool:
    return all(text is None or text.strip() is text for text in texts)


def _is_shallow(value: Any, left: int) -> bool:
    """Whether no object or list is nested deeper than `left` levels, itself included."""
    if type(value) is str:
        return True
    if left == 0:
        return False
    for child in value.values() if type(value) is dict else value:
        kind = type(child)
        if (kind is dict or kind is list) and not _is_shallow(child, left - 1):
            return False
    return True

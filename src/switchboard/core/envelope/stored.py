"""The JSON form in which an envelope is stored: without `payload.raw`, which is kept in the bytes as they arrived.

Its passages have the `length` of their texts in characters, because `payload.normalized_text` has the words.

Called by `store/messages/inbox.py`, which writes it, by `store/work/lanes.py` and `journey/classify.py`, which read it,
and by `agents/delivery.py`, which hands it to butlers. Only the types are validated again. Next:
`store/messages/inbox.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from switchboard.core.passages.own import JOINT, part_of
from switchboard.domain.envelope import Envelope, Passage
from switchboard.domain.json_values import JsonMapping, JsonObject

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Envelope).decode


def stored_json(envelope: Envelope) -> bytes:
    """The typed part of the envelope: `payload.raw` may hold what PostgreSQL cannot. Raises UnicodeEncodeError."""
    payload = envelope.payload
    if payload.raw is not None:
        envelope = replace(envelope, payload=replace(payload, raw=None))
    if not payload.passages:
        return _encode(envelope)
    whole = msgspec.to_builtins(envelope, builtin_types=())
    whole["payload"]["passages"] = [_with_length(one) for one in whole["payload"]["passages"]]
    return _encode(whole)


def stored_envelope(text: str | bytes) -> Envelope:
    """Read the output of `stored_json`. Raises msgspec.ValidationError if another release stored it differently."""
    data = text.encode() if isinstance(text, str) else text
    if b'"passages":' not in data:
        return _decode(data)
    return msgspec.convert(with_texts(msgspec.json.decode(data)), Envelope)


def with_texts(stored: JsonMapping, seen: str | None = None) -> JsonMapping:
    """A stored envelope as a JSON object whose passages have their texts again.

    `seen`: the part of the text that its reader may see, if a model has split the message.
    """
    payload = stored.get("payload")
    if not isinstance(payload, Mapping):
        return stored
    passages = _with_texts(payload.get("passages") or (), payload.get("normalized_text") or "")
    if seen is None:
        return {**stored, "payload": {**payload, "passages": passages}} if passages else stored
    rest = {key: value for key, value in payload.items() if key != "passages"}
    parts = msgspec.to_builtins(part_of(msgspec.convert(passages, tuple[Passage, ...]), seen)) if passages else ()
    return {**stored, "payload": {**rest, "normalized_text": seen, **({"passages": parts} if parts else {})}}


def _with_length(passage: JsonObject) -> JsonObject:
    text = passage.pop("text")
    return {**passage, "length": len(text)}


def _with_texts(passages: Sequence[JsonMapping], text: str) -> list[JsonObject]:
    found, at = list[JsonObject](), 0
    for passage in passages:
        rest = {key: value for key, value in passage.items() if key != "length"}
        end = at + passage.get("length", 0)
        found.append({**rest, "text": text[at:end]} if "length" in passage else rest)
        at = end + len(JOINT)
    return found

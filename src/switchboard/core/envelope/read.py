"""From bytes to an `Envelope`: by the fast parser if nothing is unusual, else by the strict one, which explains.

Called by every interface that takes `ingest.v1`: HTTP, MCP, the importers. In: bytes or a mapping, and the time. Out: a
valid envelope, or InvalidInput with a stable code, the dotted path of the field and a sentence that says what is
expected. Next: `core/envelope/identity.py` names the event, `journey/accept.py` stores it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import astuple

from switchboard.core.envelope.fast import fast_envelope
from switchboard.core.envelope.strict import model_of, not_json, strict_envelope, too_deep
from switchboard.core.published import published_schema
from switchboard.core.text.json_size import check_containers
from switchboard.domain.envelope import SCHEMA_VERSION, Envelope
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonObject

MAX_BATCH: Final = 200
"""Maximum number of envelopes in a batch."""

Items: Final = msgspec.defstruct(
    "Items", [(f"n{n}", msgspec.Raw, msgspec.Raw()) for n in range(MAX_BATCH + 1)], array_like=True
)
"""The items of a JSON array, up to the first one that is too many: decoding millions would take seconds."""
_TOLERANCE: Final = timedelta(days=1)
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PLACEHOLDERS: Final = frozenset({"unknown", "none", "null", "undefined", "placeholder"})


def parse_envelope(raw: bytes | Mapping[str, object], *, now: datetime) -> Envelope:
    """The envelope in `raw`: JSON as it came over the wire, or the same already decoded. `now` is an aware time.

    Raises InvalidInput. Codes: invalid_json, invalid_utf8, lone_surrogate, too_deep, too_complex, not_a_json_number,
    wrong_type, unsupported_schema_version, unknown_field, missing_field, empty_value, too_long, invalid_value,
    rfc3339_string_required, timezone_required, future_timestamp, past_timestamp, placeholder_event_id, cause_refused,
    metadata_raw_must_be_null, empty_message, passages_differ. `field` is None only if the input as a whole is at fault.
    """
    envelope = read_envelope(raw if isinstance(raw, bytes) else _encode_body(raw))
    check_envelope(envelope, now)
    return envelope


def check_envelope(envelope: Envelope, now: datetime) -> None:
    """Check that its time is plausible, and its event and its sender have ids of their own.

    Raises InvalidInput, also for a message that only Switchboard itself may submit.
    """
    check_cause(envelope)
    _check_time(envelope, now)
    _check_event_id(envelope)
    _check_sender(envelope.sender.identity)


def check_cause(envelope: Envelope) -> None:
    """Raise InvalidInput if the message claims what only Switchboard knows, such as that nobody has written it."""
    control = envelope.control
    if control.is_ours or control.answers_mail is not None:
        name = "cause" if control.cause is not None else "task" if control.task is not None else "answers_mail"
        sentence = f"control.{name} is set by Switchboard alone: leave it out"
        raise InvalidInput(sentence, code="cause_refused", field=f"control.{name}")


def read_envelope(data: bytes) -> Envelope:
    """The envelope in `data`, whatever its time and its id: for envelopes that were accepted before.

    Raises InvalidInput with the codes of `parse_envelope`, except those about times and placeholders.
    """
    check_containers(data)
    return fast_envelope(data) or strict_envelope(data)


def split_batch(body: bytes) -> list[bytes]:
    """The envelopes of `{"envelopes": [...]}`, 1 to 200, each byte for byte as it came and not yet validated.

    A bad envelope affects no other; only a body whose JSON is broken is refused as a whole. Raises InvalidInput
    with code invalid_json, invalid_utf8, too_deep, wrong_type, unknown_field, missing_field or batch_size.
    """
    # A lone surrogate is one envelope's fault, but stops the scanner, so a copy of the same length is scanned.
    masked = body.replace(rb"\ud", rb"\u1").replace(rb"\uD", rb"\u1")
    array, items = _scan_array(masked)
    check_batch(items)
    start = masked.rindex(b"]") + 1 - len(array)
    return list(_cut_items(body[start:], array, items))


def check_batch(envelopes: Sequence[object]) -> None:
    """Raises InvalidInput with code batch_size if there are none, or more than `MAX_BATCH`."""
    if not 1 <= len(envelopes) <= MAX_BATCH:
        given = "more" if envelopes else "none"
        raise InvalidInput(
            f"a batch holds 1 to {MAX_BATCH} envelopes; this one holds {given}", code="batch_size", field="envelopes"
        )


def items_of(array: msgspec.Struct) -> list[bytes]:
    """The raw items of an array that was decoded as `Items`."""
    return [item for one in astuple(array) if (item := bytes(one))]


def json_schema() -> JsonObject:
    """The published JSON Schema of `ingest.v1`, of an envelope whose strings are stripped.

    What it cannot express: `observed_at` needs a zone, `raw` is null in the metadata tier, and a message is not empty.
    """
    schema = model_of(Envelope).model_json_schema()
    payload = schema["$defs"]["Payload"]
    payload["anyOf"] = [{"required": payload.pop("required")}, {"required": ["passages"]}]
    return published_schema(SCHEMA_VERSION, schema)


def _scan_array(body: bytes) -> tuple[bytes, list[bytes]]:
    """The array of envelopes, and its items."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        array = _only_field(fields)
        return array, items_of(msgspec.json.decode(array, type=Items))
    except RecursionError:
        raise too_deep() from None
    except msgspec.ValidationError as error:
        sentence = f'the body must be {{"envelopes": [...]}}: {error}'
        raise InvalidInput(sentence, code="wrong_type", field="envelopes") from None
    except ValueError as error:  # msgspec.DecodeError and UnicodeDecodeError
        raise not_json(str(error), body) from None


def _only_field(fields: Mapping[str, msgspec.Raw]) -> bytes:
    for name in fields:
        if name != "envelopes":
            sentence = f"{name[:200]} is not a field of a batch; known here: envelopes"
            raise InvalidInput(sentence, code="unknown_field", field=name[:200] or '""')
    if "envelopes" not in fields:
        raise InvalidInput("envelopes is required", code="missing_field", field="envelopes")
    return bytes(fields["envelopes"])


def _cut_items(original: bytes, array: bytes, items: Sequence[bytes]) -> Iterator[bytes]:
    """The items again, from the original bytes; only commas and blanks are between them."""
    at = 1
    for item in items:
        at = array.index(item, at)
        yield original[at : at + len(item)]
        at += len(item)


def _encode_body(raw: Mapping[str, object]) -> bytes:
    """One path for both forms: invalid JSON is detected here, everything else by the same validator."""
    try:
        return json.dumps(dict(raw), allow_nan=False).encode()
    except RecursionError:
        raise too_deep() from None
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the envelope must hold only JSON values: {error}", code="invalid_json") from None


def _check_time(envelope: Envelope, now: datetime) -> None:
    seen, field = envelope.event.observed_at, "event.observed_at"
    if _EARLIEST <= seen <= now + _TOLERANCE:
        return
    if seen >= _EARLIEST:
        raise InvalidInput(
            f"{field} is more than a day ahead of {now.isoformat(timespec='seconds')}; check the sender's clock",
            code="future_timestamp",
            field=field,
        )
    raise InvalidInput(f"{field} must not lie before 1970", code="past_timestamp", field=field)


def _check_sender(identity: str) -> None:
    """Without its blanks and control characters, an id may be that of somebody else."""
    if identity.isprintable() and identity.strip() is identity:
        return
    if identity.strip() != identity or _CONTROL.search(identity):
        raise InvalidInput(
            "sender.identity must be the platform's own id of the sender, without blanks around it and without "
            "control characters",
            code="invalid_value",
            field="sender.identity",
        )


def _check_event_id(envelope: Envelope) -> None:
    # If a connector calls every event "unknown", all but its first would count as duplicates.
    if envelope.event.external_event_id.lower() in _PLACEHOLDERS and not envelope.control.idempotency_key:
        raise InvalidInput(
            "event.external_event_id must be the platform's own id of this event, or set control.idempotency_key",
            code="placeholder_event_id",
            field="event.external_event_id",
        )

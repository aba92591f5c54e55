"""From bytes at a door to an `Envelope`, and from pydantic's complaints to ours.

Called by every door that takes `ingest.v1`: HTTP, MCP, the importers. In: bytes or a mapping, and the time. Out: a
valid envelope, or InvalidInput with a stable code, the dotted path of the field and a sentence that says what would be
right. `core/clean.py` takes what is plainly good, `core/checked.py` all else. Next: `core/identity.py` names the event,
`journey/accept.py` stores it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, get_args

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from switchboard.core.checked import checked_json
from switchboard.core.clean import clean_envelope
from switchboard.domain.envelope import MAX_DEPTH, SCHEMA_VERSION, Envelope
from switchboard.domain.envelope_model import model_of
from switchboard.domain.errors import InvalidInput

MAX_BATCH: Final = 200
"""Most envelopes in one batch."""
SCHEMA_ID: Final = "/schemas/ingest.v1.json"

_TOLERANCE: Final = timedelta(days=1)
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PLACEHOLDERS: Final = frozenset({"unknown", "none", "null", "undefined", "placeholder"})
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def parse_envelope(raw: bytes | Mapping[str, object], *, now: datetime) -> Envelope:
    """The envelope in `raw`: JSON as it came over the wire, or the same already decoded. `now` is an aware time.

    Raises InvalidInput. Codes: invalid_json, invalid_utf8, lone_surrogate, too_deep, not_a_json_number, wrong_type,
    unsupported_schema_version, unknown_field, missing_field, empty_value, too_long, invalid_value,
    rfc3339_string_required, timezone_required, future_timestamp, past_timestamp, placeholder_event_id,
    metadata_raw_must_be_null, empty_message. `field` is None only where the input as a whole is at fault.
    """
    envelope = read_envelope(raw if isinstance(raw, bytes) else _encoded(raw))
    check_envelope(envelope, now)
    return envelope


def check_envelope(envelope: Envelope, now: datetime) -> None:
    """Whether its time can be, and its event has a name of its own. Raises InvalidInput."""
    _check_time(envelope, now)
    _check_event_id(envelope)


def read_envelope(data: bytes) -> Envelope:
    """The envelope in `data`, whatever its time and its id: so it is read that was accepted before.

    Raises InvalidInput with the codes of `parse_envelope`, but for those about times and placeholders.
    """
    return clean_envelope(data) or read_or_explain(data)


def read_or_explain(data: bytes) -> Envelope:
    """The long way alone: what is unusual is made clean, what is wrong is explained. Raises as `read_envelope`."""
    if b"\\u0000" in data:
        data = _without_nul(data)
    try:
        return checked_json(data)
    except ValidationError as error:
        raise _refusal(error, data) from None


def split_batch(body: bytes) -> list[bytes]:
    """The envelopes of `{"envelopes": [...]}`, 1 to 200, each byte for byte as it came and not yet validated.

    One bad envelope is its own problem; only a body whose JSON is broken is refused as a whole. Raises InvalidInput
    with code invalid_json, invalid_utf8, too_deep, wrong_type, unknown_field, missing_field or batch_size.
    """
    # A lone surrogate is one envelope's fault, yet it stops the scanner: the scan is over a copy of the same length.
    masked = _ESCAPED_SURROGATE.sub(rb"\\u0041", body)
    array, items = _scanned(masked)
    if not 1 <= len(items) <= MAX_BATCH:
        raise InvalidInput(
            f"a batch holds 1 to {MAX_BATCH} envelopes, this one {len(items)}", code="batch_size", field="envelopes"
        )
    start = masked.rindex(b"]") + 1 - len(array)
    return list(_cut(body[start:], array, items))


def json_schema() -> dict[str, Any]:
    """The published JSON Schema of `ingest.v1`, of an envelope whose strings are stripped.

    What it cannot say: `observed_at` needs a zone, `raw` is null in the metadata tier, and a message is not empty.
    """
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID}
    return head | model_of(Envelope).model_json_schema() | {"title": SCHEMA_VERSION}


def _scanned(body: bytes) -> tuple[bytes, list[bytes]]:
    """The array of envelopes, and its items."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        array = _only_field(fields)
        return array, [bytes(item) for item in msgspec.json.decode(array, type=list[msgspec.Raw])]
    except RecursionError:
        raise _too_deep() from None
    except msgspec.ValidationError as error:
        sentence = f'the body must be {{"envelopes": [...]}}: {error}'
        raise InvalidInput(sentence, code="wrong_type", field="envelopes") from None
    except ValueError as error:  # msgspec.DecodeError and UnicodeDecodeError
        raise _not_json(str(error), body) from None


def _only_field(fields: Mapping[str, msgspec.Raw]) -> bytes:
    for name in fields:
        if name != "envelopes":
            sentence = f"{name[:200]} is not a field of a batch; known here: envelopes"
            raise InvalidInput(sentence, code="unknown_field", field=name[:200] or '""')
    if "envelopes" not in fields:
        raise InvalidInput("envelopes is required", code="missing_field", field="envelopes")
    return bytes(fields["envelopes"])


def _cut(original: bytes, array: bytes, items: Sequence[bytes]) -> Iterator[bytes]:
    """The items again, from the bytes as they came; between two of them are only commas and blanks."""
    at = 1
    for item in items:
        at = array.index(item, at)
        yield original[at : at + len(item)]
        at += len(item)


def _encoded(raw: Mapping[str, object]) -> bytes:
    """One way in for both forms: what is not JSON is found here, everything else by the same validator."""
    try:
        return json.dumps(dict(raw), allow_nan=False).encode()
    except RecursionError:
        raise _too_deep() from None
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the envelope must hold only JSON values: {error}", code="invalid_json") from None


def _without_nul(data: bytes) -> bytes:
    """The same JSON without NUL in names and strings, which PostgreSQL cannot store; `payload.raw` stays as it is."""
    try:
        envelope = json.loads(data)
        cleaned = _freed(envelope)
    except (ValueError, RecursionError):
        return data  # the validator says better what is wrong with it
    match envelope, cleaned:
        # Both are asked: names may have become `payload` and `raw` only by losing their NUL.
        case {"payload": {"raw": raw}}, {"payload": dict(payload)}:
            payload["raw"] = raw
    return json.dumps(cleaned).encode()


def _freed(value: object) -> Any:
    if isinstance(value, dict):
        return {name.replace("\x00", ""): _freed(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_freed(child) for child in value]
    return value.replace("\x00", "") if isinstance(value, str) else value


def _too_deep() -> InvalidInput:
    return InvalidInput(f"the JSON must not be nested deeper than {MAX_DEPTH} levels", code="too_deep")


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


def _check_event_id(envelope: Envelope) -> None:
    # A connector that calls every event "unknown" would have all but its first taken for duplicates.
    if envelope.event.external_event_id.lower() in _PLACEHOLDERS and not envelope.control.idempotency_key:
        raise InvalidInput(
            "event.external_event_id must be the platform's own id of this event, or set control.idempotency_key",
            code="placeholder_event_id",
            field="event.external_event_id",
        )


def _refusal(error: ValidationError, data: bytes) -> InvalidInput:
    details = error.errors(include_url=False, include_input=False)
    first = min(details, key=_rank)
    if first["type"] == "json_invalid":
        return _not_json(str(first["ctx"]["error"]), data)
    code, sentence = _explained(first)
    field = _FIELD_OF_CODE.get(code) or _path(first["loc"])
    rest = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return InvalidInput(f"{field or 'the envelope'} {sentence}{rest}", code=code, field=field)


def _rank(detail: ErrorDetails) -> int:
    """In another version of the format the other complaints mean nothing; a misspelt field explains a missing one."""
    if detail["loc"] == ("schema_version",):
        return 0
    return 1 if detail["type"] == "extra_forbidden" else 2


def _not_json(reason: str, data: bytes) -> InvalidInput:
    if "recursion" in reason:
        return _too_deep()
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return InvalidInput(f"the body must be UTF-8; byte {error.start} is not", code="invalid_utf8")
    if any(sign in reason for sign in ("surrogate", "hex escape")) and _ESCAPED_SURROGATE.search(data):
        return InvalidInput(f"a \\uD8.. escape must be half of a pair: {reason}", code="lone_surrogate")
    return InvalidInput(f"the body must be one JSON object: {reason}", code="invalid_json")


_FIELD_OF_CODE: Final[Mapping[str, str]] = {
    "metadata_raw_must_be_null": "payload.raw",
    "empty_message": "payload.normalized_text",
}
_OUR_CODES: Final[Mapping[str, str]] = {
    "timezone_required": "must be an RFC 3339 time with a zone, such as 2026-01-31T12:00:00Z",
    "rfc3339_string_required": "must be an RFC 3339 string with a zone, such as 2026-01-31T12:00:00Z",
    "wrong_type": "must be an object, a string or null",
    "too_deep": f"must not be nested deeper than {MAX_DEPTH} levels",
    "not_a_json_number": "must not hold NaN or Infinity",
    "metadata_raw_must_be_null": "must be null when control.ingestion_tier is 'metadata'",
    "empty_message": "must not be empty when there are no attachments",
}


def _explained(detail: ErrorDetails) -> tuple[str, str]:
    """Our code for pydantic's, and what would be right."""
    kind, loc, ctx = detail["type"], detail["loc"], detail.get("ctx", {})
    if kind in _OUR_CODES:
        return kind, _OUR_CODES[kind]
    if kind == "missing":
        return "missing_field", "is required"
    if kind == "extra_forbidden":
        return "unknown_field", f"is not a field of {SCHEMA_VERSION}{_suggestion(loc)}"
    if kind == "literal_error":
        code = "unsupported_schema_version" if loc == ("schema_version",) else "invalid_value"
        return code, f"must be {ctx.get('expected')}"
    if kind.startswith("datetime"):
        return "rfc3339_string_required", f"must be an RFC 3339 time: {ctx.get('error', detail['msg'])}"
    return _by_shape(kind, ctx, detail["msg"])


def _by_shape(kind: str, ctx: Mapping[str, object], message: str) -> tuple[str, str]:
    if kind in {"string_too_short", "too_short"}:
        return "empty_value", "must not be empty"
    if kind in {"string_too_long", "too_long"}:
        return "too_long", f"must not be longer than {ctx.get('max_length')}"
    if kind.endswith("_type"):
        return "wrong_type", f"has the wrong type: {message[:1].lower()}{message[1:]}"
    return "invalid_value", f"is not valid: {message[:1].lower()}{message[1:]}"


def _path(loc: Sequence[int | str]) -> str | None:
    # The path repeats names that a stranger chose.
    path = ".".join(str(part) for part in loc if part != "[key]")
    return path[:200] or ("[key]" if loc else None)


def _suggestion(loc: Sequence[int | str]) -> str:
    known = list(_names_at(loc[:-1]))
    near = difflib.get_close_matches(str(loc[-1])[:64], known, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else f"; known here: {', '.join(known)}"


def _names_at(loc: Sequence[int | str]) -> Iterator[str]:
    model: type[BaseModel] = model_of(Envelope)
    for part in loc:
        if isinstance(part, str):
            model = next(iter(_models(model.model_fields[part].annotation)))
    yield from model.model_fields


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The models in an annotation such as `tuple[Attachment, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)

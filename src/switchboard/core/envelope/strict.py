"""The strict parser of an `Envelope`, or of a part: pydantic strips strings and says what is wrong, and where.

Called by `read.py` with what `fast.py` does not accept, and by code that builds a part from outside values
(`core/mail/unusual.py`, `core/classification/source.py`, intake). In: bytes or values; out: an envelope or a part, or
an error.
The models are derived from the Structs: fields, types and limits are listed in `domain/envelope.py` alone; here is only
what pydantic needs in addition. They also make the published JSON Schema. Next: `core/envelope/identity.py`.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StrictBool,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, PydanticOmit

from switchboard.core.models_of import ModelMaker
from switchboard.core.passages.own import JOINT, joined
from switchboard.core.text.problems import path_of, wrong
from switchboard.domain.envelope import (
    MAX_ADDRESS,
    MAX_DEPTH,
    SCHEMA_VERSION,
    Address,
    Envelope,
    Payload,
    Raw,
    Timestamp,
    Trace,
)
from switchboard.domain.errors import InvalidInput, NotJson
from switchboard.domain.json_values import JsonObject

_S = TypeVar("_S", bound=Struct)

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_ESCAPED_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_TOO_LONG: Final = -(10**4299)
"""4301 characters long with its sign: pydantic would accept it, but msgspec could not read it back."""


_SENTENCES: Final[Mapping[str, str]] = {
    "timezone_required": "must be an RFC 3339 time with a zone, such as 2026-01-31T12:00:00Z",
    "rfc3339_string_required": "must be an RFC 3339 string with a zone, such as 2026-01-31T12:00:00Z",
    "wrong_type": "must be an object, a string or null",
    "too_deep": f"must not be nested deeper than {MAX_DEPTH} levels",
    "not_a_json_number": "must not hold NaN or Infinity",
    "metadata_raw_must_be_null": "must be null when control.ingestion_tier is 'metadata'",
    "empty_message": "must not be empty when there are no attachments",
    "passages_differ": "must be the texts of payload.passages, joined by blank lines, or be left out",
    "transcript_given": "must not be 'transcript': transcripts are made here",
    "empty_value": "must not be blank",
    "address_too_long": f"must not be longer than {MAX_ADDRESS} bytes",
}
"""Our own codes, and what each says about the field."""
_CODES: Final = {
    **dict.fromkeys(("string_too_short", "too_short"), "empty_value"),
    **dict.fromkeys(("string_too_long", "too_long"), "too_long"),
}
_FIELD_OF_CODE: Final[Mapping[str, str]] = {
    "metadata_raw_must_be_null": "payload.raw",
    "empty_message": "payload.normalized_text",
    "passages_differ": "payload.normalized_text",
    "transcript_given": "payload.passages",
}


def _error_of(code: str) -> PydanticCustomError:
    return PydanticCustomError(code, _SENTENCES[code])


def _check_time(value: object) -> object:
    """A time must be a string with a zone: for a number or a naive time the zone would be a guess."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise _error_of("rfc3339_string_required")
    text = value.strip()
    if not _RFC3339.fullmatch(text):
        raise _error_of("timezone_required" if re.fullmatch(r"[\dT: .-]+", text) else "rfc3339_string_required")
    return text


def _check_depth(value: dict[Any, Any] | list[Any], left: int) -> None:
    if left == 0:
        raise _error_of("too_deep")
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, str):  # most of them are: checked first, without a call
            continue
        if isinstance(child, (dict, list)):
            _check_depth(child, left - 1)
        elif isinstance(child, float) and not math.isfinite(child):
            raise _error_of("not_a_json_number")
        elif isinstance(child, int) and child <= _TOO_LONG:
            raise PydanticCustomError("long_number", "must not hold a number of more than 4300 characters")


def _check_shallow(value: object) -> object:
    if isinstance(value, (dict, list)):
        _check_depth(value, MAX_DEPTH)
    return value


def _platform_object(value: object) -> object:
    if not isinstance(value, (dict, str, type(None))):
        raise _error_of("wrong_type")
    return _check_shallow(value)


def _check_size(value: JsonObject) -> JsonObject:
    if len(msgspec.json.encode(_check_shallow(value))) > MAX_ADDRESS:
        raise _error_of("address_too_long")
    return value


def _with_text(payload: Any) -> Any:
    """The payload with its text, if only its passages are given.

    Also if they are wrong: then they are what is to be mended, and not the text that is missing.
    """
    if not isinstance(payload, dict) or "normalized_text" in payload or payload.get("passages", []) == []:
        return payload
    passages = payload["passages"]
    texts = [one.get("text") for one in passages if isinstance(one, dict)] if isinstance(passages, list) else []
    said = JOINT.join(text.strip() for text in texts if isinstance(text, str))
    return {**payload, "normalized_text": said}


def _check_consistency(envelope: Any) -> Any:
    payload = envelope.payload
    if payload.passages and payload.normalized_text != joined(payload.passages):
        raise _error_of("passages_differ")
    if any(one.kind == "transcript" for one in payload.passages):
        raise _error_of("transcript_given")
    if envelope.control.ingestion_tier == "metadata" and envelope.payload.raw is not None:
        raise _error_of("metadata_raw_must_be_null")
    empty = not envelope.payload.normalized_text and not envelope.payload.attachments
    if empty and envelope.event.kind == "message":
        raise _error_of("empty_message")
    return envelope


# NUL cannot be stored. `strict_envelope` removes it from input on the wire; in a part it is refused.
_NO_NUL: Final = r"^[^\x00]*$"
_RULES: Final[Mapping[Any, Any]] = {
    bool: StrictBool,
    Timestamp: Annotated[AwareDatetime, BeforeValidator(_check_time)],
    Raw: Annotated[
        Any,
        AfterValidator(_platform_object),
        WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}, {"type": "null"}]}),
    ],
    Trace: Annotated[JsonObject, AfterValidator(_check_shallow)],
    Address: Annotated[JsonObject, AfterValidator(_check_size)],
}
"""Types for which pydantic is more lenient than we are, or explains less."""
_CHECKS: Final[Mapping[type[Struct], JsonObject]] = {
    Envelope: {"_consistent": model_validator(mode="after")(_check_consistency)},
    Payload: {"_with_text": model_validator(mode="before")(_with_text)},
}
"""What concerns several fields at once."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise _error_of("empty_value")
    return text


class _Hidden:
    """Leaves a field out of the published schema, since nobody else may set it."""

    def __get_pydantic_json_schema__(self, _: CoreSchema, __: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Called by pydantic."""
        raise PydanticOmit


def _limit_of(kind: object, limit: Meta) -> tuple[object, ...]:
    if limit.extra is not None and limit.extra.get("ours"):
        return (_Hidden(),)
    if kind is int:
        return (Field(strict=True, ge=limit.ge, le=limit.le),)
    if kind is not str:
        return (Field(max_length=limit.max_length),)
    as_it_is = limit.extra is not None and bool(limit.extra.get("as_it_is"))
    low, high = limit.min_length, limit.max_length
    text = StringConstraints(strip_whitespace=not as_it_is, min_length=low, max_length=high, pattern=_NO_NUL)
    return (text, AfterValidator(_not_blank)) if as_it_is else (text,)


_MODELS: Final = ModelMaker(_RULES, _limit_of, lambda struct: _CHECKS.get(struct, {}))
model_of: Final = _MODELS.model_of


def strict(kind: type[_S], value: object) -> _S:
    """A `kind` from a mapping, or from a Struct that was built without checks. Raises pydantic.ValidationError."""
    good = model_of(kind).model_validate(value, from_attributes=isinstance(value, kind))
    return msgspec.convert(good, kind, from_attributes=True)


def strict_envelope(data: bytes) -> Envelope:
    """The envelope in `data`. Raises InvalidInput with the codes of `read_envelope` and an explanation."""
    if b"\\u0000" in data:
        data = _without_nul(data)
    try:
        return msgspec.convert(model_of(Envelope).model_validate_json(data), Envelope, from_attributes=True)
    except ValidationError as error:
        raise _refusal_of(error, data) from None


class AsModel:
    """Tells pydantic, within `Annotated`: this value is validated by the model of this Struct."""

    def __init__(self, struct: type[Struct]) -> None:
        self._struct = struct

    def __get_pydantic_core_schema__(self, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Called by pydantic."""
        return handler.generate_schema(model_of(self._struct))


def _without_nul(data: bytes) -> bytes:
    """The same JSON without NUL in names and strings, which PostgreSQL cannot store; `payload.raw` stays as it is."""
    try:
        envelope = json.loads(data)
        cleaned = _remove_nul(envelope)
    except (ValueError, RecursionError):
        return data  # the validator explains it better
    match envelope, cleaned:
        # Both must match: a name may have become `payload` or `raw` only by losing its NUL.
        case {"payload": {"raw": raw}}, {"payload": dict(payload)}:
            payload["raw"] = raw
    match envelope, cleaned:
        case {"sender": {"identity": identity}}, {"sender": dict(sender)}:
            sender["identity"] = identity  # it would become somebody else's
    return json.dumps(cleaned).encode()


def _remove_nul(value: object) -> Any:
    if isinstance(value, dict):
        return {name.replace("\x00", ""): _remove_nul(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_remove_nul(child) for child in value]
    return value.replace("\x00", "") if isinstance(value, str) else value


def _refusal_of(error: ValidationError, data: bytes) -> InvalidInput:
    details = error.errors(include_url=False)
    first = min(details, key=_rank_error)
    if first["type"] == "json_invalid":
        return not_json(str(first["ctx"]["error"]), data)
    code, sentence = _explain_error(first)
    field = _FIELD_OF_CODE.get(code) or _path_text(first["loc"])
    rest = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return InvalidInput(f"{field or 'the envelope'} {sentence}{rest}", code=code, field=field)


def _rank_error(detail: ErrorDetails) -> int:
    """The most helpful error: a wrong version makes the others meaningless; a misspelt field explains a missing one."""
    if detail["loc"] == ("schema_version",):
        return 0
    return 1 if detail["type"] == "extra_forbidden" else 2


def too_deep() -> InvalidInput:
    """The refusal of JSON that is nested too deeply."""
    return InvalidInput(f"the JSON must not be nested deeper than {MAX_DEPTH} levels", code="too_deep")


def not_json(reason: str, data: bytes) -> InvalidInput:
    """The refusal of a body that is not JSON; `reason` is what the parser said."""
    if "recursion" in reason:
        return too_deep()
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return NotJson(f"the body must be UTF-8; byte {error.start} is not", code="invalid_utf8")
    if any(sign in reason for sign in ("surrogate", "hex escape")) and _ESCAPED_SURROGATE.search(data):
        return InvalidInput(f"a \\uD8.. escape must be half of a pair: {reason}", code="lone_surrogate")
    return NotJson(f"the body must be one JSON object: {reason}")


def _explain_error(detail: ErrorDetails) -> tuple[str, str]:
    """Our code for pydantic's, and an explanation."""
    kind, loc = detail["type"], detail["loc"]
    if kind in _SENTENCES:
        return kind, _SENTENCES[kind]
    if kind == "missing":
        return "missing_field", "is required"
    if kind == "extra_forbidden":
        return "unknown_field", f"is not a field of {SCHEMA_VERSION}{_suggest_key(loc)}"
    if kind == "literal_error":
        code = "unsupported_schema_version" if loc == ("schema_version",) else "invalid_value"
        return code, wrong(detail)
    if kind.startswith("datetime"):
        return "rfc3339_string_required", wrong(detail)
    return _CODES.get(kind, "wrong_type" if kind.endswith("_type") else "invalid_value"), wrong(detail)


def _path_text(loc: Sequence[int | str]) -> str | None:
    # The path repeats names chosen by a stranger.
    return path_of(loc)[:200] or ("[key]" if loc else None)


def _suggest_key(loc: Sequence[int | str]) -> str:
    known = list(_names_at(loc[:-1]))
    near = difflib.get_close_matches(str(loc[-1])[:64], known, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else f"; known here: {', '.join(known)}"


def _names_at(loc: Sequence[int | str]) -> Iterator[str]:
    model: type[BaseModel] = model_of(Envelope)
    for part in loc:
        if isinstance(part, str):
            model = next(iter(_models_in(model.model_fields[part].annotation)))
    yield from model.model_fields


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """The models in an annotation such as `tuple[Attachment, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)

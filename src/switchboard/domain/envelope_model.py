"""The pydantic models of `ingest.v1`, derived from the Structs: they strip strings and say what is wrong, and where.

`core/checked.py` asks them for what is not plainly good; they also make the published JSON Schema. A Struct enters, its
model leaves: the fields, types and limits are those of `domain/envelope.py`, only what pydantic has to know besides
stands here. Next: `core/checked.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from msgspec import NODEFAULT, Meta, Struct
from msgspec.structs import FieldInfo, fields
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StrictBool,
    StringConstraints,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from switchboard.domain.envelope import MAX_DEPTH, Envelope, Raw, Timestamp, Trace

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


_TOO_LONG: Final = -(10**4299)
"""With its sign 4301 characters long: pydantic would take it, but msgspec could not read back what is stored."""


def _rfc3339(value: object) -> object:
    """A time must be a string with a zone: a number or a naive time would be guessed at, and guessed wrong."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("rfc3339_string_required", "must be an RFC 3339 string such as 2026-01-31T12:00:00Z")
    text = value.strip()
    if not _RFC3339.fullmatch(text):
        code = "timezone_required" if re.fullmatch(r"[\dT: .-]+", text) else "rfc3339_string_required"
        raise PydanticCustomError(code, "must be an RFC 3339 time with a zone, such as 2026-01-31T12:00:00Z")
    return text


def _check(value: dict[Any, Any] | list[Any], left: int) -> None:
    if left == 0:
        raise PydanticCustomError("too_deep", "must not be nested deeper than {depth} levels", {"depth": MAX_DEPTH})
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, str):  # most of them are: asked first, and not called for
            continue
        if isinstance(child, (dict, list)):
            _check(child, left - 1)
        elif isinstance(child, float) and not math.isfinite(child):
            raise PydanticCustomError("not_a_json_number", "must not hold NaN or Infinity: JSON has no such numbers")
        elif isinstance(child, int) and child <= _TOO_LONG:
            raise PydanticCustomError("long_number", "must not hold a number of more than 4300 characters")


def _shallow(value: object) -> object:
    if isinstance(value, (dict, list)):
        _check(value, MAX_DEPTH)
    return value


def _platform_object(value: object) -> object:
    if not isinstance(value, (dict, str, type(None))):
        raise PydanticCustomError("wrong_type", "must be an object, a string or null")
    return _shallow(value)


def _consistent(envelope: Any) -> Any:
    if envelope.control.ingestion_tier == "metadata" and envelope.payload.raw is not None:
        raise PydanticCustomError("metadata_raw_must_be_null", "payload.raw must be null in the metadata tier")
    if not envelope.payload.normalized_text and not envelope.payload.attachments:
        raise PydanticCustomError("empty_message", "payload.normalized_text must not be empty without attachments")
    return envelope


# NUL cannot be stored. `core/wire.py` takes it out of what comes over the wire; here it is refused.
_NO_NUL: Final = r"^[^\x00]*$"
_RULES: Final[Mapping[Any, Any]] = {
    bool: StrictBool,
    Timestamp: Annotated[AwareDatetime, BeforeValidator(_rfc3339)],
    Raw: Annotated[
        Any,
        AfterValidator(_platform_object),
        WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}, {"type": "null"}]}),
    ],
    Trace: Annotated[dict[str, Any], AfterValidator(_shallow)],
}
"""What pydantic would take more freely than we do, or could not say as well."""


@cache
def model_of(struct: type[Struct]) -> type[BaseModel]:
    """The model with the fields of `struct`, under its name."""
    known: dict[str, Any] = {one.name: (_ruled(one.type), _default(one)) for one in fields(struct)}
    whole: dict[str, Any] = {"_consistent": model_validator(mode="after")(_consistent)} if struct is Envelope else {}
    config = ConfigDict(extra="forbid", frozen=True)
    return create_model(struct.__name__, __config__=config, __doc__=struct.__doc__, __validators__=whole, **known)


class AsModel:
    """Says to pydantic, within `Annotated`: what stands here is taken by the model of this Struct."""

    def __init__(self, struct: type[Struct]) -> None:
        self._struct = struct

    def __get_pydantic_core_schema__(self, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Called by pydantic."""
        return handler.generate_schema(model_of(self._struct))


def _ruled(kind: Any) -> Any:
    """The same annotation in pydantic's words."""
    if kind in _RULES:
        return _RULES[kind]
    if isinstance(kind, type) and issubclass(kind, Struct):
        return model_of(kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return Annotated[_ruled(args[0]), _limit(*args)]
    if origin in (Union, UnionType):
        return Union[tuple(_ruled(arg) for arg in args)]  # noqa: UP007 - its members are known only here
    return origin[tuple(_ruled(arg) for arg in args)] if origin in (tuple, dict) else kind


def _limit(kind: object, limit: Meta) -> object:
    if kind is str:
        low, high = limit.min_length, limit.max_length
        return StringConstraints(strip_whitespace=True, min_length=low, max_length=high, pattern=_NO_NUL)
    return Field(strict=True, ge=limit.ge, le=limit.le) if kind is int else Field(max_length=limit.max_length)


def _default(one: FieldInfo) -> Any:
    if one.required:
        return ...
    default = one.default_factory() if one.default is NODEFAULT else one.default
    return model_of(type(default))() if isinstance(default, Struct) else default

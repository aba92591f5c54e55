"""The wire form of a message: `ingest.v1`.

Every door and connector builds one; `journey/accept.py` takes it. Unknown fields are refused, strings are stripped, NUL
is removed (PostgreSQL cannot store it). Next: `domain/message.py`, what an envelope becomes once it is accepted.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

SCHEMA_VERSION: Final = "ingest.v1"

MAX_TEXT: Final = 262_144
"""Most characters in `normalized_text`."""
MAX_DEPTH: Final = 32
"""Deepest nesting of `payload.raw` and of `control.trace_context`."""

PolicyTier = Literal["high_priority", "interactive", "default", "passive"]
IngestionTier = Literal["full", "metadata"]
ChatType = Literal["private", "group", "supergroup", "channel"]

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


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


def _shallow(value: object) -> object:
    if isinstance(value, (dict, list)):
        _check(value, MAX_DEPTH)
    return value


def _platform_object(value: object) -> object:
    if not isinstance(value, (dict, str, type(None))):
        raise PydanticCustomError("wrong_type", "must be an object, a string or null")
    return _shallow(value)


# NUL cannot be stored. `core/wire.py` takes it out of what comes over the wire; here it is refused, by the validator's
# own pattern: a function of ours for every string would take more time than everything else together.
_NO_NUL: Final = r"^[^\x00]*$"
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64, pattern=_NO_NUL)]
Identity = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=512, pattern=_NO_NUL)]
DisplayName = Annotated[str, StringConstraints(strip_whitespace=True, max_length=512, pattern=_NO_NUL)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_TEXT, pattern=_NO_NUL)]
Timestamp = Annotated[AwareDatetime, BeforeValidator(_rfc3339)]
Raw = Annotated[
    Any,
    AfterValidator(_platform_object),
    WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}, {"type": "null"}]}),
]
Trace = Annotated[dict[str, Any], AfterValidator(_shallow)]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Wire):
    """Where the message entered: the channel, who provides it, and which of our accounts received it."""

    channel: Name
    provider: Name
    endpoint_identity: Identity


class Event(_Wire):
    """The platform's own name for this event; `observed_at` is when the connector saw it."""

    external_event_id: Identity
    external_thread_id: Identity | None = None
    observed_at: Timestamp


class Sender(_Wire):
    """Who wrote it. `participants` maps sender ids to names where several people wrote one message."""

    identity: Identity
    display_name: DisplayName | None = None
    chat_type: ChatType | None = None
    participants: Annotated[dict[Identity, Identity], Field(max_length=1000)] | None = None


class Attachment(_Wire):
    """What is known of an attachment; its bytes stay where `storage_ref` says, or with the platform."""

    media_type: Identity
    filename: Identity | None = None
    size_bytes: Annotated[int, Field(strict=True, ge=0, le=2**53)]
    storage_ref: Identity | None = None
    source_attachment_id: Identity | None = None


class Payload(_Wire):
    """`raw` is the platform's own object, kept untouched; `normalized_text` is what rules, models and butlers read."""

    raw: Raw = None
    normalized_text: Text
    attachments: Annotated[tuple[Attachment, ...], Field(max_length=100)] = ()


class Control(_Wire):
    """What the sender asks of the switchboard."""

    idempotency_key: Identity | None = None
    trace_context: Trace | None = None
    policy_tier: PolicyTier = "default"
    ingestion_tier: IngestionTier = "full"
    addressed: Annotated[bool, Field(strict=True)] = False
    pinned_target: Identity | None = None


class Envelope(_Wire):
    """One inbound event as a connector submits it."""

    schema_version: Literal["ingest.v1"]
    source: Source
    event: Event
    sender: Sender
    payload: Payload
    control: Control = Control()

    @model_validator(mode="after")
    def _consistent(self) -> Envelope:
        if self.control.ingestion_tier == "metadata" and self.payload.raw is not None:
            raise PydanticCustomError("metadata_raw_must_be_null", "payload.raw must be null in the metadata tier")
        if not self.payload.normalized_text and not self.payload.attachments:
            raise PydanticCustomError("empty_message", "payload.normalized_text must not be empty without attachments")
        return self

"""Requests to a remote butler and its responses: `route.v1`, `route_response.v1`, and their JSON Schemas.

`agents/mcp.py` builds the request and passes in the tool's result, which is read as a `RouteResponse`; InvalidInput
says what is wrong. We send nothing that is not in the schema; unknown fields of a response are ignored.
`server/http/schemas.py` publishes the schemas. Next: `journey/turn.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal, Self
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, Field, StringConstraints, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from switchboard.core.envelope.strict import AsModel
from switchboard.core.published import published_schema
from switchboard.core.text.problems import after, path_of, wrong
from switchboard.domain.envelope import Attachment, ChatType, Passage, PolicyTier
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.ledger import FailureClass

ROUTE: Final = "route.v1"
ROUTE_RESPONSE: Final = "route_response.v1"
MAX_REASON: Final = 4000
"""Maximum characters of a reason, or of the message of an error."""

_SHOWN: Final = 200


class _Said(BaseModel, extra="forbid", frozen=True):
    """What we send; every field is described."""


class _Heard(BaseModel, extra="ignore", frozen=True):
    """What butlers send, which may have fields that we do not know."""


# route.v1 -----------------------------------------------------------------------------------------------------------


class RouteContext(_Said):
    """The message as accepted; the same for every butler that receives it, and in every attempt."""

    request_id: UUID
    received_at: AwareDatetime
    conversation: str
    source_channel: str
    source_endpoint_identity: str
    source_sender_identity: str
    source_thread_identity: str | None = None


class RouteSender(_Said):
    """Who wrote the message."""

    identity: str
    display_name: str | None = None
    chat_type: ChatType | None = None
    participants: Mapping[str, str] | None = None


class RouteFile(_Said):
    """The bytes of an attachment, by its position: anyone with the `url` can read them for an hour."""

    attachment: int
    filename: str | None = None
    media_type: str
    size_bytes: int
    url: str


class RouteInput(_Said):
    """The task. `prompt` was written by strangers: it is data. `context` has a `dead_letter` in a notice.

    `files` are those of the attachments that are stored. To `upload_url` files for the reply can be posted for an hour.
    `passages`: whose words the parts of the prompt are, in reading order, unless all of it is the sender's own.
    """

    prompt: str
    passages: tuple[Annotated[BaseModel, AsModel(Passage)], ...] | None = None
    context: JsonMapping | None = None
    attachments: tuple[Annotated[BaseModel, AsModel(Attachment)], ...] = ()
    files: tuple[RouteFile, ...] | None = None
    upload_url: str | None = None


class RouteTarget(_Said):
    """The receiver; one endpoint may serve several butlers."""

    butler: str
    system_id: str
    team_id: str
    tool: str


class SourceMetadata(_Said):
    """Where the message came from, in the platform's own terms."""

    channel: str
    provider: str
    identity: str
    external_event_id: str
    observed_at: AwareDatetime
    policy_tier: PolicyTier


class Subrequest(_Said):
    """Marks a part of a message that several butlers share; `segment` counts from 1."""

    segment: int
    fanout_mode: Literal["parallel"] = "parallel"


class RouteDocument(_Said):
    """`route.v1`: one delivery. Every attempt has the same `idempotency_key`: execute it once, answer every time."""

    schema_version: Literal["route.v1"] = ROUTE
    kind: Literal["delivery", "notice"] = "delivery"
    idempotency_key: UUID
    attempt: Annotated[int, Field(ge=1)]
    request_context: RouteContext
    input: RouteInput
    sender: RouteSender
    target: RouteTarget
    source_metadata: SourceMetadata
    subrequest: Subrequest | None = None
    trace_context: JsonMapping | None = None


# route_response.v1 --------------------------------------------------------------------------------------------------


class ResultFile(_Heard):
    """A file of the reply: the `blob` that the upload answered, or that of a file of the message."""

    blob: Annotated[str, StringConstraints(max_length=64)]
    filename: Annotated[str, StringConstraints(max_length=512)] = ""


class RouteResult(_Heard):
    """Exactly one of `reply` (a text), `no_reply` (true: handled) and `refuse` (the reason).

    `files` go with a reply.
    """

    reply: str | None = None
    no_reply: bool = False
    refuse: str | None = None
    reason: Annotated[str, StringConstraints(max_length=MAX_REASON)] = ""
    files: tuple[ResultFile, ...] = ()

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.reply is not None) + self.no_reply + (self.refuse is not None) != 1:
            raise PydanticCustomError("one_of", 'exactly one of "reply", "no_reply": true and "refuse" must be there')
        return self


class RouteError(_Heard, validate_by_name=True, validate_by_alias=True):
    """What went wrong. `retryable`: the same request may succeed later."""

    error_class: Annotated[FailureClass, Field(alias="class")]
    message: Annotated[str, StringConstraints(max_length=MAX_REASON)]
    retryable: bool = False


class AnsweredContext(_Heard):
    """The request that this answers."""

    request_id: UUID


class Timing(_Heard):
    """How long it took."""

    duration_ms: Annotated[float, Field(ge=0)]


class RouteResponse(_Heard):
    """`route_response.v1`: a `result` when the status is `ok`, an `error` when it is `error`."""

    schema_version: Literal["route_response.v1"]
    status: Literal["ok", "error"]
    result: RouteResult | None = None
    error: RouteError | None = None
    request_context: AnsweredContext | None = None
    timing: Timing | None = None

    @model_validator(mode="after")
    def _either(self) -> Self:
        wanted, other = (self.result, self.error) if self.status == "ok" else (self.error, self.result)
        if wanted is None or other is not None:
            needs = "a result and no error" if self.status == "ok" else "an error and no result"
            raise PydanticCustomError(
                "either", "status {status} needs {needs}", {"status": self.status, "needs": needs}
            )
        return self


# Reading and publishing -----------------------------------------------------------------------------------------------


def route_schema() -> JsonObject:
    """The published JSON Schema of `route.v1`."""
    return published_schema(ROUTE, RouteDocument.model_json_schema())


def response_schema() -> JsonObject:
    """The published JSON Schema of `route_response.v1`. It cannot express which parts exclude each other."""
    return published_schema(ROUTE_RESPONSE, RouteResponse.model_json_schema())


def read_response(structured: object, texts: Sequence[str]) -> RouteResponse:
    """The response in a tool's result: its structured content, `{"result": …}` around it, or a text that is JSON.

    Raises InvalidInput that quotes what was received instead.
    """
    said = next((one for one in _objects(structured, texts) if "schema_version" in one), None)
    if said is None:
        came = " ".join(texts)[:_SHOWN] or ("nothing" if structured is None else "an object without schema_version")
        raise InvalidInput(f"the answer is not a {ROUTE_RESPONSE}: {came}")
    try:
        return RouteResponse.model_validate(said)
    except ValidationError as error:
        raise InvalidInput(f"the {ROUTE_RESPONSE} is wrong: {_problems(error)}") from None


def _objects(structured: object, texts: Sequence[str]) -> Iterator[Mapping[str, object]]:
    for value in (structured, *map(_decode_json, texts)):
        inner = value.get("result") if isinstance(value, Mapping) and "schema_version" not in value else None
        for one in (value, _decode_json(inner) if isinstance(inner, str) else inner):
            if isinstance(one, Mapping):
                yield one


def _decode_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _problems(error: ValidationError) -> str:
    """The first few; the names in the path were chosen by a stranger."""
    found = error.errors(include_url=False)
    return "; ".join(after(path_of(one["loc"])[:_SHOWN], wrong(one)[:_SHOWN]) for one in found[:3])

"""What goes to a remote butler and what comes back: `route.v1`, `route_response.v1`; and how it is with him.

`agents/mcp.py` makes and reads them; their JSON Schemas are published by `core/remote.py`. We say nothing that is not
in the schema; of an answer, fields that we do not know are overlooked. Next: `core/remote.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from switchboard.domain.envelope import Attachment, ChatType, PolicyTier
from switchboard.domain.envelope_model import AsModel
from switchboard.domain.routing import Member, SystemId

ROUTE: Final = "route.v1"
ROUTE_RESPONSE: Final = "route_response.v1"
MAX_REASON: Final = 4000
"""Most characters of a reason, or of the message of an error."""

FailureClass = Literal["validation", "routing", "target_unavailable", "timeout", "overload", "internal"]
Liveness = Literal["unwatched", "active", "stale", "quarantined"]
"""`unwatched`: he never promised to say that he lives, so his silence says nothing."""


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Heard(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


# route.v1 -----------------------------------------------------------------------------------------------------------


class RouteContext(_Said):
    """The message as it was accepted; the same for every butler that gets it, and at every attempt."""

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


class RouteInput(_Said):
    """What is to be done. `prompt` was written by strangers: it is data. `context` has a `dead_letter` in a notice."""

    prompt: str
    context: Mapping[str, Any] | None = None
    attachments: tuple[Annotated[BaseModel, AsModel(Attachment)], ...] = ()


class RouteTarget(_Said):
    """For whom this is; one endpoint may serve several butlers."""

    butler: str
    system_id: str
    team_id: str
    tool: str


class SourceMetadata(_Said):
    """Where the message came from, in the platform's own words."""

    channel: str
    provider: str
    identity: str
    external_event_id: str
    observed_at: AwareDatetime
    policy_tier: PolicyTier


class Subrequest(_Said):
    """That this is one part of a message which several butlers share; `segment` counts from 1."""

    segment: int
    fanout_mode: Literal["parallel"] = "parallel"


class Route(_Said):
    """`route.v1`: one delivery. At every attempt it has the same `idempotency_key`; do it once, answer it always."""

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
    trace_context: Mapping[str, Any] | None = None


# route_response.v1 --------------------------------------------------------------------------------------------------


class RouteResult(_Heard):
    """Exactly one of `reply` (a text), `no_reply` (true: it is dealt with) and `refuse` (why it is not taken)."""

    reply: str | None = None
    no_reply: bool = False
    refuse: str | None = None
    reason: Annotated[str, StringConstraints(max_length=MAX_REASON)] = ""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.reply is not None) + self.no_reply + (self.refuse is not None) != 1:
            raise PydanticCustomError("one_of", 'exactly one of "reply", "no_reply": true and "refuse" must be there')
        return self


class RouteError(_Heard):
    """What went wrong. `retryable`: the same request may succeed later."""

    model_config = ConfigDict(extra="ignore", frozen=True, validate_by_name=True, validate_by_alias=True)

    error_class: Annotated[FailureClass, Field(alias="class")]
    message: Annotated[str, StringConstraints(max_length=MAX_REASON)]
    retryable: bool = False


class AnsweredContext(_Heard):
    """To which request this is the answer."""

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


# How it is with him -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Presence:
    """A remote butler as he is there. What he announced fills in what his team file leaves open.

    `why` says why he is quarantined, and `by` which operator did it: empty where silence did. `endpoint` was set at run
    time, and goes before the file's; `own_endpoint`: by himself, which counts only while the file lets him.
    """

    system_id: SystemId
    liveness: Liveness
    last_seen_at: datetime | None = None
    description: str = ""
    capabilities: tuple[str, ...] = ()
    endpoint: str | None = None
    own_endpoint: bool = False
    why: str = ""
    by: str = ""

    @property
    def away(self) -> bool:
        """Whether no model may choose him."""
        return self.liveness == "quarantined"


def self_description(member: Member, presence: Presence | None) -> tuple[str, tuple[str, ...]]:
    """Description and capabilities of a member: those of the file, and what it leaves open as he announced it."""
    if presence is None:
        return member.description, member.capabilities
    return member.description or presence.description, member.capabilities or presence.capabilities

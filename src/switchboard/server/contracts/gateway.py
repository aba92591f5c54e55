"""`gateway.v1`: the frames of the gateway, for reading requests and for the schema at `/schemas/gateway.v1.json`.

`server/ws/` reads the models and writes all else. A frame is one JSON object in one text message, and `type` tells its
kind. Next: `server/ws/connection.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from msgspec import Struct
from pydantic import Field, StringConstraints, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from switchboard.app.approvals.service import FittingPage
from switchboard.app.messages.chat import ChatEntry, Outcome, Speaker, WholeReply
from switchboard.app.messages.intake import ErrorDetail
from switchboard.app.messages.stream import Reset, TextDelta, ToolEnd, ToolUse, TurnStatus, Waiting
from switchboard.domain.envelope import MAX_TEXT
from switchboard.domain.json_values import JsonObject
from switchboard.domain.shown import ApprovalState
from switchboard.server.contracts.approvals import DecideApproval, ListApprovals
from switchboard.server.contracts.base import Body, Cursor, ErrorInfo, Id, Number, Word

PROTOCOL: Final = "gateway.v1"
SessionName = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=256, pattern=r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?$"
    ),
]
"""Without blanks around it: an envelope leaves these out, so that two sessions would become one."""


class SpeakerBody(Body):
    """For whom the connection of an operator speaks; by default the token for itself, on the channel `gateway`."""

    channel: Word
    endpoint: Word
    sender: Word


class ConnectParams(Body):
    """`connect`: the first frame, within ten seconds."""

    token: Word
    speaker: SpeakerBody | None = None


class SendParams(Body):
    """`chat.send`: a message; whatever is sent with the same `key` is the same message.

    `stream`: tell the answer while it is written. `model`: which of the models of the butler is asked; operators only.
    """

    session: SessionName
    text: Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT)]
    key: Word
    model: Word | None = None
    stream: bool = False


class ResumeParams(Body):
    """`chat.resume`: go on with a stream after the event `seq`, on any connection that speaks for the same."""

    stream: Word
    seq: Number


class AbortParams(Body):
    """`chat.abort`: end what runs in the session, or, whether it has begun or not, one message of it."""

    session: SessionName
    request_id: Id | None = None


class HistoryParams(Body):
    """`chat.history`: the messages of a session and the replies to them, newest first."""

    session: SessionName
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Cursor | None = None


class PingParams(Body):
    """`ping`: whether the server is there."""


METHODS: Final[Mapping[str, type[Body]]] = {
    "connect": ConnectParams,
    "chat.send": SendParams,
    "chat.resume": ResumeParams,
    "chat.abort": AbortParams,
    "chat.history": HistoryParams,
    "approvals.list": ListApprovals,
    "approvals.decide": DecideApproval,
    "ping": PingParams,
}
"""The methods, and their parameters."""


class RequestFrame(Body):
    """What a client sends. Requests are carried out in order; the answers of butlers come when they are there."""

    type: Literal["req"]
    id: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    method: Annotated[str, StringConstraints(max_length=64)]
    params: JsonObject = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to `connect`: as whom it is connected, and what holds for the connection; times in seconds.

    `speaker` null: a token with the role `approver` chats with nobody.
    """

    protocol: str
    principal: str
    speaker: Speaker | None
    frame_bytes: int
    heartbeat_s: float
    keep_s: float


@dataclass(frozen=True, slots=True)
class Sent:
    """The answer to `chat.send` with `stream`: the message is stored, and its events come under the id `stream`."""

    request_id: UUID
    duplicate: bool
    stream: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """Whether the stream continues. If not, it is not known here any more: ask for the history."""

    resumed: bool


@dataclass(frozen=True, slots=True)
class Aborted:
    """How many turns were told to end; they do within a second, with what they have."""

    stopped: int


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of a session, and the cursor of the next one."""

    messages: Sequence[ChatEntry]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Decided:
    """The answer to `approvals.decide`: how the approval stands."""

    approval_id: UUID
    state: ApprovalState


@dataclass(frozen=True, slots=True)
class Pong:
    """The time at the server."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Failed:
    """There is no answer. `code`: `LLM_ERROR` where a model is to blame, else the category of the dead letter."""

    request_id: UUID
    state: str
    code: str
    message: str


Payload = Welcome | Sent | Outcome | Resumed | Aborted | HistoryPage | FittingPage | Decided | Pong
EventName = Literal[
    "chat.delta",
    "chat.reset",
    "chat.tool",
    "chat.tool_end",
    "chat.status",
    "chat.waiting",
    "chat.reply",
    "chat.done",
    "chat.error",
]
Told = TextDelta | Reset | ToolUse | ToolEnd | TurnStatus | Waiting | WholeReply | Outcome | Failed
EVENTS: Final[Mapping[EventName, type[Told]]] = {
    "chat.delta": TextDelta,
    "chat.reset": Reset,
    "chat.tool": ToolUse,
    "chat.tool_end": ToolEnd,
    "chat.status": TurnStatus,
    "chat.waiting": Waiting,
    "chat.reply": WholeReply,
    "chat.done": Outcome,
    "chat.error": Failed,
}
"""What each event tells. The last two end a stream."""
RESULTS: Final[Mapping[str, tuple[type[Payload], ...]]] = {
    "connect": (Welcome,),
    "chat.send": (Outcome, Sent),
    "chat.resume": (Resumed,),
    "chat.abort": (Aborted,),
    "chat.history": (HistoryPage,),
    "approvals.list": (FittingPage,),
    "approvals.decide": (Decided,),
    "ping": (Pong,),
}
"""What each method answers; `chat.send` the second with `stream`."""


class ResultFrame(Struct, frozen=True):
    """The answer to the request with this id."""

    id: str
    payload: Payload
    ok: Literal[True] = True
    type: Literal["res"] = "res"


class ErrorFrame(Struct, frozen=True):
    """The request with this id was refused or has failed; null: the frame was no request."""

    id: str | None
    error: ErrorDetail
    ok: Literal[False] = False
    type: Literal["res"] = "res"


class EventFrame(Struct, frozen=True):
    """What has happened in a stream; `seq` counts its events from 1, without a gap."""

    event: EventName
    payload: Told
    stream: str
    seq: int
    type: Literal["event"] = "event"


Frame = ResultFrame | ErrorFrame | EventFrame


@cache
def gateway_schema() -> JsonObject:
    """The JSON Schema of every frame."""
    results = tuple(dict.fromkeys(chain(*RESULTS.values())))
    wanted: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        *((kind.__name__, "validation", TypeAdapter(kind)) for kind in METHODS.values()),
        *(
            (kind.__name__, "serialization", TypeAdapter(kind))
            for kind in dict.fromkeys((ErrorInfo, *results, *EVENTS.values()))
        ),
    ]
    refs, rest = TypeAdapter.json_schemas(wanted, ref_template=_REF)
    of = {name: schema for (name, _), schema in refs.items()}
    frames = {
        "Request": [
            _frame_schema("req", id=_ID, method={"const": name}, params=of[kind.__name__])
            for name, kind in METHODS.items()
        ],
        "Result": [
            _frame_schema("res", id=_ID, ok={"const": True}, payload={"anyOf": [of[kind.__name__] for kind in results]})
        ],
        "Error": [_frame_schema("res", id={"type": ["string", "null"]}, ok={"const": False}, error=of["ErrorInfo"])],
        "Event": [
            _frame_schema("event", event={"const": name}, payload=of[kind.__name__], **_PLACE)
            for name, kind in EVENTS.items()
        ],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"/schemas/{PROTOCOL}.json",
        "title": PROTOCOL,
        "oneOf": [{"$ref": _REF.format(model=name)} for name in frames],
        "$defs": {**{name: {"oneOf": kinds} for name, kinds in frames.items()}, **rest["$defs"]},
    }


_REF: Final = "#/$defs/{model}"
_ID: Final = {"type": "string", "minLength": 1, "maxLength": 128}
_PLACE: Final[JsonObject] = {"stream": {"type": "string"}, "seq": {"type": "integer", "minimum": 1}}


def _frame_schema(kind: str, **fields: JsonObject) -> JsonObject:
    """An object with all of these fields and no others; parameters may be left out where none are needed."""
    needed = [name for name in fields if name != "params"]
    properties = {"type": {"const": kind}, **fields}
    return {"type": "object", "properties": properties, "required": ["type", *needed], "additionalProperties": False}

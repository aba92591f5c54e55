"""The MCP tools of connectors, on the official SDK: ingest, ingest_batch, outbox_next, outbox_receipt, heartbeat.

`mcp.py` imports it late. In: arguments as JSON, the caller in the request's state; out: the shapes of the HTTP API.
Envelopes are typed loosely here and validated where HTTP's are, so that errors are the same: a result marked as an
error whose text is `{"error": {"code", "message", "field"?}}`. Next: `app/intake.py`, `app/desk.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import msgspec
import structlog
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from switchboard import __version__
from switchboard.app.access import SCOPES, Access, Action, Principal
from switchboard.app.desk import INTERVAL_S, Desk
from switchboard.app.intake import Intake, encode_batch, encode_envelope, refused
from switchboard.app.settings import Settings
from switchboard.domain.errors import Forbidden, InvalidInput, SwitchboardError
from switchboard.server.http.outbox import beat, pull_request, receipt
from switchboard.server.http.schemas import HeartbeatBody, OutboxNext, ReceiptBody

log = structlog.get_logger(__name__)

Context = ServerRequestContext[Any, Any]
Arguments = Mapping[str, Any]
Run = Callable[["Call"], Awaitable[object]]
_Body = TypeVar("_Body", bound=BaseModel)

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_ENVELOPE: Final = {"type": "object", "description": "ingest.v1; its schema is at /schemas/ingest.v1.json"}


class OutboxReceipt(ReceiptBody):
    """A receipt, and for which reply."""

    outbox_id: UUID


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool: who calls, with what, and whether he still waits for the answer."""

    caller: Principal
    arguments: Arguments
    context: Context


@dataclass(frozen=True, slots=True)
class _Offer:
    """A tool, the action that a token must be allowed, and what it does."""

    tool: Tool
    action: Action
    run: Run


class Tools:
    """The tools over the parts behind the doors."""

    def __init__(self, access: Access, intake: Intake, desk: Desk) -> None:
        self._access = access
        self._intake = intake
        self._desk = desk
        offers = (
            _Offer(_tool("ingest", "Submit one message.", _object(envelope=_ENVELOPE)), "ingest", self._ingest),
            _Offer(
                _tool(
                    "ingest_batch",
                    "Submit up to 200 messages: per envelope an answer or an error, in order. Look at every result.",
                    _object(envelopes={"type": "array", "minItems": 1, "maxItems": 200, "items": _ENVELOPE}),
                ),
                "ingest",
                self._ingest_batch,
            ),
            _Offer(_tool("outbox_next", "Fetch replies to send.", _schema(OutboxNext)), "outbox", self._outbox_next),
            _Offer(
                _tool("outbox_receipt", "Say what the platform said of a reply.", _schema(OutboxReceipt)),
                "outbox",
                self._outbox_receipt,
            ),
            _Offer(
                _tool("heartbeat", "Say that this connector lives.", _schema(HeartbeatBody)),
                "heartbeat",
                self._heartbeat,
            ),
        )
        self._offers = {offer.tool.name: offer for offer in offers}

    async def list(self, context: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        """Only what this token may call."""
        role = _caller(context).role
        return ListToolsResult(tools=[o.tool for o in self._offers.values() if role in SCOPES[o.action]])

    def input_schema(self, name: str) -> dict[str, Any] | None:
        """What the SDK holds a call's headers against; without it, it would list and encode all tools at every call."""
        offer = self._offers.get(name)
        return None if offer is None else offer.tool.input_schema

    async def call(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        """Run a tool. What goes wrong on purpose is a result marked as error; a defect is an error of the protocol."""
        offer = self._offers.get(params.name)
        caller = _caller(context)
        if offer is None:
            raise MCPError(code=INVALID_PARAMS, message=f"unknown tool: {params.name[:100]}")
        try:
            await self._access.check(caller, offer.action)
        except Forbidden:
            raise MCPError(code=INVALID_PARAMS, message=f"unknown tool: {params.name[:100]}") from None
        try:
            return _result(await offer.run(Call(caller, params.arguments or {}, context)))
        except SwitchboardError as error:
            return _result(refused(error), is_error=True)
        except Exception:  # the SDK would tell the caller what it says
            log.exception("unexpected error at the door", tool=params.name)
            raise MCPError(code=INTERNAL_ERROR, message="an error of the server; it is in its log") from None

    async def _ingest(self, call: Call) -> object:
        envelope = _only(call.arguments, "envelope", dict)
        return await self._intake.message(call.caller, encode_envelope(envelope))

    async def _ingest_batch(self, call: Call) -> object:
        envelopes = _only(call.arguments, "envelopes", list)
        return {"results": await self._intake.batch(call.caller, encode_batch(envelopes))}

    async def _outbox_next(self, call: Call) -> object:
        request = pull_request(_read(OutboxNext, call.arguments))
        return {"replies": await self._desk.fetch(call.caller, request, _state(call.context).gone)}

    async def _outbox_receipt(self, call: Call) -> object:
        body = _read(OutboxReceipt, call.arguments)
        return {"state": await self._desk.receive(call.caller, body.outbox_id, body.lease, receipt(body))}

    async def _heartbeat(self, call: Call) -> object:
        await self._desk.heartbeat(call.caller, beat(_read(HeartbeatBody, call.arguments)))
        return {"status": "ok", "interval_s": INTERVAL_S}


def session_manager(access: Access, intake: Intake, desk: Desk, settings: Settings) -> StreamableHTTPSessionManager:
    """The SDK's server over our tools: stateless, JSON answers. `run` it, then serve its `asgi_app`."""
    tools = Tools(access, intake, desk)
    server = Server(
        "switchboard",
        version=__version__,
        get_tool_input_schema=tools.input_schema,
        on_list_tools=tools.list,
        on_call_tool=tools.call,
    )
    return StreamableHTTPSessionManager(
        app=server,
        json_response=True,
        stateless=True,
        security_settings=_security(settings.host),
        max_request_body_size=settings.accept.batch_bytes,
    )


def _security(host: str) -> TransportSecuritySettings:
    """On loopback a browser may be tricked into calling us by a stranger's name; elsewhere our names are not known."""
    if host not in {"127.0.0.1", "localhost", "::1"}:
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[name for own in _LOOPBACK for name in (own, f"{own}:*")],
        allowed_origins=[f"http://{name}" for own in _LOOPBACK for name in (own, f"{own}:*")],
    )


def _caller(context: Context) -> Principal:
    return cast(Principal, _state(context).principal)


def _state(context: Context) -> Any:
    """What the gate and `mcp.py` put into the HTTP request's scope."""
    return cast(Request, context.request).state


def _tool(name: str, description: str, schema: dict[str, Any]) -> Tool:
    return Tool(name=name, description=description, input_schema=schema)


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _schema(body: type[BaseModel]) -> dict[str, Any]:
    return body.model_json_schema()


def _only(arguments: Arguments, name: str, kind: type) -> Any:
    """The one argument of a tool, whose inside is validated later."""
    if set(arguments) != {name} or not isinstance(arguments[name], kind):
        what = "an object" if kind is dict else "a list of objects"
        raise InvalidInput(f"the one argument is {name}: {what}", code="wrong_type", field=name)
    return arguments[name]


def _read(body: type[_Body], arguments: Arguments) -> _Body:
    try:
        return body.model_validate_json(msgspec.json.encode(arguments))
    except (ValidationError, UnicodeEncodeError) as error:
        first = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else None
        field = ".".join(str(part) for part in first["loc"])[:200] if first else None
        message = first["msg"] if first else "a lone surrogate is no text"
        raise InvalidInput(f"{field or 'the arguments'}: {message}", field=field or None) from None


def _result(value: object, *, is_error: bool = False) -> CallToolResult:
    data = msgspec.json.encode(value)
    return CallToolResult(
        content=[TextContent(text=data.decode())],
        structured_content=None if is_error else msgspec.json.decode(data),
        is_error=is_error,
    )

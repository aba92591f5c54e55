"""Bypasses the MCP SDK for the two calls that submit messages, with the SDK's checks and answers.

`mcp/server.py` tries it first, once the SDK is imported. In: a POST of `tools/call` for `ingest` or `ingest_batch`;
out: the very bytes that the SDK would answer (`test_fastpath_mcp.py` compares them), or None: then the SDK answers.
Every check is the SDK's own, made on the same request without its arguments, which the SDK would decode and copy
several times; refused or unusual calls go to the SDK. Envelopes stay the bytes that arrived, and so does the stored
original, with its size. Next: `app/messages/intake.py`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

import msgspec
import structlog
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http import check_accept_headers
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request, find_duplicated_routing_header
from mcp_types import INTERNAL_ERROR, SERVER_INFO_META_KEY, CallToolRequestParams, JSONRPCRequest
from mcp_types import methods as protocol
from msgspec.structs import astuple
from starlette.requests import Request
from starlette.responses import Response

from switchboard.app.access import Principal
from switchboard.app.messages.intake import INGEST, refusal_from_error
from switchboard.core.envelope.read import Items, items_of
from switchboard.domain.errors import SwitchboardError
from switchboard.domain.json_values import JsonMapping, JsonObject

log = structlog.get_logger(__name__)

OWN_ERROR: Final = "internal error; see the server's log"
_CALL: Final = "tools/call"

Run = Callable[[Principal, JsonMapping], Awaitable[object]]
"""Does what the tool does, for this caller with these arguments."""


class _Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Any other field makes it an unusual call."""

    name: str
    arguments: msgspec.Raw
    meta: JsonObject = msgspec.field(name="_meta")


class _Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    jsonrpc: str
    id: int | str
    method: str
    params: _Params


class _One(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    envelope: msgspec.Raw


_Many: Final = msgspec.defstruct("_Many", [("envelopes", Items)], frozen=True, forbid_unknown_fields=True)
_ARGUMENTS: Final[Mapping[str, type[msgspec.Struct]]] = {"ingest": _One, "ingest_batch": _Many}


class FastIngest:
    """Answers plain calls of `tools`, by name, as the SDK's `server` would."""

    def __init__(self, server: Server[Any], security: TransportSecuritySettings, tools: Mapping[str, Run]) -> None:
        self._security = TransportSecurityMiddleware(security)
        self._tools = tools
        self._stamp = _dump_json({SERVER_INFO_META_KEY: server.server_info_stamp})

    def may_take(self, request: Request) -> bool:
        """Whether the body, which may be large, is worth reading."""
        caller = cast(Principal, request.state.principal)
        return (
            caller.role in INGEST.roles
            and request.headers.get("mcp-method") == _CALL
            and request.headers.get("mcp-name") in self._tools
        )

    async def take(self, request: Request, body: bytes) -> Response | None:
        """The answer; None if only the SDK may give it, in which case nothing has been done yet."""
        call = await self._read_plain_call(request, body)
        if call is None:
            return None
        caller, arguments = cast(Principal, request.state.principal), _read_arguments(call.params)
        if arguments is None:
            return None
        head = b'{"jsonrpc":"2.0","id":%b,' % _dump_json(call.id)
        return Response(
            head + await self._render_outcome(call.params.name, caller, arguments), media_type="application/json"
        )

    async def _read_plain_call(self, request: Request, body: bytes) -> _Request | None:
        if await self._security.validate_request(request, is_post=True) is not None:
            return None
        if not check_accept_headers(request)[0] or find_duplicated_routing_header(request.headers.items()) is not None:
            return None
        try:
            str(body, "utf-8")  # msgspec does not check the characters of undecoded parts
            call = msgspec.json.decode(body, type=_Request)
            return call if _is_good_request(call, request.headers) else None
        except (ValueError, RecursionError, KeyError):  # from msgspec and pydantic; unknown method in this version
            return None

    async def _render_outcome(self, name: str, caller: Principal, arguments: JsonMapping) -> bytes:
        try:
            data, error = msgspec.json.encode(await self._tools[name](caller, arguments)), False
        except SwitchboardError as refusal:
            data, error = msgspec.json.encode(refusal_from_error(refusal)), True
        except Exception:  # the SDK would tell the caller its text
            log.exception("unexpected error of a tool", tool=name)
            return b'"error":%b}' % _dump_json({"code": INTERNAL_ERROR, "message": OWN_ERROR})
        structure = b"" if error else b',"structuredContent":%b' % _plain_json(data)
        return (
            b'"result":{"content":[{"text":%b,"type":"text"}],"isError":%b,"resultType":"complete"%b,"_meta":%b}}'
            % (_dump_json(data.decode()), b"true" if error else b"false", structure, self._stamp)
        )


def _read_arguments(params: _Params) -> JsonObject | None:
    """The envelopes as they arrived: only their validator decodes them."""
    try:
        [given] = astuple(msgspec.json.decode(params.arguments, type=_ARGUMENTS[params.name]))
    except (ValueError, RecursionError):
        return None
    if isinstance(given, Items):
        return {"envelopes": items_of(given)}
    envelope = bytes(given)
    return {"envelope": envelope} if envelope.startswith(b"{") else None


def _is_good_request(call: _Request, headers: Mapping[str, str]) -> bool:
    """The SDK's checks of a request, in its order. Of the arguments, it checks only that they are a dict."""
    params = {"name": call.params.name, "arguments": dict[str, Any](), "_meta": call.params.meta}
    body = {"jsonrpc": call.jsonrpc, "id": call.id, "method": call.method, "params": params}
    JSONRPCRequest.model_validate(body)
    route = classify_inbound_request(body, headers=dict(headers))
    if call.method != _CALL or not isinstance(route, InboundModernRoute):
        return False
    protocol.validate_client_request(_CALL, route.protocol_version, params)
    CallToolRequestParams.model_validate(params, by_name=False)
    return True


def _dump_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _plain_json(data: bytes) -> bytes:
    """JSON as the SDK writes it, with everything except printable ASCII escaped."""
    plain = data.isascii() and b"\\" not in data and b"\x7f" not in data
    return data if plain else _dump_json(msgspec.json.decode(data))

"""A short way for the two calls that bring messages in: the SDK's checks and its answer, without its detours.

`mcp.py` asks it first, once the SDK is there. In: a POST of `tools/call` for `ingest` or `ingest_batch`; out: the very
bytes that the SDK would answer (a test holds them against it), or None: then the SDK is asked, and answers. Every check
is the SDK's own, made on the same request without its arguments, which the SDK would decode and copy several times;
whatever is refused or unusual goes its long way. Envelopes stay the bytes they came as, and so does what is kept of
them, and their size. Next: `mcp_connectors.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec
import structlog
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http import check_accept_headers
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request, find_duplicated_routing_header
from mcp_types import INTERNAL_ERROR, SERVER_INFO_META_KEY, CallToolRequestParams, JSONRPCRequest
from mcp_types import methods as protocol
from starlette.requests import Request
from starlette.responses import Response

from switchboard.app.access import SCOPES, Principal
from switchboard.app.intake import refused
from switchboard.domain.errors import SwitchboardError
from switchboard.server.mcp_offer import Call, Offer

log = structlog.get_logger(__name__)

OWN_ERROR: Final = "an error of the server; it is in its log"
_CALL: Final = "tools/call"
_STRUCTURED: Final = b'false,"resultType":"complete","structuredContent":%b'


class _Params(msgspec.Struct, forbid_unknown_fields=True):
    """With any other field it is not a plain call."""

    name: str
    arguments: msgspec.Raw
    meta: dict[str, Any] = msgspec.field(name="_meta")


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    jsonrpc: str
    id: int | str
    method: str
    params: _Params


class _One(msgspec.Struct, forbid_unknown_fields=True):
    envelope: msgspec.Raw


class _Many(msgspec.Struct, forbid_unknown_fields=True):
    envelopes: list[msgspec.Raw]


_ARGUMENTS: Final[Mapping[str, type[_One | _Many]]] = {"ingest": _One, "ingest_batch": _Many}


class Shortcut:
    """Answers plain calls of `offers`; the SDK's `server` says whose name stands under the answer."""

    def __init__(self, server: Server[Any], security: TransportSecuritySettings, offers: Mapping[str, Offer]) -> None:
        self._security = TransportSecurityMiddleware(security)
        self._offers = offers
        self._stamp = _dumped({SERVER_INFO_META_KEY: server.server_info_stamp})

    def may_take(self, request: Request) -> bool:
        """Whether it is worth reading the body for."""
        return request.headers.get("mcp-method") == _CALL and request.headers.get("mcp-name") in self._offers

    async def take(self, request: Request, body: bytes) -> Response | None:
        """The answer; None where only the SDK may give it. Then nothing has been done yet."""
        call = await self._plain(request, body)
        if call is None:
            return None
        offer, caller = self._offers[call.params.name], cast(Principal, request.state.principal)
        if caller.role not in SCOPES[offer.action]:
            return None
        arguments = _arguments(call.params)
        if arguments is None:
            return None
        head = b'{"jsonrpc":"2.0","id":%b,' % _dumped(call.id)
        return Response(head + await self._outcome(offer, caller, arguments), media_type="application/json")

    async def _plain(self, request: Request, body: bytes) -> _Request | None:
        if await self._security.validate_request(request, is_post=True) is not None:
            return None
        if not check_accept_headers(request)[0] or find_duplicated_routing_header(request.headers.items()) is not None:
            return None
        try:
            str(body, "utf-8")  # of what it leaves as it is, msgspec does not look at the letters
            call = msgspec.json.decode(body, type=_Request)
            return call if _good(call, request.headers) else None
        except (ValueError, RecursionError, KeyError):  # of msgspec and pydantic; no such method in this version
            return None

    async def _outcome(self, offer: Offer, caller: Principal, arguments: Mapping[str, Any]) -> bytes:
        try:
            data, error = msgspec.json.encode(await offer.run(Call(caller, arguments, asyncio.Event()))), False
        except SwitchboardError as refusal:
            data, error = msgspec.json.encode(refused(refusal)), True
        except Exception:  # the SDK would tell the caller what it says
            log.exception("unexpected error at the door", tool=offer.tool.name)
            return b'"error":%b}' % _dumped({"code": INTERNAL_ERROR, "message": OWN_ERROR})
        structure = b"" if error else b',"structuredContent":%b' % _plain_json(data)
        return (
            b'"result":{"content":[{"text":%b,"type":"text"}],"isError":%b,"resultType":"complete"%b,"_meta":%b}}'
            % (
                _dumped(data.decode()),
                b"true" if error else b"false",
                structure,
                self._stamp,
            )
        )


def _arguments(params: _Params) -> dict[str, Any] | None:
    """The envelopes as they came: nobody decodes them but who validates them."""
    try:
        given = msgspec.json.decode(params.arguments, type=_ARGUMENTS[params.name])
    except (ValueError, RecursionError):
        return None
    if isinstance(given, _Many):
        return {"envelopes": given.envelopes}
    return {"envelope": given.envelope} if bytes(given.envelope).startswith(b"{") else None


def _good(call: _Request, headers: Mapping[str, str]) -> bool:
    """What the SDK holds a request against, in its order. Of the arguments it wants only that they are a dict."""
    params = {"name": call.params.name, "arguments": dict[str, Any](), "_meta": call.params.meta}
    body = {"jsonrpc": call.jsonrpc, "id": call.id, "method": call.method, "params": params}
    JSONRPCRequest.model_validate(body)
    route = classify_inbound_request(body, headers=dict(headers))
    if call.method != _CALL or not isinstance(route, InboundModernRoute):
        return False
    protocol.validate_client_request(_CALL, route.protocol_version, params)
    CallToolRequestParams.model_validate(params, by_name=False)
    return True


def _dumped(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _plain_json(data: bytes) -> bytes:
    """As the SDK would write it: it escapes what is not printable ASCII."""
    plain = data.isascii() and b"\\" not in data and b"\x7f" not in data
    return data if plain else _dumped(msgspec.json.decode(data))

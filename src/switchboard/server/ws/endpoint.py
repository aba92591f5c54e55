"""`/v1/ws`, where gateway clients connect: checks origin, first frame and token.

`app.py` mounts it behind the gate, which has checked the Host name. In: a WebSocket that is not accepted yet; out: a
`GatewayConnection`, or a close code and a reason. Next: `connection.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from switchboard.app.access import Principal
from switchboard.app.approvals.service import APPROVALS
from switchboard.app.messages.chat import CHAT, Speaker
from switchboard.app.settings import Settings
from switchboard.domain.errors import Forbidden, InvalidInput, SwitchboardError, Unauthenticated, Unavailable
from switchboard.server.connections import Connections
from switchboard.server.contracts.gateway import (
    PROTOCOL,
    ConnectParams,
    RequestFrame,
    ResultFrame,
    SpeakerBody,
    Welcome,
)
from switchboard.server.http.errors import error_response
from switchboard.server.services import Services
from switchboard.server.ws.connection import (
    CHAT_SERVICE,
    GatewayCaller,
    GatewayConnection,
    Gone,
    OutgoingFrames,
    read_params,
    read_request,
)
from switchboard.server.ws.protocol import FRAME_BYTES, HEARTBEAT_S
from switchboard.server.ws.streams import KEEP_S, ChatStreams

log = structlog.get_logger(__name__)

PATH: Final = "/v1/ws"
FIRST_S: Final = 10.0
"""Seconds within which the first frame must come."""
_PORTS: Final = {"http": 80, "https": 443}


class UpgradeRequired(SwitchboardError):
    """Requested without a WebSocket."""

    status = 426
    code = "upgrade_required"


async def without_upgrade(_: Request) -> Response:
    """The error for a client whose WebSocket has arrived as a plain request."""
    response = error_response(
        UpgradeRequired("this is a WebSocket: a proxy in between must pass the headers Upgrade and Connection on")
    )
    response.headers["upgrade"] = "websocket"
    return response


class GatewayEndpoint:
    """Accepts clients of the gateway."""

    def __init__(self, parts: Services) -> None:
        self._parts = parts
        self._streams = ChatStreams(time.monotonic)
        self._origins = allowed_origins(parts.switchboard.runtime.settings)

    async def serve(self, socket: WebSocket) -> None:
        """Serve one client from its handshake to its end."""
        try:
            self._check_origin(socket)
        except SwitchboardError as error:
            await socket.send_denial_response(error_response(error))
            return
        await socket.accept()
        out = OutgoingFrames(socket)
        try:
            caller = await self._read_first_frame(socket, out)
        except Gone:
            return
        if caller is not None:
            await GatewayConnection(self._parts, self._streams, socket, out, caller).run()

    def _check_origin(self, socket: WebSocket) -> None:
        """Raise Forbidden for a page of another site, InvalidInput for what may be a token in the URL."""
        if socket.scope["query_string"]:
            raise InvalidInput("the URL of the gateway has no query: the token goes into the first frame")
        origin = socket.headers.get("origin")
        if origin is not None and origin_of(origin) not in {*self._origins, *_own_origins(socket)}:
            raise Forbidden(
                f"pages of {origin[:200]!r} may not connect; if they should, add it to the setting gateway.origins",
                code="foreign_origin",
            )

    async def _read_first_frame(self, socket: WebSocket, out: OutgoingFrames) -> GatewayCaller | None:
        """The caller, by the token in the first frame; None if the connection was closed."""
        request: RequestFrame | None = None
        try:
            async with asyncio.timeout(FIRST_S):
                message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return None
            request = read_request(message.get("text") or "")
            caller = await self._identify_caller(request, socket)
            await out.send(ResultFrame(request.id, self._make_welcome(caller)))
        except TimeoutError:
            await out.close(1008, f"the first frame must come within {FIRST_S:.0f} seconds")
            return None
        except SwitchboardError as error:
            await out.fail(request.id if request else None, error)
            await out.close(1013 if isinstance(error, Unavailable) else 1008, error.code)
            return None
        return caller

    async def _identify_caller(self, request: RequestFrame, socket: WebSocket) -> GatewayCaller:
        if request.method != "connect":
            raise Unauthenticated("the first request must be connect, with a token")
        params = read_params(ConnectParams, request)
        authorization = f"Bearer {params.token}"
        principal = await self._parts.access.authenticate(authorization)
        speaker = await self._check_speaker(principal, params.speaker)
        state = socket.scope["state"]
        connections: Connections = state["connections"]
        connections.admit_connection(state["connection"], operator=principal.role == "operator")
        state["connection"].admit()
        return GatewayCaller(principal, speaker, authorization)

    async def _check_speaker(self, principal: Principal, given: SpeakerBody | None) -> Speaker | None:
        """For whom it speaks; None if it only handles approvals. Raises Forbidden, InvalidInput."""
        if given is None and principal.role in APPROVALS.roles - CHAT.roles:
            return None
        wanted = None if given is None else Speaker(given.channel, given.endpoint, given.sender)
        return await self._parts.of(CHAT_SERVICE).speaker(principal, wanted)

    def _make_welcome(self, caller: GatewayCaller) -> Welcome:
        return Welcome(PROTOCOL, caller.principal.name, caller.given, FRAME_BYTES, HEARTBEAT_S, KEEP_S)


def allowed_origins(settings: Settings) -> frozenset[str]:
    """The origins of pages that may connect, besides the server's own."""
    named = (*settings.gateway.origins, *((settings.public_url,) if settings.public_url else ()))
    return frozenset(origin for one in named if (origin := origin_of(one)))


def origin_of(url: str) -> str:
    """Scheme, name and port in a canonical form; "" for origins without one, such as `null`."""
    try:
        parts = urlsplit(url.strip().lower())
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.hostname}:{port}" if parts.scheme and parts.hostname else ""


def _own_origins(socket: WebSocket) -> Collection[str]:
    """The server's own origin, by the Host name; behind a proxy it may be https without our knowing."""
    host = socket.headers.get("host", "")
    return [origin for scheme in _PORTS if (origin := origin_of(f"{scheme}://{host}"))]

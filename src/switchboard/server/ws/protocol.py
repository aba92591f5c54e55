"""Adds limits that uvicorn's WebSocket lacks: on memory per client, and on the time for closing.

`serve.py` gives it to uvicorn, which makes one for each connection that is upgraded. In: the bytes of a client; out:
events for `endpoint.py`, or the end of the connection. Each counts among the `Connections`. Next: `endpoint.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame

from switchboard.domain.json_values import JsonObject
from switchboard.server.connections import Connections

FRAME_BYTES: Final = 1_048_576
"""Most bytes of a message of a client, which may come in pieces."""
STRANGER_BYTES: Final = 65_536
"""The same before it has shown a token."""
UNREAD_BYTES: Final = 1_048_576
"""A client that leaves so much unread is cut off."""
HEARTBEAT_S: Final = 20.0
"""Seconds after which a client is asked for a sign of life, and within which it must give one."""
_PIECES: Final = 1000
"""Of a message: empty ones would take memory without an end."""
_CLOSE_S: Final = 5.0
"""Seconds for the end of a connection: what a client does not read would keep it open."""
_BODY: Final = (
    b'{"error":{"code":"invalid_input","message":"the handshake of a WebSocket has no body, at most 128 headers, '
    b'and none of more than 8192 bytes"}}'
)
_ANSWER: Final = (
    b"HTTP/1.1 422 Unprocessable Entity\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class GatewaySocket(WebSocketsSansIOProtocol):
    """RFC 6455 with a limit on everything that a client can make us buffer."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: JsonObject,
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, "connection": self}, _loop)
        self._connections: Connections = app_state["connections"]
        self._pieces = 0
        self.conn.max_message_size = STRANGER_BYTES

    def admit(self) -> None:
        """The connection has shown a token."""
        self.conn.max_message_size = FRAME_BYTES

    def abort(self) -> None:
        """Close the connection at once, discarding unsent data."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, _Ending(cast(asyncio.Transport, transport), self.loop)))
        self._connections.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A malformed handshake is answered and closed; uvicorn would forget the connection, but keep it open."""
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(_ANSWER)
            self.transport.close()

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            return
        self._pieces += 1
        if self._pieces > _PIECES:
            self.conn.fail(1009, f"a message has at most {_PIECES} pieces")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    def handle_text(self, event: Frame) -> None:
        self._pieces = 1
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        self._pieces = 1
        super().handle_bytes(event)

    def handle_ping(self) -> None:
        """Answers to pings are not awaited, so a client that reads none would make us buffer them all."""
        super().handle_ping()
        if self.transport.get_write_buffer_size() > UNREAD_BYTES:
            self.abort()


class _Ending:
    """A transport that closes within a few seconds, whether or not the written data is read."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop

    def close(self) -> None:
        if not self._transport.is_closing():
            self._loop.call_later(_CLOSE_S, self._transport.abort)
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

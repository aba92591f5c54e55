"""Adds limits that uvicorn's WebSocket lacks: on memory and frames per client, and on the time for closing.

`serve.py` gives it to uvicorn, which makes one for each connection that is upgraded. In: the bytes of a client; out:
events for `endpoint.py`, or the end of the connection. Frames are parsed one by one, and while a text waits to be
handled, what follows it stays bytes, and nothing is read. Each counts among the `Connections`. Next: `endpoint.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import structlog
from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame

from switchboard.app.connectors.arriving import Seldom
from switchboard.domain.json_values import JsonObject
from switchboard.server.connections import Connections

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent

log = structlog.get_logger(__name__)

FRAME_BYTES: Final = 1_048_576
"""Most bytes of a message of a client, which may come in pieces."""
STRANGER_BYTES: Final = 65_536
"""The same before it has shown a token."""
UNREAD_BYTES: Final = 1_048_576
"""A client that leaves so much unread is cut off."""
HEARTBEAT_S: Final = 20.0
"""Seconds after which a client is asked for a sign of life, and within which it must give one."""
STRANGER_FRAMES: Final = 16
"""Most control frames before it has shown a token."""
_AT_ONCE: Final = 16
"""After so many frames a connection rests."""
REST_S: Final = 0.02
"""Seconds of that rest."""
_HEADER: Final = 14
"""Most bytes of a frame before its payload."""
SAY_MOST: Final = 30
"""Lines of the log in a minute about handshakes and frames that were refused."""
_SAY_WITHIN_S: Final = 60.0
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


_LIBRARY: Final = logging.getLogger("uvicorn.error.websockets")
_LIBRARY.setLevel(logging.CRITICAL)  # a traceback for each bad handshake would let strangers fill the log


class Refusals:
    """Says which handshakes and frames were refused, a few in a minute; of the others how many there were."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told = Seldom(SAY_MOST, _SAY_WITHIN_S)

    def add(self, why: str, client: tuple[str, int] | None) -> None:
        """One more was refused. `client`: address and port."""
        untold = self._told.turn(self._clock())
        if untold is not None:
            address = client and client[0]
            log.warning("a client of the gateway was refused", why=why[:200], client=address, untold=untold)


def payload_end(data: bytes, begin: int) -> int | None:
    """Where the frame ends that begins at `begin`, maybe beyond the data; None if too little of it is there."""
    if len(data) < begin + 2:
        return None
    length, masked = data[begin + 1] & 0x7F, bool(data[begin + 1] & 0x80)
    extended = {126: 2, 127: 8}.get(length, 0)
    ends = begin + 2 + extended
    if len(data) < ends:
        return None
    if extended:
        length = int.from_bytes(data[begin + 2 : ends])
    return ends + 4 * masked + length


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
        self._refusals: Refusals = app_state["refusals"]
        self._pieces = 0
        self._controls: int | None = 0
        """Control frames of a stranger; None: it has shown a token."""
        self._frames = 0
        """Frames since its last rest."""
        self._left = 0
        """Bytes of the last frame that have not come yet."""
        self._kept = b""
        """What was read and is not parsed yet: at most one read, as no other follows before it is."""
        self._shown = False
        """Whether it has sent a text, which for a stranger must be the one with its token."""
        self._resting: asyncio.TimerHandle | None = None
        self._rested_at = 0.0
        self.conn.max_message_size = STRANGER_BYTES
        self.conn.logger = _LIBRARY

    def admit(self) -> None:
        """The connection has shown a token."""
        self._controls = None
        self.conn.max_message_size = FRAME_BYTES
        self._take_kept()

    def abort(self) -> None:
        """Close the connection at once, discarding unsent data."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._ending = _Ending(cast(asyncio.Transport, transport), self.loop)
        super().connection_made(cast(asyncio.Transport, self._ending))
        self._connections.add_connection(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove_connection(self)
        self._kept = b""
        if self._resting is not None:
            self._resting.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A malformed handshake is answered and closed; uvicorn would forget the connection, but keep it open."""
        if self.handshake_initiated:
            self._kept += data
            self._take_kept()
            return
        super().data_received(data)  # the head of the request, which `heads.py` has read
        if self.conn.handshake_exc is not None:
            self._refusals.add(f"bad handshake: {self.conn.handshake_exc}", self.client)
            if not self.handshake_initiated:
                self.transport.write(_ANSWER)
                self.transport.close()

    async def receive(self) -> ASGIReceiveEvent:
        """The next event. Only now what follows it is parsed."""
        message = await super().receive()
        self._take_kept()
        return message

    async def send(self, message: ASGISendEvent) -> None:
        """Send an event. What came before the answer to the handshake is parsed now, or what follows our end."""
        await super().send(message)
        if self._kept:
            self._take_kept()

    def _take_kept(self) -> None:
        """Parse frames up to the next text, and no more than others can wait for. The rest is kept."""
        data, at, self._kept = self._kept, 0, b""
        while at < len(data) and self._may_parse():
            if not self._left and not self._begin_frame(data, at):
                break
            ends = min(at + self._left, len(data))
            self._left -= ends - at
            super().data_received(data[at:ends])
            at = ends
        self._kept = data[at:]
        self._ending.hold(reading=not (self._kept and self._is_held()) and not self.read_paused)

    def _may_parse(self) -> bool:
        return not (self._is_held() or self.transport.is_closing())

    def _is_held(self) -> bool:
        """Whether what was read must wait: for the handshake or a text before it, for the token, or for others."""
        if not self.handshake_complete:
            return True
        unknown = self._controls is not None and self._shown and not self.close_sent
        return self.read_paused or unknown or self._resting is not None

    def _begin_frame(self, data: bytes, at: int) -> bool:
        """Whether the next frame may be parsed. Many in a row are not: others have their turn in between."""
        ends = payload_end(data, at)
        if ends is None:
            return False
        if self._frames >= _AT_ONCE:
            rest = self._rested_at + REST_S - self.loop.time()
            if rest > 0:
                self._resting = self.loop.call_later(rest, self._end_rest)
                return False
            self._rested_at, self._frames = self.loop.time(), 0
        self._left, self._frames = ends - at, self._frames + 1
        return True

    def _end_rest(self) -> None:
        self._resting, self._frames, self._rested_at = None, 0, self.loop.time()
        self._take_kept()

    def handle_parser_exception(self) -> None:
        """A frame that is none ends the connection."""
        if self.conn.close_sent is not None:
            self._refusals.add(f"{self.conn.close_sent.code} {self.conn.close_sent.reason}", self.client)
        super().handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        """A message is complete."""
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_text(b"".join(self.frames)):
            self._fail(1007, "a text must be UTF-8")
            return
        self._shown = True
        super().send_receive_event_to_app()

    def _fail(self, code: int, reason: str) -> None:
        self.conn.fail(code, reason)
        self.handle_parser_exception()

    def _count_control(self) -> bool:
        """Whether the client may send one more ping or pong; a stranger that may not is cut off."""
        if self._controls is None or self.close_sent:
            return True
        self._controls += 1
        if self._controls <= STRANGER_FRAMES:
            return True
        self._fail(1008, f"at most {STRANGER_FRAMES} control frames may come before the token")
        return False

    def handle_pong(self, event: Frame) -> None:
        if self._count_control():
            super().handle_pong(event)

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            return
        self._pieces += 1
        if self._pieces > _PIECES:
            self._fail(1009, f"a message has at most {_PIECES} pieces")
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
        if not self._count_control():
            return
        super().handle_ping()
        if self.transport.get_write_buffer_size() > UNREAD_BYTES:
            self.abort()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Ending:
    """A transport that closes within a few seconds, whether or not the written data is read."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = False

    def hold(self, *, reading: bool) -> None:
        """Read, or not, whatever uvicorn asks for meanwhile."""
        self._held = not reading
        if self._transport.is_closing():
            return
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._held:
            self._transport.resume_reading()

    def close(self) -> None:
        if not self._transport.is_closing():
            self._loop.call_later(_CLOSE_S, self._transport.abort)
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

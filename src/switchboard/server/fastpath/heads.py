"""Bypasses uvicorn: reads few requests ahead, cuts off those that never end, and counts connections.

`serve.py` gives it to uvicorn in place of uvicorn's own protocol on httptools, which buffers everything that arrives,
at a quadratic cost: a few megabytes block the server, and hundreds exhaust the memory. It also parses all that it has
read, and thousands of requests fit one read. In: bytes of a connection; out: 431 or the end of the connection, else the
bytes that uvicorn would send (`test_fastpath.py` compares them), except where it would lose a body or a connection: see
`_declined` and `handle_websocket_upgrade`. Next: `pieces.py` for how it is cut, `one_write.py` for what goes out,
`turns.py` for who comes next, `connections.py` for how many there are, `http/gate.py` for what has come in.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from switchboard.domain.json_values import JsonObject
from switchboard.server.connections import Connections
from switchboard.server.fastpath.one_write import OneWrite
from switchboard.server.fastpath.pieces import piece_end
from switchboard.server.paths import HOOKS
from switchboard.server.turns import StrangerKind, StrangerRequest, StrangersTurns

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

MAX_HEAD: Final = 65_536
"""Most bytes in a row without a complete head or a piece of a body, give or take one read."""
MOST_FIELDS: Final = 256
"""Most fields in a head."""
MOST_AHEAD: Final = 8
"""Most requests of a connection that are parsed and not answered yet."""
HEAD_S: Final = 30.0
"""Seconds within which the head of a request must be complete, from its first byte or from the connection."""
BODY_S: Final = 10.0
"""Seconds in which at least `BODY_BYTES` of a body must arrive, while we are ready to take them."""
BODY_BYTES: Final = 10_240

_PIECES: Final = 64
"""After so many pieces others come in between."""
_BYTES: Final = 256
"""So many bytes in chunks count as a piece."""

_LOGGER: Final = logging.getLogger("uvicorn.error.http")
_LOGGER.setLevel(logging.ERROR)  # a line for each input that is not HTTP would let strangers fill the log

_BODY: Final = (
    b'{"error":{"code":"head_too_large","message":"the head of the request has more than 65536 bytes, '
    b'or more than 256 fields"}}'
)
_ANSWER: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class _Flow(FlowControl):
    """uvicorn's, but nothing more is read while something that was read is not parsed yet."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self.held = False

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


class BoundedHttp(HttpToolsProtocol):
    """HTTP/1.1 with a limit on the buffered part of a request that has not been handled yet, and on such requests."""

    flow: _Flow

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: JsonObject,
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger = _LOGGER
        self._connections: Connections = app_state["connections"]
        self._turns: StrangersTurns = app_state["turns"]
        self._kept = b""
        """What was read and is not parsed yet: at most one read, as no other follows before it is."""
        self._going_on = self._upgraded = self._refused = self._had_turn = False
        self._gateway: asyncio.Protocol | None = None
        """Whose the connection is after an upgrade."""
        self._unread = 0
        self._in_head = self._in_body = False
        self._body_left: int | None = 0
        """Bytes of the body that have not come yet; None: it is in chunks."""
        self._body_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._declined: int | None = None
        """Where a request continues that offers another protocol than WebSocket, in the data that came last."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        single = OneWrite(cast(asyncio.Transport, transport), self.loop)
        super().connection_made(cast(asyncio.Transport, single))
        self.flow = _Flow(self.transport)
        self._start_timer()
        self._connections.add_connection(self)

    def abort(self) -> None:
        """Close the connection at once, discarding unsent data."""
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._connections.remove_connection(self)
        self._turns.leave(self)
        self._kept = b""
        super().connection_lost(exc)
        self.pipeline.clear()  # whoever sent these requests has gone

    def handle_websocket_upgrade(self) -> None:
        """The rest of the connection belongs to the gateway, which counts its own connections.

        Not after an unanswered request: nobody would notice its client disconnecting, and its answer would be among the
        frames.
        """
        if self._is_answering():
            self.abort()
            return
        self._stop_timer()
        self._upgraded = True
        self._in_head = self._in_body = False
        self._unread = 0
        self._take_turn(self._upgrade, StrangerRequest())

    def _upgrade(self) -> None:
        """The new protocol gets what came behind the handshake, although clients should have waited."""
        if self.transport.is_closing():
            return
        self._connections.remove_connection(self)
        super().handle_websocket_upgrade()
        self._gateway = cast(asyncio.Protocol, self.transport.get_protocol())
        rest, self._kept = self._kept, b""
        self._pass_on(rest)

    def _pass_on(self, rest: bytes) -> None:
        if self._gateway is None:
            self._kept = rest
        elif rest and not self.transport.is_closing():
            self._gateway.data_received(rest)

    def data_received(self, data: bytes) -> None:
        if self._kept or self._upgraded:
            self._kept += data  # read before a pause took effect, or before an upgrade
        else:
            self._take(data)
        if self._upgraded and len(self._kept) > MAX_HEAD:
            self.abort()

    def _take(self, data: bytes) -> None:
        """Parse as many pieces as may be now. The rest is kept, and meanwhile nothing is read."""
        at = spent = 0
        while at < len(data) and not self.transport.is_closing():
            if self._upgraded:
                self._pass_on(data[at:])
                break
            if self._is_full() or spent >= _PIECES:
                self._keep(data[at:])
                break
            end = piece_end(data, at, self._body_left)
            spent += 1 if self._body_left is not None else 1 + (end - at) // _BYTES
            self._parse(data[at:end])
            at = end
        if self._kept or self.pipeline:
            self._turns.put_behind(self)
        if self._unread > MAX_HEAD:
            self._refuse()
        elif (self._in_head or self._in_body) and self._timer is None:
            self._start_timer()

    def _is_full(self) -> bool:
        """Whether enough requests wait for their answers; one that is not complete may continue in any case.

        While a stranger waits for its turn, nothing else of it is parsed: it may have gone.
        """
        if self._in_head or self._in_body:
            return False
        return len(self.pipeline) + self._is_answering() >= MOST_AHEAD or self in self._turns

    def _keep(self, data: bytes) -> None:
        self._kept = data
        self.flow.held = True
        self.flow.pause_reading()
        if not self._is_full():
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._going_on:
            self._going_on = True
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._going_on = False
        data, self._kept = self._kept, b""
        self.flow.held = False
        if data:
            self._unset_keepalive_if_required()
            self._take(data)
        if not self._kept and len(self.cycle.body if self._is_answering() else b"") <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()

    def _parse(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        while self._declined is not None:
            data, self._declined = self._without_offer(data[self._declined :]), None
            super().data_received(data)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        begin = partial(super()._start_asgi_task, cycle, app)
        if self._connections.is_stranger(self, cycle.scope["headers"]):
            eager, later = bool(self._kept or self.pipeline), self._had_turn
            self._had_turn = True
            self._take_turn(begin, StrangerRequest(_kind_of(cycle), later, eager))
        else:
            begin()

    def _take_turn(self, begin: Callable[[], object], asked: StrangerRequest) -> None:
        self._connections.waits(self)
        self._turns.take(self, partial(self._have_turn, begin), asked)

    def _have_turn(self, begin: Callable[[], object]) -> None:
        self._connections.has_turn(self)
        begin()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._kept:
            self._go_on_soon()

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()
        self.scope["state"]["connection"] = self

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body, self._unread, self._body_bytes = False, True, 0, 0
        self._stop_timer()
        if self._offers_other():
            return
        if len(self.headers) > MOST_FIELDS:
            self._in_head = self._refused = True
            self._refuse()
            return
        self._body_left = _announced_length(self.headers)
        super().on_headers_complete()
        self.scope["headers"] = self.headers.copy()  # fields after a chunked body have passed all checks of proxies

    def on_body(self, body: bytes) -> None:
        if self._refused:
            return
        self._unread = 0
        self._body_bytes += len(body)
        if self._body_left is not None:
            self._body_left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread, self._in_body, self._body_left = 0, False, 0
        self._stop_timer()
        if not (self._refused or self._offers_other()):
            super().on_message_complete()

    def _offers_other(self) -> bool:
        """HTTP/2, which some clients offer with each first request. The parser takes what follows for that protocol."""
        return self.parser.should_upgrade() and not self._should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _unsupported_upgrade_warning(self) -> None:
        """uvicorn calls it instead of reading the body, while it handles the parser's exception."""
        error = sys.exception()
        if self._offers_other() and isinstance(error, httptools.HttpParserUpgrade):
            self._declined = error.args[0]

    def _without_offer(self, rest: bytes) -> bytes:
        """The same request without its offer, and the data after its head."""
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/", self.parser.get_http_version().encode()]
        for name, value in self.headers:
            if name != b"upgrade":
                head += [b"\r\n", name, b": ", value]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return b"".join((*head, b"\r\n\r\n", rest))

    def _start_timer(self) -> None:
        after, then = (BODY_S, self._check_body) if self._in_body else (HEAD_S, self.transport.close)
        self._timer = self.loop.call_later(after, then)

    def _check_body(self) -> None:
        """A body that is awaited but does not arrive would occupy a place for as long as its sender likes."""
        if self._body_bytes < BODY_BYTES and not self.flow.read_paused:
            self.abort()
        else:
            self._body_bytes = 0
            self._start_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self) -> None:
        if self.transport.is_closing():
            return
        if self._in_head and not self._is_answering():
            self.transport.write(_ANSWER)
        self.transport.close()

    def _is_answering(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete


def _kind_of(cycle: RequestResponseCycle) -> StrangerKind:
    if cycle.scope["path"].startswith(HOOKS):
        return "webhook"
    return "token" if any(name == b"authorization" for name, _ in cycle.scope["headers"]) else "other"


def _announced_length(headers: list[tuple[bytes, bytes]]) -> int | None:
    """The bytes of a body by its head; None: it comes in chunks. The parser has refused what contradicts itself."""
    length = 0
    for name, value in headers:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length" and value.strip().isdigit():
            length = int(value)
    return length

"""A server on loopback for tests: an ASGI application served inside the test's own event loop.

Called by `scripted_llm/server.py` and `platform_server.py`. It listens only on 127.0.0.1, can be closed and opened
again at the same URL, and tells the application the connection of each request, so that it can break it on purpose.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, Self

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from switchboard.domain.errors import ConfigurationError

_LOOPBACK: Final = "127.0.0.1"
logging.getLogger("uvicorn.error").setLevel(logging.INFO)  # below that it logs frames, and clients' tokens are in them


class Connection(Protocol):
    """The type of `scope["state"]["connection"][0]`: a protocol of uvicorn with its transport."""

    transport: asyncio.Transport


class Loopback:
    """Base class of servers for tests, which are context managers; `app` is the application they serve.

    `sockets`: it also accepts web sockets, whose pings are answered, and which it never pings itself.
    """

    def __init__(self, app: ASGIApp, *, port: int = 0, sockets: bool = False) -> None:
        self._config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="websockets-sansio" if sockets else "none",
            ws_ping_interval=None,
            ws_per_message_deflate=False,
        )
        self._state = ServerState()
        self._port = port
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._config.load()
        await self._listen_at_port()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return f"http://{_LOOPBACK}:{self._port}"

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Within this block connections are refused; open ones are reset. Afterwards the same URL answers again."""
        await self._close()
        try:
            with bound(self._port):  # bound but not listening: connections are refused, and the port stays ours
                yield
        finally:
            await self._listen_at_port()

    async def _listen_at_port(self) -> None:
        listener = bound(self._port)
        self._port = listener.getsockname()[1]
        self._server = await asyncio.get_running_loop().create_server(self._make_protocol, sock=listener)

    def _make_protocol(self) -> asyncio.Protocol:
        known: list[asyncio.Protocol] = []
        make: Any = self._config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self._config, server_state=self._state, app_state={"connection": known}
        )
        known.append(protocol)
        return protocol

    async def _close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None


def bound(port: int) -> socket.socket:
    """A socket bound to loopback. Raises ConfigurationError if the port is taken."""
    # The protocol is named: otherwise asyncio leaves Nagle's algorithm on, which delays answers in two parts by 40 ms.
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((_LOOPBACK, port))
    except OSError as error:
        made.close()
        raise ConfigurationError(
            f"cannot listen on {_LOOPBACK}:{port}: {error.strerror}; choose another port"
        ) from error
    return made

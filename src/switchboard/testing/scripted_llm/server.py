"""A scripted LLM on loopback: as a context manager for tests, and for `__main__.py` as a process.

In: a script (see `script.py`); out: a URL that speaks four dialects, and a record of all that was asked. It listens on
127.0.0.1 and asks nobody. Next: `endpoints.py`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

import uvicorn
from uvicorn.server import ServerState

from switchboard.domain.errors import ConfigurationError
from switchboard.testing.scripted_llm.endpoints import LocalServer, Manners, Sleep, application
from switchboard.testing.scripted_llm.record import Exchange, Record
from switchboard.testing.scripted_llm.request import Request
from switchboard.testing.scripted_llm.script import Player, Scripted

_LOOPBACK: Final = "127.0.0.1"


class ScriptedLlm:
    """`async with ScriptedLlm(script) as llm:`; point a client at `llm.url` (OpenAI's: at `f"{llm.url}/v1"`).

    `script` is a `Script`, a list of replies, or a function from a request to a reply. `sleep` makes the pauses of
    `Slow`. `strict`: what a strict provider rejects is rejected (see `strict.py`). `context`: of a longer request the
    head is lost, in silence, beyond so many tokens. `server`: the local server that it is taken for, which tells its
    `context` where this one does.
    """

    def __init__(
        self,
        script: Scripted,
        *,
        port: int = 0,
        sleep: Sleep = asyncio.sleep,
        strict: bool = False,
        context: int | None = None,
        server: LocalServer | None = None,
    ) -> None:
        self._player = Player(script)
        self._record = Record()
        app = application(self._record, self._player, Manners(sleep, strict, context, server))
        self._config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none")
        self._state = ServerState()
        self._port = port
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._config.load()
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return f"http://{_LOOPBACK}:{self._port}"

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Every request with its reply and its end, in the order in which they came."""
        return tuple(self._record.exchanges[n] for n in sorted(self._record.exchanges))

    @property
    def requests(self) -> tuple[Request, ...]:
        """Every request to the model."""
        return tuple(exchange.request for exchange in self.exchanges)

    @property
    def strays(self) -> tuple[str, ...]:
        """What else was asked for: paths that are not there, bodies that are not understood."""
        return tuple(self._record.strays)

    @property
    def left(self) -> int:
        """How many replies of the list have not been asked for."""
        return self._player.left

    def release(self, gate: str) -> None:
        """Release the replies that wait at this gate, and those that will reach it."""
        self._record.gates[gate].opened.set()

    async def waiting(self, gate: str) -> None:
        """Return when a reply has come to this gate."""
        await self._record.gates[gate].reached.wait()

    async def settled(self) -> None:
        """Return when no request is being answered."""
        await self._record.settled()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Inside of it connections are refused; open ones are reset. After it the same URL answers again."""
        await self._close()
        try:
            with _bound(self._port):  # bound but not listening: refused, and nobody else can take the port
                yield
        finally:
            await self._listen()

    async def _listen(self) -> None:
        listener = _bound(self._port)
        self._port = listener.getsockname()[1]
        self._server = await asyncio.get_running_loop().create_server(self._connection, sock=listener)

    def _connection(self) -> asyncio.Protocol:
        """uvicorn's protocol, which also tells the application on which connection a request came."""
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


def _bound(port: int) -> socket.socket:
    # With its protocol named: else asyncio leaves Nagle's algorithm on, and answers in two parts wait for 40 ms.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((_LOOPBACK, port))
    except OSError as error:
        bound.close()
        raise ConfigurationError(
            f"cannot listen on {_LOOPBACK}:{port}: {error.strerror}; choose another port"
        ) from error
    return bound

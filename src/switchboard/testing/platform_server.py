"""What the strict servers of platforms share: faults on purpose, waiting for what happens, and a clock to be moved.

Called by `bot_api/`, `slack/`, `discord/` and `whatsapp/`. A server is served by `loopback.py`; its endpoints may break
their connection instead of answering.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from switchboard.tasks import cancel_tasks, wait_at_most
from switchboard.testing.loopback import Connection, Loopback

_F = TypeVar("_F")


class Page(Struct, frozen=True):
    """A page instead of the API's answer, as proxies send it: `Page(502)`, or `Page(200)` that looks like a success."""

    code: int
    text: str = "<html><body>Bad Gateway</body></html>"


class Hang(Struct, frozen=True):
    """No answer until the client gives up; `taken`: the platform has carried out the request."""

    taken: bool = False


class Cut(Struct, frozen=True):
    """The connection is reset once the request has been read; `taken`: the platform has carried out the request."""

    taken: bool = True


class Upload(Struct, frozen=True):
    """A file that a client sent with a request."""

    filename: str
    media_type: str
    data: bytes


class BrokenOff(Exception):
    """Raised by an endpoint that breaks its connection instead of answering."""


class MovableClock:
    """Seconds since 1970. They pass as those of the event loop, and `move` adds to them."""

    def __init__(self, start: float | None = None) -> None:
        self._start = time.time() if start is None else start
        self._zero: float | None = None
        self._added = 0.0

    def __call__(self) -> float:
        """The present time."""
        try:
            running = asyncio.get_running_loop().time()
        except RuntimeError:  # before the first loop no time passes
            return self._start + self._added
        if self._zero is None:
            self._zero = running
        return self._start + running - self._zero + self._added

    def move(self, seconds: float) -> None:
        """Let time pass at once."""
        self._added += seconds


class PlatformServer(Loopback, Generic[_F], ABC):
    """Base class of the servers; `_F` are the faults that it can be told to make."""

    def __init__(self, *routes: BaseRoute, port: int = 0, sockets: bool = False) -> None:
        super().__init__(Starlette(routes=routes), port=port, sockets=sockets)
        self.news = asyncio.Event()
        """Set when anything happens, and then replaced by a new one."""
        self._faults: defaultdict[str, deque[_F]] = defaultdict(deque)

    @property
    @abstractmethod
    def texts(self) -> list[str]:
        """The texts of what the client has sent, in order."""

    def spoil(self, method: str, *faults: _F) -> None:
        """Set faults for the next calls of a method, one each; its name is compared without case."""
        self._faults[method.lower()].extend(faults)

    def next_fault(self, method: str) -> _F | None:
        """The fault of this call, which is thereby used up."""
        faults = self._faults[method.lower()]
        return faults.popleft() if faults else None

    def wake_waiting(self) -> None:
        """Wake all who wait for something to happen."""
        self.news.set()
        self.news = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; checked whenever people or clients have done something."""
        while not condition():
            await self.news.wait()


class SendingServer(PlatformServer[_F]):
    """One that sends events by itself. `clock`: the present time of the platform."""

    def __init__(self, *routes: BaseRoute, clock: MovableClock, port: int = 0, sockets: bool = False) -> None:
        super().__init__(*routes, port=port, sockets=sockets)
        self.clock = clock
        self._sender: asyncio.Task[None] | None = None

    def skip(self, seconds: float) -> None:
        """Let time pass at once, with what is due in it."""
        self.clock.move(seconds)
        self.wake_waiting()

    @abstractmethod
    async def _send_events(self) -> None:
        """Send what is due, without end."""

    async def _wait_for_news(self, news: asyncio.Event, due: float | None) -> None:
        """Wait until something happens, but not longer than until `due`."""
        if due is None:
            await news.wait()
        else:
            await wait_at_most(max(0.0, due - self.clock()), news)

    async def _listen_at_port(self) -> None:
        await super()._listen_at_port()
        self._sender = asyncio.create_task(self._send_events())

    async def _close(self) -> None:
        if self._sender is not None:
            await cancel_tasks(self._sender)
            self._sender = None
        await super()._close()


class SocketServer(SendingServer[_F]):
    """One that sends them over web sockets."""

    def __init__(self, *routes: BaseRoute, clock: MovableClock, port: int = 0) -> None:
        super().__init__(*routes, clock=clock, port=port, sockets=True)


class Endpoint:
    """An ASGI application, since only such a one can break its connection."""

    def __init__(self, answer: Callable[[Request], Awaitable[Response]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(Request(scope, receive))
        except (BrokenOff, ClientDisconnect):
            connection_of(scope).transport.abort()
            return
        await response(scope, receive, send)


def connection_of(scope: Scope) -> Connection:
    """The connection of a request or a web socket."""
    found: Connection = scope["state"]["connection"][0]
    return found


async def wait_gone(request: Request) -> None:
    """Return when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

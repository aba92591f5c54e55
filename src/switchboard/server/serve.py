"""Start the server: bind, serve until told to stop, end within three seconds.

`cli/processes/working.py` (and tests) call `run_server`. In: a `Switchboard`, where to listen, an event that ends it;
out: the address, told once requests are answered. Next: `entrance.py`, which accepts connections before that.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog
import uvicorn

from switchboard.app.access import ensure_operator_token
from switchboard.app.runtime import Switchboard
from switchboard.server.entrance import Entrance
from switchboard.server.fastpath.heads import BoundedHttp
from switchboard.server.listener import BACKLOG
from switchboard.server.ws.protocol import HEARTBEAT_S, GatewaySocket
from switchboard.tasks import cancel_tasks

log = structlog.get_logger(__name__)

_GRACE_S: Final = 2


class _Server(uvicorn.Server):
    """Signals belong to our caller; uvicorn would handle them itself."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def run_server(
    switchboard: Switchboard, listener: socket.socket, stop: asyncio.Event, started: Callable[[str, int], None]
) -> None:
    """Serve HTTP and MCP on `listener` until `stop` is set; `started(host, port)` is called when requests are answered.

    Long polls end at once with the results so far, other requests have two seconds.
    """
    await ensure_operator_token(switchboard.runtime.database, switchboard.runtime.settings.data_dir)
    host, port = listener.getsockname()[:2]  # it is closed as soon as the server is told to end
    with listener:
        entrance = Entrance(switchboard)
        config = uvicorn.Config(
            entrance,
            interface="asgi3",
            http=BoundedHttp,
            ws=GatewaySocket,
            ws_ping_interval=HEARTBEAT_S,
            ws_ping_timeout=HEARTBEAT_S,
            ws_per_message_deflate=False,  # it costs memory per client, and compressed sizes may reveal secrets
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_S,
            backlog=BACKLOG,
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        stopping = asyncio.create_task(_stop_when(stop, server, entrance.services.polls.stop))
        opening = asyncio.create_task(_open_api(entrance, server, serving))
        try:
            if await _is_first(opening, serving):
                await opening
                if not stop.is_set():
                    started(host, port)
            await serving
        finally:
            server.should_exit = True
            await cancel_tasks(stopping, opening)
            await asyncio.wait([serving])


async def _stop_when(stop: asyncio.Event, server: uvicorn.Server, end_polls: Callable[[], None]) -> None:
    await stop.wait()
    end_polls()
    server.should_exit = True


async def _open_api(entrance: Entrance, server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    """Open the API behind a server that accepts connections already."""
    # uvicorn has no event for it, and itself checks every 0.1 s.
    while not server.started and not serving.done():
        await asyncio.sleep(0.001)
    await entrance.open_api()


async def _is_first(one: asyncio.Task[None], other: asyncio.Task[None]) -> bool:
    await asyncio.wait([one, other], return_when=asyncio.FIRST_COMPLETED)
    return one.done()

"""The sockets that our servers listen on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from switchboard.app.models.classifier import mcp_url
from switchboard.app.settings import Settings
from switchboard.cli.processes import running
from switchboard.server.listener import bind
from switchboard.testing import loopback


@pytest.mark.parametrize("bound", [lambda: bind("127.0.0.1", 0), lambda: loopback.bound(0)], ids=["server", "tests"])
async def test_an_answer_in_two_parts_waits_for_nobody(bound: Callable[[], socket.socket]) -> None:
    """With Nagle's algorithm the second part would wait until the first is acknowledged: 40 ms with most clients."""
    listener = bound()
    listener.setblocking(False)
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def came(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        accepted.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(came, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        assert await accepted
        writer.close()
        await writer.wait_closed()


def test_command_lines_of_models_are_told_the_port_that_was_taken() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert mcp_url(running._at(Settings(port=0), listener)) == f"http://127.0.0.1:{port}/mcp"
        assert running._at(Settings(port=99), listener).port == 99, "what was asked for is kept"
        assert running._at(Settings(port=0), None).port == 0

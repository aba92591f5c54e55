"""`server/fastpath/one_write.py` over real connections: the same bytes in the same order, in the fewest writes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from switchboard.server.fastpath.one_write import OneWrite


class Counted:
    """A transport that notes what is written through it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.writes: list[bytes] = []
        self.is_closing: Callable[[], bool] = transport.is_closing
        self.close: Callable[[], None] = transport.close
        self.get_extra_info = transport.get_extra_info

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self._transport.write(data)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[OneWrite, Counted, asyncio.StreamReader]]:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    reader, writer = await asyncio.open_connection(sock=theirs)
    counted = Counted(transport)
    try:
        yield OneWrite(cast(asyncio.Transport, counted), loop), counted, reader
    finally:
        writer.close()
        transport.abort()


async def test_head_and_body_leave_together() -> None:
    async with connected() as (single, counted, reader):
        single.write(b"head")
        single.write(b"body")
        assert await reader.readexactly(8) == b"headbody"
        assert counted.writes == [b"headbody"]


async def test_what_stands_alone_leaves_when_the_loop_has_come_round() -> None:
    async with connected() as (single, counted, reader):
        single.write(b"100 Continue")
        assert counted.writes == []
        assert await reader.readexactly(12) == b"100 Continue"
        single.write(b"head")
        single.write(b"")
        assert await reader.readexactly(4) == b"head"
        assert counted.writes == [b"100 Continue", b"head"]


@pytest.mark.parametrize("pieces", [1, 2, 3, 100])
async def test_order_is_kept_up_to_the_close(pieces: int) -> None:
    async with connected() as (single, _, reader):
        for n in range(pieces):
            single.write(b"%d " % n)
        single.close()
        assert await reader.read(-1) == b"".join(b"%d " % n for n in range(pieces))


async def test_nothing_is_written_to_what_is_closed() -> None:
    async with connected() as (single, counted, reader):
        single.write(b"late")
        counted.close()
        assert await reader.read(-1) == b""
        assert counted.writes == []


async def test_everything_else_is_the_transports() -> None:
    async with connected() as (single, counted, _):
        assert single.get_extra_info("socket") is counted.get_extra_info("socket")
        assert not single.is_closing()


async def test_nor_is_the_body_if_its_client_goes_behind_the_head() -> None:
    """uvloop would raise for it, and that is logged as a defect of ours."""
    async with connected() as (single, counted, reader):
        single.write(b"head")
        counted.close()
        single.write(b"body")
        assert await reader.read(-1) == b""
        assert counted.writes == []

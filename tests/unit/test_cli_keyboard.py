"""What is typed while an answer is written, of which the terminal has the last line and the server none yet."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from switchboard.cli.client import Client, Place, http_client
from switchboard.cli.messages.keyboard import Keyboard
from switchboard.cli.messages.talk import Answer


@asynccontextmanager
async def a_server_that_never_answers(asked: asyncio.Event) -> AsyncIterator[str]:
    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_line_that_is_typed_while_a_stop_is_on_its_way_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, keys = os.pipe()
    asked, kept = asyncio.Event(), list[str]()

    async def following() -> Answer:
        os.write(keys, b"/stop\n")
        await asked.wait()
        for line in (b"and the weather?\n", b"/stop\n"):
            os.write(keys, line)
            while select.select([terminal], [], [], 0)[0]:
                await asyncio.sleep(0)
        return Answer("a-request", "answered", True, ())

    with os.fdopen(terminal) as stdin, os.fdopen(keys, "w"):
        monkeypatch.setattr("sys.stdin", stdin)
        async with a_server_that_never_answers(asked) as url:
            place = Place(url, "token", "")
            async with http_client(place) as http:
                await Keyboard("s", kept).attend(Client(http, place), "a-request", following())
    assert kept == ["and the weather?"], "a stop that nothing is left for is no message"

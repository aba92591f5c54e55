"""Floods a switchboard: everything that a client can send faster than it can be answered.

`floods.py` runs it as a process, with a URL, a token of the gateway and the name of a flood. It connects and says so in
a line; told for how many seconds, it floods, says how much it has sent, and ends. A connection that is closed is opened
again at once. In `FLOODS` are the floods.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from msgspec import Struct

from switchboard.bench import lab

TOKEN: Final = "SWITCHBOARD_BENCH_TOKEN"  # noqa: S105  the name of a variable
"""The variable of the environment that holds the token."""
_STRANGERS: Final = 16
"""Connections of a client without a token."""
_OF_ONE_TOKEN: Final = 5
_CHUNK: Final = 65_536
_TEXTS: Final = 16
_TEXT_BYTES: Final = 256_000
_HANDSHAKE: Final = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
_REQUESTS: Final = (
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/messages HTTP/1.1\r\nHost: localhost\r\n\r\n"
)
_REQUEST: Final = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_PING: Final = b"\x89\x80\0\0\0\0"
_PONG: Final = b"\x8a\x80\0\0\0\0"


class Flood(Struct, frozen=True):
    """`connections` at once, each opened with `opening`, then sent pieces without end; `answered`: it reads."""

    connections: int
    opening: Callable[[str], tuple[bytes, ...]]
    """From a token, what is sent to begin with, each after an answer to the one before."""
    piece: Callable[[int], bytes]
    answered: bool = True
    again: bool = False
    """Whether each piece has a connection of its own."""


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def begin(self, opening: tuple[bytes, ...]) -> None:
        for data in opening:
            self._writer.write(data)
            if not await self._reader.read(_CHUNK):
                raise ConnectionError("closed at its beginning")

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def read_all(self) -> None:
        while await self._reader.read(_CHUNK):
            pass

    def close(self) -> None:
        self._writer.transport.abort()


def _text(message: object) -> bytes:
    """A frame with one text, whose mask changes nothing."""
    data = json.dumps(message).encode()
    if len(data) < 126:
        return bytes((0x81, 0x80 | len(data))) + bytes(4) + data
    return b"\x81\xfe" + len(data).to_bytes(2) + bytes(4) + data


def _request(method: str, params: Mapping[str, object], number: object = 0) -> bytes:
    return _text({"type": "req", "id": str(number), "method": method, "params": params})


def _signed_in(token: str) -> tuple[bytes, ...]:
    return _HANDSHAKE, _request("connect", {"token": token})


def _nothing(_: str) -> tuple[bytes, ...]:
    return ()


def _handshake_only(_: str) -> tuple[bytes, ...]:
    return (_HANDSHAKE,)


def _repeat_data(data: bytes) -> Callable[[int], bytes]:
    whole = data * (_CHUNK // len(data))
    return lambda _: whole


def _messages(number: int) -> bytes:
    """A few messages, each in a session of its own."""
    numbers = range(8 * number, 8 * number + 8)
    return b"".join(
        _request("chat.send", {"session": f"s{n % 100}", "text": "hello", "key": f"{os.getpid()}-{n}"}, n)
        for n in numbers
    )


FLOODS: Final[Mapping[str, Flood]] = {
    "requests in a row": Flood(_STRANGERS, _nothing, _repeat_data(_REQUESTS)),
    "requests in a row, answers unread": Flood(_STRANGERS, _nothing, _repeat_data(_REQUESTS), answered=False),
    "requests in a row, then gone": Flood(_STRANGERS, _nothing, _repeat_data(_REQUESTS), answered=False, again=True),
    "requests, one at a time": Flood(_STRANGERS, _nothing, lambda _: _REQUEST, again=True),
    "no requests": Flood(_STRANGERS, _nothing, lambda _: b"\x16\x03\x01\x02\0", again=True),
    "control frames before sign-in": Flood(_STRANGERS, _handshake_only, _repeat_data(_PING + _PONG)),
    "control frames before sign-in, unread": Flood(_STRANGERS, _handshake_only, _repeat_data(_PING), answered=False),
    "texts before sign-in": Flood(_STRANGERS, _handshake_only, _repeat_data(_text({"hello": "there"}))),
    "refused handshakes": Flood(
        _STRANGERS, _nothing, lambda _: _HANDSHAKE.replace(b"Version: 13", b"Version: 12"), again=True
    ),
    "bad handshakes": Flood(_STRANGERS, _nothing, lambda _: _HANDSHAKE.replace(b"AAAA==", b"="), again=True),
    "bad frames": Flood(_STRANGERS, _handshake_only, lambda _: b"\xf3\x80\0\0\0\0", again=True),
    "texts that are none": Flood(_STRANGERS, _handshake_only, lambda _: b"\x81\x81\0\0\0\0\xff", again=True),
    "one token: control frames": Flood(_OF_ONE_TOKEN, _signed_in, _repeat_data(_PING + _PONG)),
    "one token: pings": Flood(_OF_ONE_TOKEN, _signed_in, _repeat_data(_request("ping", {}))),
    "one token: histories": Flood(_OF_ONE_TOKEN, _signed_in, _repeat_data(_request("chat.history", {"session": "s1"}))),
    "one token: messages": Flood(_OF_ONE_TOKEN, _signed_in, _messages),
}
TEXTS: Final = f"{_TEXTS} texts of {_TEXT_BYTES // 1000} KB for a model"
"""The flood that is sent as messages over HTTP: texts that a model classifies."""


def large_text(number: int) -> str:
    """Words of which none is cached, in a text as large as a message may be."""
    words = (f"{number}-{n} plumber comes on Thursday between nine and eleven" for n in count())
    text = ""
    while len(text) < _TEXT_BYTES:
        text += " ".join(next(words) for _ in range(500)) + "\n"
    return text[:_TEXT_BYTES]


class _Client:
    def __init__(self, url: str, token: str, flood: Flood) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname or "127.0.0.1", parts.port or 80
        self._token = token
        self._flood = flood
        self._numbers = count()
        self._started = asyncio.Event()
        self.sent = self.opened = 0

    async def run(self, started: Callable[[], Awaitable[float]]) -> None:
        """Connect, wait until `started` tells for how many seconds, and flood."""
        works = [asyncio.create_task(self._connect_again()) for _ in range(self._flood.connections)]
        seconds = await started()
        self._started.set()
        await asyncio.sleep(seconds)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    async def _connect_again(self) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._once()
            await asyncio.sleep(0)

    async def _once(self) -> None:
        connection = _Connection(*await asyncio.open_connection(*self._address))
        reading: asyncio.Task[None] | None = None
        try:
            await connection.begin(self._flood.opening(self._token))
            self.opened += 1
            await self._started.wait()
            if self._flood.answered:
                reading = asyncio.create_task(connection.read_all())
            while reading is None or not reading.done():
                piece = self._flood.piece(next(self._numbers))
                await connection.send(piece)
                self.sent += len(piece)
                if self._flood.again:
                    if reading is not None:
                        await asyncio.wait([reading], timeout=1)
                    return
        finally:
            connection.close()
            if reading is not None:
                reading.cancel()


async def _post_texts(url: str, token: str, started: Callable[[], Awaitable[float]]) -> int:
    async with aiohttp.ClientSession(url, headers={"authorization": f"Bearer {token}"}) as http:
        texts = [large_text(number) for number in range(_TEXTS)]
        seconds = await started()

        async def post(number: int) -> None:
            message = lab.message(f"{os.getpid()}-{number}", f"text-{number}")
            message["payload"] = {"raw": {}, "normalized_text": texts[number]}
            await lab.post(http, "/v1/ingest", message)

        posts = asyncio.gather(*(post(number) for number in range(_TEXTS)))
        await asyncio.sleep(seconds)
        await posts
    return sum(map(len, texts))


async def _wait_for_start() -> float:
    sys.stdout.write("connected\n")
    sys.stdout.flush()
    return float(await asyncio.to_thread(sys.stdin.readline))


async def _main(url: str, name: str) -> None:
    token = os.environ[TOKEN]
    os.nice(10)  # who measures, on the same core, comes first
    if name == TEXTS:
        sent, opened = await _post_texts(url, token, _wait_for_start), _TEXTS
    else:
        client = _Client(url, token, FLOODS[name])
        await client.run(_wait_for_start)
        sent, opened = client.sent, client.opened
    sys.stdout.write(json.dumps({"sent_mb": sent / 1e6, "opened": opened}) + "\n")


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2]))

"""Asks a switchboard for its health, and chats with it, at a steady rate: what others see while it is flooded.

`floods.py` runs it as a process, with a URL; the token of its chats is in the environment. It connects and says so in a
line. For each line with a number it asks for so many seconds, and says in a line of JSON how many milliseconds each
answer took. What is late does not delay what comes after it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from itertools import count
from time import perf_counter
from typing import Final

import aiohttp

from switchboard.bench import lab
from switchboard.bench.flood_client import TOKEN

_HEALTH_PER_S: Final = 10.0
_CHATS_PER_S: Final = 4.0
_WITHIN_S: Final = 60.0
_SESSIONS: Final = 50


class _Chats:
    """One connection of the gateway."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count()
        self._asked: dict[str, asyncio.Future[None]] = {}

    async def sign_in(self, token: str) -> None:
        await self._send("connect", {"token": token}, "connect")
        answer = await self._socket.receive_json()
        if answer["type"] != "res":
            raise ConnectionError(answer)

    async def read(self) -> None:
        while (message := await self._socket.receive()).type is aiohttp.WSMsgType.TEXT:
            frame = json.loads(message.data)
            asked = self._asked.pop(str(frame.get("id")), None)
            if asked is not None and frame["type"] == "res":
                asked.set_result(None)
            elif asked is not None:
                asked.set_exception(ConnectionError(frame))

    async def say(self) -> None:
        """Send a message, and wait for the whole answer."""
        number = next(self._numbers)
        name = f"chat-{os.getpid()}-{number}"
        self._asked[name] = answered = asyncio.get_running_loop().create_future()
        await self._send("chat.send", {"session": f"s{number % _SESSIONS}", "text": "hello", "key": name}, name)
        await answered

    async def _send(self, method: str, params: dict[str, str], name: str) -> None:
        await self._socket.send_json({"type": "req", "id": name, "method": method, "params": params})


async def _steadily(ask: Callable[[], Coroutine[None, None, None]], per_second: float, seconds: float) -> list[float]:
    """Milliseconds until each was answered; what is not answered in time counts as so late."""
    took: list[float] = []

    async def timed() -> None:
        began = perf_counter()
        try:
            async with asyncio.timeout(_WITHIN_S):
                await ask()
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            sys.stderr.write(f"no answer: {error!r}\n")
            took.append(_WITHIN_S * 1000)
        else:
            took.append((perf_counter() - began) * 1000)

    async with asyncio.TaskGroup() as asked:
        async for _ in lab.steadily(round(per_second * seconds), per_second):
            asked.create_task(timed())
    return took


async def _main(url: str) -> None:
    async with aiohttp.ClientSession(url) as http, http.ws_connect("/v1/ws", heartbeat=None) as socket:
        chats = _Chats(socket)
        await chats.sign_in(os.environ[TOKEN])
        reading = asyncio.create_task(chats.read())
        sys.stdout.write("connected\n")
        sys.stdout.flush()

        async def health() -> None:
            async with http.get("/health") as response:
                await response.read()
                response.raise_for_status()

        while line := await asyncio.to_thread(sys.stdin.readline):
            seconds = float(line)
            answered = await asyncio.gather(
                _steadily(health, _HEALTH_PER_S, seconds), _steadily(chats.say, _CHATS_PER_S, seconds)
            )
            sys.stdout.write(json.dumps(dict(zip(("health", "chats"), answered, strict=True))) + "\n")
            sys.stdout.flush()
        reading.cancel()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))

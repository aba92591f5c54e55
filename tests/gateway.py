"""A client of the gateway: the library `websockets`, and every frame held against the published schema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from typing import Any, Final
from uuid import uuid4

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from switchboard.server.contracts.gateway import gateway_schema
from tests.waiting import SOON

# jsonschema has no type stubs.
_FRAMES: Final[Any] = import_module("jsonschema").Draft202012Validator(gateway_schema())
Frame = Mapping[str, Any]


@dataclass
class Folded:
    """What a client makes of the events of a stream: a text by butler, what happened, and how far it has come."""

    texts: dict[str, str] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)
    seq: int = 0
    end: Any = None

    def take(self, frame: Frame) -> None:
        assert frame["seq"] == self.seq + 1, "no event is missing, and none comes twice"
        self.seq, kind, told = frame["seq"], frame["event"], frame["payload"]
        text = self.texts.get(told.get("system_id", ""), "")
        if kind == "chat.reset":
            self.texts[told["system_id"]] = ""
        elif kind == "chat.delta":
            assert 0 <= told["offset"] <= len(text)
            self.texts[told["system_id"]] = text[: told["offset"]] + told["text"]
        elif kind in {"chat.done", "chat.error"}:
            self.end = told
        self.kinds.append(kind)

    @property
    def content(self) -> str:
        return "\n\n".join(self.texts.values())


@dataclass
class Client:
    """A connection that has shown its token. Events wait in `events`, by stream."""

    socket: ClientConnection
    welcome: Any = None
    events: dict[str, list[Frame]] = field(default_factory=dict)
    results: dict[str, Frame] = field(default_factory=dict)
    on_frame: Callable[[Frame], None] = lambda _: None
    _ids: Any = field(default_factory=lambda: count(1))

    async def frame(self) -> Frame:
        """The next one."""
        async with asyncio.timeout(SOON):
            frame: Frame = json.loads(await self.socket.recv())
        _FRAMES.validate(frame)
        self.on_frame(frame)
        if frame["type"] == "event":
            self.events.setdefault(frame["stream"], []).append(frame)
        else:
            self.results[str(frame["id"])] = frame
        return frame

    async def ask(self, method: str, **params: Any) -> str:
        """Send a request; its id."""
        request = {"type": "req", "id": str(next(self._ids)), "method": method, "params": params}
        _FRAMES.validate(request)
        await self.socket.send(json.dumps(request))
        return str(request["id"])

    async def result(self, request: str) -> Any:
        """The payload of the answer."""
        while request not in self.results:
            await self.frame()
        answer = self.results.pop(request)
        assert answer["ok"], answer
        return answer["payload"]

    async def call(self, method: str, **params: Any) -> Any:
        return await self.result(await self.ask(method, **params))

    async def refused(self, method: str, **params: Any) -> Any:
        """The error of a request."""
        request = await self.ask(method, **params)
        while request not in self.results:
            await self.frame()
        answer = self.results.pop(request)
        assert not answer["ok"], answer
        return answer["error"]

    async def say(self, text: str, session: str = "s", key: str = "", **more: Any) -> Any:
        return await self.call("chat.send", session=session, text=text, key=key or str(uuid4()), **more)

    async def event(self, stream: str) -> Frame:
        """The next event of a stream."""
        while not self.events.get(stream):
            await self.frame()
        return self.events[stream].pop(0)

    async def fold(self, stream: str, folded: Folded | None = None) -> Folded:
        """A stream to its end."""
        folded = folded or Folded()
        while folded.end is None:
            folded.take(await self.event(stream))
        return folded

    async def closed(self) -> tuple[int, str]:
        """Read on until the server closes; code and reason."""
        with suppress(ConnectionClosed):
            while True:
                await self.frame()
        return self.socket.close_code or 0, self.socket.close_reason or ""


def ws_url(url: str) -> str:
    return f"{url.replace('http', 'ws', 1)}/v1/ws"


@asynccontextmanager
async def socket(url: str, **more: Any) -> AsyncIterator[ClientConnection]:
    """A WebSocket to the gateway, without a word said."""
    async with connect(ws_url(url), proxy=None, close_timeout=SOON, **more) as opened:
        yield opened


@asynccontextmanager
async def client(url: str, token: str, speaker: Mapping[str, str] | None = None, **more: Any) -> AsyncIterator[Client]:
    """Connected."""
    async with socket(url, **more) as opened:
        one = Client(opened)
        params = {"token": token} | ({"speaker": dict(speaker)} if speaker else {})
        one.welcome = await one.call("connect", **params)
        yield one

"""Two pages for the demo, and a butler that plans a report about both.

`demonstration.py` serves the pages from its own process, `model.py` adds the butler and the scripted model's answers.
It counts concurrent requests, to show that both pages are fetched at once.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from switchboard.domain.json_values import JsonObject

LIBRARY: Final = "library"
"""The session in which the butler that plans is written to."""
_PAGES: Final = {
    "/paper": "Recursive language models: a model calls itself on parts of a context that is too long for it.",
    "/crate": "The crate rlm runs a local model on parts of a document and joins what it says.",
}
_TAKES_S: Final = 0.3
"""Seconds for a page, so that two of them overlap."""
_REPORT: Final = "Recursive language models split a long context into parts; the crate rlm does so with a local model."


@dataclass
class Pages:
    """The pages on this machine, with their host and port. `most`: maximum number of concurrent requests."""

    host: str
    now: int = 0
    most: int = 0

    @property
    def urls(self) -> list[str]:
        """Their addresses."""
        return [f"http://{self.host}{path}" for path in _PAGES]

    @property
    def question(self) -> str:
        """The question about them."""
        return f"Write a short report on RLM from {' and '.join(self.urls)}"

    @asynccontextmanager
    async def serve_on(self, listening: socket.socket) -> AsyncIterator[None]:
        """Serve them within this block."""
        async with await asyncio.start_server(self._answer_request, sock=listening):
            yield

    async def _answer_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
            await asyncio.sleep(_TAKES_S)
            body = _PAGES.get(path, "There is no such page.").encode()
            status = "200 OK" if path in _PAGES else "404 Not Found"
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
            await writer.drain()
        finally:
            self.now -= 1
            writer.close()


def a_port() -> socket.socket:
    """A free port on this machine."""
    return socket.create_server(("127.0.0.1", 0))


def pages_at(listening: socket.socket) -> Pages:
    """The pages, before they are served."""
    host, port = listening.getsockname()
    return Pages(f"{host}:{port}")


def planner(pages: Pages, models: Sequence[str], owner: str) -> JsonObject:
    """The planning butler, as in a team file."""
    roles = dict.fromkeys(("main", "router", "specialist"), models[0])
    config = {**roles, "owners": [owner], "private_hosts": [pages.host], "plan": {"deadline": 30}}
    return {"name": "librarian", "type": "operation", "engine": "trio", "description": "Researches", "config": config}


def rules(pages: Pages) -> list[JsonObject]:
    """The scripted model's plan and text."""
    fetches = [{"action": "tool", "target": "web_fetch", "args": {"url": url}, "needs": []} for url in pages.urls]
    last = {"action": "specialist", "target": "synthesize", "args": {"task": "Write a report from both pages."}}
    plan = {"action": "pipeline", "steps": [*fetches, {**last, "needs": [1, 2]}], "confidence": 0.9}
    return [
        {"when": {"system": "You plan how"}, "replies": [{"text": json.dumps(plan)}], "again": True},
        {"when": {"system": "You are a specialist"}, "replies": [{"text": _REPORT}], "again": True},
    ]

"""A cheap client for the load of `ingest.py`: it runs on the same cores as the server that it measures.

It keeps one connection, sends one request at a time, and handles only bytes. It supports only what our server sends:
HTTP/1.1 with a Content-Length.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Self, cast
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Connection(asyncio.Protocol):
    """POSTs to one path of one server."""

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._got = b""
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, url: str, headers: Mapping[str, str]) -> Self:
        """Open a connection; `headers` are sent with every request."""
        address = urlsplit(url)
        lines = [f"POST {address.path} HTTP/1.1", f"host: {address.netloc}", *(f"{k}: {v}" for k, v in headers.items())]
        head = "\r\n".join([*lines, "content-length: "]).encode()
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(head), address.hostname or "", address.port or 80)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    async def post(self, body: bytes) -> bytes:
        """The body of the answer. Raises ConnectionError if there is no answer, or one without success."""
        if self._transport is None:
            raise ConnectionError("not connected")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, end, body = self._got.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not end or self._answer is None or (length and len(body) < int(length[1])):
            return
        self._got = b""
        if length and head.startswith(b"HTTP/1.1 2"):
            self._answer.set_result(body)
        else:
            self._answer.set_exception(ConnectionError(f"{head.decode(errors='replace')}: {body[:500]!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server closed the connection"))

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

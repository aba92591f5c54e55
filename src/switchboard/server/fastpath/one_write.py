"""Bypasses uvicorn: sends head and body of a response in one write, as each write wakes the client.

`heads.py` puts it before the transport of every connection. In: uvicorn's writes; out: the same bytes, joined per
iteration of the event loop (`test_one_write.py`). Next: the transport itself.
"""

from __future__ import annotations

import asyncio
from typing import Any


class OneWrite:
    """A transport that holds written data until the next write, or the next iteration of the loop."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        """Write soon; at once if something was already held."""
        if self._held:
            self._held += data
            self._flush_writes()
        elif data:
            self._held = data
            self._loop.call_soon(self._flush_writes)

    def close(self) -> None:
        """Close after the held data has been written."""
        self._flush_writes()
        self._transport.close()

    def _flush_writes(self) -> None:
        if self._held:
            self._held, held = b"", self._held
            if not self._transport.is_closing():
                self._transport.write(held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

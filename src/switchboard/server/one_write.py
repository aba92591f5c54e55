"""Head and body of an answer leave in one write: each write wakes the client, and takes longer than making the answer.

`heads.py` puts it before the transport of every connection. In: what uvicorn writes; out: the same bytes, those of one
turn of the event loop together. Next: the transport itself.
"""

from __future__ import annotations

import asyncio
from typing import Any


class OneWrite:
    """A transport that holds what is written until the next write, or else until the loop has come round."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        """Soon; at once where something was held already."""
        if self._held:
            self._held, held = b"", self._held
            self._transport.write(b"".join((held, data)))
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """After what was written has gone."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            self._held, held = b"", self._held
            if not self._transport.is_closing():
                self._transport.write(held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

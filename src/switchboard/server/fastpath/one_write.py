"""Past uvicorn: head and body of a response leave in one write, for each write wakes the client.

`heads.py` puts it before the transport of every connection. In: what uvicorn writes; out: the same bytes, those of one
iteration of the event loop together (`test_one_write.py`). Next: the transport itself.
"""

from __future__ import annotations

import asyncio
from typing import Any


class OneWrite:
    """A transport that holds what is written until the next write, or until the next iteration of the loop."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        """Soon; at once if something was held already."""
        if self._held:
            self._held += data
            self._flush()
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

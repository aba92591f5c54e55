"""The port for the bytes of attachments, which are stored by their SHA-256.

`store/messages/blobs.py` implements it in PostgreSQL; an object store can take its place. Who may read or name a blob
is decided before these methods are called. Next: `app/messages/blobs.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Protocol


class BlobStore(Protocol):
    """Keeps bytes in pieces; `blob` is the 32 bytes of their SHA-256."""

    async def write(self, blob: bytes, pieces: AsyncIterable[bytes]) -> None:
        """Store the bytes, completely or not at all. Raises `Unavailable`."""
        ...

    def read(self, blob: bytes) -> AsyncIterator[bytes]:
        """The bytes, piece by piece. Raises `Unavailable`."""
        ...

    async def remove(self, blobs: Sequence[bytes]) -> None:
        """Delete these; missing ones are not an error. Raises `Unavailable`."""
        ...

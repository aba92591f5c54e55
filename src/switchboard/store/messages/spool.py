"""Files on their way into the database: first into an unnamed file, so that slow senders hold no connection.

`app/messages/blobs.py` spools uploads, `files.py` the files of butlers. Interrupted or killed transfers leave nothing
behind. Next: `blobs.py`.
"""

from __future__ import annotations

import asyncio
import errno
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Final, Protocol

from msgspec import Struct

from switchboard.core.files.blobs import HEAD_BYTES, Sniffed, StoredBlob, sniff
from switchboard.domain.errors import BlobQuota, TooLarge
from switchboard.ports.blobs import BlobStore
from switchboard.store.database import Database
from switchboard.store.messages.blobs import Noted, PieceStore, claim

PIECE_BYTES: Final = 262_144
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Limit(Struct, frozen=True):
    """The maximum size of a file in bytes, and the setting that defines it."""

    size_bytes: int
    setting: str

    def check(self, size_bytes: int) -> None:
        """Check the size so far. Raises TooLarge."""
        if size_bytes > self.size_bytes:
            raise TooLarge(f"a file may have {self.size_bytes} bytes ({self.setting}); nothing was stored")


class Spooled(Struct, frozen=True):
    """A whole file and its type. `kind`: its media type by its bytes alone."""

    file: IO[bytes]
    blob: bytes
    size_bytes: int
    sniffed: Sniffed
    kind: str


@asynccontextmanager
async def spool_file(
    pieces: AsyncIterable[bytes], claimed: str, limit: Limit, directory: Path | None
) -> AsyncIterator[Spooled]:
    """The file while the block runs; `claimed` is its declared media type. Raises TooLarge, BlobQuota."""
    with _a_full_disk_is_a_quota(), await asyncio.to_thread(_without_name, directory) as file:
        digest, size, head = sha256(), 0, b""
        async for piece in pieces:
            size += len(piece)
            limit.check(size)
            head += piece[: HEAD_BYTES - len(head)]
            digest.update(piece)
            await asyncio.to_thread(file.write, piece)
        await asyncio.to_thread(file.seek, 0)
        yield Spooled(file, digest.digest(), size, sniff(head, claimed), sniff(head, "").media_type)


class Note(Protocol):
    """Records who stores a blob, within the transaction."""

    def __call__(self, transaction: Database, blob: bytes, about: StoredBlob, /) -> Awaitable[Noted]: ...


async def enter(transaction: Database, given: Spooled, note: Note) -> str:
    """Store it for an owner; returns its media type as known to them. Concurrent uploads wait for the transaction.

    An owner's first upload is always written, so neither result nor duration reveals whether others have it.
    """
    new = await claim(transaction, given.blob, StoredBlob(given.size_bytes, given.kind))
    noted = await note(transaction, given.blob, StoredBlob(given.size_bytes, given.sniffed.media_type))
    if new or noted.first:
        store: BlobStore = PieceStore(transaction)
        await store.write(given.blob, _pieces(given.file))
    return noted.media_type


@contextmanager
def _a_full_disk_is_a_quota() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise BlobQuota("the disk of the data directory is full") from error


def _without_name(directory: Path | None) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=directory)


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
        yield piece

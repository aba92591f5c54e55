"""Files of messages over HTTP: taken in and given out piece by piece, never whole in memory.

The route calls `BlobService` with the caller's `Principal`. An upload first goes to a file without a name, so that a
client that is slow, or goes away, keeps no connection to the database and leaves nothing behind. Next: `core/blobs.py`,
`store/blobs.py`.
"""

from __future__ import annotations

import asyncio
import errno
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

from switchboard.app.access import Access, Principal
from switchboard.app.settings import BlobSettings
from switchboard.core.blobs import HEAD_BYTES, Sniffed, blob_of, sniff
from switchboard.domain.errors import BlobQuota, NotFound, TooLarge
from switchboard.ports.blobs import BlobStore
from switchboard.store import blobs as store
from switchboard.store.blobs import PieceStore, StoredBlob
from switchboard.store.database import Database
from switchboard.store.files import blob_of_link

PIECE_BYTES: Final = 262_144
_ARRIVING: Final = 16
"""Most uploads at a time; the others wait."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_STORING: Final = 2
"""Most that write to the database at a time."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A stored blob: name it as `blob:` and this SHA-256. `contradicted`: a claimed media type that the bytes deny."""

    blob: str
    size_bytes: int
    media_type: str
    contradicted: str | None


@dataclass(frozen=True, slots=True)
class Download:
    """A blob to be read."""

    size_bytes: int
    media_type: str
    pieces: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class _Spooled:
    file: IO[bytes]
    blob: bytes
    size_bytes: int
    sniffed: Sniffed


class BlobService:
    """Uploads for endpoints, and downloads for those who may read a message that has the blob."""

    def __init__(self, database: Database, access: Access, limits: BlobSettings, directory: Path) -> None:
        self._database = database
        self._access = access
        self._limits = limits
        self._directory = directory
        self._arriving = asyncio.Semaphore(_ARRIVING)
        self._storing = asyncio.Semaphore(_STORING)

    async def upload(
        self, caller: Principal, body: AsyncIterable[bytes], claimed: str, announced: int | None = None
    ) -> Uploaded:
        """Store a file; the same bytes twice are one blob. Raises TooLarge, BlobQuota, Unavailable."""
        self._check_size(announced or 0)
        await self._check_quota(caller, announced or 0)
        async with self._arriving:
            with _a_full_disk_is_a_quota(), await asyncio.to_thread(_without_name, self._directory) as file:
                return await self._store(caller, await self._spool(file, body, claimed))

    async def room(self, caller: Principal) -> int:
        """Bytes that the next file of this caller may have."""
        used, limits = await store.used(self._database, *_owner(caller)), self._limits
        rooms = [limits.file_bytes]
        if limits.endpoint_bytes_per_day and caller.role != "operator":
            rooms.append(limits.endpoint_bytes_per_day - used.endpoint)
        if limits.total_bytes:
            rooms.append(limits.total_bytes - used.total)
        return max(0, min(rooms))

    async def _spool(self, file: IO[bytes], body: AsyncIterable[bytes], claimed: str) -> _Spooled:
        digest, size, head = sha256(), 0, b""
        async for piece in body:
            size += len(piece)
            self._check_size(size)
            head += piece[: HEAD_BYTES - len(head)]
            digest.update(piece)
            await asyncio.to_thread(file.write, piece)
        await asyncio.to_thread(file.seek, 0)
        return _Spooled(file, digest.digest(), size, sniff(head, claimed))

    async def _store(self, caller: Principal, given: _Spooled) -> Uploaded:
        """In one transaction: what is interrupted leaves nothing, and another upload of the same bytes waits."""
        owner = _owner(caller)
        async with self._storing, self._database.transaction() as one:
            await self._check_quota(caller, given.size_bytes, one)
            about = StoredBlob(given.size_bytes, given.sniffed.media_type)
            claimed = await store.claim(one, given.blob, about)
            if claimed.new:
                pieces: BlobStore = PieceStore(one)
                await pieces.write(given.blob, _pieces(given.file))
            await store.note_upload(one, given.blob, given.size_bytes, *owner)
        return Uploaded(given.blob.hex(), given.size_bytes, claimed.media_type, given.sniffed.contradicted)

    async def download(self, caller: Principal, name: str) -> Download:
        """The blob of this name. Raises NotFound, also for what is no message's or upload's of the caller."""
        blob = blob_of(name)
        found = None if blob is None else await self._find(caller, blob)
        if blob is None or found is None:
            raise await self._hide(caller, name)
        return Download(found.size_bytes, found.media_type, PieceStore(self._database).read(blob))

    async def open_link(self, token: str) -> Download:
        """The blob to which a link was made for a butler. Raises NotFound, also when its hour is over."""
        blob = await blob_of_link(self._database, token)
        found = None if blob is None else await store.find(self._database, blob)
        if blob is None or found is None:
            raise NotFound("there is no such file, or the link to it has expired")
        return Download(found.size_bytes, found.media_type, PieceStore(self._database).read(blob))

    async def _hide(self, caller: Principal, name: str) -> NotFound:
        what = f"blob {name[:64]}"
        if caller.role == "operator":
            return NotFound(f"there is no {what}")
        return await self._access.hide(caller, "raw", what)

    async def _find(self, caller: Principal, blob: bytes) -> StoredBlob | None:
        if caller.role == "operator":
            return await store.find(self._database, blob)
        if caller.role == "agent":
            return await store.find_of_system(self._database, blob, caller.system_id or "")
        return await store.find_of_endpoint(self._database, blob, *_owner(caller))

    def _check_size(self, size: int) -> None:
        if size > self._limits.file_bytes:
            raise TooLarge(f"a file may have {self._limits.file_bytes} bytes (blobs.file_bytes); nothing was stored")

    async def _check_quota(self, caller: Principal, size: int, database: Database | None = None) -> None:
        used = await store.used(database or self._database, *_owner(caller))
        limits = self._limits
        if caller.role != "operator" and 0 < limits.endpoint_bytes_per_day < used.endpoint + size:
            raise BlobQuota(f"this endpoint may upload {limits.endpoint_bytes_per_day} bytes a day")
        if 0 < limits.total_bytes < used.total + size:
            raise BlobQuota(f"all blobs together may take {limits.total_bytes} bytes")


def _without_name(directory: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=directory)


@contextmanager
def _a_full_disk_is_a_quota() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise BlobQuota("the disk of the data directory is full") from error


def _owner(caller: Principal) -> tuple[str, str]:
    return caller.channel or "", caller.endpoint or ""


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
        yield piece

"""Blobs: the files of messages, each stored once, in pieces.

`app/messages/blobs.py` uploads and reads them, `journey/accept.py` notes which messages name them. Next:
`ports/blobs.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Sequence
from datetime import timedelta
from uuid import UUID

from msgspec import Struct

from switchboard.core.files.blobs import StoredBlob
from switchboard.domain.message import RequestId
from switchboard.store.database import Database, arrays, part_as, query, row_as


class Noted(Struct, frozen=True):
    """Whether this uploader stores this blob for the first time, and under which media type and name."""

    first: bool
    media_type: str


class BlobUsage(Struct, frozen=True):
    """Bytes uploaded by an endpoint within a day, kept for it, and kept for all; copies count each time they arrive."""

    today: int
    endpoint: int
    total: int


class PieceStore:
    """The bytes in PostgreSQL, a row for each piece; `write` within a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, blob: bytes, pieces: AsyncIterable[bytes]) -> None:
        """See the port."""
        n = 0
        async for piece in pieces:
            await self._database.run(query("blobs.write_piece"), blob, n, piece)
            n += 1

    async def read(self, blob: bytes) -> AsyncIterator[bytes]:
        """See the port."""
        n = 0
        while (piece := await self._database.value(query("blobs.read_piece"), blob, n)) is not None:
            yield piece
            n += 1

    async def remove(self, blobs: Sequence[bytes]) -> None:
        """See the port."""
        await self._database.run(query("blobs.remove_pieces"), list(blobs))


async def blob_usage(database: Database, channel: str, endpoint: str) -> BlobUsage:
    """How much is stored."""
    found = row_as(BlobUsage, await database.row(query("blobs.used"), channel, endpoint))
    return found or BlobUsage(0, 0, 0)


async def claim(transaction: Database, blob: bytes, about: StoredBlob) -> bool:
    """Register a blob; returns whether it is new. Another upload of it waits for the transaction."""
    return bool(await transaction.value(query("blobs.claim"), blob, about.size_bytes, about.media_type))


async def note_upload(transaction: Database, blob: bytes, about: StoredBlob, *, channel: str, endpoint: str) -> Noted:
    """Let messages of this endpoint name the blob for a day, and while one of its messages has it."""
    values = (blob, about.size_bytes, about.media_type, channel, endpoint)
    return row_as(Noted, await transaction.row(query("blobs.uploaded"), *values)) or Noted(True, about.media_type)


async def name(
    database: Database, blobs: Collection[bytes], channel: str, endpoint: str, *, by_operator: bool
) -> set[bytes]:
    """Which of these blobs a message of this endpoint may name; they are kept for at least another day."""
    rows = await database.rows(query("blobs.name"), list(blobs), channel, endpoint, by_operator)
    return {row["blob"] for row in rows}


async def refer(transaction: Database, references: Iterable[tuple[bytes, RequestId]]) -> None:
    """Record that these messages have these blobs, which are kept as long as the messages."""
    await transaction.run(query("blobs.refer"), *arrays(references, 2))


async def note_made(
    transaction: Database, blob: bytes, about: StoredBlob, *, request_id: UUID, system_id: str
) -> Noted:
    """Let this butler's answer to this message contain the blob."""
    values = (blob, about.size_bytes, about.media_type, request_id, system_id)
    return row_as(Noted, await transaction.row(query("blobs.made"), *values)) or Noted(True, about.media_type)


async def count_made(database: Database, request_id: UUID, system_id: str) -> int:
    """How many files this butler has created for its answer to this message."""
    return int(await database.value(query("blobs.count_made"), request_id, system_id))


async def is_answered(database: Database, request_id: UUID, system_id: str) -> bool:
    """Whether this butler has finished with this message."""
    return bool(await database.value(query("blobs.is_answered"), request_id, system_id))


async def sendable(
    database: Database, blobs: Collection[bytes], request_id: UUID, system_id: str
) -> dict[bytes, StoredBlob]:
    """Which of these an answer of this butler to this message may contain; they are kept for at least another day."""
    rows = await database.rows(query("blobs.sendable"), list(blobs), request_id, system_id)
    return {row["blob"]: part_as(StoredBlob, row) for row in rows}


async def find(database: Database, blob: bytes) -> StoredBlob | None:
    """The blob, if there is one."""
    return row_as(StoredBlob, await database.row(query("blobs.find_all"), blob))


async def find_bytes(database: Database, blob: bytes) -> StoredBlob | None:
    """The same for callers who must not learn its name and declared type."""
    return row_as(StoredBlob, await database.row(query("blobs.find_bytes"), blob))


async def find_of_endpoint(database: Database, blob: bytes, channel: str, endpoint: str) -> StoredBlob | None:
    """The same for a connector: blobs uploaded by its endpoint, or part of one of its messages."""
    return row_as(StoredBlob, await database.row(query("blobs.find_of_endpoint"), blob, channel, endpoint))


async def find_of_system(database: Database, blob: bytes, system_id: str) -> StoredBlob | None:
    """The same for a butler: blobs of messages that were delivered to it."""
    return row_as(StoredBlob, await database.row(query("blobs.find_of_system"), blob, system_id))


async def forget(database: Database, unused: timedelta, limit: int) -> int:
    """Remove blobs that no message has, and that nobody has recently uploaded or named; returns how many."""
    async with database.transaction() as one:
        gone = [row["blob"] for row in await one.rows(query("blobs.forget"), unused, limit)]
        if gone:
            await PieceStore(one).remove(gone)
    return len(gone)
